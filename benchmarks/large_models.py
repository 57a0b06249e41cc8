"""Memory and time of compiling and loading a large model: `python -m benchmarks.large_models [--gigabytes 1.2]`.

The model has feed-forward layers of 34 MB of random weights each, in its file or as external data. `rewrite MODEL` runs
on it in a process of its own, with an empty cache. Prints a Markdown table: seconds, and the peak of the resident set
of the largest process, mapped files included, in terms of the weights.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

WIDTH, INNER = 1024, 4096
LOAD = """
import sys, time
import rewrite, rewrite.backend.bundle.load_bundle
start = time.perf_counter()
program = rewrite.load(sys.argv[1], threads=1)
loaded = time.perf_counter()
program.run({"x": __import__("numpy").ones((1, %d), "float32")})
print(loaded - start, time.perf_counter() - start)
"""


def write_model(path: Path, layers: int, *, external: bool) -> int:
    """Write a model of layers; return the bytes of its weights."""
    import numpy as np
    import onnx
    from onnx import helper

    rng, nodes, weights, value = np.random.default_rng(0), [], [], "x"
    for layer in range(layers):
        for part, shape in enumerate(((WIDTH, INNER), (INNER, WIDTH))):
            name = f"{layer}.{part}"
            array = rng.standard_normal(shape, np.float32) / np.float32(shape[0] ** 0.5)
            weights.append(onnx.numpy_helper.from_array(array, f"w{name}"))
            nodes.append(helper.make_node("MatMul", [value, f"w{name}"], [f"m{name}"]))
            nodes.append(helper.make_node(("Relu", "Tanh")[part], [f"m{name}"], [f"a{name}"]))
            value = f"a{name}"
    ends = [helper.make_tensor_value_info(v, onnx.TensorProto.FLOAT, ["N", WIDTH]) for v in ("x", value)]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path, save_as_external_data=external, location=f"{path.name}.data")
    return layers * 2 * WIDTH * INNER * 4


def measure(command: Sequence[str | Path], cache: Path) -> tuple[float, int]:
    """Return the seconds that a command takes, and the peak of its largest process in bytes."""
    start = time.perf_counter()
    environment = {**os.environ, "REWRITE_CACHE_DIR": str(cache)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(map(str, command))} failed")
    return time.perf_counter() - start, usage.ru_maxrss << 10


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.2)
    layers = max(1, round(parser.parse_args().gigabytes * 1e9 / (2 * WIDTH * INNER * 4)))
    rows = []
    for external in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            # in a process of its own: the next one's peak begins with the size of this one
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                size = pool.submit(write_model, place / "m.onnx", layers, external=external).result()
            for title, options in (("verified", []), ("not verified", ["--no-verify"])):
                rewrite = Path(sys.executable).with_name("rewrite")
                command: list[str | Path] = [rewrite, place / "m.onnx", "-o", place / "o.onnx", *options]
                seconds, peak = measure(command, place / f"cache {title}")
                rows.append((f"{'external data' if external else 'one file'}, {title}", seconds, peak / size))
            code = [sys.executable, "-c", LOAD % WIDTH, str(place / "m.rewrite")]
            loaded, first = map(float, subprocess.run(code, capture_output=True, check=True, text=True).stdout.split())
    sys.stdout.write(f"{size / 1e9:.2f} GB of weights.\n\n| model | seconds | peak / weights |\n|---|---:|---:|\n")
    sys.stdout.write("".join(f"| {title} | {seconds:.1f} | {peak:.2f} |\n" for title, seconds, peak in rows))
    sys.stdout.write(f"\nThe bundle is loaded in {loaded:.3f} s; its first answer is there after {first:.2f} s.\n")


if __name__ == "__main__":
    main()
