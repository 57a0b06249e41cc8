"""Fit of the cost model's constants to measured kernels.

The formulas are nonlinear in few places (the longer one of arithmetic and traffic, the better one of two algorithms),
and each kernel depends on a few constants. So the logarithms of constants are fitted to the logarithms of times by
Gauss and Newton's method, with Levenberg's damping. Two things make it robust: residuals beyond a bound count linearly
(Huber's loss, by reweighting), and a prior keeps a constant that no kernel determines at its former value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .kernel_constants import LEAST, MOST, NAMES, KernelConstants
from .machine import Machine

Predict = Callable[[Machine, Sequence[int]], Sequence[float]]
"""Predicted seconds, on a machine, of the measured kernels at these positions."""
LAUNCH = "launch"
"""Name of `Machine.launch` among the fitted constants."""
SPREAD, LAUNCH_SPREAD = 0.5, 2.0
"""Standard deviations of the prior, in natural logarithms; a launch depends on the system more than on the CPU."""
NOISE, BOUND = 0.15, 0.3
"""Standard deviation of residuals, and where they begin to count linearly, in natural logarithms."""
FITTED = (LAUNCH, *NAMES)
"""Names of all that is fitted."""
_SHORT = 2e-6
"""Seconds of a kernel that counts half as much as a long one: clocks and launches blur its time."""
_LEAST_LAUNCH, _MOST_LAUNCH = 5e-8, 1e-4
_ROUNDS, _STEP, _LONGEST = 40, 0.02, 0.7


def fit(machine: Machine, predict: Predict, seconds: Sequence[float]) -> Machine:
    """Return a machine whose constants predict measured times; `machine` has the values that the prior keeps."""
    measured = np.log(np.asarray(seconds, float))
    trust = 1 / (1 + _SHORT / np.asarray(seconds, float))
    every = range(len(seconds))

    def residuals(x: NDArray[np.float64], kernels: Sequence[int] = every) -> NDArray[np.float64]:
        predicted = np.asarray(predict(_with(machine, x), kernels), np.float64)
        found: NDArray[np.float64] = np.log(predicted) - measured[np.asarray(kernels)]
        return found

    prior = x = _of(machine)
    spread = np.array([LAUNCH_SPREAD if name == LAUNCH else SPREAD for name in FITTED])
    found = residuals(x)
    damping = 1e-2
    for _ in range(_ROUNDS):
        slopes = np.zeros((len(every), len(x)))
        for i, kernels in enumerate(_readers(_with(machine, x), predict, len(every))):
            if kernels:
                slopes[kernels, i] = (residuals(x + _unit(i, x), kernels) - found[kernels]) / _STEP
        weights = trust * np.minimum(1.0, BOUND / np.maximum(np.abs(found), 1e-9)) / NOISE**2
        curvature = slopes.T @ (weights[:, None] * slopes) + np.diag(spread**-2.0)
        gradient = slopes.T @ (weights * found) + (x - prior) / spread**2
        before = _loss(found, trust, (x - prior) / spread)
        while damping < 1e6:
            step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), -gradient)
            moved = x + np.clip(step, -_LONGEST, _LONGEST)
            now = residuals(moved)
            if (after := _loss(now, trust, (moved - prior) / spread)) < before:
                break
            damping *= 4
        else:
            break
        x, found, damping = moved, now, damping / 3
        if before - after < 2e-3 * before:
            break
    return _with(machine, x)


class _Recorder:
    """Constants that record which of them are read."""

    def __init__(self, constants: KernelConstants) -> None:
        self.constants = constants
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> float:
        self.read.add(name)
        found: float = getattr(self.constants, name)
        return found


def _readers(machine: Machine, predict: Predict, count: int) -> list[list[int]]:
    """Return, for each of `FITTED`, the kernels whose predictions read it on a machine; all read the launch.

    Others do not change with it, and most kernels read a few of the constants."""
    found: dict[str, list[int]] = {name: [] for name in FITTED}
    for kernel in range(count):
        recorder = _Recorder(machine.constants)
        predict(replace(machine, constants=recorder), [kernel])  # type: ignore[arg-type]
        for name in (LAUNCH, *recorder.read):
            found[name].append(kernel)
    return list(found.values())


def _loss(residuals: NDArray[np.float64], trust: NDArray[np.float64], moved: NDArray[np.float64]) -> float:
    size = np.abs(residuals)
    huber = np.where(size < BOUND, size**2, 2 * BOUND * size - BOUND**2)
    return float((trust * huber).sum() / NOISE**2 + (moved**2).sum())


def _unit(i: int, x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.arange(len(x)) == i, _STEP, 0.0)


def _of(machine: Machine) -> NDArray[np.float64]:
    """Return the logarithms of a machine's constants."""
    values = np.array([machine.launch, *(getattr(machine.constants, name) for name in NAMES)], np.float64)
    return np.asarray(np.log(values))


def _with(machine: Machine, x: NDArray[np.float64]) -> Machine:
    """Return a machine with other constants."""
    launch, *values = (math.exp(v) for v in x)
    constants = {name: min(max(value, LEAST), MOST) for name, value in zip(NAMES, values, strict=True)}
    launch = min(max(launch, _LEAST_LAUNCH), _MOST_LAUNCH)
    return replace(machine, launch=launch, constants=KernelConstants(**constants))


def mean_error(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Return the geometric mean of the factors by which predictions are wrong."""
    return float(np.exp(np.abs(np.log(np.asarray(predicted) / np.asarray(measured))).mean()))


def rank_correlation(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Return Spearman's rank correlation, in which equal values have their mean rank.

    It is 0 for less than three values, and where all values of a side are equal."""
    if min(len(set(predicted)), len(set(measured))) < 2 or len(predicted) < 3:
        return 0.0
    return float(np.corrcoef(_ranks(predicted), _ranks(measured))[0, 1])


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    _, place, count = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(count) - (count - 1) / 2)[place]
    return ranks
