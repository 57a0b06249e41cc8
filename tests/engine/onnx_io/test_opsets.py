"""Operators of old opsets against ONNX Runtime; and which opsets can express what."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from rewrite.engine.ir.graph import Graph, Node, TensorType
from rewrite.engine.onnx_io import exporter, importer
from rewrite.engine.onnx_io.opsets import can_express
from rewrite.engine.operators.schemas import WORKING_OPSET, normalize_attrs
from rewrite.errors import RewriteError

from ..models import BOOL, FLOAT, INT64, model, run

RANDOM = np.random.default_rng(7)
X = RANDOM.standard_normal((2, 3, 4, 4)).astype(np.float32)


def node(op: str, *inputs: str, outputs: tuple[str, ...] = ("y",), **attrs: Any) -> Any:
    return helper.make_node(op, ["x", *inputs], outputs, **attrs)


OLD: list[tuple[int, Any, dict[str, Any]]] = [
    (7, node("BatchNormalization", "s", "b", "m", "v", epsilon=0.01),
     {"s": [1, 2, 3], "b": [0, 1, 2], "m": [0.5, 0, 1], "v": [1, 2, 0.5]}),
    (7, node("Upsample", scales=[1.0, 1.0, 2.0, 3.0], mode="nearest"), {}),
    (9, node("Upsample", "k", mode="linear"), {"k": [1, 1, 2, 2]}),
    (10, node("Resize", "k", mode="linear"), {"k": [1, 1, 0.5, 2]}),
    (10, node("Resize", "k", mode="nearest"), {"k": [1, 1, 2, 2]}),
    (7, node("Softmax", axis=1), {}),
    (7, node("Softmax", axis=3), {}),
    (11, node("LogSoftmax", axis=2), {}),
    (9, node("Hardmax", axis=1), {}),
    (7, node("Slice", axes=[1, 3], starts=[0, 1], ends=[2, -1]), {}),
    (7, node("Pad", pads=[0, 0, 1, 2, 0, 0, 3, 0], value=1.5), {}),
    (7, node("Pad", pads=[0, 0, 1, 1, 0, 0, 1, 0], mode="reflect"), {}),
    (7, node("Clip", min=-0.5, max=0.75), {}),
    (7, node("Clip"), {}),
    (7, node("TopK", k=2, axis=3, outputs=("y", "i")), {}),
    (7, node("ReduceMean", axes=[1, 3], keepdims=0), {}),
    (11, node("ReduceSum", axes=[-1]), {}),
    (7, node("ReduceMax"), {}),
    (7, node("Unsqueeze", axes=[0, 3]), {}),
    (7, node("Split", axis=3, outputs=("y", "z")), {}),
    (7, node("Split", axis=3, split=[1, 3], outputs=("y", "z")), {}),
    (7, node("Dropout", ratio=0.7), {}),
    (10, node("Dropout"), {}),
    (7, node("PRelu", "k"), {"k": [[[0.1]], [[0.2]], [[0.3]]]}),
    (7, node("Flatten", axis=2), {}),
    (7, node("ArgMax", axis=2), {}),
    (7, node("Cast", to=INT64), {}),
    (9, node("Scatter", "i", "u", axis=1), {"i": np.array([[[[1]]]]), "u": [[[[9.0]]]]}),
    (7, node("LpPool", kernel_shape=[2, 2], p=3), {}),
    (7, node("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]), {}),
    (10, node("MaxPool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1), {}),
    (16, node("GridSample", "g", mode="bicubic"), {"g": RANDOM.uniform(-1, 1, (2, 3, 5, 2)).astype(np.float32)}),
    (10, node("RoiAlign", "r", "i", output_height=2, output_width=2), {"r": [[0, 0, 3, 3]], "i": np.array([0])}),
    (17, node("DFT", axis=2), {}),
    (13, node("Squeeze", "a"), {"a": np.array([4])}),
    (18, node("GroupNormalization", "s", "b", num_groups=3, epsilon=0.01), {"s": [1, 2, 3], "b": [0, 1, 2]}),
]  # fmt: skip


@pytest.mark.parametrize(("opset", "proto", "constants"), OLD, ids=[f"{n.op_type}-{v}" for v, n, _ in OLD])
def test_old_operators_mean_the_same(opset: int, proto: Any, constants: dict[str, Any]) -> None:
    special = {"Squeeze": X.reshape(2, 3, 4, 4, 1), "DFT": X[..., :1], "GroupNormalization": X.reshape(2, 6, 2, 4)}
    x = special.get(proto.op_type, X)
    arrays = {k: v if isinstance(v, np.ndarray) else np.array(v, np.float32) for k, v in constants.items()}
    kind = {"Cast": INT64, "ArgMax": INT64}.get(proto.op_type, FLOAT)
    results = [(name, INT64 if name == "i" else kind, None) for name in proto.output]
    old = model([proto], [("x", FLOAT, x.shape)], results, arrays, opset=opset)
    graph = importer.read(old)
    marked = [n.op for n in graph.nodes if "@" in n.op]
    assert marked == []
    expected = run(old, {"x": x})
    written = exporter.write(graph)
    assert written.opset_import[0].version == opset
    for target in (written, exporter.write(graph, opset=21)):
        onnx.checker.check_model(target, full_check=True)
        for got, want in zip(run(target, {"x": x}), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_groups_of_f64_need_no_kernel_that_onnxruntime_lacks() -> None:
    """It runs GroupNormalization of f64 as the function that it is, and has no InstanceNormalization of f64."""
    x = X.reshape(2, 6, 2, 4).astype(np.float64)
    weights = {"s": np.array([1.0, 2, 3]), "b": np.array([0.0, 1, 2])}
    proto = node("GroupNormalization", "s", "b", num_groups=3, epsilon=0.01)
    double = onnx.TensorProto.DOUBLE
    old = model([proto], [("x", double, x.shape)], [("y", double, None)], weights, opset=18)
    graph = importer.read(old)
    assert not {"InstanceNormalization", "GroupNormalization@18"} & {n.op for n in graph.nodes}
    written = exporter.write(graph)
    onnx.checker.check_model(written, full_check=True)
    np.testing.assert_allclose(run(written, {"x": x}), run(old, {"x": x}), rtol=1e-9)


@pytest.mark.parametrize("form", ["axis", "suffix", "scalar", "same"])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
def test_broadcasting_by_axis_before_7(op: str, form: str) -> None:
    k = {"axis": np.array([1.0, 2, 3]), "suffix": np.arange(1.0, 5), "scalar": np.array([3.0]), "same": X + 4}[form]
    attrs = {"axis": {"broadcast": 1, "axis": 1}, "same": {}}.get(form, {"broadcast": 1})
    proto = model([node(op, "k", **attrs)], [("x", FLOAT, X.shape)], [("y", FLOAT, None)],
                  {"k": k.astype(np.float32)}, opset=6, ir_version=4)  # fmt: skip
    graph = importer.read(proto)
    full = k.reshape(3, 1, 1) if form == "axis" else k
    expected = {"Add": X + full, "Sub": X - full, "Mul": X * full, "Div": X / full}[op]
    np.testing.assert_allclose(run(exporter.write(graph, opset=13), {"x": X})[0], expected, rtol=1e-6)
    back = exporter.write(graph)
    assert back.opset_import[0].version == 6
    onnx.checker.check_model(back)
    again = importer.read(back)
    np.testing.assert_allclose(run(exporter.write(again, opset=13), {"x": X})[0], expected, rtol=1e-6)


def test_reshape_and_batch_normalization_of_opset_1() -> None:
    constants = {k: np.array([1.0, 2, 3], np.float32) for k in "sbmv"}
    nodes = [
        node("BatchNormalization", *"sbmv", outputs=("n",), consumed_inputs=[0, 0, 0, 1, 1], is_test=1),
        helper.make_node("Reshape", ["n"], ["y"], shape=[2, -1]),
    ]
    graph = importer.read(model(nodes, [("x", FLOAT, X.shape)], [("y", FLOAT, None)], constants, opset=1, ir_version=3))
    assert [n.op for n in graph.nodes] == ["BatchNormalization", "Reshape"]
    assert str(graph.type("y")) == "f32[2, 48]"
    k = np.array([1.0, 2, 3]).reshape(3, 1, 1)
    expected = ((X - k) / np.sqrt(k + 1e-5) * k + k).reshape(2, 48)
    np.testing.assert_allclose(run(exporter.write(graph, opset=9), {"x": X})[0], expected, rtol=1e-5, atol=1e-5)
    assert exporter.write(graph).opset_import[0].version == 1


@pytest.mark.parametrize(
    ("opset", "proto", "mark"),
    [
        (7, node("BatchNormalization", *"sbmv", spatial=0), "BatchNormalization@7"),
        (10, node("Resize", "k", mode="nearest"), "Resize@10"),
        (13, node("Dropout", "", "t"), "Dropout@13"),
        (9, node("OneHot", "d", "w"), "OneHot@9"),
    ],
)
def test_untranslatable_operators_keep_their_version(opset: int, proto: Any, mark: str) -> None:
    names = [i for i in proto.input if i and i != "x"]
    types = {"t": (BOOL, ()), "k": (FLOAT, (4,)), "d": (FLOAT, ()), "w": (FLOAT, (2,))}
    inputs = [(n, *types.get(n, (FLOAT, (3, 4, 4)))) for n in names]
    old = model([proto], [("x", FLOAT, X.shape), *inputs], [("y", FLOAT, None)], opset=opset)
    graph = importer.read(old)
    assert [n.op for n in graph.nodes] == [mark]
    written = exporter.write(graph)
    assert written.graph.node[0].op_type == proto.op_type
    assert {a.name: a for a in proto.attribute}.keys() >= {a.name for a in written.graph.node[0].attribute}
    assert not can_express(mark, {}, {"": 22})
    with pytest.raises(RewriteError, match="cannot be written"):
        exporter.write(graph, opset=22)


def graph_of(
    op: str, *shapes: tuple[int, ...], opset: int, constants: dict[str, Any] | None = None, **attrs: Any
) -> Graph:
    from rewrite.engine.ir.graph import Constant, DType

    names = tuple(f"x{i}" for i in range(len(shapes)))
    types = {n: TensorType(DType.F32, s) for n, s in zip(names, shapes, strict=True)}
    given = {k: Constant(np.asarray(v)) for k, v in (constants or {}).items()}
    made = Node(op, (*names, *given), ("y",), normalize_attrs(op, attrs), "made", ("a_rule",))
    types["y"] = TensorType(DType.F32, shapes[0])
    return Graph(names, ("y",), [made], given, types, opset={"": opset})


def test_opset_rises_only_as_far_as_needed() -> None:
    def least(graph: Graph) -> int:
        return int(exporter.write(graph).opset_import[0].version)

    assert least(graph_of("Relu", (2, 3), opset=8)) == 8
    assert least(graph_of("Gelu", (2, 3), opset=13, approximate="tanh")) == 20
    assert least(graph_of("HardSwish", (2, 3), opset=9)) == 14
    assert least(graph_of("Softmax", (2, 3, 4), opset=9, axis=1)) == 13
    assert least(graph_of("Softmax", (2, 3, 4), opset=9, axis=-1)) == 9
    assert least(graph_of("Slice", (8, 3), opset=9, constants={"s": [0], "e": [8], "a": [0], "t": [2]})) == 10
    assert least(graph_of("Slice", (8, 3), opset=9, constants={"s": [0], "e": [8], "a": [-2]})) == 9


def test_element_types_that_came_later_raise_the_opset() -> None:
    from rewrite.engine.ir.graph import DType

    graph = graph_of("Equal", (2, 3), (2, 3), opset=9)
    graph.types |= {n: TensorType(DType.F16, (2, 3)) for n in graph.inputs}
    graph.types["y"] = TensorType(DType.BOOL, (2, 3))
    assert exporter.write(graph).opset_import[0].version == 11


def test_can_express() -> None:
    can = can_express
    assert can("Gelu", {}, {"": 20})
    assert not can("Gelu", {}, {"": 19})
    assert not can("rewrite.Own", {}, {"": 20, "rewrite": 1})
    assert can("com.example.Magic", {}, {"": 9, "com.example": 1})
    assert not can("com.example.Magic", {}, {"": 9})
    assert can("Resize", {}, {"": 9})
    assert not can("Upsample", {}, {"": 20})
    assert can("Reshape", {"allowzero": 0}, {"": 13})
    assert not can("Reshape", {"allowzero": 1}, {"": 13})
    assert can("Scan@8", {}, {"": 8})
    assert not can("ai.onnx.ml.Scaler", {}, {"": 20})


def test_own_operators_are_written_only_on_demand() -> None:
    graph = graph_of("rewrite.QuickGelu", (2, 3), opset=17, alpha=1.5)
    with pytest.raises(RewriteError):
        exporter.write(graph)
    written = exporter.write(graph, own_operators=True)
    assert [(n.domain, n.op_type) for n in written.graph.node] == [("rewrite", "QuickGelu")]
    assert WORKING_OPSET >= 23


def test_provenance_is_in_the_metadata() -> None:
    graph = graph_of("Relu", (2, 3), opset=17)
    graph.nodes[0].origins = ("n1", "n2")
    found = {p.key: p.value for p in exporter.write(graph).graph.node[0].metadata_props}
    assert found == {"rewrite.rules": "a_rule", "rewrite.origins": "n1,n2"}


def test_provenance_of_many_nodes_is_cut_short() -> None:
    graph = graph_of("Relu", (2, 3), opset=17)
    graph.nodes[0].origins = tuple(f"n{i}" for i in range(100))
    found = {p.key: p.value for p in exporter.write(graph).graph.node[0].metadata_props}
    assert found["rewrite.origins"] == ",".join([*(f"n{i}" for i in range(32)), "and 68 more"])


def test_writing_is_deterministic() -> None:
    proto = model([OLD[0][1]], [("x", FLOAT, X.shape)], [("y", FLOAT, None)],
                  {k: np.ones(3, np.float32) for k in "sbmv"}, opset=9)  # fmt: skip
    written = {exporter.write(importer.read(proto)).SerializeToString(deterministic=True) for _ in range(3)}
    assert len(written) == 1
