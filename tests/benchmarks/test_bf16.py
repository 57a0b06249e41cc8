"""The table of models in bf16."""

from __future__ import annotations

import pytest
from rewrite.benchmarks import models, report
from rewrite.benchmarks.bf16 import PEER


def record(ours: float, theirs: float) -> dict[str, object]:
    medians = {"rewrite": ours, PEER: theirs}
    products = {"requested": "bf16", "lowered": 3, "in_f32": 1}
    return {"bf16": {"products": products, "threads": {"1": medians}, "rewrite": 1e-3, PEER: 2e-3}}


def test_ratios_their_mean_losses_and_failures_are_shown() -> None:
    records = {"a": record(0.001, 0.004), "b": record(0.002, 0.001), "c": {"bf16": {"error": "no | such"}}, "d": {}}
    lines = report.render(records).partition("## Latency, bf16")[2].splitlines()
    assert "| a | 3 of 4 | 1.000 | 4.000 | 4.00 | 1.0e-03 | 2.0e-03 |" in lines
    assert "| b | 3 of 4 | 2.000 | 1.000 | 0.50 | 1.0e-03 | 2.0e-03 |" in lines
    assert any(line.startswith("| c | failed: no") for line in lines)
    assert not any(line.startswith("| d |") for line in lines)
    assert any("geometric mean" in line and "**1.41**" in line for line in lines)


def test_nothing_is_shown_that_was_not_measured() -> None:
    assert "bf16 |" not in report.render({"d": {}})
    assert "## Latency, bf16" not in report.render({"c": {"bf16": {"error": "none"}}})


def test_measured_models_are_in_the_zoo() -> None:
    for package in ("torch", "transformers"):
        pytest.importorskip(package)
    assert set(models.BF16) <= set(models.names())
