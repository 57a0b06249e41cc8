"""`rewrite calibrate`: measure this machine for the cost model."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

from typer import Option

from ...system.short_text import duration, memory_size
from .. import tables
from ..console import err, out, say


def command(
    seconds: Annotated[float, Option(metavar="S", min=1.0, max=600, help="Approximate seconds to measure.")] = 10.0,
    show: Annotated[bool, Option("--show", help="Show the current profile without measuring.")] = False,
) -> None:
    """Measure this machine for the cost model (about ten seconds)."""
    from ...engine.cost import machine as machines
    from ...engine.cost import microbench

    if show:
        machine, note = machines.load(), ""
    else:
        with err().status("measuring arithmetic and memory") if err().is_terminal else nullcontext():
            machine = microbench.calibrate(seconds)
        note = f"stored in {machines.store(machine)}"
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
    if note:
        say(note)
