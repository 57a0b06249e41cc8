"""Whether an instance is a model that ONNX allows; a rule has to hold for these only.

Types are checked against the operators' schemas, and operands and attributes against what the operators' descriptions
require. Shapes were checked by the engine's inference when the instance was built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...engine.egraph.analysis import ENode
from ...engine.egraph.egraph import EGraph
from ...engine.ir.graph import DType, Graph, Node, TensorType
from ...engine.ir.names import ABSENT, LEAVES
from ...engine.ir.symbolic import Dim
from ...engine.operators.schemas import signature
from .values import FLAGS

Types = Sequence[TensorType | None]
"""Types of the inputs of an operator; None for an absent input."""

_POSITIVE = frozenset({"strides", "dilations", "kernel_shape", "group", "num_groups", "blocksize", "num_outputs"})
_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})
_SCALARS = {
    "Clip": (1, 2), "Pad": (2,), "Range": (0, 1, 2), "OneHot": (1,), "CumSum": (1,), "Trilu": (1,), "TopK": (1,),
    "SequenceAt": (1,), "Dropout": (1, 2), "If": (0,), "Loop": (0, 1),
}  # fmt: skip
"""Inputs of one element: rank 0, or 1 as implementations accept it."""
_VECTORS = {
    "ConstantOfShape": (0,), "Slice": (1, 2, 3, 4), "Pad": (1, 3), "Resize": (1, 2, 3),
    **dict.fromkeys(("Reshape", "Expand", "Tile", "Squeeze", "Unsqueeze", "Split", "ReduceSum", "ReduceMean",
                     "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
                     "ReduceLogSumExp", "ReduceSumSquare"), (1,)),
}  # fmt: skip
"""Inputs of rank 1."""
_PER_CHANNEL = {"BatchNormalization": (1, 2, 3, 4), "InstanceNormalization": (1, 2), "GroupNormalization": (1, 2)}
"""Inputs with one element per channel of the first."""
_PRECISIONS = frozenset(t.onnx for t in (DType.F32, DType.F16, DType.BF16, DType.F64))
"""ONNX numbers of the element types in which a quantization may divide."""
_OUTPUT_DTYPES = {
    "QuantizeLinear": frozenset(t.onnx for t in DType if t.is_integer or t.value.startswith(("f8e4", "f8e5", "f4"))),
    "DequantizeLinear": _PRECISIONS - {DType.F64.onnx},
}
_SINGLE = ((), (1,))


def invalid(egraph: EGraph, handles: Iterable[int]) -> str:
    """Return what is wrong with the first invalid node; empty if all are valid."""
    for handle in handles:
        node = egraph.nodes[handle]
        if node.op in (*LEAVES, "Proj"):
            continue
        types = [None if c == ABSENT else egraph.type(c) for c in node.children]
        inner, around = node.split(types)
        message = (
            _input_types(node.op, inner) or _attributes(node) or _operands(node, types) or _indices(egraph, handle)
        )
        if not message and around:
            known = {name: t or TensorType() for name, t in around.items()}
            message = _bodies(node.op, node.attrs, [t or TensorType() for t in inner], known)
        if message:
            return f"{node.op}: {message}"
    return ""


def _input_types(op: str, types: Types) -> str:
    found = signature(op)
    if found is None or not found.inputs:
        return ""
    bound: dict[str, Any] = {}
    for index, type_ in enumerate(types):
        dtype = None if type_ is None else type_.dtype
        if dtype is None:
            continue
        formal = found.inputs[min(index, len(found.inputs) - 1)]
        if formal.dtypes and str(dtype) not in formal.dtypes:
            return f"input {index} is {dtype}"
        if formal.homogeneous and bound.setdefault(formal.type, dtype) != dtype:
            return f"inputs are {bound[formal.type]} and {dtype}"
    return ""


def _attributes(node: ENode | Node) -> str:
    for name, value in node.attrs.items():
        numbers = [v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, int)]
        least = 1 if name in _POSITIVE else 0 if name == "pads" else min(numbers, default=0)
        if (name in FLAGS and value not in (0, 1)) or min(numbers, default=least) < least:
            return f"{name} is {value!r}"
    pads, kernel = node.attrs.get("pads"), node.attrs.get("kernel_shape")
    if node.op in _POOLS and isinstance(pads, tuple) and isinstance(kernel, tuple):
        wide = any(p >= kernel[i % len(kernel)] for i, p in enumerate(pads))  # type: ignore[operator]
        if len(pads) != 2 * len(kernel) or wide:
            return f"pads are {pads} of a window {kernel}"
    return ""


# --- bodies ---


def _bodies(op: str, attrs: Mapping[str, Any], given: Sequence[TensorType], around: Mapping[str, TensorType]) -> str:
    """Check the bodies of a control flow operator; `around` are the types of the values that they capture."""
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
            return "the condition is not a truth value"
    else:
        count = attrs.get("num_scan_inputs", 0)
        carried = given[: len(given) - (count if isinstance(count, int) else 0)]
        inputs, outputs = body.inputs, body.outputs
    for first, before, after in zip(carried, inputs, outputs, strict=False):
        types = (first, body.type(before), body.type(after))
        if len({t.dtype for t in types} - {None}) > 1 or (op == "Scan" and len({t.shape for t in types} - {None}) > 1):
            return f"{before} is {types[0]} at first, {types[2]} after an iteration"
    return ""


def _body(graph: Graph, around: Mapping[str, TensorType]) -> str:
    known = {**around, **{name: graph.type(name) for name in graph.types}}
    for node in graph.nodes:
        given = [known.get(name, TensorType()) for name in node.inputs]
        message = _input_types(node.op, given) or _attributes(node) or _bodies(node.op, node.attrs, given, known)
        if message:
            return f"{node.op} in a body: {message}"
    return ""


# --- shapes of operands ---


def _operands(node: ENode, types: Types) -> str:
    """Check the shapes of operands, as far as they are known, for what inference does not require."""
    shapes = {i: t.shape for i, t in enumerate(types) if t is not None and t.shape is not None}

    def named(table: Mapping[str, Sequence[int]]) -> list[tuple[int, tuple[Dim, ...]]]:
        return [(index, shapes[index]) for index in table.get(node.op, ()) if index in shapes]

    for index, shape in named(_SCALARS):
        if len(shape) > 1:
            return f"input {index} has rank {len(shape)}"
        if shape not in _SINGLE:
            return f"input {index} is not a scalar"
    for index, shape in named(_VECTORS):
        if len(shape) != 1:
            return f"input {index} has rank {len(shape)}"
    for index, shape in named(_PER_CHANNEL):
        x = shapes.get(0, ())
        if len(shape) != 1 or (len(x) > 1 and shape[0] != x[1]):
            return f"input {index} does not have one element per channel"
    check = _BY_OPERATOR.get(node.op)
    return "" if check is None else check(node, types)


def _indices(egraph: EGraph, handle: int) -> str:
    """Check constant indices where the result has no elements: it is known, even if they select nothing that exists."""
    node = egraph.nodes[handle]
    if node.op not in ("Gather", "GatherElements") or 0 not in (egraph.type(handle).shape or ()):
        return ""
    data, constant = egraph.type(node.children[0]), egraph.constant(node.children[1])
    indices = None if constant is None else constant.contents()
    if indices is None or not data.shape:
        return ""
    extent = data.shape[int(node.attrs.get("axis", 0))]  # type: ignore[arg-type]
    if isinstance(extent, int) and indices.size and not (-extent <= indices.min() and indices.max() < extent):
        return f"an index is not within {extent} elements"
    return ""


def _convolution(node: ENode, types: Types) -> str:
    shapes = [None if t is None else t.shape for t in types]
    if any(0 in (shape or ())[start:] for start, shape in zip((1, 0), shapes, strict=False)):
        return "there are no channels, or an extent is 0"
    bias, weight = shapes[2] if len(shapes) > 2 else None, shapes[1]
    fits = bias is None or len(bias) == 1
    if bias is not None and weight is not None:
        filters = weight[0] if node.op == "Conv" else weight[1] * node.attrs.get("group", 1)  # type: ignore[operator]
        fits = bias == (filters,)
    return "" if fits else "the bias does not have one element per filter"


def _loss(node: ENode, types: Types) -> str:
    """Check the classes of a loss, one for each place of the scores, the weights of all classes, and the reduction."""
    if (reduction := node.attrs.get("reduction", "mean")) not in ("none", "mean", "sum"):
        return f"reduction is {reduction!r}"
    scores, classes, weights = (None if t is None else t.shape for t in (*types, None)[:3])
    if scores is None or len(scores) < 2:
        return "" if scores is None else "the scores have no axis of classes"
    if classes is not None and classes != (scores[0], *scores[2:]):
        return f"the scores are {list(scores)}, the classes {list(classes)}"
    return "" if weights is None or weights == (scores[1],) else "there is not one weight for each class"


def _quantization(node: ENode, types: Types) -> str:
    """Check the scale and the zero point of a quantization, which have one shape.

    It is that of a scalar, of one element per place along the axis, or of one element per block along it. If both have
    one element, their ranks may differ, as implementations accept it."""
    x, scale, zero = (*types, None)[:3]
    precision, wanted = node.attrs.get("precision", 0), node.attrs.get("output_dtype", 0)
    if precision and precision not in _PRECISIONS:
        return f"precision is {precision!r}, which is not a floating-point type"
    if wanted and wanted not in _OUTPUT_DTYPES[node.op]:
        return f"output_dtype is {wanted!r}"
    if wanted and node.op == "QuantizeLinear" and zero is not None and zero.dtype is not None:
        if zero.dtype.onnx != wanted:
            return f"output_dtype is {wanted!r}, the zero point {zero.dtype}"
    if zero is not None and zero.dtype is DType.I32:
        return "32-bit integers have no zero point"
    if scale is None or scale.shape is None:
        return ""
    if zero is not None and zero.shape is not None and zero.shape != scale.shape:
        if scale.shape not in _SINGLE or zero.shape not in _SINGLE:
            return f"the scale is {list(scale.shape)}, the zero point {list(zero.shape)}"
    block = node.attrs.get("block_size", 0)
    if not isinstance(block, int) or block < 0:
        return f"block_size is {block!r}"
    if scale.shape in _SINGLE or x is None or x.shape is None:
        return ""
    rank = len(x.shape)
    axis = 0 if rank == 1 else node.attrs.get("axis", 1)
    if not isinstance(axis, int) or not -rank <= axis < rank:
        return f"axis is {axis!r} of rank {rank}"
    axis %= rank
    if block == 0:
        return "" if scale.shape == (x.shape[axis],) else "the scale does not have one element per place along the axis"
    others = [d for i, d in enumerate(scale.shape) if i != axis] == [d for i, d in enumerate(x.shape) if i != axis]
    return "" if len(scale.shape) == rank and others else "the scale does not have one element per block"


_BY_OPERATOR: dict[str, Callable[[ENode, Types], str]] = {
    "Conv": _convolution, "ConvTranspose": _convolution,
    "NegativeLogLikelihoodLoss": _loss, "SoftmaxCrossEntropyLoss": _loss,
    "QuantizeLinear": _quantization, "DequantizeLinear": _quantization,
}  # fmt: skip
