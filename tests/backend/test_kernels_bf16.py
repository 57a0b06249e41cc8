"""Products of operands rounded to bf16, on each instruction set this machine has, against float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from rewrite.backend import harness
from rewrite.backend.kernel_graph import Step, Target
from rewrite.backend.kernels.matmul_bf16 import pair_rows, to_bf16
from rewrite.backend.target import detect
from rewrite.engine.graph import DType, Graph, Node, TensorType

F32 = NDArray[np.float32]
RNG = np.random.default_rng(11)
ISAS = {
    "portable": ("portable", 16, ()),
    "avx2": ("avx2", 32, ()),
    "avx512": ("avx512", 64, ()),
    "avx512_bf16": ("avx512", 64, ("avx512_bf16",)),
}


def _machines() -> list[str]:
    here = detect()
    if here.machine != "x86_64":
        return ["portable"]
    names = ["portable", "avx2", "avx512"][: {"avx512": 3, "avx2": 2}.get(here.isa, 1)]
    return [*names, *(["avx512_bf16"] if "avx512_bf16" in here.features else [])]


@pytest.fixture(params=_machines())
def machine(request: pytest.FixtureRequest) -> Target:
    """A target that this machine runs kernels of."""
    isa, width, features = ISAS[request.param]
    return replace(detect(), isa=isa, vector_bytes=width, features=features)


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


def convolved(x: F32, w: F32, stride: int, pad: int, group: int) -> NDArray[np.float64]:
    """The convolution of rounded operands in float64."""
    x64 = np.pad(widened(x), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    w64 = widened(w)
    m, k = w.shape[0], w.shape[2]
    views = np.lib.stride_tricks.sliding_window_view(x64, (k, k), (2, 3))[:, :, ::stride, ::stride]
    share, each = x.shape[1] // group, m // group
    parts = [
        np.einsum("nchwij,mcij->nmhw", views[:, g * share : (g + 1) * share], w64[g * each : (g + 1) * each])
        for g in range(group)
    ]
    return np.concatenate(parts, 1)


class Convolution(NamedTuple):
    """A convolution of an input of shape `x` with `m` square filters, and the template of its kernel."""

    x: tuple[int, ...]
    m: int
    kernel: int
    stride: int
    pad: int
    group: int
    template: str

    @property
    def attrs(self) -> dict[str, Any]:
        lists = {"kernel_shape": (self.kernel,) * 2, "pads": (self.pad,) * 4, "strides": (self.stride,) * 2}
        return {"group": self.group, **lists}

    def operands(self) -> tuple[F32, F32, F32, NDArray[np.float64]]:
        """An input, weights, a bias for each filter, and the convolution without that."""
        share = self.x[1] // self.group
        x, w = floats(*self.x), floats(self.m, share, self.kernel, self.kernel)
        w /= np.float32(np.sqrt(share * self.kernel * self.kernel))
        return x, w, floats(self.m), convolved(x, w, self.stride, self.pad, self.group)

    def check_template(self, graph: Graph, machine: Target) -> None:
        """Fails unless the graph becomes one step, of the template."""
        items, _ = harness.lower(graph, target=machine)
        assert items is not None
        assert [item.kernel.template for item in items if isinstance(item, Step)] == [self.template]


@pytest.mark.parametrize(
    "case",
    [
        Convolution((1, 33, 9, 11), 20, 1, 1, 0, 1, "conv"),
        Convolution((2, 16, 30, 31), 18, 3, 2, 1, 1, "conv"),
        Convolution((1, 16, 20, 21), 24, 1, 2, 0, 1, "conv"),
        Convolution((1, 48, 20, 20), 64, 5, 1, 2, 2, "conv"),
        Convolution((1, 600, 20, 20), 30, 3, 2, 1, 1, "conv"),
        Convolution((2, 64, 7, 7), 512, 1, 1, 0, 1, "conv_small"),
        Convolution((1, 250, 7, 7), 256, 3, 2, 1, 1, "conv_small"),
    ],
)
def test_conv(machine: Target, case: Convolution, monkeypatch: pytest.MonkeyPatch) -> None:
    if case.template == "conv_small":  # whatever the model of their times says
        monkeypatch.setattr("rewrite.backend.kernels.conv.TURN", -1e3)
    else:
        monkeypatch.setattr("rewrite.backend.kernels.conv.SMALL", 0)
    x, w, bias, sums = case.operands()
    expected = np.maximum(sums + bias.reshape(-1, 1, 1), 0)
    graph = harness.make_graph(
        [Node("rewrite.ConvBf16", ("x", "w", "b"), ("c",), case.attrs), Node("Relu", ("c",), ("y",))],
        {"x": x},
        constants={"w": w, "b": bias},
        types={v: TensorType(DType.F32, expected.shape) for v in "cy"},
    )
    case.check_template(graph, machine)
    for threads in (1, 3):
        got = harness.run(graph, {"x": x}, threads=threads, target=machine)["y"]
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=3e-5)


def halves(x: F32) -> NDArray[np.generic]:
    """f32 rounded to bf16, as such."""
    return to_bf16(x).view(DType.BF16.numpy)


def single(x: NDArray[np.generic]) -> F32:
    return (np.asarray(x).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def close(got: NDArray[np.generic], expected: NDArray[np.float64], half: bool) -> None:
    """Sums of f32 in another order, and in `half` one rounding to bf16 on top, 2^-9 of a result."""
    if half:
        np.testing.assert_allclose(single(got), expected, rtol=2.0**-8, atol=1e-4)
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    "case",
    [
        Convolution((2, 34, 9, 11), 20, 1, 1, 0, 1, "gemm"),
        Convolution((1, 64, 7, 7), 100, 1, 1, 0, 1, "gemm"),
        Convolution((1, 20, 19, 21), 24, 1, 2, 0, 1, "conv_last"),
        Convolution((2, 16, 30, 31), 18, 3, 2, 1, 1, "conv_last"),
        Convolution((1, 48, 12, 13), 64, 5, 1, 2, 2, "conv_last"),
        Convolution((1, 4, 20, 18), 33, 3, 1, 1, 1, "conv_last"),
        Convolution((1, 512, 9, 9), 50, 3, 1, 1, 1, "conv_last"),
    ],
)
def test_conv_of_channels_last(machine: Target, case: Convolution, half: bool) -> None:
    x, w, bias, convolution = case.operands()
    sums = np.moveaxis(convolution, 1, -1) + bias
    z = floats(*sums.shape)
    expected = np.maximum(sums + widened(z), 0)
    nodes = [
        Node("rewrite.ChannelsLastConvBf16", ("x", "w", "b", "z"), ("c",), case.attrs),
        Node("Relu", ("c",), ("y",)),
    ]
    if half:
        nodes.append(Node("Cast", ("y",), ("h",), {"to": DType.BF16.onnx}))
    feeds = {"x": halves(np.ascontiguousarray(np.moveaxis(x, 1, -1))), "z": halves(z)}
    graph = harness.make_graph(nodes, feeds, constants={"w": w, "b": bias})
    case.check_template(graph, machine)
    for threads in (1, 3):
        close(harness.run(graph, feeds, threads=threads, target=machine)["h" if half else "y"], expected, half)


def test_conv_of_channels_last_and_sizes_of_run_time(machine: Target) -> None:
    x, w = floats(2, 9, 8, 16), floats(24, 16, 3, 3) / np.float32(12)
    expected = np.moveaxis(convolved(np.moveaxis(x, -1, 1), w, 1, 1, 1), 1, -1)
    attrs = {"group": 1, "kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "strides": (1, 1)}
    nodes = [Node("rewrite.ChannelsLastConvBf16", ("x", "w"), ("c",), attrs)]
    graph = harness.make_graph(nodes, {"x": halves(x)}, constants={"w": w}, symbolic_shapes={"x": ("N", "H", "W", 16)})
    close(harness.run(graph, {"x": halves(x)}, target=machine)["c"], expected, False)


def test_conv_of_an_odd_number_of_channels_is_refused() -> None:
    graph = harness.make_graph(
        [Node("rewrite.ChannelsLastConvBf16", ("x", "w"), ("y",), {"kernel_shape": (3, 3)})],
        {"x": halves(floats(1, 8, 8, 15))},
        constants={"w": floats(16, 15, 3, 3)},
    )
    assert harness.lower(graph)[0] is None


@pytest.mark.parametrize("op", ["rewrite.ChannelsLastConv", "MatMul", "rewrite.ChannelsLastMaxPool", "depthwise"])
def test_products_in_f32_are_rounded_as_they_are_stored(machine: Target, op: str) -> None:
    x = floats(1, 15, 14, 36)
    w = {"MatMul": floats(36, 50), "depthwise": floats(36, 1, 3, 3)}.get(op, floats(50, 36, 3, 3)) / np.float32(18)
    attrs = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "strides": (1, 1)} if op != "MatMul" else {}
    if op == "depthwise":
        op, attrs = "rewrite.ChannelsLastConv", {**attrs, "group": 36}
    pool = "Pool" in op
    nodes = [
        Node(op, ("x",) if pool else ("x", "w"), ("c",), attrs),
        Node("Relu", ("c",), ("y",)),
        Node("Cast", ("y",), ("h",), {"to": DType.BF16.onnx}),
    ]

    def graph(count: int) -> Graph:
        return harness.make_graph(nodes[:count], {"x": x}, constants={} if pool else {"w": w})

    plain = harness.run(graph(2), {"x": x}, target=machine)["y"]
    got = harness.run(graph(3), {"x": x}, target=machine)["h"]
    np.testing.assert_array_equal(single(got), widened(plain).astype(np.float32))


def test_conversions(machine: Target) -> None:
    """From and to bf16 with what is computed around, bit for bit: denormals, infinities and NaN, halves on the way."""
    bits = np.array([0x00000001, 0x00018000, 0x007FFFFF, 0x80000000, 0x7F7FFFFF, 0xFF800000, 0x7F800001], np.uint32)
    x = np.concatenate([floats(999), bits.view(np.float32)])
    to = {"to": DType.BF16.onnx}
    back = {"to": DType.F32.onnx}
    graph = harness.make_graph([Node("Cast", ("x",), ("y",), to)], {"x": x})
    got = harness.run(graph, {"x": x}, target=machine)["y"]
    np.testing.assert_array_equal(np.asarray(got).view(np.uint16), to_bf16(x))
    graph = harness.make_graph([Node("Cast", ("x",), ("h",), to), Node("Cast", ("h",), ("y",), back)], {"x": x})
    got = harness.run(graph, {"x": x}, target=machine)["y"]
    np.testing.assert_array_equal(np.asarray(got), widened(x).astype(np.float32))
    h, s = halves(floats(5, 33)), halves(floats(33))
    nodes = [
        Node("Cast", ("h",), ("a",), back),
        Node("Cast", ("s",), ("b",), back),
        Node("Mul", ("a", "b"), ("c",)),
        Node("Cast", ("c",), ("y",), to),
    ]
    feeds = {"h": h, "s": s}
    got = harness.run(harness.make_graph(nodes, feeds), feeds, target=machine)["y"]
    np.testing.assert_array_equal(np.asarray(got).view(np.uint16), to_bf16(single(h) * single(s)))


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
