"""Types of the states of loops: those of their first values, as far as no iteration changes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import rewrite
from rewrite.engine.ir.graph import Graph
from rewrite.engine.onnx_io import importer
from rewrite.engine.verification.verify import check_model

HEADER = '<ir_version: 9, opset_import: ["" : 18]>'


def loop(body: str, outputs: str, *, first: str = "float[N, 4] x", more: str = "", trips: str = "n") -> onnx.ModelProto:
    """Return a model with a Loop whose body does not state the shapes of its states `a` and results `b`."""
    text = f"""{HEADER} main ({first}, int64 n{more}) => ({outputs}) {{
        yes = Constant<value = bool {{1}}>()
        three = Constant<value_int = 3>()
        y = Loop ({trips}, yes, x) <body = body (int64 i, bool go, float a) => (bool more, float b) {{
            more = Identity(go)
            {body}
        }}>
    }}"""
    proto = onnx.parser.parse_model(text)
    graph = proto.graph.node[2].attribute[0].g
    for value in (graph.input[2], graph.output[1]):
        value.type.tensor_type.ClearField("shape")
    return proto


def inside(graph: Graph) -> tuple[Any, Any]:
    """Return the types of the state before and after an iteration."""
    (body,) = (body for node in graph.nodes for _, body in node.subgraphs())
    return body.type(body.inputs[2]), body.type(body.outputs[1])


def test_a_state_keeps_the_type_of_its_first_value() -> None:
    graph = importer.read(loop("h = Relu(a) b = Add(h, a)", "float[N, 4] y"))
    assert [str(t) for t in inside(graph)] == ["f32[N, 4]"] * 2
    assert str(graph.type("y")) == "f32[N, 4]"


def test_a_size_that_nothing_is_known_of_is_what_the_body_states() -> None:
    proto = loop("b = Relu(a)", "float[M, 4] y")
    node = onnx.parser.parse_node("z = Compress<axis = 0>(x, which)")
    proto.graph.node.insert(2, node)
    proto.graph.input.append(onnx.helper.make_tensor_value_info("which", onnx.TensorProto.BOOL, (None,)))
    proto.graph.node[3].input[2] = "z"
    state = proto.graph.node[3].attribute[0].g.input[2].type.tensor_type
    state.shape.dim.add().dim_value = 7
    state.shape.dim.add().dim_value = 5  # the first value says 4
    assert [str(t) for t in inside(importer.read(proto))] == ["f32[7, 4]"] * 2


def test_a_size_that_changes_is_open_and_the_others_stay() -> None:
    before, after = inside(importer.read(loop("b = Concat<axis = 0>(a, a)", "float[M, 4] y")))
    assert before.shape[1] == after.shape[1] == 4
    assert before.shape[0] != after.shape[0]
    assert "N" not in str(before.shape[0])


@pytest.mark.parametrize("rows", ["N", "3"])
def test_a_size_that_the_body_states_wrongly_is_open(rows: str) -> None:
    """The first value has other rows than the body states, and an iteration leaves one of them."""
    body = """one = Constant<value_ints = [1]>() z = Constant<value_ints = [0]>() s = Slice(a, z, one, z) b = Neg(s)"""
    proto = loop(body, "float[M, 4] y", first=f"float[{rows}, 4] x")
    state = proto.graph.node[2].attribute[0].g.input[2].type.tensor_type
    for size in (1, 4):
        state.shape.dim.add().dim_value = size
    before, after = inside(importer.read(proto))
    assert before.shape[1] == after.shape[1] == 4
    assert before.shape[0] not in (1, 3)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for tool in (rewrite.optimize(proto).model, proto):
        session = onnxruntime.InferenceSession(tool.SerializeToString())
        np.testing.assert_array_equal(session.run(None, {"x": x, "n": np.array(1)})[0], -x[:1])


def test_an_initializer_may_be_listed_as_an_input_of_the_body() -> None:
    proto = loop("b = Add(a, w)", "float[N, 4] y")
    body = proto.graph.node[2].attribute[0].g
    body.initializer.append(onnx.numpy_helper.from_array(np.ones((1, 4), np.float32), "w"))
    body.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, (1, 4)))
    graph = importer.read(proto)
    assert str(graph.type("y")) == "f32[N, 4]"
    assert [str(t) for t in inside(graph)] == ["f32[N, 4]"] * 2


def test_a_known_rank_stays_known_beside_an_open_one() -> None:
    text = f"""{HEADER} main (float[N, 1, 4] x, bool c) => (float[N, 4] y, float[N, 4] z) {{
        k = Constant<value_ints = [1]>()
        y, z = If(c) <then_branch = yes () => (float a, float b) {{ a = Squeeze(x, k) b = Squeeze(x) }},
                      else_branch = no () => (float a2, float b2) {{ a2 = Squeeze(x, k) b2 = Squeeze(x, k) }}>
    }}"""
    graph = importer.read(onnx.parser.parse_model(text))
    assert (graph.type("y").rank, graph.type("z").rank) == (2, None)


def test_a_loop_that_never_runs_stacks_nothing() -> None:
    """ONNX Runtime gives the result the extents that the body states, if any."""
    text = f"""{HEADER} main (float[N, 4] x, int64 n16) => (float[N, 4] y, float[K, N, 4] rows) {{
        yes = Constant<value = bool {{1}}>()
        y, rows = Loop (n16, yes, x) <body = body (int64 i, bool go, float a) => (bool more, float b, float row) {{
            more = Identity(go) b = Neg(a) row = Relu(b) }}>
    }}"""
    proto = onnx.parser.parse_model(text)
    graph = proto.graph.node[1].attribute[0].g
    for value in (graph.input[2], *graph.output[1:]):
        value.type.tensor_type.ClearField("shape")
    result = rewrite.optimize(proto)
    assert check_model(proto, result.model, importer.read(proto)).ok
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    feeds = {"x": np.ones((2, 4), np.float32), "n16": np.array(0)}
    assert session.run(None, feeds)[1].size == 0
    assert rewrite.compile(proto, threads=1).run(feeds)["rows"].shape == (0, 2, 4)


def test_a_rank_that_changes_is_open() -> None:
    before, _ = inside(importer.read(loop("k = Constant<value_ints = [0]>() b = Unsqueeze(a, k)", "float y")))
    assert before.rank is None


def test_what_the_body_states_does_not_count_against_the_first_value() -> None:
    """Converters give states that no iteration reads a scalar as first value, and state the type of the result."""
    proto = loop("b = Expand(w, three_ones)", "float[3, 4] y", first="float x", more=", float[3, 4] w")
    graph = proto.graph.node[2].attribute[0].g
    graph.node.insert(0, onnx.parser.parse_node("three_ones = Constant<value_ints = [3, 1]>()"))
    for value in (graph.input[2], graph.output[1]):
        value.type.tensor_type.shape.dim.add().dim_value = 3
        value.type.tensor_type.shape.dim.add().dim_value = 4
    before, after = inside(importer.read(proto))
    assert before.rank is None
    assert after.shape == (3, 4)
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    program = rewrite.compile(proto, threads=1)
    for n in (0, 2):
        found = program.run({"x": np.float32(7), "n": np.array(n), "w": weights})["y"]
        np.testing.assert_array_equal(found, weights if n else np.float32(7))


@pytest.mark.parametrize("trips", ["three", "n"])
def test_a_loop_that_certainly_runs_has_its_results_types(trips: str) -> None:
    body = "k = Constant<value_ints = [1, 5]>() b = Expand(a, k)"
    graph = importer.read(loop(body, "float[N, M] y", first="float[N, 1] x", trips=trips))
    assert graph.type("y").shape is not None
    assert (graph.type("y").shape[1] == 5) == (trips == "three")


def test_loops_in_loops_end() -> None:
    """Each level may import its body more than once, so only a few levels try."""
    text = "b = Concat<axis = 0>(a, a)"
    for level in range(9):
        ports = f"(int64 i{level}, bool go{level}, float[K] a) => (bool more{level}, float[K] b)"
        inner = f"body = body{level} {ports} {{ more{level} = Identity(go{level}) {text} }}"
        text = f"two = Constant<value_int = 2>() b = Loop(two, go, a) <{inner}>"
    graph = importer.read(loop(text, "float[M] y", first="float[N] x"))
    assert inside(graph)[0].rank in (1, None)


def test_a_recurrence_of_unstated_shapes_runs_in_kernels() -> None:
    """As tf2onnx writes a recurrent layer: weights are carried through the loop, and results are stacked."""
    ports = "(float[T, N, 8] x, float[N, 4] h0, float[T, N, 1] mask) => (float[L, N, 4] ys, float[N, 4] h)"
    text = f"""{HEADER} main {ports} {{
        shape = Shape(x) k = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>()
        length = Slice(shape, k, one) t = Cast<to = 6>(length) last = Squeeze(t, k)
        yes = Constant<value = bool {{1}}>() zero = Constant<value = int32 {{0}}>()
        step, h, limit, u2, ys = Loop (, yes, zero, h0, last, u) <body = body (int64 i, bool go, int32 at, float hidden,
                int32 bound, float w) => (bool more, int32 next, float after, int32 bound2, float w2, float row) {{
            unit = Constant<value = int32 {{1}}>() next = Add(at, unit) more = Less(next, bound)
            piece = Gather(x, at) seen = Gather(mask, at)
            a = MatMul(piece, v) b = MatMul(hidden, w) c = Add(a, b) new = Tanh(c)
            kept = Mul(new, seen) after = Identity(kept) row = Identity(kept)
            bound2 = Identity(bound) w2 = Identity(w)
        }}>
    }}"""
    proto = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for name, shape in (("u", (4, 4)), ("v", (8, 4))):
        array = rng.standard_normal(shape).astype(np.float32) / 2
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    (node,) = (n for n in proto.graph.node if n.op_type == "Loop")
    body = node.attribute[0].g
    for value in (*body.input[2:], *body.output[1:]):
        value.type.tensor_type.ClearField("shape")
    program = rewrite.compile(proto, threads=1)
    assert program.fallbacks() == {}
    x, h, mask = (rng.standard_normal(s).astype(np.float32) for s in ((5, 2, 8), (2, 4), (5, 2, 1)))
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}
    rows = []
    for piece, seen in zip(x, mask, strict=True):
        rows.append(np.tanh(piece @ weights["v"] + (rows[-1] if rows else h) @ weights["u"]) * seen)
    found = program.run({"x": x, "h0": h, "mask": mask})
    np.testing.assert_allclose(found["ys"], np.stack(rows), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["h"], rows[-1], rtol=1e-5, atol=1e-5)
