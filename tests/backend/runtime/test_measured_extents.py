"""Operators whose results have as many elements as data choose: kernels count, and later steps know the size."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnx.parser
import pytest
import rewrite
from onnx.reference import ReferenceEvaluator
from rewrite.backend.bundle.c_plan import refusal
from rewrite.backend.ir.kernel_graph import Measure
from rewrite.backend.runtime.program import Program
from rewrite.errors import UserError

RNG = np.random.default_rng(5)
Arrays = dict[str, Any]


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def model(body: str, inputs: str, outputs: str = "y") -> onnx.ModelProto:
    """Return a model of this body; its outputs have no stated types."""
    named = ", ".join(f"float {name}" for name in outputs.split())
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 22]> g ({inputs}) => ({named}) {{ {body} }}')
    for output in proto.graph.output:
        output.ClearField("type")
    return proto


def onnxruntime(proto: onnx.ModelProto, feeds: Arrays) -> list[Any]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    return list(ort.InferenceSession(proto.SerializeToString(), options).run(None, feeds))


def check(proto: onnx.ModelProto, *feeds: Arrays, reference: bool = False) -> rewrite.Program:
    """Compile a model and compare each run with ONNX Runtime, or the reference; return the program.

    Inputs of known sizes run again without Python between the stages."""
    program = rewrite.compile(proto, threads=2)
    assert program.fallbacks() == {}
    assert any(isinstance(item, Measure) for item in program.plan.items)
    expected = [ReferenceEvaluator(proto).run(None, one) if reference else onnxruntime(proto, one) for one in feeds]

    def compare() -> None:
        for one, results in zip(feeds, expected, strict=True):
            found = program.run(one)
            for name, wanted in zip(program.plan.outputs, results, strict=True):
                assert found[name].dtype == wanted.dtype
                np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-6)

    compare()
    with without_python():
        compare()
    return program


def without_python() -> Any:
    """Let runs fail in which Python drives the stages."""
    return mock.patch.object(Program, "_execute", side_effect=AssertionError("Python ran a stage"))


def test_non_zero() -> None:
    proto = model("y = NonZero(x)", "float[A, 3, B] x")
    sparse = [np.where(RNG.random(shape) > density, floats(*shape), 0) for shape, density in
              (((2, 3, 4), 0.5), ((2, 3, 4), 1.1), ((1, 3, 1), -1), ((0, 3, 2), 0), ((5, 3, 300), 0.99))]  # fmt: skip
    check(proto, *({"x": x.astype(np.float32)} for x in sparse))
    check(model("y = NonZero(x)", "float[4] x"), {"x": np.array([0.0, -0.0, np.nan, np.inf], np.float32)})


@pytest.mark.parametrize("kind", ["float16", "double", "int64", "int8", "bool"])
def test_non_zero_of_any_type(kind: str) -> None:
    dtype = np.dtype({"double": "float64"}.get(kind, kind))
    x = (RNG.integers(0, 2, (4, 5)) * RNG.integers(1, 9, (4, 5))).astype(dtype)
    check(model("y = NonZero(x)", f"{kind}[4, 5] x"), {"x": x}, reference=True)


@pytest.mark.parametrize("attrs", ["", "<axis = 0>", "<axis = 1>", "<axis = -1>"])
def test_compress(attrs: str) -> None:
    proto = model(f"y = Compress{attrs}(x, c)", "float[A, B] x, bool[C] c")
    conditions = [[True, False, True], [False, False], [True], [False, True, True]]
    check(proto, *({"x": floats(3, 4), "c": np.array(c)} for c in conditions))


def test_compress_of_any_type() -> None:
    for kind, dtype in (("int64", np.int64), ("uint8", np.uint8), ("double", np.float64), ("bool", np.bool_)):
        proto = model("y = Compress<axis = 1>(x, c)", f"{kind}[2, 3, 2] x, bool[3] c")
        check(proto, {"x": RNG.integers(0, 2, (2, 3, 2)).astype(dtype), "c": np.array([True, False, True])})


def _boxes(images: int, count: int) -> Any:
    corners = np.abs(floats(images, count, 2)) * 50
    return np.concatenate((corners, corners + 10 + np.abs(floats(images, count, 2)) * 60), 2)


@pytest.mark.parametrize("center", [0, 1])
def test_non_max_suppression(center: int) -> None:
    body = f"y = NonMaxSuppression<center_point_box = {center}>(b, s, m, i, t)"
    proto = model(body, "float[B, N, 4] b, float[B, C, N] s, int64[1] m, float[1] i, float[1] t")
    feeds = []
    for images, classes, count, most, overlap, least in (
        (1, 1, 50, 20, 0.5, 0.3), (2, 3, 200, 7, 0.3, -1), (1, 2, 0, 5, 0.5, 0), (2, 1, 90, 1 << 40, 0.0, 0.5),
        (1, 1, 30, 0, 0.5, 0), (1, 1, 30, 30, 1.0, 9.0),
    ):  # fmt: skip
        scores = np.round(np.abs(floats(images, classes, count)) * 4) / 4  # many are equal
        limits = {"m": np.array([most]), "i": np.array([overlap], np.float32), "t": np.array([least], np.float32)}
        feeds.append({"b": _boxes(images, count), "s": scores.astype(np.float32), **limits})
    check(proto, *feeds)


def test_non_max_suppression_without_limits() -> None:
    feeds = {"b": np.ascontiguousarray(_boxes(1, 20)[..., [2, 1, 0, 3]]), "s": floats(1, 2, 20)}
    check(model("y = NonMaxSuppression(b, s)", "float[1, 20, 4] b, float[1, 2, 20] s"), feeds)
    limit = model(
        "m = Constant<value_ints = [9]>() y = NonMaxSuppression(b, s, m)", "float[1, 20, 4] b, float[1, 2, 20] s"
    )
    check(limit, feeds)


def test_boxes_that_overlap_by_exactly_the_limit_are_kept() -> None:
    boxes = np.array([[[0, 0, 2, 2], [0, 1, 2, 3], [0, 0.5, 2, 2.5]]], np.float32)
    feeds = {
        "b": boxes,
        "s": np.array([[[3, 2, 1]]], np.float32),
        "m": np.array([3]),
        "i": np.array([1 / 3], np.float32),
    }
    inputs = "float[1, 3, 4] b, float[1, 1, 3] s, int64[1] m, float[1] i"
    program = check(model("y = NonMaxSuppression(b, s, m, i)", inputs), feeds)
    np.testing.assert_array_equal(program.run(feeds)["y"], [[0, 0, 0], [0, 0, 1]])


DETECTOR = """
    kept = NonMaxSuppression(b, s, m, i, t)
    two = Constant<value_ints = [2]>() three = Constant<value_ints = [3]>() axis = Constant<value_ints = [1]>()
    zero = Constant<value_ints = [0]>()
    column = Slice(kept, two, three, axis)
    at = Squeeze(column, axis)
    first = Squeeze(b, zero)
    chosen = Gather<axis = 0>(first, at)
    y = Relu(chosen)
    shape = Shape(y)
    z = ConstantOfShape(shape)
"""


def test_steps_go_on_with_the_size() -> None:
    inputs = "float[1, N, 4] b, float[1, 2, N] s, int64[1] m, float[1] i, float[1] t"
    limits = {"m": np.array([20]), "i": np.array([0.5], np.float32), "t": np.array([0.1], np.float32)}
    feeds = [{"b": _boxes(1, n), "s": floats(1, 2, n), **limits} for n in (40, 100, 3, 40)]
    check(model(DETECTOR, inputs, "y z"), *feeds)


def test_two_results_have_sizes_of_their_own() -> None:
    proto = model("y = NonZero(a) z = NonZero(b)", "float[4] a, float[4] b", "y z")
    a, b = np.array([0, 1, 2, 0], np.float32), np.array([1, 1, 1, 0], np.float32)
    check(proto, {"a": a, "b": b}, {"a": b, "b": a})


def chosen(*shape: int) -> Any:
    """Return numbers of which about half are zero, in another place each time."""
    return (floats(*shape) * (RNG.random(shape) < RNG.random())).astype(np.float32)


def test_counts_change_from_run_to_run() -> None:
    feeds = [{"x": chosen(6, 50)} for _ in range(40)]
    check(model("y = NonZero(x)", "float[A, B] x"), *feeds, {"x": np.zeros((6, 50), np.float32)})
    limits = {"m": np.array([30]), "i": np.array([0.5], np.float32), "t": np.array([0.1], np.float32)}
    inputs = "float[1, N, 4] b, float[1, 2, N] s, int64[1] m, float[1] i, float[1] t"
    check(model(DETECTOR, inputs, "y z"), *({"b": _boxes(1, 60), "s": floats(1, 2, 60), **limits} for _ in range(40)))


def test_stages_of_many_steps() -> None:
    """Buffers of a stage whose sizes are expressions in two counts, on both threads."""
    body = """
        c = Cast<to = 9>(x) p = Compress<axis = 0>(w, c) d = Cast<to = 9>(u) q = Compress<axis = 0>(v, d)
        both = Concat<axis = 0>(p, q) e = Exp(both) r = Transpose(e) square = MatMul(e, r) soft = Softmax(square)
        y = ReduceSum(soft) shape = Shape(square) z = Add(shape, k) s = Relu(p)
    """
    proto = model(body, "float[A] x, float[A, 40] w, float[B] u, float[B, 40] v, int64[2] k", "soft y z s")
    feeds = [
        {"x": chosen(n), "w": floats(n, 40) / 4, "u": chosen(90), "v": floats(90, 40) / 4, "k": np.array([7, n])}
        for n in (70, 70, 300, 70, 300, 300)
    ]
    check(proto, *feeds)


def test_counts_that_do_not_fit_together() -> None:
    proto = model("n = NonZero(a) m = NonZero(b) y = Add(n, m)", "float[4] a, float[4] b")
    program = rewrite.compile(proto, threads=1)
    two, three = np.array([0, 1, 2, 0], np.float32), np.array([1, 1, 1, 0], np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(program.run({"a": two, "b": two})["y"], [[2, 4]])
        with pytest.raises(UserError, match="broadcast"):
            program.run({"a": two, "b": three})
    one = np.array([0, 0, 0, 1], np.float32)
    np.testing.assert_array_equal(program.run({"a": one, "b": three})["y"], [[3, 4, 5]])


def test_outputs_outlive_later_runs() -> None:
    program = rewrite.compile(model("y = NonZero(x)", "float[N] x"), threads=1)
    found = [(x, program.run({"x": x})["y"]) for x in (chosen(60) for _ in range(30))]
    for x, y in found:
        np.testing.assert_array_equal(y, np.stack(np.nonzero(x)))


def test_several_threads_run_stages_at_once() -> None:
    program = rewrite.compile(model("c = Cast<to = 9>(x) y = Compress<axis = 0>(w, c)", "float[N] x, float[N, 9] w"))
    feeds = [{"x": chosen(80), "w": floats(80, 9)} for _ in range(50)]

    def run(one: Arrays) -> bool:
        return all(np.array_equal(program.run(one)["y"], one["w"][one["x"] != 0]) for _ in range(20))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, feeds))


def test_in_a_branch() -> None:
    branches = "then_branch = t () => (float u) { n = NonZero(x) f = Cast<to = 1>(n) u = ReduceSum<keepdims = 0>(f) }"
    branches += ", else_branch = e () => (float v) { v = ReduceSum<keepdims = 0>(x) }"
    proto = model(f"y = If<{branches}>(c)", "float[2, 3] x, bool c")
    for graph in (proto.graph.node[0].attribute[0].g, proto.graph.node[0].attribute[1].g):
        graph.output[0].ClearField("type")
    program = rewrite.compile(proto, threads=1)
    x = np.array([[0, 1, 0], [2, 0, 3]], np.float32)
    assert program.fallbacks() == {}
    assert program.run({"x": x, "c": np.array(True)})["y"] == 0 + 1 + 1 + 1 + 0 + 2
    assert program.run({"x": x, "c": np.array(False)})["y"] == 6


def test_bundles_hold_measured_extents(tmp_path: Path) -> None:
    proto = model("y = NonZero(x)", "float[2, 3] x")
    program = rewrite.compile(proto, threads=1)
    loaded = rewrite.load(program.save(tmp_path / "p.rewrite"))
    x = np.array([[0, 1, 0], [2, 0, 3]], np.float32)
    np.testing.assert_array_equal(loaded.run({"x": x})["y"], [[0, 1, 1], [1, 0, 2]])
    assert "data determine the sizes" in refusal(program.plan)
    assert [launch.item for launch in program.record({"x": x})]  # profiles have the steps on both sides


def distinct(x: Any, axis: int | None, *, in_order: bool) -> dict[str, Any]:
    """Return the results of Unique: sorted, or in order of occurrence."""
    _, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not in_order:
        order = np.argsort(first)
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        first, inverse, counts = first[order], number[inverse], counts[order]
    return {"y": np.take(x, first, axis), "i": first, "j": inverse, "k": counts}


@pytest.mark.parametrize(("kind", "in_order"), [("float", 0), ("float", 1), ("double", 1), ("int8", 0), ("bool", 1)])
def test_unique(kind: str, in_order: int) -> None:
    dtype = np.dtype({"float": "float32", "double": "float64"}.get(kind, kind))
    axes = ((None, "A, B"), (-1, "A, B"), (1, "A, B, 2")) if kind == "float" else ((None, "A, B"), (0, "A, B"))
    for axis, dims in axes:
        attrs = f"sorted = {in_order}" + ("" if axis is None else f", axis = {axis}")
        proto = model(f"y, i, j, k = Unique<{attrs}>(x)", f"{kind}[{dims}] x", "y i j k")
        program = rewrite.compile(proto, threads=2)
        assert program.fallbacks() == {}
        for shape in ((3, 40), (70, 2), (1, 1), (0, 3) if axis is None else (5, 6)):
            x = RNG.integers(0, 2 if dims.count(",") else 9, (*shape, *((2,) * (dims.count(",") - 1)))).astype(dtype)
            found, wanted = program.run({"x": x}), distinct(x, axis, in_order=bool(in_order))
            for name, value in wanted.items():
                assert found[name].dtype == value.dtype
                np.testing.assert_array_equal(found[name], value, err_msg=f"{name} for axis {axis} of {shape}")


def test_unique_is_what_onnx_runtime_computes() -> None:
    for attrs in ("", "<sorted = 0>", "<axis = 0>", "<axis = -1, sorted = 0>"):
        proto = model(f"y, i, j, k = Unique{attrs}(x)", "float[A, 3] x", "y i j k")
        check(proto, *({"x": np.round(floats(n, 3) * 1.5)} for n in (1, 50, 300)))


def test_unique_takes_nan_for_one_element() -> None:
    """NaN is one element, the last; zeros of both signs are one."""
    program = check(model("y = Unique(x)", "float[N] x"), {"x": floats(9)})
    found = program.run({"x": np.array([np.nan, 1, -0.0, np.inf, 0.0, np.nan, -np.inf], np.float32)})["y"]
    np.testing.assert_array_equal(found, [-np.inf, -0.0, 1, np.inf, np.nan])
    assert np.signbit(found[1])


def test_only_what_is_wanted_of_unique() -> None:
    feeds = {"x": np.array([3, 1, 3, 2, 1], np.float32)}
    program = check(model("y, i, j, k = Unique(x) z = Cast<to = 1>(k)", "float[N] x", "z"), feeds)
    np.testing.assert_array_equal(program.run(feeds)["z"], [2, 1, 2])
    twice = check(model("y, i, j, k = Unique(x) z = ReduceSum<keepdims = 0>(y)", "float[N] x", "z j"), feeds)
    assert twice.run(feeds)["z"] == 6


@pytest.mark.parametrize("index", ["int64", "int32"])
@pytest.mark.parametrize("steps", ["1, 1", "2, -3", "-1, 5"])
def test_slices_between_bounds_of_a_run(index: str, steps: str) -> None:
    proto = model(
        f"k = Constant<value_ints = [{steps}]>() steps = Cast<to = {7 if index == 'int64' else 6}>(k)"
        f" l = Constant<value_ints = [2, 0]>() axes = Cast<to = {7 if index == 'int64' else 6}>(l)"
        " p = Slice(x, from, to, axes, steps) y = Exp(p)",
        f"float[9, M, 7] x, {index}[2] from, {index}[2] to",
    )
    kind = np.dtype(index)
    ends = np.iinfo(kind)
    bounds = [([0, 0], [7, 9]), ([2, -4], [-1, 8]), ([-3, 8], [-7, 1]), ([5, 5], [5, 5]), ([6, 8], [ends.min, 2]),
              ([1, 3], [ends.max, ends.max]), ([20, 0], [30, 2]), ([6, -1], [2, ends.min])]  # fmt: skip
    feeds = [{"x": floats(9, m, 7), "from": np.array(a, kind), "to": np.array(b, kind)}
             for m, (a, b) in enumerate(bounds, 1)]  # fmt: skip
    check(proto, *feeds, reference=True)  # ONNX Runtime takes the largest end for the least where steps go back
    check(proto, {"x": floats(9, 0, 7), "from": np.zeros(2, kind), "to": np.ones(2, kind)})


def test_a_slice_of_a_size_that_the_model_states() -> None:
    """It is no extent of its own, which a kernel could count."""
    proto = model("y = Slice(x, from, to)", "float[N, 4] x, int64[1] from, int64[1] to")
    proto.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 4]))
    feeds = {"x": floats(3, 4), "from": np.array([0]), "to": np.array([3])}
    found = rewrite.compile(proto, threads=1).run(feeds)
    np.testing.assert_array_equal(found["y"], feeds["x"])


def test_part_of_a_range_that_data_choose_is_cut_in_turn() -> None:
    proto = model(
        "n = NonZero(x) one = Constant<value_ints = [1]>() p = Slice(n, from, to, one)"
        " z = Constant<value_ints = [0]>() q = Slice(p, z, from, one) y = Neg(q)",
        "float[6] x, int64[1] from, int64[1] to",
    )
    x = np.array([1, 0, 2, 3, 0, 4], np.float32)
    check(proto, *({"x": x, "from": np.array([a]), "to": np.array([b])} for a, b in ((1, 3), (0, 9), (3, 2), (1, 4))))
