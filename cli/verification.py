"""Comparison of the outputs with the original before they are written, and the search for the rule at fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CheckFailed, RewriteError

if TYPE_CHECKING:
    from ..backend.runtime.program import Program
    from ..engine.optimizer import Optimized
    from ..engine.verification.verify import Verification

BUDGET = 60.0  # seconds for one comparison
QUANTIZING = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul")
TRIALS = 40  # comparisons in the search for the rule at fault


def check(result: Optimized, model: Path, program: Program | None) -> Verification:
    """Compare the optimized model, and the program if there is one, with the original.

    A program of lower precision is held to the wide margin of that precision. So is one that quantizes: where another
    rounding moves a sum across a step of the grid, the next layers see the whole step."""
    from ..engine.verification.verify import PROGRAM, check_model

    others = {PROGRAM: lambda feeds: program.run(dict(feeds))} if program is not None else {}
    precision = result.options.precision
    if precision == "f32" and any(node.op in QUANTIZING for node in result.native.nodes):
        precision = "int8"
    return check_model(
        model,
        result.model,
        result.graph_in,
        numerics=result.options.numerics,
        seconds=BUDGET,
        others=others,
        shapes=dict(result.options.shapes),
        expand=result.expanded,
        classes={PROGRAM: precision} if precision != "f32" else None,
    )


def failure(
    found: Verification,
    result: Optimized,
    model: Path,
    optimize_without: Callable[[Sequence[str]], tuple[Optimized, Program | None]],
) -> CheckFailed:
    """Return the error for a failed comparison: it names the rules at fault and the reproducer.

    `optimize_without(disabled)` makes the outputs without those rules."""
    from ..engine.verification.verify import culprit, write_reproducer

    def fails(disabled: frozenset[str]) -> bool:
        try:
            optimized, program = optimize_without(sorted(disabled))
            return not check(optimized, model, program).ok
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
        blame = "It fails without any rule, too: the fault is in the compiler, not in a rule."
    folder = write_reproducer(
        Path.cwd() / f"rewrite-failed-{model.stem}", model, result.model, found, list(guilty or ())
    )
    return CheckFailed(str(found), hint=f"{blame}\nNo output was written. Reproducer: {folder}")
