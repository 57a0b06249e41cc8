"""Profile of `rewrite bench --profile`: a roofline table of the kernels, and the same as JSON."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import naming_packages
from ..system.short_text import duration, memory_size, plural
from . import tables

if TYPE_CHECKING:
    from rich.table import Table

    from ..backend.runtime.profile import KernelTime, Profile
    from ..engine.cost.machine import Machine

CALIBRATION = 2.0
"""Seconds for measuring a machine without a stored profile."""
_NAMED = 4
_NAME = 20


def machine(progress: Any = None) -> Machine:
    """Return the stored profile of this machine. If there is none, measure now and do not store it."""
    with naming_packages("--profile"):
        from ..engine.cost import machine as machines
        from ..engine.cost import microbench

    found = machines.load()
    if found.source == "calibrated":
        return found
    if progress is not None:
        progress("calibrate", {})
    return microbench.calibrate(CALIBRATION)


def rows(profile: Profile) -> list[list[KernelTime]]:
    """Return the kernels of a profile, grouped by code, sizes and traffic, the most expensive group first."""
    found: defaultdict[Any, list[KernelTime]] = defaultdict(list)
    for row in profile.rows:
        found[row.parameters, row.ops, row.shape, row.flops, row.nbytes, row.threads].append(row)
    return sorted(found.values(), key=lambda same: -sum(row.seconds for row in same))


def table(profile: Profile, top: int | None = None) -> Table:
    """Return a table with a row per kind of kernel; beyond `top` rows, one row sums up the rest."""
    several = profile.threads > 1
    heads = ["kernel", "nodes", "result", "×", "each", "share", "GFLOP/s", "of peak", "GB/s", "of bandwidth", "bound"]
    heads += ["waits"] if several else []
    found = tables.simple(*heads, numbers=(3, 4, 5, 6, 7, 8, 9, 11))
    kinds = rows(profile)
    shown = kinds if top is None else kinds[:top]
    for same in shown:
        found.add_row(*_cells(same, profile, several), style=None if same[0].native else "yellow")
    rest = [row for same in kinds[len(shown) :] for row in same]
    if rest:
        share = _share(sum(row.seconds for row in rest), profile)
        found.add_row(f"[dim]{len(kinds) - len(shown)} more (--top)[/]", "", "", str(len(rest)), "", share)
    between = _share(profile.between, profile)
    found.add_row("[dim]between kernels[/]", "", "", "", duration(profile.between), between)
    return found


def _cells(same: Sequence[KernelTime], profile: Profile, several: bool) -> list[str]:
    row, count = same[0], len(same)
    each = sum(r.seconds for r in same) / count
    compute, memory = row.compute, sum(r.memory for r in same) / count
    slowest = max(same, key=lambda r: r.memory)
    rate = f"{row.flops / each / 1e9:.1f}" if row.flops and each else ""
    cells = [
        tables.escape(" + ".join(_counted(row.kernels))),
        tables.escape(_nodes(row)),
        "" if row.shape is None else tables.escape("×".join(map(str, row.shape)) or "scalar"),
        str(count) if count > 1 else "",
        duration(each),
        _share(each * count, profile),
        rate,
        _percent(compute, each) if rate else "",
        f"{row.nbytes / each / 1e9:.1f}" if row.nbytes and each else "",
        f"{_percent(memory, each)} {slowest.level}" if row.nbytes else "",
        slowest.bound,
    ]
    if several:
        cells.append(_percent(sum(r.idle for r in same), count) if row.threads > 1 else "one thread")
    return cells


def _counted(names: Iterable[str]) -> list[str]:
    """Return names with their numbers, such as `gemm` or `pool ×3`."""
    return [f"{name} ×{n}" if n > 1 else name for name, n in Counter(names).items()]


def _nodes(row: KernelTime) -> str:
    """Return the operators and the end of the first node's name, such as `Conv Relu, layer1.conv`."""
    ops = _counted(op.removeprefix("rewrite.") for op in row.ops)
    text = " ".join(ops[:_NAMED]) + (" …" if len(ops) > _NAMED else "")
    if not row.nodes:
        return text
    name = row.nodes[0] if len(row.nodes[0]) <= _NAME else f"…{row.nodes[0][1 - _NAME :]}"
    return f"{text}, {name}" if text else name


def _share(seconds: float, profile: Profile) -> str:
    return _percent(seconds, profile.total, 1)


def _percent(part: float, whole: float, digits: int = 0) -> str:
    return f"{100 * part / whole:.{digits}f} %" if whole and math.isfinite(part / whole) else ""


def summary(profile: Profile) -> list[str]:
    """Return the lines below the table: the whole run, and the machine."""
    m = profile.machine
    least = sum(max(row.compute, row.memory) for row in profile.rows)
    flops = sum(row.flops for row in profile.rows)
    rates = ", ".join(
        f"{level} {rate / 1e9:.0f}" for level, rate in zip(("L1", "L2", "L3", "DRAM"), m.bandwidths, strict=True)
    )
    sizes = ", ".join(memory_size(size) for size in m.sizes)
    threads = plural(profile.threads, "thread")
    source = "measured" if m.source == "calibrated" else "assumed"
    return [
        f"{threads}: {duration(profile.seconds)} per run (median of {profile.runs}), "
        f"{flops / max(profile.seconds, 1e-12) / 1e9:.0f} GFLOP/s; the limits allow {duration(least)}",
        f"one thread, {source}: {m.flops / 1e9:.0f} GFLOP/s; GB/s: {rates}; caches {sizes}",
    ]
