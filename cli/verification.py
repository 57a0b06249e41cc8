"""Comparing what will be written with the original, and finding the rule to blame when it differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CheckFailed, RewriteError
from .tables import PROGRAM

if TYPE_CHECKING:
    from ..backend.program import Program
    from ..engine.pipeline import Optimized
    from ..engine.verify import Verification

BUDGET = 60.0  # seconds for one comparison
QUANTISING = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul")
TRIALS = 40  # comparisons in the search for the rule to blame


def check(
    result: Optimized, model: Path, program: Program | None, *, numerics: str, shapes: Mapping[str, int]
) -> Verification:
    """Compare the optimised model, and the program if there is one, with the original; a program of lower precision
    within the wide margin of that. So one that quantises: where a sum that is rounded otherwise falls on the other side
    of a step of the grid, the next layers see that whole step."""
    from ..engine.verify import check_model

    others = {PROGRAM: lambda feeds: program.run(dict(feeds))} if program is not None else {}
    asked = result.report.precision["asked"]
    if asked == "f32" and any(node.op in QUANTISING for node in result.native.nodes):
        asked = "int8"
    return check_model(
        model,
        result.model,
        result.graph_in,
        numerics=numerics,
        seconds=BUDGET,
        others=others,
        shapes=dict(shapes),
        expand=result.expanded,
        classes={PROGRAM: asked} if asked != "f32" else None,
    )


def refuse(
    found: Verification,
    result: Optimized,
    model: Path,
    again: Callable[[Sequence[str]], tuple[Optimized, Program | None]],
    *,
    numerics: str,
    shapes: Mapping[str, int],
) -> CheckFailed:
    """The error for a failed comparison: it names the rules to blame and where the reproducer is.

    `again(disabled)` makes the outputs anew without those rules.
    """
    from ..engine.verify import culprit, write_reproducer

    def fails(disabled: frozenset[str]) -> bool:
        try:
            optimized, program = again(sorted(disabled))
            return not check(optimized, model, program, numerics=numerics, shapes=shapes).ok
        except RewriteError:
            return False

    candidates = [rule.name for rule in result.report.rules if rule.applied]
    try:
        guilty: Sequence[str] | None = culprit(candidates, fails, tests=TRIALS)
    except ValueError:
        guilty = None
    if guilty is None:
        blame = "The failure did not happen again, so no rule is blamed."
    elif guilty:
        places = {rule.name: f"{rule.file}:{rule.line}" for rule in result.report.rules}
        blame = "It fails because of " + " with ".join(f"the rule {name} ({places[name]})" for name in guilty) + "."
    else:
        blame = "It fails without any rule too: the mistake is in the compiler, not in a rule."
    folder = write_reproducer(
        Path.cwd() / f"rewrite-failed-{model.stem}", model, result.model, found, list(guilty or ())
    )
    return CheckFailed(str(found), hint=f"{blame}\nNothing was written but a reproducer: {folder}")
