"""Type and shape inference for operators: infers facts about outputs from facts about inputs.

`infer` covers the whole ONNX standard: most operators by rules of our own, which understand symbolic dims, the rest
through the ONNX library. Besides types it follows the contents of small integer tensors. So shape arithmetic written
out in a model (`Shape`, `Gather`, `Mul`, `Concat`, `Reshape`) folds even when dims are symbolic.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

from ...ir.graph import Attrs, Constant, DType, TensorType, ValueType
from ...ir.names import OWN_DOMAIN
from ...ir.symbolic import Dim, symbol
from ..schemas import find_declared, find_schema, split_name
from . import infer_elementwise as infer_elementwise  # the imports fill RULES
from . import infer_generators as infer_generators
from . import infer_linear as infer_linear
from . import infer_ml as infer_ml
from . import infer_movement as infer_movement
from . import infer_reductions as infer_reductions
from . import infer_sequences as infer_sequences
from . import infer_spatial as infer_spatial
from . import infer_subgraphs as infer_subgraphs
from . import operand_sizes as operand_sizes  # fills CHECKS
from .infer_by_onnx import infer_by_schema
from .inference_call import (
    CHECKS,
    MAX_ELEMENTS,
    RULES,
    Call,
    IllTyped,
    Inference,
    Misfit,
    SymbolicValue,
    Types,
    countable,
    followed,
)

__all__ = [
    "RULES",
    "IllTyped",
    "Inference",
    "Misfit",
    "SymbolicValue",
    "contents_of",
    "countable",
    "fresh_dims",
    "infer",
]


def fresh_dims(prefix: str) -> Callable[[], Dim]:
    """Return a source of symbols of which nothing is known: `prefix1`, `prefix2`, …

    The prefix should begin with an underscore: the importer gives no symbol of a model such a name."""
    numbers = itertools.count(1)
    return lambda: symbol(f"{prefix}{next(numbers)}")


def contents_of(constant: Constant) -> SymbolicValue | None:
    """Return the contents of a small constant of integers or booleans, of rank 0 or 1; None for any other."""
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
    requirements: bool = False,
) -> Inference:
    """Infer a type for each output of an operator, all unknown for an unknown operator, and the known contents.

    `attrs` have their defaults filled in (`schemas.normalize_attrs`). `types` are those of the inputs, None for an
    absent one. Of their known contents `values` and their `constants` there may be fewer. `fresh` returns a symbol for
    a dim of which nothing is known, by default `_u1`, `_u2`, … from 1 in each call. With `requirements` the result has
    what sizes have to meet that are not known yet.

    Raises `IllTyped` if the operator fails on all inputs of these types."""
    n = len(types)
    known = [*constants, *[None] * n][:n]
    padded = [*values, *[None] * n][:n]
    contents = [v or (None if c is None else contents_of(c)) for v, c in zip(padded, known, strict=True)]
    call = Call(op, attrs, types, contents, known, n_outputs, fresh or fresh_dims("_u"))
    call.required = [] if requirements else None
    result = [*_types(call), *[TensorType()] * n_outputs][:n_outputs]
    known_values: list[SymbolicValue | None] = [None] * n_outputs
    for i, found in enumerate(result):
        value = call.contents.get(i)
        if value is None or not isinstance(found, TensorType):
            continue
        if followed(value, found.dtype):
            known_values[i] = call.with_sizes(value)
            result[i] = TensorType(found.dtype, value.shape) if found.shape is None else found
    return Inference(tuple(result), tuple(known_values), required=tuple(call.required or ()))


def _types(call: Call) -> Types:
    _check_type_variables(call)
    if call.op in CHECKS:
        CHECKS[call.op](call)
    if call.op in RULES:
        return RULES[call.op](call)
    if split_name(call.op)[0] == OWN_DOMAIN:
        return ()
    declared = find_declared(call.op)
    return infer_by_schema(call) if declared is None else declared.infer(call)


def _check_type_variables(call: Call) -> None:
    """Refuse inputs of different element types where the schema gives them one type variable, such as `T` of Concat."""
    variables = _type_variables(call.op)
    bound: dict[str, DType] = {}
    for i in range(call.n_inputs if variables else 0):
        variable = variables[min(i, len(variables) - 1)]
        dtype = call.type(i).dtype
        if variable and dtype is not None and bound.setdefault(variable, dtype) is not dtype:
            raise call.refuse(f"inputs of the types {bound[variable]} and {dtype}")


@functools.cache
def _type_variables(op: str) -> tuple[str, ...]:
    """Return the type variable of each input that shares one with another, else ""; that of variadic ones is last."""
    schema = find_schema(op)
    formals = [] if schema is None else list(schema.inputs)
    names = [f.type_str if f.is_homogeneous else "" for f in formals]
    shared = [
        n if names.count(n) > 1 or f.option.name.lower() == "variadic" else ""
        for n, f in zip(names, formals, strict=True)
    ]
    return tuple(shared) if any(shared) else ()
