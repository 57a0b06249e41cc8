"""Numbers of a manifest that contradict each other: refused with one message, before a kernel gets them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
import rewrite
from onnx import numpy_helper
from rewrite.backend.bundle import load_bundle
from rewrite.backend.bundle.footprints import _SIZES, footprints
from rewrite.backend.bundle.manifest import sealed
from rewrite.backend.codegen.pointwise_emit import BYTES, STORED
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.ir.kernel import Kernel
from rewrite.backend.ir.target import detect
from rewrite.errors import UserError

TEXT = """<ir_version: 10, opset_import: ["": 21]>
g (float[N, 8] x) => (float y, float t, float u)
{ h = MatMul(x, w) a = Add(h, b) r = Relu(a) y = Softmax(r) t = Transpose(y) u = Mul(x, x) }
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = onnx.parser.parse_model(TEXT)
    rng = np.random.default_rng(0)
    for name, shape in {"w": (8, 4), "b": (4,)}.items():
        model.graph.initializer.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
    for output in model.graph.output:
        output.ClearField("type")
    # With 16 lanes the product has 8 terms as a constant, not among its sizes.
    target = "avx2" if detect().lanes > 8 else "native"
    return rewrite.compile(model, threads=1, target=target).save(tmp_path_factory.mktemp("bundles") / "m.rewrite")


def use(saved: Path, folder: Path, changes: dict[Sequence[Any], Any]) -> None:
    """Change a copy of the bundle, load it and run it. A path begins at the plan; "step:T" is a step."""
    copy = Path(shutil.copytree(saved, folder / "m.rewrite"))
    manifest = json.loads((copy / "manifest.json").read_text())
    for path, new in changes.items():
        place: Any = manifest["variants"][0]["plan"]
        for key in path[:-1]:
            if isinstance(key, str) and key.startswith("step:"):
                place = next(i for i in place["items"] if i.get("step", "").startswith(key.removeprefix("step:")))
            else:
                place = place[key]
        place[path[-1]] = new
    (copy / "manifest.json").write_bytes(sealed(manifest))
    load_bundle.load(copy).run({"x": np.ones((5, 8), np.float32)})


def test_what_was_saved_runs(saved: Path, tmp_path: Path) -> None:
    use(saved, tmp_path, {})


@pytest.mark.parametrize(
    ("path", "new", "problem"),
    [
        (("step:gemm", "dims", 1), 2**31, "kernel gemm would use bytes"),
        (("step:gemm", "dims", 2), 64, "kernel gemm would use bytes"),
        (("step:gemm", "dims", 3), 5, "kernel gemm would use bytes"),
        (("step:gemm", "dims", 4), -1, "kernel gemm would use bytes -"),
        (("step:gemm", "dims", 1), -8, "an extent is negative"),
        (("step:gemm", "dims", 1), 2**63, "gets the size"),
        (("step:gemm", "dims", 1), "2**100*N", "not a dimension"),
        (("step:gemm", "dims", 1), "N*4294967296*4294967296", "gets the size"),
        (("step:gemm", "dims", 1), "8//(N-5)", "manifest is wrong"),
        (("step:gemm", "scratch"), 2**48, "bytes of scratch memory"),
        (("step:gemm", "scratch"), -64, "bytes of scratch memory"),
        (("step:normalize_rows", "dims", 0), "N+1", "kernel normalize_rows would use bytes"),
        (("step:elementwise", "dims", 0), "9*N", "kernel elementwise would use bytes"),
        (("step:copy", "dims", 0), "N+1", "kernel copy would use bytes"),
        (("step:elementwise", "in_place"), [[7, 0]], "no buffers 7 and 0 to share"),
        (("types", "y", "shape"), ["N", 3], "would use bytes"),
        (("types", "y", "shape"), ["N-6", 4], "'y' is "),
        (("step:gemm", "dims", 1), "(" * 5000 + "8", "manifest is wrong"),
    ],
)
def test_numbers_that_contradict_each_other(
    saved: Path, tmp_path: Path, path: Sequence[Any], new: Any, problem: str
) -> None:
    with pytest.raises(UserError, match="the bundle is damaged: its manifest is wrong") as caught:
        use(saved, tmp_path, {path: new})
    assert problem in str(caught.value)


def test_a_constant_of_another_size(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the constant 'packed' is"):
        use(saved, tmp_path, {("types", "packed", "shape"): [4096]})


@pytest.mark.parametrize("threads", [0, -1, 2**31, "many"])
def test_threads(saved: Path, tmp_path: Path, threads: Any) -> None:
    copy = Path(shutil.copytree(saved, tmp_path / "m.rewrite"))
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_bytes(sealed({**manifest, "threads": threads}))
    with pytest.raises(UserError, match="threads"):
        load_bundle.load(copy)


def test_programs_of_the_cache_are_not_checked_twice(saved: Path) -> None:
    """They are this user's own, and the first run of a service should not wait."""
    assert load_bundle.load(saved)._link._check is not None
    assert load_bundle.load(saved, cached=True)._link._check is None


def operand(*strides: str, offset: str = "0", c: str = "float") -> dict[str, Any]:
    return {"name": "x", "c": c, "strides": list(strides), "inner": strides[-1], "offset": offset}


def test_sizes_of_all_elements() -> None:
    assert {*STORED.values(), *BYTES.values()} <= _SIZES.keys()


def test_functions_of_bytes_run_when_saved(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 21]> g (uint8[N, 40] x, float[N, 40] z) => (float[N, 40] y)
        <float s = {0.1}, uint8 o = {7}> { d = DequantizeLinear(x, s, o) e = Erf(d) y = Add(e, z) }"""
    program = compile_graph(rewrite.optimize(onnx.parser.parse_model(text)).native, threads=1)
    feeds = {"x": np.arange(120, dtype=np.uint8).reshape(3, 40), "z": np.ones((3, 40), np.float32)}
    found = load_bundle.load(program.save(tmp_path / "bytes.rewrite")).run(feeds)["y"]
    np.testing.assert_array_equal(found, program.run(feeds)["y"])


def test_footprints_of_strided_operands() -> None:
    params = {
        "extents": ["dims[0]", "4"],
        "reads": [operand("dims[1]", "1"), operand("0", "-1", offset="INT64_C(3)")],
        "writes": [operand("4 * (int64_t)(n0)", "1", c="int64_t")],
    }
    assert footprints(Kernel("elementwise", params), [3, 10]) == [(0, 0, 96), (1, 0, 16), (2, 0, 8 * 28)]
    assert footprints(Kernel("elementwise", params), [0, 10]) == []
    with pytest.raises(ValueError, match="negative"):
        footprints(Kernel("elementwise", params), [-1, 10])
    with pytest.raises(ValueError, match="not an extent"):
        footprints(Kernel("elementwise", {**params, "extents": ["__import__('os')"]}), [3, 10])


def test_unknown_kernels_have_no_footprint() -> None:
    assert footprints(Kernel("svm", {}), []) is None
