"""`rewrite rules`: shows a rule with inferred types; creates a template."""

from __future__ import annotations

from pathlib import Path

import pytest
from rewrite.engine.rule_tests.run_tests import run_tests
from rewrite.grammar.printing.format import format_text
from rewrite.grammar.syntax.parse import parse_text

from .command import rewrite

TEXT = """rule mine  # doc
  Relu(Transpose(x, perm: [1,0]))  =>  Transpose(Relu(x), perm: [1,0])
  # a comment
  class exact
  test fires    x: f32[2,3]
"""


def test_a_rule_is_shown_as_written_with_its_types(tmp_path: Path) -> None:
    (tmp_path / "a.rules").write_text(TEXT)
    done = rewrite("rules", "mine", "--rules", "a.rules", "--no-std-rules", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert TEXT.rstrip() in done.stdout
    assert "a.rules:1" in done.stdout
    assert "  x: " in done.stdout.partition("inferred types")[2]


def test_a_name_that_is_nearly_right(tmp_path: Path) -> None:
    (tmp_path / "a.rules").write_text(TEXT)
    done = rewrite("rules", "mime", "--rules", "a.rules", "--no-std-rules", cwd=tmp_path)
    assert done.returncode == 2
    assert "Did you mean mine?" in done.stderr


def test_a_new_rule_to_fill_in(tmp_path: Path) -> None:
    file = tmp_path / "a.rules"
    for name in ("first_one", "second_one"):
        done = rewrite("rules", "--new", "a.rules", name, "--no-std-rules", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        place = done.stdout.split(": ")[0]
        assert place == f"a.rules:{file.read_text().split(f'rule {name} ')[0].count(chr(10)) + 1}"
    text = file.read_text()
    assert format_text(text) == text
    assert [item.name for item in parse_text(text).items] == ["first_one", "second_one"]  # type: ignore[attr-defined]
    results = run_tests([file], std=False)
    assert [(r.kind, r.ok) for r in results] == [("fires", True), ("refuses", True)] * 2


def test_a_new_rule_keeps_what_is_there(tmp_path: Path) -> None:
    file = tmp_path / "a.rules"
    file.write_bytes(TEXT.rstrip().encode().replace(b"\n", b"\r\n"))
    file.chmod(0o640)
    assert rewrite("rules", "--new", "a.rules", "more", "--no-std-rules", cwd=tmp_path).returncode == 0
    assert file.read_bytes().startswith(TEXT.encode().replace(b"\n", b"\r\n") + b"\r\nrule more ")
    assert b"\n" not in file.read_bytes().replace(b"\r\n", b"")
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("file", "name", "says"),
    [
        ("a.rules", "mine", "'mine' exists already"),
        ("b.rules", "conv_bn", "'conv_bn' exists already"),
        ("a.rules", "where", "is a reserved word"),
        ("a.rules", "two words", "not a valid rule name"),
        ("a.onnx", "other", "not a rule file"),
        ("nowhere/a.rules", "other", "cannot be written"),
        ("broken.rules", "other", "is not closed"),
    ],
)
def test_where_no_rule_can_begin(file: str, name: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.rules").write_text(TEXT)
    (tmp_path / "broken.rules").write_text("rule x Relu(")
    done = rewrite("rules", "--new", file, name, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "a.rules").read_text() == TEXT
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.rules", "broken.rules"]
