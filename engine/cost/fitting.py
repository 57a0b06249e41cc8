"""Fit of the cost model's constants to measured kernels.

Errors are ratios, so logarithms of times are compared, and logarithms of constants are varied. Huber's loss bounds the
pull of kernels that the model cannot describe. Each constant is drawn to its default with the weight of a fraction of a
kernel: so one that no kernel depends on keeps it, and constants that only occur together stay near each other.

The method is that of Levenberg and Marquardt on reweighted least squares, with forward differences. Nothing in it is
random, so equal samples give equal constants.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .constants import DEFAULTS, FACTOR, NAMES, Constants
from .cost_model import CostModel
from .machine import Machine
from .samples import Sample

Vector = NDArray[np.float64]
PRIOR = 0.3
"""Weight of a constant's distance from its default, relative to that of a sample's error."""
OUTLIER = 0.4
"""Error, as the logarithm of a ratio, beyond which the pull of a sample does not grow."""
STEP = 1e-3
"""Difference of logarithms for derivatives."""
ITERATIONS = 40


@dataclass(frozen=True, slots=True)
class Fit:
    """A machine with fitted constants, and the geometric-mean errors of predictions with default and fitted ones."""

    machine: Machine
    before: float
    after: float


def fit(machine: Machine, samples: Sequence[Sample]) -> Fit:
    """Return the machine with the constants and the launch cost that predict the samples best.

    Raises `ValueError` without samples, or for times that are not positive."""
    if not samples or not all(s.seconds > 0 for s in samples):
        raise ValueError("a fit needs samples, and times above 0")
    measured = np.log([s.seconds for s in samples])
    limit = math.log(FACTOR)

    def errors(at: Vector) -> Vector:
        cost = CostModel(target="native", machine=_varied(machine, at))
        return np.log([s.predicted(cost) for s in samples]) - measured

    def loss(found: Vector, at: Vector) -> float:
        far = np.abs(found)
        parts = np.where(far < OUTLIER, found**2 / 2, OUTLIER * (far - OUTLIER / 2))
        return float(parts.sum() + PRIOR**2 * (at**2).sum() / 2)

    at = np.zeros(len(NAMES) + 1)
    found = errors(at)
    first, best, damping = found, loss(found, at), 1e-2
    for _ in range(ITERATIONS):
        slopes = np.stack([(errors(at + STEP * unit) - found) / STEP for unit in np.eye(len(at))], axis=1)
        weights = np.minimum(1.0, OUTLIER / np.maximum(np.abs(found), 1e-9))
        curvature = (slopes * weights[:, None]).T @ slopes + PRIOR**2 * np.eye(len(at))
        gradient = slopes.T @ (weights * found) + PRIOR**2 * at
        for _ in range(20):
            step = -np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), gradient)
            tried = np.clip(at + np.clip(step, -1, 1), -limit, limit)
            there = errors(tried)
            if (now := loss(there, tried)) < best:
                break
            damping *= 4
        else:
            break
        gain, at, found, best, damping = best - now, tried, there, now, damping / 3
        if gain < 1e-4 * best:
            break
    return Fit(_varied(machine, at).rounded(), _mean(first), _mean(found))


def _varied(machine: Machine, logs: Vector) -> Machine:
    """Return the machine with its default constants and its launch cost multiplied by factors."""
    *factors, launch = (float(f) for f in np.exp(logs))
    values = {name: getattr(DEFAULTS, name) * f for name, f in zip(NAMES, factors, strict=True)}
    return dataclasses.replace(machine, constants=Constants(**values), launch=machine.launch * launch)


def _mean(errors: Vector) -> float:
    return float(np.exp(np.abs(errors).mean()))
