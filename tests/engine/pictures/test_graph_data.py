"""Data of graphs: every node and value, derivations that lead to the model, costs that add up."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import pytest
import rewrite
from onnx import TensorProto, helper
from rewrite.engine import optimizer
from rewrite.engine.ir.graph import Constant, Graph, TensorType
from rewrite.engine.optimizer import Optimized
from rewrite.engine.options import Options
from rewrite.engine.pictures.graph_data import attribute_text
from rewrite.tests.hostile import EVIL, hostile_model


@pytest.fixture(scope="module")
def result() -> Optimized:
    return optimizer.optimize(hostile_model(), Options(near_misses=True))


@pytest.fixture(scope="module")
def data(result: Optimized) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(result.pictures(), allow_nan=False))
    return found


def test_every_node_and_value_is_there(result: Optimized, data: dict[str, Any]) -> None:
    for name, graph in {"model": result.graph_in, "optimized": result.portable, "native": result.native}.items():
        found = data["graphs"][name]
        assert [node["name"] for node in found["nodes"]] == [node.name for node in graph.nodes]
        assert [node["rules"] for node in found["nodes"]] == [[*node.rules] for node in graph.nodes]
        values = {v for node in graph.nodes for v in (*node.inputs, *node.outputs) if v}
        assert values | {*graph.inputs, *graph.outputs} == set(found["types"])
        assert {v: c.nbytes for v, c in graph.constants.items() if v in values} == found["constants"]


def test_derivations_lead_to_nodes_of_the_model(data: dict[str, Any]) -> None:
    names = {node["name"] for node in data["graphs"]["model"]["nodes"]}
    for graph in ("optimized", "native"):
        assert {origin for node in data["graphs"][graph]["nodes"] for origin in node["origins"]} <= names
    made = {rule for node in data["graphs"]["optimized"]["nodes"] for rule in node["rules"]}
    assert made
    assert made <= set(data["rule_texts"])
    assert data["rule_texts"]["div_const"]["text"].startswith("rule div_const")
    assert data["rule_texts"]["div_const"]["file"].endswith(".rules")


def test_costs_of_nodes_add_up(result: Optimized, data: dict[str, Any]) -> None:
    for name, total in {"model": result.report.cost_before, "optimized": result.report.cost_after}.items():
        assert sum(node["cost"] for node in data["graphs"][name]["nodes"]) == pytest.approx(total, rel=0.02)


def test_near_misses_are_those_of_rules_that_changed_nothing(result: Optimized, data: dict[str, Any]) -> None:
    applied = {rule.name for rule in result.report.rules if rule.applied}
    assert data["near_misses"]
    assert not applied & set(data["near_misses"])
    assert all(0 < miss["matched"] < miss["parts"] for miss in data["near_misses"].values() if miss["matched"])
    assert optimizer.optimize(hostile_model(), Options()).near_misses == {}


def test_groups_are_the_modules(data: dict[str, Any]) -> None:
    found = data["graphs"]["model"]
    names = [group["name"] for group in found["groups"]]
    of_node = [names[node["group"]] for node in found["nodes"]]
    assert of_node[0] == of_node[1] != of_node[2] == of_node[3]
    assert all(group["parent"] < i for i, group in enumerate(found["groups"]))


def test_equal_models_give_equal_data(data: dict[str, Any]) -> None:
    again = optimizer.optimize(hostile_model(), Options(near_misses=True)).pictures()
    assert json.dumps(again) == json.dumps(data)


def test_bodies_are_groups_with_their_node() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "x"], ["sum"], name="inner"),
            helper.make_node("Identity", ["sum"], ["out"]),
        ],
        "body",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("state", "x")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("sum", "out")],
    )
    scan = helper.make_node("Scan", ["s", "xs"], ["last", "all"], name="scan", body=body, num_scan_inputs=1)
    values = {"s": [2], "xs": [3, 2], "last": [2], "all": [3, 2]}
    s, xs, last, every = (helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in values.items())
    graph = helper.make_graph([scan], "g", [s, xs], [last, every])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    found = rewrite.optimize(model).pictures()["graphs"]["model"]
    [run, *inner] = found["nodes"]
    assert run["attributes"]["body"].startswith("graph of ")
    assert [node["operator"] for node in inner][:1] == ["Add"]
    assert inner[0]["cost"] is None
    groups = found["groups"]
    assert groups[groups[inner[0]["group"]]["parent"]]["name"] == groups[run["group"]]["name"]


def test_attributes_are_short_texts() -> None:
    assert attribute_text((1, 2)) == "[1, 2]"
    assert attribute_text(1e-5) == "1e-05"
    assert attribute_text(Graph()) == "graph of 0 nodes"
    assert attribute_text(Constant(np.arange(100))).endswith("6, 7, …")
    assert len(attribute_text(tuple(range(1000)))) <= 201
    assert len(attribute_text(EVIL * 100)) <= 201
    assert str(TensorType()) == "?[...]"
