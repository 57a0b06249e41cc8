"""The memory that a loop works in: where the arena of its body, its cells and the copies of pieces lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..engine import symbolic
from ..engine.graph import TensorType
from ..engine.symbolic import Dim
from .arrays import CALLER
from .kernel_graph import Along, Loop
from .memory import padded

CELL = 64  # bytes for each of the iteration's number, the condition before it, and the one after it


@dataclass(frozen=True, slots=True)
class Piece:
    """How the pieces of a tensor lie in it: the first one and how much further each next one begins, in bytes, and each
    as `rows` runs of `row` bytes, `pitch` bytes apart. `copy` is where in the workspace a piece is put that kernels
    cannot use where it lies; -1 if they can."""

    first: int
    step: int
    rows: int
    row: int
    pitch: int
    copy: int


@dataclass(frozen=True, slots=True)
class Workspace:
    """Offsets in the workspace of a loop, which begins with the arena of its body.

    Attributes:
        size: its bytes.
        cells: where the cells are.
        spare: for each carried value the buffer that every other iteration writes to.
        target: for each the buffer of the others, -1 where that is the result's.
    """

    size: int
    cells: int
    spare: tuple[int, ...]
    target: tuple[int, ...]
    scanned: tuple[Piece, ...]
    made: tuple[Piece, ...]


def nbytes_of(shape: Sequence[Dim], kind: TensorType, extents: Mapping[str, int]) -> int:
    """The bytes of a tensor of this shape and the type's elements."""
    assert kind.dtype is not None
    return symbolic.evaluate(symbolic.product(shape), extents) * kind.dtype.numpy.itemsize


def workspace(
    item: Loop,
    arena: int,
    outer: Callable[[str], TensorType],
    offset: Callable[[str], Dim],
    extents: Mapping[str, int],
) -> Workspace:
    """The workspace of a loop whose body has an arena of so many bytes.

    `outer` gives the types of the values around it, `offset` where each lies in the buffer that it is a part of."""
    size = padded(arena)

    def take(count: int) -> int:
        nonlocal size
        at = size
        size += padded(max(count, 1))
        return at

    def piece(value: str, part: TensorType, along: Along) -> Piece:
        whole = outer(value)
        assert whole.shape is not None
        assert part.shape is not None
        at = along.axis
        rows = symbolic.evaluate(symbolic.product(part.shape[:at]), extents)
        row = nbytes_of(part.shape[at:], part, extents)
        grows = item.is_open and value in item.made
        length = 0 if grows else symbolic.evaluate(whole.shape[at], extents)
        starts = 0 if grows else symbolic.evaluate(offset(value), extents)
        direct = (rows == 1 or length == 1) and row % CALLER == 0 and starts % CALLER == 0
        copy = -1 if direct else take(rows * row)
        first, step = ((length - 1) * row, -row) if along.reverse else (0, row)
        return Piece(first, step, rows, row, length * row, copy)

    cells = take(3 * CELL)
    n = len(item.states)
    sizes = [nbytes_of(outer(v).shape or (), outer(v), extents) for v in item.states]
    spare = tuple([take(count) for count in sizes])
    target = tuple([-1 if v else take(count) for v, count in zip(item.outputs[:n], sizes, strict=True)])
    first = 2 if item.op == "Loop" else 0
    pieces = item.body.inputs[first + n : first + n + len(item.scanned)]
    scanned = tuple([piece(v, item.body.type(p), a) for v, p, a in zip(item.scanned, pieces, item.scans, strict=True)])
    ends = item.body.outputs[item.ends + n :]
    made = tuple([piece(v, item.body.type(p), a) for v, p, a in zip(item.made, ends, item.makes, strict=True)])
    return Workspace(size, cells, spare, target, scanned, made)
