"""`rewrite check`: are rules sound? Both sides are computed on many instances and compared."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from ...errors import UserError
from ...system.short_text import duration
from .. import tables
from ..console import err, out, say
from ..options import Jobs, RuleTargets, StdRules, Strict, grouped, rule_targets, writable, writable_folder
from ..results import SCHEMA, Case, write_json, write_junit
from ..rule_files import show_warnings

if TYPE_CHECKING:
    from rich.table import Table

    from ...grammar.library.load import Library
    from ...grammar.syntax import ast
    from ...soundness import RuleReport

LISTED = 40
"""Maximum number of rules listed one by one; above it, one line per file."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits of the check, and what it may use."""

    budget: Annotated[int, Option(min=1, metavar="N", help="Instances to try for each rule.")] = 480
    seconds: Annotated[float, Option(min=0.1, metavar="S", help="Processor seconds to spend on each rule, about.")] = (
        5.0
    )
    seed: Annotated[int, Option(min=0, metavar="N", help="Another seed draws other instances.")] = 0
    jobs: Jobs = None
    prove: Annotated[bool, Option(help="Have the prover look at rules that pass (needs the extra prove).")] = True
    cache: Annotated[bool, Option(help="Use the cached reports of rules that have not changed.")] = True
    reference: Annotated[
        list[str] | None,
        Option(metavar="OP=MODULE:FUNCTION", help="Compute an operator by this function; may be repeated."),
    ] = None


@dataclass(frozen=True, slots=True)
class Outputs:
    """Files to write besides the table."""

    json: Annotated[str | None, Option(metavar="FILE", help="Write the reports as JSON; - for standard output.")] = None
    junit: Annotated[Path | None, Option(metavar="FILE.xml", help="Write the reports as JUnit XML.")] = None
    reproducer: Annotated[
        Path | None, Option(metavar="DIR", help="Write each counterexample there, as models and arrays.")
    ] = None


@grouped
def command(
    effort: Effort,
    outputs: Outputs,
    targets: RuleTargets = None,
    std_rules: StdRules = True,
    verbose: Annotated[bool, Option("--verbose", "-v", help="List every rule, with all notes.")] = False,
    strict: Strict = False,
) -> None:
    """Check that rules are true: compute both sides of many instances and compare."""
    import time

    from ...soundness import Budget, check
    from ...system.store import default_root

    json = None if outputs.json is None else Path(outputs.json)
    writable(json, outputs.junit)
    if outputs.reproducer is not None:
        writable_folder(outputs.reproducer)
    start = time.perf_counter()
    library, rules = _selected(rule_targets(targets), std_rules)
    show_warnings(library, sorted({rule.span.file for rule in rules}), strict=strict)
    limits = Budget(instances=effort.budget, seconds=effort.seconds, seed=effort.seed)
    root, quiet = default_root() if effort.cache else None, outputs.json == "-"
    with _progress(len(rules), quiet=quiet) as progress:
        reports = check(
            library, rules,
            budget=limits, workers=effort.jobs, prove=effort.prove, cache=root,
            references=effort.reference or (), progress=progress,
        )  # fmt: skip
    if outputs.reproducer is not None:
        from ...soundness.checking.report import write_reproducer

        for report in reports:
            write_reproducer(outputs.reproducer, report)
    if outputs.junit is not None:
        _write_junit(outputs.junit, reports)
    if json is not None:
        _write_json(json, reports, time.perf_counter() - start)
    if not quiet:
        _print(reports, time.perf_counter() - start, verbose)
    if not all(report.ok for report in reports):
        raise typer.Exit(1)


def _selected(targets: Sequence[tuple[Path, str]], std_rules: bool) -> tuple[Library, list[ast.Rule]]:
    from ...engine.rewriting.rule_library import load_rules, recognitions

    wanted = [(path.resolve(), rule) for path, rule in targets]
    library = load_rules([path for path, _ in wanted], std=std_rules)
    every = [*library.rules, *recognitions(library)]
    found: dict[int, ast.Rule] = {}
    for path, name in wanted:
        own = [r for r in every if (at := Path(r.span.file).resolve()) == path or path in at.parents]
        chosen = [r for r in own if not name or r.name in (name, f"recognize_{name}")]
        if not chosen and name:
            from ...grammar.diagnostics import did_you_mean

            raise UserError(f"has no rule {name!r}", where=str(path), hint=did_you_mean(name, [r.name for r in own]))
        found.update((id(r), r) for r in chosen)
    if not found:
        raise UserError("no rules in these files")
    return library, list(found.values())


@contextmanager
def _progress(total: int, *, quiet: bool) -> Iterator[Callable[[RuleReport], None]]:
    """Yield a callback for each rule that is done: a bar on a terminal counts them, elsewhere nothing does."""
    if quiet or not err().is_terminal or total <= 1:
        yield lambda report: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("check"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("{task.description}", style="dim"))  # fmt: skip
    with Progress(*columns, console=err(), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda report: bar.update(task, advance=1, description=report.name)


def _print(reports: Sequence[RuleReport], seconds: float, verbose: bool) -> None:
    listed = verbose or len(reports) <= LISTED
    out().print(_by_rule(reports) if listed else _by_file(reports))
    for report in reports:
        if not report.ok:
            say(f"{report}\n")
    for report in reports if listed else ():
        for note in report.notes:
            out().print(f"[dim]note[/]  {report.name}: {note}", soft_wrap=True)
    for report in reports if verbose else ():
        for assumption in report.assumptions:
            out().print(f"[dim]assumes[/]  {report.name}: {assumption}", soft_wrap=True, highlight=False)
    failed = sum(not report.ok for report in reports)
    tested, proved = (sum(r.ok and r.layer == layer for r in reports) for layer in (2, 3))
    sound = f"{len(reports) - failed} sound ({tested} tested, {proved} proved as well)"
    total = f"{sound}, {failed} failed, in {duration(seconds)}"
    out().print(total, style="red" if failed else "green")


def _by_rule(reports: Sequence[RuleReport]) -> Table:
    from ...soundness.checking.report import LAYERS

    columns = ("rule", "class", "layer", "instances", "fired", "near misses", "seconds")
    table = tables.simple(*columns, numbers=(3, 4, 5, 6))
    for r in reports:
        layer = f"{r.layer} {LAYERS[r.layer]}" if r.ok else f"[red]{r.verdict}[/]"
        time = f"{r.seconds + r.proved_seconds:.1f}"
        table.add_row(r.name, r.numerics, layer, str(r.instances), str(r.fired), str(r.near_misses), time)
    return table


def _by_file(reports: Sequence[RuleReport]) -> Table:
    columns = ("file", "rules", "tested", "proved", "failed", "instances", "fired", "seconds")
    table = tables.simple(*columns, numbers=range(1, 8))
    for file in dict.fromkeys(r.file for r in reports):
        own = [r for r in reports if r.file == file]
        failed = sum(not r.ok for r in own)
        layers = [sum(r.ok and r.layer == layer for r in own) for layer in (2, 3)]
        counts = (len(own), *layers, f"[red]{failed}[/]" if failed else 0,
                  sum(r.instances for r in own), sum(r.fired for r in own))  # fmt: skip
        time = f"{sum(r.seconds + r.proved_seconds for r in own):.1f}"
        table.add_row(Path(file).name, *map(str, counts), time)
    return table


def _write_junit(path: Path, reports: Sequence[RuleReport]) -> None:
    cases = [
        Case(Path(r.file).name, r.name, r.file, r.line, r.seconds + r.proved_seconds, "" if r.ok else str(r))
        for r in reports
    ]
    write_junit(path, "rewrite check", cases)


def _write_json(target: Path, reports: Sequence[RuleReport], seconds: float) -> None:
    found = {
        "schema": SCHEMA,
        "seconds": round(seconds, 3),
        "processor_seconds": round(sum(os.times()[:4]), 3),
        "sound": sum(r.ok for r in reports),
        "failed": sum(not r.ok for r in reports),
        "rules": [report.as_json() for report in reports],
    }
    write_json(found, target, ensure_ascii=True)
