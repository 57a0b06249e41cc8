"""Folding against ONNX Runtime, operator by operator.

Length: one case for each operator, over the same oracle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from rewrite.engine.ir.graph import Constant, DType
from rewrite.engine.operators.folding import compute, evaluate, run_reference, supports
from rewrite.engine.operators.folding.float64_kernels import FLOAT64_KERNELS
from rewrite.engine.operators.schemas import normalize_attrs

R = np.random.default_rng(0)
F = np.float32
NIBBLES = np.arange(-8, 8).astype(ml_dtypes.int4)


def f(*shape: int) -> np.ndarray[Any, Any]:
    return R.standard_normal(shape).astype(F)


def i(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


def oracle(op: str, attrs: dict[str, Any], arrays: Sequence[Any], outputs: int) -> list[Any]:
    names = ["" if a is None else f"i{k}" for k, a in enumerate(arrays)]
    plain = {k: onnx.numpy_helper.from_array(v.array) if isinstance(v, Constant) else v for k, v in attrs.items()}
    node = onnx.helper.make_node(op, names, [f"o{k}" for k in range(outputs)], **plain)
    infos = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, arrays, strict=True)
        if n
    ]
    outs = [onnx.ValueInfoProto(name=o) for o in node.output]
    graph = onnx.helper.make_graph([node], "g", infos, outs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {n: a for n, a in zip(names, arrays, strict=True) if n}))


BYTES = np.arange(10, dtype=np.uint8).reshape(2, 5)
INTS = i(7, -7, 7, -7, 0)
CASES: list[tuple[str, dict[str, Any], list[Any], int]] = [
    ("Add", {}, [f(2, 3), f(3)], 1),
    ("Add", {}, [np.array(2**31 - 1, np.int32), np.array(1, np.int32)], 1),
    ("Sub", {}, [f(2, 1), f(1, 3)], 1),
    ("Mul", {}, [f(), f(4)], 1),
    ("Div", {}, [INTS, i(2, 2, -2, -2, 5)], 1),
    ("Div", {}, [f(3), np.array([0, -0.0, 2], F)], 1),
    ("Mod", {}, [INTS, i(3, 3, -3, -3, 5)], 1),
    ("Mod", {"fmod": 1}, [INTS, i(3, 3, -3, -3, 5)], 1),
    ("Mod", {"fmod": 1}, [np.array([5.5, -5.5], F), np.array([2, 2], F)], 1),
    ("Pow", {}, [np.array([2, 3, -2], F), i(3, 2, 3)], 1),
    ("Pow", {}, [i(2, 3), i(10, 4)], 1),
    ("Min", {}, [f(2, 3), f(3), f(1)], 1),
    ("Max", {}, [np.array([np.nan, 1], F), np.array([0, 2], F)], 1),
    ("Sum", {}, [f(2), f(2), f(2)], 1),
    ("BitwiseAnd", {}, [np.array([1, 250, 77], np.uint8), np.array([15], np.uint8)], 1),
    ("BitwiseXor", {}, [np.array([1, -2, 77], np.int32), np.array(9, np.int32)], 1),
    ("BitShift", {"direction": "RIGHT"}, [np.array([1, 250, 77], np.uint8), np.array(4, np.uint8)], 1),
    ("BitShift", {"direction": "LEFT"}, [np.array([1, 250, 77], np.uint8), np.array([1, 0, 7], np.uint8)], 1),
    ("DequantizeLinear", {}, [np.array([[1, 250], [77, 3]], np.uint8), f(), np.array(9, np.uint8)], 1),
    ("DequantizeLinear", {"axis": 0}, [np.array([[1, -9], [77, 3]], np.int8), f(2)], 1),
    ("DequantizeLinear", {"axis": 1, "block_size": 2}, [BYTES, f(2, 3), np.array([[1, 2, 3], [4, 5, 6]], np.uint8)], 1),
    ("Mean", {}, [f(2), f(2)], 1),
    ("Equal", {}, [i(1, 2), i(1, 3)], 1),
    ("GreaterOrEqual", {}, [np.array([1, np.nan], F), np.array([1, 1], F)], 1),
    ("Where", {}, [np.array([True, False]), f(2, 2), f(2)], 1),
    ("Not", {}, [np.array([True, False])], 1),
    ("Neg", {}, [i(3, -4)], 1),
    ("Abs", {}, [f(3)], 1),
    ("Sign", {}, [np.array([-2, 0, 3], F)], 1),
    ("Round", {}, [np.array([0.5, 1.5, -0.5, 2.3], F)], 1),
    ("Sqrt", {}, [np.array([4, 2, -1, 0], F)], 1),
    ("Exp", {}, [f(5)], 1),
    ("Log", {}, [np.abs(f(5))], 1),
    ("Erf", {}, [f(5)], 1),
    ("Sigmoid", {}, [np.array([-90, -1, 0, 1, 90], F)], 1),
    ("Tanh", {}, [f(5)], 1),
    ("Reciprocal", {}, [f(5)], 1),
    ("Relu", {}, [f(5)], 1),
    ("Clip", {}, [f(5), np.array(-0.5, F), None], 1),
    ("Cast", {"to": 7}, [np.array([1.9, -1.9, 0.5], F)], 1),
    ("Cast", {"to": 2}, [np.array([300, -1], np.int32)], 1),
    ("Cast", {"to": 9}, [np.array([0, -0.0, 0.1], F)], 1),
    ("Cast", {"to": 10}, [f(5)], 1),
    ("Cast", {"to": 1}, [i(2**53 + 1, -3)], 1),
    ("CastLike", {}, [f(3), i(1)], 1),
    ("Gather", {"axis": 1}, [f(2, 3, 2), np.array([[0, -1], [2, -3]])], 1),
    ("GatherElements", {"axis": 0}, [f(3, 2), np.array([[0, -1], [-2, 1]])], 1),
    ("GatherElements", {"axis": 1}, [f(3, 4), np.array([[0, -1], [-2, 1]])], 1),
    ("Slice", {}, [f(5, 6), i(1, -1), i(4, -100), i(0, 1), i(1, -2)], 1),
    ("Slice", {}, [f(5, 6), i(-100), i(100), i(1)], 1),
    ("Slice", {}, [f(5), i(3), i(1)], 1),
    ("Slice", {}, [f(5), i(100), i(-100), i(0), i(-1)], 1),
    ("Unsqueeze", {}, [f(2, 3), i(0, -1)], 1),
    ("Squeeze", {}, [f(1, 3, 1), i(-1)], 1),
    ("Squeeze", {}, [f(1, 3, 1)], 1),
    ("Reshape", {}, [f(2, 3, 4), i(0, -1)], 1),
    ("Flatten", {"axis": -1}, [f(2, 3, 4)], 1),
    ("Concat", {"axis": -1}, [f(2, 3), f(2, 1)], 1),
    ("Split", {"axis": 1, "num_outputs": 3}, [f(2, 7)], 3),
    ("Split", {"axis": -1}, [f(2, 7), i(2, 5)], 2),
    ("Expand", {}, [f(3, 1), i(2, 1, 4)], 1),
    ("Tile", {}, [f(2, 1), i(2, 3)], 1),
    ("ConstantOfShape", {"value": Constant(np.array([7]))}, [i(2, 3)], 1),
    ("ConstantOfShape", {}, [i(2, 0)], 1),
    ("Range", {}, [np.array(2), np.array(11), np.array(4)], 1),
    ("Range", {}, [np.array(5), np.array(-1), np.array(-2)], 1),
    ("Range", {}, [np.array(5), np.array(5), np.array(2)], 1),
    ("Range", {}, [np.array(0, F), np.array(1, F), np.array(0.3, F)], 1),
    ("Pad", {}, [f(2, 3), i(1, 0, 0, 2), np.array(9, F)], 1),
    ("Pad", {}, [f(4, 3), i(-1, 1, -1, 0)], 1),
    ("Pad", {}, [f(2, 3), i(1, 2), None, i(-1)], 1),
    ("Pad", {"mode": "reflect"}, [f(3, 4), i(1, 2, 0, 1)], 1),
    ("Pad", {"mode": "edge"}, [f(3, 4), i(1, 2, 0, 1)], 1),
    ("Transpose", {}, [f(2, 3, 4)], 1),
    ("Transpose", {"perm": (1, 2, 0)}, [f(2, 3, 4)], 1),
    ("Shape", {"start": -2}, [f(2, 3, 4)], 1),
    ("Shape", {"start": 0, "end": -1}, [f(2, 3, 4)], 1),
    ("Size", {}, [f(2, 3)], 1),
    ("Trilu", {"upper": 0}, [f(3, 3), np.array(-1)], 1),
    ("ReduceSum", {}, [f(2, 3, 4), i(-1)], 1),
    ("ReduceSum", {"keepdims": 0}, [f(2, 3, 4)], 1),
    ("ReduceMean", {"keepdims": 0}, [f(2, 3, 4), i(0, 2)], 1),
    ("ReduceMax", {}, [i(3, 9, -2)], 1),
    ("ReduceProd", {"keepdims": 0}, [i(3, 9, -2), i(0)], 1),
    ("ReduceL2", {}, [f(3, 4), i(1)], 1),
    ("ReduceSumSquare", {}, [f(3, 4), i(1)], 1),
    ("MatMul", {}, [f(2, 3, 4), f(4, 5)], 1),
    ("Gemm", {"alpha": 0.5, "transB": 1}, [f(2, 3), f(4, 3), f(4)], 1),
    ("Einsum", {"equation": "ij,jk->ik"}, [f(2, 3), f(3, 4)], 1),
    # by the reference implementation
    ("Softmax", {"axis": -1}, [f(2, 3)], 1),
    ("CumSum", {}, [f(4), np.array(0)], 1),
    ("OneHot", {}, [i(0, 2), np.array(3), np.array([0, 1], F)], 1),
    ("NonZero", {}, [np.array([0, 3, 0, 1])], 1),
    ("TopK", {}, [f(5), i(2)], 2),
    ("ScatterND", {}, [f(4), np.array([[1], [3]]), f(2)], 1),
    ("LayerNormalization", {}, [f(2, 4), f(4), f(4)], 1),
]


@pytest.mark.parametrize(("op", "attrs", "arrays", "outputs"), CASES, ids=[f"{k}-{c[0]}" for k, c in enumerate(CASES)])
def test_as_onnx_runtime(op: str, attrs: dict[str, Any], arrays: list[Any], outputs: int) -> None:
    before = [None if a is None else a.copy() for a in arrays]
    found = evaluate(op, normalize_attrs(op, attrs), arrays, outputs)
    expected = oracle(op, attrs, arrays, outputs)
    assert found is not None
    assert len(found) == outputs
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-6 if a.dtype == F else 1e-3, atol=1e-7)
    for a, b in zip(arrays, before, strict=True):
        if a is not None:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("op", "attrs", "arrays"),
    [
        ("Div", {}, [i(1), i(0)]),
        ("Mod", {}, [i(1), i(0)]),
        ("Cast", {"to": 6}, [np.array([1e10], F)]),
        ("Cast", {"to": 7}, [np.array([np.nan], F)]),
        ("Cast", {"to": 7}, [np.array([2.0**63], np.float64)]),
        ("Gather", {}, [f(3), i(3)]),
        ("Reshape", {}, [f(3), i(2)]),
        ("Add", {}, [f(2), f(3)]),
        ("Add", {}, [f(2), i(1, 2)]),
        ("Squeeze", {}, [f(2), i(0)]),
        ("Range", {}, [np.array(0), np.array(3), np.array(0)]),
        ("Expand", {}, [f(1), i(1 << 20, 1 << 20)]),
        ("RandomNormalLike", {}, [f(3)]),
        ("no.such.Operator", {}, [f(3)]),
        ("Slice", {}, [f(5), i(0), i(5), i(0), i(0)]),
    ],
)
def test_refuses_what_onnx_leaves_undefined(op: str, attrs: dict[str, Any], arrays: list[Any]) -> None:
    assert evaluate(op, attrs, arrays, 1) is None


@pytest.mark.parametrize(
    ("op", "attrs", "arrays"),
    [
        ("DequantizeLinear", {"axis": 0, "block_size": 2}, [NIBBLES.reshape(8, 2), f(4, 2)]),
        ("Cast", {"to": onnx.TensorProto.UINT4}, [np.arange(16, dtype=np.uint8)]),
        ("Cast", {"to": onnx.TensorProto.FLOAT}, [NIBBLES]),
    ],
)
def test_integers_of_four_bits_as_the_reference(op: str, attrs: dict[str, Any], arrays: list[Any]) -> None:
    found = evaluate(op, attrs, arrays)
    [expected] = run_reference(op, attrs, arrays, 1)
    assert found is not None
    assert found[0].dtype == expected.dtype
    np.testing.assert_array_equal(found[0], expected)


def test_a_cast_to_four_bits_refuses_what_does_not_fit() -> None:
    assert evaluate("Cast", {"to": onnx.TensorProto.UINT4}, [np.array([16], np.uint8)]) is None


def test_the_size_of_results_is_bounded_before_they_are_made() -> None:
    assert evaluate("ConstantOfShape", {}, [i(100, 100)], 1, limit=1000) is None
    assert evaluate("Tile", {}, [f(10), i(1000)], 1, limit=1000) is None
    assert evaluate("Add", {}, [f(1000, 1), f(1, 1000)], 1, limit=1000) is None


def test_an_empty_tile_makes_nothing_large_on_the_way() -> None:
    found = evaluate("Tile", {}, [f(2, 3), i(1 << 40, 0)])
    assert found is not None
    assert found[0].shape == (1 << 41, 0)


def test_random_operators_are_not_supported() -> None:
    assert not supports("RandomUniform")
    assert not supports("If")
    assert not supports("rewrite.Own")


def test_bfloat16() -> None:
    x = np.array([1.5, -2], ml_dtypes.bfloat16)
    (found,) = evaluate("Mul", {}, [x, x], 1) or [None]
    assert found is not None
    assert found.dtype == x.dtype
    assert found.astype(F).tolist() == [2.25, 4]
    (cast,) = evaluate("Cast", {"to": 1}, [x], 1) or [None]
    assert cast is not None
    assert cast.tolist() == [1.5, -2]


def test_a_mean_over_windows_keeps_nan() -> None:
    x = np.array([[[1.0, np.nan, 3.0, 4.0]]], np.float32)
    found = evaluate("AveragePool", {"kernel_shape": (2,), "strides": (2,)}, [x])
    assert found is not None
    assert np.isnan(found[0][0, 0, 0])
    assert found[0][0, 0, 1] == 3.5


def test_a_maximum_over_windows_takes_nan() -> None:
    x = np.array([[[1.0, np.nan, 3.0, 4.0]]], np.float32)
    found = evaluate("MaxPool", {"kernel_shape": (1,)}, [x])
    assert found is not None
    np.testing.assert_array_equal(found[0], x)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_the_last_window_without_padding_may_end_outside(op: str) -> None:
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 8)
    attrs: dict[str, Any] = {"kernel_shape": (3,), "strides": (2,), "ceil_mode": 1}
    whole, valid = (evaluate(op, attrs | more, [x]) for more in ({}, {"auto_pad": "VALID"}))
    assert whole is not None
    assert valid is not None
    assert valid[0].shape == (1, 1, 4)
    np.testing.assert_array_equal(valid[0], whole[0])


def test_groups_of_nearly_equal_16_bit_floats_have_a_variance() -> None:
    """The reference rounds each step to bf16, in which the variance of these numbers is below zero."""
    bf16 = DType.BF16.numpy
    x, ones = np.array([[[0.324219, 0.322266]]]).astype(bf16), np.ones(1).astype(bf16)
    found = evaluate("GroupNormalization", {"num_groups": 1, "epsilon": 1e-5}, [x, ones, ones * 0])
    assert found is not None
    np.testing.assert_allclose(found[0].astype(float), [[[0.295, -0.295]]], rtol=0.02)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("op", "attrs", "parameters"),
    [
        ("MeanVarianceNormalization", {"axes": (2,)}, 0),
        ("InstanceNormalization", {"epsilon": 1e-12}, 1),
        ("GroupNormalization", {"epsilon": 1e-12, "num_groups": 1}, 1),
        ("LayerNormalization", {"epsilon": 1e-12}, 4),
    ],
)
def test_nearly_equal_numbers_are_normalized(op: str, attrs: dict[str, Any], parameters: int, dtype: Any) -> None:
    """The variance is that of the deviations: as a difference of mean squares it would keep few digits."""
    x = np.array([[[1.0, 1.0005, 1.001, 0.9995]]]).astype(dtype)
    scale, bias = np.ones(parameters, dtype), np.zeros(parameters, dtype)
    found = evaluate(op, normalize_attrs(op, attrs), [x, scale, bias] if parameters else [x])
    assert found is not None
    wide = x.astype(np.float64)
    np.testing.assert_allclose(found[0], (wide - wide.mean()) / wide.std(), rtol=1e-3 if dtype is np.float16 else 2e-5)


def test_quantizing_saturates_on_the_side_of_the_number() -> None:
    x = np.array([-np.inf, -1e30, -3, 2.5, 3e9, np.inf], np.float32)
    found = evaluate("QuantizeLinear", {}, [x, np.float32(0.5), np.int8(1)])
    assert found is not None
    assert found[0].tolist() == [-128, -128, -5, 6, 127, 127]
    lowest = evaluate("QuantizeLinear", {}, [np.array([np.nan], np.float32), np.float32(1), np.int8(0)])
    assert lowest is not None
    assert lowest[0].tolist() == [-128]
    assert evaluate("QuantizeLinear", {"precision": -1}, [x, np.float32(0.5), np.int8(1)]) is None


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_which_zero_is_the_greater_does_not_hang_on_the_order(dtype: Any) -> None:
    def negative(op: str, attrs: dict[str, Any], *arrays: Any) -> bool:
        found = evaluate(op, attrs, arrays)
        assert found is not None
        assert found[0].dtype == arrays[0].dtype
        assert (found[0] == 0).all()
        (sign,) = set(np.signbit(found[0]).reshape(-1).tolist())
        return bool(sign)

    plus, minus = np.zeros(40, dtype), -np.zeros(40, dtype)
    for a, b in ((plus, minus), (minus, plus)):
        assert not negative("Max", {}, a, b)
        assert negative("Min", {}, a, b)
        assert not negative("Clip", {}, a, b[0])
        assert negative("Clip", {}, a, None, b[0])
    assert negative("Max", {}, minus, minus)
    assert negative("Max", {}, minus, minus - 1)
    assert not negative("Min", {}, plus, plus + 1)
    assert not negative("Relu", {}, minus)
    for at in range(40):
        one = minus.copy()
        one[at] = 0
        for op in ("ReduceMax", "MaxPool", "GlobalMaxPool"):
            attrs = {"kernel_shape": (40,)} if op == "MaxPool" else {}
            assert not negative(op, attrs, one.reshape(1, 1, 40))
            assert negative(op, attrs, minus.reshape(1, 1, 40))
        assert negative("ReduceMin", {}, -one)
        assert not negative("ReduceMin", {}, plus)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_a_bound_of_one_element_is_a_scalar(shape: tuple[int, ...]) -> None:
    x = np.full(shape, 7, F)
    found = evaluate("Clip", {}, [x, np.zeros((1,), F), np.full((1, 1), 6, F)])
    assert found is not None
    assert found[0].tolist() == np.full(shape, 6).tolist()
    assert evaluate("Clip", {}, [x, np.zeros((3,), F)]) is None


def test_a_logarithm_of_exponentials_of_what_is_infinite() -> None:
    x = np.array([[-np.inf, -np.inf], [np.inf, -np.inf], [1000, 1000], [-np.inf, 3], [np.nan, np.inf]], F)
    found = evaluate("ReduceLogSumExp", {"keepdims": 0}, [x, i(1)])
    assert found is not None
    np.testing.assert_array_equal(found[0], np.array([-np.inf, np.inf, 1000 + np.log(2), 3, np.nan], F))


@pytest.mark.parametrize("shape", [(0, 1, 1), (2, 0, 3, 4)])
def test_the_maximum_over_zero_images_has_the_usual_shape(shape: tuple[int, ...]) -> None:
    found = evaluate("GlobalMaxPool", {}, [np.zeros(shape, F)])
    assert found is not None
    assert found[0].shape == (*shape[:2], *[1] * (len(shape) - 2))


@pytest.mark.parametrize("op", ["Exp", "Tanh", "Erf", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceLogSumExp"])
@pytest.mark.parametrize("axes", [(1,), (2,), (1, 2, 3), (0, 3), ()])
def test_large_constants_are_computed_in_blocks_to_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, op: str, axes: tuple[int, ...]
) -> None:
    operands = [f(7, 3, 5, 33), i(*axes)] if op.startswith("Reduce") else [f(7, 3, 5, 33)]

    def computed() -> Any:
        found = evaluate(op, normalize_attrs(op, {}), operands)
        assert found is not None
        return found[0]

    whole, counted = computed(), []
    concatenate = np.concatenate
    monkeypatch.setattr("rewrite.engine.operators.folding.fold_call.BLOCK", 1000)
    monkeypatch.setattr(np, "concatenate", lambda parts, *a, **k: (counted.append(len(parts)), concatenate(parts))[1])
    np.testing.assert_array_equal(computed(), whole)
    assert counted == ([4] if len(operands) == 1 or (axes and 0 not in axes) else [])


@pytest.mark.parametrize("op", ["Erf", "Gelu"])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_functions_of_large_f32_tensors(op: str, approximate: str) -> None:
    x = np.concatenate([np.linspace(-9, 9, 20001), [0.0, -0.0, np.inf, 1e-7]]).astype(F)
    attrs = {"approximate": approximate} if op == "Gelu" else {}
    (want,), (found,) = evaluate(op, attrs, [x.astype(np.float64)]) or [], compute(op, attrs, [x]) or []
    assert found.dtype == F
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=5e-7)


def test_infinities_in_convolutions() -> None:
    x, w = np.ones((1, 2, 3, 3), F), np.zeros((2, 2, 1, 1), F)
    x[0, 0, 1, 1] = np.inf
    for found in (compute("Conv", {}, [x, w]), evaluate("Conv", {}, [x, w])):
        assert found is not None
        assert np.isnan(found[0][0, :, 1, 1]).all()
        assert np.isnan(found[0]).sum() == 2


def test_results_have_a_type_that_the_schema_admits() -> None:
    """The reference implementation scales integers to integers, where the standard says f32."""
    attrs = normalize_attrs("ai.onnx.ml.Scaler", {"offset": (0.5,), "scale": (2.0,)})
    for dtype in (np.int64, np.float64):
        assert evaluate("ai.onnx.ml.Scaler", attrs, [np.arange(4, dtype=dtype).reshape(1, 4)]) is None
    assert evaluate("ai.onnx.ml.Scaler", attrs, [f(1, 4)]) is not None


@pytest.mark.parametrize(
    ("op", "attrs", "operands", "outputs"),
    [
        ("ai.onnx.ml.Normalizer", {"norm": "MAX"}, [f(2, 3)], 1),
        ("LpNormalization", {"p": 1}, [f(2, 3)], 1),
        ("LSTM", {"hidden_size": 2, "clip": 0.5}, [f(3, 1, 2), f(1, 8, 2), f(1, 8, 2)], 1),
        ("GRU", {"hidden_size": 2}, [f(3, 1, 2), f(1, 6, 2), f(1, 6, 2), None, np.array([2], np.int32)], 1),
        ("RNN", {"hidden_size": 2, "activations": ("Relu",)}, [f(3, 1, 2), f(1, 2, 2), f(1, 2, 2)], 1),
        ("ConvTranspose", {"group": 2}, [f(1, 2, 4), f(2, 1, 2), f(2)], 1),
        ("MaxPool", {"kernel_shape": (2,)}, [f(1, 2, 4)], 2),
        ("LRN", {"size": 3}, [f(1, 4, 2, 2)], 1),
        ("NegativeLogLikelihoodLoss", {"ignore_index": -1}, [f(3, 5), i(1, -1, 0)], 1),
        (
            "Resize",
            {"coordinate_transformation_mode": "pytorch_half_pixel", "mode": "cubic"},
            [f(1, 1, 2, 3), None, None, np.array([1, 1, 2, 1])],
            1,
        ),
    ],
)
def test_what_the_reference_computes_otherwise(op: str, attrs: Any, operands: list[Any], outputs: int) -> None:
    """These were folded to wrong numbers: the reference implementation leaves an attribute or an operand out."""
    assert evaluate(op, normalize_attrs(op, attrs), operands, outputs) is None


def test_aligned_corners_are_folded_as_in_the_tests_of_the_standard() -> None:
    """7 columns times 0.6 are 4 columns, whose corners lie as if they were 4.2."""
    attrs = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    x = np.arange(7, dtype=np.float32).reshape(1, 7)
    found = evaluate("Resize", normalize_attrs("Resize", attrs), [x, None, np.array([1, 0.6], np.float32)])
    assert found is not None
    np.testing.assert_allclose(found[0], [[0, 1.875, 3.75, 5.625]], rtol=1e-6)


def test_usual_cells_are_folded() -> None:
    cell = {"hidden_size": 2, "activations": ("Sigmoid", "Tanh", "Tanh")}
    operands = [f(3, 1, 2), f(1, 8, 2), f(1, 8, 2)]
    found = evaluate("LSTM", normalize_attrs("LSTM", cell), operands)
    assert found is not None
    np.testing.assert_allclose(found[0], oracle("LSTM", cell, operands, 1)[0], rtol=1e-5)


@pytest.mark.parametrize(("op", "value"), [("Atanh", -0.52999467), ("Softplus", 1.0), ("Elu", -0.3), ("Sinh", 0.7)])
def test_functions_of_numbers_are_takes_off_wherever_a_number_is(op: str, value: float) -> None:
    """NumPy's f32 functions differ by where in a vector a number is, and from what rules are checked with."""
    many = np.full(37, value, np.float32)
    found = evaluate(op, {}, [many])
    alone = evaluate(op, {}, [many[::-1][:1]])
    assert found is not None
    assert alone is not None
    assert set(found[0].tolist()) == set(alone[0].tolist())
    checked = FLOAT64_KERNELS[op]({}, [many])
    assert checked is not None
    np.testing.assert_array_equal(found[0], checked[0])


def transposed_convolutions(count: int) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Draw ConvTranspose nodes with all attributes: sizes that are asked for, automatic padding, groups, dilations."""
    rng = np.random.default_rng(7)
    for number in range(count):
        n, group = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        inner, outer = (int(v) for v in rng.integers(1, 3, 2))
        x = rng.standard_normal((2, group * inner, *rng.integers(1, 4, n))).astype(np.float32)
        w = rng.standard_normal((group * inner, outer, *rng.integers(1, 4, n))).astype(np.float32)
        strides, dilations = (tuple(map(int, rng.integers(1, 4, n))) for _ in range(2))
        steps = zip(strides, x.shape[2:], w.shape[2:], dilations, strict=True)
        full = [s * (size - 1) + (k - 1) * d + 1 for s, size, k, d in steps]
        attrs: dict[str, Any] = {"group": group, "strides": strides, "dilations": dilations}
        mode = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")[number % 4]
        if mode == "NOTSET" and number % 8:
            attrs["pads"] = tuple(int(v) for v in rng.integers(0, 2, 2 * n))
            if any(size <= attrs["pads"][i] + attrs["pads"][i + n] for i, size in enumerate(full)):
                continue
        else:
            attrs["auto_pad"] = mode
        if mode != "VALID" and "pads" not in attrs and rng.random() < 0.5:
            attrs["output_shape"] = tuple(max(1, size - int(rng.integers(0, 3))) for size in full)
        yield attrs, [x, w, rng.standard_normal(group * outer).astype(np.float32) if rng.random() < 0.5 else None]


def test_transposed_convolutions_of_every_form() -> None:
    """In double precision and rounded once, they are those of ONNX Runtime and of the reference implementation."""
    compared = 0
    for attrs, operands in transposed_convolutions(240):
        full = normalize_attrs("ConvTranspose", attrs)
        (found,) = FLOAT64_KERNELS["ConvTranspose"](full, operands) or [None]
        assert found is not None
        present = operands if operands[2] is not None else operands[:2]
        (wanted,) = oracle("ConvTranspose", attrs, present, 1)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=str(attrs))
        # The reference fails on a size without a mode, adds zeros to what automatic padding makes no longer, and takes
        # groups of one filter each for granted.
        unaided = "output_shape" in attrs and attrs["auto_pad"] == "NOTSET"
        if unaided or attrs["group"] > 1 or not takes_off(attrs, operands):
            continue
        (reference,) = run_reference("ConvTranspose", full, operands, 1)
        np.testing.assert_allclose(found, reference, rtol=1e-4, atol=1e-5, err_msg=str(attrs))
        compared += 1
    assert compared > 30


def takes_off(attrs: dict[str, Any], operands: list[Any]) -> bool:
    """Whether automatic padding does not ask for more than there is."""
    if not str(attrs.get("auto_pad")).startswith("SAME") or "output_shape" in attrs:
        return True
    steps = zip(attrs["strides"], operands[1].shape[2:], attrs["dilations"], strict=True)
    return all((k - 1) * d + 1 >= s for s, k, d in steps)


def test_a_size_past_a_transposed_convolution() -> None:
    """At the end there are zeros; where some would come first, the kernel leaves the case to others."""
    x, w = np.arange(1, 4, dtype=np.float32).reshape(1, 1, 3), np.ones((1, 1, 1), np.float32)
    kernel = FLOAT64_KERNELS["ConvTranspose"]
    (longer,) = kernel({"output_shape": (4,), "auto_pad": "NOTSET"}, [x, w]) or [None]
    assert longer is not None
    np.testing.assert_array_equal(longer, [[[1, 2, 3, 0]]])
    assert kernel({"output_shape": (5,), "auto_pad": "NOTSET"}, [x, w]) is None


def test_zero_points_of_rows_are_not_those_of_columns() -> None:
    a, b = np.array([[1, 2], [3, 4]], np.uint8), np.array([[5, 6], [7, 8]], np.uint8)
    zeros = np.array([1, 3], np.uint8)
    found = evaluate("MatMulInteger", {}, [a, b, zeros, None])
    assert found is not None
    np.testing.assert_array_equal(found[0], (a.astype(int) - zeros[:, None]) @ b.astype(int))
