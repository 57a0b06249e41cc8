"""What `rewrite bench --profile` shows: a roofline table of the kernels, the same as JSON, and a Chrome trace."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import tables
from .results import finite, write_text

if TYPE_CHECKING:
    from rich.table import Table

    from ..backend.profile import KernelTime, Profile
    from ..engine.machine import Machine

CALIBRATION = 2.0
"""Seconds for measuring a machine of which no profile is stored."""
_NAMED = 4
_NAME = 20


def machine(progress: Any = None) -> Machine:
    """The stored profile of this machine; measured now, and not stored, if there is none."""
    from ..engine import machine as machines

    found = machines.load()
    if found.source == "calibrated":
        return found
    if progress is not None:
        progress("calibrate", {})
    return machines.calibrate(CALIBRATION)


def rows(profile: Profile) -> list[list[KernelTime]]:
    """The kernels of a profile, equal ones together (same code, sizes and traffic), the costliest first."""
    found: dict[Any, list[KernelTime]] = {}
    for row in profile.rows:
        found.setdefault((row.parameters, row.ops, row.shape, row.flops, row.nbytes, row.threads), []).append(row)
    return sorted(found.values(), key=lambda same: -sum(row.seconds for row in same))


def table(profile: Profile, top: int | None = None) -> Table:
    """A line for each kind of kernel, the `top` ones only if given, and what is left in a last line."""
    several = profile.threads > 1
    heads = ["kernel", "nodes", "result", "×", "each", "share", "GFLOP/s", "of peak", "GB/s", "of bandwidth", "bound"]
    heads += ["waits"] if several else []
    found = tables.simple(*heads, numbers=(3, 4, 5, 6, 7, 8, 9, 11))
    kinds = rows(profile)
    shown = kinds if top is None else kinds[:top]
    for same in shown:
        found.add_row(*_cells(same, profile, several), style=None if same[0].native else "yellow")
    rest = sum(row.seconds for same in kinds[len(shown) :] for row in same)
    if len(shown) < len(kinds):
        count = sum(len(same) for same in kinds[len(shown) :])
        found.add_row(f"[dim]{len(kinds) - len(shown)} more (--top)[/]", "", "", str(count), "", _share(rest, profile))
    between = _share(profile.between, profile)
    found.add_row("[dim]between kernels[/]", "", "", "", tables.milliseconds(profile.between), between)
    return found


def _cells(same: Sequence[KernelTime], profile: Profile, several: bool) -> list[str]:
    from rich.markup import escape

    row, count = same[0], len(same)
    each = sum(r.seconds for r in same) / count
    compute, memory = row.compute, sum(r.memory for r in same) / count
    slowest = max(same, key=lambda r: r.memory)
    rate = f"{row.flops / each / 1e9:.1f}" if row.flops and each else ""
    cells = [
        escape(_kernels(row.kernels)),
        escape(_nodes(row)),
        "" if row.shape is None else escape("×".join(map(str, row.shape)) or "scalar"),
        str(count) if count > 1 else "",
        tables.milliseconds(each),
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


def _kernels(names: Sequence[str]) -> str:
    """`pack + gemm`, `pool ×3`."""
    return " + ".join(f"{name} ×{n}" if n > 1 else name for name, n in Counter(names).items())


def _nodes(row: KernelTime) -> str:
    """`Conv Relu, layer1.conv`: the operators, and the end of the first node's name."""
    counts = Counter(op.removeprefix("rewrite.") for op in row.ops)
    ops = [f"{op} ×{n}" if n > 1 else op for op, n in counts.items()]
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
    """Lines below the table: the run as a whole, and the machine."""
    m = profile.machine
    least = sum(max(row.compute, row.memory) for row in profile.rows)
    flops = sum(row.flops for row in profile.rows)
    rates = ", ".join(
        f"{level} {rate / 1e9:.0f}" for level, rate in zip(("L1", "L2", "L3", "DRAM"), m.bandwidths, strict=True)
    )
    sizes = ", ".join(tables.size(size) for size in m.sizes)
    threads = f"{profile.threads} thread{'s' * (profile.threads != 1)}"
    source = "measured" if m.source == "calibrated" else "assumed"
    return [
        f"{threads}: {tables.milliseconds(profile.seconds)} a run (median of {profile.runs}), "
        f"{flops / max(profile.seconds, 1e-12) / 1e9:.0f} GFLOP/s; the limits allow {tables.milliseconds(least)}",
        f"one thread, {source}: {m.flops / 1e9:.0f} GFLOP/s; GB/s: {rates}; caches {sizes}",
    ]


def profile_json(profile: Profile) -> dict[str, Any]:
    """The profile as docs/json.md describes it."""
    machine = profile.machine
    return {
        "threads": profile.threads,
        "runs": profile.runs,
        "seconds": profile.seconds,
        "between": profile.between,
        "machine": {"flops": machine.flops, "sizes": machine.sizes, "bandwidths": machine.bandwidths},
        "kernels": [
            {
                "kernels": row.kernels,
                "operators": row.ops,
                "nodes": row.nodes,
                "shape": row.shape,
                "seconds": row.seconds,
                "idle": row.idle,
                "threads": row.threads,
                "flops": row.flops,
                "bytes": row.nbytes,
                "least_compute": row.compute,
                "least_memory": row.memory,
                "level": row.level,
                "bound": row.bound,
                "native": row.native,
            }
            for row in profile.rows
        ],
    }


def write_trace(profile: Profile, target: Path) -> None:
    """Write the last run as a Chrome trace; a UserError if it cannot be written."""
    write_text(json.dumps(finite(profile.trace())) + "\n", target)
