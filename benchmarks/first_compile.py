"""First compile of a model: how long a process takes from its start to a program that is ready to run.

    python -m benchmarks.first_compile resnet50.ts.raw 'swin_tiny.ts.*' --runs 5 --prepare

Each run is a new process with an empty cache, then one with the cache that the first left (`again`), then one for each
peer that is installed, which creates a session. Prints one JSON object per model, of the fastest run:

- `seconds` by the clock, `cpu` of all processes, and `parts` by the clock: what the process was waiting for. Compilers
  run beside `plan`, so `compile` is what is left of them, with loading and linking;
- `modules` and `kernels` that were compiled;
- `again`, and the seconds of each peer, which include its import: the least of the runs.

Wheels are built with the standard rules parsed and the templates of kernels translated, and pip compiles modules of
Python when it installs them. `--prepare` does all that in a checkout, even where the environment has
`PYTHONDONTWRITEBYTECODE`. Otherwise the first run does it, for templates every run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PEERS = ("onnxruntime", "openvino")
THREADS = 2


def compile_here(model: Path, begin: float) -> dict[str, Any]:
    """Compile a model in this process, which began at `begin` of the system's monotonic clock."""
    from rewrite.backend.compile_model import compile_model
    from rewrite.engine.options import Options
    from rewrite.system.store import Store

    times: dict[str, float] = {}

    def reached(stage: str, _: Mapping[str, Any]) -> None:
        times.setdefault(stage, time.monotonic())

    compile_model(model, Options(), threads=THREADS, progress=reached)
    end = time.monotonic()
    used = [resource.getrusage(group) for group in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    bounds = [begin, *times.values(), end]
    kernels = Store().namespace("kernels").path
    return {
        "seconds": end - begin,
        "cpu": sum(u.ru_utime + u.ru_stime for u in used),
        "parts": {n: b - a for n, a, b in zip(("start", *times), bounds[:-1], bounds[1:], strict=True)},
        "modules": len(list(kernels.glob("*/*.so"))),
        "kernels": len(list(kernels.glob("*/by_kernel/*"))),
    }


def open_here(engine: str, model: Path, begin: float) -> dict[str, Any]:
    """Create a peer's session in this process."""
    from rewrite.cli.measure import peer

    peer(engine, model, THREADS)
    return {"seconds": time.monotonic() - begin}


def run(engine: str, model: Path, cache: str) -> dict[str, Any] | None:
    """Return what a new process with this cache measures; None if the engine is missing or refuses the model."""
    command = [sys.executable, "-m", "benchmarks.first_compile", str(model), "--engine", engine]
    environment = {**os.environ, "REWRITE_CACHE_DIR": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command += ["--begin", repr(time.monotonic())]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode and engine == "rewrite":
        raise SystemExit(done.stderr)
    return None if done.returncode else json.loads(done.stdout.strip().splitlines()[-1])


def measure(name: str, runs: int) -> dict[str, Any]:
    """Return what the fastest of some runs measures, and the least times of the others."""
    from . import models  # not in the processes that are measured

    model, found = models.path(name), []
    others: dict[str, float] = {}
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as cache:
            first, again = run("rewrite", model, cache), run("rewrite", model, cache)
            peers = {engine: run(engine, model, cache) for engine in PEERS}
        assert first is not None
        found.append(first)
        for key, record in {"again": again, **peers}.items():
            if record is not None:
                others[key] = min(record["seconds"], others.get(key, record["seconds"]))
    return _rounded({"model": name, **min(found, key=lambda record: record["seconds"]), **others})


def _rounded(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _rounded(value) if isinstance(value, Mapping) else round(value, 3) if isinstance(value, float) else value
        for key, value in record.items()
    }


def prepare() -> None:
    """Compile modules to bytecode, parse the standard rules and translate templates, as an installed wheel has them."""
    import compileall

    from rewrite.backend.codegen.render import prepare_templates
    from rewrite.engine.rewriting.rule_library import prepare_standard_library

    compileall.compile_dir(ROOT, quiet=2, rx=re.compile(r"/(\..*|build|tests)/"))
    prepare_standard_library()
    prepare_templates()


def main() -> None:
    """Measure models, or be one of the processes that are measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("patterns", nargs="+", help="shell patterns of names")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--prepare", action="store_true", help="prepare what wheels have prepared")
    parser.add_argument("--engine", choices=("rewrite", *PEERS), help=argparse.SUPPRESS)
    parser.add_argument("--begin", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        model = Path(options.patterns[0])
        with contextlib.redirect_stdout(sys.stderr):
            ours = options.engine == "rewrite"
            record = compile_here(model, options.begin) if ours else open_here(options.engine, model, options.begin)
        print(json.dumps(record))
        return
    from . import models

    if options.prepare:
        prepare()
    for name in models.select(options.patterns):
        print(json.dumps(measure(name, options.runs)), flush=True)


if __name__ == "__main__":
    main()
