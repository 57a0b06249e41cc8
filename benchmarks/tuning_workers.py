"""How long a search takes with workers that build its candidates, and whether it finds the same schedules.

    python -m rewrite.benchmarks.tuning_workers MODEL [--workers 1,4] [--kernels 4] [--points 36] [--wait 1.0]

Takes the kernels that occur most often, and builds, races and compares the same random points of each with every number
of workers. With `--wait` the compiler sleeps before it compiles, for that many seconds. So it stands for one on another
machine: workers overlap even where there are fewer cores than workers. Prints the seconds of each number of workers,
and how the winners of the last number compare with those of the first.
"""

from __future__ import annotations

import argparse
import math
import os
import shlex
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from rewrite.backend.ir.schedule import DEFAULT, Point
from rewrite.backend.toolchain.compiler import find_compiler
from rewrite.engine.verification.random_inputs import make_inputs
from rewrite.tuning.build_pool import BuildPool, build_pool
from rewrite.tuning.kernels_of_graph import TunableKernel
from rewrite.tuning.measuring_process import MeasuringProcess, measuring_cores
from rewrite.tuning.race import Race
from rewrite.tuning.tune import batch_size

from .schedule_search import kernels_of

ROUNDS = 40


@dataclass
class Search:
    """What a number of workers took and found: seconds, and the winner and the failures of each kernel."""

    seconds: float = 0.0
    winners: list[Point] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)


def slow_compiler(folder: Path, seconds: float) -> None:
    """Name a compiler by $CC that waits before it compiles a source file."""
    command = shlex.join(find_compiler().command)
    path = folder / "cc"
    path.write_text(f'#!/bin/sh\nfor word; do case "$word" in *.c) sleep {seconds};; esac; done\nexec {command} "$@"\n')
    path.chmod(0o700)
    os.environ["CC"] = str(path)
    find_compiler.cache_clear()


def points_of(kernel: TunableKernel, count: int) -> list[Point]:
    """Return random points of a kernel whose codes differ from each other and from the default's."""
    random, found = Random(0), {kernel.lowered(DEFAULT).code: DEFAULT}
    for _ in range(20 * count):
        point = kernel.space.sample(random)
        found.setdefault(kernel.lowered(point).code, point)
        if len(found) > count:
            break
    return list(found.values())[1:]


def race_of(kernel: TunableKernel, process: MeasuringProcess, target: str, pool: BuildPool | None, at: Path) -> Race:
    """Return the race of a kernel's points, in a directory of its own."""
    folder = at / kernel.key
    folder.mkdir(parents=True)
    feeds = make_inputs(kernel.graph, {})
    return Race(kernel, process, folder, feeds, threads=1, target=target, reassociate=True, library=None, pool=pool)


def search(
    kernels: Sequence[TunableKernel], points: Sequence[Sequence[Point]], workers: int, target: str, cores: Sequence[int]
) -> Search:
    """Build and race all points."""
    found = Search()
    with (
        tempfile.TemporaryDirectory() as at,
        build_pool(target, workers) as pool,
        MeasuringProcess(cores, 0) as process,
    ):
        begun = time.monotonic()
        for kernel, given in zip(kernels, points, strict=True):
            race = race_of(kernel, process, target, pool, Path(at))
            size = batch_size(max(1, workers))
            batches = [given[i : i + size] for i in range(0, len(given), size)]
            measured, following = [], race.begin(batches[0])
            for batch in batches[1:]:
                built, following = following, race.begin(batch)
                measured += race.run(built)
            measured += race.run(following)
            best = min(measured, key=lambda m: m.ratio)
            compared = race.compare(best.point)
            found.winners.append(best.point if compared and compared[0].wins else DEFAULT)
            found.failed.append(sum(bool(m.outcome) for m in measured))
        found.seconds = time.monotonic() - begun
    return found


def ratio(kernel: TunableKernel, points: tuple[Point, Point], target: str, cores: Sequence[int]) -> float:
    """Return the time of the second point over that of the first one, in turn."""
    if points[0] == points[1]:
        return 1.0
    with tempfile.TemporaryDirectory() as at, MeasuringProcess(cores, 0) as process:
        race = race_of(kernel, process, target, None, Path(at))
        first, second = (m.ratio for m in race.run(list(points), rounds=ROUNDS))
        return second / first


def main() -> None:
    """Search with each number of workers, and print what that took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--target", default="native")
    parser.add_argument("--workers", default="1,4")
    parser.add_argument("--kernels", type=int, default=4)
    parser.add_argument("--points", type=int, default=36)
    parser.add_argument("--wait", type=float, default=0.0)
    given = parser.parse_args()
    kernels = sorted(kernels_of(given.model, given.target), key=lambda kernel: -len(kernel.nodes))[: given.kernels]
    points = [points_of(kernel, given.points) for kernel in kernels]
    with tempfile.TemporaryDirectory() as at, measuring_cores(1) as cores:
        if given.wait:
            slow_compiler(Path(at), given.wait)
        numbers = [int(word) for word in given.workers.split(",")]
        searches = [search(kernels, points, workers, given.target, cores) for workers in numbers]
    for workers, found in zip(numbers, searches, strict=True):
        share = found.seconds / searches[0].seconds
        print(f"{workers} workers: {found.seconds:.1f} s, {share:.2f} of the first, {sum(found.failed)} failed")
    ratios = [
        ratio(kernel, (a, b), given.target, cores)
        for kernel, a, b in zip(kernels, searches[0].winners, searches[-1].winners, strict=True)
    ]
    for kernel, a, b, slower in zip(kernels, searches[0].winners, searches[-1].winners, ratios, strict=True):
        print(f"{kernel.label}: {dict(a)} / {dict(b)}: {slower:.3f}")
    print(f"winners, last over first: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}")


if __name__ == "__main__":
    main()
