"""Documents without a server: incremental parsing, positions, names."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from lsprotocol import types as lsp
from rewrite.cli.commands.lsp import Engine
from rewrite.grammar.builtins import CLAUSE_WORDS, ITEMS
from rewrite.grammar.lsp import completion, hover, keyword_help, navigation, outline, problems
from rewrite.grammar.lsp.document import Document
from rewrite.grammar.lsp.occurrences import occurrences
from rewrite.grammar.lsp.workspace import Workspace, path_of
from rewrite.grammar.syntax import ast, parse
from rewrite.grammar.syntax.parse import parse_fresh

RULES = Path(parse.__file__).parents[2] / "rules"
FILES = [Path(__file__).parents[1] / "sample.rules", *sorted(RULES.rglob("*.rules"))]


def document(text: str, encoding: str = "utf-16") -> Document:
    return Document(Path("/x/a.rules"), "file:///x/a.rules", text, encoding)


def spans(items: list[ast.Item]) -> list[ast.Span]:
    return [node.span for item in items for node in item.walk()]


def same_as_fresh(edited: Document) -> None:
    fresh = parse_fresh(edited.text, str(edited.path))
    if not fresh.diagnostics:
        assert tuple(edited.items) == fresh.file.items
        assert spans(edited.items) == spans(list(fresh.file.items))
        assert not edited.syntax_errors
    else:
        assert edited.syntax_errors


def changed(text: str, rng: random.Random) -> str:
    """Return a text after a random keystroke, paste or cut."""
    at = rng.randrange(len(text) + 1)
    match rng.randrange(5):
        case 0:
            return text[:at] + rng.choice('ax1 (),:=#"\n') + text[at:]
        case 1:
            return text[:at] + text[at + rng.randrange(1, 30) :]
        case 2:
            return text[:at] + "\n\n" + text[at:]
        case 3:
            lines = text.split("\n")
            i, j = sorted(rng.randrange(len(lines)) for _ in range(2))
            return "\n".join(lines[:i] + lines[i:j][: rng.randrange(40)] + lines[i:])
        case _:
            return text.replace("\n\n", "\n", 1) if rng.random() < 0.5 else text.replace("rule ", "\nrule ", 1)


@pytest.mark.parametrize("seed", range(6))
def test_after_any_edits_the_items_are_those_of_the_text(seed: int) -> None:
    rng = random.Random(seed)
    text = rng.choice(FILES).read_text()[:2500]
    edited = document(text)
    for _ in range(25):
        good = edited.text
        edited.update(changed(edited.text, rng))
        same_as_fresh(edited)
        if edited.syntax_errors and rng.random() < 0.7:
            edited.update(good)  # undone
            same_as_fresh(edited)


def test_only_what_has_changed_is_parsed_again() -> None:
    text = (RULES / "algebra.rules").read_text()
    edited = document(text)
    before = {id(item) for item in edited.items}
    edited.update("# one more line\n" + text.replace("all(c == 1)", "all(c == 2)", 1))
    assert len({id(item) for item in edited.items} - before) == 1
    same_as_fresh(edited)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_places_there_and_back(encoding: str) -> None:
    text = "# 🦀 σ\r\nrule r # α🦀β\n  Relu(x) => x\n\n"
    d = document(text, encoding)
    for offset in range(len(text) + 1):
        if text[offset - 1 : offset + 1] != "\r\n":
            assert d.offset(d.position(offset)) == offset
    units = {"utf-8": 4, "utf-16": 2, "utf-32": 1}[encoding]
    assert d.position(text.index("🦀") + 1) == lsp.Position(0, 2 + units)
    assert d.offset(lsp.Position(0, 999)) <= text.index("\n")
    assert d.offset(lsp.Position(999, 0)) == len(text)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_names_are_found_where_they_stand(path: Path) -> None:
    d = document(path.read_text())
    found = occurrences(d)
    for o in found:
        written = d.text[o.start : o.end]
        assert written.strip('"') == o.symbol.name
    # every variable of a rule is bound somewhere, and every name in an expression is known
    names = {(o.start, o.end) for o in found}
    for item in d.items:
        for node in item.walk():
            if isinstance(node, ast.Name) and re.fullmatch(r"[a-z]", node.id):
                start, end = d.lines.range(node.span)
                assert any(start <= a and b <= end for a, b in names), node
    for item in d.items:
        if isinstance(item, ast.Rule) and path.parent == RULES:
            start, end = d.lines.range(item.span)
            inside = [o for o in found if start <= o.start < end and o.symbol.kind == "variable"]
            bound = {o.symbol for o in inside if o.binds}
            free = {o.symbol for o in inside if o.symbol not in bound and len(o.symbol.scope) == 1}
            assert not {s.name for s in free}, item.name


def at(text: str) -> tuple[str, int]:
    before, after = text.split("¦")
    return before + after, len(before)


def place(document: Document, offset: int) -> lsp.TextDocumentPositionParams:
    return lsp.TextDocumentPositionParams(lsp.TextDocumentIdentifier(document.uri), document.position(offset))


@pytest.mark.parametrize(
    ("text", "wanted", "unwanted"),
    [
        ("rule r\n  Conv(x, ¦", "kernel_shape", "f32"),
        ("rule r\n  Conv(x, auto_pad: ¦", "x", "kernel_shape"),
        ("rule r\n  Relu(x) => x\n  direction ¦", "explore", "x"),
        ("rule r\n  Relu(x) => x\n  test ¦", "refuses", "Relu"),
        ("rule r\n  Relu(x) => x\n  given x: ¦", "f32", "Relu"),
        ("rule r\n  Relu(x) => x\n  where ra¦", "rank", "kernel_shape"),
        ("rule r\n  Relu(x) => x\n  wh¦", "where", "kernel_shape"),
        ("rule r\n  Relu(x) => x\n  joins ¦", "explore", "Relu"),
        ("op Foo(x) = x\n  kind ¦", "elementwise", "x"),
        ("¦", "rule", "where"),
        ("ruleset mine\n  ¦", "matches", "where"),
        ("rule r\n  Relu(x) => Foo(y, ¦\n\nop Foo(a, size: 1) = a", "size", "kernel_shape"),
    ],
)
def test_completion_on_unfinished_text(text: str, wanted: str, unwanted: str) -> None:
    text, offset = at(text)
    workspace = Workspace(Engine(std=False))
    d = workspace.update("file:///x/a.rules", text, 1)
    labels = {item.label for item in completion.complete(workspace, d, place(d, offset)).items}
    assert wanted in labels
    assert unwanted not in labels


@pytest.mark.parametrize("seed", range(4))
def test_no_feature_fails_on_any_text(seed: int) -> None:
    rng = random.Random(seed)
    workspace = Workspace(Engine(std=False))
    text = rng.choice(FILES).read_text()[:2000]
    for _ in range(12):
        text = changed(text, rng)
        d = workspace.update("file:///x/a.rules", text, 1)
        problems.diagnostics(workspace, d)
        outline.semantic_tokens(workspace, d)
        outline.document_symbols(workspace, d)
        outline.folding_ranges(workspace, d)
        problems.lenses(workspace, d)
        for _ in range(10):
            there = place(d, rng.randrange(len(text) + 1))
            hover.hover(workspace, d, there)
            completion.complete(workspace, d, there)
            completion.signature_help(workspace, d, there)
            navigation.go_to_definition(workspace, d, there)
            navigation.highlights(workspace, d, there)


def test_every_word_that_opens_something_is_explained() -> None:
    assert set(keyword_help.CLAUSES) == set(CLAUSE_WORDS)
    assert set(keyword_help.ITEMS) == set(ITEMS)


def test_an_untitled_text_has_a_path_of_its_own() -> None:
    workspace = Workspace(Engine(std=False))
    d = workspace.update("untitled:Untitled-1", "rule r\n  Relo(x)  =>  x\n", 1)
    assert path_of("untitled:Untitled-1") == d.path
    assert [found.code for found in problems.diagnostics(workspace, d)] == ["unknown-operator"]
