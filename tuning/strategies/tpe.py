"""Tree-structured Parzen estimator, by Optuna.

Bergstra, Bardenet, Bengio and Kégl, "Algorithms for Hyper-Parameter Optimization", 2011. Every knob is a categorical
parameter, one of whose values leaves it to the formula; a knob of some algorithms only is a parameter of each of them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterator
from random import Random
from typing import Any

from ...backend.ir.schedule import Knob, Point, Space, Value
from ...errors import UserError
from .search import point_key

_FORMULA = "formula"
_FAILED = 10.0  # the time of a point that cannot be used, relative to the default


class TreeParzen:
    """Points that are likely among the fastest ones seen and unlikely among the others."""

    def __init__(self, space: Space, seed: int) -> None:
        """Raise UserError without Optuna."""
        try:
            import optuna
        except ImportError as error:
            hint = "Install it with: pip install 'onnx-rewrite[tune]'"
            raise UserError("the search `tpe` needs the package optuna", hint=hint) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some of its arguments count as experimental
            sampler = optuna.samplers.TPESampler(
                seed=seed, multivariate=True, group=True, constant_liar=True, n_startup_trials=12
            )
        self._random = Random(seed)
        self._optuna: Any = optuna
        self._study = optuna.create_study(sampler=sampler)
        self._space = space
        self._asked: dict[Hashable, Any] = {}

    def candidates(self, count: int) -> Iterator[Point]:
        """Yield points without end: random ones in the place of those that violate the constraint."""
        while True:
            trial = self._study.ask()
            point: dict[str, Value] = {}
            for name, knob in self._parameters(point):
                value: Any = trial.suggest_categorical(name, (_FORMULA, *knob.values))
                if value != _FORMULA:
                    point[knob.name] = value
            if self._space.constraint(point) and point_key(point) not in self._asked:
                self._asked[point_key(point)] = trial
                yield point
            else:
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
                yield self._space.sample(self._random)

    def _parameters(self, point: dict[str, Value]) -> Iterator[tuple[str, Knob]]:
        """Yield each knob that applies to a point, with the name of its parameter. The caller sets knobs in between."""
        for number, knob in enumerate(self._space.knobs):
            if knob.values and knob.applies(point) and knob.name not in point:
                yield f"{number} {knob.name}", knob

    def observe(self, point: Point, ratio: float) -> None:
        """Note the time of a point, of its own or of others."""
        value = ratio if math.isfinite(ratio) else _FAILED
        trial = self._asked.pop(point_key(point), None)
        if trial is not None:
            self._study.tell(trial, value)
            return
        parameters: dict[str, Any] = {}
        kinds: dict[str, Any] = {}
        set_so_far: dict[str, Value] = {}
        for name, knob in self._parameters(set_so_far):
            kinds[name] = self._optuna.distributions.CategoricalDistribution((_FORMULA, *knob.values))
            parameters[name] = point.get(knob.name, _FORMULA)
            if knob.name in point:
                set_so_far[knob.name] = point[knob.name]
        self._study.add_trial(self._optuna.trial.create_trial(params=parameters, distributions=kinds, value=value))
