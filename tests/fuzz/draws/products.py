"""Matrix products, Gemm and Einsum."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ..eager import Array, Invalid
from ..maker import (
    F32,
    FLOATS,
    I8,
    U8,
    Maker,
)
from .registry import draws


@draws(5)
def matmul(m: Maker) -> object:
    x = m.some(FLOATS, 1, 4)
    inner, columns = m.dims(x)[-1], m.size()
    batch = m.dims(x)[:-2] if m.chance(0.3) else (1,) if m.chance(0.1) else ()
    shape = (inner,) if m.chance(0.1) else (*batch, inner, columns)
    pair = [x, m.like(m.dtype(x), shape, fixed=0.6)]
    if m.chance(0.1) and len(m.dims(x)) == 2:
        pair = [m.like(m.dtype(x), (columns, m.dims(x)[0])), x]
    if _overflow_meets_infinity(*(m.values[name] for name in pair)):
        raise Invalid("a product that overflows beside an infinity: NaN, unless it is added without being rounded")
    [y] = m.emit("MatMul", pair)
    if m.chance(0.4) and m.dims(y):
        return m.emit("Add", [y, m.like(m.dtype(y), m.dims(y)[-1:], fixed=0.8)])
    return y


def _overflow_meets_infinity(a: Array, b: Array) -> bool:
    """Whether products of finite elements may overflow where others are infinite.

    -inf + 1e30 * 1e30 in f32 is -inf where the product is added in one rounding, and NaN where it is rounded before:
    compilers may do either."""
    wide: list[np.ndarray[Any, np.dtype[np.float64]]] = [x.astype(np.float64) for x in (a, b)]
    if all(np.isfinite(x).all() for x in wide):
        return False
    largest = [np.abs(x[np.isfinite(x)]).max(initial=0.0) for x in wide]
    return bool(largest[0] * largest[1] > float(ml_dtypes.finfo(a.dtype).max))


@draws(2)
def gemm(m: Maker) -> object:
    x = m.some(FLOATS, 2, 2)
    across, beyond = m.between(0, 1), m.between(0, 1)
    rows, inner = m.dims(x) if not across else m.dims(x)[::-1]
    columns = m.size()
    w = m.like(m.dtype(x), (columns, inner) if beyond else (inner, columns), fixed=0.7)
    operands = [x, w]
    if m.chance(0.7):
        operands.append(
            m.like(m.dtype(x), m.pick(((columns,), (1, columns), (rows, 1), (rows, columns), ())), fixed=0.7)
        )
    return m.emit(
        "Gemm", operands, transA=across, transB=beyond, alpha=m.pick((1.0, 0.5)), beta=m.pick((1.0, 2.0, 0.0))
    )


EQUATIONS = (
    "ij,jk->ik", "ij,kj->ik", "bij,bjk->bik", "ij->ji", "ij->i", "ij->", "ii->i", "ii", "i,j->ij", "ij,ij->i",
    "bhid,bhjd->bhij", "bhij,bhjd->bhid", "bij,jk", "i,i->", "...ij,...jk->...ik", "ij,jk,kl->il", "bi,bj->bij",
    "abc,cd,bd->ad", "ijk->kij",
)  # fmt: skip


@draws(1.5)
def einsum(m: Maker) -> object:
    equation = m.pick(EQUATIONS)
    sizes = {letter: m.size() % 9 for letter in "abcdhijkl"}
    dots = m.shape(0, 2)
    dtype = m.pick(FLOATS)
    operands = []
    for term in equation.split("->")[0].split(","):
        letters = tuple(sizes[c] for c in term.replace("...", ""))
        operands.append(m.like(dtype, (*dots, *letters) if "..." in term else letters))
    return m.emit("Einsum", operands, equation=equation)


@draws(1.5)
def integer_products(m: Maker) -> object:
    a, b = m.pick((U8, I8)), m.pick((U8, I8))
    rows, inner, columns = m.size(), m.size(0), m.size()
    batch = m.shape(0, 2)
    x, w = m.like(a, (*batch, rows, inner)), m.like(b, (inner, columns), fixed=0.7)
    if m.chance(0.5):
        zeros = [m.constant(m.array(a, ()), a), m.constant(m.array(b, () if m.chance(0.5) else (columns,)), b)]
        return m.emit("MatMulInteger", [x, w, *zeros[: m.between(0, 2)]])
    out = m.pick((U8, I8))
    scales = [m.constant(s, F32) for s in (0.02, 0.03, 0.1)]
    zeros = [m.constant(m.array(d, ()) // 4, d) for d in (a, b, out)]
    return m.emit("QLinearMatMul", [x, scales[0], zeros[0], w, scales[1], zeros[1], scales[2], zeros[2]])


@draws(0.6)
def det(m: Maker) -> object:
    n = m.between(1, 6)
    return m.emit("Det", [m.like(m.pick(FLOATS), (*m.shape(0, 2), n, n))])
