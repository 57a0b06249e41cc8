"""`rewrite calibrate`: measure this machine for the cost model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from ...system.short_text import duration, memory_size
from .. import tables
from ..console import Stages, out, say

if TYPE_CHECKING:
    from ...engine.cost.machine import Machine


def command(
    seconds: Annotated[
        float, Option(metavar="S", min=1.0, max=600, help="Approximate seconds to measure, besides compiling.")
    ] = 15.0,
    target: Annotated[
        str, Option(metavar="NAME", help="Kernels to measure: native (this CPU's best), avx512, avx2, neon, portable.")
    ] = "native",
    show: Annotated[bool, Option("--show", help="Show the current profile without measuring.")] = False,
) -> None:
    """Measure this machine and its kernels for the cost model, which later compiles use (less than a minute)."""
    from ...backend.ir.target import costs_of, make_target
    from ...engine.cost import machine as machines

    isa = make_target(target).isa
    if show:
        _show(machines.load(isa=costs_of(target)))
        return
    with Stages() as stages:
        from ...tuning.calibration import calibrate

        found = calibrate(target, seconds=seconds, progress=stages)
    path = machines.store(found.machine, machines.profile_path(isa))
    _show(found.machine)
    fitted = f"predicted within a factor of {found.error:.2f}, rank correlation {found.correlation:.3f}"
    say(f"{len(found.labels)} kernels, {fitted}")
    say(f"stored in {path}")


def _show(machine: Machine) -> None:
    table = tables.simple("", "", numbers=(1,))
    table.add_row("CPU", machine.cpu)
    table.add_row("vector extension", machine.isa)
    table.add_row("peak f32 arithmetic, one thread", f"{machine.flops / 1e9:.1f} GFLOP/s")
    for level, size, rate in zip(("L1", "L2", "L3"), machine.sizes, machine.bandwidths, strict=False):
        table.add_row(f"{level}, {memory_size(size)}", f"{rate / 1e9:.1f} GB/s")
    table.add_row("DRAM", f"{machine.bandwidths[3] / 1e9:.1f} GB/s")
    table.add_row("start of a kernel", duration(machine.launch))
    table.add_row("source", machine.source)
    out().print(table)
