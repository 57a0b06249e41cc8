"""Concats along the outermost axis whose operands are written in place, compared with ONNX Runtime."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser
from rewrite.backend.bundle.load_bundle import load
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.ir.kernel_graph import Join, Step
from rewrite.backend.runtime.fallback import FallbackWarning
from rewrite.backend.runtime.program import Program
from rewrite.engine.onnx_io import importer

RNG = np.random.default_rng(8)

# text, how many copies are left, the shapes of inputs
CHAIN = """
    agraph (float[1, 16, 5, 4] x) => (float[1, 64, 5, 4] y) {
        a = Exp(x)
        b = Sigmoid(x)
        c = Concat<axis = 1>(a, b)
        d = Tanh(a)
        e = Concat<axis = 1>(c, d)
        f = Abs(x)
        g = Concat<axis = 1>(e, f)
        y = Softmax<axis = 1>(g)
    }"""
TWICE = """
    agraph (float[N, 16] x) => (float[M, 16] y) {
        a = Softmax(x)
        b = Neg(x)
        c = Concat<axis = 0>(a, b, a, x)
        y = LeakyRelu(c)
    }"""
OUTPUTS = """
    agraph (float[4, 16] x) => (float[8, 16] y, float[4, 16] a, float[12, 16] z) {
        a = Softmax(x)
        b = Softmax<axis = 0>(x)
        y = Concat<axis = 0>(a, b)
        c = Neg(b)
        z = Concat<axis = 0>(c, y)
    }"""
VIEWS = """
    agraph (float[32, 2, 8] x) => (float[2, 32, 16] y, float[32, 16] r) {
        a = Softmax(x)
        flat = Constant<value_ints = [1, 32, 16]>()
        b = Reshape(a, flat)
        c = Abs(x)
        d = Reshape(c, flat)
        y0 = Concat<axis = 0>(b, d)
        y = Relu(y0)
        flat2 = Constant<value_ints = [32, 16]>()
        e = Reshape(a, flat2)
        r = Exp(e)
    }"""
CONSTANT = """
    agraph (float[1, 2, 16] x) => (float[1, 6, 16] y) {
        k = Constant<value = float[1, 1, 16] {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}>()
        a = Softmax(x)
        s, t = Split<axis = 1, num_outputs = 2>(a)
        y = Concat<axis = 1>(t, k, a, s, k)
    }"""
HOST = """
    agraph (float[4, 4] x) => (float[6, 4] y) {
        a = Softmax(x)
        i = Einsum<equation = "ii->">(a)
        four = Constant<value_ints = [1, 1]>()
        j = Reshape(i, four)
        b = Mul(x, j)
        two = Constant<value_ints = [2]>()
        zero = Constant<value_ints = [0]>()
        c = Slice(b, zero, two, zero)
        d = Exp(a)
        y = Concat<axis = 0>(d, c)
    }"""
BRANCHES = """
    agraph (float[2, 16] x, bool c) => (float[6, 16] y) {
        e = Exp(x)
        z = If(c) <
            then_branch = yes () => (a) { p = Neg(e)  q = Softmax(x)  a = Concat<axis = 0>(p, q) },
            else_branch = no () => (b) { r = Abs(x)  b = Concat<axis = 0>(r, e) }
        >
        w = Concat<axis = 0>(z, e)
        y = Relu(w)
    }"""

COLUMNS = """
    agraph (float[3, 8] x, bool c) => (float[3, 14] y) {
        t = Transpose(x)
        m = MatMul(x, t)
        z = If(c) <
            then_branch = yes () => (a) { p = MatMul(m, x)  q = MatMul(m, m)  a = Concat<axis = 1>(p, q) },
            else_branch = no () => (b) { r = MatMul(m, m)  s = MatMul(r, x)  b = Concat<axis = 1>(r, s) }
        >
        w = Concat<axis = 1>(z, m)
        y = Tanh(w)
    }"""


def model(text: str) -> onnx.ModelProto:
    found = onnx.ModelProto()
    found.CopyFrom(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'))
    return found


def compiled(text: str, threads: int = 2) -> Program:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        return compile_graph(importer.read(model(text)), threads=threads)


def agree(program: Program, text: str, feeds: dict[str, np.ndarray]) -> None:
    session = onnxruntime.InferenceSession(model(text).SerializeToString(), providers=["CPUExecutionProvider"])
    for (name, got), want in zip(program.run(feeds).items(), session.run(None, feeds), strict=True):
        assert got.shape == want.shape, name
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=name)


def copies(program: Program) -> int:
    return sum(isinstance(i, Step) and i.kernel.template == "copy" for i in program.plan.items)


@pytest.mark.parametrize(("text", "left"), [(CHAIN, 0), (OUTPUTS, 2), (VIEWS, 0), (CONSTANT, 5), (HOST, 2)])
def test_operands_are_made_in_their_places(text: str, left: int) -> None:
    program = compiled(text)
    assert any(isinstance(i, Join) for i in program.plan.items)
    assert copies(program) == left
    shape = tuple(int(d) for d in program.inputs[0].shape or ())
    for _ in range(3):
        agree(program, text, {"x": RNG.standard_normal(shape, np.float32)})


def test_an_operand_that_is_there_twice_is_copied() -> None:
    program = compiled(TWICE)
    assert copies(program) == 3
    for n in (1, 7, 0, 64, 7):
        agree(program, TWICE, {"x": RNG.standard_normal((n, 16), np.float32)})


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("text", "shape"), [(BRANCHES, (2, 16)), (COLUMNS, (3, 8))])
def test_joins_in_branches(text: str, shape: tuple[int, ...], threads: int) -> None:
    program = compiled(text, threads)
    assert any(isinstance(i, Join) for i in program.plan.items)
    for turn in range(8):
        feeds = {"x": RNG.standard_normal(shape, np.float32), "c": np.array(turn % 3 == 0)}
        agree(program, text, feeds)


def test_operands_that_begin_at_no_cache_line_are_copied_together() -> None:
    text = CHAIN.replace("16, 5, 4", "3, 5, 1").replace("64, 5, 4", "12, 5, 1")
    program = compiled(text)
    assert not any(isinstance(i, Join) for i in program.plan.items)
    agree(program, text, {"x": RNG.standard_normal((1, 3, 5, 1), np.float32)})


@pytest.mark.parametrize("text", [CHAIN, OUTPUTS])
def test_bundles_hold_joins(text: str, tmp_path: Path) -> None:
    program = load(compiled(text).save(tmp_path / "m.rewrite"))
    shape = tuple(int(d) for d in program.inputs[0].shape or ())
    agree(program, text, {"x": RNG.standard_normal(shape, np.float32)})
