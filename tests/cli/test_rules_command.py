"""`rewrite rules NAME`: a rule as it is written, with what follows for its variables."""

from __future__ import annotations

from pathlib import Path

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
    assert "  x: " in done.stdout.partition("types that follow")[2]


def test_a_name_that_is_nearly_right(tmp_path: Path) -> None:
    (tmp_path / "a.rules").write_text(TEXT)
    done = rewrite("rules", "mime", "--rules", "a.rules", "--no-std-rules", cwd=tmp_path)
    assert done.returncode == 2
    assert "Did you mean mine?" in done.stderr
