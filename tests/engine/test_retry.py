"""What is made of a model whose saturation had to be stopped hard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from rewrite.engine import retry, worker
from rewrite.engine.saturate import Limits, Saturation

JOB = worker.Job((), {}, (), True, "exact", (), Limits(seconds=20.0, nodes=5000), {})


class Child:
    """Answers jobs in turn: with how many e-nodes it tells before it is stopped, or None if it comes to an end."""

    def __init__(self, *answers: Sequence[int] | None, bound: str = "memory") -> None:
        self.answers = list(answers)
        self.bound = bound
        self.asked: list[Limits] = []

    def run(self, task: worker.Job, progress: worker.Progress, child: Any = None) -> list[worker.Outcome]:
        self.asked.append(task.limits)
        answer = self.answers.pop(0)
        if answer is None:
            return [worker.Outcome({}, {}, Saturation())]
        for iteration, nodes in enumerate(answer):
            progress("saturate", {"iterations": iteration + 1, "nodes": nodes})
        raise worker.OutOfBounds("stopped", bound=self.bound, hint="Leave out rules.")


def run(child: Child, monkeypatch: pytest.MonkeyPatch) -> tuple[list[worker.Outcome], list[int]]:
    monkeypatch.setattr(worker, "run", child.run)
    told: list[int] = []

    def tell(stage: str, facts: Mapping[str, Any]) -> None:
        told.append(facts["nodes"])

    return retry.run(JOB, tell), told


def test_what_ends_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child(None)
    (outcome,), _ = run(child, monkeypatch)
    assert outcome.saturation.stop_reason == "saturated"
    assert child.asked == [JOB.limits]


def test_the_second_attempt_ends_before_what_was_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child([100, 700], None)
    with pytest.warns(retry.SaturationWarning, match="stopped\nLeave out rules.\nThe result has .* 700 e-nodes"):
        (outcome,), told = run(child, monkeypatch)
    assert outcome.saturation.stop_reason == "memory_limit"
    assert told == [100, 700]
    first, second = child.asked
    assert first == JOB.limits
    assert replace(second, seconds=0.0) == Limits(seconds=0.0, nodes=699)
    assert 0 < second.seconds < 20.0


@pytest.mark.parametrize("answers", [([], None), ([100], [50], None)])
def test_at_last_the_model_is_taken_as_it_stands(
    monkeypatch: pytest.MonkeyPatch, answers: Sequence[Sequence[int] | None]
) -> None:
    child = Child(*answers, bound="time")
    with pytest.warns(retry.SaturationWarning, match="as it stands"):
        (outcome,), _ = run(child, monkeypatch)
    assert outcome.saturation.stop_reason == "time_limit"
    assert child.asked[-1] == replace(JOB.limits, seconds=0.0)


def test_what_does_not_even_fit_as_it_stands_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(worker.OutOfBounds, match="stopped"):
        run(Child([100], [100], [0]), monkeypatch)
