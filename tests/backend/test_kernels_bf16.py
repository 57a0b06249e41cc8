"""Products of operands rounded to bf16, on each instruction set this machine has, against float64."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from rewrite.backend import build as building
from rewrite.backend import harness
from rewrite.backend.kernel_graph import Target
from rewrite.backend.kernels.matmul_bf16 import pair_rows, to_bf16
from rewrite.backend.target import Compiler, detect, find_compiler
from rewrite.engine.graph import DType, Node, TensorType

F32 = NDArray[np.float32]
RNG = np.random.default_rng(11)
FLAGS = {
    "avx512_bf16": (64, ["-march=native"]),
    "avx512": (64, ["-march=native", "-mno-avx512bf16"]),
    "avx2": (32, ["-mavx2", "-mfma"]),
    "portable": (16, ["-msse2"]),
}


def _machines() -> list[str]:
    if platform.machine() != "x86_64":
        return ["portable"]
    here = {"avx512": 3, "avx2": 2}.get(detect().isa, 1)
    names = ["portable", "avx2", "avx512"][:here]
    from rewrite.engine.machine import rates

    return [*names, "avx512_bf16"] if rates()["bf16"] > 1 else names


@pytest.fixture(params=_machines())
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target, with kernels compiled for it."""
    if platform.machine() != "x86_64":
        return detect()
    width, flags = FLAGS[request.param]
    usual = find_compiler()
    plain = tuple(flag for flag in usual.flags if not flag.startswith("-m"))
    compiler = Compiler(usual.command, usual.version, (*plain, *flags, "-Wno-psabi"))
    monkeypatch.setattr(building, "find_compiler", lambda: compiler)
    return replace(detect(), isa=request.param.removesuffix("_bf16"), vector_bytes=width)


def widened(x: F32) -> NDArray[np.float64]:
    return (to_bf16(x).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def floats(*shape: int) -> F32:
    return RNG.standard_normal(shape).astype(np.float32)


def test_rounding_is_to_nearest_and_ties_to_even() -> None:
    bits = [0x3F800000, 0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F7FFFFF, 0xFF800000, 0x7F800001, 0x80000000]
    got = to_bf16(np.array(bits, np.uint32).view(np.float32))
    assert [hex(v) for v in got[:7]] == ["0x3f80", "0x3f80", "0x3f82", "0x3f81", "0x3f80", "0x7f80", "0xff80"]
    assert np.isnan((got[7:8].astype(np.uint32) << 16).view(np.float32))[0]
    assert got[8] == 0x8000
    assert pair_rows(np.array([[1.0], [2.0], [3.0]], np.float32)).tolist() == [[0x40003F80], [0x00004040]]


@pytest.mark.parametrize(
    ("rows", "k", "n"), [((1,), 64, 100), ((7,), 33, 47), ((2, 13), 96, 80), ((49,), 129, 16), ((30,), 9001, 50)]
)
def test_matmul(machine: Target, rows: Sequence[int], k: int, n: int) -> None:
    x, w = floats(*rows, k), floats(k, n) / np.float32(np.sqrt(k))
    graph = harness.make_graph(
        [Node("rewrite.MatMulBf16", ("x", "w"), ("y",))],
        {"x": x},
        constants={"w": w},
        types={"y": TensorType(DType.F32, (*rows, n))},
    )
    for threads in (1, 3):
        got = harness.run(graph, {"x": x}, threads=threads, target=machine)["y"]
        np.testing.assert_allclose(got, widened(x) @ widened(w), rtol=1e-5, atol=2e-5)


def test_matmul_with_epilogue_and_rows_of_run_time(machine: Target) -> None:
    w, bias = floats(40, 50), floats(50)
    nodes = [
        Node("rewrite.MatMulBf16", ("x", "w"), ("p",)),
        Node("Add", ("p", "b"), ("q",)),
        Node("Add", ("q", "z"), ("s",)),
        Node("Relu", ("s",), ("y",)),
    ]
    for rows in (1, 9, 33):
        x, z = floats(rows, 40), floats(rows, 50)
        graph = harness.make_graph(
            nodes,
            {"x": x, "z": z},
            constants={"w": w, "b": bias},
            symbolic_shapes={"x": ("N", 40), "z": ("N", 50)},
        )
        got = harness.run(graph, {"x": x, "z": z}, threads=2, target=machine)["y"]
        np.testing.assert_allclose(got, np.maximum(widened(x) @ widened(w) + bias + z, 0), rtol=1e-5, atol=2e-5)


def test_products_that_it_does_not_take() -> None:
    def refused(x: F32, w: F32, constant: bool) -> bool:
        inputs = {"x": x} if constant else {"x": x, "w": w}
        graph = harness.make_graph(
            [Node("rewrite.MatMulBf16", ("x", "w"), ("y",))], inputs, constants={"w": w} if constant else {}
        )
        return harness.lower(graph)[0] is None

    assert not refused(floats(2, 8), floats(8, 16), True)
    assert refused(floats(2, 8), floats(8, 16), False)
    assert refused(floats(3, 2, 8), floats(3, 8, 16), True)
