"""The tree-sitter grammar: it accepts the same files as the parser, sees the same items, and colors every word."""

from __future__ import annotations

import ctypes
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import rewrite
from rewrite.grammar.builtins import DTYPE_CLASSES, DTYPES, WORDS
from rewrite.grammar.syntax import ast
from rewrite.grammar.syntax.parse import parse_fresh
from tree_sitter import Language, Node, Parser, Query, QueryCursor

from .words import reserved_words

ROOT = Path(rewrite.__file__).parent
FOLDER = ROOT / "editors" / "tree-sitter-rules"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="not a checkout")
FILES = sorted(file for room in ("rules", "examples", "tests") for file in (ROOT / room).rglob("*.rules"))
HELIX = {
    "string.documentation": "comment.block.documentation",
    "number": "constant.numeric",
    "variable.builtin": "variable.other",
    "keyword.type": "keyword.storage.type",
    "keyword.import": "keyword.control.import",
    "keyword.modifier": "keyword.storage.modifier",
    "module": "namespace",
    "property": "variable.other.member",
    "function.call": "function",
}
"""Names of captures in Helix that differ from those in Neovim."""


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Language:
    """The committed parser, compiled."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("parser") / "rules.so"
    source = FOLDER / "src"
    command = [compiler, "-shared", "-fPIC", "-O0", "-I", source, source / "parser.c", "-o", library]
    subprocess.run(command, check=True, timeout=120)
    entry = ctypes.CDLL(str(library)).tree_sitter_rules
    entry.restype = ctypes.c_void_p
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return Language(capsule(entry(), b"tree_sitter.Language", None))


@pytest.fixture(scope="module")
def parser(language: Language) -> Parser:
    return Parser(language)


def test_the_parser_is_generated_from_the_grammar() -> None:
    text = (FOLDER / "grammar.js").read_bytes()
    assert (FOLDER / "src" / "grammar.js.sha256").read_text().split()[0] == hashlib.sha256(text).hexdigest()


def _items(file: Path) -> list[tuple[str, str]]:
    parsed = parse_fresh(file.read_text(encoding="utf-8"), str(file)).file
    names = {ast.UseDomain: "domain"}
    return [
        (names.get(type(i), type(i).__name__.lower()), getattr(i, "name", "") or getattr(i, "domain", ""))
        for i in parsed.items
    ]


def _text(node: Node | None) -> str:
    return node.text.decode() if node is not None and node.text is not None else ""


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_it_accepts_what_the_parser_accepts(parser: Parser, file: Path) -> None:
    found = parse_fresh(file.read_text(encoding="utf-8"), str(file)).diagnostics
    root = parser.parse(file.read_bytes()).root_node
    assert root.has_error == any(d.code == "syntax" for d in found)
    if not found:
        shown = [node for node in root.named_children if node.type not in ("comment", "docstring")]
        assert [(node.type, _text(node.child_by_field_name("name"))) for node in shown] == _items(file)


def test_a_tree(parser: Parser) -> None:
    text = b"rule r\n  -a ** 2 + b  =>  Relu(x, direction: 1)\n  where not x is Neg(y) and 1 <= 2 ** -1\n"
    root = parser.parse(text).root_node
    name = "(name)"
    power = f"(binary_expression left: {name} right: (number))"
    left = f"(binary_expression left: (unary_expression {power}) right: {name})"
    call = f"(call function: {name} (arguments {name} (attribute name: {name} value: (number))))"
    form = f"(comparison left: {name} right: (call function: {name} (arguments {name})))"
    tower = "(binary_expression left: (number) right: (unary_expression (number)))"
    compared = f"(comparison left: (number) operator: (comparator) right: {tower})"
    where = f"(where_clause (binary_expression left: (unary_expression {form}) right: {compared}))"
    shown = re.sub(r" operator: \(\"[^\"]*\"\)", "", str(root))
    assert shown == f"(source_file (rule name: {name} left: {left} arrow: (arrow) right: {call} {where}))"


def _strings(rule: object) -> Iterator[str]:
    if isinstance(rule, dict):
        if rule.get("type") == "STRING":
            yield rule["value"]
        for value in rule.values():
            yield from _strings(value)
    elif isinstance(rule, list):
        for value in rule:
            yield from _strings(value)


def test_it_reserves_the_same_words_as_the_parser() -> None:
    generated = json.loads((FOLDER / "src" / "grammar.json").read_text())
    assert {word for word in _strings(generated["rules"]) if word.isalpha()} == reserved_words()


def test_highlights_name_every_word() -> None:
    text = (FOLDER / "queries" / "highlights.scm").read_text()
    quoted = set(re.findall(r'"([a-z0-9_]+)"', text))
    kinds_of_nodes = {"complex", "elementwise", "injective", "opaque", "reduction"}  # (kind)
    kinds_of_nodes |= {"fires", "refuses", "commutative", "impure", "discontinuous"}  # (verdict), (flag)
    later = {"fold", "phase"}  # reserved without a meaning
    words = reserved_words() - kinds_of_nodes - later
    assert quoted == words | {*DTYPES, *DTYPE_CLASSES, *WORDS}


def test_highlights(language: Language, parser: Parser) -> None:
    query = Query(language, (FOLDER / "queries" / "highlights.scm").read_text())
    text = (
        b'rule undo # why\n  Relu(x, axis: 1)  =>  rank(x)\n  given x: f32\n  class exact\n  test fires  x: f32 = "a"\n'
    )
    found = {
        (name, _text(node))
        for name, nodes in QueryCursor(query).captures(parser.parse(text).root_node).items()
        for node in nodes
    }
    assert {
        ("keyword.type", "rule"),
        ("function", "undo"),
        ("comment", "# why"),
        ("constructor", "Relu"),
        ("property", "axis"),
        ("function.call", "rank"),
        ("operator", "=>"),
        ("type.builtin", "f32"),
        ("constant.builtin", "exact"),
        ("keyword", "fires"),
        ("string", '"a"'),
    } <= found
    assert ("constructor", "rank") not in found


def test_helix_has_the_same_highlights() -> None:
    ours = (FOLDER / "queries" / "highlights.scm").read_text().partition("\n")[2]
    helix = (FOLDER / "helix" / "highlights.scm").read_text().partition("\n")[2]
    assert helix == re.sub(r"@([\w.]+)", lambda m: "@" + HELIX.get(m[1], m[1]), ours)
