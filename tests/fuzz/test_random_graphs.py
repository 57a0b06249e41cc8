"""Random graphs through the whole of the tool: the optimized model and the compiled program compute what the
original did."""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

import pytest
from rewrite.backend.compile_graph import compile_graph
from rewrite.engine import optimizer
from rewrite.engine.saturation import saturation_process
from rewrite.engine.verification.verify import check_model

from . import __main__ as command
from . import graphs
from .differential import WAYS, Case, Way, alike, check, make, reduced, side_by_side, ways_of


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No child process for each of these small graphs."""
    monkeypatch.setattr(saturation_process, "run", lambda task, progress, child: task(progress))


@pytest.mark.parametrize("seed", range(24))
def test_the_optimized_model_computes_the_same(seed: int) -> None:
    model = graphs.make(seed, size=20)
    result = optimizer.optimize(model)
    checked = check_model(model, result.model, result.graph_in)
    assert checked.compared
    assert checked.ok, str(checked)


@pytest.mark.parametrize("seed", range(100, 106))
def test_the_compiled_program_computes_the_same(seed: int) -> None:
    model = graphs.make(seed)
    result = optimizer.optimize(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = compile_graph(result.native, threads=2)
    checked = check_model(model, result.model, result.graph_in, others={"the program": program.run})
    assert checked.compared
    assert checked.ok, str(checked)


def test_the_same_model_gives_the_same_bytes() -> None:
    model = graphs.make(7, size=30)
    first, second = (optimizer.optimize(model).model.SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("seed", range(6))
def test_graphs_of_all_operators(seed: int) -> None:
    """A few of the graphs that `python -m tests.fuzz` runs by thousands."""
    case = make(seed, size=5)
    assert case.steps
    assert check(case, WAYS[seed : seed + 1]) == []


def test_what_takes_several_outputs_to_fail_is_reduced_to_these() -> None:
    """The model of seed 1 has results of several operators; no step can be cut that makes one of the outputs."""
    case = make(1, size=10)
    assert len(case.outputs) > 3
    two = set(case.outputs[1:3])
    asked: list[Case] = []

    def fails(smaller: Case) -> bool:
        asked.append(smaller)
        return two <= set(smaller.outputs)

    small = reduced(case, fails)
    assert set(small.outputs) == two
    assert len(small.steps) < len(case.steps)
    assert len(asked) < 100


def _alike(count: int, size: int) -> dict[int, Case]:
    """Return the cases of the first seeds that are like that of seed 0."""
    first = make(0, size)
    cases = {0: first}
    seed = 1
    while len(cases) < count:
        case = make(seed, size, seed * command.NAMES)
        if case.steps and alike(case) == alike(first):
            cases[seed] = case
        seed += 1
    return cases


def test_graphs_side_by_side_are_compared_each_with_its_values() -> None:
    cases = list(_alike(3, size=4).values())
    merged = side_by_side(cases)
    assert len(merged.model().graph.output) == sum(len(c.outputs) for c in cases)
    assert check(merged, WAYS[:1]) == []
    name = cases[1].outputs[0]
    value = cases[1].maker.values[name]
    cases[1].maker.values[name] = value.astype(bool) if value.dtype != bool else ~value
    found = check(merged, WAYS[:1])
    assert found
    assert all(f": {name}: " in problem for problem in found)


@pytest.mark.parametrize("together", [False, True])
def test_a_crash_is_found_among_graphs_that_ran_as_one_model(
    together: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the graph that crashes by itself, in the ways of its group; or of all, if they crash together only."""
    cases = _alike(3, size=4)
    crashing = sorted(cases)[1]

    def checked(case: Case, ways: list[Way], *rest: object) -> list[str]:
        if ways == ways_of(0, 1) and (case.parts if together else cases[crashing].outputs[0] in case.outputs):
            os._exit(3)
        return []

    monkeypatch.setattr(command, "make", lambda seed, size, first_name: cases[sorted(cases)[seed]])
    monkeypatch.setattr(command, "check", checked)
    given = argparse.Namespace(size=4, ways=1, together=8, thorough=1, out=tmp_path)
    reports = [*command.in_children(0, 3, given)]
    failed = [(seed, report["problems"]) for seed, report in reports if report["problems"]]
    ended = "the process ended with 3"
    assert failed == [(0, [f"as one model with [1, 2], but not by itself: {ended}"]) if together else (1, [ended])]
    assert sorted(seed for seed, report in reports if "more" not in report) == [0, 1, 2]
