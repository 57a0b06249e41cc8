"""Import of models: what they become, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from rewrite.engine.ir.graph import DType, Graph, OtherType
from rewrite.engine.onnx_io import exporter, importer
from rewrite.errors import UserError

from ..models import BOOL, FLOAT, INT64, model, run

x23 = ("x", FLOAT, (2, 3))
y23 = ("y", FLOAT, (2, 3))


def simple(**options: Any) -> Any:
    return model([helper.make_node("Relu", ["x"], ["y"], name="act")], [x23], [y23], **options)


# --- import -----------------------------------------------------------------------------------------------------------


def test_path_bytes_and_model_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(simple(), path)
    graphs = [importer.read(source) for source in (path, str(path), path.read_bytes(), simple())]
    assert len({str(g.nodes) for g in graphs}) == 1
    assert graphs[0].inputs == ("x",)
    assert graphs[0].nodes[0].origins == ("act",)
    assert str(graphs[0].type("y")) == "f32[2, 3]"


def test_a_branch_with_a_misfit_is_not_inlined() -> None:
    result = [helper.make_tensor_value_info("r", INT64, None)]
    then = helper.make_graph([helper.make_node("Range", ["zero", "n", "one"], ["r"])], "then", [], result)
    other = helper.make_graph([helper.make_node("Neg", ["n"], ["r"])], "else", [], result)
    proto = model(
        [helper.make_node("If", ["yes"], ["y"], then_branch=then, else_branch=other)],
        [("n", INT64, (1,))],  # ONNX Runtime accepts one number as a scalar where it does not know the shape
        [("y", INT64, ("K",))],
        {"yes": np.array(True), "zero": np.array(0), "one": np.array(1)},
    )
    assert [n.op for n in importer.read(proto).nodes] == ["If"]


def test_what_an_output_is_declared_as_is_believed_behind_an_identity() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["h"]),
        helper.make_node("Identity", ["h"], ["y"]),
    ]
    inputs = [("x", FLOAT, ("N", "M", 3)), ("s", INT64, ("K",))]
    graph = importer.read(model(nodes, inputs, [("y", FLOAT, (None, 3))]))
    assert [n.op for n in graph.nodes] == ["Reshape"]
    assert graph.type("y").rank == 2
    assert str(graph.type("y")).endswith(", 3]")
    onnx.checker.check_model(exporter.write(graph), full_check=True)


@pytest.mark.parametrize("after", [[], ["Sigmoid"], ["Identity"], ["Neg", "Identity"]])
def test_the_rank_of_one_run_is_not_believed_of_an_output(after: list[str]) -> None:
    """Converters state it of a Squeeze of all axes, and of what is computed from that."""
    names = [f"v{i}" for i in range(len(after))] + ["y"]
    nodes = [helper.make_node("Squeeze", ["x"], [names[0]])]
    nodes += [helper.make_node(op, [a], [b]) for op, a, b in zip(after, names, names[1:], strict=False)]
    proto = model(nodes, [("x", FLOAT, ("N", 1, 3))], [("y", FLOAT, (3,))])
    graph = importer.read(proto)
    assert graph.type("y").rank is None
    written = exporter.write(graph)
    onnx.checker.check_model(written)
    assert str(written.graph.output[0].type) == str(proto.graph.output[0].type)
    assert importer.read(proto, shapes={"N": 2}).type("y").shape == (2, 3)
    proto = model([*nodes, helper.make_node("Exp", ["y"], ["z"])], [("x", FLOAT, ("N", 1, 3))],
                  [("y", FLOAT, (3,)), ("z", FLOAT, (3,))])  # fmt: skip
    assert importer.read(proto).type("y").rank == 1  # a node that reads it relies on it


def test_an_if_with_a_known_condition_becomes_its_branch() -> None:
    def deeper(op: str) -> Any:
        nodes = [
            helper.make_node("Size", ["dims"], ["rank"]),
            helper.make_node("Equal", ["rank", "two"], ["flat"]),
            helper.make_node("If", ["flat"], ["r"], then_branch=branch(op, "h"), else_branch=branch("Neg", "h")),
        ]
        return helper.make_graph(nodes, op, [], [helper.make_tensor_value_info("r", FLOAT, None)])

    def branch(op: str, name: str) -> Any:
        nodes = [helper.make_node(op, ["x"], [name]), helper.make_node("Add", [name, "k"], ["t"])]
        constants = [onnx.numpy_helper.from_array(np.array([len(op)], np.float32), "k")]
        return helper.make_graph(nodes, op, [], [helper.make_tensor_value_info("t", FLOAT, None)], constants)

    proto = model(
        [
            helper.make_node("Shape", ["x"], ["dims"]),
            helper.make_node("If", ["yes"], ["h"], then_branch=deeper("Exp"), else_branch=deeper("Sin")),
            helper.make_node("If", ["no"], ["y"], then_branch=deeper("Cos"), else_branch=deeper("Relu")),
            helper.make_node("Mul", ["h", "y"], ["z"]),
        ],
        [("x", FLOAT, ("N", 3))],
        [("y", FLOAT, None), ("z", FLOAT, None)],
        {"yes": np.array(True), "no": np.array([False]), "two": np.array(2)},
        opset=16,
    )
    graph = importer.read(proto)
    assert [n.op for n in graph.nodes if n.op not in ("Shape", "Size", "Equal")] == ["Exp", "Add", "Relu", "Add", "Mul"]
    assert str(graph.type("z")) == "f32[N, 3]"
    assert sum(graph.written.values()) == 32
    feeds = {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)}
    for a, b in zip(run(proto, feeds), run(exporter.write(graph), feeds), strict=True):
        np.testing.assert_array_equal(a, b)


def test_constants_and_identities_go() -> None:
    two = onnx.numpy_helper.from_array(np.float32(2))
    nodes = [
        helper.make_node("Constant", [], ["c"], value=two),
        helper.make_node("Identity", ["x"], ["i"]),
        helper.make_node("Mul", ["i", "c"], ["m"]),
        helper.make_node("Identity", ["m"], ["y"]),
    ]
    graph = importer.read(model(nodes, [x23], [y23]))
    assert [n.op for n in graph.nodes] == ["Mul"]
    assert graph.nodes[0].inputs == ("x", "c")
    assert graph.nodes[0].outputs == ("y",)
    assert set(graph.constants) == {"c"}


def test_outputs_that_are_inputs_or_constants() -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Identity", ["k"], ["const"]),
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Identity", ["y"], ["again"]),
    ]
    outputs = [(name, FLOAT, (2, 3)) for name in ("same", "const", "y", "again")]
    proto = model(nodes, [x23], outputs, {"k": np.ones((2, 3), np.float32)})
    graph = importer.read(proto)
    assert graph.outputs == ("same", "const", "y", "again")
    feeds = {"x": np.array([[1, -2, 3], [-4, 5, -6]], np.float32)}
    written = exporter.write(graph)
    onnx.checker.check_model(written)
    for got, want in zip(run(written, feeds), run(proto, feeds), strict=True):
        np.testing.assert_array_equal(got, want)


def test_output_that_is_an_initializer_or_an_input_itself() -> None:
    proto = model([], [x23], [x23, ("k", FLOAT, (3,))], {"k": np.arange(3, dtype=np.float32)})
    graph = importer.read(proto)
    assert graph.outputs == ("x", "k")
    written = exporter.write(graph)
    onnx.checker.check_model(written)
    got = run(written, {"x": np.ones((2, 3), np.float32)})
    np.testing.assert_array_equal(got[1], np.arange(3))


@pytest.mark.parametrize(("ir_version", "inputs"), [(3, ("x",)), (8, ("x", "k"))])
def test_initializers_among_the_inputs(ir_version: int, inputs: tuple[str, ...]) -> None:
    proto = model(
        [helper.make_node("Add", ["x", "k"], ["y"])],
        [x23, ("k", FLOAT, (3,))],
        [y23],
        {"k": np.ones(3, np.float32)},
        opset=8,
        ir_version=ir_version,
    )
    graph = importer.read(proto)
    assert graph.inputs == inputs
    assert ("k" in graph.constants) == (ir_version < 4)
    assert ("k" in graph.defaults) == (ir_version >= 4)
    written = exporter.write(graph)
    onnx.checker.check_model(written)
    x = np.zeros((2, 3), np.float32)
    np.testing.assert_array_equal(run(written, {"x": x})[0], x + 1)
    if ir_version >= 4:
        np.testing.assert_array_equal(run(written, {"x": x, "k": np.full(3, 5, np.float32)})[0], x + 5)


def test_dims_by_name_and_by_number() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    shape = ("batch size", None, "?", "?")
    proto = model(nodes, [("x", FLOAT, shape)], [("y", FLOAT, None)])
    free = importer.read(proto).type("x").shape
    assert free is not None
    assert str(free[0]) == "'batch size'"
    assert len(set(free)) == 4
    fixed = importer.read(proto, shapes={"batch size": 4, "x:1": 7})
    assert fixed.type("y").shape is not None
    assert fixed.type("y").shape[:2] == (4, 7)
    assert importer.read(proto, shapes={"x.0": 4, "batch size": 4}).type("y").shape == (4, *free[1:])
    with pytest.raises(
        UserError, match="no input has a dimension 'N'\nFree dimensions: batch size \\(x:0\\), x:1, x:2"
    ):
        importer.read(proto, shapes={"N": 4})
    with pytest.raises(UserError, match="two numbers are given for dimension x:0: 4 and 5"):
        importer.read(proto, shapes={"batch size": 4, "x:0": 5})


def test_a_name_that_is_a_sum_of_dims_of_inputs_is_that_sum() -> None:
    nodes = [helper.make_node("Concat", ["a", "b"], ["c"], axis=0), helper.make_node("Add", ["c", "d"], ["y"])]
    inputs = [("a", FLOAT, ("past", 3)), ("b", FLOAT, ("new", 3)), ("d", FLOAT, ("past + new", 3))]
    proto = model(nodes, inputs, [("y", FLOAT, ("N", 3))])
    assert str(importer.read(proto).type("y")) == "f32[new+past, 3]"
    assert str(importer.read(proto, shapes={"past": 4}).type("y")) == "f32[new+4, 3]"
    for name in ("past + 1", "past + other"):  # ONNX gives such names no meaning, and some exporters' are wrong
        proto.graph.input[2].type.tensor_type.shape.dim[0].dim_param = name
        assert "bcast" in str(importer.read(proto).type("y"))


def test_a_dim_that_has_a_name_is_fixed_wherever_it_stands() -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["y"])]
    proto = model(nodes, [("x", FLOAT, ("N", 3)), ("b", FLOAT, ("N", 1))], [("y", FLOAT, None)])
    graph = importer.read(proto, shapes={"b:0": 5, "x.1": 3})
    assert [str(graph.type(name)) for name in ("x", "b", "y")] == ["f32[5, 3]", "f32[5, 1]", "f32[5, 3]"]
    with pytest.raises(UserError, match="the model itself fixes dimension x:1: 3 and 4"):
        importer.read(proto, shapes={"x:1": 4})
    with pytest.raises(UserError, match="no input has a dimension 'x:2'"):
        importer.read(proto, shapes={"x:2": 4})


def test_names_that_look_like_ours_give_way() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], [("x", FLOAT, ("_d1", None))], [("y", FLOAT, None)])
    shape = importer.read(proto).type("x").shape
    assert shape is not None
    assert shape[0] != shape[1]


def test_functions_are_inlined() -> None:
    function = helper.make_function(
        "local", "AddTwice", ["a", "b"], ["c"],
        [helper.make_node("Add", ["a", "b"], ["t"]), helper.make_node("Add", ["t", "b"], ["c"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    node = helper.make_node("AddTwice", ["x", "k"], ["y"], domain="local")
    proto = model([node], [x23], [y23], {"k": np.ones(3, np.float32)}, functions=[function], domains={"local": 1})
    graph = importer.read(proto)
    assert [n.op for n in graph.nodes] == ["Add", "Add"]
    x = np.zeros((2, 3), np.float32)
    np.testing.assert_array_equal(run(exporter.write(graph), {"x": x})[0], x + 2)


def branch(name: str, op: str) -> Any:
    # Both branches use the names `t` and `y`, which is allowed.
    return helper.make_graph(
        [helper.make_node(op, ["x"], ["t"]), helper.make_node("Identity", ["t"], ["y"])],
        name, [], [helper.make_tensor_value_info("y", FLOAT, (2, 3))],
    )  # fmt: skip


def test_subgraphs_capture_and_have_unique_names() -> None:
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=branch("a", "Relu"), else_branch=branch("b", "Neg"))]
    proto = model(nodes, [("c", BOOL, ()), x23], [y23])
    graph = importer.read(proto)
    bodies = [body for _, body in graph.nodes[0].subgraphs()]
    assert all(isinstance(b, Graph) and b.captures() == ("x",) for b in bodies)
    names = [o for b in bodies for n in b.nodes for o in n.outputs]
    assert len(set(names) | {"y"}) == len(names) + 1
    assert str(graph.type("y")) == "f32[2, 3]"
    written = exporter.write(graph)
    onnx.checker.check_model(written, full_check=True)
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    for flag in (True, False):
        feeds = {"c": np.array(flag), "x": x}
        np.testing.assert_array_equal(run(written, feeds)[0], run(proto, feeds)[0])


def test_carried_values_of_a_loop_may_change_shape() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Concat", ["v", "v"], ["w"], axis=0),
            helper.make_node("Identity", ["cond"], ["cond_out"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", INT64, ()),
            helper.make_tensor_value_info("cond", BOOL, ()),
            helper.make_tensor_value_info("v", FLOAT, None),
        ],
        [helper.make_tensor_value_info("cond_out", BOOL, ()), helper.make_tensor_value_info("w", FLOAT, None)],
    )  # fmt: skip
    constants = {"n": np.array(2, np.int64), "yes": np.array(True)}
    proto = model([helper.make_node("Loop", ["n", "yes", "x"], ["y"], body=body)], [("x", FLOAT, (3,))],
                  [("y", FLOAT, None)], constants)  # fmt: skip
    graph = importer.read(proto)
    assert graph.type("y").shape != (3,)
    assert graph.type("y").dtype is DType.F32
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(run(exporter.write(graph), {"x": x})[0], np.tile(x, 4))


def test_sequences_pass_as_opaque_values() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
        helper.make_node("SequenceAt", ["s", "i"], ["y"]),
    ]
    proto = model(nodes, [x23], [y23], {"i": np.array(1, np.int64)})
    graph = importer.read(proto)
    assert isinstance(graph.types["s"], OtherType)
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(run(exporter.write(graph), {"x": x})[0], x)


def test_sparse_initializers_become_dense() -> None:
    values = helper.make_tensor("k", FLOAT, [2], [5.0, 7.0])
    for indices in (helper.make_tensor("", INT64, [2], [1, 5]), helper.make_tensor("", INT64, [2, 2], [0, 1, 1, 2])):
        proto = model([helper.make_node("Add", ["x", "k"], ["y"])], [x23], [y23])
        proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2, 3]))
        found = importer.read(proto).constants["k"].array
        np.testing.assert_array_equal(found, [[0, 5, 0], [0, 0, 7]])


@pytest.mark.parametrize("dtype", [d for d in DType if d.onnx <= onnx.TensorProto.DataType.Value("FLOAT4E2M1")])
def test_every_element_type_passes(dtype: DType) -> None:
    if dtype is DType.STRING:
        array = np.array(["a", "ü", ""], object)
        tensor = helper.make_tensor("k", dtype.onnx, [3], [s.encode() for s in array])
    else:
        array = np.array([0, 1, 1], np.float32).astype(dtype.numpy)
        tensor = onnx.numpy_helper.from_array(array, "k")
    proto = model([helper.make_node("Identity", ["k"], ["y"])], [], [("y", dtype.onnx, (3,))], opset=23, ir_version=11)
    proto.graph.initializer.append(tensor)
    graph = importer.read(proto)
    assert graph.type("k").dtype is dtype
    again = importer.read(exporter.write(graph).SerializeToString())
    assert again.constants["k"] == graph.constants["k"]
    assert again.constants["k"].array.tolist() == array.tolist()


def test_unsorted_nodes_are_sorted() -> None:
    nodes = [helper.make_node("Neg", ["t"], ["y"]), helper.make_node("Relu", ["x"], ["t"])]
    assert [n.op for n in importer.read(model(nodes, [x23], [y23])).nodes] == ["Relu", "Neg"]


def test_unread_optional_outputs_go() -> None:
    proto = model([helper.make_node("MaxPool", ["x"], ["y", "where"], kernel_shape=[1, 1])],
                  [("x", FLOAT, (1, 1, 2, 2))], [("y", FLOAT, None)])  # fmt: skip
    assert importer.read(proto).nodes[0].outputs == ("y",)


# --- external data ----------------------------------------------------------------------------------------------------


def external(tmp_path: Path, location: str = "weights.bin", offset: int = 16) -> Path:
    proto = model([helper.make_node("Add", ["x", "k"], ["y"])], [x23], [y23])
    tensor = proto.graph.initializer.add(name="k", data_type=FLOAT, dims=[3])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", 12)):
        tensor.external_data.add(key=key, value=str(value))
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_is_mapped(tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "weights.bin").write_bytes(bytes(16) + np.array([1, 2, 3], np.float32).tobytes())
    found = importer.read(path).constants["k"].array
    assert found.tolist() == [1, 2, 3]
    assert not found.flags.writeable


def test_external_data_missing_truncated_or_without_path(tmp_path: Path) -> None:
    path = external(tmp_path)
    with pytest.raises(UserError, match=r"'weights\.bin' is missing"):
        importer.read(path)
    (tmp_path / "weights.bin").write_bytes(bytes(20))
    with pytest.raises(UserError, match="has 4 bytes from offset 16 on, 12 are needed"):
        importer.read(path)
    with pytest.raises(UserError, match="given without a path"):
        importer.read(path.read_bytes())


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", "sub/../../secret.bin", "link.bin"])
def test_external_data_outside_the_directory_is_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    inner = tmp_path / "model"
    inner.mkdir()
    (inner / "link.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(UserError, match="outside the model's directory"):
        importer.read(external(inner, location, 0))


@pytest.mark.parametrize(
    ("location", "offset", "message"),
    [
        ("", 0, "names no file"),
        ("a\0b", 0, "is invalid"),
        ("a" * 5000, 0, "is invalid"),
        ("circle.bin", 0, "is invalid"),
        ("sub", 0, "'sub' is not a regular file"),
        ("pipe", 0, "'pipe' is not a regular file"),
        ("weights.bin", -4, "has 12 bytes at offset -4; needed: 12 bytes"),
        ("weights.bin", 10**30, "has 0 bytes from offset 1000000000000000000000000000000 on, 12 are needed"),
    ],
)
def test_invalid_external_data(tmp_path: Path, location: str, offset: int, message: str) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(64))
    (tmp_path / "circle.bin").symlink_to(tmp_path / "circle.bin")
    (tmp_path / "sub").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=message):
        importer.read(external(tmp_path, location, offset))


def test_large_models_are_saved_with_external_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "LARGE", 1000)
    weights = np.random.default_rng(0).random((300, 3), np.float32)
    proto = model([helper.make_node("MatMul", ["w", "x"], ["y"])], [("x", FLOAT, (3, 2))], [("y", FLOAT, (300, 2))],
                  {"w": weights})  # fmt: skip
    path = tmp_path / "big.onnx"
    exporter.save(exporter.write(importer.read(proto)), path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["big.onnx", "big.onnx.data"]
    onnx.checker.check_model(str(path))
    np.testing.assert_array_equal(importer.read(path).constants["w"].array, weights)


def test_saving_fails_cleanly(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        exporter.save(simple(), tmp_path / "missing" / "m.onnx")
    assert list(tmp_path.iterdir()) == []


# --- refused models ---------------------------------------------------------------------------------------------------


def test_files_that_are_not_models(tmp_path: Path) -> None:
    whole = simple(opset=17).SerializeToString()
    for content in (b"", whole[: len(whole) // 2], b"PK\3\4 something", b"{}", b"\0" * 100, b"hello, world"):
        path = tmp_path / "m.onnx"
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"not an ONNX model|the file is empty|no outputs") as caught:
            importer.read(path)
        assert str(path) in str(caught.value)
    with pytest.raises(UserError, match="no such file"):
        importer.read(tmp_path / "none.onnx")
    with pytest.raises(UserError, match="directory"):
        importer.read(tmp_path)


def test_empty_graph() -> None:
    with pytest.raises(UserError, match="no outputs"):
        importer.read(model([], [], []))


def test_cycle_is_named() -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], name="one"), helper.make_node("Relu", ["a"], ["b"], name="two")]
    with pytest.raises(UserError, match=r"cyclic: node '(one|two)'.* → node '(one|two)'.* → node"):
        importer.read(model(nodes, [x23], [("b", FLOAT, None)]))


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (helper.make_node("Rulu", ["x"], ["y"], name="n"), r"node 'n'.*unknown operator Rulu(.|\n)*Did you mean.*Relu"),
        (helper.make_node("Gelu", ["x"], ["y"]), "Gelu does not exist at opset 17, only from 20 on"),
        (helper.make_node("Relu", ["nope"], ["y"]), "reads the value 'nope'"),
        (helper.make_node("Relu", ["x", "x"], ["y"]), "has 2 inputs"),
        (helper.make_node("Relu", ["x"], ["y"], alpha=1), "no attribute 'alpha'"),
        (helper.make_node("Concat", ["x"], ["y"]), "attribute 'axis' is missing"),
        (helper.make_node("Concat", ["x"], ["y"], axis=1.5), "not of the kind INT"),
        (helper.make_node("Relu", ["x"], ["x"]), "two producers"),
        (helper.make_node("Conv", ["x", ""], ["y"]), "input 'W' is missing"),
        (helper.make_node("Foo", ["x"], ["y"], domain="unsaid"), "does not import the domain 'unsaid'"),
    ],
)
def test_bad_nodes(node: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        importer.read(model([node], [x23], [y23]))


def test_output_that_nothing_makes() -> None:
    with pytest.raises(UserError, match="'z' is not produced by any node"):
        importer.read(model([helper.make_node("Relu", ["x"], ["y"])], [x23], [("z", FLOAT, None)]))


def test_opset_of_the_future() -> None:
    proto = simple()
    proto.opset_import[0].version = 1000
    with pytest.raises(UserError, match="opset 1000 is newer"):
        importer.read(proto)


def test_custom_operators_pass() -> None:
    node = helper.make_node("Magic", ["x"], ["y"], domain="com.example", power=2.0)
    graph = importer.read(model([node], [x23], [y23], domains={"com.example": 3}))
    assert graph.nodes[0].op == "com.example.Magic"
    assert str(graph.type("y")) == "f32[2, 3]"  # as the model says
    written = exporter.write(graph)
    assert written.graph.node[0].attribute[0].f == 2.0
    assert {o.domain: o.version for o in written.opset_import} == {"": 17, "com.example": 3}


@pytest.mark.parametrize("kind", ["INTS", "FLOATS", "STRINGS"])
def test_empty_lists_of_custom_operators_keep_their_type(kind: str) -> None:
    node = helper.make_node("Magic", ["x"], ["y"], domain="com.example")
    node.attribute.append(onnx.AttributeProto(name="a", type=kind))
    graph = importer.read(model([node], [x23], [y23], domains={"com.example": 3}))
    (attribute,) = exporter.write(graph).graph.node[0].attribute
    assert onnx.AttributeProto.AttributeType.Name(attribute.type) == kind


def test_a_node_of_which_nothing_is_read_is_dropped() -> None:
    """All outputs of a recurrent cell are optional, so that none of them would be left."""
    nodes = [
        helper.make_node("GRU", ["s", "w", "r"], ["states", "last"], hidden_size=2),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    weights = {"w": np.ones((1, 6, 3), np.float32), "r": np.ones((1, 6, 2), np.float32)}
    graph = importer.read(model(nodes, [x23, ("s", FLOAT, (4, 1, 3))], [y23], weights))
    assert [n.op for n in graph.nodes] == ["Relu"]


def doubling(count: int, last: str = "Relu") -> bytes:
    """Return a model of functions that each call the next one twice; the last one calls `last`."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = []
    for i in range(count):
        callee = f"f{i + 1}" if i + 1 < count else last
        domain = "" if callee == "Relu" else "own"
        nodes = [helper.make_node(callee, [a], [b], domain=domain) for a, b in ("ab", "bc")]
        functions.append(helper.make_function("own", f"f{i}", ["a"], ["c"], nodes, opsets))
    x, y = (helper.make_tensor_value_info(name, FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("f0", ["x"], ["y"], domain="own")], "g", [x], [y])
    whole = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)
    data: bytes = whole.SerializeToString()
    return data


def test_functions_that_would_be_too_many_nodes_are_refused() -> None:
    assert len(importer.read(doubling(4)).nodes) == 16
    with pytest.raises(UserError, match="1,073,741,824 nodes once they are inlined"):
        importer.read(doubling(30))
    with pytest.raises(UserError, match="function 'f0' calls itself"):
        importer.read(doubling(3, "f0"))
    with pytest.raises(UserError, match="nested too deeply"):
        importer.read(doubling(3000))
