"""Syntax trees of the language's forms, and the spans of their nodes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rewrite.errors import UserError
from rewrite.grammar.diagnostics import RuleErrors
from rewrite.grammar.printing.printer import print_expr
from rewrite.grammar.syntax import ast
from rewrite.grammar.syntax.parse import parse_file, parse_text
from rewrite.grammar.syntax.syntax_errors import RESERVED


def rule(text: str) -> ast.Rule:
    (item,) = parse_text(text).items
    assert isinstance(item, ast.Rule)
    return item


def condition(text: str) -> ast.Expr:
    (expr,) = rule(f"rule r x + 0 => x where {text}").where
    return expr


def shape_of(expr: ast.Expr) -> str:
    """Return a fully parenthesized text of the tree."""
    match expr:
        case ast.Binary(operator=op, left=left, right=right) | ast.Compare(operator=op, left=left, right=right):
            return f"({shape_of(left)} {op} {shape_of(right)})"
        case ast.Unary(operator=op, operand=operand):
            return f"({op} {shape_of(operand)})"
        case ast.Range(low=low, high=high):
            return f"({shape_of(low)} .. {shape_of(high)})"
    return print_expr(expr)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a + b * c", "(a + (b * c))"),
        ("a - b - c", "((a - b) - c)"),
        ("a ** b ** c", "(a ** (b ** c))"),
        ("-a ** b", "(- (a ** b))"),
        ("a ** -b", "(a ** (- b))"),
        ("-2 ** b", "(- (2 ** b))"),
        ("(-2) ** b", "(-2 ** b)"),
        ("-a[0]", "(- a[0])"),
        ("a @ b % c / d", "(((a @ b) % c) / d)"),
        ("a or b and not c == d", "(a or (b and (not (c == d))))"),
        ("not a and b", "((not a) and b)"),
        ("1 .. rank(W)-1 == p", "((1 .. (rank(W) - 1)) == p)"),
        ("a not in b", "(not (a in b))"),
        ("a is not none", "(a is not none)"),
        ("a is none", "(a is none)"),
        ("a <= b", "(a <= b)"),
        ("f(a)[0][1]", "f(a)[0][1]"),
        ("a - -1", "(a - -1)"),
    ],
)
def test_precedence(text: str, tree: str) -> None:
    assert shape_of(condition(text)) == tree


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2),
        ("0.5", 0.5),
        ("1e-5", 1e-5),
        ("1E+2", 100.0),
        ("-3", -3),
        ("-0.25", -0.25),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_numbers(text: str, value: int | float) -> None:
    number = condition(text)
    assert isinstance(number, ast.Number)
    assert number.value == value
    assert type(number.value) is type(value)


@pytest.mark.parametrize("word", sorted(RESERVED | {"axis", "to", "mode", "group", "shape", "const"}))
def test_every_word_may_name_an_attribute(word: str) -> None:
    lhs = rule(f"rule r\n  Op(x,\n  {word}: a, ..b) => x").lhs
    assert isinstance(lhs, ast.Call)
    assert [a.name for a in lhs.attributes] == [word]


def test_call() -> None:
    lhs = rule("rule r Conv(x, W, B = 0, xs[*], pads: p, group: 1, ..a) => x").lhs
    assert isinstance(lhs, ast.Call)
    assert [type(a) for a in lhs.args] == [ast.Name, ast.Name, ast.Optional, ast.Subscript]
    assert [(a.name, type(a.value)) for a in lhs.attributes] == [("pads", ast.Name), ("group", ast.Number)]
    assert lhs.rest is not None
    assert lhs.rest.name == "a"
    assert lhs.is_operator


def test_heads() -> None:
    lhs = rule("rule r elementwise f(com.microsoft.Gelu(x), sqrt(2)) => x").lhs
    assert isinstance(lhs, ast.Call)
    assert (lhs.kind, lhs.head, lhs.is_operator) == ("elementwise", "f", True)
    gelu, sqrt = lhs.args
    assert isinstance(gelu, ast.Call)
    assert isinstance(sqrt, ast.Call)
    assert (gelu.head, gelu.is_operator, sqrt.is_operator) == ("com.microsoft.Gelu", True, False)


def test_alternatives_and_parentheses() -> None:
    lhs = rule("rule r Relu((a + b | Abs(c) | (d))) => x").lhs
    assert isinstance(lhs, ast.Call)
    (alternatives,) = lhs.args
    assert isinstance(alternatives, ast.Alternatives)
    assert [type(o) for o in alternatives.options] == [ast.Binary, ast.Call, ast.Name]


def test_clauses() -> None:
    r = rule(
        """rule r
  { y[i] = x @ W[i] }  <=>  { y[*] = Split(x, axis: 0) }
  given x, W[i]: const f32[N, 3, _, ..s], c: scalar, d: const, e: const [..]
  where a == 1, b == 2
  let k = 1, j[i] = 2
  class exact signed_zero
  direction explore
  test fires x: f32[2, 3], c = [[1, 1]], W[0]: const f32 = 1 gives Relu(x)
  test refuses"""
    )
    assert r.bidirectional
    assert (r.numerics, r.relaxations, r.direction) == ("exact", ("signed_zero",), "explore")
    assert [[t.name for t in g.targets] for g in r.given] == [["x", "W"], ["c"], ["d"], ["e"]]
    first, scalar, const, rest = (g.type for g in r.given)
    assert (first.const, first.element) == (True, "f32")
    assert [type(d) for d in first.shape or ()] == [ast.Name, ast.Number, ast.AnyDim, ast.ShapeRest]
    assert (scalar.const, scalar.element, scalar.shape) == (False, "scalar", None)
    assert (const.const, const.element, const.shape) == (True, None, None)
    assert rest.shape is not None
    assert len(r.where) == len(r.let) == len(r.tests) == 2
    fires, refuses = r.tests
    assert fires.gives is not None
    assert [(o.target.name, o.type is None, o.value is None) for o in fires.operands] == [
        ("x", False, True),
        ("c", True, False),
        ("W", False, False),
    ]
    assert (refuses.verdict, refuses.operands) == ("refuses", ())


def test_defaults_of_clauses() -> None:
    r = rule("rule r x + 0 => x")
    assert (r.numerics, r.relaxations, r.direction, r.bidirectional) == ("exact", (), "simplify", False)


def test_op() -> None:
    add, gelu, concat = parse_text(
        """op Add kind elementwise commutative
op my.domain.Gelu(x, y = none, alpha: 0.5, shape: 1) = x * 2  kind elementwise  impure
  given x: float  where rank(x) > 0  class fast  test fires x: f32[2]
op All(xs[*])"""
    ).items
    assert isinstance(add, ast.Op)
    assert (add.params, add.kind, add.commutative, add.impure) == (None, "elementwise", True, False)
    assert isinstance(gelu, ast.Op)
    assert gelu.name == "my.domain.Gelu"
    assert [(p.name, p.default is not None, p.attribute is not None) for p in gelu.params or ()] == [
        ("x", False, False),
        ("y", True, False),
        ("alpha", False, True),
        ("shape", False, True),
    ]
    assert gelu.impure
    assert gelu.numerics == "fast"
    assert isinstance(concat, ast.Op)
    assert [p.variadic for p in concat.params or ()] == [True]


def test_fuse_def_use() -> None:
    fuse, define, nothing, use = parse_text(
        """fuse epilogue elementwise f(complex g(..)) => group(g, f) where op_name(f) != "Erf"
def half(x, shape) = x / 2
def one() = 1
use "more/other.rules" """
    ).items
    assert isinstance(fuse, ast.Fuse)
    assert isinstance(define, ast.Def)
    assert define.params == ("x", "shape")
    assert isinstance(nothing, ast.Def)
    assert nothing.params == ()
    assert isinstance(use, ast.Use)
    assert use.path == "more/other.rules"


def test_docs() -> None:
    file = parse_text(
        '''"""About the file,
in two lines."""
# a comment about nothing
rule a  # x + 0 = x
  x + 0 => x  # not this one
rule b """A docstring
  in two lines."""  # nor this
  x * 1 => x
op C(x) """Doc.""" = x
op D kind elementwise # of D
def e(x) = x  # of e
use "f"  # of f
rule g
  x + "# no comment" => x
'''
    )
    assert file.doc == "About the file,\nin two lines."
    docs = ["x + 0 = x", "A docstring\nin two lines.", "Doc.", "of D", "of e", "of f", ""]
    assert [item.doc for item in file.items] == docs


def test_newlines_mean_nothing() -> None:
    spread = rule("rule\nr\nx\n+\n0\n=>\nx\nwhere\nrank(x)\n==\n1\nclass\nfast")
    assert spread == rule("rule r x + 0 => x where rank(x) == 1 class fast")
    assert len(parse_text("rule a x+0=>x rule b x*1=>x op Add commutative").items) == 3


def test_spans() -> None:
    text = "rule r  # doc\n  (x + 0)  =>  Relu(\n    y)\n"
    file = parse_text(text, "file.rules")
    r = file.items[0]
    assert isinstance(r, ast.Rule)
    assert r.span == ast.Span("file.rules", 1, 1, 3, 7)
    assert r.lhs.span == ast.Span("file.rules", 2, 3, 2, 10)
    assert r.rhs.span == ast.Span("file.rules", 2, 16, 3, 7)
    assert all(node.span.file == "file.rules" for node in file.walk())


def test_children_lie_within_their_parents(sample: ast.RuleFile) -> None:
    for node in sample.walk():
        for child in node.children():
            assert (child.span.line, child.span.column) >= (node.span.line, node.span.column)
            assert (child.span.end_line, child.span.end_column) <= (node.span.end_line, node.span.end_column)


def test_empty_file() -> None:
    assert parse_text("").items == ()
    assert parse_text("  # nothing\n").items == ()
    assert parse_text('"""Only a doc."""').doc == "Only a doc."


def test_items_after_a_broken_one_are_reported_too() -> None:
    text = "".join(f"rule r{i}\n  x + => x\n" for i in range(20))
    with pytest.raises(RuleErrors) as caught:
        parse_text(text, "many.rules")
    assert [d.span.line for d in caught.value.diagnostics] == list(range(2, 41, 2))
    assert str(caught.value).endswith("20 errors")


def test_item_words_in_docs_and_strings_are_no_boundaries() -> None:
    text = 'rule a """\nrule of thumb\n""" x + "\nrule b x => \n'
    with pytest.raises(RuleErrors) as caught:
        parse_text(text)
    assert [d.span.line for d in caught.value.diagnostics] == [3, 4]


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read the rule file: No such file"):
        parse_file(tmp_path / "none.rules")
    with pytest.raises(UserError, match="cannot read the rule file"):
        parse_file(tmp_path)
    (tmp_path / "latin.rules").write_bytes("rule é".encode("latin-1"))
    with pytest.raises(UserError, match="not UTF-8 text: byte 5 is 0xe9"):
        parse_file(tmp_path / "latin.rules")


JUNK = [
    "\0",
    "rule \x7f",
    "}}}}",
    '"""',
    "rule a " + "(" * 5000,
    "rule a x" + " + x" * 3000 + " => x",
    "rule a x * " + "9" * 5000 + " => x",
]


@pytest.mark.parametrize("junk", JUNK, ids=range(len(JUNK)))
def test_junk_is_reported(junk: str) -> None:
    with pytest.raises(RuleErrors):
        parse_text(junk)


def test_invisible_characters_are_shown_as_code_points() -> None:
    for char, shown in {"\0": "U+0000", "\u00a0": "U+00A0", "\u200b": "U+200B", "→": "`→`"}.items():
        with pytest.raises(RuleErrors, match=rf"unexpected character {re.escape(shown)}"):
            parse_text(f"rule a{char}\n  Relu(x) => x\n  class exact\n", "a.rules")


def test_windows_line_ends_and_tabs() -> None:
    file = parse_text("rule a  # doc\r\n\tx + 0\t=>\tx\r\n")
    assert file.items[0].doc == "doc"
    with pytest.raises(RuleErrors, match=r"\n   \| \t    \^\n"):
        parse_text("rule a\r\n\tRelu(=>\r\n")
