"""Measurement of a machine profile in a few seconds.

A small C program runs independent fused multiply-adds in registers, streams over buffers sized for each memory level,
and passes a token between two threads. The dispatch cost is that of ONNX Runtime where it is installed. Figures that
cannot be measured keep their shipped values; without a C compiler that is all but the dispatch cost.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from ...system import scoped
from ...system.compiler import c_compilers
from . import machine
from .machine import Machine

_LEAST_DISPATCH = 1e-6
"""Lower bound in seconds: a chain of trivial nodes stays in the cache, real nodes take longer to dispatch."""

_PROGRAM = Path(__file__).with_name("microbench.c")


def calibrate(seconds: float = 10.0, isa: str = "") -> Machine:
    """Measure this machine in about that many seconds, with vectors of an extension; the result is not stored."""
    base = machine.default(isa)
    share = max(seconds, 0.1) / 8
    sizes = _working_sets(base)
    found = _compiled(base, sizes, share)
    flops, rates, launch = found.get("flops", 0.0), found.get("bandwidths", []), found.get("launch", 0.0)
    changes: dict[str, Any] = {"source": "calibrated"}
    if flops > 1e8:
        changes["flops"] = flops
    if len(rates) == 4 and min(rates) > 1e8:
        # An outer level is never faster than an inner one: such a measurement is noise.
        changes["bandwidths"] = tuple(max(rates[i:]) for i in range(4))
    if 1e-8 < launch < 1e-3:
        changes["launch"] = max(launch, 2e-7)
    if (dispatch := _dispatch(2 * share)) is not None:
        changes["dispatch"] = max(dispatch, _LEAST_DISPATCH)
    return dataclasses.replace(base, **changes)


def _working_sets(base: Machine) -> list[int]:
    """Return a working set in bytes that fits each memory level well, and one that only DRAM holds."""
    l1, l2, l3 = base.sizes
    return [l1 // 2, max(l2 // 2, l1 * 2), max(l3 // 4, l2 * 2), max(4 * l3, 128 << 20)]


def _compiled(base: Machine, sizes: list[int], share: float) -> dict[str, Any]:
    """Build and run the C program; empty where that fails."""
    commands = c_compilers()
    if not commands:
        return {}
    with scoped.directory("calibrate") as folder:
        binary = folder / "bench"
        flags = ["-O3", "-march=native", "-ffp-contract=fast", f"-DWIDTH={base.lanes}", "-pthread"]
        try:
            scoped.run([*commands[0], *flags, str(_PROGRAM), "-o", str(binary)], seconds=120).check_returncode()
            done = scoped.run([str(binary), f"{share:.3f}", *map(str, sizes)], seconds=20 * share + 60)
            done.check_returncode()
            found = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError):
            return {}
    return found if isinstance(found, dict) else {}


def _dispatch(seconds: float) -> float | None:
    """Measure ONNX Runtime's cost of a trivial node in seconds: the slope between two lengths of a chain."""
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import numpy as np
    import onnx
    import onnxruntime

    def chain(length: int) -> float:
        nodes = [onnx.helper.make_node("Sin" if i % 2 else "Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(length)]
        infos = [onnx.helper.make_tensor_value_info(v, onnx.TensorProto.FLOAT, [4]) for v in ("v0", f"v{length}")]
        graph = onnx.helper.make_graph(nodes, "chain", infos[:1], infos[1:])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        feed = {"v0": np.zeros(4, np.float32)}
        times: list[float] = []
        stop = time.perf_counter() + seconds / 2
        while time.perf_counter() < stop or len(times) < 3:
            start = time.perf_counter()
            session.run(None, feed)
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    try:
        slope = (chain(420) - chain(20)) / 400
    except Exception:  # an unusual build of the runtime: its cost stays unknown
        return None
    return slope if 1e-8 < slope < 1e-3 else None
