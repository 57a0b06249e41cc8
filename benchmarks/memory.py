"""Peak memory of a process that runs a model: one process for each engine.

    python -m benchmarks.memory resnet50.dynamo.raw

`rewrite` loads the bundle it compiled before, ONNX Runtime the model; both then run it a few times. What counts is the
peak of the resident set (`VmHWM` of /proc/self/status), mapped files included. Prints one JSON object:

- the peak of each engine in bytes, and of a process that only has Python, NumPy and the inputs;
- the program's arena, and its lower bound: the most bytes alive at once;
- the program's weights, and the number of nodes that the reference implementation runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import models

ROOT = Path(__file__).resolve().parent.parent
RUNS = 3
ENGINES = ("nothing", "rewrite", "onnxruntime")


def peak() -> int:
    """The most bytes that this process has had resident."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def run(engine: str, model: Path, arrays: Path, threads: int) -> int:
    """Runs a bundle (`rewrite`) or a model in this process; the peak."""
    import numpy as np

    with np.load(arrays, allow_pickle=False) as file:
        feeds = {key: file[key] for key in file.files}
    runner: Callable[[Mapping[str, Any]], Any] = lambda _: None  # noqa: E731
    if engine == "rewrite":
        import rewrite

        runner = rewrite.load(model, threads=threads).run
    elif engine == "onnxruntime":
        from rewrite.cli.measure import peer

        runner = peer("onnxruntime", model, threads)
    for _ in range(RUNS):
        runner(feeds)
    return peak()


def measure(name: str, threads: int = 1) -> dict[str, int]:
    """The peak of each engine on a model, each in a separate process; `arena`, `arena_bound`, `weights` (bytes) and
    `fallbacks` (nodes) of the program."""
    import tempfile

    import numpy as np
    import rewrite

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        arrays, bundle = Path(folder) / "inputs.npz", Path(folder) / "model.rewrite"
        feeds = models.inputs(name)
        np.savez(arrays, **feeds)  # type: ignore[arg-type]
        program = rewrite.compile(models.path(name), threads=threads)
        program.save(bundle)
        program.run(feeds)
        found["arena"], found["arena_bound"] = program.memory() or (0, 0)
        found["weights"] = (bundle / "weights.bin").stat().st_size
        found["fallbacks"] = sum(program.fallbacks().values())
        for engine in ENGINES:
            model = bundle if engine == "rewrite" else models.path(name)
            command = [sys.executable, "-m", "benchmarks.memory", str(model), "--threads", str(threads)]
            command += ["--engine", engine, "--inputs", str(arrays)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
            found[engine] = int(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    """Measure a model, or be one of the processes that are measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--inputs", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        print(run(options.engine, Path(options.name), options.inputs, options.threads))
        return
    with contextlib.redirect_stdout(sys.stderr):
        record = measure(options.name, options.threads)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
