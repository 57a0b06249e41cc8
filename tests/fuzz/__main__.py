"""Run many random graphs, in processes of their own, and report what differed: `python -m tests.fuzz FIRST LAST`.

Graphs that are alike run side by side in one model, since most of the time would go into starting compilers and
queries; if it fails, each runs by itself. Every failure is written to a directory as its seed, problems, a reduced
model and its inputs; a summary at the end has the operators and element types that were compared.
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
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO
from unittest import mock

import numpy as np
from rewrite.backend.toolchain import builder, compiler

from .differential import Case, Way, alike, check, coverage, make, reduced, side_by_side, warm, ways_of

LIMIT = 120
"""Seconds of processor time that a model may take, without C compilers."""
STUCK = 1800
"""Seconds after which a model is given up, whatever it waits for."""
BLOCK = 1600
"""Graphs of a process: rules that one has read serve the next, and graphs that are alike run as one model."""
NAMES = 10_000
"""More than the names of a graph."""
Report = dict[str, Any]


def grouped(cases: Mapping[int, Case], together: int) -> list[list[int]]:
    """Return the seeds of cases, up to `together` that are alike in a group, those that came first in front."""
    groups: list[list[int]] = []
    open_groups: dict[object, list[int]] = {}
    for seed, case in cases.items():
        kind = alike(case)
        group = open_groups.get(kind)
        if group is None or len(group) >= together:
            groups.append(group := [])
            open_groups[kind] = group
        group.append(seed)
    return groups


def check_group(cases: Mapping[int, Case], first: int, given: argparse.Namespace) -> dict[int, Report]:
    """Check some graphs as one model, in ways chosen by the first seed; each by itself if that fails."""
    seeds = list(cases)
    if len(seeds) > 1:
        merged, outside = side_by_side(list(cases.values())), list[str]()
        with _quick_compiler(first, given.thorough):
            problems = check(merged, ways_of(first, given.ways), outside.append)
        if not problems:
            reports: dict[int, Report] = {s: {"problems": [], "coverage": coverage(c)} for s, c in cases.items()}
            reports[seeds[0]]["outside"] = outside
            return reports
    reports = {}
    for seed, case in cases.items():
        _limit()
        with _quick_compiler(first, given.thorough):
            reports[seed] = check_one(seed, case, ways_of(first, given.ways), given.out)
        if any("internal compiler error" in problem for problem in reports[seed]["problems"]):
            shutil.rmtree(given.out / str(seed))  # users' models are never compiled with -Og
            reports[seed] = check_one(seed, case, ways_of(first, given.ways), given.out)
    if len(seeds) > 1 and not any(r["problems"] for r in reports.values()):
        reports[seeds[0]]["problems"] = [f"as one model with {seeds[1:]}, but not by itself: {p}" for p in problems]
        _save_failure(given.out / str(seeds[0]), "whole", merged, problems)
    return reports


def check_one(seed: int, case: Case, ways: list[Way], place: Path) -> Report:
    """Check a graph in some ways; reduce it if it fails."""
    outside: list[str] = []
    problems = check(case, ways, outside.append)
    report: Report = {"problems": problems, "coverage": coverage(case), "outside": outside}
    if problems:
        report |= {"ways": [str(w) for w in ways]}
        folder = place / str(seed)
        _save_failure(folder, "whole", case, problems)
        failing = _failing(problems, ways)
        _limit()
        small = reduced(case, lambda c: bool(check(c, failing)))
        report["reduced"] = [f"{s.node.op_type} by {s.oracle.name}" for s in small.steps]
        report["again"] = check(small, failing)
        lines = [*report["again"], "", *map(str, report["reduced"]), "", str(small.maker.opset)]
        _save_failure(folder, "small", small, lines)
        np.savez(folder / "wanted.npz", **{n: _plain(small.values[n]) for n in small.outputs})
    return report


def _save_failure(folder: Path, name: str, case: Case, lines: list[str]) -> None:
    """Write a graph with its inputs, and a text about it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.onnx").write_bytes(case.model().SerializeToString())
    (folder / f"{name}.txt").write_text("\n".join(lines))
    np.savez(folder / f"{name}.npz", **{n: _plain(a) for n, a in case.inputs.items()})


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
        mock.patch.object(compiler, "_FLAGS", ("-Og", *compiler._FLAGS[1:])),
        mock.patch.multiple(builder, SMALL_MODULE=one_module, MODULE=one_module),
    ):
        yield


def in_children(first: int, last: int, given: argparse.Namespace) -> Iterator[tuple[int, Report]]:
    """Yield the seeds from `first` to before `last` with their reports, or how their processes ended.

    A graph at which an oracle crashed is left out. Of several at which the tool crashed, each runs by itself, in the
    same ways; if none fails so, there is one report more, of what they did together."""
    for start in range(first, last, BLOCK):
        left = list(range(start, min(last, start + BLOCK)))
        alone: dict[int, int] = {}  # the seeds of groups that crashed, with the first one of their group
        crashed: dict[int, str] = {}
        while left:
            read, write = os.pipe()
            child = os.fork()
            if not child:
                os.close(read)
                try:
                    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                    with os.fdopen(write, "w") as out:
                        _block(left, alone, given, out)
                finally:
                    os._exit(0)
            os.close(write)
            doing: dict[str, Any] = {}
            with os.fdopen(read) as source:
                for line in map(json.loads, source):
                    if "report" in line:
                        left.remove(line["seed"])
                        if line["report"]["problems"]:
                            crashed.pop(alone.get(line["seed"], -1), None)
                        yield line["seed"], line["report"]
                    else:
                        doing = line
            _, status = os.waitpid(child, 0)
            ended = f"the process ended with {os.waitstatus_to_exitcode(status)}"
            pending = [seed for seed in doing.get("checking", ()) if seed in left]
            if doing.get("making") in left:
                left.remove(doing["making"])
            elif len(pending) == 1:
                left.remove(pending[0])
                crashed.pop(alone.get(pending[0], -1), None)
                yield pending[0], {"problems": [ended], "coverage": []}
            elif pending:
                crashed[pending[0]] = f"as one model with {pending[1:]}, but not by itself: {ended}"
                alone |= dict.fromkeys(pending, pending[0])
            elif left:
                raise RuntimeError(ended)
        for seed, problem in crashed.items():
            yield seed, {"problems": [problem], "coverage": [], "more": True}


def _block(seeds: list[int], alone: Mapping[int, int], given: argparse.Namespace, out: TextIO) -> None:
    """Check the graphs of some seeds; write what is begun and what was found.

    Those that are `alone` run each by itself, in the ways that another seed chooses."""

    def tell(line: Report) -> None:
        print(json.dumps(line), file=out, flush=True)

    cases: dict[int, Case] = {}
    for number, seed in enumerate(seeds):
        tell({"making": seed})
        _limit()
        try:
            case = make(seed, given.size, number * NAMES)
        except Exception:
            tell({"seed": seed, "report": {"problems": ["the generator: " + traceback.format_exc()], "coverage": []}})
            continue
        if case.steps:
            cases[seed] = case
        else:
            tell({"seed": seed, "report": {"problems": [], "coverage": []}})
    together = grouped({s: c for s, c in cases.items() if s not in alone}, given.together)
    tell({"checking": []})
    for group in [*together, *([seed] for seed in cases if seed in alone)]:
        tell({"checking": group})
        _limit()
        try:
            first = alone.get(group[0], group[0])
            reports = check_group({seed: cases.pop(seed) for seed in group}, first, given)
        except Exception:
            raised = "the check: " + traceback.format_exc()
            reports = {seed: {"problems": [raised], "coverage": []} for seed in group}
        for seed, report in reports.items():
            tell({"seed": seed, "report": report})


def main() -> None:
    """Run the seeds of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--size", type=int, default=10, help="nodes of a graph (default 10)")
    parser.add_argument("--ways", type=int, default=2, help="ways in which each graph is run, of 12 (default 2)")
    parser.add_argument("--together", type=int, default=48, help="graphs that are run as one model (default 48)")
    parser.add_argument(
        "--thorough", type=int, default=4, help="compile every so-manyth model as users' models (default 4)"
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
            count += "more" not in report
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
