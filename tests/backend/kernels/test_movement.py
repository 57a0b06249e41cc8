"""Operators that move elements against the oracle: shapes, element sizes, steps, empty tensors, run-time dims."""

from __future__ import annotations

import math
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rewrite.backend.codegen.render import render_kernel
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.target import detect, make_target
from rewrite.backend.kernels.movement.copies import Columns, copy_columns
from rewrite.benchmarks import harness, machine_code
from rewrite.engine.ir.graph import DType, Node, TensorType
from rewrite.engine.ir.symbolic import symbol

from .oracle import Array, Case, check, unary

RNG = np.random.default_rng(11)
N, S = symbol("N"), symbol("S")


def floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape) * 2, np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def _with(op: str, x: Array, constants: dict[str, Array], *, outputs: tuple[str, ...] = ("y",), **attrs: Any) -> Case:
    """Return a case of one node whose inputs after the first are constants."""
    return Case([Node(op, ("x", *constants), outputs, attrs)], {"x": x}, constants)


def test_transpose() -> None:
    shapes = [
        ((3, 5), (1, 0)),
        ((40, 70), (1, 0)),
        ((64, 64), (1, 0)),
        ((2, 3, 33, 17), (0, 2, 1, 3)),
        ((2, 3, 33, 17), (0, 2, 3, 1)),
        ((2, 33, 17, 3), (0, 3, 1, 2)),
        ((2, 3, 4, 5), (3, 2, 1, 0)),
        ((2, 20, 50), (2, 0, 1)),
        ((16, 17), (1, 0)),
        ((31, 15), (1, 0)),
        ((5, 16, 90), (2, 1, 0)),
        ((7,), (0,)),
        ((3, 0, 2), (2, 1, 0)),
        ((1, 5, 1, 3), (3, 2, 1, 0)),
        ((3, 4, 2, 200), (1, 2, 0, 3)),
    ]
    cases = [unary("Transpose", floats(*shape), perm=perm) for shape, perm in shapes] + [
        unary("Transpose", floats(4, 3))
    ]
    for dtype in (np.uint8, np.float16, np.int64, np.bool_):
        cases += [unary("Transpose", (floats(40, 35) * 9).astype(dtype), perm=(1, 0))]
    check(cases)


def test_slice() -> None:
    x = floats(6, 7, 20)
    last = np.iinfo(np.int64).max
    slices: list[tuple[tuple[int, ...], ...]] = [
        ((1,), (4,), (0,), (1,)),
        ((0, 2), (-1, 7), (1, 2), (1, 1)),
        ((-1,), (-last,), (2,), (-1,)),
        ((0,), (last,), (2,), (3,)),
        ((15, 5), (-100, 0), (2, 0), (-4, -2)),
        ((3,), (3,), (1,), (1,)),
        ((100,), (200,), (1,), (1,)),
        ((-100, -3), (100, -1), (0, 2), (2, 1)),
    ]
    cases = []
    for starts, ends, axes, steps in slices:
        constants = {"starts": ints(*starts), "ends": ints(*ends), "axes": ints(*axes), "steps": ints(*steps)}
        cases += [_with("Slice", x, constants), _with("Slice", (x * 9).astype(np.int8), constants)]
    cases.append(_with("Slice", x, {"starts": ints(1, 2, 3), "ends": ints(4, 5, 6)}))
    check(cases)


def test_concat_and_split() -> None:
    cases = []
    for axis in (0, 1, 2, -1):
        shapes = [[2, 3, 4], [2, 3, 4], [2, 3, 4]]
        shapes[1][axis], shapes[2][axis] = 1, 7
        inputs = {f"x{k}": floats(*shape) for k, shape in enumerate(shapes)}
        cases.append(Case([Node("Concat", tuple(inputs), ("y",), {"axis": axis})], inputs))
        joined = np.concatenate(list(inputs.values()), axis)
        sizes = ints(*(s[axis] for s in shapes))
        cases.append(_with("Split", joined, {"sizes": sizes}, outputs=("a", "b", "c"), axis=axis))
    x = floats(5, 8)
    cases.append(Case([Node("Concat", ("x", "x"), ("y",), {"axis": 1})], {"x": x}))
    cases.append(Case([Node("Concat", ("x",), ("y",), {"axis": 1})], {"x": x}))
    cases.append(Case([Node("Split", ("x",), ("a", "b", "c"), {"axis": 1, "num_outputs": 3})], {"x": x}))
    inputs = {"x": floats(0, 3), "y": floats(2, 3)}
    cases.append(Case([Node("Concat", ("x", "y"), ("z",), {"axis": 0})], inputs))
    check(cases)


def test_expand_and_tile() -> None:
    cases = []
    for shape, to in (((3, 1), (2, 3, 6)), ((1,), (4,)), ((), (2, 2)), ((5, 1, 40), (5, 3, 40)), ((1, 4), (0, 4))):
        cases.append(_with("Expand", floats(*shape), {"to": ints(*to)}))
    for shape, repeats in (
        ((3, 4), (2, 1)),
        ((3, 4), (1, 3)),
        ((2, 3, 4), (2, 2, 2)),
        ((5,), (3,)),
        ((1, 7), (4, 1)),
        ((2,), (0,)),
    ):
        cases.append(_with("Tile", floats(*shape), {"repeats": ints(*repeats)}))
    check(cases)


def test_depth_and_space() -> None:
    cases = [unary("DepthToSpace", floats(2, 12, 3, 5), blocksize=2, mode=mode) for mode in ("DCR", "CRD")]
    cases += [
        unary("SpaceToDepth", floats(2, 3, 6, 8), blocksize=2),
        unary("SpaceToDepth", floats(1, 1, 3, 3), blocksize=3),
    ]
    check(cases)


def test_long_rows() -> None:
    x = floats(5, 3, 400)
    parts = {"s": ints(1, 100), "e": ints(4, 390), "a": ints(0, 2), "t": ints(2, 1)}
    cases = [
        _with("Slice", x, parts),
        _with("Slice", x.astype(np.int64), parts),
        _with("Split", x, {"s": ints(1, 2)}, outputs=("y", "z"), axis=1),
        _with("Concat", x, {"b": floats(5, 1, 400), "c": floats(5, 4, 400)}, axis=1),
        _with("Expand", floats(2, 1, 1, 300), {"s": ints(2, 3, 4, 300)}),
        _with("Tile", floats(3, 2, 200), {"s": ints(2, 1, 3)}),
    ]
    check(cases)


def test_copies_of_long_rows_share_a_kernel() -> None:
    def step(leading: int, *shape: int) -> Step:
        return copy_columns([(Columns("x", leading, 8), Columns("y", shape[-1]), shape)], DType.F32, ())

    first, second = step(960, 7, 480), step(700, 9, 192)
    assert first.kernel == second.kernel
    assert first.dims != second.dims
    assert step(960, 7, 100).kernel != step(960, 9, 100).kernel


def _transposition(*shape: int | str) -> Step:
    """Return the step that exchanges the last two axes of a tensor; letters are sizes known at run time only."""
    dims = [symbol(n) if isinstance(n, str) else n for n in shape]
    kind = {"y": TensorType(DType.F32, (*dims[:-2], dims[-1], dims[-2]))}
    node = Node("Transpose", ("x",), ("y",), {"perm": [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]})
    x = floats(*(n if isinstance(n, int) else 24 for n in shape))
    graph = harness.make_graph([node], {"x": x}, symbolic_shapes={"x": shape}, types=kind)
    items, _ = harness.lower(graph)
    [step] = [item for item in items or () if isinstance(item, Step)]
    return step


def test_transpositions_of_whole_blocks_share_a_kernel() -> None:
    """Whatever their sizes, and whether these are known: few rows or columns have code of their own."""
    first, *others = (_transposition(*shape) for shape in ((2, 48, 32), (2, "W", 96), ("N", 256, "W"), (5, 20, 64)))
    assert {step.kernel for step in others} == {first.kernel}
    assert _transposition(2, 48, 5).kernel != first.kernel


@pytest.mark.skipif(
    platform.machine() != "x86_64" or machine_code.find_disassembler() is None, reason="no code of AVX2 to look at"
)
def test_odd_blocks_are_transposed_by_short_code(tmp_path: Path) -> None:
    """No caller's numbers are compiled in: gcc would unroll and vectorize both loops for them."""
    functions = machine_code.compiled([_transposition(2, 8, "W").kernel], make_target("avx2"), tmp_path)
    lengths = [len(code) for name, code in functions.items() if name.startswith("k_transpose_some_uint32_t")]
    assert len(lengths) == 1
    assert lengths[0] < 100, "all columns side by side"


def test_dims_known_at_run_time() -> None:
    f32, cases = DType.F32, []
    for n, s in ((2, 20), (1, 1), (0, 3), (3, 64)):
        x, dims = {"x": floats(n, s, 6)}, {"x": ("N", "S", 6)}
        cases.append(
            Case(
                [Node("Transpose", ("x",), ("y",), {"perm": (0, 2, 1)})],
                x,
                symbolic=dims,
                types={"y": TensorType(f32, (N, 6, S))},
            )
        )
        heads = [Node("Split", ("x",), ("a", "b"), {"axis": 2, "num_outputs": 2})]
        halves = {k: TensorType(f32, (N, S, 3)) for k in "ab"}
        cases.append(Case(heads, x, symbolic=dims, types=halves))
        both = {"x": floats(n, s, 6), "z": floats(n, 2, 6)}
        joined = {"y": TensorType(f32, (N, S + 2, 6))}
        node = Node("Concat", ("x", "z"), ("y",), {"axis": 1})
        cases.append(Case([node], both, symbolic={"x": ("N", "S", 6), "z": ("N", 2, 6)}, types=joined))
        if s > 1:
            last = {"starts": ints(-1), "ends": ints(np.iinfo(np.int64).max), "axes": ints(1)}
            slice_ = Node("Slice", ("x", *last), ("y",))
            cases.append(Case([slice_], x, last, symbolic=dims, types={"y": TensorType(f32, (N, 1, 6))}))
        wide = Node("Expand", ("x", "to"), ("y",))
        thin = {"x": floats(n, 1, 6)}
        kind = {"y": TensorType(f32, (N, 5, 6))}
        cases.append(Case([wide], thin, {"to": ints(1, 5, 1)}, symbolic={"x": ("N", 1, 6)}, types=kind))
    check(cases)


@pytest.mark.parametrize(
    ("shape", "perm", "loops"),
    [
        (("H", "W", 12), (2, 0, 1), ("j < 12", "k < 16")),
        ((3, "H", "W"), (1, 2, 0), ("j < 16", "k < 3")),
    ],
)
def test_loops_over_few_channels_of_images_of_any_size_have_known_lengths(
    shape: tuple[int | str, ...], perm: tuple[int, ...], loops: tuple[str, str]
) -> None:
    """The compiler makes vectors of them then."""
    node, cases = Node("Transpose", ("x",), ("y",), {"perm": perm}), []
    dims = [symbol(n) if isinstance(n, str) else n for n in shape]
    kind = {"y": TensorType(DType.F32, tuple(dims[axis] for axis in perm))}
    for h, w in ((1, 1), (2, 8), (3, 5), (4, 4), (7, 9)):
        extents = {"H": h, "W": w}
        x = floats(*(extents[n] if isinstance(n, str) else n for n in shape))
        cases.append(Case([node], {"x": x}, symbolic={"x": shape}, types=kind))
    check(cases)
    graph = harness.make_graph([node], cases[0].inputs, symbolic_shapes={"x": shape}, types=kind)
    items, _ = harness.lower(graph)
    assert items is not None
    [step] = [item for item in items if isinstance(item, Step)]
    source = render_kernel(step.kernel, detect()).source
    assert all(loop in source for loop in loops)


def test_col2im() -> None:
    cases = []
    for image, block, attrs in (
        ((5, 7), (2, 3), {}),
        ((5, 7), (2, 3), {"pads": (1, 2, 0, 1)}),
        ((9, 8), (2, 2), {"strides": (2, 3), "dilations": (3, 2), "pads": (1, 0, 2, 1)}),
        ((6,), (3,), {"strides": (2,), "pads": (2, 3)}),
        ((4, 5, 3), (2, 2, 1), {"strides": (1, 2, 1)}),
        ((1, 1), (3, 3), {"pads": (1, 1, 1, 1)}),
    ):
        rank = len(image)
        pads, strides, dilations = (
            attrs.get(key, default)
            for key, default in (("pads", (0,) * 2 * rank), ("strides", (1,) * rank), ("dilations", (1,) * rank))
        )
        counts = [
            (image[a] + pads[a] + pads[a + rank] - dilations[a] * (block[a] - 1) - 1) // strides[a] + 1
            for a in range(rank)
        ]
        x = np.asarray(RNG.standard_normal((2, 3 * math.prod(block), math.prod(counts))), np.float32)
        constants = {"image": np.array(image), "block": np.array(block)}
        for value in (x, (x * 9).astype(np.int32), x.astype(np.float64)):
            node = Node("Col2Im", ("x", "image", "block"), ("y",), attrs)
            cases.append(Case([node], {"x": value}, constants, reference=value is not x))
    check(cases)
