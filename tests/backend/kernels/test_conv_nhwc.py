"""NHWC convolutions and pooling against their transposed NCHW counterparts: geometry, groups, tails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.target import make_target, runs_here
from rewrite.backend.kernels.conv import conv_nhwc, depthwise_pool_nhwc
from rewrite.benchmarks import harness
from rewrite.engine.ir.dim_parser import parse
from rewrite.engine.ir.graph import DType, Node, TensorType

from .oracle import Array, Case, check, oracle
from .test_conv import any_channels, conv, pool
from .test_winograd import forced

PADS = (1, 1, 1, 1)


@pytest.fixture
def in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy no lines, whatever the caches of this machine."""
    monkeypatch.setattr(depthwise_pool_nhwc, "copies_lines", lambda *_: False)


def turned(array: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if array.ndim > 2 else array


def last(case: Case) -> Case:
    """Return the case with all values in NHWC."""
    expected = {name: turned(array) for name, array in oracle(case).items()}
    names = {op: f"rewrite.ChannelsLast{op}" for op in ("Conv", "ConvTranspose", "MaxPool", "AveragePool")}
    nodes = [replace(node, op=names.get(node.op, node.op)) for node in case.nodes]
    dims = {name: (d[0], *d[2:], d[1]) for name, d in case.symbolic.items()}
    types = {
        name: TensorType(kind.dtype, (kind.shape[0], *kind.shape[2:], kind.shape[1]))
        for name, kind in case.types.items()
        if kind.shape is not None and len(kind.shape) > 2 and name not in case.constants
    }
    inputs = {name: turned(array) for name, array in case.inputs.items()}
    return replace(case, nodes=nodes, inputs=inputs, expected=expected, symbolic=dims, types=types, threads=(1, 2, 5))


def kernel_of(case: Case, **options: Any) -> str:
    return step_of(case, **options).kernel.template


def step_of(case: Case, **options: Any) -> Step:
    types = {k: TensorType(DType.from_numpy(v.dtype), v.shape) for k, v in case.expected.items()} | dict(case.types)
    graph = harness.make_graph(
        list(case.nodes), case.inputs, constants=case.constants, symbolic_shapes=case.symbolic, types=types
    )
    items, _ = harness.lower(graph, **options)
    assert items is not None
    [step] = [item for item in items if isinstance(item, Step)]
    return step


ANY_SIZE: Mapping[str, Sequence[int | str]] = {"x": ("N", 16, "H", "W")}


def any_size(case: Case, *result: int | str) -> Case:
    """Return the case in NHWC with images or volumes of any size; `result` is the shape of y, in NHWC."""
    x = case.inputs["x"].shape
    symbolic = {"x": ("N", *("D", "H", "W")[5 - len(x) :], x[1])}
    if "r" in case.inputs:
        symbolic["r"] = result
    dims = tuple(d if isinstance(d, int) else parse(d) for d in result)
    types = {value: TensorType(DType.F32, dims) for node in case.nodes for value in node.outputs}
    return replace(last(case), symbolic=symbolic, types=types)


def test_one_tap() -> None:
    cases = [
        conv((2, 64, 7, 7), (40, 64, 1, 1), "Relu", residual=(2, 40, 7, 7)),
        conv((1, 3, 5, 4), (2, 3, 1, 1), bias=False, strides=(2, 2)),
        conv((1, 1, 1, 1), (1, 1, 1, 1)),
        conv((1, 70, 15, 9), (33, 70, 1, 1), "HardSwish", strides=(2, 2)),
        conv((1, 32, 10, 10), (16, 32, 1, 1), pads=PADS),
        conv((1, 24, 16, 16), (30, 8, 1, 1), "Sigmoid", group=3),
        conv((0, 4, 3, 3), (5, 4, 1, 1), symbolic={"x": ("N", 4, 3, 3)}),
    ]
    made = [last(case) for case in cases]
    assert kernel_of(made[0]) == "gemm"
    assert kernel_of(made[3]) == "conv_nhwc"
    check(made)


def test_geometry() -> None:
    cases = [
        conv((1, 16, 14, 14), (32, 16, 3, 3), "Relu", pads=PADS, strides=(2, 2)),
        conv((1, 10, 19, 23), (37, 10, 3, 5), pads=(2, 1, 0, 3), strides=(3, 2), dilations=(2, 1)),
        conv((1, 12, 19, 23), (8, 6, 3, 5), pads=(2, 1, 0, 3), strides=(3, 2), dilations=(2, 1), group=2),
        conv((1, 18, 19, 23), (8, 18, 2, 3), auto_pad="SAME_UPPER", strides=(2, 2)),
        conv((1, 18, 19, 23), (8, 18, 2, 3), auto_pad="SAME_LOWER"),
        conv((1, 8, 3, 3), (9, 8, 5, 5), pads=(4, 4, 4, 4)),
        conv(
            (2, 20, 9, 8), (70, 20, 3, 3), dilations=(2, 2), strides=(1, 2), pads=(2, 2, 2, 2), residual=(2, 70, 9, 4)
        ),
        conv((1, 9, 3, 2), (16, 9, 7, 7), pads=(3, 3, 3, 3), bias=False),
    ]
    check([last(case) for case in cases])


def test_over_one_and_three_dims() -> None:
    cases = [
        conv((2, 25, 50), (7, 25, 4), pads=(2, 1), strides=(2,)),
        conv((1, 1, 900), (20, 1, 200), strides=(40,)),
        conv((1, 13, 6, 7, 8), (4, 13, 3, 3, 3), pads=(1, 1, 1, 1, 1, 1)),
        conv((1, 4, 5, 9, 10), (4, 1, 3, 3, 3), pads=(1, 1, 1, 1, 1, 1), group=4),
    ]
    check([last(case) for case in cases])


@pytest.mark.parametrize("gate", ["Relu", "Gelu"])
def test_signals_of_few_outputs(gate: str) -> None:
    """Few rows meet several panels of channels; taps that read padding only are skipped if weights are finite."""
    cases = []
    for length in (1, 2, 3, 5, 6, 7, 11):
        plain = conv((2, 25, length), (132, 25, 3), gate, pads=(1, 1), residual=(2, 132, length))
        cases.append(any_size(plain, "N", "W", 132))
        cases.append(any_size(conv((1, 96, length), (256, 48, 5), gate, pads=(2, 2), group=2), "N", "W", 256))
    check(cases)
    for value, skips in ((1.0, True), (np.inf, False)):
        weights = np.full((256, 48, 5), value, np.float32)
        made = replace(cases[-1], constants={**cases[-1].constants, "w": weights})
        assert step_of(made, target=make_target("avx2")).kernel.params["skips_few"] is skips


def test_few_channels_are_read_by_lines() -> None:
    cases = [
        conv((1, 3, 33, 32), (20, 3, 7, 7), "Relu", pads=(3, 3, 3, 3), strides=(2, 2)),
        conv((2, 3, 8, 20), (5, 3, 3, 3), strides=(2, 2), pads=(0, 1, 1, 0)),
        conv((1, 1, 28, 28), (32, 1, 5, 5), dilations=(2, 1), pads=(5, 0, 2, 3)),
        conv((1, 4, 5, 6), (16, 4, 3, 4), pads=(6, 7, 5, 4)),
        conv((1, 3, 224, 224), (8, 3, 3, 3), strides=(2, 2), residual=(1, 8, 111, 111)),
    ]
    check([last(case) for case in cases])


def test_few_channels_of_images_of_any_size() -> None:
    """Blocks are whole rows of narrow images and parts of the rows of wide ones, whatever is likely."""
    half = ("N", "(H+1)//2", "(W+1)//2", 20)
    attrs = {"strides": (2, 2), "pads": (3, 3, 3, 3)}
    cases = []
    for n, h, w in ((1, 33, 32), (2, 224, 9), (1, 5, 1001), (1, 1, 1), (0, 8, 8), (1, 224, 224), (1, 3, 4000)):
        cases.append(any_size(conv((n, 3, h, w), (20, 3, 7, 7), "Relu", **attrs), *half))
        cases.append(any_size(conv((n, 1, h, w), (16, 1, 5, 5), pads=(2, 1, 2, 3)), "N", "H", "W", 16))
    sides = {"kernel_shape": (2, 2), "strides": (5, 5)}  # filters smaller than their strides
    for h, w in ((70, 70), (140, 36), (36, 140), (9, 700), (700, 9)):
        cases.append(any_size(conv((1, 3, h, w), (20, 3, 2, 2), **sides), "N", "(H+3)//5", "(W+3)//5", 20))
    assert all(step_of(case).kernel.params["copied"] for case in cases)
    check(cases)


def test_weights_that_are_done_in_parts() -> None:
    case = last(conv((1, 600, 9, 9), (20, 600, 3, 3), "Relu", residual=(1, 20, 9, 9), pads=PADS, strides=(1, 1)))
    step = conv((2, 640, 14, 14), (80, 640, 3, 3), "HardSwish", strides=(2, 2), pads=PADS)
    check([replace(made, atol=2e-4) for made in (case, last(step))])  # sums of more than 5,000 products


def test_taps_in_the_padding_are_skipped() -> None:
    """Whole tiles in the padding; parts of sums; images of any size; several groups and images."""
    wide = {"pads": (12, 24, 12, 24), "dilations": (12, 12)}
    cases = [
        conv((1, 40, 20, 20), (70, 40, 3, 5), "Relu", residual=(1, 70, 20, 20), **wide),
        conv((2, 16, 15, 70), (34, 8, 3, 5), "Relu", group=2, **wide),
        conv((1, 700, 14, 14), (48, 700, 3, 5), **wide),
        conv((1, 9, 4, 5, 6), (20, 9, 3, 3, 3), pads=(3, 3, 3, 3, 3, 3), dilations=(3, 3, 3)),
        conv((1, 16, 3, 3), (16, 16, 7, 7), pads=(3, 3, 3, 3), strides=(2, 1)),
    ]
    made = [replace(last(case), atol=2e-4) for case in cases]
    made.append(any_size(conv((2, 16, 20, 70), (40, 16, 3, 5), "Relu", **wide), "N", "H", "W", 40))
    assert all(step_of(case).kernel.params["skips"] for case in made)
    plain = conv((2, 16, 20, 70), (40, 16, 3, 5), pads=(1, 2, 1, 2))
    assert not any(step_of(case).kernel.params["skips"] for case in (last(plain), any_size(plain, "N", "H", "W", 40)))
    check(made)


def test_weights_that_are_not_finite_are_not_skipped() -> None:
    case = last(conv((1, 16, 20, 20), (32, 16, 3, 5), pads=(12, 24, 12, 24), dilations=(12, 12)))
    assert step_of(case).kernel.params["skips"]
    [weights] = [name for name, array in case.constants.items() if array.ndim == 4]
    spoiled = case.constants[weights].copy()
    spoiled[3, 2, 0, 0] = np.inf
    assert not step_of(replace(case, constants={**case.constants, weights: spoiled})).kernel.params["skips"]


def test_results_are_quantized_before_they_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """One tap, filters of several, depthwise ones, and Winograd's algorithm."""
    plain = [
        conv((2, 16, 9, 7), (40, 16, 1, 1), "Relu"),
        conv((1, 3, 20, 19), (33, 3, 3, 3), pads=PADS, strides=(2, 2)),
        conv((1, 24, 9, 7), (20, 24, 3, 3), "Relu", pads=PADS, dilations=(2, 2), residual=(1, 20, 7, 5)),
        conv((1, 40, 9, 7), (40, 1, 3, 3), pads=PADS, group=40),
    ]
    check([quantized(case) for case in plain])
    for t in ((4, 4), (4, 2)):
        forced(monkeypatch, t, 8)
        square = quantized(conv((1, 21, 13, 9), (40, 21, 3, 3), "Relu", pads=PADS))
        step = step_of(square)
        assert (step.kernel.template, step.kernel.params["t"]) == ("winograd_nhwc", list(t))
        check([square])
        monkeypatch.undo()


def quantized(case: Case) -> Case:
    """Return the case in NHWC with its result as bytes: one beside the other where sums differ by rounding."""
    (made,) = case.nodes[-1].outputs
    constants = {**case.constants, "s": np.asarray(0.03, np.float32), "zero": np.asarray(90, np.uint8)}
    nodes = [*case.nodes, Node("QuantizeLinear", (made, "s", "zero"), ("q",), {"axis": 1})]
    return replace(last(replace(case, nodes=nodes, constants=constants)), atol=1)


def test_sizes_of_run_time() -> None:
    cases = []
    for n, h, w in ((1, 13, 17), (2, 30, 41), (1, 3, 5), (1, 1, 64)):
        cases += [
            conv((n, 16, h, w), (20, 16, 3, 3), "HardSwish", pads=PADS, symbolic=ANY_SIZE),
            conv((n, 16, h, w), (20, 16, 3, 3), pads=PADS, strides=(2, 2), symbolic=ANY_SIZE),
            conv((n, 16, h, w), (20, 16, 1, 1), symbolic=ANY_SIZE),
            conv((n, 16, h, w), (16, 1, 3, 3), "Relu", pads=PADS, strides=(2, 2), group=16, symbolic=ANY_SIZE),
            pool("MaxPool", (n, 16, h, w), {"x": ("N", 16, "H", "W")}, kernel_shape=(3, 3), pads=PADS),
        ]
    made = [last(case) for case in cases]
    for case in made:
        if "y" in case.expected and not case.types:
            dims = tuple(d if isinstance(d, int) else parse(d) for d in ("N", "H", "W", 16))
            case.types = {"y": TensorType(DType.F32, dims)}
    check(made)


@pytest.mark.usefixtures("in_place")
def test_windows_over_images_of_any_size() -> None:
    """The last tiles extend over the end of the image: what is there is neither stored nor added to."""
    cases = []
    for n, h, w in ((1, 13, 17), (2, 30, 41), (1, 3, 5), (1, 1, 64), (1, 64, 1), (3, 2, 2), (0, 9, 9)):
        residual = conv((n, 40, h, w), (40, 1, 3, 3), "Relu", residual=(n, 40, h, w), pads=PADS, group=40)
        cases.append(any_size(residual, "N", "H", "W", 40))
        attrs = {"pads": (2, 2, 2, 2), "strides": (2, 2), "group": 20}
        cases.append(any_size(conv((n, 20, h, w), (20, 1, 5, 5), **attrs), "N", "(H+1)//2", "(W+1)//2", 20))
        cases.append(any_size(conv((n, 64, h, w), (64, 4, 3, 3), pads=PADS, group=16), "N", "H", "W", 64))
        kind = {"kernel_shape": (3, 3), "pads": PADS}
        cases.append(any_size(pool("AveragePool", (n, 33, h, w), None, **kind), "N", "H", "W", 33))
        cases.append(any_size(pool("MaxPool", (n, 16, h, w), None, **kind), "N", "H", "W", 16))
    assert {kernel_of(case) for case in cases} == {"depthwise_pool_nhwc"}
    assert all(step_of(case).in_place for case in cases if "r" in case.inputs)
    check(cases)


def test_pools_of_any_number_of_channels() -> None:
    cases = [last(one) for one in any_channels()]
    assert {kernel_of(case) for case in cases} == {"depthwise_pool_nhwc", "pool_nhwc_int8"}
    check(cases)


def depthwise() -> list[Case]:
    """Filters, strides, paddings and dilations of any kind, with remainders of channels, rows and columns."""
    return [
        conv((1, 8, 14, 14), (8, 1, 3, 3), "Relu", pads=PADS, group=8),
        conv((2, 37, 7, 7), (37, 1, 5, 5), pads=(2, 2, 2, 2), group=37, residual=(2, 37, 7, 7)),
        conv((2, 6, 23, 37), (12, 1, 3, 5), pads=(0, 1, 2, 3), strides=(2, 1), dilations=(1, 2), group=6),
        conv((2, 22, 23, 37), (22, 1, 3, 3), "HardSwish", pads=PADS, strides=(2, 2), group=22),
        conv((1, 16, 9, 11), (16, 1, 3, 3), pads=(0, 2, 3, 1), dilations=(2, 3), group=16),
        conv((1, 6, 40, 40), (6, 1, 7, 7), pads=(3, 3, 3, 3), group=6),
        conv((1, 20, 20, 20), (20, 1, 9, 9), pads=(4, 4, 4, 4), group=20),
        conv((1, 6, 40), (6, 1, 4), pads=(1, 2), strides=(3,), group=6),
        conv((1, 3, 1, 1), (3, 1, 3, 3), pads=PADS, group=3),
        conv((1, 2, 2, 3), (2, 1, 5, 5), "Sigmoid", pads=(4, 4, 4, 4), group=2, bias=False),
        conv((1, 768, 12, 9), (768, 1, 7, 7), "Relu", pads=(3, 3, 3, 3), group=768, residual=(1, 768, 12, 9)),
        conv((1, 512, 200), (512, 1, 31), pads=(15, 15), group=512),
        conv((1, 20, 6, 9, 8), (20, 1, 3, 3, 3), "Relu", pads=(1, 1, 1, 1, 1, 1), strides=(1, 1, 2), group=20),
    ]


@pytest.mark.usefixtures("in_place")
def test_depthwise() -> None:
    made = [last(case) for case in depthwise()]
    assert {kernel_of(case) for case in made} == {"depthwise_pool_nhwc"}
    check(made)


def test_narrow_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups that share a vector, fill one, or take several; channels that vectors divide and do not divide."""
    monkeypatch.setattr(conv_nhwc, "window_cycles", lambda *_: 0.0)
    cases = [
        conv((1, 128, 14, 14), (128, 4, 3, 3), "Relu", pads=PADS, group=32),
        conv((2, 32, 9, 11), (32, 8, 3, 3), "HardSwish", pads=PADS, strides=(2, 2), group=4, residual=(2, 32, 5, 6)),
        conv((1, 60, 13, 10), (60, 3, 3, 3), "Relu", pads=(0, 1, 2, 3), group=20),
        conv((1, 10, 7, 9), (30, 2, 3, 5), dilations=(2, 3), pads=(2, 6, 1, 4), group=5),
        conv((1, 35, 8, 8), (14, 5, 3, 3), strides=(1, 2), group=7, bias=False),
        conv((1, 6, 23, 37), (24, 1, 3, 5), "Sigmoid", pads=(0, 1, 2, 3), strides=(2, 1), dilations=(1, 2), group=6),
        conv((1, 48, 6, 5), (48, 24, 3, 3), pads=PADS, group=2),
        conv((1, 72, 9, 9), (108, 24, 1, 1), "Relu", group=3, residual=(1, 108, 9, 9)),
        conv((1, 512, 7, 7), (512, 16, 3, 3), "Relu", pads=PADS, group=32),
        conv((2, 1024, 9, 5), (1024, 32, 3, 3), pads=(2, 1, 0, 1), strides=(2, 1), group=32, residual=(2, 1024, 5, 5)),
        conv((1, 12, 100), (12, 3, 9), "Relu", pads=(4, 4), group=4),
        conv((1, 12, 5, 6, 7), (12, 4, 3, 3, 3), pads=(1, 1, 1, 1, 1, 1), strides=(1, 2, 1), group=3),
        conv((1, 20, 1, 1), (20, 5, 3, 3), pads=PADS, group=4),
        conv((0, 8, 4, 4), (8, 2, 3, 3), group=4, symbolic={"x": ("N", 8, 4, 4)}),
    ]
    made = [last(case) for case in cases]
    assert {kernel_of(case) for case in made} == {"depthwise_pool_nhwc"}
    check(made)


@pytest.mark.usefixtures("in_place")
def test_chunks_of_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many channels are computed in chunks for several tiles, the last chunk being smaller."""
    monkeypatch.setattr(conv_nhwc, "window_cycles", lambda *_: 0.0)
    monkeypatch.setattr(depthwise_pool_nhwc, "_chunk", lambda *_: 3)
    cases = [
        conv((2, 512, 16, 11), (512, 1, 5, 5), pads=(2, 1, 2, 3), group=512),
        conv((1, 1016, 20, 20), (1016, 1, 9, 9), pads=(4, 4, 4, 4), group=1016),
        conv((1, 1024, 9, 30), (1024, 1, 5, 5), pads=(1, 2, 2, 0), strides=(1, 2), dilations=(2, 1), group=1024),
        conv((1, 440, 9, 7), (880, 20, 3, 3), "Relu", pads=PADS, group=22, residual=(1, 880, 9, 7)),
        conv((1, 320, 10, 60), (320, 5, 5, 3), pads=PADS, group=64, strides=(2, 1)),
        conv((1, 1028, 3, 6, 7), (1028, 1, 3, 3, 3), pads=(1, 1, 1, 1, 1, 1), group=1028),
        pool("MaxPool", (1, 1500, 9, 6), kernel_shape=(5, 5), pads=(2, 2, 2, 2)),
    ]
    made = [last(case) for case in cases]
    assert all(step_of(case).kernel.params["chunk"] for case in made)
    check(made)


@pytest.mark.usefixtures("in_place")
def test_images_as_wide_as_a_tile() -> None:
    """Products with padding are left out: at the sides when compiling, above and below by the bounds of a loop."""
    cases = [
        conv((2, 40, 9, 7), (40, 1, 7, 7), pads=(3, 3, 3, 3), group=40),
        conv((1, 40, 7, 7), (40, 1, 5, 5), "Relu", pads=(1, 4, 2, 0), group=40, residual=(1, 40, 6, 7)),
        conv((1, 24, 14, 14), (24, 1, 3, 3), pads=PADS, strides=(2, 2), group=24),
        conv((1, 24, 2, 7), (24, 1, 5, 5), pads=(2, 2, 2, 2), group=24),
        conv((1, 24, 5, 5), (24, 1, 5, 5), pads=(4, 4, 4, 4), dilations=(2, 2), group=24),
        conv((1, 24, 7, 7), (24, 1, 3, 3), "Sigmoid", pads=PADS, group=24),
        conv((1, 24, 1, 5), (24, 1, 9, 3), pads=(4, 1, 4, 1), group=24),
        conv((1, 24, 9, 7), (24, 1, 7, 7), pads=(0, 3, 0, 3), strides=(2, 1), group=24),
        conv((1, 32, 7, 7), (32, 8, 3, 3), "Relu", pads=PADS, group=4),
        pool("MaxPool", (1, 24, 7, 7), kernel_shape=(5, 5), pads=(2, 2, 2, 2)),
        pool("MaxPool", (1, 24, 8, 8), kernel_shape=(3, 3), strides=(2, 2), ceil_mode=1),
        pool("AveragePool", (1, 24, 7, 7), kernel_shape=(5, 5), pads=(2, 2, 2, 2), count_include_pad=1),
        pool("AveragePool", (1, 24, 7, 7), kernel_shape=(3, 3), pads=PADS),
    ]
    made = [last(case) for case in cases]
    wide = make_target("avx2")
    assert sum(bool(step_of(case, target=wide).kernel.params["spans"]) for case in made) >= len(cases) - 1
    check(made)


def test_windows_of_one_line_in_padded_images_of_any_height() -> None:
    cases = []
    for h in (1, 5):
        case = last(conv((1, 3, h, 4), (24, 1, 1, 1), pads=(1, 0, 2, 1), group=3, symbolic={"x": (1, 3, "H", 4)}))
        case.types = {"y": TensorType(DType.F32, (1, parse("H + 3"), 5, 24))}
        cases.append(case)
    for target in map(make_target, ("avx512", "avx2", "portable")):
        assert {kernel_of(case, target=target) for case in cases} == {"depthwise_pool_nhwc"}
    check(cases)


def test_planes_of_volumes_as_wide_as_a_tile() -> None:
    check(
        [
            last(conv((2, 40, 3, 9, 7), (40, 1, 1, 3, 3), pads=(0, 1, 1, 0, 1, 1), group=40)),
            last(conv((1, 40, 3, 9, 7), (40, 1, 1, 3, 3), pads=(1, 1, 1, 2, 1, 1), strides=(2, 1, 1), group=40)),
            last(conv((1, 3, 3, 5, 4), (24, 1, 1, 1, 1), group=3)),
            any_size(conv((1, 3, 3, 5, 4), (24, 1, 1, 1, 1), group=3), "N", "D", "H", "W", 24),
            last(pool("MaxPool", (1, 24, 3, 7, 7), kernel_shape=(1, 3, 3), pads=(0, 1, 1, 0, 1, 1))),
            last(pool("AveragePool", (1, 24, 3, 7, 7), kernel_shape=(1, 3, 3), pads=(0, 1, 1, 0, 1, 1))),
        ]
    )


def test_narrow_groups_of_run_time_sizes() -> None:
    cases = []
    for n, h, w in ((1, 13, 17), (2, 30, 41), (1, 3, 5), (1, 1, 64)):
        case = last(conv((n, 16, h, w), (16, 4, 3, 3), "Relu", pads=PADS, group=4, symbolic=ANY_SIZE))
        case.types = {
            "y": TensorType(DType.F32, tuple(d if isinstance(d, int) else parse(d) for d in ("N", "H", "W", 16)))
        }
        cases.append(case)
    wide = make_target("avx2")  # where a group of four channels does not fill a vector
    assert {kernel_of(case, target=wide) for case in cases} == {"depthwise_pool_nhwc"}
    check(cases)


def test_groups_go_where_they_are_faster() -> None:
    wide = make_target("avx2")
    narrow = conv((1, 128, 56, 56), (128, 4, 3, 3), pads=PADS, group=32)
    assert kernel_of(last(narrow), target=wide) == "depthwise_pool_nhwc"
    assert kernel_of(last(conv((1, 256, 28, 28), (256, 128, 1, 1), group=2))) == "conv_nhwc"


def test_pooling() -> None:
    cases = [
        pool("MaxPool", (1, 8, 56, 56), kernel_shape=(3, 3), strides=(2, 2), pads=PADS),
        pool("MaxPool", (1, 18, 13, 11), kernel_shape=(2, 3), strides=(2, 3), ceil_mode=1),
        pool("MaxPool", (1, 8, 13, 11), kernel_shape=(3, 3), dilations=(2, 2)),
        pool("MaxPool", (1, 2, 9, 8, 7), kernel_shape=(2, 3, 2), pads=(1, 1, 1, 1, 1, 1)),
        pool("MaxPool", (2, 21, 33), kernel_shape=(4,), strides=(4,)),
        pool("AveragePool", (1, 8, 13, 11), kernel_shape=(3, 3), pads=PADS),
        pool("AveragePool", (1, 40, 13, 11), kernel_shape=(3, 3), pads=PADS, count_include_pad=1),
        *(
            pool(
                "AveragePool", (1, 8, 13, 11), kernel_shape=(3, 3), strides=(2, 2), pads=(0, 1, 1, 0), ceil_mode=1, **a
            )
            for a in ({"count_include_pad": 0}, {"count_include_pad": 1})
        ),
        pool("AveragePool", (1, 8, 14, 14), kernel_shape=(14, 14)),
        pool("AveragePool", (1, 8, 40, 14), kernel_shape=(30, 14), pads=(2, 3, 1, 0)),
        pool("MaxPool", (1, 20, 20, 17), kernel_shape=(13, 13), pads=(6, 6, 6, 6)),
        pool("AveragePool", (1, 2, 9, 8, 7), kernel_shape=(2, 3, 2), pads=(1, 1, 1, 1, 1, 1)),
    ]
    check([last(case) for case in cases])


def test_max_pool_keeps_nan_and_infinities() -> None:
    case = pool("MaxPool", (1, 20, 9, 9), kernel_shape=(3, 3), strides=(2, 2), pads=PADS)
    x = case.inputs["x"]
    x[0, :, 4, 4] = -np.inf
    x[0, 5, 2] = np.inf
    check([last(case)])


@pytest.mark.parametrize("shape", [(1, 6, 8, 32), (2, 9, 11, 40), (1, 5, 7, 3)])
def test_max_pool_in_bf16(shape: tuple[int, ...]) -> None:
    """Maxima are elements of x, so that nothing is rounded; -inf is the neutral element of padding."""
    x = np.random.default_rng(4).standard_normal(shape).astype(ml_dtypes.bfloat16)
    x[0, :3, :3, 0] = -np.inf
    attrs = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}
    graph = harness.make_graph([Node("rewrite.ChannelsLastMaxPool", ("x",), ("y",), attrs)], {"x": x})
    padded = np.pad(x.astype(np.float32), ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2]
    for isa in ("portable", "avx2", "avx512"):
        target = make_target(isa)
        if not runs_here(target):
            continue
        items, _ = harness.lower(graph, target=target)
        assert [item.kernel.template for item in items or () if isinstance(item, Step)] == ["depthwise_pool_nhwc"]
        for threads in (1, 3):
            got = harness.run(graph, {"x": x}, threads=threads, target=target)["y"]
            assert got.dtype == x.dtype
            np.testing.assert_array_equal(got.astype(np.float32), windows.max((-1, -2)))


def test_threads_that_divide_rows() -> None:
    """Pixels in even and uneven shares, in one block and several, gathered, copied, in groups, depthwise and pooled."""
    made = [
        conv((1, 64, 40, 40), (24, 64, 1, 1), "Relu", strides=(2, 2)),
        conv((1, 64, 31, 29), (48, 32, 3, 3), pads=PADS, strides=(2, 2), group=2),
        conv((1, 3, 90, 90), (20, 3, 5, 5), "Relu", pads=(2, 2, 2, 2), strides=(2, 2)),
        conv((1, 48, 61, 37), (32, 48, 3, 3), pads=PADS, dilations=(2, 2), residual=(1, 32, 59, 35)),
        conv((1, 160, 24, 40), (160, 1, 5, 5), "HardSwish", pads=(2, 2, 2, 2), group=160),
        conv((1, 192, 14, 14), (192, 1, 3, 3), pads=PADS, group=192),
        conv((1, 640, 7, 7), (640, 1, 3, 3), pads=PADS, group=640),
    ]
    check([last(replace(case, threads=(2, 3, 4, 7))) for case in made])


def test_auto_pad() -> None:
    cases = [
        conv((1, 16, 9, 10), (24, 16, 3, 3), auto_pad="SAME_LOWER", strides=(2, 2)),
        conv((2, 16, 9, 10), (16, 1, 4, 5), auto_pad="SAME_UPPER", group=16, symbolic=ANY_SIZE),
        conv((2, 16, 9, 7), (16, 16, 2, 3), auto_pad="SAME_UPPER", strides=(2, 1), symbolic=ANY_SIZE),
        pool("MaxPool", (1, 20, 9, 12), auto_pad="SAME_UPPER", kernel_shape=(3, 2), strides=(2, 2)),
        pool("AveragePool", (1, 20, 9, 12), auto_pad="SAME_LOWER", kernel_shape=(2, 3), strides=(2, 2)),
    ]
    check([last(case) for case in cases])


def test_what_is_not_constant_or_returns_indices_is_refused() -> None:
    x, w = TensorType(DType.F32, (1, 8, 8, 4)), TensorType(DType.F32, (4, 4, 3, 3))
    y = TensorType(DType.F32, (1, 6, 6, 4))
    node = Node("rewrite.ChannelsLastConv", ("x", "w"), ("y",), {"kernel_shape": (3, 3)})
    assert harness.lower(harness.make_graph([node], {"x": x, "w": w}, types={"y": y}))[0] is None
    both = Node("rewrite.ChannelsLastMaxPool", ("x",), ("y", "i"), {"kernel_shape": (3, 3)})
    graph = harness.make_graph([both], {"x": x}, types={"y": y, "i": replace(y, dtype=DType.I64)})
    assert harness.lower(graph)[0] is None


def transposed(x: Sequence[int], w: Sequence[int], *tail: str, **options: Any) -> Case:
    return last(conv(x, w, *tail, op="ConvTranspose", **options))


def test_conv_transpose() -> None:
    """Phases with different numbers of taps, or none; geometry, groups, operands and tails of channels."""
    pads, more = (1, 0, 1, 2), {"output_padding": (1, 0)}
    cases = [
        transposed((1, 8, 7, 9), (8, 6, 2, 2), "Relu", strides=(2, 2)),
        transposed((1, 32, 6, 5), (32, 40, 4, 4), "Sigmoid", residual=(1, 40, 12, 10), strides=(2, 2), pads=PADS),
        transposed((2, 20, 7, 9), (20, 16, 3, 3), "HardSwish", strides=(2, 2), pads=PADS, output_padding=(1, 1)),
        transposed((2, 8, 7, 9), (8, 3, 3, 4), strides=(2, 3), pads=pads, dilations=(1, 2), group=2, **more),
        transposed((1, 12, 5, 5), (12, 17, 3, 3), strides=(1, 1), dilations=(2, 3), bias=False),
        transposed((2, 8, 7, 9), (8, 3, 3, 3), strides=(2, 2), auto_pad="SAME_UPPER"),
        transposed((2, 8, 7, 9), (8, 3, 3, 3), strides=(2, 2), auto_pad="SAME_LOWER"),
        transposed((1, 8, 6, 12), (8, 3, 3, 1), strides=(3, 3), auto_pad="SAME_UPPER"),
        transposed((2, 8, 7, 9), (8, 3, 3, 3), strides=(2, 2), output_shape=(15, 18)),
        transposed((1, 8, 4, 3), (8, 70, 2, 1), strides=(3, 4)),
        transposed((2, 8, 11), (8, 3, 5), strides=(2,), pads=(2, 2)),
        transposed((1, 64, 130), (64, 32, 16), "LeakyRelu", strides=(8,), pads=(4, 4)),
        transposed((1, 4, 3, 4, 5), (4, 3, 2, 3, 3), strides=(2, 1, 2)),
        transposed((1, 32, 4, 6, 6), (32, 16, 2, 2, 2), residual=(1, 16, 8, 12, 12), strides=(2, 2, 2)),
        transposed((1, 56, 30, 31), (56, 1, 9, 9), strides=(3, 3), pads=(4,) * 4, output_padding=(2, 2)),
    ]  # fmt: skip
    assert {kernel_of(case) for case in cases} == {"conv_transpose_nhwc"}
    check(cases)


def test_conv_transpose_to_a_larger_shape() -> None:
    """TileShape beyond all sums are zero: padding is negative. Other runtimes refuse it."""
    sums = transposed((2, 20, 7, 9), (20, 16, 3, 3), strides=(2, 3), bias=False)
    [node] = sums.nodes
    border = ((0, 0), (1, 1), (4, 4), (0, 0))
    larger = replace(node, attrs={**node.attrs, "output_shape": (17, 35)})
    case = replace(sums, nodes=[larger], expected={"y0": np.pad(sums.expected["y0"], border)})
    assert kernel_of(case) == "conv_transpose_nhwc"
    check([case])


def test_conv_transpose_of_any_size() -> None:
    cases = []
    for n, h, w in ((1, 1, 1), (2, 5, 9), (0, 3, 4), (1, 20, 17)):
        for pads in ((0,) * 4, PADS):
            case = conv((n, 16, h, w), (16, 8, 3, 3), strides=(2, 2), pads=pads, op="ConvTranspose", symbolic=ANY_SIZE)
            cases.append(last(case))
    check(cases)
