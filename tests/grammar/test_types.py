"""Inferred types, and rules that must pass because a part of them cannot be known."""

from __future__ import annotations

import pytest
from rewrite.engine.rewriting.rule_library import OperatorTable
from rewrite.grammar.syntax import ast
from rewrite.grammar.syntax.expand import collect, expand
from rewrite.grammar.syntax.parse import parse_text
from rewrite.grammar.types import Typing, infer
from rewrite.grammar.types.linear import Linear, Store


def typing(text: str) -> Typing:
    items = parse_text(text).items
    definitions, found = collect(i for i in items if isinstance(i, ast.Def))
    items = tuple(i if isinstance(i, ast.Def) else expand(i, definitions, found) for i in items)
    assert not found
    return infer(items, OperatorTable())


def types(text: str) -> dict[str, str]:
    """Return the types of the single item's variables, as text."""
    found = typing(text)
    assert not found.diagnostics, [d.message for d in found.diagnostics]
    (variables,) = found.types.values()
    return {name: str(type_) for name, type_ in variables.items()}


def codes(text: str) -> list[str]:
    return [d.code for d in typing(text).diagnostics]


# --- what is inferred


def test_schemas_give_element_types_and_ranks() -> None:
    found = types("rule r Conv(x, W, B, kernel_shape: [3, 3], group: g, ..a) => x where all(B == 0)")
    assert found["x"] == "float[_, _, _, _]"
    assert found["W"] == "float[_, _, 3, 3]"
    assert found["B"] == "const float[_]"
    assert found["g"] == "int"
    assert found["a"] == "rest"


def test_attributes_have_the_kinds_of_the_schema() -> None:
    found = types(
        'rule r LeakyRelu(Cast(Transpose(Gelu(x, approximate: m), perm: p), to: t), alpha: s) => x where m == "none"'
    )
    assert (found["s"], found["t"], found["m"], found["p"]) == ("float", "dtype", "string", "ints")


def test_given_types_bind_names_that_flow_through_operators() -> None:
    found = types("rule r (x @ y) + z => x @ y given x: f32[M, K], y: T[_, N] where dtype(z) == T, rank(z) == 2")
    assert found["x"] == "f32[M, K]"
    assert found["y"] == "f32[K, N]"
    assert found["z"] == "f32[_, _]"
    assert (found["M"], found["T"]) == ("dim", "dtype")


def test_the_right_side_has_the_type_of_the_left() -> None:
    assert types("rule r Identity(x) => Transpose(x, perm: [1, 0])")["x"] == "[_, _]"


def test_groups_and_variadic_inputs() -> None:
    found = types(
        "rule r { y[i] = x @ W[i] } => { y[*] = Split(x @ Concat(W[*], axis: 1), [dim(W[i], 1)], axis: rank(x) - 1) }"
        " given W[i]: const f32[K, _]"
    )
    assert found["W"] == "list of const f32[K, _]"
    assert found["x"].startswith("f32[")
    assert types("rule r Concat(xs[*], axis: a) => Concat(xs[*], axis: a) given xs: f32")["xs"] == "list of f32"


def test_what_is_not_known_is_called_tensor() -> None:
    assert types("rule r Identity(x) => x")["x"] == "tensor"


def test_permutations_are_as_long_as_the_rank() -> None:
    found = types("rule r Transpose(x, perm: p) => x given x: [A, B, C] where len(p) == 3, p[2] == 1, A == B")
    assert found["p"] == "ints of length 3"


# --- what can never be


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x + y => x given x: f32, y: i64", "dtype-conflict"),
        ("x + y => x given x: f32 where dtype(y) == f64", "dtype-conflict"),
        ("Relu(x) => x where is_integer(dtype(x)), dtype(x) in [f32, f64]", "dtype-conflict"),
        ("Not(x) => Cast(x, to: f32)", "dtype-conflict"),
        ("Gather(x, i) => x where is_float(dtype(i))", "dtype-conflict"),
        ("x @ y => x @ y given x: [_, _, 3], y: [4, _]", "dim-conflict"),
        ("Concat(x, y, axis: 1) => x given x: [_, _], y: [_, _, _]", "rank-conflict"),
        ("Concat(x, y, axis: 1) => Concat(x, y, axis: 1) given x: [2, _], y: [3, _]", "dim-conflict"),
        ("Conv(x, W, group: 1, ..a) => Conv(x, W, ..a) given x: [_, 3, _, _], W: [_, 4, _, _]", "dim-conflict"),
        ("ReduceSum(x, a, keepdims: 1) => Unsqueeze(x, [0])", "rank-conflict"),
        ("x + y => x given x: [_, _], y: [_, _, _]", "rank-conflict"),
        ("Reshape(x, t) => x given t: i64[_, _]", "rank-conflict"),
        ("Softmax(x, axis: a) => x where a == [1]", "incomparable"),
        ("Relu(x) => Softmax(x, axis: x)", "wrong-attribute"),
        ("x * c => x where scalar(c) == 1, not is_const(c)", "const-conflict"),
        ("elementwise f(x) => f(x) where f == 1", "incomparable"),
        ("Relu(x) => x where dim(x, 0) == dim(x, 0) + 1", "never-true"),
    ],
)
def test_what_can_never_be_is_refused(text: str, expected: str) -> None:
    assert expected in codes(f"rule r {text}")


# --- what may be, and must pass


@pytest.mark.parametrize(
    "text",
    [
        "x + y => y + x given x: [_, _], y: [_, _, _]",
        "x * c => x given x: f32[2, 3] where all(c == 1)",
        "Conv(x, W, B = 0, ..a) => Conv(x, W, B * 2, ..a)",
        "Clip(x, a = -inf, b = inf) => x where scalar(a) == -inf",
        "Split(x, s, axis: a)[0] => Split(x, s, axis: a)[0] given x: [N, _]",
        "{ a = Split(x, s, axis: 0)[0], b = Split(x, s, axis: 0)[1] } => { a = x, b = x } where dim(x, 0) == 2",
        "Where(p, x, y) => Where(p, x, like(0, x))",
        "elementwise f(x, y) => f(y, x) given x: f32[_], y: i64[_, _]",
        "reduction f(x, a, keepdims: k) => f(x, a, keepdims: 1 - k)",
        "Cast(Cast(x, to: s), to: t) => Cast(x, to: t) where lossless(dtype(x), s), t != bool",
        "Squeeze(Unsqueeze(x, a), b) => x where ints(a) == ints(b)",
        "If(c, ..a) => If(c, ..a)",
        "Concat(Transpose(x[i], perm: p) ..., axis: a) => Transpose(Concat(x[*], axis: p[a]), perm: p)",
        "{ y[i] = Cast(x, to: t[i]) } => { y[*] = [Cast(x, to: t[i]) ...] }",
        "MaxPool(x, kernel_shape: k, pads: p = [0, 0], ..a) => x given x: [_, _, _, _] where p == [0, 0]",
        "Relu(x) => (Relu(x) if rank(x) == 1 else Transpose(x, perm: [1, 0]))",
        "Shape(x, start: 0, end: e) => Shape(x) where e is none",
        "SequenceAt(SequenceConstruct(xs[*]), i) => xs[0]",
        "com.acme.Thing(x, alpha: a) => x where a == 1",
        "x / y => x where any([dim(x, i) == 1 for i in range(0, 9)]) or dim(x, 7) == 1",
        "(Relu(x) | Abs(x)) => x given x: f32",
    ],
)
def test_what_may_be_passes(text: str) -> None:
    assert codes(f"rule r {text}") == []


def test_an_alternative_that_never_matches_is_reported() -> None:
    (found,) = typing("rule r (Round(x) | Shape(x)) => x given x: f32").diagnostics
    assert (found.code, found.severity, found.span.column) == ("dead", "warning", 20)


def test_the_second_place_is_where_the_other_type_comes_from() -> None:
    (found,) = typing("rule r\n  x + y => x\n  given x: f32, y: i64").diagnostics
    assert (found.span.line, found.span.column) == (3, 17)
    assert [(label.span.line, label.span.column) for label in found.labels] == [(3, 12)]


def test_fixes_are_for_the_text_that_is_wrong() -> None:
    text = "rule r Softmax(x, axis: [1]) => Transpose(x, perm: 0)"
    found = typing(text).diagnostics
    changes = {text[f.span.column - 1 : f.span.end_column - 1]: f.replacement for d in found if (f := d.fix)}
    assert changes == {"[1]": "1", "0": "[0]"}


def test_operators_are_typed_by_their_definitions() -> None:
    assert "dtype-conflict" in codes("op Mixed(x: f32[N], y: i64[N]) = x + y")
    assert codes("op Twice(x, k: 2.0) = Relu(x) * k\nrule r Abs(x) => Twice(x, k: 3) given x: f32") == []
    assert "dtype-conflict" in codes("op Twice(x) = Relu(x) * 2\nrule r Abs(x) => Twice(x) given x: bool")


def test_operators_of_other_domains_are_typed_as_they_are_declared() -> None:
    foo = "op com.acme.Foo(x: float[N, C], w: T[C, K]) -> T[N, K]\n"
    assert codes(foo + "rule r com.acme.Foo(x, w) => x @ w") == []
    assert codes(foo + "rule r com.acme.Foo(x, w) => x @ w given x: [_, _, _]") == ["rank-conflict"]
    assert codes(foo + "rule r com.acme.Foo(x, w) => x @ w given x: [_, 3], w: [4, _]") == ["dim-conflict"]
    assert "dtype-conflict" in codes(foo + "rule r Abs(x) => com.acme.Foo(x, x) given x: i64")
    found = typing(foo + "rule r Abs(com.acme.Foo(x, w)) => x @ w given w: f32[3, 5]").types["r"]
    assert (str(found["x"]), str(found["w"])) == ("f32[_, 3]", "f32[3, 5]")


# --- linear arithmetic


def test_equations_are_solved_and_contradictions_found() -> None:
    store = Store()
    a, b, c = store.fresh(), store.fresh(), store.fresh()
    assert store.equate(a.plus(b), Linear(5))
    assert store.equate(a, b.plus(Linear(1)))
    assert store.resolve(a) == Linear(3)
    assert store.resolve(b) == Linear(2)
    assert not store.equate(a, b)
    assert not store.equate(c.times(2), Linear(3))
    assert not store.equate(c.plus(Linear(1)), Linear(0))
    assert store.at_most(c, 4)
    assert not store.at_least(c, 5)
    assert store.bounds(c.times(3).plus(a)) == (3, 15)


@pytest.mark.parametrize(
    "text",
    [
        "op com.acme.F(x, ks: []) = x where len(ks) == 2",
        "op com.acme.F(x, ks: none) = x where ks is not none, len(ks) == 2",
        "op com.acme.F(x, k: 1) = x where k == 2",
        "op ai.onnx.ml.Scaler(X, scale: none) = X where len(scale) == 2",
    ],
)
def test_a_default_says_only_of_what_sort_an_attribute_is(text: str) -> None:
    assert codes(text) == []
