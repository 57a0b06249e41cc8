"""Checked libraries that are kept: as good as made anew, and never worse."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rewrite.engine.library import load_rules, rule_set, standard_files
from rewrite.engine.operator_table import Facts, OperatorTable
from rewrite.grammar import cache, kept, warnings
from rewrite.grammar.diagnostics import Diagnostic, RuleErrors
from rewrite.grammar.kept import KeptLibrary
from rewrite.grammar.library import Library

TEXT = """def twice(x) = x + x
use "other.rules" (relu_relu)
op Half(x, by: 2.0) = x / by   class exact
rule double  x * 2 <=> twice(x)  class reassoc  given x: f32
fuse tail  elementwise f(complex g(..)) => group(g, f)
"""
OTHER = "rule relu_relu Relu(Relu(x)) => Relu(x) class exact\nrule unasked Abs(Abs(x)) => Abs(x) class exact"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "other.rules").write_text(OTHER)
    path = tmp_path / "mine.rules"
    path.write_text(TEXT)
    return path


def load(file: Path) -> Library:
    return load_rules([file], std=False)


def entry() -> Path:
    (found,) = cache.directory().glob("library-*.json")
    return found


def test_what_is_kept_is_what_was_made(file: Path) -> None:
    fresh, known = load(file), load(file)
    assert not isinstance(fresh, KeptLibrary)
    assert isinstance(known, KeptLibrary)
    for name in ("rules", "ops", "fuses", "rulesets", "schedules", "domains", "files", "defs", "warnings"):
        assert getattr(known, name) == getattr(fresh, name)
    assert [r.span for r in known.rules] == [r.span for r in fresh.rules]
    spans = [[node.span for node in rule.walk()] for rule in fresh.rules]
    assert [[node.span for node in rule.walk()] for rule in known.rules] == spans
    assert known.places() == fresh.places()


def test_warnings_are_looked_for_when_they_are_asked_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("rule odd Relu(x) => x where size(x) == 1, size(x) >= 1")
    looked = []
    real = warnings.find

    def find(*args: Any, **kinds: Any) -> list[Diagnostic]:
        looked.append(args)
        return real(*args, **kinds)

    monkeypatch.setattr(warnings, "find", find)
    fresh, known = load(file), load(file)
    assert not looked
    assert [d.code for d in fresh.warnings] == ["redundant"]
    assert known.warnings == fresh.warnings
    assert len(looked) == 1


def test_types_are_not_inferred_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(file)
    entry().unlink()
    monkeypatch.setattr("rewrite.grammar.types.infer", None)
    load(file)


def test_rules_made_of_what_is_kept_are_the_same(file: Path) -> None:
    fresh, known = (rule_set(load(file), "fast") for _ in range(2))
    fields = ("name", "ruleset", "lhs", "rhs", "rule", "index", "indexed", "indices", "heads", "required")
    assert [[getattr(r, f) for f in fields] for r in known.rules] == [
        [getattr(r, f) for f in fields] for r in fresh.rules
    ]
    assert [r.name for r in known.rules] == ["recognise_Half", "relu_relu", "double", "double"]
    assert dict(known.declared) == dict(fresh.declared)
    assert known.plan == fresh.plan


def test_checks_may_come_later(file: Path) -> None:
    asked = [*standard_files(), file]
    library, finish = kept.begin(asked, OperatorTable(), Facts())
    assert not list(cache.directory().glob("library-*.json"))
    finish()
    known, nothing = kept.begin(asked, OperatorTable(), Facts())
    nothing()
    assert isinstance(known, KeptLibrary)
    for found in (library, known):
        assert found.rules == load_rules([file]).rules
    assert [r.name for r in rule_set(library).rules] == [r.name for r in rule_set(known).rules]


@pytest.mark.parametrize("text", ["rule odd Relu(x) => y class exact", "rule odd Relu(x, x, x) => x class exact"])
def test_checks_that_come_later_tell_all_that_is_wrong(file: Path, text: str) -> None:
    file.write_text(text)
    _, finish = kept.begin([file], OperatorTable(), Facts())
    with pytest.raises(RuleErrors) as late:
        finish()
    assert not list(cache.directory().glob("library-*.json"))
    with pytest.raises(RuleErrors) as early:
        load_rules([file], std=False)
    assert list(late.value.diagnostics) == list(early.value.diagnostics)


def test_only_the_named_rules_of_a_file_are_used(file: Path) -> None:
    assert [r.name for r in load(file).rules] == ["relu_relu", "double"]
    file.write_text(TEXT + 'use "other.rules"')
    assert [r.name for r in load(file).rules] == ["relu_relu", "unasked", "double"]


def test_a_change_of_any_file_is_seen(file: Path) -> None:
    load(file)
    (file.parent / "other.rules").write_text("rule relu_relu Relu(Relu(x)) => Relu(x) class fast")
    assert next(r.numerics for r in load(file).rules if r.name == "relu_relu") == "fast"
    file.write_text("rule broken")
    with pytest.raises(RuleErrors):
        load(file)


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b[:100],
        lambda b: b.replace(b"double", b"dauble"),
        lambda b: b"\xff\n" + b,
        lambda b: b"",
        lambda b: kept._digest(b"[]").encode() + b"\n[]",
        lambda b: kept._digest(b'[[],[["Rule"]]]\n1').encode() + b'\n[[],[["Rule"]]]\n1',
    ],
)
def test_a_damaged_entry_is_as_good_as_none(file: Path, damage: Callable[[bytes], bytes]) -> None:
    load(file)
    entry().write_bytes(damage(entry().read_bytes()))
    assert [r.name for r in load(file).rules] == ["relu_relu", "double"]
    assert isinstance(load(file), KeptLibrary)  # it was written again


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="there are no users here")
def test_what_others_could_have_written_is_not_read(file: Path) -> None:
    load(file)
    entry().chmod(0o666)
    assert not isinstance(load(file), KeptLibrary)
    entry().chmod(0o600)
    assert isinstance(load(file), KeptLibrary)
    cache.directory().chmod(0o777)
    assert not isinstance(load(file), KeptLibrary)
