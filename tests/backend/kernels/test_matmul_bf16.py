"""Products of operands rounded to bf16 against float64, on each instruction set of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.target import Target, describe, detect, runs_here
from rewrite.backend.kernels.gemm.matmul import pair_rows, to_bf16
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import DType, Graph, Node, TensorType

F32 = NDArray[np.float32]
RNG = np.random.default_rng(11)
ISAS = {
    "portable": ("portable", 16, ()),
    "avx2": ("avx2", 32, ()),
    "avx512": ("avx512", 64, ()),
    "avx512_bf16": ("avx512", 64, ("avx512_bf16",)),
    "amx": ("avx512", 64, ("avx512_bf16", "amx_bf16")),
}


@pytest.fixture(params=ISAS)
def machine(request: pytest.FixtureRequest) -> Target:
    """Target whose kernels this machine runs."""
    isa, width, features = ISAS[request.param]
    target = replace(detect(), isa=isa, vector_bytes=width, features=features)
    if not runs_here(target):
        pytest.skip(f"this CPU lacks {describe(target)}")
    return target


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
    ("rows", "k", "n"),
    [((1,), 64, 100), ((7,), 33, 47), ((2, 13), 96, 80), ((49,), 129, 16), ((30,), 9001, 50), ((70,), 2050, 33)],
)
def test_matmul(machine: Target, rows: Sequence[int], k: int, n: int) -> None:
    x, w = floats(*rows, k), floats(k, n) / np.float32(np.sqrt(k))
    feeds = {"x": halves(x)}
    graph = harness.make_graph(
        [Node("rewrite.MatMulBf16", ("x", "w"), ("y",))],
        feeds,
        constants={"w": w},
        types={"y": TensorType(DType.F32, (*rows, n))},
    )
    for threads in (1, 3):
        got = harness.run(graph, feeds, threads=threads, target=machine)["y"]
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
        feeds: dict[str, NDArray[Any]] = {"x": halves(x), "z": z}
        graph = harness.make_graph(
            nodes,
            feeds,
            constants={"w": w, "b": bias},
            symbolic_shapes={"x": ("N", 40), "z": ("N", 50)},
        )
        got = harness.run(graph, feeds, threads=2, target=machine)["y"]
        np.testing.assert_allclose(got, np.maximum(widened(x) @ widened(w) + bias + z, 0), rtol=1e-5, atol=2e-5)


def convolved(x: F32, w: F32, stride: int, pad: int, group: int, dilation: int = 1) -> NDArray[np.float64]:
    """Convolve rounded operands in float64."""
    x64 = np.pad(widened(x), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    w64 = np.zeros((*w.shape[:2], *(dilation * (n - 1) + 1 for n in w.shape[2:])))
    w64[:, :, ::dilation, ::dilation] = widened(w)
    m, k = w.shape[0], w64.shape[2]
    views = np.lib.stride_tricks.sliding_window_view(x64, (k, k), (2, 3))[:, :, ::stride, ::stride]
    share, each = x.shape[1] // group, m // group
    parts = [
        np.einsum("nchwij,mcij->nmhw", views[:, g * share : (g + 1) * share], w64[g * each : (g + 1) * each])
        for g in range(group)
    ]
    return np.concatenate(parts, 1)


class Convolution(NamedTuple):
    """Convolution of an input of shape `x` with `m` square filters, and the template of its kernel.

    `tiled` is the template where the target has AMX, if that is another one."""

    x: tuple[int, ...]
    m: int
    kernel: int
    stride: int
    pad: int
    group: int
    template: str
    tiled: str = ""
    dilation: int = 1

    @property
    def attrs(self) -> dict[str, Any]:
        lists = {"kernel_shape": (self.kernel,) * 2, "pads": (self.pad,) * 4, "strides": (self.stride,) * 2}
        return {"group": self.group, "dilations": (self.dilation,) * 2, **lists}

    def operands(self) -> tuple[F32, F32, F32, NDArray[np.float64]]:
        """Return an input, weights, a bias per filter, and the convolution without the bias."""
        share = self.x[1] // self.group
        x, w = floats(*self.x), floats(self.m, share, self.kernel, self.kernel)
        w /= np.float32(np.sqrt(share * self.kernel * self.kernel))
        return x, w, floats(self.m), convolved(x, w, self.stride, self.pad, self.group, self.dilation)

    def check_template(self, graph: Graph, machine: Target) -> None:
        """Fail unless the graph becomes one step, of the template."""
        items, _ = harness.lower(graph, target=machine)
        assert items is not None
        expected = self.tiled if self.tiled and "amx_bf16" in machine.features else self.template
        assert [item.kernel.template for item in items if isinstance(item, Step)] == [expected]


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
        monkeypatch.setattr("rewrite.backend.kernels.conv.conv.TURN", -1e3)
    else:
        monkeypatch.setattr("rewrite.backend.kernels.conv.conv.SMALL", 0)
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
    """Round f32 to bf16."""
    return to_bf16(x).view(DType.BF16.numpy)


def single(x: NDArray[np.generic]) -> F32:
    return (np.asarray(x).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def close(got: NDArray[np.generic], expected: NDArray[np.float64], half: bool) -> None:
    """Allow for f32 sums in another order, and in `half` for one more rounding to bf16, 2^-9 of a result."""
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
        Convolution((1, 20, 19, 21), 24, 1, 2, 0, 1, "conv_nhwc"),
        Convolution((2, 16, 30, 31), 18, 3, 2, 1, 1, "conv_nhwc", "conv_planes"),
        Convolution((1, 48, 12, 13), 64, 5, 1, 2, 2, "conv_nhwc", "conv_planes"),
        Convolution((1, 4, 20, 18), 33, 3, 1, 1, 1, "conv_nhwc", "conv_planes"),
        Convolution((1, 512, 9, 9), 50, 3, 1, 1, 1, "conv_nhwc", "conv_planes"),
        Convolution((2, 64, 1, 40), 40, 3, 1, 1, 1, "conv_nhwc", "conv_planes"),
        Convolution((1, 64, 33, 1), 40, 3, 1, 1, 1, "conv_nhwc", "conv_planes"),
        Convolution((1, 32, 20, 21), 40, 3, 1, 0, 1, "conv_nhwc", "conv_planes"),
        Convolution((1, 32, 20, 21), 40, 3, 1, 2, 1, "conv_nhwc", "conv_planes"),
        Convolution((1, 32, 21, 20), 40, 3, 1, 2, 1, "conv_nhwc", "conv_planes", 2),
        Convolution((1, 32, 21, 24), 40, 3, 2, 3, 1, "conv_nhwc", "conv_planes", 3),
        Convolution((1, 64, 24, 23), 40, 4, 3, 1, 2, "conv_nhwc", "conv_planes"),
        Convolution((1, 4, 24, 23), 64, 4, 3, 1, 1, "conv_nhwc", "conv_planes"),
        Convolution((2, 8, 40, 23), 64, 7, 2, 3, 1, "conv_nhwc", "conv_planes"),
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


@pytest.mark.parametrize(("stride", "pad"), [(1, 1), (1, 0), (1, 2), (2, 1)])
def test_conv_of_channels_last_and_sizes_of_run_time(machine: Target, stride: int, pad: int) -> None:
    """Images larger and smaller than the likely one, in each dim."""
    w = floats(24, 16, 3, 3) / np.float32(12)
    attrs = {"group": 1, "kernel_shape": (3, 3), "pads": (pad,) * 4, "strides": (stride,) * 2}
    nodes = [Node("rewrite.ChannelsLastConvBf16", ("x", "w"), ("c",), attrs)]
    for shape in ((2, 9, 8, 16), (1, 3, 700, 16), (1, 600, 3, 16), (1, 130, 90, 16), (0, 9, 8, 16)):
        x = floats(*shape)
        expected = np.moveaxis(convolved(np.moveaxis(x, -1, 1), w, stride, pad, 1), 1, -1)
        graph = harness.make_graph(
            nodes, {"x": halves(x)}, constants={"w": w}, symbolic_shapes={"x": ("N", "H", "W", 16)}
        )
        for threads in (1, 3):
            close(harness.run(graph, {"x": halves(x)}, threads=threads, target=machine)["c"], expected, False)


@pytest.mark.parametrize(("stride", "group"), [(1, 1), (2, 1), (1, 2)])
def test_conv_of_signals(machine: Target, stride: int, group: int) -> None:
    """A signal is an image of one line, whatever the target."""
    x, w = floats(2, 64, 1, 75), floats(48, 64 // group, 1, 3) / np.float32(14)
    attrs = {"group": group, "kernel_shape": (3,), "pads": (1, 1), "strides": (stride,)}
    views = np.lib.stride_tricks.sliding_window_view(np.pad(widened(x), ((0, 0), (0, 0), (0, 0), (1, 1))), 3, 3)
    parts = zip(np.split(views[:, :, 0, ::stride], group, 1), np.split(widened(w), group), strict=True)
    expected = np.concatenate([np.einsum("ncwk,mck->nwm", part, each[:, :, 0]) for part, each in parts], -1)
    feeds = {"x": halves(np.ascontiguousarray(x[:, :, 0].transpose(0, 2, 1)))}
    node = Node("rewrite.ChannelsLastConvBf16", ("x", "w"), ("y",), attrs)
    graph = harness.make_graph([node], feeds, constants={"w": w[:, :, 0]})
    for threads in (1, 3):
        close(harness.run(graph, feeds, threads=threads, target=machine)["y"], expected, False)


def test_an_image_wider_than_the_cache_is_convolved_in_parts(machine: Target) -> None:
    small = replace(machine, l2=16 << 10)
    for case in (
        Convolution((1, 32, 9, 301), 40, 3, 1, 1, 1, "conv_nhwc", "conv_planes"),
        Convolution((2, 32, 40, 50), 40, 3, 2, 1, 1, "conv_nhwc", "conv_planes"),
        Convolution((2, 8, 40, 501), 64, 5, 2, 2, 1, "conv_nhwc", "conv_planes"),
    ):
        x, w, bias, sums = case.operands()
        feeds = {"x": halves(np.ascontiguousarray(np.moveaxis(x, 1, -1)))}
        nodes = [Node("rewrite.ChannelsLastConvBf16", ("x", "w", "b"), ("y",), case.attrs)]
        graph = harness.make_graph(nodes, feeds, constants={"w": w, "b": bias})
        case.check_template(graph, small)
        for threads in (1, 3):
            got = harness.run(graph, feeds, threads=threads, target=small)["y"]
            close(got, np.moveaxis(sums, 1, -1) + bias, False)


@pytest.mark.parametrize(
    "case",
    [
        Convolution((1, 3, 40, 41), 64, 7, 2, 3, 1, "conv_planes"),
        Convolution((2, 3, 21, 40), 40, 3, 2, 1, 1, "conv_planes"),
        Convolution((1, 1, 20, 30), 64, 5, 3, 0, 1, "conv_planes"),
        Convolution((2, 15, 8, 8), 16, 3, 1, 1, 1, "conv_planes"),
        Convolution((1, 30, 8, 8), 64, 3, 1, 1, 2, "conv_planes"),
        Convolution((1, 45, 9, 9), 40, 1, 1, 0, 1, "conv_nhwc"),
    ],
)
def test_conv_of_an_odd_number_of_channels(machine: Target, case: Convolution) -> None:
    """Copied for tiles of AMX, which read whole words; refused on vectors, which would read them where they lie."""
    x, w, bias, sums = case.operands()
    feeds = {"x": halves(np.ascontiguousarray(np.moveaxis(x, 1, -1)))}
    graph = harness.make_graph(
        [Node("rewrite.ChannelsLastConvBf16", ("x", "w", "b"), ("y",), case.attrs)],
        feeds,
        constants={"w": w, "b": bias},
    )
    if "amx_bf16" not in machine.features:
        assert harness.lower(graph, target=machine)[0] is None
        return
    case.check_template(graph, machine)
    for threads in (1, 3):
        close(harness.run(graph, feeds, threads=threads, target=machine)["y"], np.moveaxis(sums, 1, -1) + bias, False)


@pytest.mark.parametrize(
    "case",
    [
        Convolution((1, 3, 40, 41), 64, 7, 2, 3, 1, "conv_planes"),
        Convolution((2, 3, 21, 40), 40, 3, 2, 1, 1, "conv_planes"),
        Convolution((1, 4, 19, 75), 33, 3, 1, 2, 1, "conv_planes"),
        Convolution((1, 2, 30, 17), 16, 5, 1, 0, 1, "conv_planes"),
        Convolution((1, 1, 20, 30), 64, 5, 3, 0, 1, "conv_planes"),
        Convolution((2, 3, 40, 501), 64, 5, 2, 2, 1, "conv_planes"),
    ],
)
def test_conv_of_images(machine: Target, case: Convolution) -> None:
    """Channels first and in f32: the kernel for AMX rounds and interleaves them; others have the parts of it."""
    x, w, bias, sums = case.operands()
    graph = harness.make_graph(
        [Node("rewrite.ImageConvBf16", ("x", "w", "b"), ("y",), case.attrs)], {"x": x}, constants={"w": w, "b": bias}
    )
    if "amx_bf16" not in machine.features:
        assert harness.lower(graph, target=machine)[0] is None
        return
    for target in (machine, replace(machine, l2=16 << 10)):
        case.check_template(graph, target)
        for threads in (1, 3):
            got = harness.run(graph, {"x": x}, threads=threads, target=target)["y"]
            close(got, np.moveaxis(sums, 1, -1) + bias, False)


def test_groups_of_rows_meet_all_panels(machine: Target) -> None:
    """Where rows and results outgrow the second-level cache; the last group is smaller, as is its last tile."""
    small = replace(machine, l2=64 << 10)
    x, w, z = floats(301, 64), floats(64, 100), floats(301, 100)
    nodes = [Node("rewrite.MatMulBf16", ("x", "w"), ("p",)), Node("Add", ("p", "z"), ("y",))]
    feeds: dict[str, NDArray[Any]] = {"x": halves(x), "z": z}
    for rows in (301, "N"):
        names = {"x": (rows, 64), "z": (rows, 100)}
        graph = harness.make_graph(nodes, feeds, constants={"w": w}, symbolic_shapes=names)
        items, _ = harness.lower(graph, target=small)
        (step,) = [item for item in items or () if isinstance(item, Step)]
        assert ("group" in step.kernel.params) == ("amx_bf16" in machine.features)
        for threads in (1, 3):
            got = harness.run(graph, feeds, threads=threads, target=small)["y"]
            np.testing.assert_allclose(got, widened(x) @ widened(w) + z, rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize("pool", ["Max", "Average"])
def test_pools_of_rounded_images(machine: Target, pool: str) -> None:
    x = floats(2, 9, 11, 40)
    attrs = {"kernel_shape": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 1)}
    feeds = {"x": halves(x)}
    node = Node(f"rewrite.ChannelsLast{pool}Pool", ("x",), ("y",), attrs)
    got = harness.run(harness.make_graph([node], feeds), feeds, target=machine)["y"]
    wide = {"x": widened(x).astype(np.float32)}
    expected = harness.run(harness.make_graph([node], wide), wide, target=machine)["y"]
    np.testing.assert_array_equal(np.asarray(got).view(np.uint16), to_bf16(expected))


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


def attended(
    q: F32, k: F32, v: F32, mask: NDArray[Any] | None, scale: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return attention of rounded operands in float64, and the mean magnitude of the values with the same weights."""
    share = q.shape[1] // k.shape[1]
    keys, values = (np.repeat(widened(x), share, 1) for x in (k, v))
    scores = widened(q) @ keys.swapaxes(-1, -2) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return weights @ values, weights @ np.abs(values)


class Attention(NamedTuple):
    """Attention problem: heads, lengths and sizes of queries and of keys."""

    heads: tuple[int, int]
    lengths: tuple[int, int]
    sizes: tuple[int, int]
    mask: str = ""
    attrs: Mapping[str, Any] = {}
    symbolic: bool = False

    def operands(self) -> dict[str, NDArray[Any]]:
        (h, g), (s, t), (d, e) = self.heads, self.lengths, self.sizes
        feeds: dict[str, NDArray[Any]] = {"q": floats(2, h, s, d), "k": floats(2, g, t, d), "v": floats(2, g, t, e)}
        if self.mask == "added":
            feeds["m"] = floats(2, 1, s, t)
        elif self.mask:
            feeds["m"] = RNG.random((s, t)) > 0.4
            feeds["m"][:, 0] = True
        return feeds

    def graph(self, feeds: Mapping[str, NDArray[Any]]) -> Graph:
        node = Node("rewrite.AttentionBf16", tuple(feeds), ("y",), {"scale": 0.25, **self.attrs})
        if not self.symbolic:
            return harness.make_graph([node], feeds)
        names = {name: (2, x.shape[1], "S" if name == "q" else "T", x.shape[3]) for name, x in feeds.items()}
        return harness.make_graph([node], feeds, symbolic_shapes=names)

    def check(self, machine: Target) -> None:
        """Fail if an error exceeds 2^-8 of the mean magnitude, the bound for rounded weights."""
        feeds = self.operands()
        expected, magnitudes = attended(feeds["q"], feeds["k"], feeds["v"], feeds.get("m"), 0.25)
        if self.attrs.get("rows"):
            expected, magnitudes = expected.swapaxes(1, 2), magnitudes.swapaxes(1, 2)
        for threads in (1, 3):
            got = harness.run(self.graph(feeds), feeds, threads=threads, target=machine)["y"]
            assert got.shape == expected.shape
            assert (np.abs(got - expected) <= 2.0**-8 * magnitudes + 3e-5).all()


ATTENTION = [
    *(Attention((3, 3), lengths, (64, 64)) for lengths in ((3, 1), (3, 5), (5, 64), (33, 65), (70, 131))),
    *(Attention((2, 2), (17, 19), sizes) for sizes in ((8, 8), (32, 80), (5, 7), (100, 33), (1, 1))),
    Attention((6, 2), (20, 31), (16, 24), "added", {"rows": 1}),
    Attention((2, 2), (49, 49), (32, 32), "seen", {"nan_to_zero": 1}),
    Attention((2, 2), (7, 300), (16, 16), symbolic=True),
    Attention((2, 2), (50, 333), (33, 17), "added"),
]


@pytest.mark.parametrize("case", ATTENTION)
def test_attention(machine: Target, case: Attention) -> None:
    case.check(machine)


@pytest.mark.parametrize("case", [case for case in ATTENTION if case.lengths[1] > 64])
def test_attention_in_spans_of_keys(machine: Target, case: Attention, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewrite.backend.kernels.gemm.attention.keys_per_span", lambda target, wide: wide)
    case.check(machine)


def test_attention_rounds_its_operands(machine: Target) -> None:
    """Closer to attention of rounded operands than of unrounded ones; f32 for few queries."""
    for queries in (2, 40):
        case = Attention((2, 2), (queries, 90), (64, 64))
        feeds = case.operands()
        got = harness.run(case.graph(feeds), feeds, target=machine)["y"]
        rounded = attended(feeds["q"], feeds["k"], feeds["v"], None, 0.25)[0]
        exact = {name: x.astype(np.float64) for name, x in feeds.items()}
        weights = np.exp(exact["q"] @ exact["k"].swapaxes(-1, -2) * 0.25)
        plain = weights @ exact["v"] / weights.sum(-1, keepdims=True)
        if queries == 2:
            np.testing.assert_allclose(got, plain, rtol=2e-5, atol=2e-5)
        else:
            assert np.abs(got - rounded).mean() < np.abs(got - plain).mean()


def test_attention_with_nan(machine: Target) -> None:
    """NaN affects its row only, and a row that sees nothing is NaN, unless NaN weights count as zeros."""
    case = Attention((1, 1), (9, 37), (16, 16), "seen")
    feeds = case.operands()
    feeds["q"][0, 0, 5, 3] = np.nan
    feeds["m"][3] = False
    bad = np.zeros((2, 1, 9), bool)
    bad[0, 0, 5] = bad[:, 0, 3] = True
    got = harness.run(case.graph(feeds), feeds, target=machine)["y"]
    np.testing.assert_array_equal(np.isnan(got), np.broadcast_to(bad[..., None], got.shape))
    guarded = case._replace(attrs={"nan_to_zero": 1})
    zeros = harness.run(guarded.graph(feeds), feeds, target=machine)["y"]
    np.testing.assert_array_equal(zeros, np.where(bad[..., None], 0, got))


def test_conversions(machine: Target) -> None:
    """Conversions from and to bf16 with surrounding arithmetic, bit for bit: denormals, infinities, NaN, ties."""
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
        inputs: dict[str, NDArray[Any]] = {"x": halves(x)} if constant else {"x": halves(x), "w": w}
        graph = harness.make_graph(
            [Node("rewrite.MatMulBf16", ("x", "w"), ("y",))], inputs, constants={"w": w} if constant else {}
        )
        return harness.lower(graph)[0] is None

    assert not refused(floats(2, 8), floats(8, 16), True)
    assert refused(floats(2, 8), floats(8, 16), False)
    assert refused(floats(3, 2, 8), floats(3, 8, 16), True)
