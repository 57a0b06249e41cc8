"""Small graphs for tests of programs, with operators with and without kernels."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import Graph, Node

RNG = np.random.default_rng(7)
W = RNG.standard_normal((16, 8), np.float32)
B = RNG.standard_normal(8, np.float32)


def chain() -> Graph:
    """relu(x + b) * sigmoid(x), elementwise, with a dynamic first dim."""
    nodes = [
        Node("Add", ("x", "b"), ("s",), name="add"),
        Node("Relu", ("s",), ("r",), name="relu"),
        Node("Sigmoid", ("x",), ("g",), name="sigmoid"),
        Node("Mul", ("r", "g"), ("y",), name="mul"),
    ]
    x = np.zeros((2, 8), np.float32)
    return harness.make_graph(nodes, {"x": x}, constants={"b": B}, outputs=["y"], symbolic_shapes={"x": ("N", 8)})


def chain_reference(x: np.ndarray) -> np.ndarray:
    return np.maximum(x + B, 0) / (1 + np.exp(-x))


def long_chain(steps: int = 12) -> Graph:
    """Elementwise operators and softmax alternately: several kernels over one shape."""
    nodes = []
    for i in range(steps):
        nodes.append(Node("Softmax", (f"v{i}",), (f"s{i}",), {"axis": -1}, name=f"softmax{i}"))
        nodes.append(Node("Add", (f"s{i}", "v0"), (f"v{i + 1}",), name=f"add{i}"))
    x = np.zeros((64, 64), np.float32)
    return harness.make_graph(nodes, {"v0": x}, outputs=[f"v{steps}"], symbolic_shapes={"v0": ("N", 64)})


def long_chain_reference(x: np.ndarray, steps: int = 12) -> np.ndarray:
    v = x
    for _ in range(steps):
        e = np.exp(v - v.max(-1, keepdims=True))
        v = e / e.sum(-1, keepdims=True) + x
    return v


def mixed() -> Graph:
    """Shape arithmetic, aliases, a fallback that determines an extent, and native operators after it."""
    nodes = [
        Node("Relu", ("x",), ("r",), name="relu"),
        Node("Shape", ("r",), ("shape",), {"start": 0}, name="shape"),
        Node("Reshape", ("r", "flat"), ("f",), {"allowzero": 0}, name="reshape"),
        Node("Cast", ("r",), ("half",), {"to": 10, "saturate": 1}, name="cast to f16, of which NonZero has no kernel"),
        Node("NonZero", ("half",), ("where",), name="nonzero"),
        Node("Transpose", ("where",), ("index",), {"perm": (1, 0)}, name="transpose"),
        Node("Cast", ("index",), ("indexf",), {"to": 1, "saturate": 1}, name="cast"),
        Node("Relu", ("indexf",), ("last",), name="relu2"),
    ]
    return harness.make_graph(
        nodes,
        {"x": np.zeros((3, 8), np.float32)},
        constants={"flat": np.array([-1])},
        outputs=["f", "shape", "last", "r"],
        symbolic_shapes={"x": ("N", 8)},
    )


def mixed_reference(x: np.ndarray) -> dict[str, Any]:
    r = np.maximum(x, 0)
    return {
        "f": r.ravel(),
        "shape": np.array(r.shape, np.int64),
        "last": np.argwhere(r).astype(np.float32),
        "r": r,
    }


def check_steady(run: Callable[[], object]) -> None:
    """Fail if a hundred runs, after as many, allocate more memory than the lists and tuples of a call."""
    for _ in range(100):
        run()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for _ in range(100):
            run()
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert now - before < 512
    assert peak - before < 4096
