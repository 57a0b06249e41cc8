"""The formatter preserves meaning and comments, and is idempotent."""

from __future__ import annotations

import functools
import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewrite.grammar.builtins import CLAUSE_WORDS
from rewrite.grammar.diagnostics import RuleErrors
from rewrite.grammar.printing.format import FormatError, docs, format_text, print_file
from rewrite.grammar.printing.printer import WIDTH
from rewrite.grammar.syntax import ast, parse
from rewrite.grammar.syntax.parse import parse_fresh, split_items
from rewrite.grammar.syntax.tokens import tokens

from .test_printer import EXPRESSIONS, ITEMS, SPAN, several

SAMPLE = Path(__file__).with_name("sample.rules")
ROOT = Path(parse.__file__).parents[2]
RULES = ROOT / "rules"
FILES = [SAMPLE, *sorted(RULES.rglob("*.rules"))]


@functools.lru_cache(maxsize=32)
def tree(text: str) -> ast.RuleFile:
    """Return the tree of a well-formed text."""
    parsed = parse_fresh(text, "")
    assert not parsed.diagnostics
    return parsed.file


formatted = functools.lru_cache(maxsize=64)(format_text)


def holds(text: str) -> str:
    """Return the formatted text, after checking meaning, comments and idempotence."""
    result = formatted(text)
    assert tree(result) == tree(text)
    assert docs(tree(result)) == docs(tree(text))
    assert Counter(comments(result)) == Counter(comments(text))
    assert result == text or format_text(result) == result
    assert all(line == line.rstrip() for line in result.split("\n"))
    return result


def comments(text: str) -> list[str]:
    return [token.text.rstrip() for token in tokens(text) if token.kind == "comment"]


def some_items(path: Path) -> str:
    """The sample, or a few items of a library file: the test formats them many times."""
    text = path.read_text()
    if path == SAMPLE:
        return text
    items = [text[start:end] for word, start, end in split_items(text) if word]
    return "".join(random.Random(path.stem).sample(items, min(len(items), 12)))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_files(path: Path) -> None:
    text = path.read_text()
    assert comments(holds(text)) == comments(text)


def test_rules_are_laid_out() -> None:
    """The library and the examples are formatted."""
    files = [*RULES.rglob("*.rules"), *(ROOT / "examples").rglob("*.rules")]
    astray = [str(path.relative_to(ROOT)) for path in files if formatted(path.read_text()) != path.read_text()]
    assert not astray, "run `rewrite fmt rules examples`"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_tokens_are_the_parsers(path: Path) -> None:
    text = path.read_text()
    parser, builder = parse._machinery()
    builder.begin("")
    expected = [(str(t), t.start_pos) for t in parser.lex(text)]
    assert [(t.text, t.start) for t in tokens(text) if t.kind != "comment"] == expected


def test_clause_words_are_the_parsers() -> None:
    clauses = parse.GRAMMAR.read_text(encoding="utf-8").partition("\nclause:")[2].partition("\ntyped:")[0]
    assert set(re.findall(r'^(?: *\|)? *"([a-z]+)"', clauses, re.MULTILINE)) == set(CLAUSE_WORDS)


def respaced(text: str, rng: random.Random, *, comments: bool) -> str:
    """Return the same tokens with random white space, and optionally with comments anywhere."""
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
    text = some_items(path)
    found = {format_text(respaced(text, random.Random(seed), comments=False)) for seed in range(2)}
    assert len(found) == 1


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_comments_may_stand_anywhere(path: Path) -> None:
    holds(respaced(some_items(path), random.Random(path.stem), comments=True))


@settings(max_examples=40, deadline=None)
@given(EXPRESSIONS, st.integers(0, 2**16))
def test_any_expression(expr: ast.Expr, seed: int) -> None:
    rule = ast.Rule(span=SPAN, name="r", lhs=ast.Call(span=SPAN, head="X", args=()), rhs=expr, where=(expr,))
    text = print_file(ast.RuleFile(span=SPAN, path="", items=(rule,)))
    holds(text)
    holds(respaced(text, random.Random(seed), comments=True))


@settings(max_examples=50, deadline=None)
@given(several(ITEMS, 1, 3), st.lists(st.text("#ab 🦀", max_size=60), min_size=4, max_size=4), st.integers(0, 2**16))
def test_any_items_keep_their_docs(items: tuple[ast.Item, ...], said: list[str], seed: int) -> None:
    documented = tuple(replace(item, doc=doc) for item, doc in zip(items, said, strict=False))
    text = print_file(ast.RuleFile(span=SPAN, path="", doc="Rules\nof all kinds.", items=documented))
    assert docs(tree(text))[1:] == [doc.strip() for doc in said[: len(items)]]
    holds(text)
    holds(respaced(text, random.Random(seed), comments=True))


@pytest.mark.parametrize(
    "text",
    [
        "op F(x, y)                                             # pairs\n",
        f"op F({', '.join(f'a{i}: T[N, K]' for i in range(20))}) -> (T[N], i64)  # many\n",
        f"op F({', '.join(f'a{i}' for i in range(20))}, # many\n b) = Sum({', '.join(['a1' * 9] * 20)}) # c\n",
        "op F(x, y, # doc\n  z) # not\n  kind elementwise # the doc\n",
        "op F(x,\n  y) # not the doc\n",
        "op F(x,\n  y) = x # not the doc\n",
        "def f(x, y) = # doc\n  x + y # not\n",
        "def f(x, y) =\n  x + y # not\n",
        "rule r x +\n 1 => # not\n x\n",
        "rule # doc\n r x + 1 => x # not\n",
        "rule r # doc, doc, doc\n # not\n Relu(x, # nor this\n ..) => x",
        'rule r """The doc.""" Relu(x) => x # not\n',
        'rule r # not\n """The doc.\n  \n   More. """ Relu(x) => x\n',
        '""" The file.  \n\n   More. """ # not\nrule r Relu(x) => x\n',
        "use\n onnx(13 ..) # not\n",
        "use\n onnx(13 .. 14\n # within\n) # not\n",
        "use onnx # doc\n (13 ..) # not\n",
        'use "a.rules" (b,\n c) # not\n',
        "ruleset a # doc\n seconds 1 # not\n",
        "ruleset a\n seconds 1 # not\n",
        "schedule a = b;\n c # not\n",
        "ruleset a joins\n # within\n a",
        "ruleset a\n # within\n joins # within\n a # not\n",
        "op A kind opaque op B kind # both\n opaque\n",
    ],
)
def test_docs_stay_docs(text: str) -> None:
    holds(text)


def test_what_would_change_a_doc_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def f(x) = x # this\ndef g(x) = x # that\n"
    swapped = text.replace("this", "it").replace("that", "this").replace("it", "that")
    monkeypatch.setattr("rewrite.grammar.printing.format.print_file", lambda *_: swapped)
    with pytest.raises(FormatError, match="documentation"):
        format_text(text)


def test_signatures() -> None:
    inputs = ", ".join(f"input_{i}: T[N, S, C]" for i in range(6))
    text = f"op com.acme.Long({inputs}, alpha: 1.0) -> (T[N, S, C], i64[N])  kind opaque  # doc\n"
    assert holds(text) == (
        "op com.acme.Long(input_0: T[N, S, C], input_1: T[N, S, C], input_2: T[N, S, C], input_3: T[N, S, C],  # doc\n"
        "                 input_4: T[N, S, C], input_5: T[N, S, C], alpha: 1.0) -> (T[N, S, C], i64[N])\n"
        "  kind opaque\n"
    )
    text = text.replace("i64[N]", ", ".join(["i64[N, S, C]"] * 4))
    assert "alpha: 1.0)\n    -> (T[N, S, C], i64[N, S, C], i64[N, S, C], i64[N, S, C], i64[N, S, C])\n" in holds(text)


def test_layout() -> None:
    text = '''# a license
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
    expected = """# a license
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
    assert max(map(len, result.split("\n"))) <= WIDTH
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
    """Return the concrete node classes."""
    classes = {c for c in vars(ast).values() if isinstance(c, type) and issubclass(c, ast.Syntax)}
    return {c for c in classes if not any(c in d.__mro__[1:] for d in classes)}


def test_the_sample_has_every_class_of_node(sample: ast.RuleFile) -> None:
    """New forms of the language must occur in the sample, which these tests print and parse again."""
    assert leaf_classes() - {ast.Axis, ast.Omitted} == {type(node) for node in sample.walk()}
