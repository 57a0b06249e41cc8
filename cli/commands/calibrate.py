"""`rewrite calibrate`: measure this machine for the cost model."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    seconds: Annotated[float, typer.Option(metavar="S", min=1.0, max=600, help="About how long to measure.")] = 10.0,
    show: Annotated[bool, typer.Option("--show", help="Only show the profile in use.")] = False,
) -> None:
    """Measure this machine for the cost model (about ten seconds)."""
    from ...engine import machine as machines
    from .. import tables
    from ..console import err, out

    if show:
        machine, note = machines.load(), ""
    else:
        if err().is_terminal:
            with err().status("measuring arithmetic and memory"):
                machine = machines.calibrate(seconds)
        else:
            machine = machines.calibrate(seconds)
        note = f"stored in {machines.store(machine)}"
    table = tables.simple("", "", numbers=(1,))
    table.add_row("CPU", machine.cpu)
    table.add_row("vector extension", machine.isa)
    table.add_row("peak f32 arithmetic, one thread", f"{machine.flops / 1e9:.1f} GFLOP/s")
    for level, size, rate in zip(("L1", "L2", "L3"), machine.sizes, machine.bandwidths, strict=False):
        table.add_row(f"{level}, {tables.size(size)}", f"{rate / 1e9:.1f} GB/s")
    table.add_row("DRAM", f"{machine.bandwidths[3] / 1e9:.1f} GB/s")
    table.add_row("start of a kernel", tables.milliseconds(machine.launch))
    table.add_row("source", machine.source)
    out().print(table)
    if note:
        out().print(note, markup=False, soft_wrap=True)
