"""`rewrite test`: what is shown of a test that fails, `--update`, `--junit`, several processes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from . import command

WRONG = """# a comment that stays
rule composed                     # two transpositions are one
  Transpose(Transpose(x, perm: p), perm: q)  =>  Transpose(x, perm: [p[i] for i in q])
  class exact
  test fires    x: f32[2, 3, 4], p = [1, 2, 0], q = [0, 2, 1]  gives Transpose(x, perm: [0, 1, 2])
  test fires    x: f32[2, 3], p = [1, 0], q = [1, 0]

rule halved
  x + x  =>  x * 3
  class exact
  test fires    x: f32[2]

rule third                        # of rank three only
  Relu(Relu(x))  =>  Relu(x)
  where rank(x) == 3
  class exact
  test fires    x: f32[2]
  test refuses  x: f32[1, 2, 2]
"""


def rewrite(*arguments: str) -> subprocess.CompletedProcess[str]:
    return command.rewrite(*arguments, cwd=Path.cwd())


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "wrong.rules"
    file.write_text(WRONG)
    return file


def test_a_failure_shows_expected_and_actual(rules: Path) -> None:
    done = rewrite("test", "--no-std-rules", str(rules))
    assert done.returncode == 1
    shown = [line.strip() for line in done.stdout.splitlines()]
    at = next(i for i, line in enumerate(shown) if line.startswith("expected "))
    assert shown[at].split(None, 1)[1].replace(" ", "") == "Transpose(x,perm:[0,1,2])"
    assert shown[at + 1].split(None, 1)[1].replace(" ", "") == "Transpose(x,perm:[1,0,2])"
    assert shown[at + 2] == "^"
    assert "1 passed, 4 failed, in 3 rules" in done.stdout


def test_a_failure_shows_both_forms_the_nearest_miss_and_what_was_made(rules: Path) -> None:
    shown = rewrite("test", "--no-std-rules", str(rules)).stdout
    assert "the two sides differ" in shown
    assert "x * 3" in shown
    assert "`rank(x) == 3` does not hold: rank(x) is 1" in shown
    assert f"{rules}:15:9" in shown
    assert "=>  Relu(x)" in shown


@pytest.mark.parametrize("option", ["--update", "--bless"])  # the second is an alias that no help shows
def test_update_writes_the_actual_expression_and_nothing_else(rules: Path, option: str) -> None:
    done = rewrite("test", "--no-std-rules", option, str(rules))
    assert "1 passed, 3 failed, 1 updated" in done.stdout
    before, after = WRONG.splitlines(), rules.read_text().splitlines()
    assert [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b] == [4]
    assert after[4].split("gives")[1].replace(" ", "") == "Transpose(x,perm:[1,0,2])"
    assert rewrite("test", "--no-std-rules", f"{rules}::composed").returncode == 0


def test_junit_lists_every_test(rules: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    done = rewrite("test", "--no-std-rules", "--junit", str(report), str(rules))
    assert done.returncode == 1
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("5", "4")
    failed = {case.get("line") for case in suite.iter("testcase") if case.find("failure") is not None}
    assert failed == {"5", "11", "17", "18"}


def test_a_report_that_cannot_be_written(rules: Path, tmp_path: Path) -> None:
    done = rewrite("test", "--no-std-rules", "--junit", str(tmp_path / "no" / "report.xml"), str(rules))
    assert done.returncode == 2
    assert "no: no such directory" in done.stderr
    assert "report.xml would be written there." in done.stderr


def test_several_processes_give_the_same_in_the_same_order(tmp_path: Path) -> None:
    file = tmp_path / "many.rules"
    one = "rule r{0}\n  Relu(Relu(x))  =>  Relu(x)\n  test fires    x: f32[{0}]\n  test refuses  x: f32[2]\n"
    file.write_text("\n".join(one.format(i) for i in range(1, 20)))
    single = rewrite("test", "--no-std-rules", "-v", "-j", "1", str(file))
    double = rewrite("test", "--no-std-rules", "-v", "-j", "2", str(file))
    assert single.stdout == double.stdout
    assert "19 passed, 19 failed" in single.stdout
