"""The parts of the command line that are functions of their arguments."""

import io
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from rewrite.cli import tables
from rewrite.cli.commands.run import read_array, write_arrays
from rewrite.cli.console import Stages
from rewrite.cli.measure import Runner, check_peers, interleave, peer
from rewrite.cli.options import parse_pairs, parse_shapes
from rewrite.cli.results import write_json, write_text
from rewrite.errors import UserError
from rewrite.pages.page import finite
from rewrite.system.short_text import duration, memory_size


def test_shapes_are_read_from_names_and_numbers() -> None:
    assert parse_shapes([]) == {}
    assert parse_shapes(["batch=1", "h=224, w=32"]) == {"batch": 1, "h": 224, "w": 32}
    assert parse_shapes(["a.b=0"]) == {"a.b": 0}


@pytest.mark.parametrize("text", ["batch", "=3", "batch=", "batch=-1", "batch=1.5", "batch=x", ""])
def test_other_shapes_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--shape takes NAME=DIM"):
        parse_shapes([text])


def test_a_name_has_one_size() -> None:
    assert parse_shapes(["n=1", "n=1"]) == {"n": 1}
    with pytest.raises(UserError, match="two sizes, 1 and 2"):
        parse_shapes(["n=1", "n=2"])


def test_pairs_name_files_that_may_hold_an_equals_sign() -> None:
    assert parse_pairs(["x=a=b.npy"], "--input") == {"x": Path("a=b.npy")}
    with pytest.raises(UserError, match="names 'x' twice"):
        parse_pairs(["x=a", "x=b"], "--input")


def test_arrays_come_from_npy_and_npz(tmp_path: Path) -> None:
    x, y = np.arange(6.0).reshape(2, 3), np.ones(2, np.int64)
    np.save(tmp_path / "x.npy", x)
    write_arrays(tmp_path / "both.npz", {"x": x, "y": y})
    write_arrays(tmp_path / "one.npz", {"z": y})
    assert np.array_equal(read_array(tmp_path / "x.npy", "anything"), x)
    assert np.array_equal(read_array(tmp_path / "both.npz", "y"), y)
    assert np.array_equal(read_array(tmp_path / "one.npz", "anything"), y)
    with pytest.raises(UserError, match="has no array 'w'; it has x, y"):
        read_array(tmp_path / "both.npz", "w")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["both.npz", "one.npz", "x.npy"]


def test_pickles_are_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "o.npy", np.array([print], dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match="is not a NumPy array file"):
        read_array(tmp_path / "o.npy", "o")


def test_json_has_no_nan(tmp_path: Path) -> None:
    data = {"a": [1.5, float("nan"), (float("inf"), "x")], "p": Path("f"), 3: None}
    assert finite(data) == {"a": [1.5, None, [None, "x"]], "p": "f", "3": None}
    write_json(data, tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text()) == finite(data)


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "r.txt"
    write_text("old", target)
    with pytest.raises(UnicodeEncodeError):
        write_text("\ud800", target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_stages_are_timed_and_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    from rewrite.cli.console import err

    err.cache_clear()
    with Stages() as stages:
        stages("read", {})
        stages("saturate", {"iterations": 1, "nodes": 1200})
        time.sleep(0.01)
        stages("saturate", {"iterations": 2, "nodes": 3400})
        stages("compile", {"done": 3, "total": 4})
    err.cache_clear()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["read model", "saturate", "compile kernels"]
    assert "2 iterations, 3,400 nodes" in lines[1]
    assert lines[2].endswith("3/4")
    assert list(stages.seconds) == ["read", "saturate", "compile"]
    assert stages.seconds["saturate"] >= 0.01


def test_time_of_a_stage_goes_on_while_it_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from rewrite.cli import console
    from rich.console import Console

    terminal = Console(file=io.StringIO(), force_terminal=True, width=80)
    monkeypatch.setattr(console, "err", lambda: terminal)
    with Stages() as stages:
        stages("verify", {})
        deadline = time.monotonic() + 30
        while not re.search(r"[1-9] s", terminal.file.getvalue()):  # type: ignore[attr-defined]
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_interleaving_gives_each_runner_its_time() -> None:
    calls: list[str] = []

    def slow(feeds: object) -> None:
        calls.append("slow")
        time.sleep(0.004)

    def fast(feeds: object) -> None:
        calls.append("fast")
        time.sleep(0.001)

    timings = interleave({"slow": slow, "fast": fast}, {}, seconds=0.1, rounds=2)
    assert timings["slow"].median > 2 * timings["fast"].median
    assert timings["fast"].low <= timings["fast"].median <= timings["fast"].high
    turns = [name for name, before in zip(calls, [None, *calls], strict=False) if name != before]
    assert turns == ["slow", "fast"] * 3  # the first is the warm-up


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(UserError, match="unknown engine 'tvm'"):
        check_peers(["onnxruntime", "tvm"])
    with pytest.raises(UserError, match=r"m\.onnx: onnxruntime cannot load the model"):
        peer("onnxruntime", Path("m.onnx"), 1)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_exact_engines_do_not_saturate_products_of_bytes(engine: str) -> None:
    pytest.importorskip(engine)
    weights = ", ".join(["127"] * 64)
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (uint8[2, 64] x) => (float[2, 1] y)
        <int8[64, 1] w = {{{weights}}}, float s = {{0.125}}, uint8 z = {{0}}, int8 o = {{0}}>
        {{ a = DequantizeLinear(x, s, z) b = DequantizeLinear(w, s, o) y = MatMul(a, b) }}"""
    )
    [found] = (np.asarray(array) for array in _results(peer(f"{engine}-exact", model.SerializeToString(), 1)))
    np.testing.assert_allclose(found, 64 * 255 * 127 / 64, rtol=1e-6)


def _results(runner: Runner) -> list[Any]:
    found = runner({"x": np.full((2, 64), 255, np.uint8)})
    return found if isinstance(found, list) else list(found.values())


def test_units_that_read_well() -> None:
    assert duration(12.5e-6) == "12.5 µs"
    assert duration(0.0125) == "12.50 ms"
    assert memory_size(512) == "512 B"
    assert memory_size(3 << 20) == "3.0 MiB"
    assert tables.change(200, 116) == "-42 %"
    assert tables.change(0, 3) == "-"
