"""The tables that commands end with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from ..engine.report import Report

PROGRAM = "the program"
SHOWN_RULES = 10


def simple(*columns: str, numbers: Sequence[int] = (), title: str | None = None) -> Table:
    """An empty table in the house style; the columns in `numbers` are aligned to the right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    table.show_header = any(columns)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index in numbers else "left", overflow="fold")
    return table


def summary(report: Report) -> Table:
    """What changed: nodes and predicted cost before and after."""
    table = simple("", "before", "after", "change", numbers=(1, 2, 3))
    table.add_row(
        "nodes", f"{report.nodes_before}", f"{report.nodes_after}", change(report.nodes_before, report.nodes_after)
    )
    table.add_row(
        "predicted time", milliseconds(report.cost_before), milliseconds(report.cost_after),
        change(report.cost_before, report.cost_after),
    )  # fmt: skip
    return table


def rules(report: Report, *, everything: bool = False) -> Table | None:
    """The rules whose nodes are in the result, most first; None if there are none."""
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
    """How many products are done in the precision that was asked for and how far off that makes the program; empty for
    f32."""
    found = report.precision
    if found["asked"] == "f32":
        return ""
    low, all_ = found["lowered"], found["lowered"] + found["kept"]
    text = f"{low} of {all_} products in {found['asked']}"
    if not low:
        return f"{text}: for none of them is that predicted to be faster here"
    error = report.verify.get("errors", {}).get(PROGRAM)
    if error is None:
        return f"{text}; their error is not known: nothing was compared"
    return (
        f"{text}: the program's largest error is {_error(error['max_abs'])} absolute, {_error(error['max_rel'])} scaled"
    )


def _error(value: float | None) -> str:
    return "no number" if value is None else f"{value:.2g}"


_LIMITS = {
    "time_limit": "its time limit (--time-limit)",
    "node_limit": "its limit of e-nodes (--node-limit)",
    "iteration_limit": "its limit of iterations",
    "memory_limit": "its memory limit (--memory-limit)",
}


def stopped(report: Report) -> str:
    """What kept saturation from finding all that the rules reach, in lines; empty if nothing did."""
    reason = report.egraph["stop_reason"]
    lines = []
    if reason in _LIMITS:
        lines.append(f"saturation met {_LIMITS[reason]}: the result is the best graph found until then")
    for met in report.egraph["limits"]:
        who = f"rule {met['rule']}" if met["rule"] else f"ruleset {met['ruleset']}"
        lines.append(f"{who} met its limit of {met['limit']}" + (f" ({met['ruleset']})" if met["rule"] else ""))
    for name in report.egraph["unscheduled"]:
        lines.append(f"ruleset {name} is not in the schedule: its rules were not run")
    return "\n".join(lines)


def timings(measured: Mapping[str, Any], base: str) -> Table:
    """Median times of several engines, and how many times faster `base` is than each."""
    table = simple("engine", "median", "10 %", "90 %", "runs", f"{base} is", numbers=(1, 2, 3, 4, 5))
    for name, timing in measured.items():
        ratio = timing.median / measured[base].median
        faster = "" if name == base else f"{ratio:.2f}×"
        table.add_row(
            name,
            milliseconds(timing.median),
            milliseconds(timing.low),
            milliseconds(timing.high),
            str(timing.runs),
            faster,
        )
    return table


def change(before: float, after: float) -> str:
    """`-42 %`, or a dash where there is nothing to compare with."""
    return f"{(after - before) / before:+.0%}".replace("%", " %") if before else "-"


def milliseconds(seconds: float) -> str:
    """A time in the unit that reads best."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.2f} ms" if seconds < 10 else f"{seconds:.1f} s"


def size(count: float) -> str:
    """A number of bytes in the unit that reads best."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
