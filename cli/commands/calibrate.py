"""`rewrite calibrate`: measure this machine for the cost model."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from typer import Option

from ...system.short_text import duration, memory_size, plural
from .. import tables
from ..console import Stages, out, say

if TYPE_CHECKING:
    from ...engine.cost.machine import Machine

SOURCES = {
    "calibrated": "measured on this machine",
    "shipped": "shipped with rewrite",
    "default": "assumed; measure with `rewrite calibrate`",
}


def command(
    seconds: Annotated[float, Option(metavar="S", min=1.0, max=600, help="Approximate seconds to measure.")] = 10.0,
    limits: Annotated[
        bool, Option("--limits", help="Measure only peak and bandwidths, not kernels: a few seconds in all.")
    ] = False,
    show: Annotated[bool, Option("--show", help="Show the current profile without measuring.")] = False,
) -> None:
    """Measure this machine for the cost model: its limits, and kernels of ours (about a minute)."""
    from ...engine.cost import machine as machines

    notes: list[str] = []
    if show:
        machine = machines.load()
    else:
        with Stages() as progress:
            machine, notes = _measured(seconds, limits, progress)
        notes.append(f"stored in {machines.store(machine)}")
    table = tables.simple("", "", numbers=(1,))
    table.add_row("CPU", " ".join(filter(None, [machine.cpu, machine.family and f"({machine.family})"])))
    table.add_row("vector extension", machine.isa)
    table.add_row("peak f32 arithmetic, one thread", f"{machine.flops / 1e9:.1f} GFLOP/s")
    for level, size, rate in zip(("L1", "L2", "L3"), machine.sizes, machine.bandwidths, strict=False):
        table.add_row(f"{level}, {memory_size(size)}", f"{rate / 1e9:.1f} GB/s")
    table.add_row("DRAM", f"{machine.bandwidths[3] / 1e9:.1f} GB/s")
    table.add_row("start of a kernel", duration(machine.launch))
    table.add_row("source", SOURCES[machine.source])
    out().print(table)
    for note in notes:
        say(note)


def _measured(seconds: float, limits: bool, progress: Stages) -> tuple[Machine, list[str]]:
    """Measure the machine; return its profile and what to say about it."""
    from ...engine.cost import machine as machines
    from ...engine.cost import microbench

    progress("calibrate", {})
    if limits:
        # the constants are relative to limits, so those of kernels stay with the limits that they were fitted to
        found = microbench.calibrate(seconds)
        return dataclasses.replace(found, constants=machines.load().constants), []
    from ...backend.calibration.calibrate import calibrate

    fit, samples = calibrate(seconds, progress)
    errors = f"geometric-mean error {fit.before:.2f}× with default constants, {fit.after:.2f}× with fitted ones"
    return fit.machine, [f"{plural(len(samples), 'kernel')}: {errors}"]
