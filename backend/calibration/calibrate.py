"""Measurement of a whole machine profile: the limits of the machine, and the constants of our kernels."""

from __future__ import annotations

from ...engine.cost import fitting, microbench
from ...engine.cost.fitting import Fit
from ...engine.cost.samples import Sample
from ...system.progress import Progress, ignore
from . import suite, timing

LIMITS = 0.3
"""Share of the time of measuring that the limits take, peak and bandwidths."""


def calibrate(seconds: float = 10.0, progress: Progress = ignore) -> tuple[Fit, list[Sample]]:
    """Measure this machine for about `seconds`, plus the time to compile kernels that are not cached.

    Returns the fitted profile, which is not stored, and the kernels that it was fitted to. `progress` is called with
    the stage `calibrate` and how many networks are `done` of a `total`. Raises `UserError` without a C compiler."""
    found: list[Sample] = []
    total = len(suite.NETWORKS)
    machine = microbench.calibrate(seconds * LIMITS)
    for done, name in enumerate(suite.NETWORKS):
        progress("calibrate", {"done": done, "total": total})
        found += timing.time_network(name, seconds * (1 - LIMITS) / total)
    return fitting.fit(machine, found), found
