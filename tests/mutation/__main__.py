"""Mutation score of the soundness checker: `python -m tests.mutation [PATH[::RULE] ...] [--report FILE.md]`.

The exit code is 1 if an unsound mutant was not caught, by further checks with other seeds either."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rewrite.cli.console import err, out
from rewrite.cli.tables import simple

from .score import Line, RuleScore, line, lines, score


def run(targets: Sequence[str], *, std: bool, jobs: int, thorough: bool, report: Path | None, each: int = 1) -> bool:
    """Score the checker on every `each`th mutant of rules, and print the table; write the page `report` if it is given.

    Return whether every unsound mutant was caught."""
    from rewrite.errors import UserError

    scores: list[RuleScore] = []
    for target in targets:
        name, _, rule = target.partition("::")
        path = Path(name)
        if not path.exists():
            raise UserError("no such file or directory", where=name)
        found = score([path], rule or None, std=std, jobs=jobs, thorough=thorough, each=each, progress=_progress)
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
        "reseeded",
        "missed",
        "proved",
        "no witness",
        "score",
        numbers=tuple(range(1, 10)),
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
        _write(report, scores, each)
    return not missed and not any(s.unsound for s in scores)


def _cells(row: Line) -> list[str]:
    numbers = (row.mutants, row.static, row.tested, row.vacuous, row.reseeded, row.missed, row.proved, row.sound)
    return [row.name, *map(str, numbers), f"{row.score:.1%}"]


def _progress(one: RuleScore) -> None:
    total = line(one.rule, one.outcomes)
    missed = total.missed + total.proved
    note = f", [red]{missed} missed[/]" if missed else ""
    err().print(f"[dim]{one.rule}: {total.mutants} mutants, {total.caught} caught{note}[/]")


def _write(path: Path, scores: Sequence[RuleScore], each: int) -> None:
    from rewrite.system import scoped

    from .markdown import page
    from .search import MOST_GRAPHS

    with scoped.replacing(path) as file:
        file.write(page(scores, MOST_GRAPHS, each).encode())


def main(arguments: Sequence[str] | None = None) -> int:
    """Score the checker on the rules that the command line names; return the exit code."""
    from rewrite.engine.rewriting.rule_library import STANDARD
    from rewrite.system.process_pool import usable_cores

    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description="Score the checker on altered rules.")
    parser.add_argument("targets", nargs="*", metavar="PATH[::RULE]", default=[str(STANDARD)])
    parser.add_argument("--report", type=Path, metavar="FILE.md", help="write the score as a page")
    parser.add_argument("--jobs", type=int, default=usable_cores(), help="processes to use")
    parser.add_argument("--no-std-rules", dest="std", action="store_false", help="leave the standard library out")
    parser.add_argument("--thorough", action="store_true", help="check mutants without a witness as well")
    parser.add_argument("--each", type=int, default=1, metavar="N", help="take every Nth mutant of each rule (1)")
    given = parser.parse_args(arguments)
    caught = run(
        given.targets, std=given.std, jobs=given.jobs, thorough=given.thorough, report=given.report, each=given.each
    )
    return 0 if caught else 1


if __name__ == "__main__":
    sys.exit(main())
