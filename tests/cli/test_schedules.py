"""`--schedule`, and limits in the report."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from .command import rewrite

RULES = """ruleset growth  nodes 5  joins explore
ruleset aside
schedule still = lower
rule grow   Abs(x) => Abs(x + 1 - 1)  class reassoc  joins growth
rule apart  Relu(Relu(x)) => Relu(x)  class exact  joins aside
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    text = (
        '<ir_version: 8, opset_import: ["": 18]> g (float[N] x) => (float[N] y) { a = Relu(x) b = Relu(a) y = Abs(b) }'
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    (tmp_path / "my.rules").write_text(RULES)
    return tmp_path


OPTIONS = ("--rules", "my.rules", "--no-std-rules", "--emit", "onnx", "--no-verify")


def test_the_standard_schedule_runs_what_joins_it_and_names_limits(folder: Path) -> None:
    done = rewrite("m.onnx", *OPTIONS, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "ruleset growth reached its limit of nodes" in done.stdout
    assert "ruleset aside is not in the schedule" in done.stdout


def test_another_schedule_is_run_by_its_name(folder: Path) -> None:
    done = rewrite("m.onnx", *OPTIONS, "--schedule", "still", "--json", "-", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["egraph"]
    assert (found["iterations"], found["limits"], found["unscheduled"]) == (1, [], ["growth", "aside"])


def test_an_unknown_schedule_is_refused(folder: Path) -> None:
    done = rewrite("m.onnx", *OPTIONS, "--schedule", "stil", cwd=folder)
    assert done.returncode == 2
    assert "unknown schedule 'stil'" in done.stderr
    assert "did you mean `still`" in done.stderr
