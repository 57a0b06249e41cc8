"""Elementwise groups against the oracle: every operator, every element type, broadcasting, tails, empty tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rewrite.backend.ir.kernel_graph import Step
from rewrite.benchmarks.harness import lower, make_graph
from rewrite.engine.ir.graph import DType, Node, TensorType
from rewrite.engine.ir.symbolic import symbol

from .oracle import Array, Case, check, unary

RNG = np.random.default_rng(7)
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -1.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e30, -1e30], np.float32
)


def floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape) * 3, np.float32)


def _with_special(n: int) -> Array:
    return np.concatenate([SPECIAL, floats(n)])


def _binary(op: str, x: Array, y: Array, **attrs: Any) -> Case:
    return Case([Node(op, ("x", "y"), ("z",), attrs)], {"x": x, "y": y})


def test_integers_wrap_around() -> None:
    """Without overflow a compiler could take x + 1 > x and 2 x / 2 == x for granted."""
    for dtype in (np.int32, np.int64):
        x = np.array([np.iinfo(dtype).max, np.iinfo(dtype).min, 0, -1, 1 << (dtype().itemsize * 8 - 2)] * 5, dtype)
        one, two = np.ones(1, dtype), np.full(1, 2, dtype)
        inputs = {"x": x, "one": one, "two": two}
        add, mul = Node("Add", ("x", "one"), ("t",)), Node("Mul", ("x", "two"), ("t",))
        div = Node("Div", ("t", "two"), ("u",))
        check(
            [
                Case([add, Node("Greater", ("t", "x"), ("z",))], inputs),
                Case([mul, div, Node("Equal", ("u", "x"), ("z",))], inputs),
            ]
        )


def test_float_functions() -> None:
    x = _with_special(29)
    finite = floats(41)
    cases = [
        unary(op, x)
        for op in [
            "Neg",
            "Abs",
            "Sqrt",
            "Exp",
            "Log",
            "Erf",
            "Tanh",
            "Sigmoid",
            "Relu",
            "Softsign",
            "Floor",
            "Ceil",
            "Round",
            "IsNaN",
            "IsInf",
        ]
    ]
    with np.errstate(divide="ignore", over="ignore"):  # ONNX Runtime on Arm has the wrong infinities for denormals
        cases.append(replace(unary("Reciprocal", x), expected={"y": 1 / x}))
    cases += [
        unary(op, finite)
        for op in ["Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Asinh", "HardSwish", "Mish", "Sign", "Softplus"]
    ]
    cases += [unary(op, np.tanh(finite)) for op in ("Asin", "Acos", "Atanh")]
    cases += [unary("Acosh", np.abs(finite) + 1)]
    cases += [
        unary("LeakyRelu", x, alpha=0.1),
        unary("Elu", finite, alpha=1.5),
        unary("Selu", finite),
        unary("Celu", finite, alpha=0.7),
        unary("HardSigmoid", x, alpha=0.3, beta=0.4),
        unary("ThresholdedRelu", finite, alpha=0.8),
        unary("Shrink", finite, lambd=1.0, bias=0.3),
        unary("Gelu", finite),
        unary("Gelu", finite, approximate="tanh"),
        unary("com.microsoft.FastGelu", finite),
        unary("com.microsoft.QuickGelu", finite, alpha=1.702),
        unary("IsInf", x, detect_positive=0),
    ]
    check(cases)


def test_far_out_activations() -> None:
    x = np.array([-200, -90, -30, -21, 21, 30, 90, 200], np.float32)
    check([unary(op, x) for op in ("Softplus", "Mish", "HardSwish", "Sigmoid", "Tanh", "Elu")])


def test_float_pairs() -> None:
    x, y = (g.reshape(-1).copy() for g in np.meshgrid(SPECIAL, SPECIAL))
    cases = [
        _binary(op, x, y)
        for op in ["Add", "Sub", "Mul", "Div", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"]
    ]
    cases += [_binary(op, x, y) for op in ("Max", "Min")]
    cases += [_binary("Pow", np.abs(floats(33)), floats(33)), _binary("PRelu", floats(3, 9), floats(9))]
    cases += [_binary("Mod", floats(20), floats(20), fmod=1)]
    for exponent in (0.5, 1.0, 2.0, 3.0, -1.0, 0.3):
        e = np.array(exponent, np.float32)
        cases.append(Case([Node("Pow", ("x", "e"), ("y",))], {"x": np.abs(_with_special(5))}, {"e": e}))
    check(cases)


def test_variadic_and_optional() -> None:
    a, b, c = floats(4, 7), floats(7), floats(4, 1)
    low, high = np.array(-1.0, np.float32), np.array(1.5, np.float32)
    cases = [
        Case([Node(op, ("a", "b", "c"), ("y",))], {"a": a, "b": b, "c": c}) for op in ("Sum", "Mean", "Max", "Min")
    ]
    cases += [Case([Node("Sum", ("a",), ("y",))], {"a": a})]
    clip = Node("Clip", ("x", "low", "high"), ("y",))
    cases += [
        Case([clip], {"x": _with_special(9)}, {"low": low, "high": high}),
        Case([clip], {"x": a, "low": low, "high": high}),
        Case([Node("Clip", ("x", "", "high"), ("y",))], {"x": a}, {"high": high}),
        Case([Node("Clip", ("x",), ("y",))], {"x": a}),
        Case([Node("Where", ("m", "x", "y"), ("z",))], {"m": a > 0, "x": a, "y": b}),
        Case([Node("Where", ("m", "x", "y"), ("z",))], {"m": c > 0, "x": a, "y": low}),
        Case([Node("Dropout", ("x",), ("y",))], {"x": a}),
        Case([Node("Dropout", ("x",), ("y", "m"))], {"x": a}),
        Case([Node("Identity", ("x",), ("y",))], {"x": a}),
    ]
    check(cases)


def test_integers() -> None:
    cases = []
    for dtype in (np.int8, np.int32, np.int64, np.uint8):
        info = np.iinfo(dtype)
        x = RNG.integers(max(info.min, -100), min(info.max, 100), 45).astype(dtype)
        y = RNG.integers(1, 9, 45).astype(dtype)
        signs = y * RNG.choice(np.array([1, -1]), 45).astype(dtype) if info.min < 0 else y
        for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mod", "Equal", "Less", "GreaterOrEqual"):
            wide = dtype in (np.int32, np.int64)
            if wide or op not in ("Add", "Sub", "Mul", "Div"):
                cases.append(_binary(op, x, signs if op == "Mod" else y))
        if info.min < 0:
            cases += [unary("Neg", x), unary("Abs", x), unary("Sign", x)]
        cases.append(_binary("Mod", x, signs, fmod=1))
    ints = RNG.integers(-9, 9, 20)
    cases += [_binary("Pow", ints, RNG.integers(0, 5, 20)), _binary("Pow", floats(9), RNG.integers(0, 4, 9))]
    bits = RNG.integers(0, 200, 20).astype(np.uint8)
    cases += [_binary(op, bits, bits[::-1].copy()) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")]
    cases += [unary("BitwiseNot", bits), _binary("BitShift", bits, bits % 9, direction="LEFT")]
    cases += [_binary("BitShift", bits, bits % 8, direction="RIGHT")]
    cases += [Case([Node("Clip", ("x", "a", "b"), ("y",))], {"x": ints}, {"a": np.array(-3), "b": np.array(4)})]
    check(cases)


def test_division_never_traps() -> None:
    x = np.array([5, -5, np.iinfo(np.int64).min, 7], np.int64)
    y = np.array([0, -1, -1, -2], np.int64)
    expected = np.array([0, 5, np.iinfo(np.int64).min, -3], np.int64)
    check([Case([Node("Div", ("x", "y"), ("z",))], {"x": x, "y": y}, expected={"z": expected})])


def test_doubles() -> None:
    x = RNG.standard_normal((5, 9))
    cases = [unary(op, x) for op in ("Exp", "Tanh", "Erf", "Relu", "Sigmoid", "Floor", "Abs", "Neg")]
    cases += [unary("Sqrt", np.abs(x)), _binary("Add", x, x[0]), _binary("Max", x, x[:, :1].copy())]
    check(cases)


def test_truth_values() -> None:
    a, b = floats(5, 19) > 0, floats(19) > 0
    cases = [_binary(op, a, b) for op in ("And", "Or", "Xor", "Equal")] + [unary("Not", a)]
    ints = RNG.integers(0, 9, (5, 19))
    nodes = [
        Node("Greater", ("x", "y"), ("m",)),
        Node("Not", ("m",), ("k",)),
        Node("And", ("k", "b"), ("q",)),
        Node("Where", ("q", "x", "z"), ("w",)),
    ]
    zero = {"z": np.array(0, np.float32)}
    cases += [Case(nodes, {"x": floats(5, 19), "y": floats(5, 19), "b": b}, zero, outputs=["q", "w"])]
    cases += [Case([Node("Where", ("m", "x", "y"), ("z",))], {"m": a, "x": ints, "y": ints[:1].copy()})]
    check(cases)


def test_casts() -> None:
    wanted = (DType.F32, DType.F64, DType.I32, DType.I64, DType.I8, DType.U8, DType.BOOL)
    cases = []
    for source in wanted:
        x = RNG.integers(0, 90, 37).astype(source.numpy)
        x = x + np.array(0.75, source.numpy) if source.is_float else x
        cases += [unary("Cast", x, to=target.onnx) for target in wanted]
    x = floats(33)
    cases.append(unary("Cast", x, to=DType.I64.onnx))
    mixed = [
        Node("Cast", ("i",), ("f",), {"to": 1}),
        Node("Mul", ("f", "x"), ("y",)),
        Node("Cast", ("y",), ("z",), {"to": 7}),
    ]
    cases.append(Case(mixed, {"i": RNG.integers(0, 9, 33), "x": x}, outputs=["y", "z"]))
    check(cases)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantized_twice(dtype: type[np.generic]) -> None:
    """Between two quantizations bytes stay floats; NaN becomes the least byte, and out of range numbers saturate."""
    limits = np.iinfo(dtype)  # type: ignore[type-var]
    zero, scale = np.asarray(limits.min + 100, dtype), np.float32(0.05)
    x, other = _with_special(60) * 2, np.concatenate([np.zeros(14, np.float32), floats(60)])
    nodes = [
        Node("QuantizeLinear", ("x", "s", "zero"), ("q",), {"axis": 1}),
        Node("DequantizeLinear", ("q", "s", "zero"), ("d",), {"axis": 1}),
        Node("Add", ("d", "other"), ("t",)),
        Node("QuantizeLinear", ("t", "s", "zero"), ("y",), {"axis": 1}),
    ]

    def quantize(a: Array) -> Array:
        found = np.clip(np.rint(a / scale) + int(zero), limits.min, limits.max)
        return np.where(np.isnan(found), limits.min, found).astype(dtype)

    with np.errstate(all="ignore"):
        q = quantize(x)
        d = (q.astype(np.float32) - np.float32(zero)) * scale
        t = d + other
        values = {"q": q, "d": d, "t": t, "y": quantize(t)}
    inputs, constants = {"x": x, "other": other}, {"s": np.asarray(scale), "zero": zero}
    both = [Case(nodes, inputs, constants, expected=values), Case(nodes[:2], {"x": x}, constants, expected=values)]
    cases = [*both, Case(nodes[:1], {"x": x}, constants, expected=values)]
    check(cases)
    for case in cases:  # bytes are among the results, or only between floats
        items, _ = lower(make_graph(list(case.nodes), case.inputs, constants=case.constants))
        assert [item.kernel.params["vector"] for item in items or () if isinstance(item, Step)] == [True]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_functions_of_bytes_are_computed_on_vectors(dtype: type) -> None:
    """Scales for all or one axis, bytes along rows and one for a row, and results that are bytes again."""
    x = RNG.integers(0, 256, (3, 53)).astype(np.uint8).view(dtype)
    one, each = np.asarray(0.03, np.float32), np.linspace(0.01, 0.05, 53).astype(np.float32)
    zero = np.asarray(5, dtype)
    cases = []
    for read, scale, at in ((x, one, zero), (x, each, np.full(53, 5, dtype)), (x[:, :1], one, zero)):
        nodes = [
            Node("DequantizeLinear", ("x", "s", "zero"), ("d",), {"axis": 1}),
            Node("Erf", ("d",), ("t",)),
            Node("Add", ("t", "other"), ("y",)),
        ]
        cases.append(Case(nodes, {"x": read, "other": floats(3, 53)}, {"s": scale, "zero": at}))
    back = [*nodes, Node("QuantizeLinear", ("y", "s", "zero"), ("q",), {"axis": 1})]
    cases.append(Case(back, {"x": x, "other": floats(3, 53)}, {"s": one, "zero": zero}, outputs=["q"], atol=1))
    check(cases)
    for case in cases:
        items, _ = lower(make_graph(list(case.nodes), case.inputs, constants=case.constants))
        assert items is not None
        assert [item.kernel.params["vector"] for item in items if isinstance(item, Step)] == [True]


def test_broadcasting() -> None:
    shapes = [
        ((2, 3, 4), (2, 3, 4)),
        ((2, 3, 4), (4,)),
        ((2, 3, 4), (3, 1)),
        ((2, 3, 4), (2, 1, 1)),
        ((2, 3, 4), ()),
        ((), ()),
        ((1,), (5,)),
        ((2, 1, 4), (1, 3, 1)),
        ((5, 1), (1, 7)),
        ((3, 1, 33), (17, 1)),
        ((2, 7, 3, 19), (7, 1, 1)),
        ((2, 7, 3, 19), (1, 3, 1)),
        ((0, 3), (3,)),
        ((4, 0), (4, 1)),
        ((1, 1, 1000), (3, 1, 1)),
        ((129,), (129,)),
        ((64,), (64,)),
        ((3, 200, 70), (3, 200, 70)),
    ]
    check([_binary("Sub", floats(*a), floats(*b)) for a, b in shapes] + [_binary("Less", floats(3, 5), floats(5))])
    check(
        [_binary("Sub", np.asarray(RNG.integers(0, 9, a)), np.asarray(RNG.integers(0, 9, b))) for a, b in shapes[:12]]
    )


def test_chains_share_and_fold() -> None:
    x, bias = floats(6, 50), floats(50)
    nodes = [
        Node("Add", ("x", "bias"), ("a",)),
        Node("Div", ("a", "root2"), ("d",)),
        Node("Erf", ("d",), ("e",)),
        Node("Add", ("e", "one"), ("f",)),
        Node("Mul", ("a", "f"), ("g",)),
        Node("Mul", ("g", "half"), ("h",)),
        Node("Add", ("h", "x"), ("r",)),
    ]
    numbers = {"root2": np.float32(2) ** 0.5, "one": np.float32(1), "half": np.full((1, 1), 0.5)}
    constants = {k: np.asarray(v, np.float32) for k, v in numbers.items()} | {"bias": bias}
    check([Case(nodes, {"x": x}, constants, outputs=["a", "r"])])


def test_batch_normalization() -> None:
    cases = []
    for shape in ((2, 5, 7, 3), (1, 16, 9), (4, 3)):
        c = shape[1]
        stats = {k: floats(c) for k in ("scale", "bias", "mean")} | {"var": np.abs(floats(c)) + 0.1}
        node = Node("BatchNormalization", ("x", "scale", "bias", "mean", "var"), ("y",), {"epsilon": 1e-3})
        cases += [Case([node], {"x": floats(*shape)}, stats), Case([node], {"x": floats(*shape), **stats})]
    check(cases)


def test_dims_known_at_run_time() -> None:
    n, s, m = symbol("N"), symbol("S"), symbol("M")
    f32 = DType.F32
    add = [Node("Add", ("x", "y"), ("z",))]
    cases = []
    for a, b in ((3, 70), (1, 1), (0, 5), (2, 16)):
        wide = {"z": TensorType(f32, (n, s, 6))}
        cases += [
            Case(add, {"x": floats(a, b, 6), "y": floats(b, 6)}, {}, None, {"x": ("N", "S", 6), "y": ("S", 6)}, wide),
            Case(
                add,
                {"x": floats(a, b, 6), "y": floats(a, 1, 6)},
                {},
                None,
                {"x": ("N", "S", 6), "y": ("N", 1, 6)},
                wide,
            ),
        ]
    for rows in (1, 5):  # one kernel for a row that repeats and for one that does not
        kind = {"z": TensorType(f32, (n, 40))}
        cases.append(
            Case(add, {"x": floats(5, 40), "y": floats(rows, 40)}, {}, None, {"x": ("N", 40), "y": ("M", 40)}, kind)
        )
        kind = {"z": TensorType(f32, (40, n))}
        cases.append(
            Case(add, {"x": floats(40, 5), "y": floats(40, rows)}, {}, None, {"x": (40, "N"), "y": (40, "M")}, kind)
        )
    assert m != n
    check(cases)


def test_tensors_of_long_rows_share_a_kernel() -> None:
    def step(*shape: int) -> Step:
        inputs = {"x": floats(*shape), "b": floats(shape[-1])}
        items, _ = lower(make_graph([Node("Mul", ("x", "b"), ("t",)), Node("Relu", ("t",), ("z",))], inputs))
        assert items is not None
        (found,) = items
        assert isinstance(found, Step)
        return found

    first, second = step(5, 192), step(9, 480)
    assert first.kernel == second.kernel
    assert first.dims != second.dims
    assert step(5, 64).kernel != step(5, 96).kernel
