"""Lengths of Ranges that follow from extents.

`Range(0.0, Cast(Shape(x)[2]), 1.0)`, as exporters write the coordinates of a grid, has a length that is known as soon
as the extents of the inputs are: but its limit is a float, and the inference of shapes follows integers only, so the
length has a name of its own. Here it gets what it is in terms of the other extents; then the node has a kernel, and all
that is made of it is known before the run begins. Floats stand for extents up to 2^24, where single precision ends to
count.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..engine import symbolic
from ..engine.graph import DType, Graph, Node
from ..engine.symbolic import Dim

_SAME = frozenset({"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})
"""Operators that hand the one element of a tensor on."""
_WIDE = frozenset({DType.F32, DType.F64, DType.I32, DType.I64})
"""The types that hold extents; narrower ones don't hold all."""


def range_lengths(graph: Graph, contents: Mapping[str, tuple[Dim, ...]]) -> dict[str, Dim]:
    """By the symbol that a length has, what it is in terms of other extents; `contents` are those of small integer
    tensors. For `branches.substitute`."""
    makers = graph.producers()
    found: dict[str, Dim] = {}
    for node in graph.nodes:
        shape = graph.type(node.outputs[0]).shape if node.op == "Range" else None
        name = symbolic.symbol_name(shape[0]) if shape else None
        if name is None or name in found:
            continue
        length = _length([_number(v, graph, makers, contents) for v in node.inputs])
        if length is not None and name not in symbolic.symbols(length):
            found[name] = symbolic.substitute(length, found)
    return found


def _length(operands: list[Dim | None]) -> Dim | None:
    """ceil((limit - start) / delta), at least 0; None where an operand or the sign of delta isn't known."""
    start, limit, delta = operands
    if start is None or limit is None or not isinstance(delta, int) or delta == 0:
        return None
    way = limit - start if delta > 0 else start - limit
    steps = symbolic.ceildiv(way, abs(delta))
    return steps if symbolic.at_least(way, 0) else symbolic.maximum(steps, 0)


def _number(
    value: str, graph: Graph, makers: Mapping[str, Node], contents: Mapping[str, tuple[Dim, ...]], depth: int = 16
) -> Dim | None:
    """A whole number, of any type, in terms of extents; None if it isn't known to be one."""
    constant = graph.constants.get(value)
    if constant is not None:
        array = constant.array
        if array.size != 1 or array.dtype.kind not in "iuf":
            return None
        number = array.reshape(-1)[0].item()
        return int(number) if number == number and abs(number) < 1 << 24 and number == int(number) else None
    dims = contents.get(value)
    if dims is not None:
        return dims[0] if len(dims) == 1 else None
    node = makers.get(value)
    dtype = graph.type(value).dtype
    if node is None or node.op not in _SAME or not depth or dtype not in _WIDE:
        return None
    return _number(node.inputs[0], graph, makers, contents, depth - 1)
