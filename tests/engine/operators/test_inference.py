"""Inference with symbolic dims and contents; `test_standard_cases` covers static shapes by the standard's own tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from rewrite.engine.ir.dim_parser import parse
from rewrite.engine.ir.graph import Constant, DType, TensorType, ValueType
from rewrite.engine.ir.symbolic import evaluate
from rewrite.engine.operators.inference import RULES, IllTyped, SymbolicValue, fresh_dims, infer
from rewrite.engine.operators.schemas import normalize_attrs


def shaped(text: str, dtype: DType = DType.F32) -> TensorType:
    """Return the type with these dims: `shaped("N; 3")`."""
    return TensorType(dtype, tuple(parse(d) for d in text.split(";")) if text else ())


def outputs(op: str, *inputs: Any, n: int = 1, **attrs: Any) -> list[str]:
    """Return the inferred shapes; inputs are dims in text (`"N; 3"`), constants (arrays, lists) or None where
    absent."""
    return [", ".join(map(str, t.shape)) if t.shape is not None else "?" for t in types_of(op, *inputs, n=n, **attrs)]


def types_of(op: str, *inputs: Any, n: int = 1, **attrs: Any) -> list[TensorType]:
    types: list[TensorType | None] = []
    values: list[SymbolicValue | None] = []
    constants: list[Constant | None] = []
    for given in inputs:
        value = constant = None
        if given is None:
            found = None
        elif isinstance(given, SymbolicValue):
            value = given
            found = TensorType(DType.I64, given.shape)
        elif isinstance(given, str):
            found = shaped(given)
        else:
            array = np.asarray(given)
            constant = Constant(array)
            found = constant.type
        types.append(found)
        values.append(value)
        constants.append(constant)
    inference = infer(op, normalize_attrs(op, attrs), types, values, n, constants=constants)
    return [t for t in inference.types if isinstance(t, TensorType)]


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def dims(*texts: str | int) -> SymbolicValue:
    return SymbolicValue(tuple(parse(str(t)) for t in texts))


CASES: list[tuple[str, Sequence[Any], dict[str, Any], str]] = [
    ("Add", ["N; 1; 3", "M; 1"], {}, "N, M, 3"),
    ("Add", ["N", "5"], {}, "5"),
    ("Add", ["N", "M"], {}, "bcast(M,N)"),
    ("Where", ["N; 1", "1; 4", ""], {}, "N, 4"),
    ("MatMul", ["B; N; 4", "4; M"], {}, "B, N, M"),
    ("MatMul", ["4", "B; 4; M"], {}, "B, M"),
    ("Gemm", ["N; 4", "8; 4", "8"], {"transB": 1}, "N, 8"),
    ("Einsum", ["b; n; d", "b; m; d"], {"equation": "bnd,bmd->bnm"}, "b, n, m"),
    ("Einsum", ["A; n; d", "A; d; m"], {"equation": "...ij,...jk->...ik"}, "A, n, m"),
    ("Conv", ["N; 3; H; W", "8; 3; 3; 3"], {"pads": (1, 1, 1, 1), "strides": (2, 2)}, "N, 8, (H+1)//2, (W+1)//2"),
    ("Conv", ["N; 3; H; W", "8; 3; 3; 3"], {"auto_pad": "SAME_UPPER", "strides": (2, 2)}, "N, 8, (H+1)//2, (W+1)//2"),
    ("ConvTranspose", ["N; 3; H; W", "3; 8; 2; 2"], {"strides": (2, 2)}, "N, 8, 2*H, 2*W"),
    (
        "ConvTranspose",
        ["N; 3; H; 12", "3; 8; 3; 1"],
        {"strides": (3, 3), "auto_pad": "SAME_UPPER"},
        "N, 8, 3*H, 34",
    ),
    ("MaxPool", ["N; 3; H; W"], {"kernel_shape": (2, 2), "strides": (2, 2)}, "N, 3, H//2, W//2"),
    (
        "MaxPool",
        ["N; 3; 8; 9"],
        {"kernel_shape": (3, 1), "strides": (2, 5), "auto_pad": "VALID", "ceil_mode": 1},
        "N, 3, 4, 2",
    ),
    ("GroupNormalization", ["N; 4; H", "4", "4"], {"num_groups": 2}, "N, 4, H"),
    ("GlobalAveragePool", ["N; 3; H; W"], {}, "N, 3, 1, 1"),
    ("Reshape", ["N; 12; 64", ints(0, -1, 8)], {}, "N, 96, 8"),
    ("Reshape", ["N; T; 64", dims("N", "T", 4, 16)], {}, "N, T, 4, 16"),
    ("Reshape", ["N; T; 64", dims("N*T", -1)], {}, "N*T, 64"),
    ("Reshape", ["N; (H-3)//2; 64", dims("N", "truncdiv(H-3,2)", 8, 8)], {}, "N, (H+1)//2-2, 8, 8"),
    ("Reshape", ["N; H; 64", dims("N", "truncdiv(H-3,2)", -1, 8)], {}, "N, _u1, _u2, 8"),
    ("Reshape", ["N; T; 64", ints(-1, 64)], {}, "N*T, 64"),
    ("Flatten", ["N; 3; H; W"], {"axis": 2}, "3*N, H*W"),
    ("Transpose", ["N; T; 4; 16"], {"perm": (0, 2, 1, 3)}, "N, 4, T, 16"),
    ("Concat", ["N; 3", "M; 3"], {"axis": 0}, "M+N, 3"),
    ("Concat", ["N; 3", "5; 4"], {"axis": -1}, "5, 7"),
    ("Slice", ["N; 10", ints(1), ints(2**62), ints(1)], {}, "N, 9"),
    ("Slice", ["N; 10", ints(-3), ints(2**62), ints(1), ints(2)], {}, "N, 2"),
    ("Slice", ["N; 10", ints(9), ints(-(2**62)), ints(1), ints(-1)], {}, "N, 10"),
    ("Slice", ["N; 10", ints(0), dims("N"), ints(0)], {}, "N, 10"),
    ("Slice", ["N-1; 10", ints(0), ints(2**62), ints(0)], {}, "N-1, 10"),
    ("Slice", ["N; 10", ints(-1), ints(-(2**63)), ints(0), ints(-1)], {}, "N, 10"),
    ("Slice", ["N; 10", ints(-2), ints(-(2**63)), ints(0), ints(-1)], {}, "_u1, 10"),
    ("Expand", ["1; 3", dims("N", 1)], {}, "N, 3"),
    ("Tile", ["N; 3", ints(2, 2)], {}, "2*N, 6"),
    ("Pad", ["N; 3", ints(0, 1, 0, 1)], {}, "N, 5"),
    ("Gather", ["N; 768", "B; T"], {"axis": 0}, "B, T, 768"),
    ("GatherND", ["N; 3; 4", "M; 2"], {}, "M, 4"),
    ("ReduceMean", ["N; 3; 4", ints(-1)], {}, "N, 3, 1"),
    ("ReduceMean", ["N; 3; 4", ints(-1)], {"keepdims": 0}, "N, 3"),
    ("ReduceSum", ["N; 3"], {"noop_with_empty_axes": 1}, "N, 3"),
    ("ArgMax", ["N; 3"], {"axis": 1, "keepdims": 0}, "N"),
    ("TopK", ["N; 30", ints(5)], {}, "N, 5"),
    ("OneHot", ["N", ints(10), [0.0, 1.0]], {}, "N, 10"),
    ("Range", [np.array(0), SymbolicValue((parse("N"),), 0), np.array(1)], {}, "N"),
    ("ConstantOfShape", [dims("N", 3)], {}, "N, 3"),
    ("Resize", ["N; 3; H; 10", None, np.array([1, 1, 2, 1.5], np.float32)], {}, "N, 3, 2*H, 15"),
    ("Resize", ["N; 3; H; 10", None, np.array([1, 1, 1.5, 0.7], np.float32)], {}, "N, 3, H+H//2, 6"),
    ("Resize", ["N; 3; H; W", None, np.array([1, 1, 0.5, 1e-20], np.float32)], {}, "N, 3, H//2, _u1"),
    ("Resize", ["N; 3; H; W", None, None, dims("N", 3, "2*H", 7)], {}, "N, 3, 2*H, 7"),
    ("DepthToSpace", ["N; 12; H; W"], {"blocksize": 2}, "N, 3, 2*H, 2*W"),
    ("Attention", ["B; 8; T; 64", "B; 8; S; 64", "B; 8; S; 64"], {}, "B, 8, T, 64"),
    ("LayerNormalization", ["N; T; 64", "64"], {}, "N, T, 64"),
    ("QuantizeLinear", ["N; 3", ""], {}, "N, 3"),
    ("Unsqueeze", ["N; 3", ints(0, -1)], {}, "1, N, 3, 1"),
    ("Squeeze", ["1; N; 1", ints(0)], {}, "N, 1"),
    ("Squeeze", ["1; N; 1"], {}, "?"),  # N may be 1
]


@pytest.mark.parametrize(("op", "inputs", "attrs", "shape"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_symbolic_shapes(op: str, inputs: Sequence[Any], attrs: dict[str, Any], shape: str) -> None:
    assert outputs(op, *inputs, **attrs)[0] == shape


def test_split_into_symbolic_pieces() -> None:
    assert outputs("Split", "N; 10", n=3, axis=1, num_outputs=3) == ["N, 4", "N, 4", "N, 2"]
    assert outputs("Split", "N; 10", ints(3, 7), n=2, axis=1) == ["N, 3", "N, 7"]
    first, second = types_of("Split", "N", n=2, num_outputs=2)
    assert first.shape is not None
    assert second.shape is not None
    for n in range(2, 9):
        assert evaluate(first.shape[0], {"N": n}) + evaluate(second.shape[0], {"N": n}) == n


def test_dims_that_depend_on_data_are_fresh() -> None:
    assert outputs("NonZero", "N; 3") == ["2, _u1"]
    assert outputs("Unique", "N", n=4) == ["_u1", "_u1", "N", "_u1"]


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("Add", ["2; 3", "4"], {}),
        ("Add", ["N+6", "5"], {}),
        ("MatMul", ["2; 3", "4; 5"], {}),
        ("Concat", ["2; 3", "2"], {"axis": 0}),
        ("Reshape", ["2; 3", ints(4, 2)], {}),
        ("Reshape", ["2; 3", ints(-1, 4)], {}),
        ("Transpose", ["2; 3"], {"perm": (0, 0)}),
        ("Conv", ["1; 3; 8; 8", "4; 5; 3; 3"], {}),
        ("Conv", ["3", "4"], {}),
        ("Conv", ["1; 3; 8; 8", "4; 3; 3; 3", "3"], {}),
        ("ConvTranspose", ["1; 3; 8; 8", "3; 4; 3; 3", "3"], {}),
        ("Conv", ["1; 3; 8; 8", "4; 3; 3; 3"], {"strides": (0, 1)}),
        ("Conv", ["1; 3; 8; 8", "4; 3; 3; 3"], {"kernel_shape": (3,)}),
        ("Conv", ["1; 3; 8; 8", "4; 3; 3; 3"], {"kernel_shape": (3, 5)}),
        ("ConvTranspose", ["1; 3; 8; 8", "3; 4; 3; 3"], {"strides": (2,)}),
        ("Gemm", ["1; 3", "3; 4", "2; 4"], {}),
        ("PRelu", ["1; 3", "2; 3"], {}),
        ("GroupNormalization", ["1; 4; 3", ints(1, 1, 1, 1), "4"], {"num_groups": 2}),
        ("Gemm", ["1; 3", "3; 4", "1; 1; 4"], {}),
        ("ConvTranspose", ["1; 1; 0; 3", "1; 1; 0; 2"], {"auto_pad": "SAME_UPPER"}),
        ("Slice", ["4; 5", ints(0), ints(1, 2), ints(0)], {}),
        ("Slice", ["4; 5", ints(0), ints(1), ints(0), ints()], {}),
        ("Squeeze", ["2; 3", ints(0)], {}),
        ("Softmax", ["2; 3"], {"axis": 0}),
    ],
)
def test_what_cannot_run_is_refused(op: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> None:
    if op == "Softmax":  # well typed: not every call is refused
        assert outputs(op, *inputs, **attrs) == ["2, 3"]
        return
    with pytest.raises(IllTyped):
        outputs(op, *inputs, **attrs)


@pytest.mark.parametrize("op", ["Concat", "Add", "Where", "Max", "Less", "Sum"])
def test_inputs_of_one_type_variable_have_one_element_type(op: str) -> None:
    condition = [TensorType(DType.BOOL, (3,))] if op == "Where" else []
    attrs = normalize_attrs(op, {"axis": 0} if op == "Concat" else {})
    same: list[ValueType] = [*condition, TensorType(DType.I32, (3,)), TensorType(DType.I32, (3,))]
    assert infer(op, attrs, same, (), 1).types
    mixed = [*same[:-1], TensorType(DType.I64, (3,))]
    with pytest.raises(IllTyped, match="inputs of the types i32 and i64"):
        infer(op, attrs, mixed, (), 1)
    assert infer(op, attrs, [*same[:-1], TensorType(None, (3,))], (), 1).types  # it may be the same type


def test_inputs_of_other_type_variables_may_differ() -> None:
    base, exponent = TensorType(DType.F32, (3,)), TensorType(DType.I64, (3,))
    assert infer("Pow", {}, [base, exponent], (), 1).types == (base,)


def follow(op: str, *values: SymbolicValue, dtype: DType = DType.I64, **attrs: Any) -> SymbolicValue | None:
    types = [TensorType(dtype, v.shape) for v in values]
    return infer(op, normalize_attrs(op, attrs), types, values, 1).values[0]


def test_contents_beyond_the_range_of_their_type_are_not_followed() -> None:
    for op in ("Neg", "Abs"):
        assert follow(op, SymbolicValue((-128, 3)), dtype=DType.I8) is None
        assert follow(op, SymbolicValue((-127, 3)), dtype=DType.I8) is not None
        assert follow(op, SymbolicValue((-128, 3)), dtype=DType.I16) is not None
    assert follow("ReduceProd", SymbolicValue((1 << 20, 1 << 20)), dtype=DType.I32) is None
    assert follow("ReduceProd", SymbolicValue((1 << 20, 1 << 20))) == SymbolicValue((1 << 40,), 1)


def test_contents_are_followed_through_shape_arithmetic() -> None:
    shape = infer("Shape", {"start": 0}, [shaped("N; T; 768")], [], 1).values[0]
    assert shape == dims("N", "T", 768)
    picked = follow("Gather", shape, SymbolicValue((1,), 0), axis=0)
    assert picked == SymbolicValue((parse("T"),), 0)
    product = follow("Mul", picked, SymbolicValue((12,), 0))
    assert product == SymbolicValue((parse("12*T"),), 0)
    one = follow("Unsqueeze", product, SymbolicValue((0,)))
    assert one == dims("12*T")
    assert follow("Concat", one, dims(64), axis=0) == dims("12*T", 64)
    assert follow("Slice", shape, dims(1), dims(2**62), dims(0)) == dims("T", 768)
    assert follow("ReduceProd", shape, keepdims=0) == SymbolicValue((parse("768*N*T"),), 0)
    assert follow("Div", dims("12*T"), dims(5)) == dims("(12*T)//5")
    assert follow("Sub", dims("N"), dims("N")) == dims(0)
    assert follow("Max", dims("N", 3), dims(1)) == dims("max(N,1)", 3)
    assert follow("Equal", dims("N", 3), dims(-1)) == dims(0, 0)
    assert follow("Equal", dims("N"), dims(5)) is None
    assert follow("Cast", dims("N"), to=DType.I32.onnx) == dims("N")
    assert follow("Cast", dims("N"), to=DType.BOOL.onnx) is None
    assert follow("Cast", dims("N"), to=DType.F16.onnx) is None


def test_matrices_are_followed_as_exporters_reverse_pads() -> None:
    """Pairs of pads, of the last axis first, become the pads before and after each axis."""
    pads = dims(0, "N", 1, "M")
    pairs = follow("Reshape", pads, dims(-1, 2))
    assert pairs == SymbolicValue(pads.dims, 2, 2)
    assert pairs is not None
    assert pairs.shape == (2, 2)
    turned = follow("Slice", pairs, dims(-1), dims(-(2**62)), dims(0), dims(-1))
    assert turned == SymbolicValue(dims(1, "M", 0, "N").dims, 2, 2)
    assert follow("Slice", pairs, dims(0), dims(1), dims(1)) is None
    columns = follow("Transpose", turned, perm=(1, 0))
    assert columns == SymbolicValue(dims(1, 0, "M", "N").dims, 2, 2)
    assert follow("Reshape", columns, dims(-1)) == dims(1, 0, "M", "N")
    assert follow("Add", pairs, pairs) is None
    assert follow("ReduceSum", pairs, dims(0)) is None


def test_sizes_are_not_negative_whatever_their_expression() -> None:
    """A convolution without padding has N//5 - 1 results: where there is a result, that is not negative."""
    shape = infer("Shape", {"start": 0}, [shaped("N//5-1; 8")], [], 1).values[0]
    assert shape is not None
    [first] = outputs("Reshape", "(N//5-1)*8", shape)
    assert first == "N//5-1, 8"
    picked = follow("Gather", shape, SymbolicValue((0,), 0), axis=0)
    product = follow("Mul", picked, SymbolicValue((3,), 0))
    assert product is not None
    assert follow("Div", product, SymbolicValue((2,), 0)) is not None
    assert follow("Equal", product, SymbolicValue((-1,), 0)) == SymbolicValue((0,), 0)
    end = follow("Unsqueeze", picked, dims(0))
    assert outputs("Slice", "100", ints(0), end, ints(0), ints(1)) == ["min(101,N//5)-1"]
    [counted] = outputs("Slice", "100", ints(0), dims("N//5-1"), ints(0), ints(1))  # from the end for N < 5
    assert [evaluate(parse(counted), {"N": n}) for n in (0, 4, 5, 10, 5000)] == [99, 99, 0, 1, 100]
    less = follow("Sub", picked, SymbolicValue((1,), 0))
    assert less is not None
    assert follow("Div", less, SymbolicValue((2,), 0)) == SymbolicValue((parse("truncdiv(N//5-2,2)"),), 0)
    assert follow("Equal", less, SymbolicValue((-1,), 0)) is None
    assert follow("Equal", dims("N//5-1"), dims(-1)) is None


def chain(value: SymbolicValue | None, *steps: tuple[str, float | None]) -> SymbolicValue | None:
    """Return the contents of one number after steps on floats, each with a constant as its second operand."""
    types: list[TensorType] = [TensorType(DType.I64, ())]
    for op, number in steps:
        constant = None if number is None else Constant(np.float32(number).reshape(()))
        attrs = {"to": (DType.I64 if number else DType.F32).onnx} if op == "Cast" else {}
        more = [] if constant is None or op == "Cast" else [constant]
        found = infer(
            op, normalize_attrs(op, attrs), [*types, *(c.type for c in more)], [value], 1, constants=[None, *more]
        )
        types, value = [t for t in found.types if isinstance(t, TensorType)], found.values[0]
    return value


def test_sizes_are_followed_through_floats() -> None:
    size = infer("Size", {}, [shaped("N")], [], 1).values[0]
    to_float, to_int = ("Cast", None), ("Cast", 1.0)
    whole = SymbolicValue((parse("2*((N+1)//2)"),), 0)
    assert chain(size, to_float, ("Div", 2.0), ("Ceil", None), ("Mul", 2.0), to_int) == whole
    assert chain(size, to_float, ("Mul", 1.5), ("Floor", None), to_int) == SymbolicValue((parse("(3*N)//2"),), 0)
    assert chain(size, to_float, ("Div", 7.0), to_int) == SymbolicValue((parse("N//7"),), 0)
    assert chain(size, to_float, ("Sub", 1.0), ("Div", 2.0), ("Floor", None), ("Add", 1.0), to_int) == SymbolicValue(
        (parse("(N-1)//2+1"),), 0
    )
    # f32 does not hold the number of pixels of a large image, nor a large multiple of a size
    pixels = infer("Size", {}, [shaped("N; M")], [], 1).values[0]
    assert chain(pixels, to_float, ("Div", 2.0), ("Ceil", None), to_int) is None
    assert chain(size, to_float, ("Mul", 16.0), to_int) == SymbolicValue((parse("16*N"),), 0)
    assert chain(size, to_float, ("Mul", 17.0), to_int) is None
    # rounding towards zero is not the floor of a number that may be negative
    assert chain(size, to_float, ("Sub", 1.0), ("Div", 2.0), to_int) is None
    # a third is rounded, and its multiple may be below the integer
    assert chain(size, to_float, ("Div", 3.0), ("Mul", 3.0), ("Floor", None), to_int) is None
    assert chain(size, to_float, ("Mul", 0.1), ("Floor", None), to_int) is None
    assert chain(size, to_float, ("Mul", float("inf")), ("Floor", None), to_int) is None


@pytest.mark.parametrize("divisor", [2, 3, 7, 10, 1000])
def test_quotients_of_floats_round_as_integers_do(divisor: int) -> None:
    """The claim of `SymbolicValue`, near multiples of the divisor and up to 2^24."""
    near = np.arange(0, 2**24, divisor * 37, dtype=np.int64)[:, None] + np.arange(-2, 3)
    sizes = near[(near >= 0) & (near < 2**24)]
    quotients = sizes.astype(np.float32) / np.float32(divisor)
    assert (np.floor(quotients) == sizes // divisor).all()
    assert (np.ceil(quotients) == -(-sizes // divisor)).all()


def test_division_rounds_towards_zero() -> None:
    assert follow("Div", dims(-7), dims(2)) == dims(-3)
    assert follow("Div", dims("N-7"), dims(2)) == dims("truncdiv(N-7,2)")
    assert follow("Div", dims("N-7"), dims(-2)) == dims("truncdiv(7-N,2)")
    assert follow("Div", dims("N-7"), dims(0)) is None
    assert follow("Div", dims("N-7"), dims("N")) is None


def test_numbers_that_overflow_are_not_followed() -> None:
    assert follow("Mul", dims(100), dims(100), dtype=DType.I8) is None
    assert follow("Sub", dims(3), dims(5), dtype=DType.U8) is None
    assert follow("Cast", dims(300), to=DType.I8.onnx) is None


def test_unknown_operators_are_unknown() -> None:
    for op in ("com.example.Magic", "rewrite.Own", "Nonsense"):
        inference = infer(op, {}, [shaped("N")], [None], 2)
        assert inference.types == (TensorType(), TensorType())


def test_every_operator_of_the_standard_has_a_rule_or_a_schema() -> None:
    from onnx import defs

    without = {
        s.name
        for s in defs.get_all_schemas()
        if s.domain == "" and s.name not in RULES and not s.has_type_and_shape_inference_function and not s.deprecated
    }
    assert without == set()


def test_the_library_infers_with_symbols() -> None:
    (found,) = infer("ai.onnx.ml.ArrayFeatureExtractor", {}, [shaped("N; 3"), shaped("2", DType.I64)], [], 1).types
    assert str(found) == "f32[N, 2]"


def test_scaled_features_are_f32_of_the_same_shape() -> None:
    (found,) = infer("ai.onnx.ml.Scaler", {}, [shaped("N; 3", DType.I32)], [None], 1).types
    assert str(found) == "f32[N, 3]"


def test_impossible_ranks_stay_unknown() -> None:
    target = shaped(str(10**12), DType.I64)  # the length of a shape, from a model's numbers
    for op in ("Expand", "Reshape", "ConstantOfShape"):
        inputs = [target] if op == "ConstantOfShape" else [shaped("2; 3"), target]
        (found,) = infer(op, {}, inputs, [None] * len(inputs), 1).types
        assert isinstance(found, TensorType), op
        assert found.shape is None, op


def test_elements_of_sequences_keep_their_dims() -> None:
    """Names of dims keep their meaning from call to call: those of another call are other dims."""

    def call(op: str, *types: ValueType, constants: Sequence[Constant | None] = (), **attrs: Any) -> ValueType:
        fresh = fresh_dims("_t")
        known = normalize_attrs(op, attrs)
        return infer(op, known, types, [None] * len(types), 1, constants=constants, fresh=fresh).types[0]

    size, first = Constant(np.array(2)), Constant(np.array(0))
    number = TensorType(DType.I64, ())
    parts = call("SplitToSequence", shaped("M;N;6"), number, constants=[None, size], axis=2)
    assert call("SequenceAt", parts, number, constants=[None, first]) == shaped("M;N;2")
    other = call("SplitToSequence", shaped("N;M;6"), number, constants=[None, size], axis=2)
    assert call("SequenceAt", other, number, constants=[None, first]) == shaped("N;M;2")
    mixed = call("SequenceInsert", parts, shaped("N;M;2"))
    assert call("SequenceAt", mixed, number, constants=[None, first]) == shaped("M;N;2")
    found = call("SequenceAt", mixed, number)
    assert isinstance(found, TensorType)
    assert found.shape is not None
    assert found.shape[2] == 2
    assert not {*found.shape} & {*map(parse, "MN")}
    halves = call("SplitToSequence", shaped("N + 1;6"), number, constants=[None, size], axis=1)
    found = call("SequenceAt", halves, number, constants=[None, first])
    assert isinstance(found, TensorType)
    assert found.shape is not None
    assert [isinstance(d, int) for d in found.shape] == [False, True]


def test_an_operand_that_is_stated_to_be_absent() -> None:
    """ONNX's inference of SplitToSequence counts operands: with lengths, `keepdims` would not matter."""
    attrs = normalize_attrs("SplitToSequence", {"axis": 1, "keepdims": 0})
    matrix = TensorType(DType.F32, (2, 3))
    alone, beside = (infer("SplitToSequence", attrs, types, [], 1).types for types in ([matrix], [matrix, None]))
    assert alone == beside
