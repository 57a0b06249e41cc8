"""Ifs on data: branches as guarded steps, compared with ONNX Runtime for both branches and several thread counts."""

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
from rewrite.backend.ir.kernel_graph import Control, ModelPlan, Step
from rewrite.backend.runtime.fallback import FallbackWarning
from rewrite.backend.runtime.program import Program
from rewrite.engine.onnx_io import importer
from rewrite.errors import RewriteError

RNG = np.random.default_rng(5)

SIMPLE = """
    agraph (float[N, 40] x, bool c) => (float[N, 40] y) {
        e = Exp(x)
        z = If(c) <
            then_branch = yes () => (a) { t = Mul(x, e)  a = Softmax(t) },
            else_branch = no () => (b) { b = Sub(e, x) }
        >
        y = Relu(z)
    }"""
HANDED_ON = """
    agraph (float[N, 40] x, bool[1] c) => (float[N, 40] y, float[N, 40] same, float[N, 20, 2] cut, float k) {
        e = Exp(x)
        y, same, cut, k = If(c) <
            then_branch = yes () => (a, again, p, one) {
                a = Tanh(e)
                again = Identity(a)
                to = Constant<value_ints = [0, 20, 2]>()
                p = Reshape(e, to)
                one = Constant<value_float = 1.0>()
            },
            else_branch = no () => (i, j, q, s) {
                i = Identity(x)
                j = Identity(e)
                to = Constant<value_ints = [0, 20, 2]>()
                q = Reshape(x, to)
                s = ReduceSum<keepdims = 0>(x)
            }
        >
    }"""
NESTED = """
    agraph (float[N, 33] x, bool c, bool d) => (float[N, 33] y) {
        n = Not(d)
        y = If(c) <
            then_branch = yes () => (a) {
                t = Exp(x)
                m = And(n, c)
                i = If(m) <
                    then_branch = in_yes () => (u) { u = Neg(t) },
                    else_branch = in_no () => (v) { w = Mul(t, x)  v = Softmax(w) }
                >
                a = Add(i, t)
            },
            else_branch = no () => (b) {
                s = Sigmoid(x)
                b = If(d) <
                    then_branch = in_yes () => (u) { u = Neg(s) },
                    else_branch = in_no () => (v) { v = Abs(s) }
                >
            }
        >
    }"""
COMPUTED = """
    agraph (float[N, 700] x) => (float[N, 700] y) {
        m = ReduceMax<keepdims = 0>(x)
        limit = Constant<value_float = 2.0>()
        over = Greater(m, limit)
        y = If(over) <
            then_branch = yes () => (a) { f = Div(x, m)  g = Exp(f)  h = Softmax(g)  a = Mul(h, f) },
            else_branch = no () => (b) { b = Identity(x) }
        >
    }"""
MIXED = """
    agraph (float[N, 4, 4] x, bool c) => (float[N] y) {
        e = Exp(x)
        z = If(c) <
            then_branch = yes () => (a) { a = Einsum<equation = "nii->n">(e) },
            else_branch = no () => (b) {
                axes = Constant<value_ints = [1, 2]>()
                b = ReduceSum<keepdims = 0>(e, axes)
            }
        >
        y = Neg(z)
    }"""
RANKS = """
    agraph (float[N, 6] x, bool c) => (float[M] y) {
        z = If(c) <
            then_branch = yes () => (a) { minus = Constant<value_ints = [-1]>()  a = Reshape(x, minus) },
            else_branch = no () => (b) { zero = Constant<value_int = 0>()  b = Gather<axis = 1>(x, zero) }
        >
        y = Exp(z)
    }"""


def model(text: str) -> onnx.ModelProto:
    found = onnx.ModelProto()
    found.CopyFrom(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}'))
    return found


def compiled(text: str, threads: int = 1) -> Program:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        return compile_graph(importer.read(model(text)), threads=threads)


def agree(program: Program, text: str, feeds: dict[str, np.ndarray]) -> None:
    session = onnxruntime.InferenceSession(model(text).SerializeToString(), providers=["CPUExecutionProvider"])
    found = program.run(feeds)
    for (name, got), want in zip(found.items(), session.run(None, feeds), strict=True):
        assert got.shape == want.shape, name
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=name)


def controls(plan: ModelPlan) -> list[Control]:
    return [i for i in plan.items if isinstance(i, Control)]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("text", "flags", "rank"), [
    (SIMPLE, "c", 0), (HANDED_ON, "c", 1), (NESTED, "cd", 0), (COMPUTED, "", 0)
])  # fmt: skip
def test_branches_are_steps(text: str, flags: str, rank: int, threads: int) -> None:
    program = compiled(text, threads)
    assert not controls(program.plan)
    guarded = [i.when for i in program.plan.items if isinstance(i, Step) and i.when]
    assert {wanted for when in guarded for _, wanted in when} == {False, True}
    width = program.inputs[0].shape[1]  # type: ignore[index]
    for turn in range(12):
        rows = (1, 3, 70, 0)[turn % 4] if text is not COMPUTED else (1, 3, 70, 5)[turn % 4]
        x = RNG.standard_normal((rows, int(width)), np.float32) * (0.1 if turn % 3 else 4)
        feeds = {flag: np.full((1,) * rank, bool(turn >> k & 1)) for k, flag in enumerate(flags)}
        agree(program, text, {"x": x, **feeds})


def test_conditions_inside_conditions() -> None:
    depths = {len(i.when) for i in compiled(NESTED).plan.items if isinstance(i, Step)}
    assert depths == {0, 1, 2}


def test_a_branch_without_kernels_is_run_when_it_is_taken() -> None:
    program = compiled(MIXED, 2)
    [control] = controls(program.plan)
    assert control.op == "Branch"
    assert program.fallbacks() == {"Einsum": 1}
    for turn in range(12):
        x = RNG.standard_normal((turn % 3 + 1, 4, 4), np.float32) * 0.3
        agree(program, MIXED, {"x": x, "c": np.array(turn % 2 == 0)})
        out = np.empty(len(x), np.float32)
        found = program.run({"x": x, "c": np.array(turn % 2 == 1)}, out={"y": out})["y"]
        assert found is out
        np.testing.assert_array_equal(program.run({"x": x, "c": np.array(turn % 2 == 1)})["y"], out)


def test_branches_of_different_shapes_stay_programs() -> None:
    program = compiled(RANKS)
    assert [c.op for c in controls(program.plan)] == ["If"]
    for c in (True, False):
        agree(program, RANKS, {"x": RNG.standard_normal((3, 6), np.float32), "c": np.array(c)})


@pytest.mark.parametrize("text", [HANDED_ON, MIXED])
def test_bundles_hold_conditions(text: str, tmp_path: Path) -> None:
    program = load(compiled(text).save(tmp_path / "m.rewrite"))
    shape, rank = ((2, 40), 1) if text is HANDED_ON else ((2, 4, 4), 0)
    for c in (True, False):
        agree(program, text, {"x": RNG.standard_normal(shape, np.float32) * 0.3, "c": np.full((1,) * rank, c)})


def test_sizes_decide_inside_a_branch_and_a_branch_may_fail() -> None:
    """Each branch squeezes another axis if its extent is 1; otherwise the rank is too high for MatMul."""
    squeeze = """
        shape{k} = Shape(e)
        at{k} = Constant<value_ints = [{k}]>()
        size{k} = Gather(shape{k}, at{k})
        one{k} = Constant<value_ints = [1]>()
        is{k} = Equal(size{k}, one{k})
        s{k} = If(is{k}) <
            then_branch = in_yes{k} () => (u{k}) {{ u{k} = Squeeze(e, at{k}) }},
            else_branch = in_no{k} () => (v{k}) {{ v{k} = Identity(e) }}
        >
        w{k} = Constant<value = float[3, 3] {{1, 0, 2, 0, 1, 0, 3, 0, 1}}>()
        r{k} = Gemm(s{k}, w{k})
        """
    text = f"""
    agraph (float[A, B, 3] x, bool c) => (float[M, 3] y) {{
        e = Exp(x)
        y = If(c) <
            then_branch = yes () => (r0) {{ {squeeze.format(k=0)} }},
            else_branch = no () => (r1) {{ {squeeze.format(k=1)} }}
        >
    }}"""
    program = compiled(text)
    assert len(program.plan.versions) == 4
    assert program.fallbacks() == {}
    for a, b, c in ((1, 1, True), (1, 1, False), (1, 4, True), (4, 1, False)):
        agree(program, text, {"x": RNG.standard_normal((a, b, 3), np.float32), "c": np.array(c)})
    for a, b, c in ((1, 4, False), (4, 1, True), (2, 2, True)):
        with pytest.raises(RewriteError):
            program.run({"x": RNG.standard_normal((a, b, 3), np.float32), "c": np.array(c)})
