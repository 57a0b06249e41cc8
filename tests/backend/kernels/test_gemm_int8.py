"""Int8 products and dynamic quantization, bit for bit, on each instruction set of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.target import Target, describe, detect, runs_here
from rewrite.backend.toolchain.builder import build
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import Node
from rewrite.system.store import Store

from .oracle import Case, check, oracle
from .test_gemm import case as in_any_size

Array = NDArray[Any]
RNG = np.random.default_rng(12)
ISAS: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "portable": ("portable", 16, ()),
    "avx2": ("avx2", 32, ()),
    "avx_vnni": ("avx2", 32, ("avx_vnni",)),
    "avx512": ("avx512", 64, ()),
    "avx512_vnni": ("avx512", 64, ("avx512_vnni",)),
    "amx": ("avx512", 64, ("avx512_vnni", "amx_int8")),
}


@pytest.fixture(params=ISAS)
def machine(request: pytest.FixtureRequest) -> Target:
    """Target whose kernels this machine runs."""
    isa, width, features = ISAS[request.param]
    target = replace(detect(), isa=isa, vector_bytes=width, features=features)
    if not runs_here(target):
        pytest.skip(f"this CPU lacks {describe(target)}")
    return target


def u8(*shape: int) -> Array:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> Array:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def number(value: float, dtype: type = np.float32) -> Array:
    return np.asarray(value, dtype)


@dataclass
class Summed(Case):
    """Case with the names of the rounded values that its result sums up, where they may cancel."""

    terms: Sequence[str] = ()


class Compared:
    """Groups whose results must equal ONNX Runtime's bit for bit; all kernels are built at once."""

    def __init__(self, machine: Target) -> None:
        self.machine = machine
        self.cases: list[Summed] = []

    def add(
        self,
        nodes: Sequence[Node],
        inputs: Mapping[str, Array],
        constants: Mapping[str, Array],
        terms: Sequence[str] = (),
    ) -> None:
        """Add a case; `terms` are the values that its result sums up, where they may cancel."""
        self.cases.append(Summed(nodes, inputs, constants, terms=terms))

    def check(self) -> None:
        graphs = [harness.make_graph(c.nodes, c.inputs, constants=c.constants) for c in self.cases]
        kernels = []
        for graph in graphs:
            for threads in (1, 3):  # the choice of kernels depends on their number
                items, _ = harness.lower(graph, threads=threads, target=self.machine)
                assert items is not None, graph.nodes[0].op
                kernels += [item.kernel for item in items if isinstance(item, Step)]
        build(list(dict.fromkeys(kernels)), self.machine, Store())
        for graph, case in zip(graphs, self.cases, strict=True):
            expected = oracle(case)
            for threads in (1, 3):
                got = harness.run(graph, case.inputs, threads=threads, target=self.machine)
                for name, array in got.items():
                    assert array.dtype == expected[name].dtype
                    what = f"{case.nodes[0]}, {threads} threads"
                    rtol = 2e-5 if array.dtype == np.float32 and len(case.nodes) > 1 else 0  # a fused multiply-add
                    if case.terms:  # fused, a product is not rounded: where sums cancel, its last digit is seen
                        last = 2.0**-23 * sum(np.abs(expected[term]) for term in case.terms)
                        away = np.abs(array - expected[name])
                        assert np.all(away <= last + rtol * np.abs(expected[name])), what
                    else:
                        np.testing.assert_allclose(array, expected[name], rtol=rtol, atol=0, err_msg=what)


@pytest.fixture
def compared(machine: Target) -> Compared:
    return Compared(machine)


def test_oracle_does_not_saturate() -> None:
    """Two products of 255 and -128 exceed 16 bits, in which some CPUs add them."""
    a, b = np.full((1, 4), 255, np.uint8), np.full((4, 1), -128, np.int8)
    case = Case([Node("MatMulInteger", ("a", "b"), ("y",))], {"a": a}, {"b": b})
    assert oracle(case)["y"].tolist() == [[4 * 255 * -128]]


def test_matmul(compared: Compared) -> None:
    node = Node("MatMulInteger", ("a", "b", "za"), ("y",))
    quantized = Node("QLinearMatMul", ("a", "sa", "za", "b", "sb", "zb", "sy", "zy"), ("y",))
    for m, k, n in ((7, 33, 47), (128, 96, 80), (1, 5, 3), (49, 130, 129)):
        for kind in (u8, i8):
            a, b, zero = kind(m, k), i8(k, n), kind()
            compared.add([node], {"a": a}, {"b": b, "za": zero})
            compared.add([node], {"a": a, "za": zero}, {"b": b})
            scales = {"sa": number(0.02), "sb": number(0.01), "sy": number(0.05 * np.sqrt(k))}
            zeros = {"za": zero, "zb": number(0, np.int8), "zy": kind()}
            compared.add([quantized], {"a": a}, {"b": b, **scales, **zeros})
    compared.check()


def test_matmul_of_unsigned_weights_and_the_sums_of_many(compared: Compared) -> None:
    node = Node("MatMulInteger", ("a", "b", "za", "zb"), ("y",))
    compared.add([node], {"a": u8(9, 20)}, {"b": u8(20, 33), "za": number(7, np.uint8), "zb": number(128, np.uint8)})
    extremes = {"b": np.full((4000, 20), -128, np.int8), "za": number(0, np.uint8)}
    compared.add([Node("MatMulInteger", ("a", "b", "za"), ("y",))], {"a": np.full((3, 4000), 255, np.uint8)}, extremes)
    compared.check()


def test_matmul_of_weights_with_any_zero_point(compared: Compared) -> None:
    """Bytes of either sign by bytes of either sign, less zero points with which they do not fit a signed byte."""
    node = Node("MatMulInteger", ("a", "b", "za", "zb"), ("y",))
    quantized = Node("QLinearMatMul", ("a", "sa", "za", "b", "sb", "zb", "sy", "zy"), ("y",))
    for m, k, n in ((7, 33, 47), (128, 96, 80), (1, 5, 3), (2, 3000, 40)):
        for left, right in ((u8, u8), (i8, u8), (u8, i8), (i8, i8)):
            a, b, zero = left(m, k), right(k, n), left()
            b[0, :2] = np.iinfo(b.dtype).min, np.iinfo(b.dtype).max
            for zb in (right(n), np.asarray(right(1)[0] // 2 + 3, b.dtype)):
                compared.add([node], {"a": a}, {"b": b, "za": zero, "zb": zb})
                compared.add([node], {"a": a, "za": zero}, {"b": b, "zb": zb})
            scales = {"sa": number(0.02), "sb": number(0.01), "sy": number(0.05 * np.sqrt(k))}
            compared.add([quantized], {"a": a}, {"b": b, **scales, "za": zero, "zb": right(), "zy": left()})
        compared.add([Node("MatMulInteger", ("a", "b"), ("y",))], {"a": u8(m, k)}, {"b": u8(k, n)})
    compared.check()


def test_matmul_of_matrices_known_at_run_time(compared: Compared) -> None:
    """Bytes of either sign, with and without zero points, of the right matrix one or one per column, and in batches."""
    quantized = Node("QLinearMatMul", ("a", "sa", "za", "b", "sb", "zb", "sy", "zy"), ("y",))
    every = [((7, 33), (33, 47)), ((40, 64), (64, 150)), ((2, 3, 9, 66), (2, 3, 66, 65))]
    others = [((1, 5), (5, 3)), ((2, 3000), (3000, 40)), ((2, 3, 9, 8), (8, 70)), ((2, 1, 4), (2, 4, 16)),
              ((5, 12), (2, 12, 33)), ((1, 5, 12), (2, 12, 33)), ((3, 5, 8), (1, 8, 20))]  # fmt: skip
    for left, right in ((u8, u8), (i8, u8), (u8, i8), (i8, i8)):
        for a_shape, b_shape in every + (others if left is right else []):
            a, b, n = left(*a_shape), right(*b_shape), b_shape[-1]
            a[..., 0], b[..., 0] = np.iinfo(a.dtype).max, np.iinfo(b.dtype).min
            values, zeros = {"a": a, "b": b}, {"za": left(), "zb": right()}
            compared.add([Node("MatMulInteger", ("a", "b", "za", "zb"), ("y",))], {**values, **zeros}, {})
            if (a_shape, b_shape) in others:
                continue
            compared.add([Node("MatMulInteger", ("a", "b"), ("y",))], values, {})
            compared.add([Node("MatMulInteger", ("a", "b", "", "zb"), ("y",))], {**values, "zb": right(n)}, {})
            scales = {"sa": number(0.02), "sb": number(0.01), "sy": number(0.05 * np.sqrt(a_shape[-1]))}
            compared.add([quantized], values, {**scales, **zeros, "zy": left()})
    values = {"a": u8(4, 20), "za": number(9, np.uint8)}
    compared.add([Node("MatMulInteger", ("a", "b", "za"), ("y",))], values, {"b": i8(3, 20, 30)})
    compared.check()


def test_matmul_of_rows_with_zero_points_of_their_own(compared: Compared) -> None:
    """Zero points of the left factor, one per row, beside those of the right one; and scales that are, too."""
    node = Node("MatMulInteger", ("a", "b", "za", "zb"), ("y",))
    quantized = Node("QLinearMatMul", ("a", "sa", "za", "b", "sb", "zb", "sy", "zy"), ("y",))
    for m, k, n in ((7, 33, 47), (33, 64, 80), (3, 5, 1)):
        for left, right in ((u8, u8), (i8, u8), (u8, i8), (i8, i8)):
            a, b, za, zb = left(m, k), right(k, n), left(m), right(n)
            a[:, 0], b[:, 0] = np.iinfo(a.dtype).max, np.iinfo(b.dtype).min
            compared.add([node], {"a": a}, {"b": b, "za": za, "zb": zb})
            compared.add([node], {"a": a, "za": za}, {"b": b, "zb": zb})
            compared.add([replace(node, inputs=("a", "b", "za"))], {"a": a, "za": za}, {"b": b})
            compared.add([node], {"a": a, "b": b, "za": za, "zb": zb}, {})
            compared.add([replace(node, inputs=("a", "b", "za"))], {"a": a, "b": b}, {"za": za})
            scales = {"sa": number(0.02), "sb": number(0.01), "sy": number(0.05 * np.sqrt(k)), "zy": left()}
            compared.add([quantized], {"a": a}, {"b": b, **scales, "za": za, "zb": zb})
            scales |= {"sa": (RNG.random(m) * 0.02 + 0.001).astype(np.float32)}
            scales |= {"sb": (RNG.random(n) * 0.02 + 0.001).astype(np.float32)}
            compared.add([quantized], {"a": a, "za": za}, {"b": b, **scales, "zb": zb})
            compared.add([quantized], {"a": a, "b": b, "za": za, "zb": zb}, scales)
    batched = {"a": i8(2, 3, 9), "za": i8(2, 3, 1)}
    compared.add([node], {**batched, "b": u8(2, 9, 20), "zb": u8(20)}, {})
    compared.add([node], batched, {"b": u8(9, 20), "zb": u8(20)})
    compared.check()


def test_matmul_of_any_size(machine: Target) -> None:
    nodes = [Node("MatMulInteger", ("a", "b", "za", "zb"), ("y",))]
    free = {"a": ("B", "M", "K"), "b": ("B", "K", "N")}
    cases = []
    for kind in (u8, i8):
        for b, m, k, n in ((1, 1, 1, 1), (3, 130, 66, 129), (0, 3, 4, 5)):
            inputs = {"a": kind(b, m, k), "b": i8(b, k, n), "za": kind(), "zb": i8()}
            cases.append(in_any_size(nodes, inputs, symbolic=free))
            matrices = {**inputs, "a": kind(m, k), "b": u8(k, n), "zb": u8(n)}
            cases.append(in_any_size(nodes, matrices, symbolic={"a": ("M", "K"), "b": ("K", "N"), "zb": ("N",)}))
            cases.append(in_any_size(nodes, {**inputs, "b": u8(k, n), "zb": u8()}, symbolic={**free, "b": ("K", n)}))
            for depth in ("K", k):  # weights are constant
                rows = in_any_size(nodes, {**inputs, "b": i8(k, n)}, symbolic={"a": ("B", "M", depth)})
                constants = {name: rows.inputs[name] for name in ("b", "za", "zb")}
                cases.append(replace(rows, inputs={"a": rows.inputs["a"]}, constants=constants))
    check([replace(one, rtol=0, atol=0) for one in cases], [machine])


CONVOLUTIONS: Sequence[tuple[tuple[int, ...], int, int, int, int, int]] = [
    ((1, 33, 9, 11), 20, 1, 1, 0, 1),
    ((2, 16, 14, 14), 70, 3, 1, 1, 1),
    ((1, 17, 20, 21), 40, 3, 2, 1, 1),
    ((1, 48, 12, 12), 64, 5, 1, 2, 2),
    ((1, 3, 30, 30), 32, 7, 2, 3, 1),
    ((1, 24, 9, 9), 24, 3, 1, 1, 24),
    ((1, 66, 7, 7), 256, 3, 1, 1, 1),
]


def test_conv(compared: Compared) -> None:
    for x, m, kernel, stride, pad, group in CONVOLUTIONS:
        attrs: dict[str, Any] = {"group": group, "kernel_shape": (kernel,) * 2, "pads": (pad,) * 4}
        attrs["strides"] = (stride,) * 2
        w, size = i8(m, x[1] // group, kernel, kernel), x[1] // group * kernel * kernel
        for kind in (u8, i8):
            image, zero = kind(*x), kind()
            if kind is u8:  # ONNX Runtime has no other
                node = Node("ConvInteger", ("x", "w", "zx"), ("y",), attrs)
                compared.add([node], {"x": image}, {"w": w, "zx": zero})
                compared.add([node], {"x": image, "zx": zero}, {"w": w})
            quantized = Node("QLinearConv", ("x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"), ("y",), attrs)
            constants = {
                "w": w,
                "sx": number(0.02),
                "sw": (RNG.random(m) * 0.02 + 0.001).astype(np.float32),
                "sy": number(0.03 * np.sqrt(size)),
                "zx": zero,
                "zw": np.zeros(m, np.int8),
                "zy": kind(),
                "b": RNG.integers(-9999, 9999, m).astype(np.int32),
            }
            compared.add([quantized], {"x": image}, constants)
    compared.check()


def test_conv_of_weights_with_any_zero_point(compared: Compared) -> None:
    for x, m, kernel, stride, pad, group in (*CONVOLUTIONS, ((1, 4, 5, 5), 8, 3, 2, 1, 4)):
        attrs: dict[str, Any] = {"kernel_shape": (kernel,) * 2, "pads": (pad,) * 4, "strides": (stride,) * 2}
        attrs["group"] = group
        w, image = u8(m, x[1] // group, kernel, kernel), {"x": u8(*x)}
        w[0, 0, 0, 0], w[-1, 0, 0, 0] = 0, 255
        node = Node("ConvInteger", ("x", "w", "zx", "zw"), ("y",), attrs)
        zeros = {"zx": number(7, np.uint8), "zw": number(113, np.uint8)}
        compared.add([node], image, {"w": w, **zeros})
        compared.add([node], {**image, "zx": zeros["zx"]}, {"w": w, "zw": zeros["zw"]})
        compared.add([replace(node, inputs=("x", "w"))], image, {"w": w})
        quantized = Node("QLinearConv", ("x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"), ("y",), attrs)
        constants = {
            "sx": number(0.02),
            "sw": number(0.004),
            "sy": number(0.03 * np.sqrt(x[1] * kernel * kernel)),
            "zy": number(90, np.uint8),
            "b": RNG.integers(-9999, 9999, m).astype(np.int32),
        }
        compared.add([quantized], image, {"w": w, **zeros, **constants})
    compared.check()


def test_conv_of_filters_known_at_run_time(compared: Compared) -> None:
    for x, m, kernel, stride, pad, group in (*CONVOLUTIONS, ((1, 4, 5, 5), 8, 3, 2, 1, 4)):
        attrs: dict[str, Any] = {"kernel_shape": (kernel,) * 2, "pads": (pad,) * 4, "strides": (stride,) * 2}
        attrs["group"] = group
        zeros = {"zx": number(7, np.uint8), "zw": number(113, np.uint8)}
        size = (m, x[1] // group, kernel, kernel)
        signed, unsigned, image = i8(*size), u8(*size), u8(*x)
        signed[0, 0, 0, 0], unsigned[0, 0, 0, 0] = -128, 255
        compared.add([Node("ConvInteger", ("x", "w"), ("y",), attrs)], {"x": image, "w": signed}, {})
        compared.add([Node("ConvInteger", ("x", "w", "zx"), ("y",), attrs)], {"x": image, "w": signed}, zeros)
        values = {"x": image, "w": unsigned, **zeros}
        compared.add([Node("ConvInteger", ("x", "w", "zx", "zw"), ("y",), attrs)], values, {})
        each = {"x": i8(*x), "w": unsigned, "zw": u8(m), "zx": i8()}
        compared.add([Node("ConvInteger", ("x", "w", "zx", "zw"), ("y",), attrs)], each, {})
        compared.add([Node("ConvInteger", ("x", "w", "", "zw"), ("y",), attrs)], values, {})
        compared.add([Node("ConvInteger", ("x", "w"), ("y",), attrs)], {"x": image, "w": unsigned}, {})
        node = Node("ConvInteger", ("x", "w", "zx", "zw"), ("y",), attrs)  # filters are constant, their zero points not
        compared.add([node], {"x": image, "zw": u8(m)}, {"w": unsigned, "zx": zeros["zx"]})
        constants = {
            "sx": number(0.02),
            "sw": (RNG.random(m) * 0.02 + 0.001).astype(np.float32),
            "sy": number(0.03 * np.sqrt(x[1] * kernel * kernel)),
            "zw": np.zeros(m, np.int8),
            "zy": number(90, np.uint8),
            "b": RNG.integers(-9999, 9999, m).astype(np.int32),
        }
        quantized = Node("QLinearConv", ("x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"), ("y",), attrs)
        compared.add([quantized], {"x": image, "w": signed, "zx": zeros["zx"]}, constants)
        filters = {"w": unsigned, "zw": u8(m)}
        others = {name: array for name, array in constants.items() if name != "zw"}
        compared.add([quantized], {"x": image, **filters, "zx": zeros["zx"]}, others)
    compared.check()


def test_epilogues_scale_add_and_quantize(compared: Compared) -> None:
    nodes = [
        Node("MatMulInteger", ("a", "b", "za"), ("n",)),
        Node("Cast", ("n",), ("f",), {"to": 1}),
        Node("Mul", ("f", "s"), ("p",)),
        Node("Add", ("p", "c"), ("q",)),
        Node("Relu", ("q",), ("r",)),
        Node("QuantizeLinear", ("r", "sy", "zy"), ("y",)),
    ]
    constants = {
        "b": i8(40, 50),
        "za": number(3, np.uint8),
        "s": (RNG.random(50) * 1e-3).astype(np.float32),
        "c": RNG.standard_normal(50).astype(np.float32),
        "sy": number(0.05),
        "zy": number(9, np.uint8),
    }
    compared.add(nodes, {"a": u8(13, 40)}, constants)
    compared.add(nodes[:-1], {"a": u8(13, 40)}, constants, terms=("p",))
    residual = [
        *nodes[:4],
        Node("DequantizeLinear", ("other", "so", "zo"), ("d",)),
        Node("Add", ("q", "d"), ("y",)),
    ]
    for kind, zero in ((u8, number(77, np.uint8)), (i8, number(-3, np.int8))):
        more = {"so": number(0.03), "zo": zero}
        compared.add(residual, {"a": u8(13, 40), "other": kind(13, 50)}, {**constants, **more}, terms=("p", "q", "d"))
    compared.check()


def test_convolutions_add_bytes(compared: Compared) -> None:
    """Of many and of few pixels: kernels for the latter transpose their sums and add rows of bytes to them."""
    nodes = [
        Node("ConvInteger", ("x", "w", "zx"), ("n",), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}),
        Node("Cast", ("n",), ("f",), {"to": 1}),
        Node("Mul", ("f", "s"), ("p",)),
        Node("DequantizeLinear", ("other", "so", "zo"), ("d",)),
        Node("Add", ("p", "d"), ("y",)),
    ]
    templates = set()
    for m, c, h, w in ((256, 256, 14, 15), (70, 512, 7, 7), (64, 64, 28, 28)):
        constants = {
            "w": i8(m, c, 3, 3),
            "zx": number(3, np.uint8),
            "s": (RNG.random((m, 1, 1)) * 1e-4).astype(np.float32),
        }
        for kind, zero in ((u8, number(77, np.uint8)), (i8, number(-3, np.int8))):
            more = {"so": number(0.03), "zo": zero}
            inputs = {"x": u8(1, c, h, w), "other": kind(1, m, h, w)}
            compared.add(nodes, inputs, {**constants, **more}, terms=("p", "d"))
        items, _ = harness.lower(
            harness.make_graph(nodes, inputs, constants={**constants, **more}), target=compared.machine
        )
        templates |= {item.kernel.template for item in items or () if isinstance(item, Step)}
    assert {"conv", "conv_small"} <= templates
    compared.check()


def test_epilogues_that_call_functions(machine: Target) -> None:
    """They are applied in a loop over the sums, of full and of partial vectors, whatever the type of the results."""
    nodes = [
        Node("MatMulInteger", ("a", "b", "za"), ("n",)),
        Node("Cast", ("n",), ("f",), {"to": 1}),
        Node("Mul", ("f", "s"), ("p",)),
        Node("Gelu", ("p",), ("g",), {"approximate": "none"}),
        Node("Sigmoid", ("g",), ("q",)),
    ]
    quantize = Node("QuantizeLinear", ("q", "sy", "zy"), ("y",), {"axis": 1})
    constants = {"za": number(3, np.uint8), "s": number(2e-4), "sy": number(0.004), "zy": number(9, np.uint8)}
    cases = []
    for rows, n in ((13, 50), (1, 16), (6, 33)):
        inputs, weights = {"a": u8(rows, 40)}, {**constants, "b": i8(40, n)}
        cases.append(Case(nodes, inputs, weights, rtol=1e-5, atol=2e-6))
        cases.append(Case([*nodes, quantize], inputs, weights, rtol=0, atol=1))
    check(cases, [machine])


def test_linear_quantization() -> None:
    x = np.concatenate([RNG.standard_normal(500) * 20, np.arange(-40, 40) * 0.25, [np.inf, -np.inf, 0.0, -0.0]])
    x = x.astype(np.float32).reshape(2, 4, -1)
    cases = []
    for dtype, zeros in ((np.uint8, [0, 3, 128, 255]), (np.int8, [0, -7, 127, -128])):
        for scale, zero in (
            (number(0.5), number(zeros[1], dtype)),
            (np.array([0.5, 0.1, 2, 1], np.float32), np.array(zeros, dtype)),
        ):
            both = {"s": scale, "z": zero}
            cases.append(
                Case([Node("QuantizeLinear", ("x", "s", "z"), ("y",), {"axis": 1})], {"x": x}, both, rtol=0, atol=0)
            )
            q = RNG.integers(-128, 128, (3, 4, 50)).astype(dtype)
            cases.append(
                Case([Node("DequantizeLinear", ("q", "s", "z"), ("y",), {"axis": 1})], {"q": q}, both, rtol=0, atol=0)
            )
    cases.append(Case([Node("QuantizeLinear", ("x", "s"), ("y",))], {"x": x, "s": number(0.3)}, rtol=0, atol=0))
    many = RNG.integers(-(2**20), 2**20, (5, 6)).astype(np.int32)
    cases.append(Case([Node("DequantizeLinear", ("q", "s"), ("y",))], {"q": many, "s": number(0.3)}, rtol=0, atol=0))
    check(cases)


@pytest.mark.parametrize("low", [-3.0, 0.5])
def test_dynamic_quantization(compared: Compared, low: float) -> None:
    node = Node("DynamicQuantizeLinear", ("x",), ("y", "s", "z"))
    for shape in ((1,), (3, 7), (5, 1001), (2, 3, 4000)):
        x = (RNG.random(shape) * 9 + low).astype(np.float32)
        compared.add([node], {"x": x}, {})
    compared.check()


def max_pools(channels: int) -> Iterator[tuple[Node, tuple[int, ...]]]:
    """Return nodes with the shapes of their inputs, one of which has `channels` channels."""
    for kernel, stride, pads, shape in (
        ((2, 2), (2, 2), (0, 0, 0, 0), (1, 3, 8, 9)),
        ((3, 3), (2, 2), (1, 1, 1, 1), (2, channels, 13, 11)),
        ((3, 2), (1, 1), (1, 0, 1, 1), (1, 2, 40, 40)),
    ):
        yield Node("MaxPool", ("x",), ("y",), {"kernel_shape": kernel, "strides": stride, "pads": pads}), shape


@pytest.mark.parametrize("kind", [u8, i8])
def test_max_pool(compared: Compared, kind: Any) -> None:
    for node, shape in max_pools(5):
        compared.add([node], {"x": kind(*shape)}, {})
    compared.check()
