"""Run many random graphs, each in a process of its own, and report what differed: `python -m tests.fuzz FIRST LAST`.

Every failure is written to a directory as its seed, problems, a reduced model and its inputs; a summary at the end has
the operators and element types that were compared.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import gc
import json
import os
import resource
import signal
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .differential import WAYS, Way, check, coverage, make, reduced, warm

LIMIT = 180
"""Seconds that a graph may take, compiling included."""


def one(seed: int, size: int, place: Path, per_graph: int) -> dict[str, Any]:
    """Check the graph of a seed in some ways, which change from seed to seed; reduce it if it fails."""
    case = make(seed, size)
    if not case.steps:
        return {"problems": [], "coverage": []}
    ways = [WAYS[(seed * per_graph + i) * 5 % len(WAYS)] for i in range(per_graph)]
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
        signal.alarm(LIMIT)
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


def in_child(seed: int, size: int, place: Path, per_graph: int) -> dict[str, Any]:
    """Return the report of a seed, or how its process ended."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        try:
            signal.alarm(LIMIT)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            try:
                found = one(seed, size, place, per_graph)
            except Exception:
                found = {"problems": ["the generator: " + traceback.format_exc()], "coverage": []}
            with os.fdopen(write, "w") as out:
                json.dump(found, out)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as source:
        text = source.read()
    _, status = os.waitpid(child, 0)
    if text:
        return json.loads(text)  # type: ignore[no-any-return]
    return {"problems": [f"the process ended with {os.waitstatus_to_exitcode(status)}"], "coverage": []}


def main() -> None:
    """Run the seeds of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--size", type=int, default=10, help="nodes of a graph (default 10)")
    parser.add_argument("--ways", type=int, default=2, help="ways in which each graph is run, of 12 (default 2)")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="where failures are written")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    faulthandler.enable()
    seen: collections.Counter[tuple[str, str]] = collections.Counter()
    failed = 0
    outside: collections.Counter[str] = collections.Counter()
    warm()
    gc.collect()
    gc.freeze()
    started = time.time()
    given.out.mkdir(parents=True, exist_ok=True)
    with (given.out / "log.txt").open("a") as log:
        for seed in range(given.first, given.last):
            report = in_child(seed, given.size, given.out, given.ways)
            if report["problems"]:
                failed += 1
                print(seed, report.get("reduced"), *report["problems"][:4], sep="\n  ", file=log, flush=True)
            else:
                seen.update((op, kind) for op, kind in report["coverage"])
            outside.update(report.get("outside", ()))
            if (seed + 1 - given.first) % 20 == 0:
                _summary(
                    given.out / f"summary-{given.first}.json", seen, outside, seed + 1 - given.first, failed, started
                )
    _summary(given.out / f"summary-{given.first}.json", seen, outside, given.last - given.first, failed, started)


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
