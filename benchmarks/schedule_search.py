"""Comparison of the strategies that search schedules, by replay on kernels whose spaces were measured completely.

    python -m rewrite.benchmarks.schedule_search record FILE MODEL… --kernels LABEL… [--target avx2] [--most 300]
    python -m rewrite.benchmarks.schedule_search replay FILE [--seeds 5] [--searches guided random]
    python -m rewrite.benchmarks.schedule_search budget FILE [--seeds 5]

`record` thins the spaces of some kernels of models, so that a space has at most `--most` schedules that differ, builds
and measures all of them interleaved with the default, and adds the times to a file. It goes on where it was stopped.

`replay` runs every strategy on the recorded spaces, with times from the file. It prints the time of the best schedule
after some numbers of measurements over that of the best of the space (geometric mean over kernels and seeds), the part
of the possible gain that this is, and how well the learned model orders the schedules of a kernel that it has not seen.
`budget` shares measurements among all kernels of the file, as parts of one model, and prints how much of the possible
gain each policy has.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import statistics
import tempfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rewrite.backend.ir.schedule import DEFAULT, Knob, Point, Space, Value
from rewrite.backend.ir.target import costs_of, parse_targets
from rewrite.backend.planning.group import standard_policy
from rewrite.engine.cost.fit import rank_correlation
from rewrite.engine.optimizer import optimize_native
from rewrite.engine.options import Options
from rewrite.engine.verification.random_inputs import make_inputs
from rewrite.tuning.budget import Arm, next_arm
from rewrite.tuning.kernels_of_graph import TunableKernel, tunable_kernels
from rewrite.tuning.measuring_process import MeasuringProcess
from rewrite.tuning.race import Race
from rewrite.tuning.strategies.choice import NAMES, make_sampler
from rewrite.tuning.strategies.learned import Ranking
from rewrite.tuning.strategies.loop_features import Features
from rewrite.tuning.strategies.samplers import all_points
from rewrite.tuning.strategies.search import Search, point_key
from rewrite.tuning.tune import BATCH as PROPOSED

from . import models

BATCH, ROUNDS = 60, 16
"""Candidates that run in turn with the default, and how often."""


def thinned(space: Space, values: int) -> Space:
    """Return a space with at most `values` values of each knob, four times as many of `tile`, evenly chosen."""

    def chosen(knob: Knob) -> tuple[Value, ...]:
        most = values * (4 if knob.name == "tile" else 1)
        if knob.name == "algorithm" or len(knob.values) <= most:
            return knob.values
        return tuple(knob.values[i * len(knob.values) // most] for i in range(most))

    return replace(space, knobs=tuple(replace(knob, values=chosen(knob)) for knob in space.knobs))


def small_enough(kernel: TunableKernel, most: int) -> tuple[TunableKernel, dict[str, Point]]:
    """Return a kernel with the largest thinned space of at most `most` codes, and a point for each of them."""
    for values in (8, 6, 5, 4, 3, 2, 1):
        space = thinned(kernel.space, values)
        if sum(1 for _ in itertools.islice(all_points(space), 40 * most)) == 40 * most:
            continue
        found: dict[str, Point] = {}
        for point in all_points(space):
            found.setdefault(kernel.lowered(point).code, point)
            if len(found) > most:
                break
        else:
            return replace(kernel, space=space), found
    raise ValueError(f"no small part of the space of {kernel.label}")


def kernels_of(name: str, target: str) -> list[TunableKernel]:
    """Return the kernels of a model of the zoo that have schedules."""
    kind = parse_targets(target)[0]
    optimized = optimize_native(models.path(name), Options(isa=costs_of(target), mapped=True))
    return tunable_kernels(optimized.native, standard_policy(), kind, 1, True)


def record(file: Path, names: list[str], labels: list[str], target: str, most: int) -> None:
    """Measure all points of the thinned spaces of kernels, and add their times to a file of JSON lines."""
    done = set()
    if file.exists():
        for line in file.read_text().splitlines():
            entry = json.loads(line)
            done.add((entry["target"], entry["kernel"], entry["code"]))
    kind = parse_targets(target)[0]
    with MeasuringProcess([1], 2 * kind.l2) as process, file.open("a") as out:
        for name in names:
            left = set(labels)  # kernels with the same label differ in what follows them: the first one counts
            for kernel in kernels_of(name, target):
                if kernel.label not in left:
                    continue
                left.remove(kernel.label)
                kernel, codes = small_enough(kernel, most)
                missing = [(c, p) for c, p in codes.items() if (target, kernel.label, c) not in done]
                print(f"{name}: {kernel.label}: {len(codes)} schedules, {len(missing)} to measure", flush=True)
                if not missing:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    (Path(folder) / "race").mkdir()
                    race = Race(
                        kernel, process, Path(folder) / "race", make_inputs(kernel.graph, {}),
                        threads=1, target=target, reassociate=True, library=None,
                    )  # fmt: skip
                    for start in range(0, len(missing), BATCH):
                        batch = missing[start : start + BATCH]
                        ratios = {json.dumps(m.point): m for m in race.run([p for _, p in batch], rounds=ROUNDS)}
                        for code, point in batch:
                            measured = ratios[json.dumps(point)]
                            entry = {
                                "target": target, "model": name, "kernel": kernel.label, "code": code,
                                "point": dict(point), "ratio": measured.outcome or measured.ratio,
                            }  # fmt: skip
                            out.write(json.dumps(entry) + "\n")
                        out.flush()
                done |= {(target, kernel.label, c) for c in codes}


# --- replay ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recorded:
    """A kernel whose thinned space was measured: the code and the features of each point, the time of each code."""

    label: str
    space: Space
    lowered: Mapping[Hashable, tuple[str, Features]]
    ratios: Mapping[str, float]

    @classmethod
    def of(cls, kernel: TunableKernel, ratios: Mapping[str, float]) -> Recorded:
        """Return a kernel with a thinned space and the times of its codes."""
        found: dict[Hashable, tuple[str, Features]] = {}
        for point in all_points(kernel.space):
            lowered = kernel.lowered(point)
            found[point_key(point)] = lowered.code, lowered.features
        return cls(kernel.label, kernel.space, found, {**ratios, kernel.lowered(DEFAULT).code: 1.0})

    def code(self, point: Point) -> str:
        """Return what is equal for points that render the same kernel."""
        return self.lowered[point_key(point)][0]

    def features(self, point: Point) -> Features:
        """Return the features of the loop nest at a point."""
        return self.lowered[point_key(point)][1]

    def ratio(self, point: Point) -> float:
        """Return the recorded time of a point relative to the default."""
        return self.ratios[self.code(point)]

    def points(self) -> list[Point]:
        """Return one point for each code, the default first."""
        return list({self.code(point): point for point in reversed(list(all_points(self.space)))}.values())[::-1]

    @property
    def best(self) -> float:
        """Time of the best schedule relative to the default."""
        return min(self.ratios.values())

    def search(self, name: str, seed: int, ranking: Ranking | None) -> Search:
        """Return a search of a strategy."""
        sampler = make_sampler(
            name, self.space, f"{seed} {self.label}", ranking=ranking, kernel=self.label, features=self.features
        )
        return Search(self.space, sampler, code=self.code)


def recorded(file: Path, most: int) -> list[Recorded]:
    """Return the kernels of a file that were measured to the end."""
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    found: dict[tuple[str, str], Recorded] = {}  # by target and label: models share kernels
    for name, target in dict.fromkeys((entry["model"], entry["target"]) for entry in entries):
        labels = {e["kernel"] for e in entries if (e["model"], e["target"]) == (name, target)}
        for kernel in kernels_of(name, target):
            if kernel.label not in labels or (target, kernel.label) in found:
                continue
            own = [e for e in entries if (e["model"], e["target"], e["kernel"]) == (name, target, kernel.label)]
            kernel, codes = small_enough(kernel, most)
            ratios = {
                kernel.lowered(e["point"]).code: e["ratio"] if isinstance(e["ratio"], float) else math.inf for e in own
            }
            if missing := codes.keys() - ratios.keys():
                print(f"left out: {kernel.label}: {len(missing)} schedules were not measured", flush=True)
                continue
            one = Recorded.of(kernel, ratios)
            allowed = frozenset(one.lowered)
            found[target, kernel.label] = replace(one, space=replace(one.space, constraint=Among(allowed)))
    return list(found.values())


@dataclass(frozen=True)
class Among:
    """The constraint that a point is one of some."""

    keys: frozenset[Hashable]

    def __call__(self, point: Point) -> bool:
        """Return whether it is."""
        return point_key(point) in self.keys


def learned_from(kernels: Sequence[Recorded], seed: int, each: int = 80) -> Ranking:
    """Return a ranking that learned from `each` random schedules of some kernels."""
    ranking, chance = Ranking(), random.Random(seed)
    for one in kernels:
        points = one.points()
        for point in chance.sample(points, min(each, len(points))):
            ranking.add(one.label, one.features(point), one.ratio(point))
    return ranking


def best_after(search: Search, ratio: Callable[[Point], float], counts: Sequence[int]) -> list[float]:
    """Run a search; return the best time after some numbers of measurements."""
    found, done = [], 0
    for count in counts:
        while done < count and (points := search.propose(min(PROPOSED, count - done))):
            for point in points:
                search.observe(point, ratio(point))
            done += len(points)
        found.append(search.best)
    return found


WITH_RECORDS = "guided-with-records"
"""The search `guided`, whose model has learned from records of the other kernels."""


def replay(kernels: Sequence[Recorded], names: Sequence[str], seeds: int, counts: Sequence[int]) -> None:
    """Print the table of strategies, and the rank correlations of the learned model on kernels it has not seen."""
    for one in kernels:
        print(f"{one.label}: {len(one.ratios)} schedules, the best takes {one.best:.3f}")
    possible = statistics.mean(-math.log(one.best) for one in kernels)
    for name in names:
        logs: list[list[float]] = []
        for one in kernels:
            for seed in range(seeds):
                ranking = None
                if name == WITH_RECORDS:
                    ranking = learned_from([other for other in kernels if other is not one], seed)
                elif name == "guided":
                    ranking = Ranking()
                search = one.search("guided" if ranking is not None else name, seed, ranking)
                found = best_after(search, one.ratio, counts)
                logs.append([math.log(ratio / one.best) for ratio in found])
        means = [statistics.mean(column) for column in zip(*logs, strict=True)]
        row = [f"{count}: {math.exp(m):.3f} {1 - m / possible:.2f}" for count, m in zip(counts, means, strict=True)]
        print(f"{name}: " + ", ".join(row))
    ranks = []
    for one in kernels:
        ranking = learned_from([other for other in kernels if other is not one], 0)
        points = [p for p in one.points() if math.isfinite(one.ratio(p))]
        scores = ranking.scores([one.features(point) for point in points])
        ranks.append(rank_correlation([-score for score in scores], [one.ratio(point) for point in points]))
        print(f"{one.label}: rank correlation {ranks[-1]:.2f}")
    print(f"mean rank correlation {statistics.mean(ranks):.2f}")


def budget(kernels: Sequence[Recorded], seeds: int, counts: Sequence[int]) -> None:
    """Print the part of the possible gain of a model of these kernels after some numbers of measurements, by policy.

    The kernels' parts of the run are drawn by each seed: log-uniform between 1 and 30."""
    for policy in ("by share", "by expected gain"):
        rows = []
        for seed in range(seeds):
            chance, ranking = random.Random(seed), Ranking()
            weights = [math.exp(chance.uniform(0, math.log(30))) for _ in kernels]
            shares = [weight / sum(weights) for weight in weights]
            searches = [one.search("guided", seed, ranking) for one in kernels]
            arms = [Arm(share, one.space.templates) for share, one in zip(shares, kernels, strict=True)]
            possible = sum(share * (1 - one.best) for share, one in zip(shares, kernels, strict=True))
            waiting, done, row = set(range(len(kernels))), 0, []
            for count in counts:
                while done < count and waiting:
                    if policy == "by share":
                        at = min(waiting, key=lambda i: (arms[i].batches / shares[i], -shares[i]))
                    else:
                        at = next_arm(arms, waiting)
                    points = searches[at].propose(PROPOSED)
                    for point in points:
                        searches[at].observe(point, kernels[at].ratio(point))
                    arms[at].ran(searches[at].best, 1.0)
                    done += len(points)
                    waiting -= {at} if not points else set()
                row.append(sum(arm.share * (1 - arm.best) for arm in arms) / possible)
            rows.append(row)
        means = [statistics.mean(column) for column in zip(*rows, strict=True)]
        print(f"{policy}: " + ", ".join(f"{count}: {mean:.2f}" for count, mean in zip(counts, means, strict=True)))


def main() -> None:
    """Parse the arguments and run a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("file", type=Path)
    recording.add_argument("models", nargs="+")
    recording.add_argument("--kernels", nargs="+", required=True)
    recording.add_argument("--target", default="native")
    recording.add_argument("--most", type=int, default=300)
    replaying = commands.add_parser("replay")
    sharing = commands.add_parser("budget")
    for command in (replaying, sharing):
        command.add_argument("file", type=Path)
        command.add_argument("--seeds", type=int, default=5)
        command.add_argument("--most", type=int, default=300, help="as given to `record`")
    replaying.add_argument("--searches", nargs="+", choices=(*NAMES, WITH_RECORDS), default=(*NAMES, WITH_RECORDS))
    given = parser.parse_args()
    if given.command == "record":
        record(given.file, given.models, given.kernels, given.target, given.most)
    elif given.command == "replay":
        replay(recorded(given.file, given.most), given.searches, given.seeds, (6, 12, 24, 48, 96, 192))
    else:
        budget(recorded(given.file, given.most), given.seeds, (60, 120, 240, 480))


if __name__ == "__main__":
    main()
