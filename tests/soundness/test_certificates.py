"""The second checker confirms the prover's proofs, and refuses what was altered or proved by a faulty prover."""

# ruff: noqa: E501  (a rule in a line reads better)

from __future__ import annotations

import ast as python
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("z3")

from rewrite.engine.rewriting.rule_library import load_rules
from rewrite.grammar.library.load import Library
from rewrite.soundness import certificates
from rewrite.soundness.certificates import axioms
from rewrite.soundness.certificates.certificate import Certificate
from rewrite.soundness.certificates.checker import check
from rewrite.soundness.certificates.facts import CaseSolver, add
from rewrite.soundness.prover import NotProved, Proof, prove
from rewrite.soundness.prover.equality import canonicalize, equality, normal_form
from rewrite.soundness.prover.paths.path import Path as ProofPath
from rewrite.soundness.prover.prover import prove_rule
from rewrite.soundness.prover.terms import laws
from rewrite.soundness.prover.terms.scalars import Scalar

RIGHT = """
rule pixels        DepthToSpace(SpaceToDepth(x, blocksize: n), blocksize: n, mode: "DCR") => x class exact
rule parts         Concat(Slice(x, [0], [2], [0], [1]), Slice(x, [2], [9999], [0], [1]), axis: 0) => x
                   where dim(x, 0) >= 2, dim(x, 0) <= 9000 class exact
rule turned        Transpose(x @ y, perm: [1, 0]) => Transpose(y, perm: [1, 0]) @ Transpose(x, perm: [1, 0]) class reassoc
rule product       Concat(x, y, axis: 1) @ Concat(v, w, axis: 0) => x @ v + y @ w
                   given x: [M, K], y: [M, L], v: [K, N], w: [L, N] class reassoc
rule associate     (x @ y) @ z => x @ (y @ z) given x: [_, _], y: [_, _], z: [_, _]
                   where dim(y, 0) > 0, dim(y, 1) > 0 class reassoc
rule sigmoid       Sigmoid(Neg(x)) => 1 / (1 + Exp(x)) given x: f32 class reassoc
rule negated       Neg(Neg(x)) => x given x: float class exact
rule minimum       And(Less(x, a), Less(x, b)) => Less(x, Min(a, b)) given x: i32 class exact
rule clamp         Min(Max(x, a), b) => Max(Min(x, b), a) given x: float, a, b: scalar where scalar(a) <= scalar(b) class reassoc
rule wraps         (x + y) - y => x given x: i8 class exact
rule maximum       ReduceMax(ReduceMax(x, [1]), [0]) => ReduceMax(x, [0, 1]) given x: [_, _] class exact
rule windows       Conv(x, W, auto_pad: "VALID", ..a) => Conv(x, W, auto_pad: "NOTSET", pads: repeat(0, 2 * (rank(W) - 2)), ..a) class exact
"""


def _library(text: str, folder: Path) -> Library:
    path = folder / "some.rules"
    path.write_text(text)
    return load_rules([path], std=False)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Certificate]:
    library = _library(RIGHT, tmp_path_factory.mktemp("rules"))
    found = {rule.name: prove_rule(rule, library, 30) for rule in library.rules}
    assert all(isinstance(f, tuple) for f in found.values()), found
    return {name: f[1] for name, f in found.items() if isinstance(f, tuple)}


NAMES = [line.split()[1] for line in RIGHT.splitlines() if line.startswith("rule ")]


@pytest.mark.parametrize("name", NAMES)
def test_a_certificate_of_a_right_rule_is_confirmed(right: dict[str, Certificate], name: str) -> None:
    assert check(right[name]) is None


# --- one step altered ---


def _shifted(value: Any) -> Any:
    """Return an integer or condition that says something else: the integer is 1000 less, `ge` and `eq` of it."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value - 1000
    if value[0] == "sum":
        return ("sum", *value[1:], (-1000, ()))
    if value[0] in ("ge", "eq"):
        return (value[0], _shifted(value[1]))
    return (value[0], *map(_shifted, value[1:])) if value[0] in ("and", "or") else ("not", _shifted(value[1]))


def _altered(step: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield alterations of a step, each of which is false."""
    match step:
        case ("implied" | "quotient" as kind, cond):
            yield (kind, _shifted(cond))
        case ("implies", under, cond):
            yield ("implies", under, _shifted(cond))
        case ("equal", atom, value):
            yield ("equal", atom, _shifted(value))
        case ("split", whole, size, outer, most, inner, low):
            yield ("split", whole, _shifted(size), outer, most, inner, low)
            yield ("split", whole, size, outer, most, inner, _shifted(low))
            yield ("split", whole, size, outer, most, outer, low)
        case ("cases", place, *conds) if len(conds) > 1:
            yield ("cases", place, *conds[1:])
            yield ("cases", place, *map(_shifted, conds))


def _variants(certificate: Certificate, kind: str) -> Iterator[Certificate]:
    """Yield the certificate with one step of a kind altered, for the first of each part."""
    for p, part in enumerate(certificate.parts):
        for c, case in enumerate(part):
            for k, step in enumerate(case.steps):
                if step[0] == kind:
                    for other in _altered(step):
                        yield _with_case(certificate, p, c, steps=(*case.steps[:k], other, *case.steps[k + 1 :]))


def _with_case(certificate: Certificate, part: int, place: int, **changes: Any) -> Certificate:
    cases = list(certificate.parts[part])
    cases[place] = dataclasses.replace(cases[place], **changes)
    parts = list(certificate.parts)
    parts[part] = tuple(cases)
    return dataclasses.replace(certificate, parts=tuple(parts))


def _spread(found: Iterator[Certificate], count: int) -> list[Certificate]:
    every = list(found)
    return every[:: max(1, len(every) // count)]


@pytest.mark.parametrize("kind", ["implied", "implies", "equal", "quotient", "split", "cases"])
def test_an_altered_step_is_refused(right: dict[str, Certificate], kind: str) -> None:
    found = 0
    for name in ("pixels", "parts", "windows", "associate"):
        for variant in _spread(_variants(right[name], kind), 6):
            found += 1
            reason = check(variant)
            assert reason is not None, (name, kind)
            assert reason.startswith(f"the step {kind}"), reason
    assert found >= 4


def test_an_index_that_is_not_new_is_refused(right: dict[str, Certificate]) -> None:
    case = right["parts"].parts[0][-1]
    place, step = next((k, s) for k, s in enumerate(case.steps) if s[0] == "index")
    twice = (*case.steps[: place + 1], step, *case.steps[place + 1 :])
    variant = _with_case(right["parts"], 0, len(right["parts"].parts[0]) - 1, steps=twice)
    assert str(check(variant)).startswith("the step index")


def test_a_missing_case_is_refused(right: dict[str, Certificate]) -> None:
    for name in ("parts", "maximum", "windows"):
        certificate = right[name]
        (cases, *rest) = certificate.parts
        assert len(cases) > 1
        for k in range(len(cases)):
            variant = dataclasses.replace(certificate, parts=((*cases[:k], *cases[k + 1 :]), *rest))
            assert check(variant) is not None, (name, k)
    assert check(dataclasses.replace(right["parts"], parts=())) == "no cases"


def test_a_forgotten_option_is_refused(right: dict[str, Certificate]) -> None:
    certificate = right["maximum"]
    (cases,) = certificate.parts
    assert [c.taken for c in cases] == [(0,), (1,), (2,)]
    fewer = tuple(dataclasses.replace(c, options=(2,)) for c in cases)
    assert check(dataclasses.replace(certificate, parts=(fewer,))) is not None
    more = tuple(dataclasses.replace(c, options=(4,)) for c in cases)
    assert check(dataclasses.replace(certificate, parts=(more,))) == "the cases (3,) are missing"


def _changes(s: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield scalars that differ from this one in one place, so that they are not equal to it."""
    match s:
        case ("read" | "flat" as kind, name, *places):
            yield (kind, f"{name}'", *places)
            for k in range(len(places)):
                yield (kind, name, *places[:k], _shifted(places[k]), *places[k + 1 :])
        case ("const", text):
            yield ("const", str(Fraction(text) + 1))
        case ("app", op, attrs, *args):
            yield (
                "app",
                {"Add": "Mul", "Max": "Min", "Min": "Max", "Less": "LessOrEqual"}.get(op, "Cosh"),
                attrs,
                *args,
            )
            for k, a in enumerate(args):
                yield from (("app", op, attrs, *args[:k], b, *args[k + 1 :]) for b in _changes(a))
        case ("ite", cond, a, b):
            yield ("ite", cond, b, a)
            yield from (("ite", cond, c, b) for c in _changes(a))
        case ("big", op, listed, body):
            yield ("big", {"Sum": "Max", "Max": "Sum"}[op], listed, body)
            ((v, size), *rest) = listed
            yield ("big", op, ((v, _shifted(size)), *rest), body)
            yield from (("big", op, listed, b) for b in _changes(body))


@pytest.mark.parametrize("name", NAMES)
def test_an_altered_side_is_refused(right: dict[str, Certificate], name: str) -> None:
    certificate = right[name]
    places = [(p, c) for p, part in enumerate(certificate.parts) for c, case in enumerate(part) if case.goals]
    p, c = places[-1]
    goal = certificate.parts[p][c].goals[0]
    count = 0
    for side in ("left", "right"):
        every = list(_changes(getattr(goal, side)))
        for other in every[:: max(1, len(every) // 5)]:
            changed = dataclasses.replace(goal, **{side: other})
            types = certificate.parts[p][c].types
            more = {**types, **{f"{n}'": t for n, t in types.items()}}
            assert check(_with_case(certificate, p, c, goals=(changed,), types=more)) is not None, other
            count += 1
    assert count


@pytest.mark.parametrize(
    ("name", "numerics"), [("turned", "bit for bit"), ("product", ""), ("associate", ""), ("sigmoid", "")]
)
def test_a_proof_of_another_class_is_refused(right: dict[str, Certificate], name: str, numerics: str) -> None:
    if name == "turned":  # the same terms in the same order
        assert check(dataclasses.replace(right[name], numerics="exact")) is None
    else:
        assert check(dataclasses.replace(right[name], numerics="exact")) is not None


def test_a_proof_without_its_conditions_is_refused(right: dict[str, Certificate]) -> None:
    certificate = right["associate"]
    p, c = next((p, c) for p, part in enumerate(certificate.parts) for c, case in enumerate(part) if case.goals)
    case = certificate.parts[p][c]
    steps = tuple(s for s in case.steps if s[0] not in ("given", "implied", "implies"))
    assert check(_with_case(certificate, p, c, steps=steps)) is not None
    clamp = right["clamp"]
    p, c = next((p, c) for p, part in enumerate(clamp.parts) for c, case in enumerate(part) if case.elements)
    assert check(_with_case(clamp, p, c, elements=())) is not None


def test_a_certificate_that_takes_too_long_is_refused(right: dict[str, Certificate]) -> None:
    assert check(right["pixels"], effort=3) == "out of time"


# --- faults of the prover ---

Fault = Callable[[pytest.MonkeyPatch], None]


def _wrong_product(patch: pytest.MonkeyPatch) -> None:
    real = normal_form.Normalizer._product

    def product(self: Any, left: Any, right: Any) -> Any:
        return [dataclasses.replace(t, factor=abs(t.factor)) for t in real(self, left, right)]

    patch.setattr(normal_form.Normalizer, "_product", product)


def _wrong_law(patch: pytest.MonkeyPatch) -> None:
    real = laws.laws

    def more(op: str, args: list[Scalar], **claim: bool) -> Iterator[Scalar]:
        if op == "Abs":
            yield args[0]
        yield from real(op, args, **claim)

    patch.setattr(normal_form, "laws", more)


def _wrong_definition(patch: pytest.MonkeyPatch) -> None:
    real = laws.definition
    patch.setattr(
        normal_form, "definition", lambda op, attrs, args: real("Sigmoid" if op == "Mish" else op, attrs, args)
    )


def _wrong_indices(patch: pytest.MonkeyPatch) -> None:
    def same(path: Any, a: Scalar, b: Scalar, under: Any) -> bool:
        return {s.args[0] for s in (a, b)} == {"x"} and a.op == b.op == "read"

    patch.setattr(equality, "same", same)


def _wrong_renaming(patch: pytest.MonkeyPatch) -> None:
    real = canonicalize.substituted

    def forgets(s: Scalar, mapping: Any) -> Scalar:
        return s if s.op == "big" else real(s, mapping)

    patch.setattr(normal_form.Normalizer, "_range", lambda self, v: True)
    patch.setattr(equality, "substituted", forgets)


def _nothing_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(normal_form.Normalizer, "hides_nothing", lambda self, *sides: True)


def _any_reach(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(equality, "same_reach", lambda path, a, b: True)


def _wrong_solver(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(equality, "decided", lambda *rest: "bit-vectors")


def _wrong_answers(patch: pytest.MonkeyPatch) -> None:
    real = ProofPath._ask
    equation = "not"  # the negation of an equation
    patch.setattr(ProofPath, "_ask", lambda self, conds: getattr(conds[-1], "op", "") == equation or real(self, conds))


def _lost_option(patch: pytest.MonkeyPatch) -> None:
    real = ProofPath.choose

    def choose(self: ProofPath, options: Any, what: str, conds: Any = ()) -> Any:
        return real(self, options[-1:], what, conds[-1:]) if conds else real(self, options, what)

    patch.setattr(ProofPath, "choose", choose)


FAULTS: list[tuple[Fault, str]] = [
    (_wrong_product, "x * (-1.0 * y) => x * y given x: float class fast"),
    (_wrong_law, "Abs(x) => x given x: float class exact"),
    (_wrong_definition, "Mish(x) => Sigmoid(x) class reassoc"),
    (_wrong_indices, "Transpose(x, perm: [1, 0]) => x given x: [N, N] class exact"),
    (
        _wrong_renaming,
        "ReduceSum(Slice(x, [0], [2], [0], [1]), [0]) => ReduceSum(Slice(x, [0], [3], [0], [1]), [0]) given x: i32[N] where dim(x, 0) >= 3 class exact",
    ),
    (_nothing_dropped, "x - x => full(shape(x), 0, dtype(x)) given x: float class reassoc"),
    (
        _any_reach,
        "(x @ W) * k => x @ (W * reshape(k, [size(k)])) given W: [_, _], k: const where size(k) == 1, rank(x) >= 2 class reassoc",
    ),
    (_wrong_solver, "(x * y) / y => x given x: i32 class exact"),
    (_wrong_answers, "Transpose(x, perm: [1, 0]) => x given x: [N, N] class exact"),
    (
        _lost_option,
        "ReduceSum(Slice(x, [0], [2], [0], [1]), [0]) => ReduceSum(x, [0]) given x: i32[N] where dim(x, 0) > 0 class exact",
    ),
]


@pytest.mark.parametrize(("fault", "text"), FAULTS, ids=[f.__name__ for f, _ in FAULTS])
def test_a_faulty_prover_is_caught(fault: Fault, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = _library(f"rule wrong  {text}\n", tmp_path)
    (rule,) = library.rules
    assert isinstance(prove_rule(rule, library, 3), NotProved)
    fault(monkeypatch)
    assert isinstance(prove_rule(rule, library, 3), tuple), "the fault does not show"
    found = prove(rule, library, seconds=3)
    assert isinstance(found, NotProved)
    assert found.reason.startswith("not confirmed: ")


def test_a_proof_says_that_it_was_confirmed(tmp_path: Path) -> None:
    library = _library(RIGHT, tmp_path)
    found = prove(library.rules[0], library)
    assert isinstance(found, Proof)
    assert "confirmed by the second checker" in str(found)


# --- the checker itself ---


def test_the_checker_shares_no_code_with_the_prover() -> None:
    folder = Path(str(certificates.__file__)).parent
    for path in folder.glob("*.py"):
        for node in python.walk(python.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, python.ImportFrom):
                assert node.level <= 1, f"{path.name} imports {node.module}"
                assert not str(node.module).startswith("rewrite"), f"{path.name} imports {node.module}"


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Neg": np.negative, "Abs": np.abs,
    "Sign": np.sign, "Relu": lambda x: np.maximum(x, x.dtype.type(0)), "Less": np.less, "LessOrEqual": np.less_equal,
    "Greater": np.greater, "GreaterOrEqual": np.greater_equal, "Not": np.logical_not, "Pow": np.power,
    "Max": lambda *v: functools.reduce(np.maximum, v), "Min": lambda *v: functools.reduce(np.minimum, v), "Sum": lambda x: x, "Mean": lambda x: x,
    "Reciprocal": lambda x: 1 / x, "Ceil": np.ceil, "Floor": np.floor, "Round": np.rint, "Exp": np.exp, "Log": np.log,
    "Sqrt": np.sqrt, "Tanh": np.tanh, "Erf": np.vectorize(math.erf), "Where": np.where,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Softplus": lambda x: np.log1p(np.exp(x)),
    "Softsign": lambda x: x / (1 + abs(x)), "Swish": lambda x, alpha: x / (1 + np.exp(-alpha * x)),
    "Mish": lambda x: x * np.tanh(np.log1p(np.exp(x))), "HardSigmoid": lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1), "LeakyRelu": lambda x, alpha: np.where(x < 0, alpha * x, x),
    "PRelu": lambda x, s: np.where(x < 0, s * x, x), "Elu": lambda x, alpha: np.where(x < 0, alpha * np.expm1(x), x),
    "Gelu": lambda x, approximate: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) if approximate == "none"
            else 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}  # fmt: skip
_ATTRIBUTES = {"Swish": ("alpha",), "HardSigmoid": ("alpha", "beta"), "LeakyRelu": ("alpha",), "Elu": ("alpha",)}


def _value(pattern: Any, env: dict[str, Any], dtype: Any, top: bool = False) -> Any:
    if pattern[0] == "any":
        return env[pattern[1]]
    if pattern[0] == "const":
        return dtype(float(pattern[1]))
    op, attrs, *args = pattern[1:]
    named = {k: env[k] for k in _ATTRIBUTES.get(op, ())} if top else {}
    return _FUNCTIONS[op](*(_value(a, env, dtype) for a in args), **dict(attrs), **named)


@cache
def _numbers(dtype: Any) -> Any:
    if np.issubdtype(dtype, np.integer):
        return np.array([0, 1, -1, 2, 7, -7, 100, 127, -128], dtype)
    return np.array([0.0, -0.0, 1, -1, 0.5, -2.5, 3e-45, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan], dtype)


def _letters(pattern: Any) -> set[str]:
    return (
        {pattern[1]}
        if pattern[0] == "any"
        else set().union(*map(_letters, pattern[3:]))
        if pattern[0] == "app"
        else set()
    )


def _grid(pattern: Any, values: Any) -> dict[str, Any]:
    names = sorted(_letters(pattern))
    rows = np.array(list(itertools.product(values, repeat=len(names))), values.dtype)
    return {n: rows[:, k] for k, n in enumerate(names)}


def _each(*texts: str) -> list[tuple[Any, Any]]:
    return [e for known in axioms.equations(*texts).values() for e in known]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
@pytest.mark.parametrize("zeros", [False, True])
def test_the_axioms_for_bits_hold_on_all_kinds_of_numbers(dtype: Any, zeros: bool) -> None:
    floats = not np.issubdtype(dtype, np.integer)
    texts = [axioms.BITS] + [axioms.FLOAT_BITS] * floats + [axioms.ZEROS] * zeros
    for left, right in _each(*texts):
        env = _grid(left, np.array([True, False]) if left[1] == "Not" else _numbers(dtype))
        if not floats and left[1] == "Div":
            continue  # NumPy's quotient of integers is a float
        a, b = np.broadcast_arrays(*(_value(side, env, dtype) for side in (left, right)))
        if a.dtype.kind != "f" or b.dtype.kind != "f":
            np.testing.assert_array_equal(a, b, err_msg=str((left, right)))
            continue
        nan = np.isnan(a)
        np.testing.assert_array_equal(nan, np.isnan(b), err_msg=str((left, right)))
        np.testing.assert_array_equal(a[~nan], b[~nan], err_msg=str((left, right)))
        if not zeros:
            np.testing.assert_array_equal(np.signbit(a[~nan]), np.signbit(b[~nan]), err_msg=str((left, right)))


@pytest.mark.parametrize("text", [axioms.REALS, axioms.FAST])
def test_the_axioms_for_real_numbers_hold(text: str) -> None:
    values = np.array([-3.0, -0.7, -0.1, 0.0, 0.3, 1.0, 2.5])
    for left, right in _each(text):
        env = {**_grid(left, values), "alpha": 0.3, "beta": 0.6}
        a, b = _value(left, env, np.float64, top=True), _value(right, env, np.float64)
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9, err_msg=str((left, right)))


def test_the_table_names_no_axiom_twice() -> None:
    known = _each(axioms.BITS, axioms.FLOAT_BITS, axioms.ZEROS, axioms.REALS, axioms.FAST)
    assert len(known) == len(set(known)) > 40


def test_the_checker_leaves_terms_of_others_alone() -> None:
    """z3 has one context for all; the prover keeps terms of its own, which it goes on to use after a check."""
    import z3

    before = z3.Int("x") > 0
    assert check(Certificate("r", "exact", False, ())) == "no cases"
    assert z3.And(before, z3.Int("y") > 0).num_args() == 2


def test_a_case_has_no_facts_of_the_one_before_that_are_not_its_own() -> None:
    n = ("sum", (1, (("var", "n"),)))
    positive, small, large, none = ("ge", add(n, -1)), ("ge", add(2, n, -1)), ("ge", add(n, -3)), ("ge", add(0, n, -1))
    solver = CaseSolver()
    held = [[positive], [positive, small], [positive, large], [none], [none, positive]]
    verdicts = [str(solver.holding(number, facts).check()) for number, facts in enumerate(held)]
    assert verdicts == ["sat", "sat", "sat", "sat", "unsat"]
    assert str(solver.holding(4, [none, positive, small]).check()) == "unsat"
    assert str(solver.holding(5, [positive, small]).check()) == "sat"
