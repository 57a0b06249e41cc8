"""`rewrite test`: run the tests in rule files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from ...errors import UserError
from ...system.short_text import plural
from ..console import out, say
from ..options import Jobs, RuleTargets, StdRules, Strict, rule_targets, writable
from ..results import Case, write_junit
from ..rule_files import show_warnings

if TYPE_CHECKING:
    from ...engine.rule_tests.run_tests import TestResult


def command(
    targets: RuleTargets = None,
    std_rules: StdRules = True,
    verbose: Annotated[bool, Option("--verbose", "-v", help="Also list the tests that pass.")] = False,
    update: Annotated[bool, Option("--update", help="Update expected expressions to the actual ones.")] = False,
    bless: Annotated[bool, Option("--bless", hidden=True)] = False,
    junit: Annotated[Path | None, Option(metavar="FILE.xml", help="Write the results as JUnit XML.")] = None,
    jobs: Jobs = None,
    strict: Strict = False,
) -> None:
    """Run the tests inside rule files."""
    from ...engine.rewriting.rule_library import load_rules
    from ...engine.rule_tests.run_tests import run_tests
    from ...system.process_pool import usable_cores

    writable(junit)
    results: list[TestResult] = []
    for path, rule in rule_targets(targets):
        show_warnings(load_rules([path], std=std_rules), [path], strict=strict)
        found = run_tests([path], rule or None, std=std_rules, jobs=jobs or usable_cores())
        if rule and not found:
            raise UserError(f"has no rule {rule!r} with tests", where=str(path))
        results += found
    if not results:
        raise UserError("no tests in these files", hint="Add one to a rule: test fires x: f32[2,3]")
    if junit is not None:
        cases = [
            Case(f"{Path(r.file).name}::{r.rule}", f"{r.kind}:{r.line}", r.file, r.line, r.seconds, r.message)
            for r in results
        ]
        write_junit(junit, "rewrite test", cases)
    updated = _update(results) if update or bless else []
    _print(results, updated, verbose)
    if any(not result.ok and result not in updated for result in results):
        raise typer.Exit(1)


def _update(results: Sequence[TestResult]) -> list[TestResult]:
    from ...engine.rewriting.rule_library import STANDARD
    from ...engine.rule_tests.run_tests import update_expected

    for result in results:
        # only a checkout's library may be edited
        installed = not (STANDARD.parent / ".git").exists()
        if result.actual and installed and Path(result.file).resolve().is_relative_to(STANDARD):
            raise UserError("the installed standard rules cannot be updated", where=result.file)
    return update_expected(results)


def _print(results: Sequence[TestResult], updated: Sequence[TestResult], verbose: bool) -> None:
    failed = [result for result in results if not result.ok and result not in updated]
    for result in results if verbose else [*failed, *updated]:
        mark = "[green]ok[/]    " if result.ok else "[red]FAILED[/]"
        if result in updated:
            mark = "[yellow]updated[/]"
        out().print(f"{mark} {result.file}:{result.line} {result.rule} {result.kind}", soft_wrap=True)
        if result in updated:
            say(f"       gives {result.actual}")
        elif not result.ok:
            say("\n".join(f"       {line}".rstrip() for line in result.message.split("\n")))
    rules = len({(result.file, result.rule) for result in results})
    passed = sum(result.ok for result in results)
    note = f", {len(updated)} updated" if updated else ""
    total = f"{passed} passed, {len(failed)} failed{note}, in {plural(rules, 'rule')}"
    out().print(total, style="red" if failed else "green")
