"""Loops over variables of programs, as converters from PaddlePaddle write them, compared with ONNX Runtime.

Such a variable may begin as a scalar whatever it becomes, a flag may be a scalar or a vector of one element from branch
to branch, and `rows[i] = row` is a slice, its shape, a range of indices and a scatter.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import rewrite
from onnx import parser
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.ir.kernel_graph import Control, Fallback, Loop
from rewrite.backend.planning.repeated_results import without_repeated_results
from rewrite.backend.runtime.fallback import FallbackWarning
from rewrite.engine.onnx_io import importer

HEADER = '<ir_version: 10, opset_import: ["" : 17]>\n'
DECODER = (
    HEADER
    + """
    g (float[1, 4] x, float stop) => (float[1, 9, 4] z, int64 last)
      <int64 most = {20}, bool on = {1}, bool flag = {0}, int64 zero = {0}, float begin = {0}, float[4, 4] w,
       float[1, 9, 4] empty, bool always = {1}> {
      # what begins as `begin` comes back as all rows
      f, r, z, h, last = Loop(most, on, flag, empty, begin, x, zero) <body = b
          (int64 k, bool going, bool[] flag0, float[1, 9, 4] rows0, float[] copy0, float[1, 4] h0, int64 i0)
          => (bool[] more, bool[] flag1, float[1, 9, 4] rows1, float[] copy1, float[1, 4] h1, int64 i1) {
        p = MatMul(h0, w)
        h1 = Tanh(p)
        one = Constant<value_int = 1>()
        ones = Constant<value_ints = [1]>()
        size = Constant<value_int = 9>()
        i1 = Add(i0, one)
        end = Min(i1, size)
        from = Reshape(i0, ones)
        to = Reshape(end, ones)
        part = Slice(rows0, from, to, ones, ones)
        shape = Shape(part)
        row = Unsqueeze(h1, ones)
        wide = Expand(row, shape)
        range = Range(i0, end, one)
        along = Constant<value_ints = [1, -1, 1]>()
        column = Reshape(range, along)
        repeats = Constant<value_ints = [1, 1, 4]>()
        places = Tile(column, repeats)
        rows1 = ScatterElements<axis = 1>(rows0, places, wide)
        copy1 = Identity(rows1)
        top = ReduceMax<keepdims = 0>(h1)
        high = Greater(top, stop)
        flag1 = If(high) <then_branch = t () => (bool y) { y = Identity(always) },
                          else_branch = e () => (bool[] n) {
            number = Cast<to = 7>(flag0)
            no = Constant<value_ints = [0]>()
            sum = Add(number, no)
            n = Cast<to = 9>(sum)
        }>
        not_yet = Not(flag1)
        bound = Less(i1, size)
        more = And(bound, not_yet)
      }>
    }"""
)


def decoder() -> onnx.ModelProto:
    model = parser.parse_model(DECODER)
    rng = np.random.default_rng(14)
    arrays = {"w": rng.standard_normal((4, 4)), "empty": rng.standard_normal((1, 9, 4))}
    for tensor in list(model.graph.initializer):
        if tensor.name in arrays:
            model.graph.initializer.remove(tensor)
    for name, array in arrays.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    return model


def items_of(program: Any, kinds: type | tuple[type, ...]) -> list[Any]:
    return [item for item in program.plan.items if isinstance(item, kinds)]


@pytest.mark.parametrize(("stop", "runs"), [(0.9, 4), (5.0, 9)])
@pytest.mark.parametrize("target", ["native", "portable"])
def test_a_decoder_runs_in_kernels(stop: float, runs: int, target: str) -> None:
    model = decoder()
    feeds = {"x": np.array([[0.2, -0.4, 0.1, 0.7]], np.float32), "stop": np.array(stop, np.float32)}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    wanted: Sequence[Any] = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        program = compile_graph(rewrite.optimize(model).native, threads=1, target=target)
    assert len(items_of(program, Loop)) == 1
    assert not items_of(program, (Control, Fallback))
    found = program.run(feeds)
    np.testing.assert_allclose(found["z"], wanted[0], rtol=1e-5, atol=1e-6)
    assert found["last"] == wanted[1] == runs


REPEATED = (
    HEADER
    + """
    g (float[4] x, int64 n, bool c) => (float[4] y, float[4] z) <int64 five = {{5}}> {{
      y, z = Loop({count}, {start}, x, {first}) <body = b (int64 k, bool going, float[4] p, float[] q)
          => (bool on, float[4] r, float[4] s) {{
        on = Identity(going)
        {step}
        s = Identity(r)
      }}>
    }}"""
)


@pytest.mark.parametrize(
    ("count", "start", "step", "merged"),
    [
        ("five", "", "r = Sin(p)", True),
        ("n", "", "r = Sin(p)", False),  # without an iteration `z` is its initial value
        ("five", "c", "r = Sin(p)", False),
        ("five", "", "r = Add(p, q)", False),  # the initial value matters
    ],
)
def test_a_repeated_result_is_carried_once(count: str, start: str, step: str, merged: bool) -> None:
    model = parser.parse_model(REPEATED.format(count=count, start=start, step=step, first="x"))
    graph = without_repeated_results(importer.read(model))
    assert [node.op for node in graph.nodes] == (["Loop", "Identity"] if merged else ["Loop"])
    feeds = {"x": np.arange(4, dtype=np.float32), "n": np.array(0), "c": np.array(False)}
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    found = compile_graph(rewrite.optimize(model).native, threads=1).run(feeds)
    for name, array in zip(("y", "z"), wanted, strict=True):
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)
