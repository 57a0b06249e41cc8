"""Cost and benefit of each rule on one model. `rules` starts this in a separate process.

    python -m benchmarks.rule_cost bert_base.ts.raw

Prints one JSON object, with an entry for each rule that was matched:

- the number of matches, and of those that changed the e-graph;
- the seconds for matching and applying it;
- the nodes of the two results that it made;
- if it made any: the predicted cost of the result without the rule, as a ratio to the cost with it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from typing import Any

from . import models


def measure(name: str, seconds: float) -> dict[str, Any]:
    """The record of one model; leaving out rules one at a time stops after `seconds`."""
    from rewrite.engine import pipeline
    from rewrite.engine.cost.cost_model import CostModel
    from rewrite.engine.graph_job import Job
    from rewrite.engine.ir import bodies
    from rewrite.engine.onnx_io import importer
    from rewrite.engine.options import Options

    graph = importer.read(models.path(name))
    marked = bodies.mark_bodies(graph)
    originals = [graph, *sorted(bodies.all_bodies(marked), key=bodies.body_number)]
    costs = [CostModel(target="portable"), CostModel(target="native")]
    job = Job.of(marked, Options(time_limit=60), costs)
    start = time.perf_counter()
    outcomes = job()
    whole = time.perf_counter() - start
    rules: dict[str, dict[str, Any]] = {}
    for outcome in outcomes:
        for rule, count in outcome.saturation.counts.items():
            found = rules.setdefault(rule, {"matches": 0, "applied": 0, "seconds": 0.0, "in_result": 0})
            found["matches"] += count.matches
            found["applied"] += count.applied
            found["seconds"] += count.seconds
    for outcome, original in zip(outcomes, originals, strict=True):
        for chosen in outcome.chosen.values():
            for node in pipeline.decode(chosen, original).graph.nodes:
                for rule in node.rules:
                    if rule in rules:
                        rules[rule]["in_result"] += 1
    before = _costs(outcomes)
    left_out = 0
    for rule, found in rules.items():
        if not found["in_result"]:
            continue
        if time.perf_counter() - start > seconds:
            left_out += 1
            continue
        after = _costs(replace(job, options=replace(job.options, disabled=(rule,)))())
        found["without"] = {target: after[target] / before[target] for target in before if before[target]}
    return {
        "nodes": sum(len(original.nodes) for original in originals),
        "saturate": sum(outcome.saturation.seconds for outcome in outcomes),
        "whole": whole,
        "rules": {rule: found for rule, found in rules.items() if found["matches"] or found["seconds"] > 1e-4},
        "not_left_out": left_out,
    }


def _costs(outcomes: Any) -> dict[str, float]:
    return {
        target: sum(float(outcome.chosen[target].extraction.cost) for outcome in outcomes)
        for target in ("portable", "native")
    }


def main() -> None:
    """Measure one model and print its record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("--seconds", type=float, default=120.0, help="for leaving out rules")
    options = parser.parse_args()
    json.dump(measure(options.name, options.seconds), sys.stdout)
    print()


if __name__ == "__main__":
    main()
