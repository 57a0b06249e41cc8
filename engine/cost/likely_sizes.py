"""Likely values of the sizes that a model leaves free, for decisions made before they are known.

A batch has one element: that is what a service runs, and what others run many times. It is the first axis, or a size
that the model calls a batch. Other extents follow from the rank of the input and its element type: images, volumes,
signals, tokens, which some converters pass as floats. Images are larger where results grow with them: detection and
segmentation look for small things, which classifiers do not. Programs are right for any size; only which graph, which
layout and which algorithm are chosen depends on these values.
"""

from __future__ import annotations

from ..ir.graph import DType, Graph, TensorType
from ..ir.symbolic import symbol_name, symbols

BATCH = 1
IMAGE, DENSE, VOLUME = 224, 512, 64
"""Height and width of an image, and of one with results for its parts; each extent of a volume."""
SEQUENCE, FRAMES, SAMPLES = 128, 256, 16_000
"""Tokens of a text, frames of features, and samples of a signal: one second."""
_BATCH_NAMES = frozenset({"batch", "batch_size", "batchsize"})


def likely_sizes(graph: Graph) -> dict[str, int]:
    """Return likely values of the symbols that are extents of a graph's inputs.

    The first input that has a symbol decides."""
    found: dict[str, int] = {}
    types = (graph.types.get(value) for value in graph.outputs)
    shapes = (type_.shape or () for type_ in types if isinstance(type_, TensorType))
    dense = frozenset[str]().union(*(symbols(dim) for shape in shapes for dim in shape))
    for value in graph.inputs:
        type_ = graph.types.get(value)
        if isinstance(type_, TensorType) and type_.shape is not None:
            for axis, dim in enumerate(type_.shape):
                if name := symbol_name(dim):
                    tokens = not _is_numeric(type_) or _becomes_integer(graph, value)
                    is_batch = name.lower() in _BATCH_NAMES
                    size = BATCH if is_batch else _likely(type_, axis, tokens=tokens)
                    found.setdefault(name, DENSE if size == IMAGE and name in dense else size)
    return found


def _is_numeric(type_: TensorType) -> bool:
    return type_.dtype is None or type_.dtype.is_float


def _becomes_integer(graph: Graph, value: str) -> bool:
    """Whether a node casts an input to integers, as the embedding of a Keras model does."""
    casts = (node for node in graph.nodes if node.op == "Cast" and node.inputs[0] == value)
    return any(isinstance(to := node.attrs.get("to"), int) and DType.from_onnx(to).is_integer for node in casts)


def _likely(type_: TensorType, axis: int, *, tokens: bool) -> int:
    """Return the likely extent of an axis of an input, whose elements may be `tokens`."""
    shape = type_.shape
    assert shape is not None
    rank = len(shape)
    if axis == 0:
        return BATCH if rank > 1 else SEQUENCE
    if rank == 2:
        return SEQUENCE if tokens else SAMPLES
    if rank == 3:
        return FRAMES if axis == 2 else SEQUENCE
    if rank == 4:
        free = sum(symbol_name(dim) is not None for dim in shape[1:])
        few = any(shape[a] in range(1, 5) for a in (1, 3))
        return IMAGE if free > 1 or few else SEQUENCE
    return VOLUME
