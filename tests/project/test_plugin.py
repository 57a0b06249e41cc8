"""What users get from pytest on their rule files."""

import subprocess
import sys
from pathlib import Path

GOOD = """\
rule relu_relu                                 # relu(relu(x)) = relu(x)
  Relu(Relu(x))  =>  Relu(x)
  class exact
  test fires    x: f32[2, 3]
"""
BAD = """\
rule relu_is_nothing                           # wrong for negative x
  Relu(Relu(x))  =>  x
  class exact
  test fires    x: f32[2, 3]
"""
NEVER = """\
rule abs_abs
  Abs(Abs(x))  =>  Abs(x)
  class exact
  test refuses  x: f32[2, 3]
"""


def pytest_run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "--color=no", "-v", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_each_test_clause_is_a_test(tmp_path: Path) -> None:
    (tmp_path / "my.rules").write_text(GOOD + "\n" + BAD + "\n" + NEVER)
    done = pytest_run(tmp_path, "my.rules")
    assert "my.rules::relu_relu::fires:4 PASSED" in done.stdout
    assert "my.rules::relu_is_nothing::fires:9 FAILED" in done.stdout
    assert "my.rules::abs_abs::refuses:14 FAILED" in done.stdout
    assert "the two sides differ" in done.stdout
    assert "it was applied" in done.stdout
    assert "Traceback" not in done.stdout
    assert done.returncode == 1


def test_one_rule_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "my.rules").write_text(GOOD + "\n" + BAD)
    done = pytest_run(tmp_path, "my.rules::relu_relu")
    assert "1 passed" in done.stdout
    assert done.returncode == 0


def test_a_file_that_does_not_parse_shows_its_diagnostics(tmp_path: Path) -> None:
    (tmp_path / "my.rules").write_text("rule broken\n  Relu(x => x\n")
    done = pytest_run(tmp_path, "my.rules")
    assert done.returncode == 2
    assert "my.rules:2:" in done.stdout
    assert "^" in done.stdout
    assert "Traceback" not in done.stdout


def test_rules_are_checked_where_that_is_asked_for(tmp_path: Path) -> None:
    wrong = "rule neg_abs\n  Abs(Neg(x))  =>  Neg(Abs(x))\n  class exact\n"
    (tmp_path / "my.rules").write_text(GOOD + "\n" + wrong)
    assert "2 passed" not in pytest_run(tmp_path, "my.rules").stdout
    done = pytest_run(tmp_path, "my.rules", "--rewrite-soundness")
    assert "my.rules::relu_relu::fires:4 PASSED" in done.stdout
    assert "my.rules::relu_relu::sound PASSED" in done.stdout
    assert "my.rules::neg_abs::sound FAILED" in done.stdout
    assert "the two sides are not equal as exact promises" in done.stdout
    assert "Traceback" not in done.stdout
    assert done.returncode == 1
