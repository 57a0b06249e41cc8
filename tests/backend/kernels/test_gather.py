"""Gathers, scatters and padding against the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
from rewrite.engine.ir.graph import DType, Node, TensorType
from rewrite.engine.ir.symbolic import symbol

from .oracle import Array, Case, check

RNG = np.random.default_rng(13)


def floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape) * 2, np.float32)


def _node(op: str, *inputs: Array, constants: dict[str, Array] | None = None, **attrs: Any) -> Case:
    values = {f"x{k}": v for k, v in enumerate(inputs)}
    return Case([Node(op, (*values, *(constants or {})), ("y",), attrs)], values, constants or {})


def test_gather() -> None:
    cases = []
    for shape, axis in (((50, 32), 0), ((3, 9, 4), 1), ((3, 9), -1), ((7,), 0)):
        extent = shape[axis]
        for indices in ((), (5,), (2, 3)):
            at = np.asarray(RNG.integers(-extent, extent, indices))
            cases.append(_node("Gather", floats(*shape), at, axis=axis))
        cases.append(_node("Gather", (floats(*shape) * 9).astype(np.int64), at.astype(np.int32), axis=axis))
    cases.append(_node("Gather", floats(5, 4) > 0, np.zeros((0,), np.int64), axis=0))
    check(cases)


def test_gather_elements_and_nd() -> None:
    x = floats(4, 5, 6)
    cases = [
        _node("GatherElements", x, RNG.integers(-4, 4, (3, 5, 2)), axis=0),
        _node("GatherElements", x, RNG.integers(-6, 6, (4, 5, 9)), axis=-1),
        _node("GatherND", x, RNG.integers(-4, 4, (7, 2))),
        _node("GatherND", x, RNG.integers(-4, 4, (2, 3, 1))),
        _node("GatherND", x, RNG.integers(-4, 4, (5, 3))),
        _node("GatherND", x, RNG.integers(-5, 5, (4, 7, 1)), batch_dims=1),
        _node("GatherND", x, RNG.integers(-6, 6, (4, 5, 1)), batch_dims=2),
    ]
    check(cases)


def test_scatter() -> None:
    x = floats(6, 5, 4)
    rows = RNG.permutation(6)[:3].reshape(3, 1)
    cases = [_node("ScatterND", x, rows, floats(3, 5, 4))]
    cases += [
        _node("ScatterND", x, np.array([[1, 2], [1, 2], [-1, 0]]), floats(3, 4), reduction=r)
        for r in ("add", "mul", "max")
    ]
    at = np.argsort(RNG.random((6, 5, 4)), axis=0)[:3]
    cases += [_node("ScatterElements", x, at, floats(3, 5, 4), axis=0)]
    repeated = RNG.integers(-4, 4, (6, 2, 7))
    cases += [_node("ScatterElements", x, repeated, floats(6, 2, 7), axis=2, reduction=r) for r in ("add", "min")]
    cases += [_node("ScatterND", (x * 9).astype(np.int64), rows, (floats(3, 5, 4) * 9).astype(np.int64))]
    check(cases)


def test_tensor_scatter() -> None:
    past, new = floats(2, 3, 7, 4), floats(2, 3, 2, 4)

    def case(*inputs: Array, **attrs: Any) -> Case:
        found = _node("TensorScatter", *inputs, **attrs)
        found.reference = True
        return found

    cases = [case(past, new), case(past, new, np.array([4, 0])), case(past, new, np.array([6, 3]), mode="circular")]
    cases.append(case(floats(2, 7, 3) > 0, floats(2, 1, 3) > 0, np.array([4, 0])))
    cases.append(case(floats(2, 3, 4, 7), floats(2, 3, 4, 2), np.array([4, 5]), axis=-1))
    cases.append(case((floats(2, 7, 4) * 9).astype(np.int64), (floats(2, 7, 4) * 9).astype(np.int64), axis=1))
    check(cases)


def test_a_cache_that_grows() -> None:
    past, new, zeros = floats(2, 3, 5, 4), floats(2, 3, 2, 4), np.zeros((2, 3, 3, 4), np.float32)
    cases = []
    for length, first in ((8, (5, 3)), (4, (3, 0))):
        expected = np.concatenate((past, zeros), axis=2) if length == 8 else past.copy()
        for b, at in enumerate(first):
            expected[b, :, at : at + 2] = new[b]
        node = Node("rewrite.UpdateCache", ("p", "u", "i", "n"), ("y",), {})
        inputs = {"p": past, "u": new, "i": np.array(first), "n": np.array([length])}
        cases.append(Case([node], inputs, expected={"y": expected}))
    check(cases)


def test_tensor_scatter_outside_writes_nothing() -> None:
    past, new = floats(2, 7, 4), floats(2, 2, 4)
    expected = past.copy()
    expected[0, 6], expected[1, 0] = new[0, 0], new[1, 1]
    node = Node("TensorScatter", ("p", "u", "i"), ("y",), {})
    check([Case([node], {"p": past, "u": new, "i": np.array([6, -1])}, expected={"y": expected})])


def test_pad() -> None:
    x = floats(2, 3, 7, 9)
    cases = []
    for mode in ("constant", "reflect", "edge", "wrap"):
        for pads in ([0, 0, 1, 2, 0, 0, 3, 4], [0, 1, 0, 8, 0, 2, 6, 0], [0] * 8):
            if mode != "reflect" or (max(pads) < 9 and pads[1] == 0):
                cases.append(_node("Pad", x, constants={"pads": np.array(pads)}, mode=mode))
    cut = {"pads": np.array([-1, 2, -2, 3]), "value": np.array(1.5, np.float32), "axes": np.array([-1, 1])}
    cases.append(_node("Pad", x, constants=cut))
    cases.append(
        _node("Pad", (x * 9).astype(np.int64), constants={"pads": np.array([0, 0, 1, 1] * 2), "v": np.array(7)})
    )
    cases.append(_node("Pad", floats(5), constants={"pads": np.array([2, 3])}))
    check(cases)


def test_dims_known_at_run_time() -> None:
    n, s = symbol("N"), symbol("S")
    cases = []
    for a, b in ((2, 7), (1, 1), (3, 0)):
        ids = {"ids": RNG.integers(0, 20, (a, b))}
        kind = {"y": TensorType(DType.F32, (n, s, 8))}
        table = {"table": floats(20, 8)}
        node = Node("Gather", ("table", "ids"), ("y",), {"axis": 0})
        cases.append(Case([node], ids, table, symbolic={"ids": ("N", "S")}, types=kind))
        kind = {"y": TensorType(DType.F32, (n, s + 3))}
        pads = {"pads": np.array([0, 1, 0, 2])}
        cases.append(
            Case(
                [Node("Pad", ("x", "pads"), ("y",))], {"x": floats(a, b)}, pads, symbolic={"x": ("N", "S")}, types=kind
            )
        )
    check(cases)


def test_top_k() -> None:
    cases = []
    for shape, k, axis in (((3, 50), 5, -1), ((3, 50), 50, 1), ((4, 9, 6), 3, 1), ((7,), 1, 0), ((5, 4), 0, 1)):
        for largest in (0, 1):
            node = Node("TopK", ("x", "k"), ("v", "i"), {"axis": axis, "largest": largest, "sorted": 1})
            ties = np.round(floats(*shape))
            cases += [
                Case([node], {"x": x}, {"k": np.array([k])}) for x in (floats(*shape), ties, ties.astype(np.int64))
            ]
    only = Node("TopK", ("x", "k"), ("v", "i"), {"axis": -1})
    cases.append(Case([only], {"x": floats(2, 30)}, {"k": np.array([4])}, outputs=["v"]))
    check(cases)


def test_reverse_sequence() -> None:
    x = floats(5, 3, 4)
    cases = [_node("ReverseSequence", x, np.array([5, 0, 2]), time_axis=0, batch_axis=1)]
    cases.append(_node("ReverseSequence", x > 0, np.array([1, 2, 3, 0, 3]), time_axis=1, batch_axis=0))
    cases.append(_node("ReverseSequence", floats(4, 6), np.array([1, 4, 3, 2, 4, 0])))
    cases.append(_node("ReverseSequence", floats(0, 6), np.zeros(6, np.int64)))
    cases.append(_node("ReverseSequence", floats(3, 0), np.zeros(0, np.int64)))
    for case in cases[3:]:
        case.expected = {"y": case.inputs["x0"]}
    for t, b in ((4, 2), (1, 1), (6, 3)):
        case = _node("ReverseSequence", floats(t, b, 3), RNG.integers(0, t + 1, b))
        case.symbolic = {"x0": ("T", "B", 3), "x1": ("B",)}
        case.types = {"y": TensorType(DType.F32, (symbol("T"), symbol("B"), 3))}
        cases.append(case)
    check(cases)
