"""The summary of the main command: what it says, that it fits 80 columns, and the same as JSON."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from rewrite.engine.onnx_io.model_file import stored_bytes
from rewrite.system import short_text

from .command import MAIN, environment, rewrite
from .models import save_inverse


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("summary")
    save_inverse(place / "m.onnx")
    return place


@pytest.fixture(scope="module")
def result(folder: Path) -> dict[str, Any]:
    done = rewrite("m.onnx", "--json", "r.json", cwd=folder, env={"XDG_CACHE_HOME": str(folder / "cache")})
    assert done.returncode == 0, done.stderr
    return {"stdout": done.stdout, **json.loads((folder / "r.json").read_text())}


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_summary_says_what_changed(result: dict[str, Any], folder: Path) -> None:
    text = words(result["stdout"])
    assert "nodes 3 2 -33 %" in text
    assert "operators Mul 1 → 0" in text
    assert f"weights {short_text.memory_size(68)} {short_text.memory_size(64)} -6 %" in text
    sizes = [short_text.memory_size((folder / name).stat().st_size) for name in ("m.onnx", "m.opt.onnx")]
    assert f"file {' '.join(sizes)}" in text
    assert "time of a run" in text
    assert "for N = 1" in text
    assert "predicted" not in text
    assert re.search(r"no kernel \d+ % of the time: com.microsoft.Inverse ×1", text)
    for command in ("rewrite bench m.onnx", "rewrite bench m.rewrite --profile", "rewrite explain m.onnx"):
        assert command in text


def test_json_has_the_same(result: dict[str, Any], folder: Path) -> None:
    assert result["operators"] == {
        "before": {"Mul": 1, "MatMul": 1, "com.microsoft.Inverse": 1},
        "after": {"MatMul": 1, "com.microsoft.Inverse": 1},
    }
    stored = result["nbytes"]
    assert (stored["weights_before"], stored["weights_after"]) == (68, 64)
    assert stored["file_before"] == (folder / "m.onnx").stat().st_size
    assert stored["file_after"] == (folder / "m.opt.onnx").stat().st_size
    assert stored["program"] == sum(p.stat().st_size for p in (folder / "m.rewrite").rglob("*") if p.is_file())
    measured = result["measured"]
    assert measured["sizes"] == {"N": 1}
    assert measured["runs"] >= 1
    assert 0 < measured["seconds"] < 10
    assert 0 < measured["without_kernel"] <= 1


def test_free_sizes_are_likely_ones_when_a_run_is_timed(tmp_path: Path) -> None:
    """Verification draws small sizes, which say little about a service."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[batch, tokens, 8] x) => (float[batch, tokens, 8] y)
        { y = Softmax<axis: int = 1> (x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    done = rewrite("m.onnx", "--json", "m.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "m.json").read_text())["measured"]["sizes"] == {"batch": 1, "tokens": 128}
    assert "for batch = 1, tokens = 128" in done.stdout


def test_without_verification_the_time_is_predicted(folder: Path) -> None:
    done = rewrite("m.onnx", "--no-verify", "--emit", "onnx", "-o", "n.onnx", "--json", "n.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "predicted time" in done.stdout
    assert "rewrite bench" not in done.stdout
    found = json.loads((folder / "n.json").read_text())
    assert found["measured"] == {}
    assert "program" not in found["nbytes"]


def test_it_fits_a_terminal_of_80_columns(folder: Path) -> None:
    main, terminal = pty.openpty()
    env = environment(COLUMNS="80", TERM="xterm")
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", MAIN, "m.onnx"], cwd=folder, env=env, stdout=terminal, stderr=subprocess.DEVNULL
    )
    os.close(terminal)
    text = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        text += part
    os.close(main)
    assert child.wait() == 0
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.decode()).splitlines()
    assert any("verified against" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_quiet_prints_nothing_and_verbose_logs(folder: Path) -> None:
    empty = {"XDG_CACHE_HOME": str(folder / "other")}
    done = rewrite("m.onnx", "-v", cwd=folder, env=empty)
    assert done.returncode == 0, done.stderr
    for line in ("rewrite.engine: saturate: ", "rewrite.cache: ", "rewrite.toolchain: "):
        assert line in done.stderr
    quiet = rewrite("m.onnx", "-q", cwd=folder, env=empty)
    assert (quiet.returncode, quiet.stdout) == (0, "")
    assert "rewrite." not in quiet.stderr


def test_data_files_count_as_part_of_a_model(folder: Path, tmp_path: Path) -> None:
    model = onnx.load(folder / "m.onnx")
    onnx.save(model, tmp_path / "e.onnx", save_as_external_data=True, location="e.data", size_threshold=0)
    files = [(tmp_path / name).stat().st_size for name in ("e.onnx", "e.data")]
    assert stored_bytes(tmp_path / "e.onnx") == sum(files)
