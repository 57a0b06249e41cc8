"""Type and shape inference: from what is known of an operator's inputs to what is known of its outputs.

`infer` covers the whole ONNX standard: most operators by rules of our own, which understand symbolic dims
(`elementwise`, `movement`, `generate`, `reduce`, `linear`, `spatial`, `control`), the rest through the ONNX library
(`fallback`). Next to types it follows the *contents* of small integer tensors, so that shape arithmetic written out in
a model (`Shape`, `Gather`, `Mul`, `Concat`, `Reshape`) folds even when dims are symbolic.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from ..graph import Attrs, Constant, DType, TensorType, ValueType
from ..operators import OWN_DOMAIN, find_declared, split_name
from ..symbolic import Dim, symbol
from . import control, elementwise, generate, linear, movement, reduce, spatial
from .core import MAX_ELEMENTS, RULES, Call, IllTyped, Inference, Misfit, SymbolicValue
from .fallback import infer_by_schema

__all__ = ["RULES", "IllTyped", "Inference", "Misfit", "SymbolicValue", "contents_of", "fresh_dims", "infer"]

_ = (control, elementwise, generate, linear, movement, reduce, spatial)  # importing them fills RULES


def fresh_dims(prefix: str) -> Callable[[], Dim]:
    """A source of symbols of which nothing is known: `prefix1`, `prefix2`, …

    The prefix should begin with an underscore: `onnx_in` gives no symbol of a model such a name."""
    numbers = itertools.count(1)
    return lambda: symbol(f"{prefix}{next(numbers)}")


def contents_of(constant: Constant) -> SymbolicValue | None:
    """The contents of a small constant of integers or booleans, of rank 0 or 1; None for any other."""
    array = constant.array
    if array.ndim > 1 or array.size > MAX_ELEMENTS or array.dtype.kind not in "iub":
        return None
    return SymbolicValue(tuple(int(v) for v in array.reshape(-1)), array.ndim)


def infer(
    op: str,
    attrs: Attrs,
    types: Sequence[ValueType | None],
    values: Sequence[SymbolicValue | None],
    n_outputs: int,
    *,
    constants: Sequence[Constant | None] = (),
    fresh: Callable[[], Dim] | None = None,
) -> Inference:
    """What is known of the outputs of an operator.

    Args:
        op: The operator's name in a graph.
        attrs: Its attributes, defaults filled in (`operators.normalise_attrs`).
        types: The types of its inputs; None for an absent one.
        values: The followed contents of its inputs; may be shorter than `types`.
        n_outputs: How many outputs it has.
        constants: Its constant inputs; may be shorter than `types`.
        fresh: Gives a symbol for a dim of which nothing is known; by default `_u1`, `_u2`, … anew in each call.

    Returns:
        A type for each output, all unknown for an operator that is not known, and the followed contents.

    Raises:
        IllTyped: The operator fails on all inputs of these types."""
    padded = tuple(constants) + (None,) * (len(types) - len(constants))
    contents = [
        (values[i] if i < len(values) else None) or (None if c is None else contents_of(c))
        for i, c in enumerate(padded)
    ]
    call = Call(op, attrs, types, contents, padded, n_outputs, fresh or fresh_dims("_u"))
    rule = RULES.get(op)
    if rule is not None:
        found = rule(call)
    elif split_name(op)[0] == OWN_DOMAIN:
        found = ()
    elif (declared := find_declared(op)) is not None:
        from ..declared import infer_declared  # which builds on this

        found = infer_declared(call, declared)
    else:
        found = infer_by_schema(call)
    result = [*found, *(TensorType() for _ in range(n_outputs - len(found)))][:n_outputs]
    followed: list[SymbolicValue | None] = []
    for i, what in enumerate(result):
        value = call.contents.get(i)
        if value is not None and isinstance(what, TensorType) and len(value.dims) <= MAX_ELEMENTS and _countable(what):
            followed.append(value)
            if what.shape is None:
                result[i] = TensorType(what.dtype, value.shape)
        else:
            followed.append(None)
    return Inference(tuple(result), tuple(followed))


def _countable(found: TensorType) -> bool:
    return found.dtype is not None and (found.dtype.is_integer or found.dtype is DType.BOOL)
