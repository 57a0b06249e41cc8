"""Inference of sequences: their ONNX types, with the types of members where these are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.graph import OtherType, TensorType
from ...ir.symbolic import Dim
from .infer_by_onnx import infer_by_schema
from .infer_movement import concatenated
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


@rule("SequenceEmpty")
def sequence_empty(call: Call) -> Types:
    """No members."""
    return _with_members(call, [])


@rule("SequenceInsert")
def sequence_insert(call: Call) -> Types:
    """One member more: before a position, or at the end."""
    members = _members(call)
    at = None if members is None else _position(call, 2, len(members), len(members))
    return _with_members(call, None if members is None or at is None else [*members[:at], call.type(1), *members[at:]])


@rule("SequenceErase")
def sequence_erase(call: Call) -> Types:
    """One member less: that at a position, or the last one."""
    members = _members(call)
    at = None if members is None else _position(call, 1, len(members) - 1, len(members))
    return _with_members(call, None if members is None or at is None else [*members[:at], *members[at + 1 :]])


@rule("SequenceAt")
def sequence_at(call: Call) -> Types:
    """A member, at a position that counts from the end if it is negative."""
    members = _members(call)
    at = None if members is None else _position(call, 1, None, len(members))
    return infer_by_schema(call) if members is None or at is None else [members[at]]


@rule("ConcatFromSequence")
def concat_from_sequence(call: Call) -> Types:
    """The members, joined along `axis`, which is a new one if `new_axis` is 1."""
    members = _members(call)
    if not members:
        return infer_by_schema(call)
    if not call.integer("new_axis"):
        return [concatenated(call, members)]
    shapes = [m.shape for m in members if m.shape is not None]
    if len({*map(len, shapes)}) > 1:
        raise call.refuse("members of different ranks")
    axis = call.axis_of(call.integer("axis"), len(shapes[0]) + 1)
    parts = [TensorType(members[0].dtype, (*shape[:axis], 1, *shape[axis:])) for shape in shapes]
    return [concatenated(call, parts)]


def _members(call: Call) -> tuple[TensorType, ...] | None:
    """Return the types of the members of the first input."""
    kind = call.types[0] if call.types else None
    return kind.members if isinstance(kind, OtherType) else None


def _position(call: Call, i: int, default: int | None, end: int) -> int | None:
    """Return the position that input i has, counted from the beginning; None if it is not known or out of range."""
    if not call.present(i):
        return default if default is None or default >= 0 else None
    at = call.ints(i)
    return at[0] % end if at is not None and len(at) == 1 and -end <= at[0] < end else None


def _with_members(call: Call, members: Sequence[TensorType] | None) -> Types:
    found = infer_by_schema(call)
    if members is None or len(members) > _MOST or any(m.dtype is None or m.shape is None for m in members):
        return found
    return [replace(t, members=tuple(members)) if isinstance(t, OtherType) else t for t in found]


def _parts(call: Call) -> list[TensorType] | None:
    """Return the types of the parts of a tensor; None if their number is not known."""
    shape, dtype = call.shape(), call.dtype()
    if not shape:
        return None
    axis = call.axis_of(call.integer("axis"), len(shape))
    whole, given = shape[axis], call.value(1)
    sizes: Sequence[Dim] | None = None
    if given is not None and given.rank == 1:
        sizes = given.dims
    elif isinstance(whole, int) and (given is not None or not call.present(1)):
        size = 1 if given is None else given.dims[0]
        if isinstance(size, int) and size > 0 and whole <= _MOST * size:
            sizes = [min(size, whole - at) for at in range(0, whole, size)]
    if sizes is None:
        return None
    if not call.present(1) and not call.integer("keepdims", 1):
        return [TensorType(dtype, (*shape[:axis], *shape[axis + 1 :]))] * len(sizes)
    return [TensorType(dtype, with_dims(shape, axis, call.size_of(size))) for size in sizes]
