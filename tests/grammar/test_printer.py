"""Printed text parses to an equal tree."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewrite.grammar.builtins import KINDS, WORDS
from rewrite.grammar.printing.format import print_file
from rewrite.grammar.printing.printer import WIDTH, print_expr, print_rule
from rewrite.grammar.syntax import ast, parse
from rewrite.grammar.syntax.parse import parse_file, parse_text
from rewrite.grammar.syntax.syntax_errors import RESERVED

RULES = Path(parse.__file__).parents[2] / "rules"
SPAN = ast.Span("", 1, 1, 1, 1)


FILES = [Path(__file__).with_name("sample.rules"), *sorted(RULES.rglob("*.rules"))]
INFIX = ["+", "-", "*", "/", "%", "@", "**", "and", "or"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_files_round_trip(path: Path) -> None:
    file = parse_file(path)
    text = print_file(file)
    again = parse_text(text, str(path))
    assert again == file
    assert again.doc == file.doc
    assert [item.doc for item in again.items] == [item.doc for item in file.items]
    assert print_file(again) == text


@pytest.mark.parametrize(
    "text",
    [
        "a + (b + c)",
        "(a + b) + c",
        "(a * b) ** c ** d",
        "(a ** b) ** c",
        "-(a + b)",
        "-(-2)",
        "(-2) ** 2",
        "-2 ** 2",
        "2 ** -2",
        "not (a and b)",
        "not a and b",
        "(not a) == b",
        "a not in [b]",
        "(a == b) == c",
        "(1 .. 2) == c",
        "(1 .. 2)[0]",
        "(a + b)[0]",
        "(a or b) and c",
        "a or (b or c)",
        "[i + 1 for i in p if i > 0 or i < 0]",
        '["x", none, -1.5e-07]',
        "f(x, [y])[0]",
        "(a if b or c else d)[0] + (a if (b if c else d) else e)",
    ],
)
def test_expressions_round_trip_with_the_least_parentheses(text: str) -> None:
    (expr,) = parse_text(f"rule r x + 0 => x where {text}").items[0].where  # type: ignore[attr-defined]
    printed = print_expr(expr)
    assert parse_text(f"rule r x + 0 => x where {printed}").items[0].where == (expr,)  # type: ignore[attr-defined]
    assert printed.count("(") <= text.count("(")


def test_layout() -> None:
    text = """rule conv_bn                                           # γ(Wx+B-μ)/√(σ²+ε)+β
  BatchNormalization(Conv(x, W, B = 0, ..a), gamma, beta, mu, var, epsilon: eps, training_mode: 0)
    =>
  Conv(x, W * expand_dims(k, 1 .. rank(W) - 1), (B - mu) * k + beta, ..a)
  let k = gamma / sqrt(var + eps)
  given W, B, gamma, beta, mu, var: const
  class reassoc
  direction canonical
  test fires    x: f32[1,3,8,8], W: const f32[4,3,3,3], pads = [1,1,1,1]  gives Conv(x, W)
  test refuses  x: f32[1]"""
    assert print_rule(parse_text(text).items[0]) == text


def test_long_clauses_are_broken() -> None:
    conditions = ", ".join(f"rank(x) == {i}" for i in range(30))
    (item,) = parse_text(f"rule r x + 0 => x where {conditions}").items
    text = print_rule(item)
    assert parse_text(text).items == (item,)
    assert max(map(len, text.split("\n"))) <= WIDTH


NAMES = st.text(string.ascii_letters, min_size=1, max_size=3).filter(lambda n: n not in RESERVED)
SMALL = NAMES.map(str.lower).filter(lambda n: n not in RESERVED and n not in WORDS)
HEADS = st.sampled_from(["Conv", "com.microsoft.Gelu", "rank", "f"])
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)


def node(make: type[ast.Syntax], **parts: Any) -> Any:
    return st.builds(make, span=st.just(SPAN), **parts)


def several(strategy: Any, low: int = 0, high: int = 3) -> Any:
    return st.lists(strategy, min_size=low, max_size=high).map(tuple)


@st.composite
def call(draw: Any, inner: Any) -> Any:
    """Inputs, then attributes; sometimes as a class head."""
    inputs = inner | node(ast.Optional, name=NAMES, default=inner)
    rest = st.none() | node(ast.Rest, name=st.none() | NAMES)
    kind = draw(st.none() | st.sampled_from(KINDS))
    head = draw(NAMES if kind else HEADS)
    attributes = several(node(ast.Attribute, name=NAMES | st.sampled_from(sorted(RESERVED)), value=inner), high=2)
    return draw(
        node(ast.Call, head=st.just(head), args=several(inputs), attributes=attributes, rest=rest, kind=st.just(kind))
    )


def minus(operand: ast.Expr) -> ast.Expr:
    """A minus before a literal is part of the literal."""
    if isinstance(operand, ast.Number) and not str(operand.value).startswith("-"):
        return ast.Number(span=SPAN, value=-operand.value)
    return ast.Unary(span=SPAN, operator="-", operand=operand)


def larger(inner: Any) -> Any:
    optional = node(ast.Optional, name=NAMES, default=inner)
    compare = st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "is", "is not"])
    index = inner | node(ast.All)
    return st.one_of(
        node(
            ast.Binary,
            operator=st.sampled_from(INFIX),
            left=inner | optional,
            right=inner | optional,
        ),
        node(ast.Compare, operator=compare, left=inner, right=inner),
        node(ast.Unary, operator=st.just("not"), operand=inner),
        inner.map(minus),
        node(ast.Range, low=inner, high=inner),
        node(ast.Subscript, base=inner, index=index),
        node(ast.ListExpr, items=several(inner)),
        node(ast.Comprehension, item=inner, variable=NAMES, iterable=inner, condition=st.none() | inner),
        node(ast.Alternatives, options=several(inner, 2)),
        node(ast.Conditional, then=inner, condition=inner, otherwise=inner),
        call(inner),
    )


ATOMS = st.one_of(
    node(ast.Number, value=NUMBERS),
    node(ast.String, value=st.text(st.characters(exclude_characters='"\n\r', codec="utf-8"), max_size=5)),
    node(ast.Name, id=NAMES),
)
EXPRESSIONS = st.recursive(ATOMS, larger, max_leaves=20)

DIMS = several(node(ast.Name, id=NAMES) | node(ast.AnyDim) | node(ast.Number, value=st.integers(0, 9)))
TYPES = node(ast.TypeExpr, const=st.just(False), element=NAMES, shape=st.none() | DIMS)
RELATIONS = node(
    ast.TypeExpr, const=st.just(False), element=NAMES, shape=st.none() | DIMS, broadcasts=st.none() | EXPRESSIONS
)
PARAMS = st.one_of(
    node(ast.Param, name=SMALL),
    node(ast.Param, name=SMALL, variadic=st.just(True), type=TYPES),
    node(ast.Param, name=SMALL, attribute=node(ast.Number, value=NUMBERS)),
    node(ast.Param, name=SMALL, type=TYPES, default=st.none() | node(ast.Name, id=st.just("none"))),
)
ITEMS = st.one_of(
    node(
        ast.Op,
        name=st.sampled_from(["Op", "com.acme.OperatorWithALongName"]),
        params=several(PARAMS, 0, 12),
        results=several(RELATIONS),
        definition=st.none() | ATOMS,
        kind=st.none() | st.sampled_from(KINDS),
        commutative=st.booleans(),
        discontinuous=st.booleans(),
        where=several(ATOMS),
    ),
    node(ast.Def, name=SMALL, params=several(SMALL), body=EXPRESSIONS),
    node(ast.Rule, name=SMALL, lhs=EXPRESSIONS, rhs=ATOMS, where=several(ATOMS), bidirectional=st.booleans()),
    node(ast.Fuse, name=SMALL, lhs=EXPRESSIONS, rhs=ATOMS),
    node(ast.Ruleset, name=SMALL, joins=st.none() | SMALL),
    node(ast.Schedule, name=SMALL, steps=several(node(ast.Run, ruleset=NAMES), 1, 9)),
    node(ast.Use, path=st.just("a.rules"), names=several(NAMES)),
    node(ast.UseDomain, domain=st.just("com.acme"), low=st.integers(1, 9), high=st.none() | st.integers(1, 9)),
)
"""Items of every kind, without docs."""


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS)
def test_any_expression_round_trips(expr: ast.Expr) -> None:
    text = f"rule r X() => X() where ({print_expr(expr)})"
    (item,) = parse.parse_fresh(text, "").file.items
    assert item.where == (expr,)  # type: ignore[attr-defined]
