"""Convolutions and pooling against the oracle: geometry, groups, narrow and wide images, run-time sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import rewrite
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.target import make_target
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import DType, Node, TensorType
from rewrite.engine.operators.reference_runtime import onnx_runtime

from .oracle import Array, Case, check
from .test_gemm import case, floats

Symbolic = Mapping[str, Sequence[int | str]]


def conv(
    x: Sequence[int],
    w: Sequence[int],
    *tail: str,
    bias: bool = True,
    residual: Sequence[int] = (),
    symbolic: Symbolic | None = None,
    op: str = "Conv",
    **attrs: Any,
) -> Case:
    constants: dict[str, Array] = {"w": floats(*w) / np.float32(np.sqrt(np.prod(w[1:])))}
    inputs: dict[str, Array] = {"x": floats(*x)}
    names: tuple[str, ...] = ("x", "w")
    if bias:
        constants["b"] = floats(w[0] if op == "Conv" else w[1] * attrs.get("group", 1))
        names = (*names, "b")
    nodes = [Node(op, names, ("y0",), {"kernel_shape": tuple(w[2:]), **attrs}, name="conv")]
    if residual:
        inputs["r"] = floats(*residual)
        nodes.append(Node("Add", ("y0", "r"), ("y1",)))
    for name in tail:
        nodes.append(Node(name, nodes[-1].outputs, (f"y{len(nodes)}",)))
    return case(nodes, inputs, constants, symbolic)


ANY_SIZE: Symbolic = {"x": ("N", 16, "H", "W")}
BOTH_SIZES: Symbolic = {**ANY_SIZE, "r": ANY_SIZE["x"]}


def test_conv_geometry() -> None:
    check(
        [
            conv((1, 16, 14, 14), (32, 16, 3, 3), "Relu", pads=(1, 1, 1, 1)),
            conv((1, 3, 33, 32), (20, 3, 7, 7), pads=(3, 3, 3, 3), strides=(2, 2)),
            conv((1, 6, 19, 23), (8, 3, 3, 5), pads=(2, 1, 0, 3), strides=(3, 2), dilations=(2, 1), group=2),
            conv((1, 6, 19, 23), (8, 6, 2, 3), auto_pad="SAME_UPPER", strides=(2, 2)),
            conv((1, 6, 19, 23), (8, 6, 2, 3), auto_pad="SAME_LOWER"),
            conv((1, 6, 9, 9), (8, 6, 2, 3), auto_pad="VALID", strides=(3, 3)),
            conv((1, 8, 3, 3), (9, 8, 5, 5), pads=(4, 4, 4, 4)),
            conv((1, 5, 12, 40), (4, 5, 1, 5), dilations=(1, 3), strides=(1, 4), pads=(0, 7, 0, 1)),
            conv((1, 5, 9, 8), (4, 5, 3, 3), dilations=(2, 2), strides=(1, 2), pads=(2, 2, 2, 2)),
            conv((1, 3, 8, 20), (5, 3, 3, 3), strides=(2, 2), pads=(0, 1, 1, 0)),
            conv((1, 3, 6, 6), (4, 3, 3, 3), pads=(1, 1, 1, 1), residual=(1, 4, 6, 6)),
        ]
    )


def test_conv_of_one_tap() -> None:
    check(
        [
            conv((2, 64, 7, 7), (40, 64, 1, 1), "Relu", residual=(2, 40, 7, 7)),
            conv((1, 3, 5, 4), (2, 3, 1, 1), bias=False, strides=(2, 2)),
            conv((1, 1, 1, 1), (1, 1, 1, 1)),
            conv((1, 32, 10, 10), (16, 32, 1, 1), pads=(1, 1, 1, 1)),
            conv((1, 24, 16, 16), (30, 8, 1, 1), "Sigmoid", group=3),
            conv((0, 4, 3, 3), (5, 4, 1, 1), symbolic={"x": ("N", 4, 3, 3)}),
        ]
    )


def test_conv_over_one_and_three_dims() -> None:
    check(
        [
            conv((2, 5, 50), (7, 5, 4), pads=(2, 1), strides=(2,)),
            conv((1, 1, 900), (20, 1, 200), strides=(40,)),
            conv((1, 3, 6, 7, 8), (4, 3, 3, 3, 3), pads=(1, 1, 1, 1, 1, 1)),
            conv((1, 4, 5, 9, 10), (4, 1, 3, 3, 3), pads=(1, 1, 1, 1, 1, 1), group=4),
        ]
    )


def test_small_images_with_many_channels() -> None:
    check(
        [
            conv((1, 600, 9, 9), (20, 600, 3, 3), "Relu", residual=(1, 20, 9, 9), pads=(1, 1, 1, 1)),
            conv((2, 512, 7, 7), (70, 512, 3, 3), "HardSwish", pads=(1, 1, 1, 1)),
            conv((1, 512, 7, 7), (130, 512, 1, 1), "Relu", residual=(1, 130, 7, 7)),
            conv((3, 300, 4, 4), (100, 300, 1, 1)),
            conv((1, 640, 14, 14), (80, 320, 3, 3), group=2, strides=(2, 2), pads=(1, 1, 1, 1)),
        ]
    )


def test_conv_with_dims_of_run_time() -> None:
    cases = []
    for n, h, w in ((1, 13, 17), (2, 30, 41), (1, 3, 5), (1, 1, 64)):
        cases += [
            conv((n, 16, h, w), (20, 16, 3, 3), "HardSwish", pads=(1, 1, 1, 1), symbolic=ANY_SIZE),
            conv((n, 16, h, w), (20, 16, 3, 3), pads=(1, 1, 1, 1), strides=(2, 2), symbolic=ANY_SIZE),
            conv((n, 16, h, w), (20, 16, 1, 1), symbolic=ANY_SIZE),
            conv((n, 16, h, w), (16, 1, 3, 3), "Relu", pads=(1, 1, 1, 1), strides=(2, 2), group=16, symbolic=ANY_SIZE),
            conv((n, 16, h, w), (16, 1, 5, 3), "Relu", pads=(2, 1, 2, 1), group=16, symbolic=ANY_SIZE),
            conv(
                (n, 16, h, w), (16, 1, 3, 3), residual=(n, 16, h, w), pads=(1, 1, 1, 1), group=16, symbolic=BOTH_SIZES
            ),
            conv((n, 16, h, w), (16, 8, 2, 2), strides=(2, 2), op="ConvTranspose", symbolic=ANY_SIZE),
        ]
    check(cases)


def test_signals_of_any_length() -> None:
    """Different kernels compute short and long signals; their results agree."""
    cases = []
    for n, length in ((1, 1), (2, 3), (1, 7), (1, 16), (1, 17), (3, 40)):
        signal: Symbolic = {"x": ("N", 129, "L")}
        wide = conv((n, 129, length), (128, 129, 3), "Relu", pads=(1, 1), symbolic=signal)
        one = conv((n, 64, length), (100, 32, 1), group=2, symbolic={"x": ("N", 64, "L")})
        long = conv((n, 1, 128 * length + 200), (258, 1, 256), strides=(128,), symbolic={"x": ("N", 1, "L")})
        both = {"x": ("N", 64, "L"), "r": ("N", 64, "L")}
        added = conv((n, 64, length), (64, 64, 3), pads=(1, 1), residual=(n, 64, length), symbolic=both)
        cases += [wide, one, long, added]
    check(cases)


def test_depthwise() -> None:
    check(
        [
            conv((1, 8, 14, 14), (8, 1, 3, 3), "Relu", pads=(1, 1, 1, 1), group=8),
            conv((2, 6, 23, 37), (12, 1, 3, 5), pads=(0, 1, 2, 3), strides=(2, 1), dilations=(1, 2), group=6),
            conv((2, 6, 23, 37), (6, 1, 3, 3), "HardSwish", pads=(1, 1, 1, 1), strides=(2, 2), group=6),
            conv((1, 6, 7, 7), (6, 1, 5, 5), pads=(2, 2, 2, 2), group=6, residual=(1, 6, 7, 7)),
            conv((1, 6, 40, 40), (6, 1, 7, 7), pads=(3, 3, 3, 3), group=6),
            conv((1, 3, 40, 40), (3, 1, 9, 9), pads=(4, 4, 4, 4), group=3),
            conv((1, 6, 40), (6, 1, 4), pads=(1, 2), strides=(3,), group=6),
            conv((1, 3, 112, 112), (3, 1, 3, 3), "Sigmoid", pads=(1, 1, 1, 1), group=3),
            conv((1, 3, 1, 1), (3, 1, 3, 3), pads=(1, 1, 1, 1), group=3),
            conv((1, 3, 11, 70), (3, 1, 3, 3), group=3, bias=False),
            conv((1, 3, 9, 40), (3, 1, 3, 3), pads=(1, 0, 2, 5), dilations=(2, 3), group=3, residual=(8, 39)),
            conv((1, 3, 9, 5), (3, 1, 3, 9), pads=(1, 4, 1, 4), group=3, residual=(3, 1, 1)),
            conv((1, 2, 300, 2), (2, 1, 3, 1), pads=(1, 0, 1, 0), group=2),
            conv((1, 2, 4, 6, 33), (4, 1, 3, 3, 3), "Relu", pads=(1, 1, 1, 1, 1, 1), strides=(2, 1, 1), group=2),
        ]
    )


def shapes_of(case: Case) -> dict[str, TensorType]:
    return {name: TensorType(DType.from_numpy(v.dtype), v.shape) for name, v in case.expected.items()}


def test_the_stack_does_not_grow_with_strides_and_dilations() -> None:
    """The addresses of the lines under a band are on the stack, if they are few."""
    near = conv((1, 2, 9, 40), (2, 1, 3, 3), pads=(9, 1, 9, 1), dilations=(9, 1), group=2)
    far = conv((1, 2, 9, 40), (2, 1, 3, 3), pads=(9000, 1, 9000, 1), dilations=(9000, 1), group=2)
    found = []
    for one in (near, far):
        graph = harness.make_graph(list(one.nodes), one.inputs, constants=one.constants, types=shapes_of(one))
        items, _ = harness.lower(graph, target=make_target("avx2"))
        found += [item.kernel.template for item in items or () if isinstance(item, Step)]
    assert found == ["depthwise_rows", "depthwise_pool"]
    check([near, far])


def test_depthwise_images_of_two_tiles() -> None:
    """Tiles at the top and at the bottom leave out the lines of the filter that are in the padding."""
    cases = [
        conv((2, 3, 14, 14), (3, 1, 7, 7), "Relu", pads=(3, 3, 3, 3), group=3),
        conv((1, 3, 12, 9), (6, 1, 5, 3), pads=(3, 1, 1, 1), group=3, residual=(6, 1, 1)),
        conv((1, 3, 3, 9), (3, 1, 3, 3), pads=(5, 1, 6, 1), group=3),
        conv((1, 3, 14, 20), (3, 1, 5, 3), pads=(4, 2, 4, 2), dilations=(2, 2), group=3),
        conv((1, 3, 15, 8), (3, 1, 3, 3), pads=(1, 1, 1, 1), strides=(2, 1), group=3),
        conv((1, 3, 7, 33), (3, 1, 7, 5), "Sigmoid", pads=(3, 2, 3, 2), group=3),
    ]
    for each in cases:
        graph = harness.make_graph(each.nodes, each.inputs, constants=each.constants, types=shapes_of(each))
        items, _ = harness.lower(graph, target=make_target("avx2"))
        [step] = [item for item in items or () if isinstance(item, Step)]
        assert step.kernel.params["starts"]
    check(cases)


def test_both_panels_of_a_small_image_fit_the_cache() -> None:
    """The gathered inputs and a panel of weights are read again for each tile of pixels."""
    deep = conv((1, 512, 14, 14), (512, 512, 3, 3), pads=(1, 1, 1, 1), strides=(2, 2))
    graph = harness.make_graph(deep.nodes, deep.inputs, constants=deep.constants, types=shapes_of(deep))
    target = replace(make_target("avx512"), l2=2 << 20)
    items, _ = harness.lower(graph, target=target)
    [step] = [item for item in items or () if isinstance(item, Step)]
    params = step.kernel.params
    assert step.kernel.template == "conv_small"
    assert 0 < params["kc"] * 4 * (params["ld"] + params["tiles"]["nv"] * target.lanes) <= target.l2


def test_weights_of_padding_do_not_touch_what_lies_around() -> None:
    """A row begins and ends in lanes of the padding: infinities of the rows beside it do not get there."""
    nodes = [Node("Conv", ("x", "w"), ("y",), {"pads": (1, 1, 1, 1), "group": 2})]
    x = floats(1, 2, 6, 20)
    x[0, 0, 2] = np.inf
    ones = {"w": np.ones((2, 1, 3, 3), np.float32)}
    found = harness.run(harness.make_graph(nodes, {"x": x}, constants=ones), {"x": x})["y"]
    assert np.isinf(found[0, 0, 1:4]).all()
    assert np.isfinite(found[0, 0, [0, 4, 5]]).all()
    assert np.isfinite(found[0, 1]).all()


def test_conv_transpose() -> None:
    def transposed(x: Sequence[int], w: Sequence[int], *tail: str, **attrs: Any) -> Case:
        return conv(x, w, *tail, op="ConvTranspose", **attrs)

    check(
        [
            transposed((1, 8, 7, 9), (8, 6, 2, 2), "Relu", strides=(2, 2)),
            transposed(
                (2, 8, 7, 9),
                (8, 3, 3, 4),
                strides=(2, 3),
                pads=(1, 0, 1, 2),
                dilations=(1, 2),
                group=2,
                output_padding=(1, 0),
            ),
            transposed((2, 8, 7, 9), (8, 3, 3, 3), strides=(2, 2), auto_pad="SAME_UPPER"),
            transposed((2, 8, 7, 9), (8, 3, 3, 3), strides=(2, 2), output_shape=(15, 18)),
            transposed((2, 8, 11), (8, 3, 5), strides=(2,), pads=(2, 2)),
            transposed((1, 4, 3, 4, 5), (4, 3, 2, 3, 3), strides=(2, 1, 2)),
        ]
    )


def pool(op: str, x: Sequence[int], symbolic: Symbolic | None = None, **attrs: Any) -> Case:
    return case([Node(op, ("x",), ("y",), attrs)], {"x": floats(*x)}, symbolic=symbolic)


def test_pooling() -> None:
    ones = (1, 1, 1, 1)
    check(
        [
            pool("MaxPool", (1, 8, 56, 56), kernel_shape=(3, 3), strides=(2, 2), pads=ones),
            pool("MaxPool", (1, 8, 13, 11), kernel_shape=(2, 3), strides=(2, 3), ceil_mode=1),
            pool("MaxPool", (1, 8, 13, 11), kernel_shape=(3, 3), dilations=(2, 2)),
            pool("MaxPool", (1, 2, 9, 8, 7), kernel_shape=(2, 3, 2), pads=(1, 1, 1, 1, 1, 1)),
            pool("MaxPool", (1, 2, 33), kernel_shape=(4,), strides=(4,)),
            pool("AveragePool", (1, 8, 13, 11), kernel_shape=(3, 3), pads=ones),
            pool("AveragePool", (1, 8, 13, 11), kernel_shape=(3, 3), pads=ones, count_include_pad=1),
            *(
                pool(
                    "AveragePool",
                    (1, 8, 13, 11),
                    kernel_shape=(3, 3),
                    strides=(2, 2),
                    pads=(0, 1, 1, 0),
                    count_include_pad=include,
                    ceil_mode=1,
                )
                for include in (0, 1)
            ),
            pool(
                "AveragePool",
                (1, 8, 13, 11),
                {"x": ("N", 8, "H", "W")},
                kernel_shape=(2, 2),
                strides=(2, 2),
                auto_pad="SAME_UPPER",
            ),
            pool("AveragePool", (1, 8, 14, 14), kernel_shape=(7, 7)),
            pool("AveragePool", (1, 8, 14, 14), kernel_shape=(14, 14)),
            pool("AveragePool", (1, 2, 9, 8, 7), kernel_shape=(2, 3, 2), pads=(1, 1, 1, 1, 1, 1)),
            pool("GlobalAveragePool", (2, 70, 7, 7)),
            pool("GlobalMaxPool", (2, 20, 5, 9)),
            pool("GlobalAveragePool", (2, 20, 50), {"x": ("N", 20, "W")}),
        ]
    )


def test_windows_of_stride_two_are_read_in_place() -> None:
    """Narrow and wide images, filters of one to five columns, and tiles of even and odd rows."""
    cases = []
    for width, down, (high, wide) in [
        (7, 2, (3, 3)), (14, 2, (5, 5)), (33, 1, (3, 4)), (67, 2, (3, 3)), (150, 2, (5, 5)), (64, 3, (1, 3)),
        (131, 2, (3, 2)), (70, 2, (2, 1)), (34, 2, (4, 3)),
    ]:  # fmt: skip
        shape, attrs = (2, 3, 19, width), {"strides": (down, 2), "pads": (high // 2, wide // 2, high // 3, wide // 3)}
        cases += [
            conv(shape, (3, 1, high, wide), "Relu", group=3, **attrs),
            conv(shape, (6, 1, high, wide), group=3, bias=False, **attrs),
            *(
                pool(op, shape, kernel_shape=(high, wide), **attrs, **more)
                for op, more in [("MaxPool", {}), ("AveragePool", {}), ("AveragePool", {"count_include_pad": 1})]
            ),
        ]
    cases += [
        pool(
            "MaxPool", (1, 2, 21, 70), {"x": ("N", 2, "H", "W")}, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)
        ),
        pool("AveragePool", (1, 2, 21, 70), kernel_shape=(3, 3), strides=(2, 2), ceil_mode=1),
        pool("MaxPool", (1, 2, 6, 9, 40), kernel_shape=(3, 3, 3), strides=(2, 2, 2), pads=(1, 1, 1, 1, 1, 1)),
        pool("AveragePool", (1, 2, 6, 9, 40), kernel_shape=(2, 2, 2), strides=(2, 2, 2)),
        replace(
            pool("MaxPool", (1, 2, 9, 70), kernel_shape=(3, 3), strides=(2, 2)),
            inputs={"x": -np.abs(floats(1, 2, 9, 70))},
        ),
        case(
            [Node("MaxPool", ("x",), ("y",), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)})],
            {"x": -np.abs(floats(1, 3, 30, 40))},
        ),
    ]
    found: dict[str, list[str]] = {}
    wide = pool("MaxPool", (1, 3, 56, 56), kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    for isa in ("avx512", "avx2", "portable"):
        for one in (cases[2], wide):
            items, _ = harness.lower(harness.make_graph(list(one.nodes), one.inputs), target=make_target(isa))
            found.setdefault(isa, []).extend(item.kernel.template for item in items or () if isinstance(item, Step))
    assert found == {
        "avx512": ["depthwise_rows"] * 2,
        "avx2": ["depthwise_rows", "depthwise_pool"],  # it copies lines of many outputs
        "portable": ["depthwise_pool"] * 2,
    }
    check(cases)


def any_channels() -> list[Case]:
    """Return pools of tensors whose extents are all known at run time only."""
    x: Symbolic = {"x": ("N", "C", "H", "W")}
    ones, cases = (1, 1, 1, 1), []
    for shape in ((2, 3, 13, 17), (1, 40, 8, 9), (3, 1, 4, 64), (0, 5, 9, 9), (1, 17, 5, 5)):
        halved = {"kernel_shape": (2, 2), "strides": (2, 2)}
        cases += [
            pool("MaxPool", shape, x, kernel_shape=(3, 3), pads=ones),
            pool("MaxPool", shape, x, **halved),
            pool("AveragePool", shape, x, kernel_shape=(3, 3), pads=ones),
            pool("AveragePool", shape, x, kernel_shape=(3, 3), pads=ones, count_include_pad=1, strides=(2, 2)),
            pool("AveragePool", shape, x, **halved),
        ]
        for kind in (np.int8, np.uint8):
            whole = np.round(80 * floats(*shape)).astype(np.int16).astype(kind)  # wraps around
            cases.append(case([Node("MaxPool", ("x",), ("y",), halved)], {"x": whole}, symbolic=x))
    return cases


def test_pooling_of_any_number_of_channels() -> None:
    cases = any_channels()
    # the epilogue reads a value for each channel
    nodes = [Node("MaxPool", ("x",), ("p",), {"kernel_shape": (3, 3)}), Node("Mul", ("p", "s"), ("y",))]
    free: Symbolic = {"x": ("N", "C", "H", "W"), "s": ("C", 1, 1)}
    cases.append(case(nodes, {"x": floats(2, 16, 9, 8), "s": floats(16, 1, 1)}, symbolic=free))
    double = {"x": np.asarray(floats(2, 5, 9, 8), np.float64)}
    node = Node("MaxPool", ("x",), ("y",), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)})
    cases.append(case([node], double, symbolic={"x": free["x"]}))
    check(cases)


def test_pooling_with_indices() -> None:
    cases = []
    for by_column in (0, 1):
        for shape, attrs in (
            ((2, 3, 9, 11), {"kernel_shape": (2, 3), "strides": (2, 3), "ceil_mode": 1}),
            ((1, 8, 13, 11), {"kernel_shape": (3, 3), "strides": (2, 1), "pads": (1, 0, 1, 1), "dilations": (1, 2)}),
            ((1, 2, 9, 8, 7), {"kernel_shape": (2, 3, 2), "pads": (1, 1, 1, 1, 1, 1)}),
            ((2, 2, 33), {"kernel_shape": (4,), "strides": (4,)}),
        ):
            node = Node("MaxPool", ("x",), ("y", "i"), {**attrs, "storage_order": by_column})
            cases += [case([node], {"x": x}) for x in (floats(*shape), np.round(floats(*shape)))]  # some are equal
            if len(shape) == 4:
                cases += [
                    case([node], {"x": np.abs(np.round(4 * floats(*shape))).astype(kind)})
                    for kind in (np.int8, np.uint8)
                ]
    check(cases)


def computed(one: Case) -> Case:
    """Return a case whose weights are inputs."""
    others = {name: value for name, value in one.constants.items() if name != "w"}
    return replace(one, inputs={**one.inputs, "w": one.constants["w"]}, constants=others)


def test_weights_that_steps_compute() -> None:
    cases = [
        conv((1, 16, 14, 14), (32, 16, 3, 3), "Relu", pads=(1, 1, 1, 1), residual=(1, 32, 14, 14)),
        conv((2, 6, 19, 23), (10, 3, 3, 5), pads=(2, 1, 0, 3), strides=(3, 2), dilations=(2, 1), group=2, bias=False),
        conv((1, 24, 16, 16), (30, 8, 1, 1), "Sigmoid", group=3),
        conv((1, 512, 7, 7), (70, 512, 3, 3), pads=(1, 1, 1, 1)),
        conv((1, 64, 9, 7), (64, 1, 3, 3), "Relu", group=64, auto_pad="SAME_UPPER"),
        conv((1, 5, 50), (7, 5, 4), pads=(2, 1), strides=(2,)),
        conv((1, 3, 6, 7, 8), (4, 3, 3, 3, 3), pads=(1, 1, 1, 1, 1, 1)),
        conv((0, 4, 3, 3), (5, 4, 1, 1), symbolic={"x": ("N", 4, 3, 3)}),
        conv((2, 16, 13, 17), (20, 16, 3, 3), "HardSwish", pads=(1, 1, 1, 1), symbolic=ANY_SIZE),
        conv((1, 7, 14, 9), (7, 5, 3, 3), strides=(2, 2), op="ConvTranspose"),
        conv((2, 8, 5, 6), (8, 3, 4, 4), "Relu", strides=(2, 2), pads=(1, 1, 1, 1), group=2, op="ConvTranspose"),
        conv((2, 16, 5, 4), (16, 8, 2, 2), strides=(2, 2), op="ConvTranspose", symbolic=ANY_SIZE),
    ]
    check([computed(one) for one in cases])


def test_weights_in_double_precision_that_steps_compute() -> None:
    x, w = (np.asarray(floats(*s), np.float64) for s in ((1, 4, 9, 8), (6, 4, 3, 3)))
    nodes = [Node("Conv", ("x", "w"), ("y",), {"kernel_shape": (3, 3)})]
    check([Case(nodes, {"x": x, "w": w}, rtol=1e-12, atol=1e-12)])


@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_a_model_that_computes_its_filters(dtype: str) -> None:
    """Filters come from a product, and a part of them transposes another convolution."""
    body = """
        zero = Constant<value_ints = [0]>() four = Constant<value_ints = [4]>()
        shape = Constant<value_ints = [6, 4, 3, 3]>() flat = MatMul(z, m) w = Reshape(flat, shape)
        y = Conv<pads = [1, 1, 1, 1]>(x, w)
        part = Slice(w, zero, four, zero) u = ConvTranspose<pads = [1, 1, 1, 1]>(x, part)
    """
    ports = (
        f"({dtype}[N, 4, 8, 9] x, {dtype}[1, 8] z, {dtype}[8, 216] m) => ({dtype}[N, 6, 8, 9] y, {dtype}[N, 4, 8, 9] u)"
    )
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> g {ports} {{ {body} }}')
    program = rewrite.compile(proto, threads=2)
    assert program.fallbacks() == {}
    kind = np.float32 if dtype == "float" else np.float16
    feeds = {"x": floats(2, 4, 8, 9).astype(kind), "z": floats(1, 8).astype(kind), "m": floats(8, 216).astype(kind) / 8}
    tolerance = 1e-4 if dtype == "float" else 2e-2
    for name, value in onnx_runtime(proto).run(feeds).items():
        np.testing.assert_allclose(program.run(feeds)[name], value, rtol=tolerance, atol=tolerance)
