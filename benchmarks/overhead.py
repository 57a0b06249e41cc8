"""Overhead of a run: the call, a launch on two threads, memory, and waiting workers.

    python -m benchmarks.overhead

Prints one JSON object: microseconds of a run of one small operator by the ways to call it, and of ONNX Runtime's;
`launch`, the microseconds that two threads add to a chain of kernels that is just large enough for them, by step;
`bytes`, the memory growth after a thousand runs, in the C library and Python's allocators; `idle`, the processor
milliseconds that the workers burn in the second after a run.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.runtime.program import Program
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import Node

_MALLINFO = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)  # the fields of glibc's struct mallinfo2


def micros(call: Callable[[], Any], times: int = 5000, rounds: int = 9) -> float:
    """The median over rounds of the mean time of one call, in microseconds."""
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(times):
            call()
        found.append((time.perf_counter() - start) / times * 1e6)
    return statistics.median(found)


def relu(threads: int) -> tuple[Program, np.ndarray]:
    """A program of one small operator, and an input that is read where it is."""
    x = harness.aligned((4, 8), np.float32)
    return compile_graph(harness.make_graph([Node("Relu", ("x",), ("y",), name="r")], {"x": x}), threads=threads), x


def softmaxes(threads: int, steps: int = 64) -> tuple[Program, np.ndarray]:
    """A chain of kernels over 48 KiB, which stay in the cache."""
    nodes = [Node("Softmax", (f"v{i}",), (f"v{i + 1}",), {"axis": -1}, name=f"s{i}") for i in range(steps)]
    x = harness.aligned((96, 128), np.float32)
    return compile_graph(harness.make_graph(nodes, {"v0": x}), threads=threads), x


def held() -> int | None:
    """The bytes that the C library has handed out; None if unsupported."""

    class Info(ctypes.Structure):
        _fields_: ClassVar = [(name, ctypes.c_size_t) for name in _MALLINFO]

    try:
        function = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return None
    function.restype = Info
    info = function()
    return int(info.uordblks + info.hblkhd)


def main() -> None:
    """Measure and print."""
    program, x = relu(2)
    y = harness.aligned((4, 8), np.float32)
    bound = program.bind({"x": x})
    record: dict[str, Any] = {
        "run": micros(lambda: program.run({"x": x})),
        "run out=": micros(lambda: program.run({"x": x}, out=[y])),
        "bound": micros(bound),
    }
    try:
        import onnxruntime as ort
        from onnx import helper

        ends = [helper.make_tensor_value_info(n, 1, [4, 8]) for n in "xy"]
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        record["onnxruntime"] = micros(lambda: session.run(None, {"x": x}))
    except ImportError:
        pass
    one, v = softmaxes(1)
    two, _ = softmaxes(2)
    alone, both = (micros(p.bind({"v0": v}), 200) for p in (one, two))
    record["launch"] = {"one thread": alone / 64, "two threads": both / 64, "added": (both - alone / 2) / 64}
    tracemalloc.start()
    bound()
    before = held(), tracemalloc.get_traced_memory()[0]
    for _ in range(1000):
        bound()
    after = held(), tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    record["bytes"] = {
        "c": None if before[0] is None or after[0] is None else after[0] - before[0],
        "python": after[1] - before[1],
    }
    two.run({"v0": v})
    start = time.process_time()
    time.sleep(1)
    record["idle"] = (time.process_time() - start) * 1e3
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
