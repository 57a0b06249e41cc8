"""Attributes that are long lists of numbers: as short ones, but not looked at one by one."""

from __future__ import annotations

import pytest
from rewrite.engine.egraph.egraph import EGraph
from rewrite.engine.ir.graph import Graph, graphs_in
from rewrite.engine.operators.schemas import normalize_attrs

OP = "ai.onnx.ml.TreeEnsembleRegressor"


@pytest.mark.parametrize("times", [1, 2000])
def test_attributes_that_are_equal(times: int) -> None:
    """Zeros differ by their sign, NaN equals itself, and numbers of two types are not equal."""
    lists = [(0.0,), (-0.0,), (float("nan"),), (1,), (1.0,), ("1",), (1.0, "a"), (0, 0.0), (0, -0.0), ()]
    egraph = EGraph()
    first = [egraph._intern({"a": found * times}, 1, 0) for found in lists]
    assert len(set(first)) == len(lists)
    assert [egraph._intern({"a": (*found,) * times}, 1, 0) for found in lists] == first


@pytest.mark.parametrize("times", [1, 2000])
def test_floats_are_those_of_f32(times: int) -> None:
    given = {"nodes_values": [0.1, 1] * times, "nodes_modes": ["LEAF"] * times, "nodes_nodeids": [3] * times}
    found = normalize_attrs(OP, given)
    assert found["nodes_values"] == (0.10000000149011612, 1.0) * times
    assert found["nodes_modes"] == ("LEAF",) * times
    assert found["nodes_nodeids"] == (3,) * times


def test_graphs_among_attributes() -> None:
    a, b = (Graph([], [], [], {}, {}) for _ in range(2))
    attrs = {"x": a, "y": (b, a), "n": (1,) * 5000, "t": (), "s": "text"}
    assert [(name, id(graph)) for name, graph in graphs_in(attrs)] == [("x", id(a)), ("y", id(b)), ("y", id(a))]
