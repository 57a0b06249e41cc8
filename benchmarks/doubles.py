"""Latency of small f64 networks: of ours over ONNX Runtime's, and over that of the same network in f32.

    python -m rewrite.benchmarks.doubles [--target avx2]

One thread; minima of interleaved bursts. ONNX Runtime has no f64 kernels for Conv, LSTM and others, and its column then
says so.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import onnx
import onnxruntime
import rewrite
from numpy.typing import NDArray

Array = NDArray[np.float64]
ROUNDS = 25
BURST = 0.02  # seconds


def _random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape) / np.sqrt(shape[-1])


def _norm(x: str, y: str) -> str:
    return f"{y} = LayerNormalization<axis = -1>({x}, s, b)"


def _transformer() -> tuple[str, Array, dict[str, Array]]:
    orders = {"q": "0, 2, 1, 3", "k": "0, 2, 3, 1", "v": "0, 2, 1, 3"}
    heads = " ".join(
        f"{n}0 = MatMul(n0, w{n}) {n}1 = Reshape({n}0, split) {n} = Transpose<perm = [{order}]>({n}1)"
        for n, order in orders.items()
    )
    nodes = f"""{_norm("x", "n0")} {heads} scores = MatMul(q, k) scaled = Mul(scores, scale) p = Softmax(scaled)
        h0 = MatMul(p, v) h1 = Transpose<perm = [0, 2, 1, 3]>(h0) h2 = Reshape(h1, whole) h3 = MatMul(h2, wo)
        r = Add(x, h3) {_norm("r", "n1")} f0 = MatMul(n1, w1) f1 = Add(f0, b1) f2 = Tanh(f1) f3 = MatMul(f2, w2)
        y = Add(r, f3)"""
    weights = {f"w{n}": _random(256, 256) for n in "qkvo"}
    weights |= {"w1": _random(256, 1024), "w2": _random(1024, 256), "s": _random(256), "b": _random(256)}
    weights |= {"b1": _random(1024), "scale": np.array(0.125)}
    return nodes, _random(1, 128, 256), weights


NETS: dict[str, Callable[[], tuple[str, Array, dict[str, Array]]]] = {
    "MLP, 1 row": lambda: (
        "a = Gemm(x, w0, b0) c = Tanh(a) d = Gemm(c, w1, b1) e = Sigmoid(d) y = Gemm(e, w2)",
        _random(1, 256),
        {
            "w0": _random(256, 1024),
            "b0": _random(1024),
            "w1": _random(1024, 1024),
            "b1": _random(1024),
            "w2": _random(1024, 16),
        },
    ),
    "MLP, 256 rows": lambda: (
        "a = Gemm(x, w0, b0) c = Tanh(a) d = Gemm(c, w1, b1) e = Sigmoid(d) y = Gemm(e, w2)",
        _random(256, 256),
        {
            "w0": _random(256, 1024),
            "b0": _random(1024),
            "w1": _random(1024, 1024),
            "b1": _random(1024),
            "w2": _random(1024, 16),
        },
    ),
    "transformer block, 128 tokens": _transformer,
    "row statistics": lambda: (
        """m = ReduceMean<keepdims = 1>(x, one) d = Sub(x, m) q = Mul(d, d) v = ReduceMean<keepdims = 1>(q, one)
        e = Sqrt(v) z = Div(d, e) p = Softmax(z) y = Exp(p)""",
        _random(512, 512),
        {},
    ),
    "CNN": lambda: (
        """a = Conv<pads = [1, 1, 1, 1]>(x, w0) c = Relu(a) d = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c)
        e = Conv<pads = [1, 1, 1, 1]>(d, w1) f = Relu(e) g0 = GlobalAveragePool(f) g1 = Flatten(g0) y = Gemm(g1, w2)""",
        _random(1, 3, 64, 64),
        {"w0": _random(32, 3, 3, 3), "w1": _random(64, 32, 3, 3), "w2": _random(64, 10)},
    ),
    "LSTM": lambda: (
        "y, h, c = LSTM<hidden_size = 128>(x, w0, w1)",
        _random(64, 1, 64),
        {"w0": _random(1, 512, 64), "w1": _random(1, 512, 128)},
    ),
}


def _model(nodes: str, x: Array, weights: dict[str, Array], dtype: str) -> onnx.ModelProto:
    kind = {"f64": "double", "f32": "float"}[dtype]
    shape = ",".join(map(str, x.shape))
    constants = "split = Constant<value_ints = [0, 0, 4, 64]>() whole = Constant<value_ints = [0, 0, 256]>() "
    constants += "one = Constant<value_ints = [1]>() "
    used = "".join(c + ") " for c in constants.split(") ")[:-1] if f" {c.split()[0]})" in nodes)
    text = f'<ir_version: 8, opset_import: ["": 21]> g ({kind}[{shape}] x) => ({kind} y) {{ {used} {nodes} }}'
    model = onnx.parser.parse_model(text)
    cast = {"f64": np.float64, "f32": np.float32}[dtype]
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a.astype(cast), n) for n, a in weights.items())
    kinds = {"f64": onnx.TensorProto.DOUBLE, "f32": onnx.TensorProto.FLOAT}
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info("y", kinds[dtype], None))
    return model


def _peer(model: onnx.ModelProto, x: Array) -> Callable[[], object] | None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        session.run(None, {"x": x})
    except Exception:  # no kernel: its classes of errors are not public
        return None
    return lambda: session.run(None, {"x": x})


def _times(runs: list[Callable[[], object]]) -> list[float]:
    """Return the least seconds of each run."""
    best = [float("inf")] * len(runs)
    for run in runs:
        run()
    for _ in range(ROUNDS):
        for k, run in enumerate(runs):
            count, start = 0, time.perf_counter()
            while time.perf_counter() - start < BURST:
                run()
                count += 1
            best[k] = min(best[k], (time.perf_counter() - start) / count)
    return best


def main(arguments: list[str]) -> None:
    """Print a table of the networks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="native")
    target = parser.parse_args(arguments).target
    sys.stdout.write("| network | ours, ms | ours / ONNX Runtime | f64 / f32, ours |\n|---|---:|---:|---:|\n")
    for name, make in NETS.items():
        nodes, x, weights = make()
        model = _model(nodes, x, weights, "f64")
        wide = rewrite.compile(model, target=target, threads=1)
        narrow = rewrite.compile(_model(nodes, x, weights, "f32"), target=target, threads=1)
        assert not wide.fallbacks()
        peer, thin = _peer(model, x), x.astype(np.float32)
        runs: list[Callable[[], object]] = [partial(wide.run, {"x": x}), partial(narrow.run, {"x": thin})]
        ours, single, *theirs = _times(runs + ([peer] if peer else []))
        ratio = f"{ours / theirs[0]:.2f}" if theirs else "no kernels"
        sys.stdout.write(f"| {name} | {ours * 1e3:.3f} | {ratio} | {ours / single:.2f} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
