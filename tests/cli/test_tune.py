"""`rewrite tune`: the search from the command line, and the care of its records."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from rewrite.system.short_text import plural

from .command import Running, rewrite

MODEL = """
import numpy as np, onnx
from onnx import parser
made = parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>'
    'net (float[1, 16, 20, 20] x) => (float[1, 24, 20, 20] y) { c = Conv<pads = [1, 1, 1, 1]>(x, w)  y = Relu(c) }')
weights = np.random.default_rng(1).standard_normal((24, 16, 3, 3)).astype(np.float32)
made.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
onnx.save(made, "m.onnx")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    import subprocess
    import sys

    subprocess.run([sys.executable, "-c", MODEL], cwd=tmp_path, check=True)
    return tmp_path


def test_a_search_ends_with_a_table_and_its_records_move(folder: Path) -> None:
    cache = {"REWRITE_CACHE_DIR": str(folder / "cache")}
    run = ("tune", "m.onnx", "--budget", "15s", "--threads", "1")
    done = rewrite(*run, cwd=folder, env=cache)
    assert done.returncode == 0, done.stderr
    assert "conv 3x3/1 16->24 20x20" in done.stdout
    assert "whole model: " in done.stdout
    assert str(folder / "cache" / "schedules" / "records.jsonl") in done.stdout
    shown = rewrite(*run, "--json", "-", cwd=folder, env=cache)
    tuning = json.loads(shown.stdout)["tuning"]
    [kernel] = [kernel for kernel in tuning["kernels"] if kernel["kernel"].startswith("conv 3x3/1 16->24 20x20")]
    assert kernel["tried"] >= 1
    assert kernel["default_us"] > 0
    assert tuning["interrupted"] is False

    exported = rewrite("tune", "--export", "records.jsonl", cwd=folder, env=cache)
    assert exported.returncode == 0, exported.stderr
    other = {"REWRITE_CACHE_DIR": str(folder / "other")}
    added = rewrite("tune", "--import", "records.jsonl", cwd=folder, env=other)
    searched = sum(kernel["tried"] > 0 for kernel in tuning["kernels"])
    assert added.stdout.startswith(f"{plural(searched, 'record')} added to ")
    printed = rewrite("tune", "--export", "-", cwd=folder, env=other)
    assert printed.stdout == (folder / "records.jsonl").read_text()
    pruned = rewrite("tune", "--prune", cwd=folder, env=cache)
    assert pruned.stdout.startswith(f"{plural(searched, 'record')} kept, ")


def test_ctrl_c_ends_a_search_and_keeps_it(folder: Path, tmp_path: Path) -> None:
    before = """
import rewrite.tuning.tune as tune
batch, done = tune._Tuner._batch, []
def announced(self, *given):
    batch(self, *given)
    done.append(1)
    if len(done) == 2:
        import sys
        print("two batches", file=sys.stderr, flush=True)
tune._Tuner._batch = announced
"""
    cache = tmp_path / "cache"
    command = Running(
        "tune", "m.onnx", "--budget", "10m", "--threads", "1",
        cwd=folder, temporary=tmp_path, before=before, REWRITE_CACHE_DIR=str(cache),
    )  # fmt: skip
    command.wait_for("two batches")
    code, seconds, errors = command.interrupt(signal.SIGINT)
    assert code == 130, errors
    assert seconds < 20  # one, on an idle machine; the budget has ten minutes left
    assert command.left() == []
    lines = (cache / "schedules" / "records.jsonl").read_text().splitlines()
    assert sum(len(json.loads(line)["tried"]) for line in lines) >= 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is nothing to do"),
        (["m.onnx", "--prune"], "without a model"),
        (["m.onnx", "--budget", "soon"], "--budget takes a duration of at least a second, not 'soon'"),
        (["m.onnx", "--budget", "0s"], "--budget takes a duration"),
        (["m.onnx", "--budget", "nan"], "--budget takes a duration"),
        (["m.onnx", "--search", "magic"], "there is no search 'magic'"),
        (["m.onnx", "--workers", "2", "--scheduler", "tcp://127.0.0.1:9"], "--scheduler uses those of a scheduler"),
        (["missing.onnx"], "no such file"),
        (["--import", "missing.jsonl"], "the records cannot be read"),
        (["--import", "m.onnx"], "the records cannot be read"),
        (["m.onnx", "--target", "neon"], "cannot run kernels for 'neon'"),
        (["m.onnx", "--target", "avx2,portable"], "cannot run kernels for 'avx2,portable'"),
    ],
)
def test_wrong_arguments_are_reported(folder: Path, arguments: list[str], message: str) -> None:
    done = rewrite("tune", *arguments, cwd=folder, env={"REWRITE_CACHE_DIR": str(folder / "cache")})
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
