"""`rewrite test`: run the tests that stand beside rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...errors import UserError
from ..options import StdRules


def command(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH[::RULE]", help="Rule files or directories; the standard library by default."),
    ] = None,
    std_rules: StdRules = True,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List the tests that pass, too.")] = False,
) -> None:
    """Run the tests inside rule files."""
    from ...engine.library import STANDARD
    from ...engine.rule_tests import TestResult, run_tests
    from ..console import out

    results: list[TestResult] = []
    for target in targets or [str(STANDARD)]:
        name, _, rule = target.partition("::")
        path = Path(name)
        if not path.exists():
            raise UserError("no such file or directory", where=name)
        found = run_tests([path], rule or None, std=std_rules)
        if rule and not found:
            raise UserError(f"has no rule {rule!r} with tests", where=name)
        results += found
    console = out()
    failed = [result for result in results if not result.ok]
    for result in results if verbose else failed:
        mark = "[green]ok[/]    " if result.ok else "[red]FAILED[/]"
        console.print(f"{mark} {result.file}:{result.line} {result.rule} {result.kind}", soft_wrap=True)
        if not result.ok:
            console.print(f"       {result.message}", markup=False, soft_wrap=True)
    if not results:
        raise UserError(
            "there are no tests in these rule files", hint="A rule's tests stand beside it: test fires x: f32[2,3]"
        )
    rules = len({(result.file, result.rule) for result in results})
    console.print(
        f"{len(results) - len(failed)} passed, {len(failed)} failed, in {rules} rule{'s' * (rules != 1)}",
        style="red" if failed else "green",
    )
    if failed:
        raise typer.Exit(1)
