"""Trails of models: how many steps of those that were taken a result needs, and how long making and repeating take.

    python -m benchmarks.trails MODEL... [--markdown FILE]

For each model and each of its two results, a trail is made, coded as JSON, decoded and repeated. Times are seconds of
processor time. A trail that does not hold ends the run with exit code 1. With `--recording`, models are saturated with
and without the recording of reasons, in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from rewrite.engine import pipeline
from rewrite.engine.egraph.reasons import Applied
from rewrite.engine.operators.schemas import declared_operators
from rewrite.engine.options import Options
from rewrite.engine.rewriting.rule_library import load_rules
from rewrite.engine.saturation import saturate
from rewrite.engine.saturation.saturate import Limits
from rewrite.engine.trails import check, make, trail

ROUNDS = 7


def main() -> None:
    """Measure the models that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--recording", action="store_true")
    options = parser.parse_args()
    if options.recording:
        for path in options.models:
            sys.stdout.write(f"{path.stem}: with recording / without: {recording(path):.3f}\n")
        return
    rows, failed = [], 0
    for path in options.models:
        try:
            row = measured(path)
        except (make.NoTrail, check.Broken) as error:
            failed += 1
            sys.stdout.write(f"{path.stem}: {error}\n")
            continue
        rows.append(row)
        sys.stdout.write(f"{row}\n")
        sys.stdout.flush()
    if options.markdown is not None:
        options.markdown.write_text("\n".join(rows) + "\n", encoding="utf-8")
    sys.exit(1 if failed else 0)


def measured(path: Path) -> str:
    """Return a row of the table for one model."""
    cells = [path.stem]
    for target in pipeline.TARGETS:
        run, optimizing = timed(lambda target=target: make.run(path, Options(), target))  # type: ignore[misc]
        found, making = timed(lambda run=run: make.trail_of(run, Options()))  # type: ignore[misc]
        text = json.dumps(trail.to_json(found))

        def repeated(text: str = text, run: make.Run = run) -> int:
            with declared_operators(run.source.operators):
                return check.check(trail.from_json(json.loads(text)), run.before, run.after, run.rules)

        count, repeating = timed(repeated)
        taken = sum(
            len({id(reason) for reason in part.reasons if reason is not None})
            for graph in run.graphs
            for part in graph.recorded
        )
        cells += [f"{taken}", f"{count}", f"{len(text) / 1e6:.1f}", f"{optimizing:.1f}"]
        cells += [f"{making:.1f}", f"{repeating:.1f}"]
    return f"| {' | '.join(cells)} |"


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return a result, and the processor time that it took."""
    start = time.process_time()
    return work(), time.process_time() - start


def recording(path: Path) -> float:
    """Return the time of a saturation with the recording of reasons over the time without, as medians."""
    options, library = Options(), load_rules()
    source = pipeline.read(path, options, library)
    setup = pipeline.prepare(library, source.graph.opset, options, pipeline.cost_models(source.graph, options))
    times: dict[bool, list[float]] = {False: [], True: []}
    with declared_operators(source.operators):
        for number in range(2 * ROUNDS):
            records = number % 2 == 1
            encoded = pipeline.encode(source.graph, setup)
            kept: Any = Applied if records else lambda *parts: None
            with mock.patch.object(saturate, "Applied", kept):
                _, seconds = timed(lambda encoded=encoded: pipeline.saturate(encoded, setup, Limits(100.0)))  # type: ignore[misc]
            times[records].append(seconds)
    return median(times[True]) / median(times[False])


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


if __name__ == "__main__":
    main()
