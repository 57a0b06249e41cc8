"""Search that is guided by a learned model of schedules' times: boosted trees with a ranking loss, by LightGBM.

A search needs to know which of some schedules is faster, not how long each takes. So the model learns to order the
schedules of each kernel (Burges, "From RankNet to LambdaRank to LambdaMART", 2010). It learns from the measurements of
all kernels of this search and of the records, and again as measurements come in, as in Chen et al., "Learning to
Optimize Tensor Programs", 2018.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np

from ...backend.ir.schedule import Point, Space
from ...errors import UserError
from .loop_features import Features
from .samplers import Evolution
from .search import point_key

POOL = 60
"""Candidates that the model orders for each proposal."""
LEAST = 12
"""Measurements below which nothing is learned."""
_FRESH = 6  # measurements after which the model is trained again
_GRADES = 31  # LightGBM's grades of relevance: the fastest schedule of a kernel has the highest
_TREES = {
    "objective": "lambdarank", "num_leaves": 15, "min_data_in_leaf": 4, "learning_rate": 0.1, "feature_fraction": 0.8,
    "label_gain": [float(grade) for grade in range(_GRADES + 1)], "lambdarank_truncation_level": 20, "num_threads": 1,
    "deterministic": True, "force_row_wise": True, "seed": 1, "verbosity": -1,
}  # fmt: skip
_ROUNDS = 60


class Ranking:
    """A model that orders schedules, and the measurements that it learned from, by kernel.

    One serves all kernels of a search. Raises UserError without LightGBM."""

    def __init__(self) -> None:
        try:
            import lightgbm
        except (ImportError, OSError) as error:  # without the OpenMP library of the system it does not load
            hint = "Install it with: pip install 'onnx-rewrite[tune]'"
            raise UserError("the search `guided` needs the package lightgbm", hint=hint) from error
        self._library: Any = lightgbm
        self._rows: dict[Hashable, list[tuple[Features, float]]] = {}
        self._fresh = 0
        self._names: list[str] = []
        self._model: Any = None

    def add(self, kernel: Hashable, features: Features, ratio: float) -> None:
        """Add a measurement: the time of a schedule relative to the default of its kernel."""
        self._rows.setdefault(kernel, []).append((features, ratio))
        self._fresh += 1

    @property
    def count(self) -> int:
        """Number of measurements."""
        return sum(map(len, self._rows.values()))

    @property
    def is_trained(self) -> bool:
        """Whether enough was measured to learn from."""
        return sum(len(rows) for rows in self._rows.values() if len(rows) > 1) >= LEAST

    def scores(self, rows: Sequence[Features]) -> list[float]:
        """Return a score for each schedule of one kernel, the highest for the one that should be fastest."""
        if self._model is None or self._fresh >= _FRESH:
            self._train()
        return list(self._model.predict(self._matrix(rows)))

    def _train(self) -> None:
        groups = [rows for rows in self._rows.values() if len(rows) > 1]
        self._names = sorted({name for rows in groups for features, _ in rows for name in features})
        data = self._library.Dataset(
            self._matrix([features for rows in groups for features, _ in rows]),
            [grade for rows in groups for grade in grades([ratio for _, ratio in rows])],
            group=[len(rows) for rows in groups],
        )
        self._model = self._library.train(_TREES, data, _ROUNDS)
        self._fresh = 0

    def _matrix(self, rows: Sequence[Features]) -> Any:
        return np.array([[row.get(name, math.nan) for name in self._names] for row in rows], np.float64)


def grades(ratios: Sequence[float]) -> list[int]:
    """Return the relevance of each schedule of a kernel: equal steps of log time, the fastest has the most.

    Schedules that take twice as long as the fastest, or that fail, have none."""
    best = min(ratios)
    if not math.isfinite(best):
        return [0] * len(ratios)
    return [round(_GRADES * max(0.0, 1 - math.log2(ratio / best))) if math.isfinite(ratio) else 0 for ratio in ratios]


class Guided:
    """Candidates of evolution and random points in the order of a learned model; a fifth of them not in order.

    Until the model has measurements to learn from, the candidates are those of evolution."""

    def __init__(
        self,
        space: Space,
        seed: int | str,
        ranking: Ranking,
        kernel: Hashable,
        features: Callable[[Point], Features],
    ) -> None:
        self._space, self._random = space, Random(seed)
        self._evolution = Evolution(space, seed, explored=0)
        self._start = Evolution(space, seed)
        self._ranking, self._kernel, self._features = ranking, kernel, features
        self._measured: dict[Hashable, float] = {}

    def candidates(self, count: int) -> Iterator[Point]:
        """Yield points, those that should be fastest first, without end."""
        if not self._ranking.is_trained:
            yield from self._start.candidates(count)
        pool: Mapping[Hashable, Point] = {
            point_key(point): point
            for point in itertools.chain(
                itertools.islice(self._evolution.candidates(POOL), POOL // 2),
                (self._space.sample(self._random) for _ in range(POOL - POOL // 2)),
            )
            if point_key(point) not in self._measured
        }
        points = list(pool.values())
        if points:
            scores = self._ranking.scores([self._features(point) for point in points])
            ordered = [points[i] for i in sorted(range(len(points)), key=lambda i: -scores[i])]
            while ordered:
                yield ordered.pop(self._random.randrange(len(ordered)) if self._random.random() < 0.2 else 0)
        yield from self._start.candidates(count)

    def observe(self, point: Point, ratio: float) -> None:
        """Note the time of a point."""
        self._evolution.observe(point, ratio)
        self._start.observe(point, ratio)
        if point_key(point) not in self._measured:
            self._measured[point_key(point)] = ratio
            self._ranking.add(self._kernel, self._features(point), ratio)
