"""What written models say beside their graph: the types of all values, and descriptions."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import rewrite
from onnx import helper
from rewrite.engine.onnx_io import exporter, importer

from ..models import BOOL, FLOAT, model


def shapes(graph: Any) -> dict[str, list[int | str]]:
    """Return the shapes that a `GraphProto` states for its inner values; an unnamed dim is an empty text."""
    return {
        value.name: [d.dim_value if d.HasField("dim_value") else d.dim_param for d in value.type.tensor_type.shape.dim]
        for value in graph.value_info
    }


def described() -> Any:
    nodes = [
        helper.make_node("Sin", ["x"], ["s"], name="sine", doc_string="the sine"),
        helper.make_node("Cos", ["s"], ["y"], name="cosine"),
    ]
    proto = model(nodes, [("x", FLOAT, ("N", 3))], [("y", FLOAT, ("N", 3))])
    proto.producer_name, proto.producer_version, proto.domain, proto.model_version = "maker", "1.2", "org.example", 7
    proto.doc_string, proto.graph.doc_string = "a model", "a graph"
    proto.graph.input[0].doc_string, proto.graph.output[0].doc_string = "the angle", "the result"
    for part in (proto, proto.graph, proto.graph.input[0], proto.graph.node[1]):
        part.metadata_props.add(key="author", value=type(part).__name__)
    return proto


def test_the_types_of_all_values_are_stated() -> None:
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["twice"], axis=0),
        helper.make_node("Sin", ["twice"], ["s"]),
        helper.make_node("NonZero", ["s"], ["places"]),
        helper.make_node("Cast", ["places"], ["y"], to=FLOAT),
    ]
    proto = exporter.write(importer.read(model(nodes, [("x", FLOAT, ("N", 3))], [("y", FLOAT, None)])))
    assert shapes(proto.graph) == {"twice": ["2*N", 3], "s": ["2*N", 3], "places": [2, ""]}
    assert {v.name: v.type.tensor_type.elem_type for v in proto.graph.value_info}["places"] == onnx.TensorProto.INT64
    onnx.checker.check_model(proto, full_check=True)


def test_the_types_of_values_that_rules_and_adapters_make_are_stated() -> None:
    """Rules make `x / (1 + exp(-x))` a Sigmoid; Softmax over another axis takes several nodes at opset 11."""
    body = helper.make_graph(
        [helper.make_node("Exp", ["h"], ["e"]), helper.make_node("Softmax", ["e"], ["r"], axis=0)], "body", [],
        [helper.make_tensor_value_info("r", FLOAT, None)],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("Abs", ["h"], ["r2"])], "other", [], [helper.make_tensor_value_info("r2", FLOAT, None)]
    )
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Exp", ["n"], ["en"]),
        helper.make_node("Add", ["en", "one"], ["sum"]),
        helper.make_node("Div", ["x", "sum"], ["h"]),
        helper.make_node("If", ["yes"], ["y"], then_branch=body, else_branch=other),
    ]
    ports = [("x", FLOAT, ("N", 3)), ("yes", BOOL, ())], [("y", FLOAT, None)]
    proto = rewrite.optimize(model(nodes, *ports, {"one": np.float32(1)}, opset=11)).model
    made = {name for node in proto.graph.node for name in node.output} - {"y"}
    assert "Sigmoid" in {node.op_type for node in proto.graph.node}
    assert shapes(proto.graph) == {name: ["N", 3] for name in made}
    bodies = {a.g.name: a.g for node in proto.graph.node for a in node.attribute if a.g.node}
    assert shapes(bodies["body"])["e"] == ["N", 3]
    assert len(shapes(bodies["body"])) == len(bodies["body"].node) - 1
    onnx.checker.check_model(proto, full_check=True)


def test_descriptions_are_kept() -> None:
    proto = described()
    for found in (exporter.write(importer.read(proto)), rewrite.optimize(proto).model):
        for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string", "metadata_props"):
            assert getattr(found, name) == getattr(proto, name), name
        assert found.graph.input[0] == proto.graph.input[0]
        assert found.graph.output[0] == proto.graph.output[0]
        assert (found.graph.doc_string, found.graph.metadata_props) == ("a graph", proto.graph.metadata_props)
        assert [node.doc_string for node in found.graph.node] == ["the sine", ""]
        assert found.graph.node[1].metadata_props == proto.graph.node[1].metadata_props


def test_a_model_without_a_producer_is_ours() -> None:
    proto = described()
    proto.producer_name = ""
    assert exporter.write(importer.read(proto)).producer_name == "rewrite"


def test_nodes_that_share_a_name_have_no_description() -> None:
    proto = described()
    proto.graph.node[1].name = "sine"
    found = exporter.write(importer.read(proto))
    assert [(node.doc_string, len(node.metadata_props)) for node in found.graph.node] == [("", 0), ("", 0)]
