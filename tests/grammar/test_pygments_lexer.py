"""The Pygments lexer: every rule file is colored without errors, and words are colored by their place."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import rewrite
from pygments import token as kinds
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from rewrite.grammar.printing.pygments_lexer import RulesLexer
from rewrite.grammar.syntax.parse import GRAMMAR, parse_fresh

ROOT = Path(rewrite.__file__).parent
FILES = sorted(file for room in ("rules", "examples", "tests") for file in (ROOT / room).rglob("*.rules"))


def colored(text: str) -> list[tuple[str, object]]:
    return [(word, kind) for kind, word in RulesLexer(stripnl=False, ensurenl=False).get_tokens(text) if word.strip()]


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_rule_files_have_no_errors(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    found = list(RulesLexer(stripnl=False, ensurenl=False).get_tokens_unprocessed(text))
    assert "".join(word for _, _, word in found) == text
    assert all(at + len(word) == after for (at, _, word), (after, _, _) in pairwise(found))
    is_broken = any(d.code == "syntax" for d in parse_fresh(text, str(file)).diagnostics)
    assert is_broken or not [word for _, kind, word in found if kind in kinds.Error]


def test_every_reserved_word_has_a_color() -> None:
    lark = re.sub(r"//.*", "", GRAMMAR.read_text(encoding="utf-8"))
    words = set(re.findall(r'"([a-z]+)"', lark)) - {"fold", "phase"}  # the two are reserved without a meaning
    assert len(words) > 30
    assert [word for word in sorted(words) if colored(f"{word} x")[0] == (word, kinds.Name)] == []


def test_text_that_no_rule_file_contains_is_an_error() -> None:
    assert ("$", kinds.Error) in colored("rule r\n  Relu($x)  =>  x\n")


def test_colors() -> None:
    found = colored(
        'rule kind_of  # why\n  LSTM(x, a.b.Foo(y), direction: "forward", ..r)  =>  rank(own(x)) + 1e-5\n'
        "  given x: const f32[N], y: T\n  where direction == 2 and class(x)\n  class exact signed_zero\n"
        "  direction explore\n  test fires  x: f32[2], direction = 1\nop Gelu(x) = x  kind elementwise\n"
    )
    assert {
        ("rule", kinds.Keyword.Declaration),
        ("kind_of", kinds.Name.Function),
        ("# why", kinds.Comment.Single),
        ("LSTM", kinds.Name.Class),
        ("a.b.Foo", kinds.Name.Class),
        ("direction", kinds.Name.Attribute),
        ("direction", kinds.Keyword),
        ("x", kinds.Name),
        ("rank", kinds.Name.Builtin),
        ("own", kinds.Name.Function),
        ("1e-5", kinds.Number),
        ("const", kinds.Keyword.Type),
        ("f32", kinds.Keyword.Type),
        ("and", kinds.Operator.Word),
        ("signed_zero", kinds.Keyword.Constant),
        ("explore", kinds.Keyword.Constant),
        ("fires", kinds.Keyword),
        ("Gelu", kinds.Name.Class),
        ("elementwise", kinds.Keyword.Reserved),
    } <= set(found)


def test_an_open_bracket_ends_at_the_next_item() -> None:
    assert ("x", kinds.Name) in colored("rule r\n  Relu((x\nrule s\n  Relu(y)  =>  y\n  given y: f32, x: f32\n")[8:]


def test_pygments_finds_it() -> None:
    assert type(get_lexer_by_name("rules")).__name__ == "RulesLexer"
    assert type(get_lexer_for_filename("my.rules")).__name__ == "RulesLexer"


def test_importing_it_loads_no_engine() -> None:
    code = (
        "import sys; from rewrite.grammar.printing.pygments_lexer import RulesLexer; import rewrite;"
        "print(*{'onnx', 'numpy', 'lark', 'rewrite.engine'} & set(sys.modules))"
    )
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == ""
