"""Retries of saturation that had to be killed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from rewrite.engine.graph_job import Job, Outcome
from rewrite.engine.options import Options
from rewrite.engine.saturation import degraded_retry, saturation_process
from rewrite.engine.saturation.saturate import Limits, Saturation
from rewrite.system.progress import Progress

JOB = Job((), {}, Options(), (), Limits(seconds=20.0, nodes=5000))


class Child:
    """Stand-in for the child: for each job the e-nodes it reports before it is killed, or None if it finishes."""

    def __init__(self, *answers: Sequence[int] | None, bound: str = "memory") -> None:
        self.answers = list(answers)
        self.bound = bound
        self.asked: list[Limits] = []

    def run(self, task: Job, progress: Progress, child: Any = None) -> list[Outcome]:
        self.asked.append(task.limits)
        answer = self.answers.pop(0)
        if answer is None:
            return [Outcome({}, Saturation())]
        for iteration, nodes in enumerate(answer):
            progress("saturate", {"iterations": iteration + 1, "nodes": nodes})
        raise saturation_process.OutOfBounds("stopped", bound=self.bound, hint="Leave out rules.")


def run(child: Child, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Outcome], list[int]]:
    monkeypatch.setattr(saturation_process, "run", child.run)
    sizes: list[int] = []

    def progress(stage: str, facts: Mapping[str, Any]) -> None:
        sizes.append(facts["nodes"])

    return list(degraded_retry.run(JOB, progress)), sizes


def test_what_ends_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child(None)
    (outcome,), _ = run(child, monkeypatch)
    assert outcome.saturation.stop_reason == "saturated"
    assert child.asked == [JOB.limits]


def test_the_second_attempt_ends_before_what_was_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child([100, 700], None)
    with pytest.warns(
        degraded_retry.SaturationWarning, match="stopped\nLeave out rules.\nThe result has .* 700 e-nodes"
    ):
        (outcome,), sizes = run(child, monkeypatch)
    assert outcome.saturation.stop_reason == "memory_limit"
    assert sizes == [100, 700]
    first, second = child.asked
    assert first == JOB.limits
    assert replace(second, seconds=0.0) == Limits(seconds=0.0, nodes=699)
    assert 0 < second.seconds < 20.0


@pytest.mark.parametrize("answers", [([], None), ([100], [50], None)])
def test_at_last_the_model_is_taken_as_it_stands(
    monkeypatch: pytest.MonkeyPatch, answers: Sequence[Sequence[int] | None]
) -> None:
    child = Child(*answers, bound="time")
    with pytest.warns(degraded_retry.SaturationWarning, match="unchanged model"):
        (outcome,), _ = run(child, monkeypatch)
    assert outcome.saturation.stop_reason == "time_limit"
    assert child.asked[-1] == replace(JOB.limits, seconds=0.0)


def test_what_does_not_even_fit_as_it_stands_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(saturation_process.OutOfBounds, match="stopped"):
        run(Child([100], [100], [0]), monkeypatch)
