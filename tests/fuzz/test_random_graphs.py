"""Random graphs through the whole of the tool: the optimised model and the compiled program compute what the
original did."""

from __future__ import annotations

import warnings

import pytest
from rewrite.backend.pipeline import compile_graph
from rewrite.engine import pipeline, worker
from rewrite.engine.verify import check_model

from . import graphs


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No child process for each of these small graphs."""
    monkeypatch.setattr(worker, "run", lambda task, tell, child: worker.perform(task, tell))


@pytest.mark.parametrize("seed", range(24))
def test_the_optimised_model_computes_the_same(seed: int) -> None:
    model = graphs.make(seed, size=20)
    result = pipeline.optimize(model)
    checked = check_model(model, result.model, result.graph_in)
    assert checked.compared
    assert checked.ok, str(checked)


@pytest.mark.parametrize("seed", range(100, 106))
def test_the_compiled_program_computes_the_same(seed: int) -> None:
    model = graphs.make(seed)
    result = pipeline.optimize(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = compile_graph(result.native, threads=2)
    checked = check_model(model, result.model, result.graph_in, others={"the program": program.run})
    assert checked.compared
    assert checked.ok, str(checked)


def test_the_same_model_gives_the_same_bytes() -> None:
    model = graphs.make(7, size=30)
    first, second = (pipeline.optimize(model).model.SerializeToString(deterministic=True) for _ in range(2))
    assert first == second
