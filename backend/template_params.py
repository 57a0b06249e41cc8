"""From pointwise programs and accesses to template params: what the memory-bound kernels share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..engine.graph import DType, Node
from ..engine.symbolic import Dim, product
from .iteration import Access, Extents, contiguous
from .kernel_graph import SERIAL_WORK
from .pointwise import Pointwise
from .pointwise_c import STORED, emit, vectorisable

HEAVY = frozenset({"Exp", "Log", "Log1p", "Erf", "Tanh", "Sigmoid", "Gelu", "Pow", "Sin", "Cos", "Tan", "Fmod"})
"""Primitives that take about ten times as long as an addition."""


def operand(name: str, dtype: DType, strides: Sequence[Dim], extents: Extents, offset: Dim = 0) -> dict[str, Any]:
    """A strided tensor as templates take it: the C name and type, the strides outermost first, the inner last."""
    texts = extents.all(strides)
    return {"name": name, "c": STORED[dtype], "strides": texts, "inner": texts[-1], "offset": extents(offset)}


@dataclass(frozen=True)
class Code:
    """A program as C: statements and result expressions over variables `<operand>_i` (`<operand>_all` where the inner
    stride is 0)."""

    body: list[str]
    results: list[str]


def code(program: Pointwise, operands: Sequence[dict[str, Any]], *, vector: bool, prefix: str = "t") -> Code:
    """A program over operands that the template loads into variables named after them."""
    names = [o["name"] + ("_all" if o["inner"] == "0" else "_i") for o in operands]
    return Code(*emit(program, names, vector=vector, prefix=prefix))


def accesses(program: Pointwise, shape: Sequence[Dim]) -> list[Access] | None:
    """How each operand of a program is read over a space of that shape; None if one has more dims."""
    found = []
    for item in program.inputs:
        assert item.type.shape is not None
        access = contiguous(item.value, item.type.shape).broadcast(shape)
        if access is None:
            return None
        found.append(access)
    return found


def cost(program: Pointwise) -> int:
    """About how many simple operations a program does for one element, its loads and stores among them."""
    own = sum(10 if i.op in HEAVY else i.op != "Const" for i in program.instructions)
    scale = 1 if vectorisable(program, halves=True) else 4
    return scale * (len(program.inputs) + len(program.outputs) + own)


def threads(shape: Sequence[Dim], per_element: int = 2) -> Dim:
    """The step's `threads` for so many simple operations on each element."""
    return serial_below(product(shape) * per_element, SERIAL_WORK)


def serial_below(work: Dim, limit: int) -> Dim:
    """A step's `threads` where less than `limit` of some kind of work is for one thread."""
    found = work * SERIAL_WORK // limit
    return max(1, found) if isinstance(found, int) else found


def int_attr(node: Node, name: str, default: int | None = None) -> int:
    """An integer attribute; KeyError if it is absent and has no default."""
    value = node.attrs.get(name, default)
    if value is None:
        raise KeyError(name)
    assert isinstance(value, int)
    return value


def float_attr(node: Node, name: str, default: float) -> float:
    """A float attribute, or the default."""
    value = node.attrs.get(name, default)
    assert isinstance(value, int | float)
    return float(value)
