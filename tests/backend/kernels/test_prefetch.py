"""Prefetches of the next weights stay inside the weights: where no page is behind them, each walks the page tables."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rewrite.backend.codegen.render import kernel_name, render_kernel, render_module
from rewrite.backend.ir.arrays import Array
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.target import Target, detect
from rewrite.backend.kernels.gemm import tiles as tiling
from rewrite.backend.kernels.gemm.matmul import prefetched_lines
from rewrite.backend.memory.buffer_assignment import concrete
from rewrite.backend.toolchain.compiler import find_compiler
from rewrite.benchmarks import harness
from rewrite.engine.ir import symbolic
from rewrite.engine.ir.graph import Graph, Node, TensorType

TEMPLATES = Path(__file__).parents[3] / "backend" / "kernels" / "common"
WATCHED = """
static const char *low, *high;
long inside, outside;
void watch(const char *from, const char *to) { low = from, high = to, inside = outside = 0; }
/* into the second-level cache, as the next weights are fetched */
static void seen(const void *at, int level) {
  if (level == 2) (const char *)at >= low && (const char *)at < high ? inside++ : outside++;
}
#define __builtin_prefetch(at, write, level) seen(at, level)
"""
RANDOM = np.random.default_rng(7)


def random(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def conv(x: Array, w: Array, stride: int) -> Graph:
    window = {"kernel_shape": (3, 3), "strides": (stride, stride), "pads": (1, 1, 1, 1)}
    return harness.make_graph(
        [Node("rewrite.ChannelsLastConv", ("x", "w"), ("y",), window)], {"x": x}, constants={"w": w}
    )


def pointwise(pixels: int, k: int, m: int) -> Graph:
    window = {"kernel_shape": (1, 1), "strides": (2, 2), "pads": (0, 0, 0, 0)}
    return harness.make_graph(
        [Node("rewrite.ChannelsLastConv", ("x", "w"), ("y",), window)],
        {"x": random(1, pixels, pixels, k)},
        constants={"w": random(m, k, 1, 1)},
    )


PROBLEMS = {
    "conv": lambda: conv(random(1, 14, 14, 96), random(72, 96, 3, 3), 2),
    "conv of many pixels and few weights": lambda: pointwise(120, 512, 24),
    "conv of several blocks": lambda: conv(random(1, 60, 60, 64), random(48, 64, 3, 3), 2),
    "winograd": lambda: conv(random(1, 14, 14, 64), random(64, 64, 3, 3), 1),
    "gemm": lambda: harness.make_graph(
        [Node("MatMul", ("x", "w"), ("y",))], {"x": random(37, 256)}, constants={"w": random(256, 280)}
    ),
    "gemm by streams": lambda: harness.make_graph(
        [Node("MatMul", ("x", "w"), ("y",))], {"x": random(32, 1024)}, constants={"w": random(1024, 280)}
    ),
    "gemm of many rows": lambda: harness.make_graph(
        [Node("MatMul", ("x", "w"), ("y",))], {"x": random(700, 256)}, constants={"w": random(256, 280)}
    ),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_next_weights_are_fetched_within_the_weights(problem: str, tmp_path: Path) -> None:
    if shutil.which("gcc") is None or platform.machine() != "x86_64":
        pytest.skip("prefetches are watched in code for x86-64, compiled by gcc")
    target = replace(detect(), l2=1 << 17)
    items, context = harness.lower(PROBLEMS[problem](), target=target)
    steps = [item for item in items or () if isinstance(item, Step) and item.kernel.params.get("prefetch")]
    assert steps, "nothing is prefetched, so nothing is tested"
    for step in steps:
        fetched, strayed = watched(step, [context.type(v) for v in (*step.inputs, *step.outputs)], target, tmp_path)
        assert fetched
        assert not strayed


def watched(step: Step, types: Sequence[TensorType], target: Target, folder: Path) -> tuple[int, int]:
    """Run a step's kernel on one thread; return how many prefetches were of its weights, and how many were not."""
    text = WATCHED + render_module([render_kernel(step.kernel, target)])
    (folder / "kernel.c").write_text(text)
    compiler = find_compiler()
    command = [*compiler.command, *compiler.flags(target), f"-I{TEMPLATES}", "kernel.c", "-o", "kernel.so", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "kernel.so"))
    places = [concrete(kind, {}) for kind in types]
    buffers = [harness.aligned(shape, dtype) for shape, dtype in places]
    buffers.append(harness.aligned((symbolic.evaluate(step.scratch, {}),), np.dtype(np.uint8)))
    weights = buffers[1]
    library.watch(ctypes.c_void_p(weights.ctypes.data), ctypes.c_void_p(weights.ctypes.data + weights.nbytes))
    pointers = (ctypes.c_void_p * len(buffers))(*(b.ctypes.data for b in buffers))
    extents = [symbolic.evaluate(d, {}) for d in step.dims]
    library[kernel_name(step.kernel, target)](pointers, (ctypes.c_int64 * max(1, len(extents)))(*extents), 0, 1)
    inside, outside = (ctypes.c_long.in_dll(library, name).value for name in ("inside", "outside"))
    return inside, outside


def test_weights_that_kernels_before_have_evicted_are_fetched_whatever_their_size() -> None:
    target = replace(detect(), l2=1 << 21)
    choice = tiling.choose(target, 196, 128, 128)
    assert prefetched_lines(choice, target, 196, 128, 128) > 0
    assert prefetched_lines(choice, target, "rows", 128, 128) > 0  # type: ignore[arg-type]
    assert prefetched_lines(choice, target, 196, 16, 16) == 0  # they cost less than the prefetches
    assert prefetched_lines(choice, target, choice.mr, 128, 128) == 0  # there is no time to
    assert prefetched_lines(choice, target, choice.mr, 128, 128, alone=True) > 0
