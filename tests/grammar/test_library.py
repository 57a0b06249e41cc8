"""Loading several files as one library."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rewrite.errors import UserError
from rewrite.grammar.diagnostics import RuleErrors
from rewrite.grammar.library.load import Library, load
from rewrite.grammar.operator_info import OperatorInfo
from rewrite.grammar.printing.format import print_file
from rewrite.grammar.printing.printer import print_expr
from rewrite.grammar.syntax import ast, parse
from rewrite.system.store import Store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "b.rules").write_text('use "sub/c.rules"\nrule in_b x + 0 => x')
    (tmp_path / "a.rules").write_text("rule in_a x * 1 => x where one(x)")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.rules").write_text("def one(x) = rank(x) == 1\nop Add commutative")
    return tmp_path


def cached() -> list[Path]:
    """Return the cached syntax trees."""
    return list(Store().namespace("rules").path.glob("*"))


DAMAGE = [lambda b: b[:100], lambda b: b.replace(b"mul_one", b"mul_two"), lambda b: b"\xff\n"]


def names(library: Library) -> list[str]:
    return [rule.name for rule in library.rules]


def test_a_directory_is_all_its_files_by_name(folder: Path) -> None:
    library = load([folder])
    assert names(library) == ["in_a", "in_b"]
    assert [op.name for op in library.ops] == ["Add"]
    assert [d.name for d in library.defs] == ["one"]
    assert len(library.files) == 3


def test_used_files_come_before_and_once(folder: Path) -> None:
    library = load([folder / "b.rules", folder / "a.rules", folder / "b.rules"])
    assert names(library) == ["in_b", "in_a"]
    assert [f.path.rsplit("/", 1)[1] for f in library.files] == ["c.rules", "b.rules", "a.rules"]


def test_definitions_are_expanded_but_files_keep_them(folder: Path) -> None:
    library = load([folder])
    (condition,) = library.rules[0].where
    assert print_expr(condition) == "rank(x) == 1"
    assert "one(x)" in print_file(library.files[0])


def test_expansion_does_not_capture_names(tmp_path: Path) -> None:
    (tmp_path / "a.rules").write_text(
        """def scaled(p, k) = [i * k for i in p]
def twice(p) = scaled(scaled(p, 2), 3)
rule r
  Transpose(x, perm: p)  =>  Transpose(x, perm: [scaled(p, i) for i in p])
  where twice(p) == p"""
    )
    (rule,) = load([tmp_path]).rules
    assert print_expr(rule.rhs) == "Transpose(x, perm: [[i_ * i for i_ in p] for i in p])"
    assert print_expr(rule.where[0]) == "[i * 3 for i in [i * 2 for i in p]] == p"


def test_names_are_unique_across_files(folder: Path) -> None:
    (folder / "sub" / "d.rules").write_text("rule in_a\n  x * 1 => x")
    with pytest.raises(RuleErrors, match="two rules are named `in_a`") as caught:
        load([folder])
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.span.file.endswith("d.rules")
    assert diagnostic.labels[0].span.file.endswith("a.rules")


def test_errors_of_all_files_come_together(folder: Path) -> None:
    (folder / "sub" / "d.rules").write_text("rule broken\n  x + => x\nrule unbound\n  x * 1 => y")
    (folder / "e.rules").write_text("rule also\n  x * 1 => z")
    with pytest.raises(RuleErrors) as caught:
        load([folder])
    assert [d.code for d in caught.value.diagnostics] == ["unbound-variable", "syntax", "unbound-variable"]


def test_a_broken_definition_does_not_condemn_its_callers(folder: Path) -> None:
    (folder / "sub" / "c.rules").write_text("def one(x) = rank(x ==")
    with pytest.raises(RuleErrors) as caught:
        load([folder])
    assert [d.code for d in caught.value.diagnostics] == ["syntax"]


def test_missing_paths(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the rule file"):
        load([tmp_path / "none.rules"])
    with pytest.raises(UserError, match=r"contains no \.rules files"):
        load([tmp_path])
    assert load([]).rules == ()


def test_use_may_go_up_inside_the_given_directory(folder: Path) -> None:
    (folder / "sub" / "d.rules").write_text('use "../a.rules"')
    assert names(load([folder])) == ["in_a", "in_b"]
    with pytest.raises(RuleErrors, match="use-outside"):
        load([folder / "sub" / "d.rules"])


def test_use_does_not_follow_links_out(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "secret.rules"
    outside.write_text("rule secret x + 0 => x")
    (folder / "link.rules").symlink_to(outside)
    (folder / "a.rules").write_text('use "link.rules"')
    with pytest.raises(RuleErrors, match="use-outside"):
        load([folder / "a.rules"])


def test_without_operators_names_are_taken_on_trust(tmp_path: Path, operators: OperatorInfo) -> None:
    (tmp_path / "a.rules").write_text("rule r\n  Foo(x, ..a)  =>  Bar(x, ..a)")
    assert names(load([tmp_path])) == ["r"]
    with pytest.raises(RuleErrors, match="unknown operator `Foo`"):
        load([tmp_path], operators)


def test_declared_operators_are_known(tmp_path: Path, operators: OperatorInfo) -> None:
    (tmp_path / "a.rules").write_text("rule r Foo(x, a: k) => my.Bar(x)\nop Foo(x, a: 1) = x * a\nop my.Bar(x)")
    assert names(load([tmp_path], operators)) == ["r"]


def test_the_cache_gives_what_the_parser_gives(sample: ast.RuleFile, monkeypatch: pytest.MonkeyPatch) -> None:
    text = Path(sample.path).read_text(encoding="utf-8")
    monkeypatch.setattr(parse, "parse_fresh", lambda *_: pytest.fail("not from the cache"))
    again = parse.parse_text(text, "elsewhere.rules")
    assert again.content() == dataclasses.replace(sample, path="elsewhere.rules").content()
    assert again.doc == sample.doc
    spans = [(n.span.line, n.span.column, n.span.end_line, n.span.end_column) for n in sample.walk()]
    assert [(n.span.line, n.span.column, n.span.end_line, n.span.end_column) for n in again.walk()] == spans
    assert {n.span.file for n in again.walk()} == {"elsewhere.rules"}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_replaced(
    sample: ast.RuleFile, damage: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    (entry,) = cached()
    entry.write_bytes(damage(entry.read_bytes()))
    assert parse.parse_file(sample.path) == sample
    monkeypatch.setattr(parse, "parse_fresh", lambda *_: pytest.fail("not from the cache"))
    assert parse.parse_file(sample.path) == sample


def test_an_unwritable_cache_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REWRITE_CACHE_DIR", str(tmp_path / "file"))
    assert len(parse.parse_text("rule r x + 0 => x").items) == 1


def test_files_with_errors_are_not_cached() -> None:
    with pytest.raises(RuleErrors):
        parse.parse_text("rule r x + => x")
    assert not cached()


def test_a_cached_file_is_not_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.rules"
    file.write_text("rule r x + 0 => x")
    first = parse.parse_file(file)
    assert len(cached()) == 1
    monkeypatch.setattr(parse, "parse_fresh", lambda *_: pytest.fail("parsed again"))
    assert parse.parse_file(file) == first
    assert names(load([file])) == ["r"]


def test_a_missing_word_gives_a_message_or_is_valid(tmp_path: Path, sample: ast.RuleFile) -> None:
    """A missing word leads to diagnostics or a valid file, never to an exception."""
    text = Path(sample.path).read_text(encoding="utf-8")
    file = tmp_path / "slip.rules"
    messages = []
    for word in list(re.finditer(r"\w+|[^\s\w]+", text))[::4]:
        file.write_text(text[: word.start()] + text[word.end() :], encoding="utf-8")
        try:
            load([file])
        except RuleErrors as errors:
            messages.append(str(errors))
    assert len(messages) > 50
    assert all(message.startswith("error[") for message in messages)
