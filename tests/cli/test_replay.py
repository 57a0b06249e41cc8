"""A second `rewrite MODEL` writes the same files from the cache."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import rewrite as package
from rewrite.engine import optimizer
from rewrite.system.file_contents import FileState

from .command import rewrite

MODEL = """<ir_version: 10, opset_import: ["" : 21]> g (float[N, 16] x) => (float[N, 8] y)
<float[16, 8] w> { t = MatMul(x, w) u = Relu(t) y = Relu(u) }"""
NO_ENGINE = "import sys; sys.modules['egglog'] = None"  # so that nothing can be optimized


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REWRITE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A directory with a unique model."""
    model = onnx.parser.parse_model(MODEL)
    weights = np.random.default_rng(len(request.node.name)).normal(size=(16, 8)).astype(np.float32)
    del model.graph.initializer[:]
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path


def outputs(folder: Path) -> dict[str, bytes]:
    files = [folder / "m.opt.onnx", *sorted((folder / "m.rewrite").rglob("*"))]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files if file.is_file()}


def stages(folder: Path, *arguments: str, **how: str) -> set[str]:
    """Runs the command; its stages."""
    done = rewrite("m.onnx", "--json", "r.json", *arguments, cwd=folder, **how)  # type: ignore[arg-type]
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "r.json").read_text())
    return set(report["seconds"])


def test_the_same_is_written_again(folder: Path) -> None:
    assert {"saturate", "compile", "verify"} <= stages(folder)
    first, report = outputs(folder), json.loads((folder / "r.json").read_text())
    for name in ("m.opt.onnx", "m.rewrite/weights.bin"):
        (folder / name).write_bytes(b"?")
    assert stages(folder, before=NO_ENGINE) == {"load", "write"}
    assert outputs(folder) == first
    again = json.loads((folder / "r.json").read_text())
    assert {**again, "seconds": 0} == {**report, "seconds": 0}
    done = rewrite("m.onnx", "-o", "o.onnx", "--program", "p", cwd=folder, before=NO_ENGINE)
    assert "when it was compiled" in done.stdout
    assert (folder / "o.onnx").read_bytes() == first["m.opt.onnx"]
    assert sorted(file.name for file in (folder / "p").iterdir()) == ["kernels", "manifest.json", "weights.bin"]
    x = np.ones((3, 16), np.float32)
    want = package.load(folder / "m.rewrite").run({"x": x})["y"]
    np.testing.assert_array_equal(package.load(folder / "p").run({"x": x})["y"], want)


def test_a_session_and_a_run_take_what_was_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages(folder)
    monkeypatch.setattr(optimizer, "optimize_native", None)
    session = package.InferenceSession(folder / "m.onnx")
    assert session.run(None, {"x": np.ones((3, 16), np.float32)})[0].shape == (3, 8)
    np.save(folder / "x.npy", np.ones((3, 16), np.float32))
    done = rewrite("run", "m.onnx", "-i", "x=x.npy", cwd=folder, before=NO_ENGINE)
    assert done.returncode == 0, done.stderr
    assert "saturate" not in done.stderr


def test_what_was_not_compared_is_made_again(folder: Path) -> None:
    assert "saturate" in stages(folder, "--no-verify")
    assert stages(folder, "--no-verify") == {"load", "write"}
    assert {"saturate", "verify"} <= stages(folder)
    assert stages(folder, "--no-verify") == {"load", "write"}


def test_other_settings_are_another_program(folder: Path) -> None:
    settings = ("--no-verify", "--threads", "2")
    stages(folder, *settings)
    assert "saturate" in stages(folder, *settings, "--numerics", "exact")
    assert "saturate" in stages(folder, *settings, "--memory-limit", "3000")
    assert stages(folder, *settings, "--schedule", "standard") == {"load", "write"}


def test_what_is_damaged_is_made_again(folder: Path) -> None:
    from rewrite.backend.bundle.program_cache import ProgramCache

    stages(folder, "--no-verify")
    first = outputs(folder)
    newest = max(ProgramCache().entries(), key=lambda entry: entry.stat().st_mtime_ns)
    (newest / "model.rest").write_bytes(b"?")
    done = rewrite("m.onnx", "--no-verify", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "model.rest has changed" in done.stderr
    assert "saturate" in done.stderr
    assert outputs(folder) == first


def test_what_ran_out_of_time_is_not_kept(folder: Path) -> None:
    limit = ("--no-verify", "--time-limit", "0.000001")
    assert "saturate" in stages(folder, *limit)
    assert "saturate" in stages(folder, *limit)


def test_other_rules_in_a_file_that_is_used_are_another_program(folder: Path) -> None:
    (folder / "mine.rules").write_text('use "shared.rules"\n')
    rule = "rule {0}\n  Relu(Relu(x))  =>  Relu(x)\n  class exact\n  test fires    x: f32[2]\n"
    (folder / "shared.rules").write_text(rule.format("twice"))
    rules = ("--no-verify", "--rules", "mine.rules")
    assert "saturate" in stages(folder, *rules)
    assert stages(folder, *rules) == {"load", "write"}
    (folder / "shared.rules").write_text(rule.format("two_times"))
    assert "saturate" in stages(folder, *rules)


def test_a_model_that_is_written_to_is_another(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"one")
    original = FileState.of(model)
    assert original.is_unchanged()
    model.read_bytes()
    assert original.is_unchanged()
    about = model.stat()
    model.write_bytes(b"two")
    os.utime(model, ns=(about.st_atime_ns, about.st_mtime_ns))  # as if nothing had happened
    assert not original.is_unchanged()
    original = FileState.of(model)
    model.unlink()
    assert not original.is_unchanged()
    assert not FileState.of(model).is_unchanged()
