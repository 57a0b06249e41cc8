"""Invariants of all standard rules, and of the catalog of rewrites that lists them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from rewrite.engine.rewriting.rule_library import STANDARD, load_rules, recognitions
from rewrite.grammar.library.load import Library
from rewrite.grammar.syntax import ast

from .rule_models import MODELS, contents

PAGE = Path(__file__).parents[2] / "docs" / "catalog.md"


@cache
def library() -> Library:
    return load_rules()


def claims() -> list[ast.Rule | ast.Op]:
    """All rules, and the operators that are recognized by their definition, but for those of other domains."""
    recognized = {rule.name.removeprefix("recognize_") for rule in recognitions(library())}
    defined = [op for op in library().ops if op.name in recognized and "." not in op.name]
    return [*library().rules, *defined]


@cache
def source(item: ast.Rule | ast.Op) -> str:
    """The text of an item, up to the next empty line or the end."""
    lines = Path(item.span.file).read_text(encoding="utf-8").splitlines()[item.span.line - 1 :]
    end = next(
        (i for i, line in enumerate(lines) if i and re.match(r"(rule|op|fuse|def|ruleset|schedule) |# ---", line)), None
    )
    return "\n".join(lines[:end])


@pytest.mark.parametrize("item", claims(), ids=lambda item: item.name)
def test_a_rule_says_what_it_claims_and_shows_it(item: ast.Rule | ast.Op) -> None:
    assert item.doc, "a doc line states the algebra"
    assert re.search(r"^  class \w+", source(item), re.MULTILINE), "a class is written"
    verdicts = {test.verdict for test in item.tests}
    assert verdicts & {"fires", "equals"}
    assert "refuses" in verdicts


def test_every_file_states_what_it_is_about() -> None:
    for file in library().files:
        assert file.doc, file.path


def test_names_are_used_once() -> None:
    names = [rule.name for rule in library().rules]
    assert len(names) == len(set(names))


def rows() -> list[list[str]]:
    """The cells of all tables of the page, but for their headings."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [[c.strip() for c in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]
    return [row for row in cells if row[0] not in ("", "rule")]


def test_the_catalog_names_all_rules_and_no_others() -> None:
    items = {item.name for item in [*claims(), *library().fuses]}
    named = [name for row in rows() for name in re.findall(r"`(\w+)`", row[2] if row[0][0].isdigit() else row[0])]
    assert items <= set(named)
    assert set(named) <= items


def test_an_entry_of_the_catalog_has_a_rule_or_a_reason() -> None:
    entries = [row for row in rows() if row[0][0].isdigit()]
    assert len(entries) > 300
    for _, entry, rules, otherwise in entries:
        assert rules or otherwise, entry


@pytest.mark.parametrize("name", MODELS)
def test_models_of_tests_are_what_their_text_says(name: str) -> None:
    assert (STANDARD / "models" / f"{name}.onnx").read_bytes() == contents(MODELS[name])
