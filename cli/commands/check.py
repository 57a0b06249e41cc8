"""`rewrite check`: are rules true? Instances of each are computed on both sides and compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import UserError
from ..options import StdRules, writable, writable_folder
from ..warnings import Strict, tell

if TYPE_CHECKING:
    from ...engine.soundness import RuleReport
    from ...grammar import ast
    from ...grammar.library import Library

LISTED = 40
"""So many rules are listed one by one; of more there is a line for each file."""


def command(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH[::RULE]", help="Rule files or directories; the standard library by default."),
    ] = None,
    std_rules: StdRules = True,
    budget: Annotated[
        int, typer.Option("--budget", min=1, metavar="N", help="Instances to try for each rule.", show_default=True)
    ] = 480,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, metavar="S", help="Processor seconds to spend on each rule, about.")
    ] = 7.0,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Another seed draws other instances.")] = 0,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, metavar="N", help="Processes to use; all cores by default.")
    ] = None,
    prove: Annotated[
        bool,
        typer.Option("--prove/--no-prove", help="Have the prover look at rules that pass (needs the extra prove)."),
    ] = True,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Take over what was found of rules that have not changed.")
    ] = True,
    json: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the reports as JSON; - for standard output.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE.xml", help="Write the reports as JUnit XML.")
    ] = None,
    reproducer: Annotated[
        Path | None,
        typer.Option("--reproducer", metavar="DIR", help="Write each counterexample there, as models and arrays."),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="List every rule, and what is worth knowing.")
    ] = False,
    strict: Strict = False,
    mutants: Annotated[
        bool,
        typer.Option("--mutants", help="Check the checker: how many altered rules that are wrong does it catch?"),
    ] = False,
    page: Annotated[
        Path | None, typer.Option("--report", metavar="FILE.md", help="With --mutants: write the score as a page.")
    ] = None,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="With --mutants: check those, too, that nothing else shows to be wrong.")
    ] = False,
) -> None:
    """Check that rules are true: compute both sides of many instances and compare."""
    import time

    from ...engine.soundness import Budget, check

    for file in (json, junit, page):
        if file is not None and str(file) != "-":
            writable(Path(file))
    if reproducer is not None:
        writable_folder(reproducer)
    if mutants:
        from ...engine.library import STANDARD
        from ...engine.processes import usable_cores
        from ..mutation import run

        cores = jobs or usable_cores()
        if not run(targets or [str(STANDARD)], std=std_rules, jobs=cores, thorough=thorough, report=page):
            raise typer.Exit(1)
        return
    start = time.perf_counter()
    library, rules = _selected(targets or [], std_rules)
    tell(library, sorted({rule.span.file for rule in rules}), strict=strict)
    limits = Budget(instances=budget, seconds=seconds, seed=seed)
    with _Progress(len(rules), quiet=json == "-") as progress:
        reports = check(
            library, rules, budget=limits, workers=jobs, prove=prove,
            cache=_cache() if cache else None, progress=progress,
        )  # fmt: skip
    if reproducer is not None:
        from ...engine.soundness.reproduce import write_reproducer

        for report in reports:
            write_reproducer(reproducer, report)
    if junit is not None:
        _write_junit(junit, reports)
    if json is not None:
        _write_json(json, reports, time.perf_counter() - start)
    if json != "-":
        _print(reports, time.perf_counter() - start, verbose)
    if not all(report.ok for report in reports):
        raise typer.Exit(1)


def _selected(targets: Sequence[str], std_rules: bool) -> tuple[Library, list[ast.Rule]]:
    """The library, and the rules in it that are to be checked."""
    from ...engine.library import STANDARD, load_rules, recognitions

    wanted: list[tuple[Path, str]] = []
    for target in targets or [str(STANDARD)]:
        name, _, rule = target.partition("::")
        path = Path(name)
        if not path.exists():
            raise UserError("no such file or directory", where=name)
        wanted.append((path.resolve(), rule))
    library = load_rules([path for path, _ in wanted], std=std_rules)
    every = [*library.rules, *recognitions(library)]
    found: dict[int, ast.Rule] = {}
    for path, name in wanted:
        own = [r for r in every if (at := Path(r.span.file).resolve()) == path or path in at.parents]
        chosen = [r for r in own if not name or r.name in (name, f"recognise_{name}")]
        if not chosen and name:
            from ...grammar.diagnostics import did_you_mean

            hint = did_you_mean(name, [r.name for r in own])
            raise UserError(f"has no rule {name!r}", where=str(path), hint=hint)
        found.update((id(r), r) for r in chosen)
    if not found:
        raise UserError("there are no rules in these files")
    return library, list(found.values())


def _cache() -> Path:
    from ...grammar.cache import directory

    return directory().parent / "soundness"


class _Progress:
    """A bar on a terminal that counts rules; elsewhere nothing."""

    def __init__(self, total: int, *, quiet: bool) -> None:
        self.total = total
        self.quiet = quiet
        self.bar: Any = None

    def __enter__(self) -> _Progress:
        from ..console import err

        if not self.quiet and err().is_terminal and self.total > 1:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("check"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                       TextColumn("{task.description}", style="dim"))  # fmt: skip
            self.bar = Progress(*columns, console=err(), transient=True)
            self.bar.start()
            self.bar.add_task("", total=self.total)
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, report: RuleReport) -> None:
        """One more rule is done."""
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], advance=1, description=report.name)


def _print(reports: Sequence[RuleReport], seconds: float, verbose: bool) -> None:
    from .. import tables
    from ..console import out

    console = out()
    console.print(_by_rule(reports) if verbose or len(reports) <= LISTED else _by_file(reports))
    for report in reports:
        if not report.ok:
            console.print(str(report), markup=False, soft_wrap=True)
            console.print()
    for report in reports if verbose or len(reports) <= LISTED else ():
        for note in report.notes:
            console.print(f"[dim]note[/]  {report.name}: {note}", soft_wrap=True)
    failed = sum(not report.ok for report in reports)
    layers = [sum(r.layer == layer for r in reports if r.ok) for layer in (2, 3)]
    console.print(
        f"{len(reports) - failed} sound ({layers[0]} tested, {layers[1]} proved as well), {failed} failed, "
        f"in {tables.milliseconds(seconds)}",
        style="red" if failed else "green",
    )


def _by_rule(reports: Sequence[RuleReport]) -> Any:
    from ...engine.soundness.report import LAYERS
    from .. import tables

    table = tables.simple(
        "rule", "class", "layer", "instances", "fired", "near misses", "seconds", numbers=(3, 4, 5, 6)
    )
    for r in reports:
        layer = f"{r.layer} {LAYERS[r.layer]}" if r.ok else f"[red]{r.verdict}[/]"
        time = f"{r.seconds + r.proved_seconds:.1f}"
        table.add_row(r.name, r.numerics, layer, str(r.instances), str(r.fired), str(r.near_misses), time)
    return table


def _by_file(reports: Sequence[RuleReport]) -> Any:
    from .. import tables

    table = tables.simple(
        "file", "rules", "tested", "proved", "failed", "instances", "fired", "seconds", numbers=(1, 2, 3, 4, 5, 6, 7)
    )
    for file in dict.fromkeys(r.file for r in reports):
        own = [r for r in reports if r.file == file]
        failed = sum(not r.ok for r in own)
        table.add_row(
            Path(file).name, str(len(own)), str(sum(r.ok and r.layer == 2 for r in own)),
            str(sum(r.ok and r.layer == 3 for r in own)), f"[red]{failed}[/]" if failed else "0",
            str(sum(r.instances for r in own)), str(sum(r.fired for r in own)),
            f"{sum(r.seconds + r.proved_seconds for r in own):.1f}",
        )  # fmt: skip
    return table


def _write_junit(path: Path, reports: Sequence[RuleReport]) -> None:
    from .. import junit

    cases = [
        junit.Case(Path(r.file).name, r.name, r.file, r.line, r.seconds + r.proved_seconds,
                   "" if r.ok else str(r))
        for r in reports
    ]  # fmt: skip
    junit.write(path, "rewrite check", cases)


def _write_json(target: str, reports: Sequence[RuleReport], seconds: float) -> None:
    import json

    from ... import transient

    found = {
        "schema": 1,
        "seconds": round(seconds, 3),
        "sound": sum(r.ok for r in reports),
        "failed": sum(not r.ok for r in reports),
        "rules": [report.as_json() for report in reports],
    }
    text = json.dumps(found, indent=2, allow_nan=False) + "\n"
    if target == "-":
        typer.echo(text, nl=False)
        return
    try:
        with transient.replacing(Path(target)) as out:
            out.write(text.encode())
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", where=target) from error
