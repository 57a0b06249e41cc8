"""The prover's meaning of operators agrees with ONNX's reference implementation on small instances."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

pytest.importorskip("z3")

import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
from rewrite.engine.operators.schemas import normalize_attrs
from rewrite.soundness.prover.paths.path import Path
from rewrite.soundness.prover.paths.step_budget import StepBudget
from rewrite.soundness.prover.paths.tensors import Leaf, Tensor
from rewrite.soundness.prover.semantics import movement
from rewrite.soundness.prover.semantics.elementwise import ALL
from rewrite.soundness.prover.semantics.semantics_registry import CONTENTS, OPERATORS, REDUCTIONS, Attrs
from rewrite.soundness.prover.terms import integers
from rewrite.soundness.prover.terms.scalars import Scalar, number

FUNCTIONS = {
    "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b, "Div": lambda a, b: a / b,
    "Neg": lambda a: -a, "Abs": abs, "Sqrt": math.sqrt, "Exp": math.exp, "Log": math.log, "Relu": lambda a: max(a, 0.0),
    "Max": max, "Min": min, "Where": lambda p, a, b: a if p else b, "Cast": lambda a: a,
    "DequantizeLinear": lambda x, s, z: (x - z) * s,
    "QuantizeLinear": lambda x, s, z: min(max(round(x / s) + z, 0), 255),
}  # fmt: skip
BIG = {"Sum": sum, "Max": max, "Min": min, "Prod": math.prod}


class Values:
    """Numbers for scalars, given arrays for what is read."""

    def __init__(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        self.path = path
        self.arrays = arrays

    def of(self, s: Scalar, env: dict[integers.Atom, int]) -> float:
        match s.op:
            case "read":
                return self.arrays[s.args[0]][tuple(self.integer(i, env) for i in s.args[1:])].item()
            case "flat":
                return self.arrays[s.args[0]].reshape(-1)[self.integer(s.args[1], env)].item()
            case "const":
                return float(s.args[0]) if isinstance(s.args[0], (str, Fraction)) else s.args[0]
            case "int":
                return self.integer(s.args[0], env)
            case "ite":
                return self.of(s.args[1 if self.holds(s.args[0], env) else 2], env)
            case "big":
                return BIG[s.args[0]](list(self.each(s.args[1], s.args[2], env)))
        if s.args[0] == "index of":
            which, variables, body = s.args[2].args
            values = list(self.each(variables, body, env))
            best = (max if which.endswith("Max") else min)(values)
            return values.index(best) if which.startswith("First") else len(values) - 1 - values[::-1].index(best)
        return FUNCTIONS[s.args[0]](*(self.of(a, env) for a in s.args[2:]))

    def each(self, variables: tuple[integers.Atom, ...], body: Scalar, env: dict[integers.Atom, int]) -> Any:
        ranges = [range(self.integer(self.path.bounds[a].extent, env)) for a in variables]
        for values in itertools.product(*ranges):
            yield self.of(body, {**env, **dict(zip(variables, values, strict=True))})

    def integer(self, value: integers.Int, env: dict[integers.Atom, int]) -> int:
        value = integers.substitute(self.path.normal(value), env)
        assert isinstance(value, int), value
        return value

    def holds(self, cond: integers.Bool, env: dict[integers.Atom, int]) -> bool:
        found = integers.map_cond(cond, lambda v: self.integer(v, env))
        assert isinstance(found, bool)
        return found


def computed(op: str, attrs: dict[str, Any], inputs: list[np.ndarray | None]) -> list[np.ndarray]:
    """The outputs of an operator by the prover's meaning of it."""
    path = Path([], StepBudget(60), {}, 6)
    arrays: dict[str, np.ndarray] = {}
    tensors: list[Tensor | None] = []
    for i, array in enumerate(inputs):
        if array is None:
            tensors.append(None)
        elif i in CONTENTS.get(op, ()) or (op in ("Gather", "GatherElements") and i == 1):
            flat = movement.listed(path, [int(v) for v in array.reshape(-1)])
            tensors.append(movement.reshaped(path, flat, array.shape) if array.ndim != 1 else flat)
        else:
            name = f"x{i}"
            leaf = Leaf(path, name, array.ndim, "bool" if array.dtype == bool else "f32")
            leaf._shape = list(array.shape)
            path.extra[("dtype of", name)] = leaf.dtype
            arrays[name] = array
            tensors.append(leaf)
    defaults = {k: list(v) if isinstance(v, tuple) else v for k, v in normalize_attrs(op, {}).items()}
    out = []
    for t in OPERATORS[op](path, Attrs(path, op, attrs, None, defaults), tensors):
        shape = t.shape
        values = Values(path, arrays)
        array = np.zeros(shape)
        for index in np.ndindex(*shape):
            array[index] = values.of(t.at(list(index)), {})
        # the same elements by place
        for place in range(math.prod(shape)):
            assert np.isclose(values.of(t.at_place(place), {}), array.reshape(-1)[place], equal_nan=True)
        out.append(array)
    assert not path.made, f"sizes are known, so there is nothing to choose: {path.log}"
    return out


def reference(op: str, attrs: dict[str, Any], inputs: list[np.ndarray | None], outputs: int) -> list[np.ndarray]:
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(inputs)]
    outs = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, outs, **attrs)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, inputs, strict=True)
        if a is not None
    ]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(o) for o in outs])
    opset = min(24, onnx.defs.onnx_opset_version())
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    feed = {n: a for n, a in zip(names, inputs, strict=True) if a is not None}
    return ReferenceEvaluator(model).run(None, feed)


RANDOM = np.random.default_rng(3)


def f(*shape: int) -> np.ndarray:
    return RANDOM.uniform(0.5, 2.0, shape).astype(np.float32)


def signed(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> np.ndarray:
    return RANDOM.integers(0, 9, shape).astype(np.uint8)


def i(*values: Any) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def scalar(value: int) -> np.ndarray:
    return np.array(value, dtype=np.int64)


CASES: list[tuple[str, dict[str, Any], list[np.ndarray | None]]] = [
    ("Identity", {}, [f(2, 3)]),
    ("Transpose", {}, [f(2, 3, 4)]),
    ("Transpose", {"perm": [1, 2, 0]}, [f(2, 3, 4)]),
    ("Transpose", {"perm": [2, 0, 3, 1]}, [f(2, 3, 4, 5)]),
    ("Reshape", {}, [f(2, 3, 4), i(4, -1)]),
    ("Reshape", {}, [f(2, 3, 4), i(0, 12)]),
    ("Reshape", {}, [f(2, 3, 4), i(0, 0, 2, 2)]),
    ("Reshape", {"allowzero": 1}, [f(0, 3), i(3, 0)]),
    ("Flatten", {"axis": 2}, [f(2, 3, 4, 2)]),
    ("Flatten", {"axis": 0}, [f(2, 3)]),
    ("Flatten", {"axis": -1}, [f(2, 3, 4)]),
    ("Squeeze", {}, [f(1, 2, 1), None][:1]),
    ("Squeeze", {}, [f(1, 2, 1), i(-1)]),
    ("Unsqueeze", {}, [f(2, 3), i(0, -1)]),
    ("Unsqueeze", {}, [f(2, 3), i(3, 1)]),
    ("Expand", {}, [f(2, 1, 3), i(4, 1, 5, 1)]),
    ("Expand", {}, [f(3, 1), i(1, 4)]),
    ("Tile", {}, [f(2, 3), i(2, 3)]),
    ("Concat", {"axis": 1}, [f(2, 3), f(2, 1), f(2, 2)]),
    ("Concat", {"axis": -2}, [f(2, 3), f(1, 3)]),
    ("Split", {"axis": 1}, [f(2, 6), i(1, 2, 3)]),
    ("Split", {"axis": -1, "num_outputs": 3}, [f(2, 7)]),
    ("Slice", {}, [f(5, 6), i(1), i(4)]),
    ("Slice", {}, [f(5, 6), i(-3, 1), i(100, -1), i(1, 0)]),
    ("Slice", {}, [f(7, 6), i(1, 0), i(7, 5), i(0, 1), i(2, 3)]),
    ("Slice", {}, [f(7, 6), i(-1, 4), i(-100, 0), i(0, 1), i(-1, -2)]),
    ("Slice", {}, [f(7), i(9), i(1), i(0), i(-3)]),
    ("Slice", {}, [f(7), i(3), i(-9), i(0), i(-2)]),
    ("Slice", {}, [f(4), i(3), i(1)]),
    ("Slice", {}, [f(4), i(-9), i(2)]),
    ("Pad", {}, [signed(2, 3), i(1, 0, 2, 1)]),
    ("Pad", {}, [signed(2, 3), i(1, 0, 0, 2), np.float32(4)]),
    ("Pad", {}, [signed(2, 3, 4), i(1, 2), np.float32(4), i(-1)]),
    ("Gather", {"axis": 1}, [f(2, 4, 3), i([0, -1], [2, 1])]),
    ("Gather", {}, [f(4, 3), scalar(-2)]),
    ("DepthToSpace", {"blocksize": 2}, [f(1, 12, 2, 3)]),
    ("DepthToSpace", {"blocksize": 2, "mode": "CRD"}, [f(2, 8, 3, 2)]),
    ("SpaceToDepth", {"blocksize": 2}, [f(1, 3, 4, 6)]),
    ("Shape", {}, [f(2, 3, 4)]),
    ("Shape", {"start": 1, "end": -1}, [f(2, 3, 4)]),
    ("Shape", {"start": -9, "end": 9}, [f(2, 3, 4)]),
    ("Size", {}, [f(2, 3, 4)]),
    ("ConstantOfShape", {}, [i(2, 3)]),
    ("Add", {}, [f(2, 1, 3), f(4, 1)]),
    ("Where", {}, [RANDOM.random((2, 3)) < 0.5, f(3), f(2, 1)]),
    ("Clip", {}, [signed(3, 4), np.float32(-0.3), np.float32(0.4)]),
    ("Clip", {}, [signed(3, 4), None, np.float32(0.4)]),
    ("Clip", {}, [signed(3, 4), np.float32(0.5), np.float32(-0.5)]),
    ("Max", {}, [f(2, 3), f(3), f(2, 1)]),
    ("ReduceSum", {}, [f(2, 3, 4), i(0, -1)]),
    ("ReduceSum", {"keepdims": 0}, [f(2, 3, 4), i(1)]),
    ("ReduceSum", {"keepdims": 0}, [f(2, 3)]),
    ("ReduceSum", {"noop_with_empty_axes": 1}, [f(2, 3)]),
    ("ReduceMean", {"keepdims": 0}, [f(2, 3, 4), i(2, 0)]),
    ("ReduceMax", {}, [signed(2, 3, 4), i(1)]),
    ("ReduceMin", {"keepdims": 0}, [signed(2, 3, 4), i(1, 2)]),
    ("ReduceProd", {}, [f(2, 3), i(1)]),
    ("ReduceL1", {}, [signed(2, 3), i(0)]),
    ("ReduceL2", {}, [signed(2, 3), i(0)]),
    ("ReduceSumSquare", {}, [signed(2, 3), i(0)]),
    ("ReduceLogSum", {}, [f(2, 3), i(1)]),
    ("ReduceLogSumExp", {}, [f(2, 3), i(1)]),
    *((op, {"noop_with_empty_axes": 1}, [f(2, 3)]) for op in REDUCTIONS),
    ("CumSum", {}, [f(2, 3, 4), scalar(1)]),
    ("CumSum", {"exclusive": 1}, [f(2, 3), scalar(-1)]),
    ("CumSum", {"reverse": 1}, [f(2, 3), scalar(0)]),
    ("CumSum", {"reverse": 1, "exclusive": 1}, [f(2, 3), scalar(1)]),
    ("ArgMax", {"axis": 1}, [signed(2, 3, 4)]),
    ("ArgMax", {"axis": -1, "keepdims": 0}, [np.array([[1, 2, 2], [3, 1, 3]], np.float32)]),
    ("ArgMin", {"axis": 1, "select_last_index": 1}, [np.array([[1, 2, 1], [3, 3, 3]], np.float32)]),
    ("TopK", {"axis": 1}, [signed(2, 3, 4), i(1)]),
    ("TopK", {"axis": 0, "largest": 0}, [signed(4, 2), i(1)]),
    ("EyeLike", {}, [f(3, 4)]),
    ("EyeLike", {"k": -1}, [f(3, 4)]),
    ("GatherElements", {"axis": 1}, [f(2, 4), i([0, -1, 3], [2, 1, -4])]),
    ("GatherElements", {"axis": 0}, [f(3, 2), i([0, -1])]),
    ("ConvTranspose", {}, [f(2, 3, 4), f(3, 2, 2)]),
    ("ConvTranspose", {"strides": [2, 1], "pads": [1, 0, 0, 1], "dilations": [1, 2]},
     [f(1, 2, 3, 4), f(2, 3, 2, 2), f(3)]),
    ("ConvTranspose", {"strides": [3], "output_padding": [1]}, [f(1, 1, 3), f(1, 2, 2)]),
    ("DequantizeLinear", {}, [u8(2, 3), np.float32(0.5)]),
    ("DequantizeLinear", {"axis": 1}, [u8(2, 3, 2), f(3), u8(3)]),
    ("DequantizeLinear", {"axis": 1, "block_size": 2}, [u8(2, 5), f(2, 3), u8(2, 3)]),
    ("QuantizeLinear", {}, [signed(2, 3), np.float32(0.25), np.uint8(7)]),
    ("QuantizeLinear", {"axis": 0}, [signed(2, 3), f(2), u8(2)]),
    ("GlobalAveragePool", {}, [f(2, 3, 4, 5)]),
    ("GlobalMaxPool", {}, [signed(2, 3, 4, 2)]),
    ("Einsum", {"equation": "ij,jk->ki"}, [f(2, 3), f(3, 4)]),
    ("Einsum", {"equation": "abc, cb"}, [f(2, 3, 4), f(4, 3)]),
    ("Einsum", {"equation": "ij->"}, [f(2, 3)]),
    ("Einsum", {"equation": "bi,bj,ij->b"}, [f(2, 3), f(2, 4), f(3, 4)]),
    ("Softmax", {"axis": 1}, [signed(2, 3, 4)]),
    ("LogSoftmax", {"axis": -1}, [signed(2, 3)]),
    ("LayerNormalization", {"axis": -1}, [signed(2, 3, 4), f(4), f(4)]),
    ("LayerNormalization", {"axis": 1, "epsilon": 0.1}, [signed(2, 3, 4), f(3, 4)]),
    ("RMSNormalization", {"axis": -1, "epsilon": 0.1}, [signed(2, 3), f(3)]),
    ("InstanceNormalization", {"epsilon": 0.1}, [signed(2, 3, 4), f(3), f(3)]),
    ("GroupNormalization", {"epsilon": 0.1, "num_groups": 2}, [signed(2, 4, 3), f(4), f(4)]),
    ("BatchNormalization", {"epsilon": 0.1}, [signed(2, 3, 4), f(3), f(3), f(3), f(3)]),
    ("MatMul", {}, [f(2, 3), f(3, 4)]),
    ("MatMul", {}, [f(3), f(3, 4)]),
    ("MatMul", {}, [f(2, 3), f(3)]),
    ("MatMul", {}, [f(3), f(3)]),
    ("MatMul", {}, [f(5, 1, 2, 3), f(4, 3, 2)]),
    ("MatMul", {}, [f(3), f(2, 3, 4)]),
    ("Gemm", {}, [f(2, 3), f(3, 4), f(4)]),
    ("Gemm", {"alpha": 2.0, "beta": 0.5, "transA": 1, "transB": 1}, [f(3, 2), f(4, 3), f(2, 1)]),
    ("Gemm", {"transA": 1}, [f(3, 2), f(3, 4)]),
    ("Conv", {}, [f(1, 2, 5, 4), f(3, 2, 3, 2)]),
    ("Conv", {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}, [f(1, 2, 5, 4), f(3, 2, 3, 2), f(3)]),
    ("Conv", {"group": 2, "pads": [1, 1]}, [f(2, 4, 5), f(6, 2, 3)]),
    ("Conv", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, [f(1, 1, 5, 4), f(1, 1, 2, 3)]),
    ("Conv", {"auto_pad": "SAME_LOWER", "strides": [1, 2]}, [f(1, 1, 5, 4), f(1, 1, 2, 3)]),
    ("Conv", {"auto_pad": "VALID"}, [f(1, 1, 5, 4), f(1, 1, 2, 3)]),
    ("MaxPool", {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "strides": [1, 2]}, [signed(1, 2, 4, 5)]),
    ("MaxPool", {"kernel_shape": [2], "dilations": [2]}, [signed(1, 2, 6)]),
    ("AveragePool", {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "strides": [1, 2]}, [signed(1, 2, 4, 5)]),
    ("AveragePool", {"kernel_shape": [2], "pads": [1, 0], "count_include_pad": 1}, [signed(1, 2, 6)]),
]  # fmt: skip


@pytest.mark.parametrize(("op", "attrs", "inputs"), CASES, ids=[f"{k}-{c[0]}" for k, c in enumerate(CASES)])
def test_the_meaning_agrees_with_the_reference(op: str, attrs: dict[str, Any], inputs: list[np.ndarray | None]) -> None:
    count = {"Split": 3, "TopK": 2}.get(op, 1)
    expected = reference(op, attrs, inputs, count)
    found = computed(op, attrs, inputs)
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.shape == np.asarray(theirs).shape
        np.testing.assert_allclose(mine, np.asarray(theirs, dtype=np.float64), rtol=2e-5, atol=1e-6)


def test_every_operator_is_compared_with_the_reference() -> None:
    tried = {op for op, _, _ in CASES} | set(ALL)  # elementwise operators are functions of their name
    elsewhere = {op for chain, _ in CHAINS for op, _ in chain} | {"GlobalLpPool"}
    assert set(OPERATORS) <= tried | elsewhere


def test_a_transposed_convolution_in_groups_is_one_for_each_group() -> None:
    x, w, b = signed(1, 4, 3, 2), signed(4, 3, 2, 2), signed(6)  # ONNX's reference does not compute it
    (found,) = computed("ConvTranspose", {"group": 2, "strides": [2, 1]}, [x, w, b])
    parts = [[x[:, :2], w[:2], b[:3]], [x[:, 2:], w[2:], b[3:]]]
    expected = [computed("ConvTranspose", {"strides": [2, 1]}, part)[0] for part in parts]
    np.testing.assert_allclose(found, np.concatenate(expected, axis=1), rtol=1e-6)


@pytest.mark.parametrize("power", [1, 2])
def test_a_global_norm_is_that_of_each_image(power: int) -> None:
    x = signed(2, 3, 4, 2)  # ONNX's reference does not compute it
    (found,) = computed("GlobalLpPool", {"p": power}, [x])
    np.testing.assert_allclose(found, np.linalg.norm(x.reshape(2, 3, 8), power, 2)[..., None, None], rtol=1e-5)


# operators with the numbers of their inputs: 0 and 1 are tensors, 2 a position, the others results of operators before
CHAINS = [
    ([("SequenceConstruct", (0, 1, 1)), ("SequenceAt", (3, 2))], -2),
    ([("SequenceConstruct", (0, 1, 1)), ("SequenceErase", (3, 2)), ("SequenceLength", (4,))], 0),
    ([("SequenceConstruct", (0, 0, 1)), ("SequenceErase", (3, 2)), ("SequenceAt", (4, 2))], 1),
    ([("SequenceConstruct", (1, 0)), ("SequenceErase", (3,)), ("SequenceAt", (4, 2))], 0),
    ([("SequenceConstruct", (0,)), ("SequenceInsert", (3, 1)), ("SequenceAt", (4, 2))], 1),
    ([("Optional", (0,)), ("OptionalHasElement", (3,))], 0),
    ([("Optional", (1,)), ("OptionalGetElement", (3,)), ("Identity", (4,))], 0),
]


@pytest.mark.parametrize(("chain", "position"), CHAINS)
def test_sequences_agree_with_the_reference(chain: list[tuple[str, tuple[int, ...]]], position: int) -> None:
    arrays = {"x0": f(2, 3), "x1": f(2, 3), "x2": np.int64(position)}
    path = Path([], StepBudget(60), {}, 6)
    leaves = [Leaf(path, name, 2, "f32") for name in ("x0", "x1")]
    for leaf in leaves:
        leaf._shape = [2, 3]
    at = Tensor(path, [], lambda index: number(position), dtype="i64")
    values: list[Tensor] = [*leaves, at]
    for op, inputs in chain:
        values += OPERATORS[op](path, Attrs(path, op, {}, None, {}), [values[k] for k in inputs])
    found = np.zeros(values[-1].shape)
    for index in np.ndindex(*found.shape):
        found[index] = Values(path, arrays).of(values[-1].at(list(index)), {})
    nodes = [helper.make_node(op, [f"x{k}" for k in ins], [f"x{n}"]) for n, (op, ins) in enumerate(chain, start=3)]
    types = {name: helper.np_dtype_to_tensor_dtype(a.dtype) for name, a in arrays.items()}
    infos = [helper.make_tensor_value_info(name, types[name], a.shape) for name, a in arrays.items()]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_empty_tensor_value_info(nodes[-1].output[0])])
    (expected,) = ReferenceEvaluator(helper.make_model(graph)).run(None, arrays)
    # ONNX's reference wraps the element of an optional
    np.testing.assert_allclose(found, np.asarray(expected, dtype=np.float64).reshape(found.shape), rtol=1e-6)


@pytest.mark.parametrize(
    "pads", [(-1, 0, 0, -2), (-1, -1, -1, -1), (2, -1, -3, 1), (-2, 3, 1, -3), (-3, 0, 1, 0), (0, -4, 2, 2)]
)
def test_padding_below_zero_cuts_off(pads: tuple[int, ...]) -> None:
    # ONNX's reference does not compute it, the runtime does
    onnxruntime = pytest.importorskip("onnxruntime")
    x, value = f(4, 5), np.array(9, np.float32)
    graph = helper.make_graph(
        [helper.make_node("Pad", ["x", "p", "v"], ["y"])], "pad",
        [helper.make_tensor_value_info("x", 1, [4, 5]), helper.make_tensor_value_info("p", 7, [4]),
         helper.make_tensor_value_info("v", 1, [])],
        [helper.make_tensor_value_info("y", 1, None)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    run = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = run.run(None, {"x": x, "p": i(*pads), "v": value})
    (found,) = computed("Pad", {}, [x, i(*pads), value])
    np.testing.assert_array_equal(found, expected)
