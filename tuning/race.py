"""Measuring candidates against the default schedule, interleaved, by successive halving.

Each candidate is compiled to a bundle of its own and run in the measuring process. It must return what the default
returns. All candidates of a batch run in turn with the default; then the slower half is dropped and the others run
twice as often, until one is left (Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter
Optimization", 2016). The best is compared with two copies of the default; the ratio of their times is the noise.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import statistics
import time
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..backend.ir.schedule import DEFAULT, Point
from ..errors import RewriteError
from ..grammar.library.load import Library
from .build_pool import BuildJob, BuildPool, unpack
from .kernels_of_graph import TunableKernel
from .measuring_process import CandidateDied, MeasuringProcess, Sample
from .strategies.search import point_key

TOLERANCE = 1e-4
"""Largest difference from the default's results, relative to the largest of them: algorithms round differently. The
largest error of Winograd's F(6, 3) is two fifths of it."""
ROUNDS = 4
"""Runs of each candidate before the first half is dropped."""
FINAL_ROUNDS = 24
"""Runs of the best point and the default before the point is recorded."""
LONGER = 0.3
"""Seconds for which both run if that is more often, up to ten times as often."""
LEAST_GAIN = 0.02
"""Smallest relative gain that makes a winner; three times the standard error of the ratio if that is more."""
_LOADING, _SLOWER = 30.0, 50.0  # seconds to load and run a candidate, and times longer than the default it may take


@dataclass(frozen=True)
class Measured:
    """A candidate: its time relative to the default's, or what became of it; `difference` of its results."""

    point: Point
    ratio: float
    outcome: str = ""  # "crash", "timeout", "wrong", "error", or empty if it has a time
    difference: float = 0.0


@dataclass(frozen=True)
class Comparison:
    """Median seconds of the default and of a point, the ratio, its standard error, and the noise of one ratio."""

    default: float
    tuned: float
    ratio: float
    error: float
    noise: float

    @property
    def wins(self) -> bool:
        """Whether the point is faster beyond doubt."""
        return self.ratio < 1 - max(LEAST_GAIN, 3 * self.error)


Builds = Generator[Callable[[int], Path], None, None]
"""What makes the bundle of each candidate, given its number. Raises RewriteError if the compiler rejects it."""


@dataclass(frozen=True)
class Candidates:
    """Points of a kernel, and what builds each of them in order."""

    points: Sequence[Point]
    builds: Builds


class Race:
    """Candidates of one kernel. `folder` holds their bundles and a cache of their own."""

    def __init__(
        self,
        kernel: TunableKernel,
        process: MeasuringProcess,
        folder: Path,
        feeds: dict[str, Any],
        *,
        threads: int,
        target: str,
        reassociate: bool,
        library: Library | None,
        pool: BuildPool | None = None,
    ) -> None:
        """`pool` builds the candidates of `run`, this process without one, and the default before the first run."""
        self._process, self._folder, self._feeds = process, folder, feeds
        self._job, self._pool = BuildJob(kernel.key, kernel.graph, threads, target, reassociate, library), pool
        self._default, self._started = folder / "0.rewrite", False
        self._count = 0
        self._archives: dict[Hashable, bytes] = {}  # of the candidates of the latest run that workers built
        self._seconds = 1.0

    def _build(self, point: Point, number: int) -> Path:
        return self._job.build(point, self._folder / f"{number}.rewrite", self._folder.parent / "cache")

    def begin(self, points: Sequence[Point]) -> Candidates:
        """Return points to `run`, which the workers of a pool begin to compile now.

        Dask gives up those that nobody holds any more."""
        if self._pool is None:
            return Candidates(points, (partial(self._build, point) for point in points))
        return Candidates(points, self._delivered(points, self._pool.built(self._job, points)))

    def _delivered(
        self, points: Sequence[Point], archives: Generator[bytes | RewriteError | None, None, None]
    ) -> Builds:
        with contextlib.closing(archives):
            for point, found in zip(points, archives, strict=True):
                yield partial(self._build, point) if found is None else partial(self._received, point, found)

    def _received(self, point: Point, found: bytes | RewriteError, number: int) -> Path:
        if isinstance(found, RewriteError):
            raise found
        self._archives[point_key(point)] = found
        return unpack(found, self._folder / f"{number}.rewrite")

    def _start_once(self) -> None:
        """Build and load the default once, while the workers of a pool compile candidates."""
        if not self._started:
            self._build(DEFAULT, 0)
            self._start()
            self._started = True

    def _start(self) -> None:
        """Load the default schedule, as the first candidate of a process or of a kernel."""
        self._process.load(0, self._default, self._feeds, _LOADING)
        self._seconds = statistics.median(self._process.time([0], 3, _LOADING)[0])

    def run(
        self, points: Sequence[Point] | Candidates, stopped: Callable[[], bool] = lambda: False, *, rounds: int = 0
    ) -> list[Measured]:
        """Measure points; those that were not compiled before `stopped` are left out.

        With `rounds`, all run as often, and none is dropped because it is slow."""
        found: list[Measured] = []
        loaded: dict[int, tuple[Point, float]] = {}
        begun = points if isinstance(points, Candidates) else self.begin(points)
        self._archives.clear()
        self._start_once()
        for point, build in zip(begun.points, begun.builds, strict=True):
            if stopped():
                break
            self._count += 1
            failed, difference = self._load(self._count, build)
            if failed:
                found.append(Measured(point, math.inf, failed, difference))
            else:
                loaded[self._count] = point, difference
            if not self._process.is_running:
                self._start()
                for number in loaded:
                    self._process.load(number, self._folder / f"{number}.rewrite", self._feeds, _LOADING)
        try:
            found += self._halve(loaded, rounds) if loaded else []
        except CandidateDied as died:  # one of them, after it has run once
            found += [Measured(point, math.inf, died.reason, difference) for point, difference in loaded.values()]
            self._start()
        else:
            for number in loaded:
                self._process.drop(number)
        self._clear()
        return found

    def _clear(self) -> None:
        """Remove the bundles of all candidates but the default."""
        for bundle in self._folder.iterdir():
            if bundle != self._default:
                shutil.rmtree(bundle, ignore_errors=True)

    def _load(self, number: int, build: Callable[[int], Path]) -> tuple[str, float]:
        """Build a candidate and run it once; return what is wrong with it, and the difference of its results."""
        try:
            bundle = build(number)
            difference = self._process.load(number, bundle, self._feeds, _LOADING + _SLOWER * self._seconds)
        except CandidateDied as died:
            return died.reason, 0.0
        except RewriteError:  # the compiler rejects it
            return "error", 0.0
        return ("" if difference <= TOLERANCE else "wrong"), difference

    def _halve(self, loaded: dict[int, tuple[Point, float]], fixed: int) -> list[Measured]:
        ratios: dict[int, list[float]] = {number: [] for number in loaded}
        racing, rounds = list(loaded), fixed or ROUNDS
        while racing:
            limit = _LOADING + _SLOWER * self._seconds * rounds * (1 + len(racing))
            times = self._process.time([0, *racing], rounds, limit)
            for number in racing:
                ratios[number] += [own / base for own, base in zip(times[number], times[0], strict=True)]
            if fixed or len(racing) == 1:
                break
            racing = sorted(racing, key=lambda number: statistics.median(ratios[number]))[: len(racing) // 2]
            rounds *= 2
        return [
            Measured(point, statistics.median(ratios[number]), "", difference)
            for number, (point, difference) in loaded.items()
        ]

    def compare(self, point: Point) -> tuple[Comparison, float] | None:
        """Compare a point with the default once more, for longer; return the difference of its results too.

        The default is loaded once more, and the faster of both counts: where buffers happen to lie can change the time
        of a kernel by more than a schedule does. None if the point fails now."""
        self._start_once()
        self._count += 2
        own, again = self._count - 1, self._count
        archive = self._archives.get(point_key(point))
        build = partial(self._build, point) if archive is None else partial(self._received, point, archive)
        failed, difference = self._load(own, build)
        if failed:
            if not self._process.is_running:
                self._start()
            return None
        self._process.load(again, self._default, self._feeds, _LOADING)
        begun = time.monotonic()
        times: Sample = {0: [], again: [], own: []}
        limit = 2 * (_LOADING + _SLOWER * self._seconds * FINAL_ROUNDS * 3)
        while len(times[own]) < FINAL_ROUNDS or (
            len(times[own]) < 10 * FINAL_ROUNDS and time.monotonic() - begun < LONGER
        ):
            try:
                timed = self._process.time([0, again, own], FINAL_ROUNDS, limit)
            except CandidateDied:
                self._start()
                return None
            for number, seconds in timed.items():
                times[number] += seconds
        self._process.drop(own)
        self._process.drop(again)
        self._clear()
        middle = statistics.median
        base = min(times[0], times[again], key=middle)
        ratios = [a / b for a, b in zip(times[own], base, strict=True)]
        noise = statistics.stdev(a / b for a, b in zip(times[0], times[again], strict=True))
        error = 1.25 * statistics.stdev(ratios) / math.sqrt(len(ratios))  # of a median
        return Comparison(middle(base), middle(times[own]), middle(ratios), error, noise), difference
