"""Tables and sentences that commands print at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..system.short_text import duration, memory_size, plural

if TYPE_CHECKING:
    from rich.table import Table

    from ..engine.report import Report
    from .measure import Timing

SHOWN_RULES = 6
SHOWN_OPERATORS = 8


def simple(*columns: str, numbers: Sequence[int] = (), title: str | None = None) -> Table:
    """Return an empty table in the common style; the columns in `numbers` are right-aligned."""
    try:
        from rich import box
        from rich.table import Table
    except ModuleNotFoundError:
        from .plain_console import Table as Plain

        return Plain(columns, numbers)  # type: ignore[return-value]
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    table.show_header = any(columns)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index in numbers else "left", overflow="fold")
    return table


def escape(text: str) -> str:
    """Return a text that shows as it is in a table, whatever brackets it has."""
    try:
        from rich.markup import escape as escaped
    except ModuleNotFoundError:
        return text
    return escaped(text)


def summary(report: Report, measured: Mapping[str, Timing]) -> Table:
    """Return a table of nodes, bytes and time before and after.

    The time is that of `measured` engines, or else of the program while it was verified, or else predicted."""
    table = simple("", "before", "after", "change", numbers=(1, 2, 3))
    nodes, stored = (report.nodes_before, report.nodes_after), report.nbytes
    table.add_row("nodes", *map(str, nodes), change(*nodes))
    for what in ("weights", "file"):
        sizes = stored.get(f"{what}_before", 0), stored.get(f"{what}_after", 0)
        if any(sizes):
            table.add_row(what, *(memory_size(n) if n else "" for n in sizes), change(*sizes) if all(sizes) else "")
    if "rewrite" in measured:
        peer = measured.get("onnxruntime")
        times = [None if peer is None else peer.median, measured["rewrite"].median]
    elif report.measured:
        times = [None, report.measured["seconds"]]
    else:
        times = [report.cost_before, report.cost_after]
    label = "time of a run" if times[0] is None or measured else "predicted time"
    ratio = "" if times[0] is None else change(times[0], times[1])  # type: ignore[arg-type]
    table.add_row(label, *("" if t is None else duration(t) for t in times), ratio)
    return table


def timed(report: Report, measured: Mapping[str, Timing], threads: int, ran: Mapping[str, int]) -> str:
    """Return how the time in the summary came about: for which free sizes, on how many threads, beside what."""
    if "rewrite" in measured:
        beside = "; before: the model in ONNX Runtime, measured interleaved" if "onnxruntime" in measured else ""
        return f"measured on {plural(threads, 'thread')}{f' for {sizes(ran)}' if ran else ''}{beside}"
    if report.measured:
        ran = report.measured["sizes"]
        return f"measured on {plural(report.measured['threads'], 'thread')}{f' for {sizes(ran)}' if ran else ''}"
    assumed = sizes(report.likely_sizes)
    return f"predicted for {assumed}; state others with --shape" if assumed else ""


def sizes(extents: Mapping[str, int]) -> str:
    """Return extents of free dims as a list, such as `batch = 1, height = 224`."""
    return ", ".join(f"{name} = {size}" for name, size in extents.items())


def operators(report: Report) -> str:
    """Return the operators whose number changed, the largest changes first; empty if none did."""
    before, after = report.operators["before"], report.operators["after"]
    counts = [(op, before.get(op, 0), after.get(op, 0)) for op in sorted({*before, *after})]
    changed = sorted((c for c in counts if c[1] != c[2]), key=lambda c: -abs(c[2] - c[1]))
    rest = f", and {len(changed) - SHOWN_OPERATORS} more" if len(changed) > SHOWN_OPERATORS else ""
    return ", ".join(f"{op} {old} → {new}" for op, old, new in changed[:SHOWN_OPERATORS]) + rest


def without_kernel(report: Report, fallbacks: Mapping[str, int]) -> str:
    """Return the operators that run without a native kernel, and their share of the time; empty without any."""
    if not fallbacks:
        return ""
    share = f"{report.measured['without_kernel']:.0%} of the time: ".replace("%", " %") if report.measured else ""
    return share + ", ".join(f"{op} ×{n}" for op, n in fallbacks.items())


def facts(rows: Sequence[tuple[str, str]]) -> Table:
    """Return labeled texts as a table without lines, which wraps them to the width of the terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(Text(label, style="dim"), Text(text))
    return table


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
        times = map(duration, (timing.median, timing.low, timing.high))
        table.add_row(name, *times, str(timing.runs), faster)
    return table


def change(before: float, after: float) -> str:
    """Return the relative change, such as `-42 %`; a dash if `before` is 0."""
    if not before:
        return "-"
    percent = round(100 * (after - before) / before)
    return f"{percent:+d} %" if percent else "0 %"
