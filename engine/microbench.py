"""Measures the figures of a machine profile in a few seconds.

With a C compiler a small program is built that runs independent fused multiply-adds in registers, streams over buffers
sized for each level of the memory hierarchy, and passes a token between two threads. Without one, NumPy's matrix
product and copies take their place, in a process that is held to one thread. The dispatch cost is ONNX Runtime's where
that is installed. What cannot be measured keeps the shipped figure.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from typing import Any

from .. import transient
from .machine import Machine

_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)

_LEAST_DISPATCH = 1e-6
"""A chain of trivial nodes keeps the runtime in the cache; between nodes that do work a dispatch costs more."""

_PROGRAM = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef float vf __attribute__((vector_size(WIDTH * 4)));

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

/* Five values stay in registers, and the compiler cannot see that the chains are alike. */
#if defined(__aarch64__)
#define KEEP(a, b, c, d, e) __asm__ volatile("" : "+w"(a), "+w"(b), "+w"(c), "+w"(d), "+w"(e))
#elif defined(__AVX512F__)
#define KEEP(a, b, c, d, e) __asm__ volatile("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e))
#elif defined(__x86_64__)
#define KEEP(a, b, c, d, e) __asm__ volatile("" : "+x"(a), "+x"(b), "+x"(c), "+x"(d), "+x"(e))
#else
#define KEEP(a, b, c, d, e) __asm__ volatile("" : "+m"(a), "+m"(b), "+m"(c), "+m"(d), "+m"(e))
#endif

/* Ten independent chains hide the latency of a fused multiply-add on all current cores. */
static double peak(double seconds) {
    vf x, y;
    for (int l = 0; l < WIDTH; l++) { x[l] = 0.999f; y[l] = 0.001f; }
    vf a = y, b = y, c = y, d = y, e = y, f = y, g = y, h = y, i = y, j = y;
    double best = 0, stop = now() + seconds;
    while (now() < stop) {
        double start = now();
        for (int n = 0; n < 200000; n++) {
            a = a * x + y; b = b * x + y; c = c * x + y; d = d * x + y; e = e * x + y;
            f = f * x + y; g = g * x + y; h = h * x + y; i = i * x + y; j = j * x + y;
            KEEP(a, b, c, d, e);
            KEEP(f, g, h, i, j);
        }
        double rate = 200000.0 * 10 * 2 * WIDTH / (now() - start);
        if (rate > best) best = rate;
    }
    volatile float sink = (a + b + c + d + e + f + g + h + i + j)[0];
    (void)sink;
    return best;
}

/* Reads one buffer and writes another of the same size; the rate counts both. */
static double stream(size_t bytes, double seconds) {
    size_t n = bytes / 2 / sizeof(vf);
    vf *src = aligned_alloc(4096, (n * sizeof(vf) + 4095) / 4096 * 4096);
    vf *dst = aligned_alloc(4096, (n * sizeof(vf) + 4095) / 4096 * 4096);
    if (!src || !dst) return 0;
    memset(src, 0, n * sizeof(vf));
    memset(dst, 0, n * sizeof(vf));
    vf one;
    for (int l = 0; l < WIDTH; l++) one[l] = 1.0f;
    double best = 0, stop = now() + seconds;
    int repeat = (int)((1 << 24) / bytes) + 1;
    while (now() < stop) {
        double start = now();
        for (int r = 0; r < repeat; r++) {
            for (size_t i = 0; i < n; i++) dst[i] = src[i] + one;
            __asm__ volatile("" : : "r"(dst) : "memory");
        }
        double rate = (double)repeat * 2 * n * sizeof(vf) / (now() - start);
        if (rate > best) best = rate;
    }
    free(src);
    free(dst);
    return best;
}

static atomic_int token, quit;

static void *partner(void *unused) {
    while (!atomic_load(&quit))
        if (atomic_load(&token) == 1) atomic_store(&token, 0);
    return unused;
}

/* The time to hand work to a spinning thread and see it done. */
static double handover(double seconds) {
    pthread_t thread;
    if (pthread_create(&thread, 0, partner, 0)) return 0;
    double best = 1, stop = now() + seconds;
    while (now() < stop) {
        double start = now();
        int done = 0;
        for (; done < 1000 && now() < stop + 0.1; done++) {
            atomic_store(&token, 1);
            while (atomic_load(&token) && now() < stop + 0.1) {}
        }
        double each = (now() - start) / (done ? done : 1);
        if (done && each < best) best = each;
    }
    atomic_store(&quit, 1);
    pthread_join(thread, 0);
    return best;
}

int main(int argc, char **argv) {
    double share = atof(argv[1]);
    printf("{\"flops\": %.6g, \"bandwidths\": [", peak(share));
    for (int i = 2; i < argc; i++) printf("%s%.6g", i > 2 ? ", " : "", stream(strtoull(argv[i], 0, 10), share));
    printf("], \"launch\": %.6g}\n", handover(share));
    return 0;
}
"""


def measure(base: Machine, seconds: float = 10.0) -> Machine:
    """The profile `base` with every figure replaced that can be measured here, in about that many seconds."""
    share = max(seconds, 0.1) / 8
    sizes = _working_sets(base)
    found = _compiled(base, sizes, share) or _interpreted(sizes, share)
    changes: dict[str, Any] = {"source": "calibrated"}
    flops = found.get("flops", 0.0)
    if flops > 1e8:
        changes["flops"] = flops
    rates = found.get("bandwidths", [])
    if len(rates) == 4 and min(rates) > 1e8:
        # an outer level is never faster than an inner one: what measures so is noise
        changes["bandwidths"] = tuple(max(rates[i:]) for i in range(4))
    launch = found.get("launch", 0.0)
    if 1e-8 < launch < 1e-3:
        changes["launch"] = max(launch, 2e-7)
    dispatch = _dispatch(2 * share)
    if dispatch is not None:
        changes["dispatch"] = max(dispatch, _LEAST_DISPATCH)
    return dataclasses.replace(base, **changes)


def _working_sets(base: Machine) -> list[int]:
    """A working set for each level that fits it well, and one that fits none."""
    l1, l2, l3 = base.sizes
    return [l1 // 2, max(l2 // 2, l1 * 2), max(l3 // 4, l2 * 2), max(4 * l3, 128 << 20)]


def compiler() -> list[str] | None:
    """The command of a C compiler: one on the path, or the one inside the `ziglang` package; None if there is none."""
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    return None


def _compiled(base: Machine, sizes: list[int], share: float) -> dict[str, Any] | None:
    """Builds and runs the C program; None where that fails."""
    command = compiler()
    if command is None:
        return None
    width = {"avx512": 16, "avx2": 8}.get(base.isa, 4)
    with transient.directory("calibrate") as folder:
        source, binary = folder / "bench.c", folder / "bench"
        source.write_text(_PROGRAM, encoding="utf-8")
        flags = ["-O3", "-march=native", "-ffp-contract=fast", f"-DWIDTH={width}", "-pthread"]
        try:
            transient.run([*command, *flags, str(source), "-o", str(binary)], seconds=120).check_returncode()
            done = transient.run([str(binary), f"{share:.3f}", *map(str, sizes)], seconds=20 * share + 60)
            done.check_returncode()
            found = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError):
            return None
    return found if isinstance(found, dict) else None


def _interpreted(sizes: list[int], share: float) -> dict[str, Any]:
    """The same by NumPy, in a child whose BLAS is held to one thread."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import _child; _child({sizes!r}, {share!r})"
    try:
        environment = {**os.environ, **_ONE_THREAD}
        done = transient.run([sys.executable, "-c", code], seconds=20 * share + 60, env=environment)
        done.check_returncode()
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _child(sizes: list[int], share: float) -> None:
    """Measures with NumPy and prints JSON."""
    import numpy as np

    a, b = (np.ones((512, 512), np.float32) for _ in range(2))
    flops = 2 * 512**3 / _best(lambda: a @ b, share)
    rates = []
    for size in sizes:
        src, dst = np.zeros(size // 8, np.float32), np.zeros(size // 8, np.float32)

        def copy(src: Any = src, dst: Any = dst) -> None:
            for _ in range(10):
                np.copyto(dst, src)

        rates.append(10 * 2 * src.nbytes / _best(copy, share))
    sys.stdout.write(json.dumps({"flops": flops, "bandwidths": rates}))


def _best(work: Any, seconds: float) -> float:
    """The shortest time that a call took."""
    stop = time.perf_counter() + seconds
    best = float("inf")
    while time.perf_counter() < stop or best == float("inf"):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def _dispatch(seconds: float) -> float | None:
    """What ONNX Runtime takes for a node that does next to nothing: the slope between two lengths of a chain."""
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
    except Exception:  # an unusual build of the runtime: its cost is not known
        return None
    return slope if 1e-8 < slope < 1e-3 else None
