"""What decides how often a loop runs, and rules that replace loops whose number of iterations only a run tells."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import rewrite
from rewrite.engine.egraph.loop_lengths import length_key
from rewrite.engine.ir.graph import Graph, Node
from rewrite.engine.onnx_io import importer
from rewrite.engine.optimizer import optimize

HEADER = '<ir_version: 9, opset_import: ["" : 18]>'


def body(text: str, states: str, results: str, before: str = "") -> Graph:
    """Return the body of a Loop without a number of iterations; `c` is captured."""
    proto = onnx.parser.parse_model(f"""{HEADER} main (float[4] x, float[4] w, int32 s, bool c) => (float[K, 4] ys) {{
        {before} {results} = Loop (, c, {states}) <body = body (int64 i, bool go, {text}>
    }}""")
    (found,) = (body for node in importer.read(proto).nodes for _, body in node.subgraphs())
    return found


COUNTED = body(
    """int32 at, float[4] a, float[4] u) => (bool more, int32 next, float[4] b, float[4] u2, float[4] row) {
        ten = Constant<value = int32 {10}>() one = Constant<value = int32 {1}>() next = Add(at, one)
        more = Less(next, ten) b = Mul(a, u) u2 = Identity(u) row = Neg(b) }""",
    "s, x, w", "n, y, v, ys",
)  # fmt: skip
SMALLER = body(
    """float[4] a, int32 at) => (bool more, float[4] b, int32 next, float[4] row) {
        ten = Constant<value = int32 {10}>() one = Constant<value = int32 {1}>() next = Add(at, one)
        b = Mul(a, w) row = Neg(b) more = Less(next, ten) }""",
    "x, s", "y, n, ys",
)  # fmt: skip
LONGER = body(
    """float[4] a, int32 at) => (bool more, float[4] b, int32 next, float[4] row) {
        ten = Constant<value = int32 {11}>() one = Constant<value = int32 {1}>() next = Add(at, one)
        b = Mul(a, w) row = Neg(b) more = Less(next, ten) }""",
    "x, s", "y, n, ys",
)  # fmt: skip


def test_the_count_and_its_first_value_decide() -> None:
    count, condition, x, w, s = range(1, 6)
    key = length_key(COUNTED, {}, (count, condition, s, x, w))
    assert key is not None
    assert length_key(SMALLER, {"w": w}, (count, condition, x, s)) == key
    assert length_key(LONGER, {"w": w}, (count, condition, x, s)) != key
    assert length_key(SMALLER, {"w": w}, (count, condition, x, s + 1)) != key
    assert length_key(SMALLER, {"w": w}, (count + 1, condition, x, s)) != key
    assert length_key(SMALLER, {"w": w}, (count, condition + 1, x, s)) != key
    assert length_key(SMALLER, {"w": w}, (count, condition, x + 1, s)) == key


def test_a_state_that_no_iteration_changes_counts_as_captured() -> None:
    carried = body(
        """int32 at, int32 bound) => (bool more, int32 next, int32 b, float[4] row) {
            one = Constant<value = int32 {1}>() next = Add(at, one) more = Less(next, bound)
            b = Identity(bound) row = Identity(x) }""", "s, t", "n, m, ys", "t = Add(s, s)",
    )  # fmt: skip
    captured = body(
        """int32 at) => (bool more, int32 next, float[4] row) {
            one = Constant<value = int32 {1}>() next = Add(at, one) more = Less(next, t) row = Identity(x) }""",
        "s", "n, ys", "t = Add(s, s)",
    )  # fmt: skip
    s, t, x = 5, 6, 7
    key = length_key(carried, {"x": x}, (0, 1, s, t))
    assert length_key(captured, {"x": x, "t": t}, (0, 1, s)) == key
    assert length_key(captured, {"x": x, "t": s}, (0, 1, s)) != key


def test_the_number_of_parts_of_a_split_decides() -> None:
    def split(parts: int) -> Graph:
        nodes = [
            Node("Split", ("a",), tuple(f"p{i}" for i in range(parts)), {"axis": 0}),
            Node("Less", ("p0", "p1"), ("more",)),
            Node("Neg", ("a",), ("b",)),
        ]
        return Graph(inputs=("i", "go", "a"), outputs=("more", "b"), nodes=nodes)

    assert length_key(split(2), {}, (0, 1, 2)) == length_key(split(2), {}, (0, 1, 2)) is not None
    assert length_key(split(2), {}, (0, 1, 2)) != length_key(split(3), {}, (0, 1, 2))


def test_random_numbers_decide_nothing_that_can_be_compared() -> None:
    random = body(
        """float[4] a) => (bool more, float[4] b, float[4] row) {
            r = RandomUniform<shape = [1]>() k = Constant<value_ints = [0]>() z = Squeeze(r, k)
            half = Constant<value_float = 0.5>() more = Less(z, half) b = Neg(a) row = Identity(b) }""",
        "x", "y, ys",
    )  # fmt: skip
    assert length_key(random, {}, (0, 1, 2)) is None


def test_weights_that_a_loop_of_unknown_length_carries_are_captured() -> None:
    """Its stacked results have a length that only a run tells, and a rule replaces the loop nevertheless."""
    proto = onnx.parser.parse_model(f"""{HEADER} main (float[1, 4] x, int32 s) => (float[K, 1, 4] ys, float[1, 4] y) {{
        w = Constant<value = float[4, 4] {{{", ".join(f"{0.1 * (i % 5)}" for i in range(16))}}}>()
        yes = Constant<value = bool {{1}}>()
        n, y, v, ys = Loop (, yes, s, x, w) <body = body (int64 i, bool go, int32 at, float[1, 4] a, float[4, 4] u)
            => (bool more, int32 next, float[1, 4] b, float[4, 4] u2, float[1, 4] row) {{
            ten = Constant<value = int32 {{10}}>() one = Constant<value = int32 {{1}}>() next = Add(at, one)
            more = Less(next, ten) p = MatMul(a, u) b = Tanh(p) u2 = Identity(u) row = Neg(b)
        }}>
    }}""")
    (inner,) = (body for node in importer.read(optimize(proto).model).nodes for _, body in node.subgraphs())
    assert len(inner.inputs) == 4
    x = np.ones((1, 4), np.float32)
    program = rewrite.compile(proto, threads=1)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for s in (3, 9, 12):
        feeds = {"x": x, "s": np.array(s, np.int32)}
        for name, expected in zip(("ys", "y"), session.run(None, feeds), strict=True):
            np.testing.assert_allclose(program.run(feeds)[name], expected, rtol=1e-5)
