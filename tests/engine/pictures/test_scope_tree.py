"""Groups of nodes: by scopes in names, metadata or parameters, else by repeated blocks."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from rewrite.engine.ir.graph import Constant, Graph, Node
from rewrite.engine.onnx_io import importer
from rewrite.engine.pictures.scope_tree import WIDEST, Group, fold, scopes


def named(*names: str, op: str = "Relu") -> list[Node]:
    return [Node(op, (f"v{i}",), (f"v{i + 1}",), name=name) for i, name in enumerate(names)]


def shape(group: Group, nodes: list[Node]) -> object:
    """A group as nested tuples of names."""
    return (group.name, *(shape(c, nodes) if isinstance(c, Group) else nodes[c].name for c in group.children))


def test_modules_in_names_are_boxes() -> None:
    first, second = (f"/layer1/layer1.{i}" for i in range(2))
    nodes = named(
        "/stem/Conv", "/stem/Relu", f"{first}/a/Conv", f"{first}/b/Conv", f"{second}/Add", f"{second}/Relu", "/Flatten"
    )
    assert shape(fold(nodes, scopes(Graph(nodes=nodes), nodes)), nodes) == (
        "",
        ("stem", "/stem/Conv", "/stem/Relu"),
        (
            "layer1",
            ("layer1.0", "/layer1/layer1.0/a/Conv", "/layer1/layer1.0/b/Conv"),  # boxes of one node are dissolved
            ("layer1.1", "/layer1/layer1.1/Add", "/layer1/layer1.1/Relu"),
        ),
        "/Flatten",
    )


def test_numbers_in_dotted_names_count_modules() -> None:
    nodes = named("enc.layer.0.norm", "enc.layer.0.add", "enc.layer.1.norm", "enc.layer.1.add", "pool", "out")
    group = fold(nodes, scopes(Graph(nodes=nodes), nodes))
    [layers] = [c for c in group.children if isinstance(c, Group)]
    assert layers.name == "enc/layer"
    assert [c.name for c in layers.children if isinstance(c, Group)] == ["layer.0", "layer.1"]


def test_nodes_without_a_scope_join_what_surrounds_them() -> None:
    nodes = named("/a/x", "n", "/a/y", "m", "/b/z", "/b/w")
    assert shape(fold(nodes, scopes(Graph(nodes=nodes), nodes)), nodes) == (
        "", ("a", "/a/x", "n", "/a/y"), "m", ("b", "/b/z", "/b/w")
    )  # fmt: skip


def test_metadata_of_the_exporter_names_modules() -> None:
    made = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name=f"node_{i}") for i in range(4)]
    for i, node in enumerate(made):
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=f"['', 'body', 'body.{i // 2}', 'relu_{i}']")
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("v0", "v4")]
    graph = importer.read(
        helper.make_model(
            helper.make_graph(made, "g", value[:1], value[1:]),
            opset_imports=[helper.make_opsetid("", 20)],
            ir_version=10,
        )
    )
    assert shape(fold(graph.nodes, scopes(graph, graph.nodes)), graph.nodes) == (
        "body", ("body.0", "node_0", "node_1"), ("body.1", "node_2", "node_3")
    )  # fmt: skip


def test_names_of_parameters_tell_where_nodes_have_none() -> None:
    nodes = [
        Node("MatMul", (f"v{i}", f"layers.{i // 2}.w{i}.weight"), (f"v{i + 1}",), name=f"node_{i}") for i in range(4)
    ]
    weights = {node.inputs[1]: Constant(np.ones(1, np.float32)) for node in nodes}
    found = scopes(Graph(nodes=nodes, constants=weights), nodes)
    assert found["node_0"] == ("layers", "layers.0", "w0")
    assert found["node_3"] == ("layers", "layers.1", "w3")


def test_results_have_the_boxes_of_what_they_stand_for() -> None:
    nodes = [
        Node("Gelu", ("a",), ("b",), name="new", origins=("/a/x", "/b/y")),
        Node("Relu", ("b",), ("c",), name="/a/z"),
    ]
    assert shape(fold(nodes, {"/a/x": ("a",), "/b/y": ("b",), "/a/z": ("a",)}), nodes) == ("a", "new", "/a/z")


def test_repeated_blocks_are_folded() -> None:
    ops = ["Conv", "Add", "Relu", *["MatMul", "Add", "Relu", "Mul"] * 15, "Flatten"]
    nodes = [Node(op, (), (f"v{i}",), name=f"n{i}") for i, op in enumerate(ops)]
    group = fold(nodes, {})
    blocks = [c for c in group.children if isinstance(c, Group)]
    assert len(blocks) == 15
    assert {tuple(sorted(ops[n] for n in block.nodes())) for block in blocks} == {("Add", "MatMul", "Mul", "Relu")}
    assert blocks[0].name == "block 1 of 15"
    assert sorted(group.nodes()) == list(range(len(nodes)))


@pytest.mark.parametrize("count", [1, WIDEST, WIDEST + 1, 1000, 5000])
def test_no_level_is_too_wide(count: int) -> None:
    random = np.random.default_rng(0)
    nodes = [Node(f"Op{random.integers(50)}", (), (f"v{i}",), name=f"n{i}") for i in range(count)]

    def widest(group: Group) -> int:
        return max(len(group.children), *(widest(c) for c in group.children if isinstance(c, Group)), 0)

    group = fold(nodes, {})
    assert widest(group) <= max(WIDEST, count // WIDEST + 1)
    assert group.nodes() == list(range(count))
