"""Whether an instance is a model that ONNX allows: only of such does a rule have to hold.

Types are held against the operators' schemas, and attributes against what their descriptions say in words; shapes are
the business of the engine's inference, which building an instance goes through.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..egraph import ABSENT, CAPTURES, EGraph, ENode
from ..graph import DType, Graph, Node, TensorType
from ..operators import signature
from .attributes import FLAGS

_POSITIVE = frozenset({"strides", "dilations", "kernel_shape", "group", "num_groups", "blocksize", "num_outputs"})
_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})
_SCALARS = {
    "Clip": (1, 2), "Pad": (2,), "Range": (0, 1, 2), "OneHot": (1,), "CumSum": (1,), "Trilu": (1,), "TopK": (1,),
    "SequenceAt": (1,), "Dropout": (1, 2), "If": (0,), "Loop": (0, 1),
}  # fmt: skip
"""Inputs of one element (rank 0, or 1 as implementations take it)."""
_VECTORS = {
    "Reshape": (1,), "Expand": (1,), "Tile": (1,), "Slice": (1, 2, 3, 4), "Pad": (1, 3), "Squeeze": (1,),
    "Unsqueeze": (1,), "Split": (1,), "ConstantOfShape": (0,), "Resize": (1, 2, 3), "ReduceSum": (1,),
    "ReduceMean": (1,), "ReduceMax": (1,), "ReduceMin": (1,), "ReduceProd": (1,), "ReduceL1": (1,), "ReduceL2": (1,),
    "ReduceLogSum": (1,), "ReduceLogSumExp": (1,), "ReduceSumSquare": (1,),
}  # fmt: skip
"""Inputs of rank 1."""


def invalid(egraph: EGraph, handles: Iterable[int]) -> str:
    """What is wrong with the first node that is not right; empty if all are."""
    for handle in handles:
        node = egraph.nodes[handle]
        if node.op in ("Input", "Const", "Absent", "Proj"):
            continue
        message = _types(node.op, _dtypes(egraph, node)) or _attributes(node) or _ranks(egraph, node)
        message = message or _channels(egraph, node) or _grid(egraph, node) or _bodies(egraph, node)
        if message:
            return f"{node.op}: {message}"
    return ""


def _dtypes(egraph: EGraph, node: ENode) -> list[DType | None]:
    """The element types of a node's inputs, without what its bodies read."""
    captured = node.attrs.get(CAPTURES, ())
    assert isinstance(captured, tuple)
    children = node.children[: len(node.children) - len(captured)]
    return [None if c == ABSENT else egraph.type(c).dtype for c in children]


def _types(op: str, dtypes: Sequence[DType | None]) -> str:
    found = signature(op)
    if found is None or not found.inputs:
        return ""
    bound: dict[str, Any] = {}
    for index, dtype in enumerate(dtypes):
        if dtype is None:
            continue
        formal = found.inputs[min(index, len(found.inputs) - 1)]
        if formal.dtypes and str(dtype) not in formal.dtypes:
            return f"input {index} is {dtype}"
        if formal.homogeneous and bound.setdefault(formal.type, dtype) != dtype:
            return f"inputs are {bound[formal.type]} and {dtype}"
    return ""


def _bodies(egraph: EGraph, node: ENode) -> str:
    """What is wrong with the bodies of a node."""
    captured = node.attrs.get(CAPTURES)
    if not isinstance(captured, tuple):
        return ""
    inner = len(node.children) - len(captured)
    around = {str(n): egraph.type(c) for n, c in zip(captured, node.children[inner:], strict=True)}
    given = [TensorType() if c == ABSENT else egraph.type(c) for c in node.children[:inner]]
    return _own_bodies(node.op, node.attrs, given, around)


def _own_bodies(
    op: str, attrs: Mapping[str, Any], given: Sequence[TensorType], around: Mapping[str, TensorType]
) -> str:
    graphs = {name: value for name, value in attrs.items() if isinstance(value, Graph)}
    for graph in graphs.values():
        if message := _body(graph, around):
            return message
    if op == "If":
        branches = [[graph.type(name).dtype for name in graph.outputs] for graph in graphs.values()]
        return "" if all(found == branches[0] for found in branches) else "the branches have outputs of other types"
    body = graphs.get("body")
    if body is None:
        return ""
    if op == "Loop":
        carried, inputs, outputs = given[2:], body.inputs[2:], body.outputs[1:]
        if body.type(body.outputs[0]).dtype not in (None, DType.BOOL):
            return "the condition is no truth value"
    else:
        count = attrs.get("num_scan_inputs", 0)
        carried = given[: len(given) - (count if isinstance(count, int) else 0)]
        inputs, outputs = body.inputs, body.outputs
    for first, before, after in zip(carried, inputs, outputs, strict=False):
        types = (first, body.type(before), body.type(after))
        if len({t.dtype for t in types} - {None}) > 1 or (op == "Scan" and len({t.shape for t in types} - {None}) > 1):
            return f"{before} is {types[0]} at first, {types[2]} after a run"
    return ""


def _body(graph: Graph, around: Mapping[str, TensorType]) -> str:
    """What is wrong with the nodes of a body."""
    known = {**around, **{name: graph.type(name) for name in graph.types}}
    for node in graph.nodes:
        given = [known.get(name, TensorType()) for name in node.inputs]
        message = _types(node.op, [t.dtype for t in given]) or _attributes(node)
        message = message or _own_bodies(node.op, node.attrs, given, known)
        if message:
            return f"{node.op} in a body: {message}"
    return ""


def _attributes(node: ENode | Node) -> str:
    for name, value in node.attrs.items():
        items = value if isinstance(value, tuple) else (value,)
        if name in FLAGS and value not in (0, 1):
            return f"{name} is {value!r}"
        if name in _POSITIVE and any(isinstance(v, int) and v < 1 for v in items):
            return f"{name} is {value!r}"
        if name == "pads" and any(isinstance(v, int) and v < 0 for v in items):
            return f"{name} is {value!r}"
    if node.op in _POOLS:
        return _pads(node.attrs)
    return ""


def _pads(attrs: Mapping[str, Any]) -> str:
    pads, kernel = attrs.get("pads"), attrs.get("kernel_shape")
    if isinstance(pads, tuple) and isinstance(kernel, tuple):
        if len(pads) != 2 * len(kernel) or any(p >= kernel[i % len(kernel)] for i, p in enumerate(pads)):
            return f"pads are {pads} of a window {kernel}"
    return ""


_PER_CHANNEL = {"BatchNormalization": (1, 2, 3, 4), "InstanceNormalization": (1, 2), "GroupNormalization": (1, 2)}
"""Inputs with one element for each channel of the first."""


def _channels(egraph: EGraph, node: ENode) -> str:
    """What is wrong with biases and scales."""
    shapes = [None if c == ABSENT else egraph.type(c).shape for c in node.children]
    for index in _PER_CHANNEL.get(node.op, ()):
        x, own = shapes[0], shapes[index] if index < len(shapes) else None
        if own is not None and (len(own) != 1 or (x is not None and len(x) > 1 and own[0] != x[1])):
            return f"input {index} is not one number for each channel"
    if node.op in ("Conv", "ConvTranspose") and len(shapes) > 2 and shapes[2] is not None:
        weight, group = shapes[1], node.attrs.get("group", 1)
        filters = None if weight is None else weight[0] if node.op == "Conv" else weight[1] * group  # type: ignore[operator]
        if len(shapes[2]) != 1 or (filters is not None and shapes[2][0] != filters):
            return "the bias is not one number for each filter"
    return ""


_FLOATS = frozenset(t.onnx for t in (DType.F32, DType.F16, DType.BF16, DType.F64))
"""What a division may be computed in, by ONNX's numbers of element types."""
_GRID = {
    "QuantizeLinear": frozenset(t.onnx for t in DType if t.is_integer or t.value.startswith(("f8e4", "f8e5", "f4"))),
    "DequantizeLinear": _FLOATS - {DType.F64.onnx},
}
"""What `output_dtype` may be."""


def _grid(egraph: EGraph, node: ENode) -> str:
    """What is wrong with the scale and the zero point of a quantisation.

    Both have one shape: none, one number for each place along the axis, or one for each block along it. Of one element
    each, they may differ in rank, as implementations take it."""
    if node.op not in ("QuantizeLinear", "DequantizeLinear"):
        return ""
    x, scale, *rest = (None if c == ABSENT else egraph.type(c) for c in node.children)
    zero = rest[0] if rest else None
    precision, wanted = node.attrs.get("precision", 0), node.attrs.get("output_dtype", 0)
    if precision and precision not in _FLOATS:
        return f"precision is {precision!r}, no type of real numbers"
    if wanted and wanted not in _GRID[node.op]:
        return f"output_dtype is {wanted!r}"
    if wanted and node.op == "QuantizeLinear" and zero is not None and zero.dtype is not None:
        if zero.dtype.onnx != wanted:
            return f"output_dtype is {wanted!r}, the zero point {zero.dtype}"
    if zero is not None and zero.dtype is DType.I32:
        return "integers of 32 bits have no zero point"
    if scale is None or scale.shape is None:
        return ""
    single = scale.shape in ((), (1,))
    if zero is not None and zero.shape is not None and zero.shape != scale.shape:
        if not (single and zero.shape in ((), (1,))):
            return f"the scale is {list(scale.shape)}, the zero point {list(zero.shape)}"
    block = node.attrs.get("block_size", 0)
    if not isinstance(block, int) or block < 0:
        return f"block_size is {block!r}"
    if single or x is None or x.shape is None:
        return ""
    axis = node.attrs.get("axis", 1)
    if len(x.shape) == 1:
        axis = 0
    if not isinstance(axis, int) or not -len(x.shape) <= axis < len(x.shape):
        return f"axis is {axis!r} of rank {len(x.shape)}"
    if block == 0:
        return "" if scale.shape == (x.shape[axis],) else "the scale is not one number for each place along the axis"
    axis %= len(x.shape)
    others = [d for i, d in enumerate(scale.shape) if i != axis] == [d for i, d in enumerate(x.shape) if i != axis]
    return "" if len(scale.shape) == len(x.shape) and others else "the scale is not one number for each block"


def _ranks(egraph: EGraph, node: ENode) -> str:
    if node.op in ("Conv", "ConvTranspose") and any(0 in (egraph.type(c).shape or ())[k:] for k, c in zip(
            (1, 0), node.children, strict=False)):  # fmt: skip
        return "there are no channels, or no extent"
    for wanted, table in (((0, 1), _SCALARS), ((1,), _VECTORS)):
        for index in table.get(node.op, ()):
            if index >= len(node.children) or node.children[index] == ABSENT:
                continue
            type_ = egraph.type(node.children[index])
            if type_.rank is not None and type_.rank not in wanted:
                return f"input {index} has rank {type_.rank}"
            if wanted == (0, 1) and type_.shape and type_.shape != (1,):
                return f"input {index} is no scalar"
    return ""
