"""Sizes that are not known before a run: operands that do not fit are refused, whatever kernels would make of them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import rewrite
from onnx import parser
from rewrite.errors import UserError

Shapes = dict[str, tuple[int, ...]]

MODELS: dict[str, tuple[str, Shapes, Shapes, str]] = {
    "MatMul": (
        "(float[A,B] x, float[C,D] w) => (float[M,N] y) { y = MatMul(x, w) }",
        {"x": (3, 4), "w": (4, 6)}, {"w": (5, 6)}, "inner dims: B is not C",
    ),
    "Gemm": (
        "(float[A,4] x, float[4,6] w, float[E,6] c) => (float[M,N] y) { y = Gemm(x, w, c) }",
        {"x": (3, 4), "w": (4, 6), "c": (3, 6)}, {"c": (2, 6)}, "C: E is neither 1 nor A",
    ),
    "Add": (
        "(float[A,B] x, float[C,B] w) => (float[A,B] y) { y = Add(x, w) }",
        {"x": (3, 4), "w": (3, 4)}, {"w": (2, 4)}, "A and C cannot be broadcast together",
    ),
    "Add to a number": (
        "(float[A,4] x, float[3,4] w) => (float[3,4] y) { y = Add(x, w) }",
        {"x": (1, 4), "w": (3, 4)}, {"x": (2, 4)}, "A and 3 cannot be broadcast together",
    ),
    "Add before MatMul": (
        "(float[N,A] x, float[N,B] w, float[C,4] v) => (float[P,Q] y) { s = Add(x, w) y = MatMul(s, v) }",
        {"x": (3, 9), "w": (3, 9), "v": (9, 4)}, {"w": (3, 5)},
        r"node 'Add_0' \(Add\): A and B cannot be broadcast together",
    ),
    "MatMul after Add": (
        "(float[N,A] x, float[N,B] w, float[C,4] v) => (float[P,Q] y) { s = Add(x, w) y = MatMul(s, v) }",
        {"x": (3, 9), "w": (3, 1), "v": (9, 4)}, {"v": (8, 4)},
        r"node 'MatMul_1' \(MatMul\): inner dims: bcast\(A,B\) is not C",
    ),
    "Conv of fewer rows": (
        "(float[1,1,H,W] x, float[1,1,5,5] w) => (float[1,1,P,Q] y) { y = Conv(x, w) }",
        {"x": (1, 1, 6, 7), "w": (1, 1, 5, 5)}, {"x": (1, 1, 2, 7)}, "a dim of the output, H-4, would be negative",
    ),
    "Conv of a small image": (
        "(float[1,1,H,W] x, float[1,1,5,5] w) => (float[M] y) { c = Conv(x, w) m = ReduceMean<keepdims = 0>(c) "
        "k = Constant<value_ints = [-1]>() y = Reshape(m, k) }",
        {"x": (1, 1, 5, 5), "w": (1, 1, 5, 5)}, {"x": (1, 1, 2, 2)}, "a dim of the output, H-4, would be negative",
    ),
    "Pools": (
        "(float[1,1,H] x) => (float[1,1,P] y) { a = MaxPool<kernel_shape = [3], strides = [3]>(x) "
        "y = AveragePool<kernel_shape = [4]>(a) }",
        {"x": (1, 1, 12)}, {"x": (1, 1, 5)}, r"node 'AveragePool_1' \(AveragePool\): a dim of the output",
    ),
    "Where": (
        "(bool[A] c, float[B] x, float[C] w) => (float[M] y) { y = Where(c, x, w) }",
        {"c": (30,), "x": (30,), "w": (1,)}, {"w": (3,)}, "A and C cannot be broadcast together",
    ),
    "Concat": (
        "(float[A,B] x, float[C,D] w) => (float[M,N] y) { y = Concat<axis: int = 1>(x, w) }",
        {"x": (3, 4), "w": (3, 5)}, {"w": (2, 5)}, "axis 0: A is not C",
    ),
    "Split": (
        "(float[A,B] x) => (float[M,N] y, float[M,P] z) <int64[2] s = {2, 3}> { y, z = Split<axis: int = 1>(x, s) }",
        {"x": (3, 5)}, {"x": (3, 6)}, "the pieces together: 5 is not B",
    ),
    "Reshape": (
        "(float[A,B] x, float[C,D] z) => (float[M,N] y) { s = Shape(z) y = Reshape(x, s) }",
        {"x": (3, 4), "z": (6, 2)}, {"z": (5, 3)}, "numbers of elements",
    ),
    "Reshape towards zero": (
        "(float[A,2] x, float[D] z) => (float[M,N] y) <int64[1] c = {3}, int64[1] two = {2}>"
        " { n = Shape(z) e = Sub(n, c) d = Div(e, two) s = Concat<axis: int = 0>(d, two) y = Reshape(x, s) }",
        {"x": (2, 2), "z": (7,)}, {"z": (9,)}, r"the target: truncdiv\(D-3,2\) is not A",
    ),
    "BatchNormalization": (
        "(float[A,B,C] x, float[D] s, float[B] b, float[B] m, float[B] v) => (float[K,M,N] y)"
        " { q = Mul(v, v) y = BatchNormalization(x, s, b, m, q) }",
        {"x": (2, 8, 5), "s": (8,), "b": (8,), "m": (8,), "v": (8,)}, {"s": (4,)}, "input 1: D is not B",
    ),
    "LayerNormalization": (
        "(float[A,B] x, float[C] s, float[B] b) => (float[M,N] y) { y = LayerNormalization(x, s, b) }",
        {"x": (3, 40), "s": (40,), "b": (40,)}, {"s": (4,)}, "input 1: C is neither 1 nor B",
    ),
    "InstanceNormalization": (
        "(float[A,B,C] x, float[D] s, float[B] b) => (float[K,M,N] y) { y = InstanceNormalization(x, s, b) }",
        {"x": (2, 8, 5), "s": (8,), "b": (8,)}, {"s": (4,)}, "input 1: D is not B",
    ),
    "PRelu": (
        "(float[A,B,C] x, float[D,E] s) => (float[K,M,N] y) { y = PRelu(x, s) }",
        {"x": (2, 8, 5), "s": (8, 1)}, {"s": (4, 5)}, "slope: D is neither 1 nor B",
    ),
    "Conv": (
        "(float[A,3,H,W] x, float[8,3,3,3] w, float[D] b) => (float[K,M,N,Q] y) { y = Conv(x, w, b) }",
        {"x": (1, 3, 9, 9), "w": (8, 3, 3, 3), "b": (8,)}, {"b": (4,)}, "numbers in the bias: D is not 8",
    ),
    "ConvTranspose": (
        "(float[A,C,H,W] x) => (float[K,M,N,Q] y) <float[4,2,1,1] w = {1, 2, 3, 4, 5, 6, 7, 8}>"
        " { y = ConvTranspose(x, w) }",
        {"x": (1, 4, 9, 9)}, {"x": (1, 3, 9, 9)}, "channels: C is not 4",
    ),
    "GatherElements": (
        "(float[A,B] x, int64[C,D] i) => (float[M,N] y) { y = GatherElements(x, i) }",
        {"x": (5, 4), "i": (3, 4)}, {"i": (3, 9)}, "indices on axis 1: D is more than B",
    ),
    "GatherND": (
        "(float[A,B,C] x, int64[D,E,1] i) => (float[M,N,P] y) { y = GatherND<batch_dims: int = 1>(x, i) }",
        {"x": (5, 4, 3), "i": (5, 2, 1)}, {"i": (7, 2, 1)}, "batch dim 0: D is not A",
    ),
    "ScatterElements": (
        "(float[A,B] x, int64[C,D] i, float[E,D] u) => (float[M,N] y) { y = ScatterElements<axis: int = 1>(x, i, u) }",
        {"x": (5, 4), "i": (3, 1), "u": (3, 1)}, {"u": (2, 1)}, "updates: E is not C",
    ),
    "ScatterND": (
        "(float[A,B] x, int64[C,1] i, float[C,E] u) => (float[M,N] y) { y = ScatterND(x, i, u) }",
        {"x": (5, 4), "i": (1, 1), "u": (1, 4)}, {"u": (1, 2)}, "updates: E is not B",
    ),
    "LSTM": (
        "(float[T,B,1] x, float[1,C,2] h, float[1,B,2] c) => (float[M,N,P,Q] y)"
        " <float[1,8,1] w = {1, 2, 3, 4, 5, 6, 7, 8},"
        " float[1,8,2] r = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1}>"
        " { y = LSTM<hidden_size: int = 2>(x, w, r, , , h, c) }",
        {"x": (3, 4, 1), "h": (1, 4, 2), "c": (1, 4, 2)}, {"h": (1, 1, 2)}, "initial states: C is not B",
    ),
    "GRU": (
        "(float[T,B,1] x, float[1,G,1] w, float[1,G,2] r) => (float[M,N,P,Q] y)"
        " { y = GRU<hidden_size: int = 2>(x, w, r) }",
        {"x": (3, 4, 1), "w": (1, 6, 1), "r": (1, 6, 2)}, {"w": (1, 5, 1), "r": (1, 5, 2)},
        "recurrent weights: G is not 6",
    ),
    "biases of an RNN": (
        "(float[T,B,C] x, float[1,2,D] w, float[1,2,2] r, float[1,E] b) => (float[M,N,P,Q] y)"
        " { y = RNN<hidden_size: int = 2>(x, w, r, b) }",
        {"x": (3, 4, 5), "w": (1, 2, 5), "r": (1, 2, 2), "b": (1, 4)}, {"b": (1, 2)}, "biases: E is not 4",
    ),
    "MatMulInteger": (
        "(uint8[A,B] x, uint8[C,D] w, uint8[1] y, uint8[D] z) => (int32[M,N] o) { o = MatMulInteger(x, w, y, z) }",
        {"x": (3, 4), "w": (4, 6), "y": (1,), "z": (6,)}, {"w": (3, 6)}, "inner dims: B is not C",
    ),
    "ConvInteger": (
        "(uint8[A,B,C] x, uint8[2,3,2] w) => (int32[M,N,P] y) { y = ConvInteger(x, w) }",
        {"x": (3, 3, 7), "w": (2, 3, 2)}, {"x": (3, 2, 7)}, "channels: B is not 3",
    ),
    "Einsum": (
        '(float[A,B] x, float[C,D] w) => (float[M] y) { y = Einsum<equation: string = "ij,ij->i">(x, w) }',
        {"x": (3, 4), "w": (3, 4)}, {"w": (3, 2)}, "B and D cannot be broadcast together",
    ),
    "DequantizeLinear": (
        "(int8[A,4] x, float[C] s) => (float[M,N] y) { y = DequantizeLinear<axis: int = 0>(x, s) }",
        {"x": (30, 4), "s": (30,)}, {"s": (3,)}, "scales: C is neither 1 nor A",
    ),
    "OneHot": (
        "(int64[A] i, float[B] v) => (float[M,N] y) <int64 d = {4}> { y = OneHot(i, d, v) }",
        {"i": (3,), "v": (2,)}, {"v": (1,)}, "values: B is not 2",
    ),
    "GridSample": (
        "(float[A,2,5,5] x, float[B,4,4,2] g) => (float[M,N,R,S] y) { y = GridSample(x, g) }",
        {"x": (1, 2, 5, 5), "g": (1, 4, 4, 2)}, {"g": (3, 4, 4, 2)}, "grids: B is not A",
    ),
}  # fmt: skip
"""A graph, shapes with which it runs, those of them that are replaced by others that do not fit, and the message."""


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": 20]> agraph {text}')


def inputs(made: onnx.ModelProto, shapes: Shapes) -> dict[str, Any]:
    draw, found = np.random.default_rng(0), {}
    for port in made.graph.input:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)
        drawn = draw.standard_normal(shapes[port.name])
        found[port.name] = drawn.astype(dtype) if dtype.kind == "f" else (drawn > 0).astype(dtype)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_operands_that_do_not_fit_are_refused(name: str) -> None:
    text, right, wrong, message = MODELS[name]
    made = model(text)
    program, peer = rewrite.compile(made, threads=1), onnxruntime.InferenceSession(made.SerializeToString())
    for _ in range(2):  # the second time from what is cached of the first
        given = inputs(made, right)
        for got, want in zip(program.run(given).values(), peer.run(None, given), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        with pytest.raises(UserError, match=message) as error:
            program.run(inputs(made, right | wrong))
        assert "do not fit together: node" in str(error.value)
    with pytest.raises(UserError, match=message):
        program.bind(inputs(made, right | wrong))


BRANCHES = """(bool[1] c, float[A,B] x, float[C,4] w, float[A,4] v) => (float[A,4] y) {
    y = If(c) <
        then_branch = then () => (float[A,4] p) { p = MatMul(x, w) },
        else_branch = other () => (float[A,4] q) { r = %s q = Neg(r) } > }"""


@pytest.mark.parametrize("saved", [False, True], ids=["compiled", "saved"])
@pytest.mark.parametrize("other", ["MatMul(x, w)", "Relu(v)"], ids=["both branches", "one branch"])
def test_a_branch_requires_what_its_nodes_do(other: str, saved: bool, tmp_path: Path) -> None:
    made = model(BRANCHES % other)
    program = rewrite.compile(made, threads=1)
    assert program.plan.is_native  # both branches run without Python
    if saved:
        program = rewrite.load(program.save(tmp_path / "m.rewrite"))
    right, wrong = (inputs(made, {"c": (1,), "x": (300, 9), "w": (n, 4), "v": (300, 4)}) for n in (9, 2))
    for given, taken in [*itertools.product((right, wrong), (True, False))] * 2:
        given = given | {"c": np.array([taken])}
        if len(given["w"]) == 2 and (taken or other == "MatMul(x, w)"):
            with pytest.raises(UserError, match=r"do not fit together: node .*inner dims: B is not C"):
                program.run(given)
        else:
            product = given["x"] @ given["w"] if len(given["w"]) == 9 else None
            want = product if taken else -np.maximum(given["v"], 0) if other == "Relu(v)" else -product
            np.testing.assert_allclose(program.run(given)["y"], want, rtol=1e-4, atol=1e-4)


def test_bundles_require_the_same(tmp_path: Path) -> None:
    text, right, wrong, message = MODELS["Concat"]
    made = model(text)
    rewrite.compile(made, threads=1).save(tmp_path / "m.rewrite")
    program = rewrite.load(tmp_path / "m.rewrite")
    assert program.run(inputs(made, right))["y"].shape == (3, 9)
    with pytest.raises(UserError, match=message):
        program.run(inputs(made, right | wrong))


def test_nodes_that_no_output_needs_require_nothing() -> None:
    made = model("(float[A] x, float[B] w) => (float[A] y) { t = Add(x, w) y = Relu(x) }")
    program = rewrite.compile(made, threads=1)
    assert program.run({"x": np.ones(3, np.float32), "w": np.ones(2, np.float32)})["y"].shape == (3,)
