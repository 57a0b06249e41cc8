"""Run many random graphs, in processes of their own, and report what differed: `python -m tests.fuzz FIRST LAST`.

Every failure is written to a directory as its seed, problems, a reduced model and its inputs; a summary at the end has
the operators and element types that were compared.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import gc
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO
from unittest import mock

import numpy as np
from rewrite.backend.toolchain import builder, compiler

from .differential import Way, check, coverage, make, reduced, warm, ways_of

LIMIT = 120
"""Seconds of processor time that a graph may take, without C compilers."""
STUCK = 1800
"""Seconds after which a graph is given up, whatever it waits for."""
BLOCK = 100
"""Graphs of a process: rules that one has read serve the next."""
MADE = "made\n"
"""Line that a process writes before it checks a graph."""


def one(seed: int, size: int, place: Path, per_graph: int, made: Callable[[], None]) -> dict[str, Any]:
    """Check the graph of a seed in some ways, which change from seed to seed; reduce it if it fails.

    `made` is called when there is a graph: before that it is only oracles that run."""
    case = make(seed, size)
    made()
    if not case.steps:
        return {"problems": [], "coverage": []}
    ways = ways_of(seed, per_graph)
    outside: list[str] = []
    problems = check(case, ways, outside.append)
    report = {"problems": problems, "coverage": coverage(case), "outside": outside}
    if problems:
        report |= {"ways": [str(w) for w in ways]}
        folder = place / str(seed)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "whole.onnx").write_bytes(case.model().SerializeToString())
        (folder / "problems.txt").write_text("\n".join(problems))
        np.savez(folder / "whole.npz", **{n: _plain(a) for n, a in case.inputs.items()})
        failing = _failing(problems, ways)
        _limit()
        small = reduced(case, lambda c: bool(check(c, failing)))
        report["reduced"] = [f"{s.node.op_type} by {s.oracle.name}" for s in small.steps]
        report["again"] = check(small, failing)
        (folder / "small.onnx").write_bytes(small.model().SerializeToString())
        np.savez(folder / "small.npz", **{n: _plain(a) for n, a in small.inputs.items()})
        np.savez(folder / "wanted.npz", **{n: _plain(small.values[n]) for n in small.outputs})
        lines = [*report["again"], "", *map(str, report["reduced"]), "", str(small.maker.opset)]
        (folder / "small.txt").write_text("\n".join(lines))
    return report


def _plain(array: Any) -> Any:
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _failing(problems: list[str], ways: list[Way]) -> list[Way]:
    """Return the ways in which something was wrong; the first of them is enough."""
    found = [w for w in ways if any(p.startswith(str(w)) for p in problems)]
    if found:
        return found[:1]
    return [Way(not any(p.startswith("no rules") for p in problems), "native", 1)]


def _limit() -> None:
    """End this process if what it does from here takes too long."""
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    signal.alarm(STUCK)


@contextlib.contextmanager
def _quick_compiler(seed: int, thorough: int) -> Iterator[None]:
    """Compile kernels with little optimization, in half of the time, but of every `thorough`th graph."""
    if seed % thorough == 0:
        yield
        return
    one_module = builder.LARGEST_MODULE  # a compiler's start costs as much as 10,000 characters
    with (
        mock.patch.object(compiler, "_FLAGS", ("-O1", *compiler._FLAGS[1:])),
        mock.patch.multiple(builder, SMALL_MODULE=one_module, MODULE=one_module),
    ):
        yield


def in_children(first: int, last: int, given: argparse.Namespace) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the seeds from `first` to before `last` with their reports, or how their processes ended.

    A graph at which an oracle crashed is left out."""
    while first < last:
        end = min(last, first + BLOCK)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            try:
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                with os.fdopen(write, "w") as out:
                    for seed in range(first, end):
                        _limit()
                        _report(seed, given, out)
            finally:
                os._exit(0)
        os.close(write)
        made = False
        with os.fdopen(read) as source:
            for line in source:
                made = line == MADE
                if not made:
                    yield first, json.loads(line)
                    first += 1
        _, status = os.waitpid(child, 0)
        if first < end:
            code = os.waitstatus_to_exitcode(status)
            if made:
                yield first, {"problems": [f"the process ended with {code}"], "coverage": []}
            first += 1


def _report(seed: int, given: argparse.Namespace, out: TextIO) -> None:
    try:
        with _quick_compiler(seed, given.thorough):
            report = one(seed, given.size, given.out, given.ways, lambda: print(MADE, end="", file=out, flush=True))
    except Exception:
        report = {"problems": ["the generator: " + traceback.format_exc()], "coverage": []}
    print(json.dumps(report), file=out, flush=True)


def main() -> None:
    """Run the seeds of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--size", type=int, default=10, help="nodes of a graph (default 10)")
    parser.add_argument("--ways", type=int, default=2, help="ways in which each graph is run, of 12 (default 2)")
    parser.add_argument(
        "--thorough", type=int, default=4, help="compile every so-manyth graph as users' models (default 4)"
    )
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="where failures are written")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-cache-") as cache:  # the user's would fill with kernels of no use
        os.environ["REWRITE_CACHE_DIR"] = cache
        count, failed = _run(given)
    sys.stdout.write(f"{count} graphs, of which {failed} failed; {given.out} has their seeds, problems and models\n")
    sys.exit(failed > 0)


def _run(given: argparse.Namespace) -> tuple[int, int]:
    """Run the seeds, and return how many graphs ran and how many failed."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    faulthandler.enable()
    seen: collections.Counter[tuple[str, str]] = collections.Counter()
    count = failed = 0
    outside: collections.Counter[str] = collections.Counter()
    warm()
    gc.collect()
    gc.freeze()
    started = time.time()
    given.out.mkdir(parents=True, exist_ok=True)
    with (given.out / "log.txt").open("a") as log:
        for seed, report in in_children(given.first, given.last, given):
            if report["problems"]:
                failed += 1
                print(seed, report.get("reduced"), *report["problems"][:4], sep="\n  ", file=log, flush=True)
            else:
                seen.update((op, kind) for op, kind in report["coverage"])
            outside.update(report.get("outside", ()))
            count += 1
            if count % 20 == 0:
                _summary(given.out / f"summary-{given.first}.json", seen, outside, count, failed, started)
    _summary(given.out / f"summary-{given.first}.json", seen, outside, count, failed, started)
    return count, failed


def _summary(
    path: Path, seen: collections.Counter[tuple[str, str]], outside: collections.Counter[str], count: int,
    failed: int, started: float,
) -> None:  # fmt: skip
    """Write how many graphs, pairs of operators and element types were compared."""
    pairs = {f"{op} {kind}": n for (op, kind), n in sorted(seen.items())}
    operators = {op for op, _ in seen}
    facts = {
        "graphs": count, "failed": failed, "seconds": round(time.time() - started), "operators": len(operators),
        "pairs": len(pairs), "seen": pairs, "outside": dict(outside.most_common(100)),
    }  # fmt: skip
    path.write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
