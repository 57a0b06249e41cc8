"""Random graphs through the whole of the tool: the optimized model and the compiled program compute what the
original did."""

from __future__ import annotations

import warnings

import pytest
from rewrite.backend.compile_graph import compile_graph
from rewrite.engine import optimizer
from rewrite.engine.saturation import saturation_process
from rewrite.engine.verification.verify import check_model

from . import graphs
from .differential import WAYS, Case, check, make, reduced


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
