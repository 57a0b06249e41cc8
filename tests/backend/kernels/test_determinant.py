"""Det against the oracle: pivots, singular and empty matrices, batches."""

from __future__ import annotations

import numpy as np
from rewrite.engine.ir.graph import DType, Node, TensorType
from rewrite.engine.ir.symbolic import symbol

from .oracle import Array, Case, check, unary

RNG = np.random.default_rng(31)


def floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


def test_det() -> None:
    cases = [
        unary("Det", floats(*shape)) for shape in ((3, 4, 4), (1, 1), (2, 3, 9, 9), (0, 3, 3), (2, 16, 16), (41, 41))
    ]
    cases.append(unary("Det", np.array([[0, 2, 1], [3, 0, 1], [0, 0, 5]], np.float32)))
    cases.append(unary("Det", np.array([[1, 2], [2, 4]], np.float32)))
    cases.append(unary("Det", floats(2, 5, 5).astype(np.float64)))
    dependent = floats(19, 19)
    dependent[:, 11] = 0
    cases.append(unary("Det", dependent))
    one = np.ones(3, np.float32)
    cases.append(Case(cases[0].nodes, {"x": floats(3, 0, 0)}, expected={"y": one}))
    for case in cases[:-1]:
        case.reference = True
    for b, n in ((2, 3), (1, 1)):
        case = unary("Det", floats(b, n, n))
        case.symbolic, case.types = {"x": ("B", "N", "N")}, {"y": TensorType(DType.F32, (symbol("B"),))}
        cases.append(case)
    cases[-1].nodes = [Node("Det", ("x",), ("y",), {}, name="Det")]
    check(cases)
