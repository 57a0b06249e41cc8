"""Sequences and optionals that a model makes itself dissolve; bits of elements are taken for others where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import rewrite
from rewrite.backend.ir.kernel_graph import Step
from rewrite.engine.operators.reference_runtime import onnx_runtime

RNG = np.random.default_rng(53)
BODIES = {
    "at": "i = Constant<value_int = 1>() s = SequenceConstruct(x, r) y = SequenceAt(s, i)",
    "last": "i = Constant<value_int = -1>() s = SequenceConstruct(x, r) y = SequenceAt(s, i)",
    "append": "i = Constant<value_int = 1>() s = SequenceConstruct(x) t = SequenceInsert(s, r) y = SequenceAt(t, i)",
    "erase": "i = Constant<value_int = 0>() s = SequenceConstruct(x, r) t = SequenceErase(s, i) y = SequenceAt(t, i)",
    "erase_last": "i = Constant<value_int = 0>() s = SequenceConstruct(x, r) t = SequenceErase(s) y = SequenceAt(t, i)",
    "length": "s = SequenceConstruct(x, r) n = SequenceLength(s) f = Cast<to = 1>(n) y = Mul(x, f)",
    "split": """k = Constant<value_int = 1>() i = Constant<value_int = 2>() s = SplitToSequence<axis = 1>(x, k)
                p = SequenceAt(s, i) y = Add(p, r)""",
    "parts": """k = Constant<value_int = 2>() i = Constant<value_int = 1>() s = SplitToSequence<axis = 1>(x, k)
                p = SequenceAt(s, i) y = Add(p, r)""",
    "sizes": """k = Constant<value_ints = [2, 1]>() i = Constant<value_int = -1>() s = SplitToSequence<axis = 1>(x, k)
                p = SequenceAt(s, i) y = Add(p, r)""",
    "free sizes": """o = Constant<value_ints = [1]>() n = Shape<end = 1>(x) m = Sub(n, o) k = Concat<axis = 0>(o, m)
                i = Constant<value_int = 0>() s = SplitToSequence<axis = 0>(x, k) p = SequenceAt(s, i) y = Add(p, r)""",
    "slices": """i = Constant<value_int = -2>() s = SplitToSequence<axis = 1, keepdims = 0>(x) p = SequenceAt(s, i)
                a = Constant<value_ints = [1]>() u = Unsqueeze(p, a) y = Add(u, r)""",
    "constants": """c = Constant<value = float[4] {1, 2, 3, 4}>() k = Constant<value_int = 3>()
                i = Constant<value_int = 1>() s = SplitToSequence<axis = 0>(c, k) p = SequenceAt(s, i) y = Add(p, r)""",
    "different": """i = Constant<value_int = 1>() k = Constant<value_int = 1>() t = SplitToSequence<axis = 1>(x, k)
                p = SequenceAt(t, k) s = SequenceConstruct(p, x) q = SequenceAt(s, i) y = Add(q, r)""",
    "concat": """s = SequenceConstruct(x, r) c = ConcatFromSequence<axis = -1>(s) p = ReduceMax<axes = [1]>(c)
                y = Add(p, r)""",
    "stack": """a = Constant<value_ints = [-1]>() s = SequenceConstruct(x, r)
                c = ConcatFromSequence<axis = -1, new_axis = 1>(s) y = ReduceSum<keepdims = 0>(c, a)""",
    "grown": """i = Constant<value_int = 0>() j = Constant<value_int = -1>() e = SequenceEmpty()
                f = SequenceInsert(e, x) g = SequenceInsert(f, r, i) n = Neg(x) s = SequenceInsert(g, n, j)
                c = ConcatFromSequence<axis = 0, new_axis = 1>(s) k = Constant<value_int = 1>()
                m = Gather(c, k) p = ReduceMax<axes = [0], keepdims = 0>(c) y = Add(m, p)""",
    "joined": """k = Constant<value_int = 2>() s = SplitToSequence<axis = 1>(x, k) t = ConcatFromSequence<axis = 1>(s)
                y = Add(t, r)""",
    "turned": """s = SplitToSequence<axis = 1, keepdims = 0>(x) t = ConcatFromSequence<axis = 0, new_axis = 1>(s)
                u = Transpose(t) y = Add(u, r)""",
    "element": "o = Optional(x) e = OptionalGetElement(o) y = Add(e, r)",
    "has": "o = Optional(x) h = OptionalHasElement(o) y = Where(h, x, r)",
}


@pytest.mark.parametrize("name", BODIES)
def test_members_of_known_sequences_are_read_directly(name: str) -> None:
    ports, body = "(float[N, 3] x) => (float[N, 3] y)", f"r = Relu(x) {BODIES[name]}"
    text = f'<ir_version: 9, opset_import: ["": 17]> g {ports} {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    program = rewrite.compile(proto, threads=1)
    assert program.fallbacks() == {}
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    np.testing.assert_array_equal(program.run({"x": x})["y"], onnx_runtime(proto).run({"x": x})["y"])


def test_a_sequence_of_either_branch_has_no_known_members() -> None:
    """Parts of 1 and 2, or of 2 and 1: what the branches return has one ONNX type, but other members."""
    body = """k = Constant<value_ints = [1, 2]>() l = Constant<value_ints = [2, 1]>() i = Constant<value_int = 0>()
        s = If(c) <then_branch = yes () => (seq(float) a) { a = SplitToSequence<axis = 1>(x, k) },
                   else_branch = no () => (seq(float) b) { b = SplitToSequence<axis = 1>(x, l) }>
        p = SequenceAt(s, i) y = Relu(p)"""
    text = f'<ir_version: 9, opset_import: ["": 17]> g (float[N, 3] x, bool c) => (float[N, M] y) {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    program = rewrite.compile(proto, threads=1)
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    for c in (True, False):
        found = program.run({"x": x, "c": np.array(c)})["y"]
        np.testing.assert_array_equal(found, np.maximum(x[:, : 1 if c else 2], 0))


@pytest.mark.parametrize(("source", "target"), [
    ("float", np.int32), ("double", np.int64), ("float16", np.int16), ("int32", np.float32), ("uint8", np.int8),
    ("int64", np.float64), ("bool", np.uint8),
])  # fmt: skip
def test_bits_are_taken_for_other_elements_where_they_lie(source: str, target: Any) -> None:
    """Those of f16 are the model's, though it is computed in f32."""
    to = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(target))
    name = onnx.TensorProto.DataType.Name(to).lower()
    ports, body = f"({source}[N, 3] x) => ({name}[N, 3] y)", f"y = BitCast<to = {to}>(x)"
    text = f'<ir_version: 13, opset_import: ["": 26]> g {ports} {{ {body} }}'
    program = rewrite.compile(onnx.parser.parse_model(text), threads=1)
    assert program.fallbacks() == {}
    assert not [item for item in program.plan.items if isinstance(item, Step)]
    x = (RNG.standard_normal((2, 3)) * 3).astype({"float": "f4", "double": "f8", "float16": "f2"}.get(source, source))
    found = program.run({"x": x})["y"]
    assert found.dtype == target
    assert found.tobytes() == x.tobytes()


def test_any_byte_is_not_a_boolean() -> None:
    text = '<ir_version: 13, opset_import: ["": 26]> g (uint8[3] x) => (bool[3] y) { y = BitCast<to = 9>(x) }'
    with pytest.warns(UserWarning, match="no native kernel for BitCast"):
        rewrite.compile(onnx.parser.parse_model(text), threads=1)
