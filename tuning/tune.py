"""Tuning a model: its distinct kernels share a budget of time by what the next measurements should gain.

What is fast for one kernel is tried for others of the same templates. A point that beats the default is compared again,
for longer, and recorded at once: an interrupt loses nothing that was found. At the end both programs run interleaved,
and a schedule that is slower inside the model than the formulas' is taken back.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..backend.bundle.save_bundle import save
from ..backend.compile_graph import compile_graph
from ..backend.ir.schedule import Point, describe
from ..backend.ir.target import Target, parse_targets, runs_here, thread_count
from ..backend.planning.group import FusePolicy, policy, standard_policy
from ..backend.schedules.records import Machine, Record, RecordFile, Records, template_version
from ..engine.cost.likely_sizes import likely_sizes
from ..engine.verification.random_inputs import assignments, make_inputs
from ..errors import RewriteError, UserError
from ..system import scoped
from ..system.progress import Progress, ignore
from ..system.short_text import duration, plural
from .budget import Arm, next_arm
from .build_pool import BuildPool, build_pool
from .kernels_of_graph import Fixed, Lowered, TunableKernel, tunable_kernels, with_sizes
from .measuring_process import MeasuringProcess, Steps, measuring_cores, places
from .race import Candidates, Measured, Race
from .strategies.choice import checked_name, make_sampler
from .strategies.learned import Ranking
from .strategies.loop_features import Features
from .strategies.search import Search, point_key

if TYPE_CHECKING:
    from ..engine.optimizer import NativeOnly, Optimized

BATCH = 6
"""Candidates that are compared at once."""
PATIENCE = 6
"""Batches without a better point after which other kernels come first; then all share what is left of the budget."""
IN_A_ROW, OF_POOL = 2, 4
"""Batches of a kernel in a row: after a change of the kernel its default is loaded again. The workers of a pool compile
one while the one before is measured, so they do more."""
LEARNED = 200
"""Measurements of a recorded kernel that a learned model sees at most, the latest ones."""
LEAST_SHARE = 0.002
"""Kernels with a smaller part of the run are not tuned."""
_MODEL_ROUNDS, _MODEL_SECONDS = 15, 600.0
_ATTEMPTS = 3  # comparisons of whole models after which single schedules are no longer taken back
_SLOWER_INSIDE = 1.02  # times the default inside the model from which on a schedule is taken back


@dataclass(frozen=True)
class TunedKernel:
    """One kernel of the result: where it stands after tuning.

    `share` is its part of the untuned run, `count` how often a run calls it. `default_us` and `tuned_us` were measured
    for the kernel alone; they are equal where the default is best. `measured` counts the points that were tried."""

    kernel: str
    count: int
    share: float
    default_us: float
    tuned_us: float
    point: Point
    measured: int

    @property
    def gain(self) -> float:
        """Default time over tuned time."""
        return self.default_us / self.tuned_us if self.tuned_us else 1.0


@dataclass(frozen=True)
class Tuning:
    """Result of tuning a model.

    Attributes:
        kernels: those of the model that have schedules, the longest first.
        untuned, tuned: median seconds of a run, measured interleaved; 0 if tuning was interrupted before.
        share: part of the untuned run that these kernels take.
        seconds: how long the search took.
        interrupted: whether it was stopped before the budget was used.
        search: name of the strategy.
        history: seconds since the search began, points tried by then, and the gain of the whole model that the records
            promised.
    """

    kernels: tuple[TunedKernel, ...]
    untuned: float
    tuned: float
    share: float
    seconds: float
    interrupted: bool = False
    search: str = ""
    history: tuple[tuple[float, int, float], ...] = ()

    @property
    def gain(self) -> float:
        """Untuned time over tuned time of the whole model; 1 if it was not measured."""
        return self.untuned / self.tuned if self.tuned else 1.0

    def __repr__(self) -> str:
        found = f"{plural(len(self.kernels), 'kernel')}, {sum(bool(k.point) for k in self.kernels)} tuned"
        whole = f"; {duration(self.untuned)} → {duration(self.tuned)} per run" if self.tuned else ""
        return f"<Tuning: {found}{whole}>"


@dataclass
class _Work:
    """The search for one kernel."""

    kernel: TunableKernel
    share: float
    arm: Arm
    best: Point = field(default_factory=dict)
    record: Record | None = None  # the latest one, of this or an earlier search
    tried: list[tuple[Point, float | str]] = field(default_factory=list)  # since that record
    refuted: set[str] = field(default_factory=set)  # points that lost the longer comparison
    ratios: dict[str, tuple[float, Point]] = field(default_factory=dict)
    idle: int = 0  # batches since the last better point
    exhausted: bool = False  # nothing new is left to propose
    race: Race | None = None
    lowered_at: dict[Hashable, Lowered] = field(default_factory=dict)
    search: Search = field(init=False)

    def lowered(self, point: Point) -> Lowered:
        """Return what a point renders, from memory if it was asked for before."""
        if (key := point_key(point)) not in self.lowered_at:
            self.lowered_at[key] = self.kernel.lowered(point)
        return self.lowered_at[key]

    @property
    def measured(self) -> int:
        """Number of points tried, earlier searches included."""
        return len(self.tried) + (len(self.record.tried) if self.record else 0)


def tune_optimized(
    optimized: NativeOnly | Optimized,
    *,
    seconds: float,
    threads: int | None = None,
    target: str = "native",
    search: str | None = None,
    workers: int = 0,
    scheduler: str = "",
    seed: int = 0,
    progress: Progress = ignore,
    records: RecordFile | None = None,
) -> Tuning:
    """Search schedules for the kernels of an optimized model for about `seconds`, and record those that are faster.

    Compiling and comparing the whole model come on top. An interrupt ends the search; what was found by then is
    recorded and returned. A later search goes on from the records. `search` is one of `strategies.choice.NAMES`.
    Candidates are built by `workers` local processes, or by those of a `scheduler` (see `build_pool`).

    Raises UserError if this CPU cannot run the target, if no kernel has fixed sizes, if the model does not run on
    random inputs, for an unknown search or one whose library is absent, if a pool cannot be used, or without a C
    compiler."""
    name = checked_name(search)
    [kind] = parse_targets(target)[:1]
    if "," in target or not runs_here(kind):
        raise UserError(f"this CPU cannot run kernels for {target!r}", hint="Tune for one target that runs here.")
    with scoped.directory("tune") as folder, measuring_cores(thread_count(threads)) as measured_on:
        tuner = _Tuner(optimized, kind, target, thread_count(threads), folder, records or RecordFile(), progress, name)
        with build_pool(target, workers, scheduler) as pool, MeasuringProcess(measured_on, 0) as process:
            return tuner.run(process, measured_on, seconds, seed, pool)


class _Tuner:
    """A search for one model."""

    def __init__(
        self, optimized: NativeOnly | Optimized, kind: Target, target: str, threads: int, folder: Path,
        file: RecordFile, progress: Progress, search: str,
    ) -> None:  # fmt: skip
        options = optimized.options
        self._graph, self._kind, self._target, self._threads = optimized.native, kind, target, threads
        self._reassociate = options.numerics != "exact"
        self._library = optimized.library if options.rules or not options.std_rules else None
        self._folder, self._file, self._progress = folder, file, progress
        self._machine = Machine.of(kind)
        self._search_name = search
        self._pool: BuildPool | None = None
        self._history: list[tuple[float, int, float]] = []

    def run(
        self, process: MeasuringProcess, cores: Sequence[int], seconds: float, seed: int, pool: BuildPool | None
    ) -> Tuning:
        """Search for about `seconds`."""
        self._pool = pool
        self._progress("compile", {})
        fusing = policy(self._library) if self._library is not None else standard_policy()
        kernels = tunable_kernels(self._graph, fusing, self._kind, self._threads, self._reassociate)
        if not kernels:
            raise UserError("no kernel of this model has a schedule to search", hint=self._why_none(fusing))
        feeds = self._load_model(process, "untuned", {}, self._feeds(), (0,))
        whole, inside = process.profile(0, _MODEL_ROUNDS, _MODEL_SECONDS)
        works = self._works(kernels, inside, seed)
        begun, interrupted = time.monotonic(), False
        weights = sum(c.nbytes for c in self._graph.constants.values())
        evicted = 2 * self._kind.l2 if weights > self._kind.l2 // 2 else 0
        with MeasuringProcess(cores, evicted) as racing:
            try:
                self._search(works, racing, begun + seconds)
            except KeyboardInterrupt:
                interrupted = True
            finally:
                for work in works:
                    self._keep(work)
        spent = time.monotonic() - begun
        if interrupted or not any(work.best for work in works):
            result = (0.0, 0.0) if interrupted else (whole, whole)
        else:
            result = self._confirm(works, process, inside, feeds)
        rows = [_row(work, inside) for work in sorted(works, key=lambda work: -work.share)]
        share = sum(work.share for work in works)
        return Tuning(tuple(rows), *result, share, spent, interrupted, self._search_name, tuple(self._history))

    def _why_none(self, fusing: FusePolicy) -> str:
        """Return what to do about a model without a schedule: fix free sizes, if kernels have schedules then."""
        fixed = with_sizes(self._graph, likely_sizes(self._graph))
        if tunable_kernels(fixed, fusing, self._kind, self._threads, self._reassociate):
            return "Sizes that only a run knows follow the formulas. Fix free ones: --shape batch=1."
        return "Its kernels follow formulas, whatever the sizes."

    def _feeds(self) -> Iterator[dict[str, Any]]:
        """Yield random inputs of sizes that the model may take."""
        for sizes in assignments(self._graph):
            yield make_inputs(self._graph, sizes)

    def _load_model(
        self, process: MeasuringProcess, name: str, points: Mapping[str, Point], feeds: Iterator[dict[str, Any]],
        numbers: Sequence[int],
    ) -> dict[str, Any]:  # fmt: skip
        """Compile the whole model, load copies of it in the process, and return inputs on which it runs."""
        cache = None if not points else self._folder / "cache"
        program = compile_graph(
            self._graph, threads=self._threads, target=self._target, cache_dir=cache, reassociate=self._reassociate,
            library=self._library, schedules=lambda target: Fixed(points),
        )  # fmt: skip
        bundle = save(program.variants, self._folder / name, threads=self._threads, cache_dir=cache)
        refused = ""
        for arrays in feeds:
            try:
                for number in numbers:
                    process.load(number, bundle, arrays, _MODEL_SECONDS)
            except RewriteError as error:
                refused = str(error)
            else:
                return arrays
        raise UserError(f"no sizes found for which the model runs: {refused}", hint="Give them with --shape.")

    def _works(self, kernels: Sequence[TunableKernel], inside: Steps, seed: int) -> list[_Work]:
        """Return the kernels that take a part of the run, with what earlier searches found."""
        file = self._file.read()
        records = file.schedules(self._kind)
        total = sum(inside.values()) or 1.0
        works = []
        ranking = Ranking() if self._search_name == "guided" else None
        if ranking is not None:
            _learn(ranking, kernels, file)
        for kernel in kernels:
            share = sum(inside.get(nodes, 0.0) for nodes in kernel.nodes) / total
            if share < LEAST_SHARE:
                continue
            earlier = records.by_key(kernel.key, kernel.space) if records else None
            tried = earlier.tried if earlier else ()
            known = [(point, ratio if isinstance(ratio, float) else math.inf) for point, ratio in tried]
            best = dict(earlier.point) if earlier and kernel.space.accepts(earlier.point) else {}
            work = _Work(kernel, share, Arm(share, kernel.space.templates), best, earlier)
            work.arm.best, work.arm.batches = 1 / _gain(work), len(tried) // BATCH
            work.search = self._search_of(work, known, ranking, seed)
            works.append(work)
        for work in works:
            _suggest(work, works)
        return works

    def _search_of(
        self, work: _Work, known: Sequence[tuple[Point, float]], ranking: Ranking | None, seed: int
    ) -> Search:
        space, key = work.kernel.space, work.kernel.key

        def features(point: Point) -> Features:
            return work.lowered(point).features

        def code(point: Point) -> str:
            return work.lowered(point).code

        sampler = make_sampler(
            self._search_name, space, f"{seed} {key}", ranking=ranking, kernel=key, features=features
        )
        return Search(space, sampler, known, code=code)

    def _search(self, works: list[_Work], process: MeasuringProcess, end: float) -> None:
        budget = end - time.monotonic()
        active: _Work | None = None
        while time.monotonic() < end:
            left = [number for number, work in enumerate(works) if not work.exhausted]
            if not left:
                return
            promising = [number for number in left if works[number].idle < PATIENCE]
            work = works[next_arm([work.arm for work in works], promising or left)]
            spent = budget - (end - time.monotonic())
            faster = f"{sum(bool(w.best) for w in works)} of {plural(len(works), 'kernel')}"
            facts = {"done": f"{spent:.0f}", "total": f"{budget:.0f} s", "faster": faster}
            self._progress("search", {**facts, work.kernel.label: f"{_gain(work):.2f}x"})
            begun = time.monotonic()
            if active is not work:
                if active is not None:
                    active.race = None
                active = work
                work.race = self._race(work, process)
            self._batches(work, works, end)
            work.arm.ran(1 / _gain(work), time.monotonic() - begun)
            saved = sum(work.share * (1 - 1 / _gain(work)) for work in works)
            tried = sum(work.measured for work in works)
            self._history.append((round(time.monotonic() - end + budget, 1), tried, round(1 / (1 - saved), 4)))

    def _race(self, work: _Work, process: MeasuringProcess) -> Race:
        folder = self._folder / work.kernel.key
        folder.mkdir(exist_ok=True)
        feeds = make_inputs(work.kernel.graph, {})
        return Race(
            work.kernel, process, folder, feeds, threads=self._threads, target=self._target,
            reassociate=self._reassociate, library=self._library, pool=self._pool,
        )  # fmt: skip

    def _batches(self, work: _Work, works: Sequence[_Work], end: float) -> None:
        """Measure some batches of a kernel."""
        count, following = (IN_A_ROW, None) if self._pool is None else (OF_POOL, self._begin(work))
        for number in range(count):
            if time.monotonic() >= end:
                break
            batch = self._begin(work) if self._pool is None else following
            following = self._begin(work) if self._pool is not None and number + 1 < count else None
            if batch is None:
                work.exhausted = True
                break
            work.idle += 1
            self._batch(work, works, batch, end)

    def _begin(self, work: _Work) -> Candidates | None:
        """Propose the next points of a kernel, None if there are no more; a pool begins to compile them."""
        assert work.race is not None
        points = work.search.propose(batch_size(len(self._pool) if self._pool is not None else 1))
        return work.race.begin(points) if points else None

    def _batch(self, work: _Work, works: Sequence[_Work], batch: Candidates, end: float) -> None:
        """Measure points of a kernel, and record the best if it beats what is recorded."""
        assert work.race is not None
        for measured in work.race.run(batch, lambda: time.monotonic() >= end):
            self._observe(work, measured)
        before = work.record.tuned_us / work.record.default_us if work.record and work.best else 1.0
        promising = [
            (ratio, point)
            for text, (ratio, point) in work.ratios.items()
            if ratio < before * 0.99 and text not in work.refuted
        ]
        for _, point in sorted(promising, key=lambda found: found[0])[:2]:
            work.refuted.add(describe(point))
            found = work.race.compare(point)
            if found is None:
                continue
            comparison, difference = found
            work.search.observe(point, comparison.ratio)
            if comparison.wins and comparison.ratio < before:
                work.best, work.idle, before = dict(point), 0, comparison.ratio
                times = (comparison.default * 1e6, comparison.default * comparison.ratio * 1e6)
                self._write(work, times, comparison.noise, difference)
                _suggest(work, works)

    def _observe(self, work: _Work, measured: Measured) -> None:
        work.search.observe(measured.point, measured.ratio)
        work.tried.append((measured.point, measured.outcome or round(measured.ratio, 4)))
        if not measured.outcome:
            work.ratios[describe(measured.point)] = measured.ratio, measured.point

    def _keep(self, work: _Work) -> None:
        """Record what was tried since the last record of a kernel."""
        if not work.tried:
            return
        times = (work.record.default_us, work.record.tuned_us) if work.record else (0.0, 0.0)
        noise, difference = (work.record.noise, work.record.difference) if work.record else (0.0, 0.0)
        self._write(work, times, noise, difference)

    def _write(self, work: _Work, times: tuple[float, float], noise: float, difference: float) -> None:
        fresh = Record(
            machine=self._machine,
            threads=self._threads,
            kernel=work.kernel.label,
            key=work.kernel.key,
            templates=template_version(work.kernel.space.templates),
            point=work.best,
            default_us=round(times[0], 3),
            tuned_us=round(times[1], 3),
            noise=round(noise, 4),
            difference=difference,
            tried=tuple(work.tried),
            features=tuple(work.lowered(point).features for point, _ in work.tried),
        )
        self._file.append([fresh])
        work.record = fresh.after(work.record)
        work.tried = []

    def _confirm(
        self,
        works: list[_Work],
        process: MeasuringProcess,
        inside: Steps,
        feeds: dict[str, Any],
    ) -> tuple[float, float]:
        """Measure copies of the tuned program beside some of the untuned one; take back what is slower inside it.

        All is taken back if the tuned program is the slower one. Returns the seconds of both."""
        untuned_at, tuned_at = places(self._folder / "untuned")
        for number in untuned_at[1:]:
            process.load(number, self._folder / "untuned", feeds, _MODEL_SECONDS)
        for attempt in itertools.count(1):
            if not (tuned := [work for work in works if work.best]):
                break
            self._progress("compare", {})
            points = {work.kernel.key: work.best for work in tuned}
            self._load_model(process, f"tuned{attempt}", points, iter([feeds]), tuned_at)
            untuned, whole, before, after = process.compare(untuned_at, tuned_at, _MODEL_ROUNDS, _MODEL_SECONDS)
            slower = [
                work
                for work in tuned
                if _sum(after, work.kernel.nodes) > _SLOWER_INSIDE * _sum(before, work.kernel.nodes)
            ]
            if whole <= untuned and (not slower or attempt >= _ATTEMPTS):
                return untuned, whole
            for work in slower or tuned:
                work.best = {}
                self._write(work, (0.0, 0.0), 0.0, 0.0)
        return untuned, untuned  # the default schedules are the best ones


def batch_size(workers: int) -> int:
    """Return how many candidates are compared at once: at least `BATCH`, and none of the workers waits for others."""
    return workers * -(-BATCH // workers)


def _learn(ranking: Ranking, kernels: Sequence[TunableKernel], file: Records) -> None:
    """Add what was measured of other kernels of the same templates, on this and on other machines."""
    own, templates = {kernel.key for kernel in kernels}, {kernel.space.templates for kernel in kernels}
    names = {",".join(found) for found in templates}
    for record in file.latest.values():
        if record.key in own or record.templates.partition("@")[0] not in names:
            continue
        pairs = zip(record.tried, record.features_of_tried, strict=True)
        for (_, ratio), features in [pair for pair in pairs if pair[1]][-LEARNED:]:
            ranking.add(record.key, features, ratio if isinstance(ratio, float) else math.inf)


def _suggest(winner: _Work, works: Sequence[_Work]) -> None:
    """Suggest the best point of a kernel for the others of the same templates."""
    for work in works:
        if work is not winner and winner.best and work.kernel.space.templates == winner.kernel.space.templates:
            work.search.suggest(winner.best)


def _sum(times: Steps, nodes: Sequence[tuple[str, ...]]) -> float:
    return sum(times.get(names, 0.0) for names in nodes)


def _gain(work: _Work) -> float:
    record = work.record
    return record.default_us / record.tuned_us if record and work.best and record.tuned_us else 1.0


def _row(work: _Work, inside: Steps) -> TunedKernel:
    count = sum(nodes in inside for nodes in work.kernel.nodes)
    record = work.record
    each = _sum(inside, work.kernel.nodes) / max(1, count) * 1e6
    times = (record.default_us, record.tuned_us) if record and work.best else (each, each)
    return TunedKernel(work.kernel.label, count, work.share, *times, work.best, work.measured)
