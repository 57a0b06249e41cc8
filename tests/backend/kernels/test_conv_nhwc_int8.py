"""NHWC int8 convolutions and pooling against ONNX Runtime's NCHW results, on each instruction set.

Sums, and results of one scale, must have the same bits. Where scales were folded, results near ties may differ by one,
in at most one of a thousand elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.target import Target
from rewrite.backend.toolchain.builder import build
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import DType, Node, TensorType
from rewrite.system.store import Store

from .oracle import Case, oracle
from .test_gemm_int8 import RNG, i8, machine, max_pools, number, u8

__all__ = ["machine"]

Array = NDArray[Any]
NAMES = {op: f"rewrite.ChannelsLast{op}" for op in ("ConvInteger", "QLinearConv", "MaxPool")}


def turned(array: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(array, -3 if array.ndim < 4 else 1, -1)) if array.ndim > 2 else array


class Last:
    """Groups in NCHW that are run in NHWC; all kernels are built at once."""

    def __init__(self, machine: Target) -> None:
        self.machine = machine
        self.cases: list[tuple[Case, Mapping[str, Array], float]] = []

    def add(
        self, nodes: Sequence[Node], inputs: Mapping[str, Array], constants: Mapping[str, Array], share: float = 0.0
    ) -> None:
        """At most this share of the results may be off by one."""
        expected = {name: turned(array) for name, array in oracle(Case(nodes, inputs, constants)).items()}
        renamed = [replace(node, op=NAMES.get(node.op, node.op)) for node in nodes]
        feeds = {name: turned(array) for name, array in inputs.items()}
        weights = {name: array if name == "w" else turned(array) for name, array in constants.items()}
        self.cases.append((Case(renamed, feeds, weights, expected=expected), expected, share))

    def check(self) -> list[str]:
        """Return the templates of the kernels used."""
        graphs, kernels, others = [], [], []
        for case, expected, _ in self.cases:
            types = {k: TensorType(DType.from_numpy(v.dtype), v.shape) for k, v in expected.items()}
            graphs.append(harness.make_graph(case.nodes, case.inputs, constants=case.constants, types=types))
            for threads, found in ((1, kernels), (3, others)):  # the choice of kernels depends on their number
                items, _ = harness.lower(graphs[-1], threads=threads, target=self.machine)
                assert items is not None, case.nodes
                found += [item.kernel for item in items if isinstance(item, Step)]
        build(list(dict.fromkeys((*kernels, *others))), self.machine, Store())
        for graph, (case, expected, share) in zip(graphs, self.cases, strict=True):
            for threads in (1, 3):
                got = harness.run(graph, case.inputs, threads=threads, target=self.machine)
                for name, array in got.items():
                    assert array.dtype == expected[name].dtype
                    what = f"{case.nodes}, {[a.shape for a in case.inputs.values()]}, {threads} threads"
                    if array.dtype == np.float32:
                        np.testing.assert_allclose(array, expected[name], rtol=2e-5, atol=1e-4, err_msg=what)
                        continue
                    gap = np.abs(array.astype(np.int64) - expected[name].astype(np.int64))
                    assert gap.max(initial=0) <= (share > 0), what
                    assert (gap > 0).sum() <= max(1, share * gap.size) * (share > 0), what
        return [kernel.template for kernel in kernels]


@pytest.fixture
def last(machine: Target) -> Last:
    return Last(machine)


CONVOLUTIONS: Sequence[tuple[tuple[int, ...], int, int, int, int, int, int]] = [
    ((1, 33, 9, 11), 20, 1, 1, 0, 1, 1),
    ((2, 16, 14, 14), 70, 3, 1, 1, 1, 1),
    ((1, 17, 20, 21), 40, 3, 2, 1, 1, 1),
    ((1, 48, 12, 12), 64, 5, 1, 2, 2, 1),
    ((1, 3, 30, 30), 32, 7, 2, 3, 1, 1),
    ((2, 1, 9, 8), 5, 3, 1, 0, 1, 1),
    ((1, 66, 7, 7), 256, 3, 1, 1, 1, 1),
    ((1, 20, 11, 9), 130, 1, 2, 0, 1, 1),
    ((1, 8, 13, 13), 12, 3, 1, 2, 2, 2),
    ((1, 64, 15, 18), 40, 3, 2, 1, 1, 1),
    ((2, 32, 20, 9), 40, 3, 1, 2, 1, 2),
    # enough work for several threads
    ((1, 64, 40, 40), 24, 1, 1, 0, 1, 1),
    ((1, 32, 37, 41), 20, 3, 1, 1, 1, 1),
    ((1, 3, 90, 90), 18, 5, 2, 2, 1, 1),
    ((1, 64, 33, 30), 48, 3, 1, 1, 2, 1),
]
DEPTHWISE: Sequence[tuple[tuple[int, ...], int, int, int, int, int, int]] = [
    ((1, 24, 9, 9), 24, 3, 1, 1, 24, 1),
    ((2, 70, 8, 11), 70, 3, 2, 1, 70, 1),
    ((1, 129, 7, 7), 129, 5, 1, 2, 129, 1),
    ((1, 64, 10, 12), 64, 3, 1, 2, 64, 2),
    ((1, 5, 16, 15), 5, 7, 2, 3, 5, 1),
    ((1, 96, 1, 1), 96, 3, 1, 1, 96, 1),
    ((1, 16, 12, 9), 16, 9, 1, 4, 16, 1),
]


def attributes(kernel: int, stride: int, pad: int, group: int, dilation: int) -> dict[str, Any]:
    return {
        "group": group,
        "kernel_shape": (kernel,) * 2,
        "pads": (pad,) * 4,
        "strides": (stride,) * 2,
        "dilations": (dilation,) * 2,
    }


@pytest.mark.parametrize("several", [CONVOLUTIONS, DEPTHWISE], ids=["dense", "depthwise"])
def test_sums_and_bytes(last: Last, several: Sequence[tuple[tuple[int, ...], int, int, int, int, int, int]]) -> None:
    for x, m, kernel, *rest in several:
        attrs = attributes(kernel, *rest)
        group = rest[2]
        w, size = i8(m, x[1] // group, kernel, kernel), x[1] // group * kernel * kernel
        image = u8(*x)
        node = Node("ConvInteger", ("x", "w", "zx"), ("y",), attrs)
        last.add([node], {"x": image}, {"w": w, "zx": u8()})
        last.add([node], {"x": image, "zx": u8()}, {"w": w})
        quantized = Node("QLinearConv", ("x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"), ("y",), attrs)
        constants = {
            "w": w,
            "sx": number(0.02),
            "sw": (RNG.random(m) * 0.02 + 0.001).astype(np.float32),
            "sy": number(0.03 * np.sqrt(size)),
            "zx": u8(),
            "zw": np.zeros(m, np.int8),
            "zy": u8(),
            "b": RNG.integers(-9999, 9999, m).astype(np.int32),
        }
        last.add([quantized], {"x": image}, constants)
    templates = last.check()
    assert ("conv_nhwc_int8" if several is CONVOLUTIONS else "depthwise_int8") in templates
    tiled = several is CONVOLUTIONS and "amx_int8" in last.machine.features
    assert ("conv_planes" in templates) == tiled


def test_weights_with_any_zero_point(last: Last) -> None:
    """The sums under windows, padding included, are those of a filter of ones; groups add those of several filters."""
    for x, m, kernel, *rest in (*CONVOLUTIONS, ((2, 6, 7, 5), 6, 3, 1, 1, 6, 1), ((1, 4, 5, 5), 8, 3, 2, 1, 4, 1)):
        attrs = attributes(kernel, *rest)
        w, image = u8(m, x[1] // rest[2], kernel, kernel), {"x": u8(*x)}
        w[0, 0, 0, 0], w[-1, 0, 0, 0] = 0, 255
        node = Node("ConvInteger", ("x", "w", "zx", "zw"), ("y",), attrs)
        zeros = {"zx": number(7, np.uint8), "zw": number(113, np.uint8)}
        last.add([node], image, {"w": w, **zeros})
        last.add([node], {**image, "zx": zeros["zx"]}, {"w": w, "zw": zeros["zw"]})
        last.add([replace(node, inputs=("x", "w"))], image, {"w": w})
        quantized = Node("QLinearConv", ("x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"), ("y",), attrs)
        constants = {
            "sx": number(0.02),
            "sw": number(0.004),
            "sy": number(0.03 * np.sqrt(x[1] * kernel * kernel)),
            "zy": number(90, np.uint8),
            "b": RNG.integers(-9999, 9999, m).astype(np.int32),
        }
        last.add([quantized], image, {"w": w, **zeros, **constants})
    last.check()


def test_extremes(last: Last) -> None:
    """The largest intermediate products, which 16-bit sums could not hold, and results far outside of int8."""
    w = np.full((20, 60, 3, 3), -128, np.int8)
    w[10:] = 127
    node = Node("ConvInteger", ("x", "w", "zx"), ("n",), attributes(3, 1, 1, 1, 1))
    far = [
        node,
        Node("Cast", ("n",), ("f",), {"to": 1}),
        Node("Mul", ("f", "s"), ("p",)),
        Node("QuantizeLinear", ("p", "sy", "zy"), ("y",)),
    ]
    image = np.full((1, 60, 6, 6), 255, np.uint8)
    last.add([node], {"x": image}, {"w": w, "zx": number(0, np.uint8)})
    for zero in (number(7, np.uint8), number(-9, np.int8)):
        scales = {"s": number(1e6), "sy": number(1e-3), "zy": zero}
        last.add(far, {"x": image}, {"w": w, "zx": number(0, np.uint8), **scales}, share=1e-3)
    deep = Node("ConvInteger", ("x", "w", "zx"), ("n",), attributes(3, 1, 1, 20, 1))
    last.add([deep], {"x": np.full((1, 20, 6, 6), 255, np.uint8)}, {"w": w[:, :1], "zx": number(0, np.uint8)})
    last.check()


def test_words_of_two_numbers_without_an_instruction_for_bytes(last: Last) -> None:
    """Unpacked rows of several blocks of pixels, runs that are no whole vectors, and groups."""
    for channels, groups, kernel in ((603, 1, 1), (30, 3, 1), (1100, 2, 3), (2048, 1, 1)):
        w, image = i8(20 * groups, channels // groups, kernel, kernel), u8(2, channels, 9, 9)
        node = Node("ConvInteger", ("x", "w"), ("y",), attributes(kernel, 1, kernel // 2, groups, 1))
        last.add([node], {"x": image}, {"w": w})
    case, expected, _ = last.cases[-1]
    types = {"y": TensorType(DType.I32, expected["y"].shape)}
    graph = harness.make_graph(case.nodes, case.inputs, constants=case.constants, types=types)
    items, _ = harness.lower(graph, target=last.machine)
    assert items is not None
    (step,) = items
    assert isinstance(step, Step)
    plain = last.machine.isa == "avx2" and "avx_vnni" not in last.machine.features
    assert step.kernel.params.get("pairs") == (2 * 512 + 16 if plain else None)
    last.check()


def test_winograd_in_integers(last: Last) -> None:
    """Sums are exact for the largest products, odd channels, partial tiles and panels, groups and several images."""
    shapes = ((1, 64, 12, 12), (2, 51, 27, 19), (1, 80, 21, 30), (3, 64, 9, 28), (1, 1800, 16, 16))
    for (images, channels, *size), m, groups, pad in zip(
        shapes, (64, 40, 104, 64, 32), (1, 1, 1, 2, 1), (1, 1, 0, 2, 1), strict=True
    ):
        w, image = i8(m, channels // groups, 3, 3), u8(images, channels, *size)
        w[0], w[1], w[2, :, ::2], image[0, :, :4, :4] = -128, 127, 127, 255
        node = Node("ConvInteger", ("x", "w", "zx"), ("y",), attributes(3, 1, pad, groups, 1))
        zero = number(200, np.uint8)
        last.add([node], {"x": image}, {"w": w, "zx": zero})
        last.add([node], {"x": image, "zx": zero}, {"w": w})
    templates = last.check()
    plain = last.machine.isa == "avx2" and "avx_vnni" not in last.machine.features
    assert templates.count("winograd_nhwc_int8") == (2 * len(shapes) if plain else 0)


def test_winograd_leaves_to_others_what_it_cannot_sum(last: Last) -> None:
    """Sums of more channels may not fit 32 bits when they are four times as large."""
    w, image = i8(16, 1801, 3, 3), u8(1, 1801, 8, 8)
    last.add([Node("ConvInteger", ("x", "w"), ("y",), attributes(3, 1, 1, 1, 1))], {"x": image}, {"w": w})
    assert "winograd_nhwc_int8" not in last.check()


@pytest.mark.parametrize("group", [1, 40])
def test_scale_add_and_quantize(last: Last, group: int) -> None:
    nodes = [
        Node("ConvInteger", ("x", "w", "zx"), ("n",), attributes(3, 1, 1, group, 1)),
        Node("Cast", ("n",), ("f",), {"to": 1}),
        Node("Mul", ("f", "s"), ("p",)),
        Node("Add", ("p", "c"), ("q",)),
        Node("Relu", ("q",), ("r",)),
        Node("QuantizeLinear", ("r", "sy", "zy"), ("y",)),
    ]
    residual = [
        *nodes[:4],
        Node("QuantizeLinear", ("q", "sy", "zy"), ("b",)),
        Node("DequantizeLinear", ("b", "sy", "zy"), ("d",)),
        Node("DequantizeLinear", ("other", "so", "zo"), ("e",)),
        Node("Add", ("d", "e"), ("a",)),
        Node("QuantizeLinear", ("a", "sa", "za"), ("z",)),
    ]
    for shape in ((2, 40, 9, 10), (1, 120, 7, 7)):
        m = shape[1]
        constants = {
            "w": i8(m, 1 if group > 1 else m, 3, 3),
            "zx": number(3, np.uint8),
            "s": (RNG.random((m, 1, 1)) * 1e-4 * (8 if group > 1 else 1)).astype(np.float32),
            "c": RNG.standard_normal((m, 1, 1)).astype(np.float32),
            "sy": number(0.05),
            "zy": number(9, np.uint8),
        }
        attrs = {**nodes[0].attrs, "group": m if group > 1 else 1}
        first = replace(nodes[0], attrs=attrs)
        image = {"x": u8(*shape)}
        last.add([first, *nodes[1:]], image, constants, share=1e-3)
        last.add([first, *nodes[1:-1]], image, constants)
        if group > 1:
            continue
        more = {"so": number(0.0312345), "zo": number(77, np.uint8), "sa": number(0.0617), "za": number(5, np.uint8)}
        last.add([first, *residual[1:]], {**image, "other": u8(*shape)}, {**constants, **more}, share=1e-3)
        signed = {**more, "zo": number(-7, np.int8), "za": number(-30, np.int8)}
        last.add([first, *residual[1:]], {**image, "other": i8(*shape)}, {**constants, **signed}, share=1e-3)
    last.check()


@pytest.mark.parametrize("kind", [u8, i8])
def test_max_pool(last: Last, kind: Any) -> None:
    for node, shape in max_pools(70):
        last.add([node], {"x": kind(*shape)}, {})
    last.check()
