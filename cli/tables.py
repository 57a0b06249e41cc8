"""Tables and sentences that commands print at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from ..engine.report import Report

SHOWN_RULES = 10


def simple(*columns: str, numbers: Sequence[int] = (), title: str | None = None) -> Table:
    """Return an empty table in the common style; the columns in `numbers` are right-aligned."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    table.show_header = any(columns)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index in numbers else "left", overflow="fold")
    return table


def summary(report: Report) -> Table:
    """Return a table of nodes and predicted cost before and after."""
    table = simple("", "before", "after", "change", numbers=(1, 2, 3))
    nodes, costs = (report.nodes_before, report.nodes_after), (report.cost_before, report.cost_after)
    table.add_row("nodes", *map(str, nodes), change(*nodes))
    table.add_row("predicted time", *map(milliseconds, costs), change(*costs))
    return table


def assumed_sizes(report: Report) -> str:
    """Return the sizes that predicted times assume; empty for a model of fixed sizes."""
    sizes = ", ".join(f"{name} = {size}" for name, size in report.likely_sizes.items())
    return f"predicted for {sizes}; state others with --shape" if sizes else ""


def rules(report: Report, *, everything: bool = False) -> Table | None:
    """Return a table of the rules with nodes in the result, most nodes first; None if there are none."""
    used = sorted(
        (r for r in report.rules if r.in_result or (everything and r.matches)), key=lambda r: (-r.in_result, r.name)
    )
    if not used:
        return None
    table = simple("rule", "nodes made", "applied", "matches", numbers=(1, 2, 3))
    shown = used if everything else used[:SHOWN_RULES]
    for rule in shown:
        table.add_row(rule.name, f"{rule.in_result}", f"{rule.applied}", f"{rule.matches}")
    if len(shown) < len(used):
        table.add_row(f"[dim]and {len(used) - len(shown)} more (-v lists them)[/]", "", "", "")
    return table


def precision(report: Report) -> str:
    """Return how many products run in the requested precision, and the program's error; empty for f32."""
    found = report.precision
    if found["requested"] == "f32":
        return ""
    low, all_ = found["lowered"], found["lowered"] + found["in_f32"]
    text = f"{low} of {all_} products in {found['requested']}"
    if not low:
        return f"{text}: none is predicted to be faster on this machine"
    error = report.verify.get("errors", {}).get("program")
    if error is None:
        return f"{text}; the error is unknown: nothing was compared"
    absolute, scaled = ("no number" if e is None else f"{e:.2g}" for e in (error["max_abs"], error["max_rel"]))
    return f"{text}: the program's largest error is {absolute} absolute, {scaled} scaled"


_LIMITS = {
    "time_limit": "its time limit (--time-limit)",
    "node_limit": "its limit of e-nodes (--node-limit)",
    "iteration_limit": "its limit of iterations",
    "memory_limit": "its memory limit (--memory-limit)",
}


def stopped(report: Report) -> str:
    """Return the limits that stopped saturation early, one per line; empty if none did."""
    reason = report.egraph["stop_reason"]
    lines = []
    if reason in _LIMITS:
        lines.append(f"saturation reached {_LIMITS[reason]}: the result is the best graph found until then")
    for met in report.egraph["limits"]:
        subject = f"rule {met['rule']}" if met["rule"] else f"ruleset {met['ruleset']}"
        lines.append(f"{subject} reached its limit of {met['limit']}" + (f" ({met['ruleset']})" if met["rule"] else ""))
    for name in report.egraph["unscheduled"]:
        lines.append(f"ruleset {name} is not in the schedule: its rules were not run")
    return "\n".join(lines)


def timings(measured: Mapping[str, Any], base: str) -> Table:
    """Return a table of the median times of engines, with the speed-up of `base` over each."""
    table = simple("engine", "median", "10 %", "90 %", "runs", f"{base} is", numbers=(1, 2, 3, 4, 5))
    for name, timing in measured.items():
        ratio = timing.median / measured[base].median
        faster = "" if name == base else f"{ratio:.2f}×"
        times = map(milliseconds, (timing.median, timing.low, timing.high))
        table.add_row(name, *times, str(timing.runs), faster)
    return table


def plural(count: int, noun: str) -> str:
    """Return a number of things, such as `1 node` or `2 nodes`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def change(before: float, after: float) -> str:
    """Return the relative change, such as `-42 %`; a dash if `before` is 0."""
    return f"{(after - before) / before:+.0%}".replace("%", " %") if before else "-"


def milliseconds(seconds: float) -> str:
    """Format a time in the most readable unit."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.2f} ms" if seconds < 10 else f"{seconds:.1f} s"


def size(count: float) -> str:
    """Format a number of bytes in the most readable unit."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
