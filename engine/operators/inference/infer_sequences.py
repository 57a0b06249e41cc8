"""Inference of sequences: their ONNX types, with the types of members where these are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.graph import OtherType, TensorType
from ...ir.symbolic import Dim
from .infer_by_onnx import infer_by_schema
from .inference_call import Call, Types, rule, with_dims

_MOST = 256
"""Largest number of members that are followed."""


@rule("SplitToSequence")
def split_to_sequence(call: Call) -> Types:
    """Parts along `axis`: of the sizes in the second input, of one size but for the last, or single slices."""
    return _with_members(call, _parts(call))


@rule("SequenceConstruct")
def sequence_construct(call: Call) -> Types:
    """The inputs."""
    return _with_members(call, [call.type(i) for i in range(call.n_inputs)])


@rule("SequenceAt")
def sequence_at(call: Call) -> Types:
    """A member, at a position that counts from the end if it is negative."""
    kind, at = call.types[0] if call.types else None, call.ints(1)
    members = kind.members if isinstance(kind, OtherType) else ()
    if at is not None and len(at) == 1 and -len(members) <= at[0] < len(members):
        return [members[at[0]]]
    return infer_by_schema(call)


def _with_members(call: Call, members: Sequence[TensorType]) -> Types:
    found = infer_by_schema(call)
    known = 0 < len(members) <= _MOST and all(m.dtype is not None and m.shape is not None for m in members)
    return [replace(t, members=tuple(members)) if known and isinstance(t, OtherType) else t for t in found]


def _parts(call: Call) -> list[TensorType]:
    """Return the types of the parts of a tensor; none if their number is not known."""
    shape, dtype = call.shape(), call.dtype()
    if not shape:
        return []
    axis = call.axis_of(call.integer("axis"), len(shape))
    whole, given = shape[axis], call.value(1)
    sizes: Sequence[Dim] = ()
    if given is not None and given.rank == 1:
        sizes = given.dims
    elif isinstance(whole, int) and (given is not None or not call.present(1)):
        size = 1 if given is None else given.dims[0]
        if isinstance(size, int) and size > 0 and whole <= _MOST * size:
            sizes = [min(size, whole - at) for at in range(0, whole, size)]
    if not call.present(1) and not call.integer("keepdims", 1):
        return [TensorType(dtype, (*shape[:axis], *shape[axis + 1 :]))] * len(sizes)
    return [TensorType(dtype, with_dims(shape, axis, call.size_of(size))) for size in sizes]
