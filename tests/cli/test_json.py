"""docs/json.md describes what `--json` writes, field by field."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest
import rewrite as package

from .command import rewrite
from .models import save_inverse

DOCS = Path(package.__file__).parent / "docs" / "json.md"
TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,), "string": (str,), "number": (int, float, type(None)), "object": (dict,), "array": (list,),
    "bool or null": (bool, type(None)),
}  # fmt: skip


def described(heading: str = "") -> dict[str, str]:
    """Type of each field in the first table after the line that starts with `heading`."""
    fields: dict[str, str] = {}
    lines = iter(DOCS.read_text().splitlines())
    assert any(line.startswith(heading) for line in lines), heading
    for line in lines:
        if line.startswith("| `"):
            first, kinds = (cell.strip() for cell in line.split("|")[1:3])
            names = re.findall("`([^`]+)`", first)
            each = [kind.strip() for kind in kinds.split(",")]
            fields.update(zip(names, each if len(each) == len(names) else each * len(names), strict=True))
        elif fields:
            break
    return fields


def agrees(data: dict[str, Any], fields: dict[str, str]) -> None:
    assert set(data) == set(fields)
    for name, kind in fields.items():
        assert isinstance(data[name], TYPES[kind]), name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("json")
    save_inverse(place / "m.onnx")
    return place


@pytest.fixture(scope="module")
def result(folder: Path) -> dict[str, Any]:
    empty = {"XDG_CACHE_HOME": str(folder / "cache")}  # a program from the cache has no times of planning
    done = rewrite("m.onnx", "--json", "-", "--bench", "--shape", "N=2", cwd=folder, env=empty)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_fields_are_those_described(result: dict[str, Any]) -> None:
    agrees(result, described())
    assert result["schema"] == 2
    for found in result["rules"]:
        agrees(found, described("A rule:"))
    agrees(result["verify"], described("`verify`:"))
    assert {"classes", "nodes", "iterations", "stop_reason", "limited", "limits", "unscheduled"} == set(
        result["egraph"]
    )
    assert {"method", "bound", "gap"} == set(result["extraction"])


def test_what_it_says_is_so(result: dict[str, Any]) -> None:
    assert result["nodes_before"] == 3
    assert result["nodes_after"] == 2
    assert next(rule for rule in result["rules"] if rule["name"] == "mul_one")["applied"] == 1
    assert result["outputs"] == {"onnx": "m.opt.onnx", "program": "m.rewrite"}
    assert result["fallbacks"] == {"com.microsoft.Inverse": 1}
    assert result["verify"]["ok"] is True
    assert result["verify"]["compared"] == 1
    assert {"rules", "read", "saturate", "extract", "plan", "verify", "write", "bench"} <= set(result["seconds"])
    assert all(set(t) == {"median", "p10", "p90", "runs"} for t in result["bench"]["engines"].values())


def test_a_measurement_by_itself(folder: Path) -> None:
    options = ("--against", "none", "--seconds", "0.2", "--shape", "N=2", "--json", "b.json")
    done = rewrite("bench", "m.onnx", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "b.json").read_text())
    assert set(found) == {"schema", "model", "bench"}
    assert set(found["bench"]) == {"threads", "sizes", "engines"}
    assert found["bench"]["sizes"] == {"N": 2}
    assert set(found["bench"]["engines"]) == {"rewrite"}


def test_free_sizes_are_likely_ones_with_which_all_engines_run(tmp_path: Path) -> None:
    """128 tokens are more than this model has positions for; a batch of 1 and 3 tokens is tried next."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[batch, tokens] x) => (float[batch, tokens] y)
        <float[8] positions = {0, 1, 2, 3, 4, 5, 6, 7}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}>
        { s = Shape (x) n = Slice (s, one, two) p = Slice (positions, zero, n) y = Add (x, p) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    done = rewrite("bench", "m.onnx", "--seconds", "0.2", "--json", "b.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "b.json").read_text())["bench"]
    assert found["sizes"] == {"batch": 1, "tokens": 3}
    assert set(found["engines"]) == {"rewrite", "onnxruntime"}
    assert "for batch = 1, tokens = 3; state others with --shape" in done.stdout


def test_a_profile_of_a_bundle_and_its_trace(folder: Path) -> None:
    assert rewrite("m.onnx", "--emit", "program", "--program", "p.rewrite", cwd=folder).returncode == 0
    options = ("--profile", "--seconds", "0.2", "--threads", "2", "--json", "p.json", "--trace", "t.json")
    done = rewrite("bench", "p.rewrite", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "p.json").read_text())
    assert set(found) == {"schema", "model", "profile"}
    agrees(found["profile"], described("`rewrite bench MODEL"))
    assert {"python: com.microsoft.Inverse"} <= {name for row in found["profile"]["kernels"] for name in row["kernels"]}
    assert "python: com.microsoft.Inverse" in done.stdout
    assert "GFLOP/s" in done.stdout
    trace = json.loads((folder / "t.json").read_text())
    assert {event["ph"] for event in trace["traceEvents"]} == {"M", "X"}


def test_what_cannot_be_measured_or_written_is_reported_at_once(folder: Path) -> None:
    assert rewrite("m.onnx", "--emit", "program", "--program", "q.rewrite", cwd=folder).returncode == 0
    for options, message in {
        ("--shape", "Q=3"): "error: the program has no free dimension 'Q'\nFree dimensions: N",
        ("--json", "nowhere/b.json"): "error: nowhere: no such directory",
        ("--seconds", "inf"): "Invalid value for '--seconds'",
    }.items():
        done = rewrite("bench", "q.rewrite", *options, cwd=folder)
        assert done.returncode == 2
        assert message in done.stderr
        assert done.stdout == ""


def test_a_bundle_is_not_compared_with_other_engines(folder: Path) -> None:
    (folder / "some.rewrite").mkdir(exist_ok=True)
    done = rewrite("bench", "some.rewrite", "--against", "onnxruntime", cwd=folder)
    assert done.returncode == 2
    assert "other engines cannot run a bundle" in done.stderr


def test_costs_name_the_sizes_that_they_assume(folder: Path, result: dict[str, Any]) -> None:
    assert result["likely_sizes"] == {}
    empty = {"XDG_CACHE_HOME": str(folder / "other")}  # a program from the cache has no prediction
    done = rewrite("m.onnx", "--no-verify", cwd=folder, env=empty)
    assert done.returncode == 0, done.stderr
    assert "predicted for N = 1; state others with --shape" in " ".join(done.stdout.split())
