"""Running the tests that stand beside rules: `test fires …` and `test refuses …`.

A test builds the rule's left side from its operands, saturates with that rule alone, and looks whether it was applied.
Where it was, every form of the result is computed with NumPy on drawn inputs and compared under the numerics class that
the rule claims, so that a rule that fires wrongly fails its own tests.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import RewriteError
from ..grammar import ast
from ..grammar.library import Library
from ..grammar.parse import read
from ..grammar.printer import print_expr
from .egraph import EGraph
from .evaluate import Evaluator
from .instances import Array, Operands, evaluate_members, unequal
from .library import compiled, load_rules, operators_of, recognition, rule_set
from .model_tests import Setting, equals, on_model
from .nearest import why_not
from .operators import Declared, declaring
from .patterns import CompiledRule, Unsupported
from .processes import in_order
from .saturate import Limits, Saturator
from .schedule import plan_for
from .shapes import IllTyped
from .terms import Unprintable, different, node_term, term
from .values import TensorRef, Unprovable, Value


@dataclass(frozen=True, slots=True)
class TestResult:
    """The outcome of one test. `kind` is `fires`, `refuses` or `equals`; `message` says what went wrong.

    Where the result is another than the one after `gives`, `actual` is the text of the result and `expected` the place
    of what the test says."""

    __test__ = False

    file: str
    rule: str
    line: int
    kind: str
    ok: bool
    message: str = ""
    seconds: float = 0.0
    actual: str = ""
    expected: ast.Span | None = None


@dataclass(frozen=True, slots=True)
class _Failure:
    """What is wrong, and what a test that gives something else gives."""

    message: str
    actual: str = ""


@dataclass(frozen=True, slots=True)
class _Suite:
    rule: ast.Rule
    kinds: dict[str, str]
    commutative: frozenset[str]
    declared: Mapping[str, ast.Op]
    operators: Callable[[Mapping[str, int]], Mapping[str, Declared]]


def run_tests(
    paths: Iterable[str | Path], select: str | None = None, *, std: bool = True, jobs: int = 1
) -> list[TestResult]:
    """Runs the tests in rule files (directories stand for the `*.rules` in them); those of rule `select` only, if
    given; in `jobs` processes.

    Operators declared by the standard library are known if `std`. Raises `RuleErrors` for files that are not right."""
    wanted = list(map(Path, paths))
    library = load_rules(wanted, std=std)
    inside = [sorted(p.rglob("*.rules")) if p.is_dir() else [p] for p in wanted]
    files = {str(f.resolve()) for found in inside for f in found}
    every = suites(library)
    numbers = [
        number
        for number, suite in enumerate(every)
        if str(Path(suite.rule.span.file).resolve()) in files
        and (select is None or suite.rule.name == select)
        and suite.rule.tests
    ]
    if jobs <= 1 or len(numbers) <= _PARCEL:
        return _run_suites(every[number] for number in numbers)
    parcels = [_Parcel(tuple(wanted), std, tuple(numbers[i : i + _PARCEL])) for i in range(0, len(numbers), _PARCEL)]
    return [result for results in in_order(_run_parcel, parcels, jobs=jobs) for result in results]


_PARCEL = 8
"""How many rules one process tests at a time: few, for some take much longer than others."""


def _run_suites(chosen: Iterable[_Suite]) -> list[TestResult]:
    return [run_test(suite, test) for suite in chosen for test in suite.rule.tests]


@dataclass(frozen=True, slots=True)
class _Parcel:
    """Some of the suites of a library, by their numbers: what one process runs at a time."""

    files: tuple[Path, ...]
    std: bool
    numbers: tuple[int, ...]


def _run_parcel(parcel: _Parcel) -> list[TestResult]:
    every = _loaded(parcel.files, parcel.std)
    return _run_suites(every[number] for number in parcel.numbers)


@functools.lru_cache(maxsize=1)
def _loaded(files: tuple[Path, ...], std: bool) -> list[_Suite]:
    """In a process that lives for one run only: the files are those of its start."""
    return suites(load_rules(files, std=std))


def suites(library: Library) -> list[_Suite]:
    """All rules of a library with what their tests need; operators with a definition as the rule that
    recognises them."""
    rules = rule_set(library, "fast", precision=None)
    every = [*library.rules, *(recognition(op) for op in library.ops if op.definition is not None)]
    known = functools.partial(operators_of, library)
    return [_Suite(rule, rules.kinds, rules.commutative, rules.declared, known) for rule in every]


def run_test(suite: _Suite, test: ast.RuleTest) -> TestResult:
    """Runs one test, once for each way that alternatives in the pattern leave."""
    start = time.perf_counter()
    failure = _first_failure(suite, test)
    place = test.gives.span if test.gives is not None and failure is not None and failure.actual else None
    return TestResult(
        suite.rule.span.file, suite.rule.name, test.span.line, test.verdict, failure is None,
        failure.message if failure is not None else "", time.perf_counter() - start,
        failure.actual if failure is not None else "", place,
    )  # fmt: skip


def _first_failure(suite: _Suite, test: ast.RuleTest) -> _Failure | None:
    with declaring(suite.operators({})):
        return _found_wrong(suite, test)


def _found_wrong(suite: _Suite, test: ast.RuleTest) -> _Failure | None:
    try:
        if test.equals or test.model is not None:
            rule = suite.rule
            setting = Setting(
                rule, tuple(compiled(rule)), suite.kinds, suite.commutative, suite.declared, suite.operators
            )
            message = equals(setting, test) if test.equals else on_model(setting, test)
            return _Failure(message) if message else None
        for lhs in _ways(suite.rule.lhs):
            failure = _run(suite, test, lhs)
            if failure is not None:
                return failure
    except (Unprovable, IllTyped) as why:
        return _Failure(f"the left side cannot be built from these operands: {why}")
    except Unsupported as why:
        return _Failure(f"the pattern cannot be matched: {why}")
    except RewriteError as error:
        return _Failure(str(error))
    return None


def _run(suite: _Suite, test: ast.RuleTest, lhs: ast.Expr | ast.Roots) -> _Failure | None:
    rule = suite.rule
    egraph = EGraph.create(suite.commutative)
    evaluator = Evaluator(egraph)
    evaluator.declared = suite.declared
    operands = Operands(rule, test, evaluator)
    roots = operands.build(lhs if test.term is None else test.term)
    before = {egraph.find(r): r for r in roots}
    forward = list(compiled(rule))[:1]
    limits = Limits(seconds=10, nodes=20_000, iterations=8)
    report = Saturator(
        egraph, forward, suite.kinds, limits, plan=plan_for(rule.ruleset), declared=suite.declared, constants=True
    ).run()
    count = report.counts[rule.name]
    if test.verdict == "refuses":
        return _refuses(egraph, operands, roots, rule.name) if count.applied else None
    if not count.applied:
        return _Failure(_not_applied(egraph, forward, evaluator, suite, count.reason))
    for trial in range(2):
        values = operands.values(trial)
        for root in before.values():
            failure = _differ(egraph, root, evaluate_members(egraph, root, values), operands)
            if failure is not None:
                return failure
    return _gives(test, evaluator, operands, roots)


def _not_applied(
    egraph: EGraph, forward: Sequence[CompiledRule], evaluator: Evaluator, suite: _Suite, reason: str
) -> str:
    """That a rule was not applied, with the part of it that came nearest to a match and failed."""
    answer = why_not(egraph, forward, evaluator, suite.kinds, most=1, constants=True)
    if not answer.misses:
        return "it was not applied: " + (reason or "the pattern does not match")
    miss = answer.misses[0]
    shown = miss.diagnostic().render({miss.span.file: read(miss.span.file)}).split("\n")[1:]
    return "\n".join([f"it was not applied: {miss.reason}", *shown])


def _refuses(egraph: EGraph, operands: Operands, roots: Sequence[int], rule: str) -> _Failure:
    """A rule that was applied where it must not be, with what it made."""
    names = operands.names()
    lines = ["it was applied"]
    for root in roots:
        with contextlib.suppress(Unprintable):
            before = node_term(egraph, root, names)
            lines += [f"  {print_expr(before)}", f"    =>  {print_expr(term(egraph, root, names, made_by=rule))}"]
    return _Failure("\n".join(lines))


def _differ(egraph: EGraph, root: int, found: Sequence[Array], operands: Operands) -> _Failure | None:
    """Where two forms of a value are not equal, with both."""
    members = egraph.members(root)
    for handle, other in zip(members[1:], found[1:], strict=True):
        message = unequal(found[0], other, operands.rule)
        if not message:
            continue
        lines = [f"the two sides differ: {message}"]
        names = operands.names()
        with contextlib.suppress(Unprintable):
            lines += [f"  {print_expr(node_term(egraph, h, names))}" for h in (members[0], handle)]
        return _Failure("\n".join(lines))
    return None


def _gives(test: ast.RuleTest, evaluator: Evaluator, operands: Operands, roots: Sequence[int]) -> _Failure | None:
    if test.gives is None:
        return None
    egraph = evaluator.egraph
    value: Value = evaluator.evaluate(test.gives, dict(operands.env))
    expected = value if isinstance(value, list) else [value]
    egraph.rebuild()
    for root, item in zip(roots, expected, strict=False):
        handle = item.handle if isinstance(item, TensorRef) else evaluator.constant(item, egraph.type(root).dtype)
        if egraph.find(handle) != egraph.find(root):
            return _gives_another(test.gives, egraph, root, operands)
    return None


def _gives_another(gives: ast.Expr, egraph: EGraph, root: int, operands: Operands) -> _Failure:
    says = "the result is another than expected"
    try:
        actual = term(egraph, root, operands.names(), made_by=operands.rule.name)
    except Unprintable as why:
        return _Failure(f"{says}, and cannot be written as an expression: {why}")
    return _Failure("\n".join([says, *different(gives, actual)]), print_expr(actual))


def _ways(expr: ast.Expr | ast.Roots) -> list[ast.Expr | ast.Roots]:
    """The pattern with every alternative chosen in turn."""
    import dataclasses

    def expand(node: ast.Syntax) -> list[ast.Syntax]:
        if isinstance(node, ast.Alternatives):
            return [way for option in node.options for way in expand(option)]
        choices: list[list[object]] = []
        names = []
        for f in dataclasses.fields(node):
            value = getattr(node, f.name)
            if isinstance(value, tuple) and any(isinstance(v, ast.Syntax) for v in value):
                parts = [expand(v) if isinstance(v, ast.Syntax) else [v] for v in value]
                choices.append(list(itertools.product(*parts)))
                names.append(f.name)
            elif isinstance(value, ast.Syntax):
                choices.append(list(expand(value)))
                names.append(f.name)
        ways = [dict[str, Any](zip(names, way, strict=True)) for way in itertools.product(*choices)]
        return [dataclasses.replace(node, **fields) for fields in ways]

    return expand(expr)[:16]  # type: ignore[return-value]
