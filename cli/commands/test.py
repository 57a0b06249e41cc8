"""`rewrite test`: run the tests that stand beside rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import UserError
from ..options import StdRules, writable
from ..warnings import Strict, tell

if TYPE_CHECKING:
    from ...engine.rule_tests import TestResult


def command(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH[::RULE]", help="Rule files or directories; the standard library by default."),
    ] = None,
    std_rules: StdRules = True,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List the tests that pass, too.")] = False,
    bless: Annotated[
        bool, typer.Option("--bless", help="Where a test gives another expression than expected, expect that one.")
    ] = False,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE.xml", help="Write the results as JUnit XML.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, metavar="N", help="Processes to use; all cores by default.")
    ] = None,
    strict: Strict = False,
) -> None:
    """Run the tests inside rule files."""
    from ...engine.library import STANDARD, load_rules
    from ...engine.processes import usable_cores
    from ...engine.rule_tests import run_tests

    if junit is not None:
        writable(junit)
    results: list[TestResult] = []
    for target in targets or [str(STANDARD)]:
        name, _, rule = target.partition("::")
        path = Path(name)
        if not path.exists():
            raise UserError("no such file or directory", where=name)
        tell(load_rules([path], std=std_rules), [path], strict=strict)
        found = run_tests([path], rule or None, std=std_rules, jobs=jobs or usable_cores())
        if rule and not found:
            raise UserError(f"has no rule {rule!r} with tests", where=name)
        results += found
    if not results:
        raise UserError(
            "there are no tests in these rule files", hint="A rule's tests stand beside it: test fires x: f32[2,3]"
        )
    if junit is not None:
        _write_junit(junit, results)
    blessed = _bless(results) if bless else []
    _print(results, blessed, verbose)
    if any(not result.ok and result not in blessed for result in results):
        raise typer.Exit(1)


def _bless(results: Sequence[TestResult]) -> list[TestResult]:
    from ...engine.bless import bless
    from ...engine.library import STANDARD

    for result in results:
        # an installed library is not the user's to edit; in a checkout it is
        installed = not (STANDARD.parent / ".git").exists()
        if result.actual and installed and Path(result.file).resolve().is_relative_to(STANDARD):
            raise UserError("the rules that come with the program are not blessed", where=result.file)
    return bless(results)


def _write_junit(path: Path, results: Sequence[TestResult]) -> None:
    from .. import junit

    cases = [
        junit.Case(f"{Path(r.file).name}::{r.rule}", f"{r.kind}:{r.line}", r.file, r.line, r.seconds, r.message)
        for r in results
    ]
    junit.write(path, "rewrite test", cases)


def _print(results: Sequence[TestResult], blessed: Sequence[TestResult], verbose: bool) -> None:
    from ..console import out

    console = out()
    failed = [result for result in results if not result.ok and result not in blessed]
    for result in results if verbose else [*failed, *blessed]:
        mark = "[green]ok[/]    " if result.ok else "[red]FAILED[/]"
        if result in blessed:
            mark = "[yellow]blessed[/]"
        console.print(f"{mark} {result.file}:{result.line} {result.rule} {result.kind}", soft_wrap=True)
        if result in blessed:
            console.print(f"       gives {result.actual}", markup=False, soft_wrap=True)
        elif not result.ok:
            console.print(_indented(result.message), markup=False, soft_wrap=True)
    rules = len({(result.file, result.rule) for result in results})
    passed = sum(result.ok for result in results)
    note = f", {len(blessed)} blessed" if blessed else ""
    console.print(
        f"{passed} passed, {len(failed)} failed{note}, in {rules} rule{'s' * (rules != 1)}",
        style="red" if failed else "green",
    )


def _indented(text: str) -> str:
    return "\n".join(f"       {line}".rstrip() for line in text.split("\n"))
