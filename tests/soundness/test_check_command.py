"""`rewrite check` from the command line: what it prints and writes, and its exit codes."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

RULES = """\
rule abs_of_abs                                # |x| is not negative
  Abs(Abs(x))  =>  Abs(x)
  class exact
  test fires    x: f32[2, 3]

rule abs_of_neg                                # not so
  Abs(Neg(x))  =>  Neg(Abs(x))
  class exact
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "my.rules"
    path.write_text(RULES)
    return path


def rewrite(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"REWRITE_CACHE_DIR": str(folder / "cache"), "NO_COLOR": "1", "COLUMNS": "120"}
    command = [sys.executable, "-P", "-m", "rewrite.cli.app", "check", "--no-prove", "--no-std-rules", "--budget", "40"]
    return subprocess.run(
        [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=250
    )


def test_a_wrong_rule_is_shown_with_its_counterexample(rules: Path, tmp_path: Path) -> None:
    done = rewrite(tmp_path, "my.rules", "--reproducer", "found", "--json", "out.json", "--junit", "out.xml")
    assert done.returncode == 1, done.stderr
    assert "my.rules:6 abs_of_neg: unsound" in done.stdout
    assert "the two sides are not equal as exact promises" in done.stdout
    assert "Neg" in done.stdout
    assert "1 sound (1 tested, 0 proved as well), 1 failed" in done.stdout
    assert sorted(p.name for p in (tmp_path / "found").iterdir()) == [
        "abs_of_neg.left.onnx", "abs_of_neg.npz", "abs_of_neg.right.onnx",
    ]  # fmt: skip
    found = json.loads((tmp_path / "out.json").read_text())
    assert (found["schema"], found["sound"], found["failed"]) == (2, 1, 1)
    assert [r["verdict"] for r in found["rules"]] == ["sound", "unsound"]
    assert [r["layer"] for r in found["rules"]] == [2, 1]
    assert found["rules"][1]["counterexample"]["inputs"]
    suite = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")


@pytest.mark.parametrize("place", ["my.rules", "my.rules/found", "/dev/null/found"])
def test_an_unusable_folder_for_reproducers_is_reported_first(rules: Path, tmp_path: Path, place: str) -> None:
    done = rewrite(tmp_path, "none.rules", "--reproducer", place)
    assert done.returncode == 2
    assert "is not a directory" in done.stderr
    assert "none.rules" not in done.stderr  # which would be reported next
    assert rules.read_text() == RULES


def test_one_rule_can_be_named_and_is_not_checked_again(rules: Path, tmp_path: Path) -> None:
    for _ in range(2):
        done = rewrite(tmp_path, "my.rules::abs_of_abs", "--json", "-")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)["rules"]
        assert [r["name"] for r in found] == ["abs_of_abs"]
    entries = list((tmp_path / "cache" / "soundness").iterdir())
    assert len(entries) == 1
    assert rewrite(tmp_path, "my.rules::abs_of_abs", "--no-cache", "--seed", "7").returncode == 0
    assert list((tmp_path / "cache" / "soundness").iterdir()) == entries


def test_mistakes_are_reported(rules: Path, tmp_path: Path) -> None:
    done = rewrite(tmp_path, "my.rules::abs_of_ab")
    assert done.returncode == 2
    assert "has no rule 'abs_of_ab'" in done.stderr
    assert "abs_of_abs" in done.stderr
    assert rewrite(tmp_path, "other.rules").returncode == 2
    (tmp_path / "bad.rules").write_text("rule x\n  Relu(y => y\n")
    done = rewrite(tmp_path, "bad.rules")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_the_command_spends_what_the_library_does() -> None:
    from rewrite.cli.commands.check import command
    from rewrite.soundness.checking.report import DEFAULT

    given = {name: parameter.default for name, parameter in inspect.signature(command).parameters.items()}
    assert (given["budget"], given["seconds"], given["seed"]) == (DEFAULT.instances, DEFAULT.seconds, DEFAULT.seed)
