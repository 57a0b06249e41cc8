"""Softmax and normalizations against the oracle: lengths, axes, special values, prologues and epilogues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rewrite.backend.ir.target import make_target
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import DType, Node, TensorType
from rewrite.engine.ir.symbolic import symbol

from .oracle import Array, Case, check, oracle, unary
from .test_conv_nhwc import turned

RNG = np.random.default_rng(3)


def floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape) * 2, np.float32)


def _affine(op: str, x: Array, shape: Sequence[int], *, bias: bool = True, **attrs: Any) -> Case:
    constants = {"g": floats(*shape), "b": floats(*shape)} if bias else {"g": floats(*shape)}
    return Case([Node(op, ("x", *constants), ("y",), attrs)], {"x": x}, constants)


def test_rows_that_end_in_a_part_of_a_vector_have_memory_of_their_own() -> None:
    """Written over their operands, each would wait for the masked store of the row before."""
    target = make_target("avx512")
    for n, shares in ((3, False), (16, True), (20, False), (64, True)):
        items, _ = harness.lower(
            harness.make_graph([Node("Softmax", ("x",), ("y",))], {"x": floats(5, n)}), target=target
        )
        assert items is not None
        assert bool(items[0].in_place) == shares


def test_softmax_along_the_last_axis() -> None:
    cases = []
    for n in (1, 3, 16, 17, 128, 200, 256, 257, 1001):
        cases += [unary(op, floats(5, n), axis=-1) for op in ("Softmax", "LogSoftmax")]
    special = floats(4, 50)
    special[1, 4], special[2, :], special[3, 7] = np.nan, -np.inf, np.inf
    cases += [unary("Softmax", special), unary("Softmax", floats(2, 300) * 60), unary("LogSoftmax", floats(2, 30) * 60)]
    cases += [unary("Softmax", np.zeros((0, 5), np.float32)), unary("Softmax", floats(7), axis=0)]
    masked = np.where(floats(6, 300) > 1, floats(6, 300), np.float32(-np.inf))
    cases += [unary("Softmax", masked)]
    check(cases)


def test_softmax_along_other_axes() -> None:
    cases = []
    for shape, axis in (
        ((4, 5), 0),
        ((3, 7, 16), 1),
        ((3, 7, 33), 1),
        ((2, 3, 4, 5), 1),
        ((2, 21, 4, 1), 1),
        ((5, 1, 9), 1),
    ):
        cases += [unary(op, floats(*shape), axis=axis) for op in ("Softmax", "LogSoftmax")]
    check(cases)


def test_layer_norm() -> None:
    cases = []
    for n in (1, 5, 16, 100, 256, 768, 1001):
        cases += [
            _in_double_precision(_affine("LayerNormalization", floats(5, n), (n,))),
            _affine("RMSNormalization", floats(5, n), (n,), bias=False),
        ]
    cases += [
        _affine("LayerNormalization", floats(5, 3, 11), (3, 11), axis=1),
        _affine("LayerNormalization", floats(5, 3, 11), (11,), bias=False, epsilon=0.1),
        _in_double_precision(_affine("LayerNormalization", floats(2, 64) + 1000, (64,))),
    ]
    check(cases)


def _in_double_precision(case: Case) -> Case:
    """Return a layer normalization with its result in double precision.

    The oracles' own mean is off by the last digit of single precision, here 1e-4 of a deviation."""
    x, scale, bias = (v.astype(np.float64) for v in (*case.inputs.values(), *case.constants.values()))
    d = x - x.mean(-1, keepdims=True)
    y = d / np.sqrt(np.square(d).mean(-1, keepdims=True) + 1e-5) * scale + bias
    return replace(case, expected={"y": y.astype(np.float32)})


def test_layer_norm_of_infinite_variance() -> None:
    """Its root is infinite, and what is divided by it 0: the bias remains."""
    cases = []
    for n in (1, 7, 40, 64):
        x = floats(4, n)
        x[1, n // 2] = 1e30
        cases.append(_affine("LayerNormalization", x, (n,), axis=-1, epsilon=1e-3))
    check(cases)


def test_group_norms() -> None:
    cases = [
        _affine("InstanceNormalization", floats(*s), s[1:2])
        for s in ((2, 7, 5, 9), (1, 3, 16), (2, 3, 4, 5, 6), (2, 2, 40, 30))
    ]
    for shape, groups in (((2, 6, 5, 9), 3), ((1, 8, 16), 8), ((3, 4, 33, 2), 1), ((2, 32, 7, 7), 16)):
        cases.append(_affine("GroupNormalization", floats(*shape), shape[1:2], num_groups=groups))
    check(cases)


def _last(case: Case) -> Case:
    """Return a case of group normalization with all images in NHWC."""
    images = {name for name, v in {**case.inputs, **case.constants}.items() if v.ndim > 2}
    expected = {name: turned(v) for name, v in oracle(case).items()}
    names = {"GroupNormalization": "rewrite.ChannelsLastGroupNormalization"}
    nodes = [replace(n, op=names.get(n.op, n.op)) for n in case.nodes]
    inputs, constants = (
        {k: turned(v) if k in images else v for k, v in values.items()} for values in (case.inputs, case.constants)
    )
    return replace(case, nodes=nodes, inputs=inputs, constants=constants, expected=expected, threads=(1, 2, 5))


def test_channels_last_group_norms() -> None:
    cases = []
    for shape, groups in (
        ((2, 7, 5, 9), 7), ((1, 16, 40, 40), 16), ((3, 48, 33, 2), 48), ((2, 6, 4, 5, 6), 3), ((1, 32, 7, 7), 1),
        ((2, 40, 31, 20), 8), ((1, 400, 9, 30), 400), ((2, 20, 1, 1), 4),
    ):  # fmt: skip
        cases.append(_affine("GroupNormalization", floats(*shape), shape[1:2], num_groups=groups, epsilon=1e-3))
    check([_last(case) for case in cases])


def _groups_in_double_precision(case: Case, groups: int) -> Case:
    """Return a group normalization in NHWC with its result in double precision.

    The oracle's sums are off by as much as is allowed, where the scaled deviation and the bias cancel."""
    x, scale, bias = (v.astype(np.float64) for v in (*case.inputs.values(), *case.constants.values()))
    wide = x.reshape(len(x), groups, -1)
    d = wide - wide.mean(-1, keepdims=True)
    normal = (d / np.sqrt(np.square(d).mean(-1, keepdims=True) + 1e-5)).reshape(x.shape)
    y = normal * scale[:, None, None] + bias[:, None, None]
    return replace(_last(case), expected={"y": turned(y.astype(np.float32))})


def test_channels_last_norm_far_from_zero() -> None:
    x = floats(1, 24, 30, 30) + np.arange(24, dtype=np.float32)[:, None, None] * 200
    for groups in (24, 6):
        case = _affine("GroupNormalization", x, (24,), num_groups=groups)
        check([_groups_in_double_precision(case, groups)])


def test_channels_last_norm_with_prologue_and_epilogue() -> None:
    nodes = [
        Node("Add", ("x", "r"), ("s",)),
        Node("GroupNormalization", ("s", "g", "b"), ("n",), {"num_groups": 4}),
        Node("Mul", ("n", "k"), ("m",)),
        Node("Add", ("m", "x"), ("o",)),
        Node("LeakyRelu", ("o",), ("y",), {"alpha": 0.1}),
    ]
    constants = {"g": floats(20), "b": floats(20), "k": floats(1, 20, 1, 1)}
    inputs = {"x": floats(2, 20, 14, 19), "r": floats(2, 20, 14, 19)}
    cases = [Case(nodes, inputs, constants, outputs=outputs) for outputs in (["y"], ["s", "y"])]
    check([_last(case) for case in cases])


def test_channels_last_norm_of_any_size() -> None:
    case = _groups_in_double_precision(_affine("GroupNormalization", floats(2, 24, 13, 50), (24,), num_groups=3), 3)
    kind = TensorType(DType.F32, (symbol("N"), symbol("H"), symbol("W"), 24))
    check([replace(case, symbolic={"x": ("N", "H", "W", 24)}, types={"y": kind})])


def test_lp_normalization() -> None:
    zero = np.zeros((3, 20), np.float32)
    cases = [
        unary("LpNormalization", x, p=p, axis=-1) for p in (1, 2) for x in (floats(4, 5), floats(4, 300), floats(6))
    ]
    cases += [unary("LpNormalization", floats(3, 6, 20), p=p, axis=1) for p in (1, 2)]
    cases += [Case([Node("LpNormalization", ("x",), ("y",), {"p": 2})], {"x": zero}, expected={"y": zero})]
    tiny = np.zeros((3, 20), np.float32)
    tiny[0, :4], tiny[1, 7] = 2.0**-140, -(2.0**-149)  # the reciprocals of their sums are infinite
    for p, axis in ((1, -1), (1, 0)):
        total = np.abs(tiny.astype(np.float64)).sum(axis, keepdims=True)
        expected = np.divide(tiny, total, out=np.zeros_like(tiny, np.float64), where=total != 0).astype(np.float32)
        node = Node("LpNormalization", ("x",), ("y",), {"p": p, "axis": axis})
        cases.append(Case([node], {"x": tiny}, expected={"y": expected}))
    check(cases)


def test_prologue_and_epilogue() -> None:
    cases = []
    scores = [
        Node("Mul", ("x", "scale"), ("a",)),
        Node("Add", ("a", "mask"), ("s",)),
        Node("Softmax", ("s",), ("p",), {"axis": -1}),
        Node("Mul", ("p", "k"), ("z",)),
    ]
    residual = [
        Node("Add", ("x", "r"), ("s",)),
        Node("LayerNormalization", ("s", "g", "b"), ("y",), {"axis": -1}),
        Node("Relu", ("y",), ("z",)),
    ]
    columns = [
        Node("Add", ("x", "r"), ("s",)),
        Node("Softmax", ("s",), ("p",), {"axis": 1}),
        Node("Sub", ("p", "x"), ("z",)),
    ]
    for n in (40, 300):
        mask = np.where(floats(2, 1, 1, n) > 0, 0, -1e9).astype(np.float32)
        scale = {"scale": np.array(0.125, np.float32), "k": floats(8, 1)}
        cases.append(Case(scores, {"x": floats(2, 3, 8, n), "mask": mask}, scale, outputs=["z"]))
        inputs = {"x": floats(2, 8, n), "r": floats(2, 8, n)}
        weights = {"g": floats(n), "b": floats(n)}
        cases.append(Case(residual, inputs, weights, outputs=["s", "y", "z"]))
        cases.append(Case(residual, inputs, weights, outputs=["z"]))
        cases.append(Case(columns, {"x": floats(2, 8, n), "r": floats(8, 1)}, outputs=["s", "z"]))
    truth = [
        Node("Where", ("m", "x", "low"), ("s",)),
        Node("Softmax", ("s",), ("p",), {"axis": -1}),
    ]
    m = floats(1, 1, 9, 70) > 0
    cases.append(Case(truth, {"x": floats(2, 4, 9, 70), "m": m}, {"low": np.array(-1e9, np.float32)}, outputs=["p"]))
    check(cases)


def test_rows_of_which_only_halves_are_stored() -> None:
    """Rows longer than the registers hold, without a result that could keep their floats."""
    half = Node("Cast", ("y",), ("h",), {"to": DType.F16.onnx})
    cases = []
    for n in (300, 1001, 4096):
        weights, inputs = {"g": floats(n), "b": floats(n)}, {"x": floats(5, n), "r": floats(5, n)}
        norm = Node("LayerNormalization", ("x", "g", "b"), ("y",), {"axis": -1})
        total = Node("Add", ("x", "r"), ("s",))
        cases.append(Case([norm, half], {"x": inputs["x"]}, weights, outputs=["h"]))
        cases.append(Case([total, replace(norm, inputs=("s", "g", "b")), half], inputs, weights, outputs=["h"]))
        for op in ("Softmax", "LogSoftmax"):
            cases.append(Case([total, Node(op, ("s",), ("y",), {"axis": -1}), half], inputs, outputs=["h"]))
    groups = Node("GroupNormalization", ("x", "g", "b"), ("y",), {"num_groups": 3})
    weights = {"g": floats(6), "b": floats(6)}
    cases.append(Case([groups, half], {"x": floats(2, 6, 5, 70)}, weights, outputs=["h"]))
    check([replace(case, rtol=1e-3, atol=1e-6) for case in cases])  # a unit in the last place of f16


def test_dims_known_at_run_time() -> None:
    n, s = symbol("N"), symbol("S")
    cases = []
    for a, b in ((3, 70), (1, 1), (0, 5), (2, 16)):
        x, dims = {"x": floats(a, 4, b)}, {"x": ("N", 4, "S")}
        kind = {"y": TensorType(DType.F32, (n, 4, s))}
        cases += [
            Case([Node("Softmax", ("x",), ("y",), {"axis": axis})], x, symbolic=dims, types=kind) for axis in (-1, 1)
        ]
        x, kind = {"x": floats(a, b, 24)}, {"y": TensorType(DType.F32, (n, s, 24))}
        node = Node("LayerNormalization", ("x", "g", "b"), ("y",), {"axis": -1})
        constants = {"g": floats(24), "b": floats(24)}
        cases.append(Case([node], x, constants, symbolic={"x": ("N", "S", 24)}, types=kind))
    check(cases)


def test_local_response() -> None:
    cases = [unary("LRN", floats(2, c, 5, 7), size=n, alpha=0.3) for c, n in ((9, 5), (9, 4), (2, 3), (4, 1))]
    x = cases[1].inputs["x"]  # both oracles are wrong for even sizes
    squares = np.pad(x.astype(np.float64) ** 2, ((0, 0), (1, 2), (0, 0), (0, 0)))
    sums = sum(squares[:, k : k + 9] for k in range(4))
    cases[1].expected = {"y": (x / (1 + 0.3 / 4 * sums) ** 0.75).astype(np.float32)}
    check([*cases, unary("LRN", floats(1, 6, 40, 1), size=3, alpha=1e-4, beta=0.5, bias=2.0)])
