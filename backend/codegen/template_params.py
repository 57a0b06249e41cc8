"""Template parameters that kernels share: strided operands, pointwise programs as C, launches and node attributes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...engine.ir.graph import DType, Node
from ...engine.ir.symbolic import Dim, product
from ..ir.iteration_space import Access, Extents, contiguous
from ..ir.kernel import SERIAL_WORK, Kernel
from ..ir.kernel_graph import Step
from ..ir.lower import Group
from .pointwise_emit import BYTES, STORED, emit, has_bytes, vectorizable
from .pointwise_program import Operand, Pointwise

HEAVY = frozenset({"Exp", "Log", "Log1p", "Erf", "Tanh", "Sigmoid", "Gelu", "Pow", "Sin", "Cos", "Tan", "Fmod"})
"""Primitives that take about ten times as long as an addition."""


def launch(
    kernel: Kernel,
    source: Group | Node,
    inputs: Iterable[str],
    outputs: Iterable[str],
    extents: Extents,
    work: Dim = 0,
    **options: Any,
) -> Step:
    """Step that launches a kernel for a node or group, with the run-time extents that its parameters name.

    `work` counts simple operations (`Step.threads`); `options` are other fields of the step."""
    names = (source.name,) if isinstance(source, Node) else tuple(node.name for node in source.nodes)
    dims = tuple(extents.dims)
    return Step(kernel, tuple(inputs), tuple(outputs), dims=dims, threads=work, nodes=names, **options)


def operand(
    name: str, dtype: DType, strides: Sequence[Dim], extents: Extents, offset: Dim = 0, bytes_as_floats: bool = False
) -> dict[str, Any]:
    """Strided tensor for a template: C name and element type, strides outermost first, the innermost one again.

    With `bytes_as_floats`, vectors of int8 are loaded as those of floats."""
    texts = extents.all(strides)
    c = BYTES.get(dtype, STORED[dtype]) if bytes_as_floats else STORED[dtype]
    return {"name": name, "c": c, "strides": texts, "inner": texts[-1], "offset": extents(offset)}


def code(
    program: Pointwise, operands: Sequence[dict[str, Any]], *, vector: bool, prefix: str = "t", int8: bool = False
) -> tuple[list[str], list[str]]:
    """Emit a program as C statements and result expressions.

    They read variables named after the operands: `<name>_i`, or `<name>_all` where the innermost stride is 0."""
    names = [o["name"] + ("_all" if o["inner"] == "0" else "_i") for o in operands]
    return emit(program, names, vector=vector, prefix=prefix, int8=int8)


def accesses(operands: Sequence[Operand], shape: Sequence[Dim]) -> list[Access] | None:
    """Return the access of each operand broadcast to a shape, or None if one has more dims."""
    found = [contiguous(item.value, item.type.shape or ()).broadcast(shape) for item in operands]
    return None if None in found else [access for access in found if access is not None]


def cost(program: Pointwise) -> int:
    """Estimate the simple operations of a program per element, loads and stores included."""
    own = sum(10 if i.op in HEAVY else i.op != "Const" for i in program.instructions)
    scale = 1 if vectorizable(program, half=True) or has_bytes(program) else 4
    return scale * (len(program.inputs) + len(program.outputs) + own)


def threads(shape: Sequence[Dim], per_element: int = 2) -> Dim:
    """Return a step's work for this many simple operations per element."""
    return serial_below(product(shape) * per_element, SERIAL_WORK)


def serial_below(work: Dim, limit: int) -> Dim:
    """Scale work of another kind to a step's unit, such that less than `limit` of it runs on one thread."""
    found = work * SERIAL_WORK // limit
    return max(1, found) if isinstance(found, int) else found


def int_attr(node: Node, name: str, default: int | None = None) -> int:
    """Return an integer attribute; KeyError if it is absent and has no default."""
    value = node.attrs.get(name, default)
    if value is None:
        raise KeyError(name)
    assert isinstance(value, int)
    return value


def ints_attr(node: Node, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """Return a list of integers; an empty or missing one is the default."""
    found: Any = node.attrs.get(name)
    return tuple(int(v) for v in found) if found else default


def float_attr(node: Node, name: str, default: float) -> float:
    """Return a float attribute, or the default rounded to f32, the type of attributes."""
    value = node.attrs.get(name, float(np.float32(default)))
    assert isinstance(value, int | float)
    return float(value)
