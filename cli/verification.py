"""Comparison of the outputs with the original before they are written, and the search for the rule at fault."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CheckFailed, RewriteError

if TYPE_CHECKING:
    import numpy as np

    from ..backend.runtime.program import Program
    from ..engine.ir.graph import Graph
    from ..engine.optimizer import Optimized
    from ..engine.verification.verify import Verification

    Array = np.ndarray[Any, np.dtype[Any]]

BUDGET = 60.0  # seconds for one comparison
MEASURING = 0.3  # seconds for the time of a run
MOST_RUNS = 200
QUANTIZING = (
    "QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul",
    "com.microsoft.DynamicQuantizeLSTM",  # ONNX Runtime may quantize the part of each thread by itself
)  # fmt: skip
TRIALS = 40  # comparisons in the search for the rule at fault


def check(result: Optimized, model: Path, program: Program | None) -> Verification:
    """Compare the optimized model, and the program if there is one, with the original.

    A program of lower precision is held to the wide margin of that precision. So is one that quantizes: where another
    rounding moves a sum across a step of the grid, the next layers see the whole step."""
    from ..engine.verification.verify import PROGRAM, check_model

    timed = TimedProgram(program) if program is not None else None
    others = {PROGRAM: timed} if timed is not None else {}
    precision = result.options.precision
    if precision == "f32" and any(node.op in QUANTIZING for node in result.native.nodes):
        precision = "int8"
    found = check_model(
        model,
        result.portable,
        result.graph_in,
        numerics=result.options.numerics,
        seconds=BUDGET,
        others=others,
        shapes=dict(result.options.shapes),
        expand=result.expanded,
        classes={PROGRAM: precision} if precision != "f32" else None,
    )
    result.report.measured = (
        timed.measured(result.graph_in, result.report.likely_sizes) if timed is not None and found.ok else {}
    )
    return found


class TimedProgram:
    """A program as verification runs it. `measured` times it, at likely sizes where it runs with them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._feeds: dict[str, Array] = {}
        self._first = 0.0

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Any]:
        """Run the program."""
        start = time.perf_counter()
        found = self.program.run(dict(feeds))
        if not self._first:
            self._feeds, self._first = dict(feeds), time.perf_counter() - start
        return found

    def measured(self, graph: Graph, likely: Mapping[str, int]) -> dict[str, Any]:
        """Return the median time of a run as docs/json.md describes it; empty if the program never ran.

        Free sizes, which `graph` names, are those of `likely` where the model runs with them, else those of the first
        run. A run that takes longer than the time for measuring is not repeated."""
        from ..engine.verification.random_inputs import make_inputs, sizes_of

        if not self._first:
            return {}
        if likely:
            feeds = make_inputs(graph, likely)
            with contextlib.suppress(RewriteError):
                start = time.perf_counter()
                self.program.run(feeds)
                self._feeds, self._first = feeds, time.perf_counter() - start
        times = [] if self._first < MEASURING else [self._first]
        end = time.perf_counter() + MEASURING
        while self._first < MEASURING and (start := time.perf_counter()) < end and len(times) < MOST_RUNS:
            self.program.run(self._feeds)
            times.append(time.perf_counter() - start)
        return {
            "seconds": statistics.median(times), "runs": len(times), "threads": self.program.threads,
            "sizes": sizes_of(graph, self._feeds), "without_kernel": self._without_kernel(),
        }  # fmt: skip

    def _without_kernel(self) -> float:
        """Return the share of the time of a run that is spent outside native kernels, in operators without one."""
        if not self.program.fallbacks():
            return 0.0
        profile = self.program.profile(self._feeds, seconds=MEASURING)
        slow = sum(row.seconds for row in profile.rows if not row.native)
        return slow / profile.total if profile.total else 0.0


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
