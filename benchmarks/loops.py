"""Loops compared with ONNX Runtime: models whose time is spent in the body of a Scan or Loop, on one thread.

    python -m benchmarks.loops

Prints one JSON object: by model the microseconds of a run, ours and ONNX Runtime's, and the ratio. They are medians of
interleaved runs, after the results were compared.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import rewrite
from onnx import numpy_helper, parser

_HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'

_TANH = """
    g (float[1, H] h, float[100, 1, H] x) => (float[1, H] last, float[100, 1, H] ys) {
        last, ys = Scan<num_scan_inputs = 1, body = b (float[1, H] s, float[1, H] v)
                                             => (float[1, H] s2, float[1, H] o) {
            m = MatMul(s, w)
            n = MatMul(v, u)
            a = Add(m, n)
            c = Add(a, bias)
            s2 = Tanh(c)
            o = Identity(s2)
        }>(h, x)
    }"""
_LSTM = """
    g (float[1, H] h, float[1, H] c, float[100, 1, H] x) => (float[1, H] hl, float[1, H] cl, float[100, 1, H] ys) {
        hl, cl, ys = Scan<num_scan_inputs = 1, body = b (float[1, H] s, float[1, H] k, float[1, H] v)
                                               => (float[1, H] s2, float[1, H] k2, float[1, H] o) {
            m = MatMul(s, w)
            n = MatMul(v, u)
            a = Add(m, n)
            e = Add(a, bias)
            p, q, r, t = Split<axis = 1, num_outputs = 4>(e)
            i = Sigmoid(p)
            f = Sigmoid(q)
            g = Tanh(r)
            z = Sigmoid(t)
            kept = Mul(f, k)
            new = Mul(i, g)
            k2 = Add(kept, new)
            d = Tanh(k2)
            s2 = Mul(z, d)
            o = Identity(s2)
        }>(h, c, x)
    }"""
_UNTIL = """
    g (float[64] x, int64 n) => (float[64] y, float[K, 64] all) {
        y, all = Loop(n, , x) <body = b (int64 i, bool c, float[64] p) => (bool on, float[64] r, float[64] again) {
            most = Constant<value_float = 1000.0>()
            r = Add(p, x)
            m = ReduceMax<keepdims = 0>(r)
            on = Less(m, most)
            again = Neg(r)
        }>
    }"""


def cell(text: str, hidden: int, gates: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A recurrent cell scanned over 100 steps, and its inputs."""
    rng = np.random.default_rng(0)
    model = parser.parse_model(_HEADER + text.replace("H]", f"{hidden}]"))
    width = gates * hidden
    for name, shape in (("w", (hidden, width)), ("u", (hidden, width)), ("bias", (width,))):
        array = (rng.standard_normal(shape) / hidden**0.5).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    shapes = {i.name: tuple(d.dim_value for d in i.type.tensor_type.shape.dim) for i in model.graph.input}
    return model, {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def until(iterations: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A Loop that data end, whose outputs grow."""
    return parser.parse_model(_HEADER + _UNTIL), {"x": np.full(64, 0.01, np.float32), "n": np.array(iterations)}


MODELS: dict[str, Callable[[], tuple[onnx.ModelProto, dict[str, np.ndarray]]]] = {
    "Scan of a tanh cell of 64": lambda: cell(_TANH, 64, 1),
    "Scan of an LSTM cell of 64": lambda: cell(_LSTM, 64, 4),
    "Scan of an LSTM cell of 256": lambda: cell(_LSTM, 256, 4),
    "Loop of 5 iterations that stacks, until data say": lambda: until(5),
    "Loop of 100 iterations that stacks, until data say": lambda: until(100),
}


def compare(model: onnx.ModelProto, feeds: dict[str, np.ndarray], *, runs: int = 200) -> dict[str, float]:
    """Microseconds of a run, interleaved, and their ratio; AssertionError if results differ."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    program = rewrite.compile(model, threads=1)
    names = [o.name for o in model.graph.output]
    for name, expected in zip(names, session.run(names, feeds), strict=True):
        np.testing.assert_allclose(program.run(feeds)[name], expected, rtol=1e-3, atol=1e-4)
    calls: tuple[Callable[[], Any], ...] = (lambda: program.run(feeds), lambda: session.run(names, feeds))
    times: tuple[list[float], ...] = ([], [])
    for _ in range(runs):
        for call, found in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            found.append((time.perf_counter() - start) * 1e6)
    ours, theirs = map(statistics.median, times)
    return {"ours": round(ours, 1), "onnxruntime": round(theirs, 1), "ratio": round(ours / theirs, 3)}


if __name__ == "__main__":
    print(json.dumps({name: compare(*make()) for name, make in MODELS.items()}, indent=1))
