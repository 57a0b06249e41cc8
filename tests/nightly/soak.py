"""Many programs in many threads, loaded and dropped for a long time: `python -m tests.nightly.soak [--minutes 60]`.

Each of 24 places holds a program of one of a few models, loaded from its bundle. Eight threads choose places at random.
They run the program there, whatever other threads do with it, or drop it and load another. Every result is compared
with the first one of the same inputs, bit by bit. A line a minute has the runs, the loads and the process's memory.
Ends with an error after a wrong result, an exception, or if memory has grown by more than 5 % since the first quarter.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import rewrite
from onnx import parser

PLACES, THREADS, SIZES = 24, 8, (1, 3, 8)
_HEAD = '<ir_version: 8, opset_import: ["": 17]>'
MODELS = {
    "convolutions": f"""{_HEAD} g (float[N, 3, 32, 32] x) => (float[N, 8, 16, 16] y) {{
        s = Constant<value_ints = [8, 3, 3, 3]>() o = Constant<value_ints = [8]>()
        w = ConstantOfShape<value = float[1] {{0.1}}>(s) b = ConstantOfShape<value = float[1] {{0.5}}>(o)
        c = Conv<pads = [1, 1, 1, 1]>(x, w, b) r = Relu(c)
        y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r) }}""",
    "attention": f"""{_HEAD} g (float[N, 7, 16] x) => (float[N, 7, 16] y) {{
        t = Transpose<perm = [0, 2, 1]>(x) s = MatMul(x, t) p = Softmax<axis = -1>(s) y = MatMul(p, x) }}""",
    "recurrence": f"""{_HEAD} g (float[N, 2, 4] x) => (float[N, 1, 2, 8] y) {{
        s = Constant<value_ints = [1, 32, 4]>() u = Constant<value_ints = [1, 32, 8]>()
        w = ConstantOfShape<value = float[1] {{0.1}}>(s) r = ConstantOfShape<value = float[1] {{-0.1}}>(u)
        y = LSTM<hidden_size = 8>(x, w, r) }}""",
    "loop": f"""{_HEAD} g (float[N, 4] x, int64 n) => (float[N, 4] y, float[M, N, 4] z) {{
        c = Constant<value = bool {{1}}>()
        y, z = Loop(n, c, x) <body = b (int64 i, bool k, float[N, 4] s) => (bool l, float[N, 4] t, float[N, 4] o) {{
            l = Identity(k) h = Tanh(s) t = Add(h, x) o = Neg(t) }}> }}""",
    "counts": f"""{_HEAD} g (float[N, 4] x) => (int64[2, M] y, float[K] v) {{
        z = Constant<value = float {{0.0}}>() g = Greater(x, z) y = NonZero(g) f = Flatten<axis = 0>(g)
        a = Constant<value_ints = [0]>() q = Squeeze(f, a) v = Compress(x, q) }}""",
}


@dataclass
class Counts:
    """What has happened so far, and the first thing that must not have."""

    runs: int = 0
    loads: int = 0
    failure: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)


def inputs_of(name: str, size: int) -> dict[str, Any]:
    """Return the inputs of a model for a size of its free dim."""
    rng = np.random.default_rng(size)
    rest = {"convolutions": (3, 32, 32), "attention": (7, 16), "recurrence": (2, 4)}.get(name, (4,))
    feeds: dict[str, Any] = {"x": rng.standard_normal((size, *rest)).astype(np.float32)}
    return feeds | ({"n": np.int64(size + 2)} if name == "loop" else {})


def resident_bytes() -> int:
    """Return the size of this process's resident set, on Linux."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def make_bundles(folder: Path) -> dict[str, Path]:
    """Compile the models, each for one and for two threads."""
    found = {}
    for name, text in MODELS.items():
        for threads in (1, 2):
            found[f"{name} {threads}"] = folder / f"{name}{threads}"
            rewrite.compile(parser.parse_model(text), threads=threads).save(folder / f"{name}{threads}")
    return found


def work(
    bundles: Mapping[str, Path], places: list[Any], expected: Mapping[Any, Any], counts: Counts, end: float
) -> None:
    """Run, drop and load programs until the end."""
    draw = random.Random(threading.get_ident())
    while time.monotonic() < end and not counts.failure:
        place, size = draw.randrange(PLACES), draw.choice(SIZES)
        try:
            if draw.random() < 0.05:
                key = draw.choice(list(bundles))
                places[place] = key, rewrite.load(bundles[key], threads=int(key[-1]))
                with counts.lock:
                    counts.loads += 1
            key, program = places[place]
            name = key.split()[0]
            found = program.run(inputs_of(name, size))
            same = all(np.array_equal(found[k], v) for k, v in expected[name, size].items())
            counts.failure = counts.failure or ("" if same else f"{key}, size {size}: another result than at first")
            with counts.lock:
                counts.runs += 1
        except Exception as error:
            counts.failure = f"{type(error).__name__}: {error}"


def main() -> None:
    """Run for some minutes."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--minutes", type=float, default=60)
    minutes = arguments.parse_args().minutes
    with tempfile.TemporaryDirectory() as folder:
        bundles, counts, memory = make_bundles(Path(folder)), Counts(), list[float]()
        first = {key: rewrite.load(path, threads=int(key[-1])) for key, path in bundles.items()}
        expected = {(name, size): first[f"{name} 1"].run(inputs_of(name, size)) for name in MODELS for size in SIZES}
        keys = [*first]
        places: list[Any] = [(keys[i % len(keys)], first[keys[i % len(keys)]]) for i in range(PLACES)]
        begun = time.monotonic()
        end = begun + 60 * minutes
        threads = [threading.Thread(target=work, args=(bundles, places, expected, counts, end)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(min(60.0, max(1.0, 3 * minutes)))
            memory.append(resident_bytes() / 2**20)
            passed = (time.monotonic() - begun) / 60
            sys.stdout.write(f"{passed:5.1f} min: {counts.runs:,} runs, {counts.loads:,} loads, {memory[-1]:.0f} MiB\n")
            sys.stdout.flush()
        for thread in threads:
            thread.join()
    quarter = max(1, len(memory) // 4)
    before, after = statistics.median(memory[quarter : 2 * quarter] or memory), statistics.median(memory[-quarter:])
    if counts.failure or after > 1.05 * before:
        sys.exit(counts.failure or f"memory has grown from {before:.0f} to {after:.0f} MiB")
    sys.stdout.write(f"{counts.runs:,} runs and {counts.loads:,} loads by {THREADS} threads: nothing wrong\n")


if __name__ == "__main__":
    main()
