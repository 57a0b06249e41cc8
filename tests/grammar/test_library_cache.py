"""The library cache: equal results, checks on time, damaged entries replaced."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rewrite.engine.rewriting import rule_library
from rewrite.engine.rewriting.rule_library import load_rules, rule_set
from rewrite.grammar import lints
from rewrite.grammar.diagnostics import Diagnostic, RuleErrors
from rewrite.grammar.library import library_cache
from rewrite.grammar.library.library_cache import LazyLibrary
from rewrite.grammar.library.load import Library
from rewrite.system.store import Store

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


def is_cached(library: Library) -> bool:
    """Return whether the syntax trees of a library were read from the store."""
    assert isinstance(library, LazyLibrary)
    return all(entry.text for entry in library.entries)


def entry() -> Path:
    (found,) = Store().namespace("libraries").path.glob("*")
    return found


def test_a_cached_library_equals_a_fresh_one(file: Path) -> None:
    fresh, known = load(file), load(file)
    assert not is_cached(fresh)
    assert is_cached(known)
    for name in ("rules", "ops", "fuses", "rulesets", "schedules", "domains", "files", "defs", "warnings"):
        assert getattr(known, name) == getattr(fresh, name)
    assert [r.span for r in known.rules] == [r.span for r in fresh.rules]
    spans = [[node.span for node in rule.walk()] for rule in fresh.rules]
    assert [[node.span for node in rule.walk()] for rule in known.rules] == spans
    assert known.places() == fresh.places()


def test_warnings_are_computed_on_demand(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("rule odd Relu(x) => x where size(x) == 1, size(x) >= 1")
    looked = []
    real = lints.find

    def find(*args: Any, **kinds: Any) -> list[Diagnostic]:
        looked.append(args)
        return real(*args, **kinds)

    monkeypatch.setattr(lints, "find", find)
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


def test_rules_from_the_cache_are_the_same(file: Path) -> None:
    fresh, known = (rule_set(load(file), "fast") for _ in range(2))
    fields = ("name", "ruleset", "lhs", "rhs", "rule", "index", "indexed", "indices", "heads", "required")
    assert [[getattr(r, f) for f in fields] for r in known.rules] == [
        [getattr(r, f) for f in fields] for r in fresh.rules
    ]
    assert [r.name for r in known.rules] == ["recognize_Half", "relu_relu", "double", "double"]
    assert dict(known.declared) == dict(fresh.declared)
    assert known.plan == fresh.plan


@pytest.mark.parametrize("text", ["rule odd Relu(x) => y class exact", "rule odd Relu(x, x, x) => x class exact"])
def test_libraries_with_errors_are_not_cached(file: Path, text: str) -> None:
    file.write_text(text)
    for _ in range(2):
        with pytest.raises(RuleErrors):
            load(file)
    assert not list(Store().namespace("libraries").path.glob("*"))


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
        lambda b: hashlib.sha256(b"[]").hexdigest().encode() + b"\n[]",
        lambda b: hashlib.sha256(b'[[],[["Rule"]]]\n1').hexdigest().encode() + b'\n[[],[["Rule"]]]\n1',
    ],
)
def test_a_damaged_entry_is_replaced(file: Path, damage: Callable[[bytes], bytes]) -> None:
    load(file)
    entry().write_bytes(damage(entry().read_bytes()))
    assert [r.name for r in load(file).rules] == ["relu_relu", "double"]
    assert is_cached(load(file))  # it was written again


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="there are no users here")
def test_entries_that_others_could_have_written_are_ignored(file: Path) -> None:
    load(file)
    entry().chmod(0o666)
    assert not is_cached(load(file))
    entry().chmod(0o600)
    assert is_cached(load(file))
    Store().namespace("libraries").path.chmod(0o777)
    assert not is_cached(load(file))


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A standard library of one file in a place of its own, with its prepared entry."""
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "a.rules").write_text(OTHER)
    monkeypatch.setattr(rule_library, "STANDARD", folder)
    monkeypatch.setattr(rule_library, "PREPARED", folder / "standard.prepared")
    rule_library.prepare_standard_library(folder / "standard.prepared")
    return folder


def test_the_first_run_of_a_package_parses_nothing(prepared: Path, tmp_path: Path) -> None:
    """The entry serves wherever the package was moved to."""
    elsewhere = prepared.rename(tmp_path / 'else"where')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule_library, "STANDARD", elsewhere)
        patch.setattr(rule_library, "PREPARED", elsewhere / "standard.prepared")
        library = load_rules()
        assert is_cached(library)
        assert library.places()["relu_relu"] == (str(elsewhere / "a.rules"), 1)
        assert {node.span.file for rule in library.rules for node in rule.walk()} == {str(elsewhere / "a.rules")}
        (elsewhere / "standard.prepared").unlink()
        assert is_cached(load_rules())  # it was added to the cache


def test_rules_that_must_be_parsed_are_not_found(prepared: Path) -> None:
    found = rule_library.parsed_standard_rules()
    assert found is not None
    assert "relu_relu" in found.places()
    (prepared / "standard.prepared").unlink()
    (prepared / "a.rules").write_text(OTHER + "\n")
    assert rule_library.parsed_standard_rules() is None
    load_rules()
    assert rule_library.parsed_standard_rules() is not None


@pytest.mark.parametrize("change", ["rules", "program", "operators", "damage", "other rules"])
def test_a_prepared_library_that_does_not_fit_is_not_used(
    prepared: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    more: list[str | Path] = []
    if change == "rules":
        (prepared / "a.rules").write_text(OTHER + "\n")
    elif change == "program":
        monkeypatch.setattr(library_cache, "code_digest", lambda *rooms: "another")
    elif change == "operators":
        monkeypatch.setattr(rule_library.OperatorTable, "release", lambda self: "0.1")
    elif change == "damage":
        whole = (prepared / "standard.prepared").read_bytes()
        (prepared / "standard.prepared").write_bytes(whole[:-1000])
    else:
        more = [prepared.parent / "b.rules"]
        (prepared.parent / "b.rules").write_text("rule neg_neg Neg(Neg(x)) => x class exact")
    library = load_rules(more)
    assert not is_cached(library)
    assert "relu_relu" in library.places()
