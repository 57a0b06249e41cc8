"""The table of `rewrite check --mutants`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..engine.soundness.mutants.score import Line, RuleScore, line, lines, score
from .console import err, out
from .tables import simple


def run(targets: Sequence[str], *, std: bool, jobs: int, thorough: bool, report: Path | None) -> bool:
    """Scores the checker on the mutants of rules, prints the table, and writes the page `report` if one is wanted.

    Returns whether every unsound mutant was caught."""
    from ..errors import UserError

    scores: list[RuleScore] = []
    for target in targets:
        name, _, rule = target.partition("::")
        path = Path(name)
        if not path.exists():
            raise UserError("no such file or directory", where=name)
        found = score([path], rule or None, std=std, jobs=jobs, thorough=thorough, progress=_progress)
        if not found:
            raise UserError(f"has no rule {rule!r}" if rule else "has no rules", where=name)
        scores += found
    outcomes = [o for s in scores for o in s.outcomes]
    table = simple(
        "mutants",
        "made",
        "static",
        "tested",
        "vacuous",
        "missed",
        "proved",
        "no witness",
        "score",
        numbers=tuple(range(1, 9)),
    )
    for row in [*lines(outcomes, "kind"), line("all", outcomes)]:
        table.add_row(*_cells(row))
    out().print(table)
    missed = [o for o in outcomes if o.caught in ("missed", "proved")]
    for outcome in missed:
        out().print(f"{outcome.caught}: {outcome.file}::{outcome.rule}: {outcome.kind}, {outcome.description}")
        out().print(outcome.text, markup=False)
        out().print(f"  witness: {outcome.evidence}", markup=False)
    for one in scores:
        if one.unsound:
            out().print(f"the rule itself is unsound: {one.rule}: {one.unsound}", markup=False)
    if report is not None:
        _write(report, scores)
    return not missed and not any(s.unsound for s in scores)


def _cells(row: Line) -> list[str]:
    numbers = (row.mutants, row.static, row.tested, row.vacuous, row.missed, row.proved, row.sound)
    return [row.name, *map(str, numbers), f"{row.score:.1%}"]


def _progress(one: RuleScore) -> None:
    total = line(one.rule, one.outcomes)
    missed = total.missed + total.proved
    note = f", [red]{missed} missed[/]" if missed else ""
    err().print(f"[dim]{one.rule}: {total.mutants} mutants, {total.caught} caught{note}[/]")


def _write(path: Path, scores: Sequence[RuleScore]) -> None:
    from .. import transient
    from ..engine.soundness.mutants.markdown import page
    from ..engine.soundness.mutants.search import MOST_GRAPHS

    with transient.replacing(path) as file:
        file.write(page(scores, MOST_GRAPHS).encode())
