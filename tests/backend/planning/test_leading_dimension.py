"""Columns of wider tensors: Concat, Split and Slice along the last axis without copies, compared with ONNX Runtime.

Graphs have their channels first, for the oracle, and are compiled with channels last.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rewrite.backend.bundle.load_bundle import load
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.ir.kernel_graph import Join, Step, View
from rewrite.backend.ir.target import make_target, runs_here
from rewrite.backend.runtime.fallback import FallbackWarning
from rewrite.backend.runtime.program import Program
from rewrite.benchmarks import harness
from rewrite.engine.ir import symbolic
from rewrite.engine.ir.graph import DType, Graph, Node, TensorType

from ..kernels.oracle import Array, Case, oracle

RNG = np.random.default_rng(41)
NAMES = {"Conv": "rewrite.ChannelsLastConv", **{p: f"rewrite.ChannelsLast{p}" for p in ("MaxPool", "AveragePool")}}
PADS = (1, 1, 1, 1)


def floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


def ints(*values: int) -> Array:
    return np.asarray(values, np.int64)


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> Node:
    return Node(op, tuple(inputs.split()), tuple(outputs.split()), attrs, name=outputs)


def turned(array: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if array.ndim == 4 else array


def channels_last(case: Case, expected: Mapping[str, Array], batch: str | None) -> Graph:
    """Return the graph of a case with channels last; `batch` may name the number of images."""

    def changed(one: Node) -> Node:
        attrs = {k: 3 if k == "axis" and v == 1 else v for k, v in one.attrs.items()}
        return replace(one, op=NAMES.get(one.op, one.op), attrs=attrs)

    constants = {k: turned(v) if k.startswith("image") else v for k, v in case.constants.items()}
    constants |= {k: ints(3) for k in constants if k == "axes"}
    constants |= {k: v[[0, 2, 3, 1]] for k, v in constants.items() if k == "scales"}
    shapes = {k: turned(v).shape for k, v in (*expected.items(), *case.inputs.items())}
    dims: dict[str, tuple[Any, ...]] = {
        k: s if batch is None else (symbolic.symbol(batch), *s[1:]) for k, s in shapes.items()
    }
    types = {k: TensorType(DType.F32, d) for k, d in dims.items()}
    return harness.make_graph(
        [changed(n) for n in case.nodes],
        {k: types[k] for k in case.inputs},
        constants=constants,
        outputs=case.outputs,
        types={k: types[k] for k in expected},
    )


def agree(program: Program, case: Case, expected: Mapping[str, Array]) -> None:
    feeds = {k: turned(v) for k, v in case.inputs.items()}
    for _ in range(2):  # what an earlier run left in the memory must not matter
        for name, found in program.run(feeds).items():
            want = turned(expected[name])
            bound = 2e-5 * max(1.0, float(np.abs(want).max(initial=0)))
            np.testing.assert_allclose(found, want, rtol=0, atol=bound, err_msg=name)


def copies(program: Program) -> int:
    return sum(isinstance(i, Step) and i.kernel.template == "copy" for i in program.plan.items)


def check(case: Case, left: int, *, batch: str | None = None, threads: Sequence[int] = (1, 3)) -> Program:
    """Compare the results for several thread counts and targets, and count the remaining copies."""
    expected = oracle(case)
    for target in os.environ.get("REWRITE_TEST_TARGETS", "native,avx2,portable").split(","):
        if not runs_here(make_target(target)):
            continue
        for count in threads if target == "native" else (2,):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FallbackWarning)
                program = compile_graph(channels_last(case, expected, batch), threads=count, target=target)
            assert not any(i.leading_dimension for i in program.plan.items if isinstance(i, View | Join))
            assert copies(program) == left
            agree(program, case, expected)
    return program


def fan(n: int, c: int, h: int, w: int) -> Case:
    """Every kernel that writes columns, with every kernel that reads columns."""
    nodes = [
        node("Conv", "x w1 b1", "p"),  # a product of matrices
        node("Relu", "p", "a"),
        node("Conv", "a w3", "b", pads=PADS),  # by Winograd's minimal filtering where it is large
        node("Conv", "b w5 b5", "c", pads=(2, 2, 2, 2)),  # an implicit product
        node("Conv", "c wd", "q", pads=PADS, group=20),  # depthwise
        node("Add", "q c", "d"),
        node("MaxPool", "d", "e", kernel_shape=(3, 3), pads=PADS, strides=(1, 1)),
        node("AveragePool", "e", "f", kernel_shape=(2, 3), pads=(0, 1, 1, 1), strides=(1, 1)),
        node("LeakyRelu", "f", "g", alpha=0.25),
        node("Resize", "half none scales", "r", mode="nearest"),
        node("Resize", "half none scales", "s", mode="linear"),
        node("Concat", "a b c d e f g r s", "joined", axis=1),
        node("Conv", "joined wy", "y"),
    ]
    constants = {
        "w1": floats(37, c, 1, 1) / 4,
        "b1": floats(37),
        "w3": floats(64, 37, 3, 3) / 16,
        "w5": floats(20, 64, 5, 5) / 40,
        "b5": floats(20),
        "wd": floats(20, 1, 3, 3),
        "none": np.zeros(0, np.float32),
        "scales": np.asarray([1, 1, 2, 2], np.float32),
        "wy": floats(9, 37 + 64 + 20 * 5 + 2 * 7, 1, 1) / 8,
    }
    inputs = {"x": floats(n, c, h, w), "half": floats(n, 7, h // 2, w // 2)}
    return Case(nodes, inputs, constants, ["y"])


@pytest.mark.parametrize(("shape", "batch"), [((1, 16, 12, 10), None), ((3, 5, 6, 4), None), ((2, 24, 8, 14), "N")])
def test_every_kernel_makes_and_reads_columns(shape: tuple[int, int, int, int], batch: str | None) -> None:
    check(fan(*shape), 0, batch=batch)


def test_chains_are_one_buffer() -> None:
    """As in DenseNet: each join is an operand of the next one, and others read it as columns of the last."""
    nodes, constants, width = [node("Conv", "x w", "c0", pads=PADS)], {"w": floats(40, 9, 3, 3) / 8}, 40
    for i in range(3):
        nodes += [
            node("Relu", f"c{i}", f"r{i}"),
            node("Conv", f"r{i} v{i}", f"s{i}"),
            node("Conv", f"s{i} w{i}", f"d{i}", pads=PADS),
            node("Concat", f"c{i} d{i}", f"c{i + 1}", axis=1),
        ]
        constants |= {f"v{i}": floats(24, width, 1, 1) / 6, f"w{i}": floats(12, 24, 3, 3) / 12}
        width += 12
    nodes.append(node("Sigmoid", "c3", "y"))
    program = check(Case(nodes, {"x": floats(1, 9, 14, 11)}, constants, ["y"]), 0)
    whole = {program._link.storage.locate(f"{v}{i}").root for v in "cd" for i in range(3)}
    assert len(whole) == 1


def test_parts_are_read_where_they_are() -> None:
    """As in YOLO: one half of a result goes through more kernels, and both halves are joined with their output."""
    nodes = [
        node("Conv", "x w", "p"),
        node("Split", "p", "a b", axis=1, num_outputs=2),
        node("Conv", "b v", "c", pads=PADS),
        node("Add", "c b", "d"),
        node("Conv", "d v", "e", pads=PADS),
        node("Concat", "a b d e", "joined", axis=1),
        node("Conv", "joined u", "f"),
        node("Slice", "f from to axes", "g"),
        node("MaxPool", "g", "y", kernel_shape=(3, 3), pads=PADS, strides=(1, 1)),
        node("Slice", "f none from axes", "h"),
        node("Softmax", "h", "z", axis=1),  # its kernel takes no columns
    ]
    constants = {
        "w": floats(36, 10, 1, 1) / 3,
        "v": floats(18, 18, 3, 3) / 12,
        "u": floats(21, 72, 1, 1) / 8,
        "from": ints(5),
        "to": ints(20),
        "none": ints(0),
        "axes": ints(1),
    }
    check(Case(nodes, {"x": floats(2, 10, 9, 8)}, constants, ["y", "z"]), 1)


def test_what_cannot_be_made_in_its_place_is_copied() -> None:
    nodes = [
        node("Conv", "x w", "a"),
        node("Conv", "a v", "b", pads=PADS),
        node("Softmax", "b", "s", axis=1),
        node("Concat", "x b a b image s", "y", axis=1),  # an input, twice the same, a constant, a result of the model
        node("Concat", "a b", "z", axis=1),
        node("Concat", "x x", "t", axis=1),
    ]
    constants = {"w": floats(13, 6, 1, 1), "v": floats(17, 13, 3, 3) / 10, "image": floats(2, 3, 7, 5)}
    check(Case(nodes, {"x": floats(2, 6, 7, 5)}, constants, ["y", "z", "t", "a"]), 3)


def test_bundles_hold_columns(tmp_path: Path) -> None:
    case = fan(1, 16, 8, 8)
    expected = oracle(case)
    program = compile_graph(channels_last(case, expected, None), threads=2)
    agree(load(program.save(tmp_path / "m.rewrite")), case, expected)


def test_columns_of_rounded_channels() -> None:
    """In bf16, with whole numbers that it has: tiles of AMX read and write columns, vectors of words read copies."""
    to, back = {"to": DType.BF16.onnx}, {"to": DType.F32.onnx}
    conv = "rewrite.ChannelsLastConvBf16"
    nodes = [
        node(conv, "x w", "a"),
        node("Cast", "a", "p", **to),
        node("Split", "p sizes", "p0 p1 p2", axis=3),
        node(conv, "p1 v", "b", pads=PADS),
        node("Cast", "b", "q", **to),
        node("Concat", "p0 p1 p2 q", "joined", axis=3),
        node("Cast", "joined", "wide", **back),
        node("Relu", "wide", "r"),
        node("Cast", "r", "positive", **to),
        node(conv, "positive u", "y"),
        node(conv, "p2 t", "z"),
    ]

    def sparse(*shape: int) -> Array:
        return np.asarray(RNG.integers(-1, 2, shape) * (RNG.random(shape) < 0.06), np.float32)

    constants = {
        "w": sparse(48, 32, 1, 1),
        "v": sparse(20, 16, 3, 3),
        "u": sparse(40, 68, 1, 1),
        "t": sparse(50, 17, 1, 1),
        "sizes": ints(17, 16, 15),
    }
    constants["t"] = constants["t"][:, :15]
    x = np.asarray(RNG.integers(-2, 3, (2, 9, 11, 32)), np.float32)

    def pointwise(image: Array, weights: str) -> Array:
        return np.asarray(image @ constants[weights][:, :, 0, 0].T)

    parts = pointwise(x, "w")
    views = np.lib.stride_tricks.sliding_window_view(
        np.pad(parts[..., 17:33], ((0, 0), (1, 1), (1, 1), (0, 0))), (3, 3), (1, 2)
    )
    joined = np.concatenate([parts, np.einsum("nhwcij,mcij->nhwm", views, constants["v"])], -1)
    assert 8 < np.abs(joined).max() <= 256
    expected = {"y": pointwise(np.maximum(joined, 0), "u"), "z": pointwise(parts[..., 33:], "t")}
    feeds = {"x": x.astype(DType.BF16.numpy)}
    graph = harness.make_graph(nodes, feeds, constants=constants, outputs=("y", "z"))
    for target in ("native", "avx2", "portable"):
        if not runs_here(make_target(target)):
            continue
        for threads in (1, 3):
            program = compile_graph(graph, threads=threads, target=target)
            if "amx_bf16" in make_target(target).features:
                assert copies(program) == 0
            for name, found in program.run(feeds).items():
                np.testing.assert_array_equal(found, expected[name], err_msg=f"{target} {threads} {name}")
