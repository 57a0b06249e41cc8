"""What the formatter gives means the same, holds the same comments, and is left alone the next time."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewrite.grammar import ast, parse
from rewrite.grammar.comments import CLAUSE_WORDS, find_comments
from rewrite.grammar.diagnostics import RuleErrors
from rewrite.grammar.format import format_text
from rewrite.grammar.parse import parse_fresh
from rewrite.grammar.printer import print_file
from rewrite.grammar.syntax_errors import CLAUSES
from rewrite.grammar.tokens import tokens

from .test_printer import EXPRESSIONS, SPAN

RULES = Path(parse.__file__).parent.parent / "rules"
FILES = [Path(__file__).with_name("sample.rules"), *sorted(RULES.rglob("*.rules"))]


def holds(text: str) -> str:
    """The formatted text, after all that the formatter promises has been looked at."""
    result = format_text(text)
    before, after = parse_fresh(text, ""), parse_fresh(result, "")
    assert not after.diagnostics
    assert after.file == before.file
    assert Counter(c.text for c in find_comments(result)) == Counter(c.text for c in find_comments(text))
    assert format_text(result) == result
    assert all(line == line.rstrip() for line in result.split("\n"))
    return result


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_files(path: Path) -> None:
    text = path.read_text()
    result = holds(text)
    before, after = parse_fresh(text, ""), parse_fresh(result, "")
    assert after.file.doc == before.file.doc
    assert [item.doc for item in after.file.items] == [item.doc for item in before.file.items]
    assert [c.text for c in find_comments(result)] == [c.text for c in find_comments(text)]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_tokens_are_the_parsers(path: Path) -> None:
    text = path.read_text()
    parser, builder = parse._machinery()
    builder.begin("")
    expected = [(str(t), t.start_pos) for t in parser.lex(text)]
    assert [(t.text, t.start) for t in tokens(text) if t.kind != "comment"] == expected


def test_clause_words_are_the_parsers() -> None:
    assert set(CLAUSES) == CLAUSE_WORDS


def respaced(text: str, rng: random.Random, *, comments: bool) -> str:
    """The same tokens with other white space, and with comments in any place if asked for."""
    out = []
    for i, token in enumerate(tokens(text)):
        if token.kind == "comment":
            continue
        gap = rng.choice([" ", "  ", "\n", "\n   "])
        if comments and i and rng.random() < 0.1:
            gap = rng.choice([f"  # c{i}\n", f"\n# c{i}\n", f"\n\n  # c{i}\n\n"])
        out += [gap if i else "", token.text]
    return "".join(out)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_layout_does_not_depend_on_the_layout_before(path: Path) -> None:
    text = path.read_text()
    formatted = {format_text(respaced(text, random.Random(seed), comments=False)) for seed in range(2)}
    assert len(formatted) == 1


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_comments_may_stand_anywhere(path: Path) -> None:
    holds(respaced(path.read_text(), random.Random(path.stem), comments=True))


@settings(max_examples=40, deadline=None)
@given(EXPRESSIONS, st.integers(0, 2**16))
def test_any_expression(expr: ast.Expr, seed: int) -> None:
    rule = ast.Rule(span=SPAN, name="r", lhs=ast.Call(span=SPAN, head="X", args=()), rhs=expr, where=(expr,))
    text = print_file(ast.RuleFile(span=SPAN, path="", items=(rule,)))
    holds(text)
    holds(respaced(text, random.Random(seed), comments=True))


def test_layout() -> None:
    text = '''# a licence
"""The file."""
use "a.rules"     # first
use "b.rules"
# --- section


rule r  # doc
  # the left side
  Conv(Pad(x, p,
     mode: "constant"),   W)=>Conv(x,W, [1e-5, 0x])  # both
  class exact
  where (rank(x)==2),  # two
    (a + b) + c == 1, (p)  # three
  # last but not least
  test fires x: f32[2, 3], c = [1, 2, 3]
  # below

# far below
'''
    expected = """# a licence
\"\"\"The file.\"\"\"

use "a.rules"                                          # first
use "b.rules"

# --- section

rule r                                                 # doc
  # the left side
  Conv(Pad(x, p, mode: "constant"), W)  =>  Conv(x, W, [1e-5,0])  # both
  where rank(x) == 2,                                             # two
        (a + b) + c == 1, p                                       # three
  class exact
  # last but not least
  test fires    x: f32[2,3], c = [1,2,3]
  # below

# far below
"""
    assert holds(text.replace("0x", "0")) == expected


def test_long_lines_are_broken() -> None:
    text = f"""rule r
  {"Relu(" * 4}Conv(x, W, B = 0, kernel_shape: [3,3], pads: [1,1,1,1], strides: [1,1], auto_pad: "NOTSET", ..a{")" * 5}
    =>
  x
  where {" and ".join(f"rank(x) == {i}" for i in range(12))}
  test fires x: f32[{", ".join("12345" for _ in range(20))}], y: f32[1] gives {" + ".join("x" * 8 for _ in range(12))}
"""
    result = holds(text)
    assert max(map(len, result.split("\n"))) <= 100
    assert "\n          and rank(x)" in result
    assert "\n       auto_pad" not in result  # below the first argument, wherever that is


def test_blank_lines() -> None:
    text = "op Abs   kind elementwise\nop Neg kind elementwise\n\n\n\nop Relu kind elementwise\n"
    text += "rule r Relu(x)=>x\ndef f(a)=a"
    assert holds(text) == (
        "op Abs kind elementwise\nop Neg kind elementwise\n\nop Relu kind elementwise\n\n"
        "rule r\n  Relu(x)  =>  x\n\ndef f(a) = a\n"
    )


def test_what_is_not_well_formed_is_refused() -> None:
    with pytest.raises(RuleErrors):
        format_text("rule r Relu(x => x")


def test_an_empty_file_stays_empty() -> None:
    assert format_text("") == ""
    assert format_text("# only this\n") == "# only this\n"


def leaf_classes() -> set[type[ast.Syntax]]:
    """The classes of the syntax tree that nothing is derived from."""
    classes = {c for c in vars(ast).values() if isinstance(c, type) and issubclass(c, ast.Syntax)}
    return {c for c in classes if not any(c in d.__mro__[1:] for d in classes)}


def test_the_sample_has_every_class_of_node(sample: ast.RuleFile) -> None:
    """So that whatever the language learns is printed and read again by the tests of this file."""
    assert leaf_classes() == {type(node) for node in sample.walk()}
