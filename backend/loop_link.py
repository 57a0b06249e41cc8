"""Loops linked for the runtime: with the kernels of their bodies, and bound to extents.

The bases of a body have numbers in the frame of the program around it, after those of the program's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..engine import symbolic
from .kernel_graph import Kernel, Loop
from .loop_workspace import Piece
from .storage import Layout, Storage, nbytes

if TYPE_CHECKING:
    from .link import Link


class Bases:
    """Hands out the numbers of a frame's bases."""

    def __init__(self, count: int) -> None:
        self.count = count

    def take(self, count: int = 1) -> int:
        """The first of so many new ones."""
        first = self.count
        self.count += count
        return first


class LinkedLoop:
    """A loop with its body linked.

    Attributes:
        item: the loop.
        iterations: the base that holds how many iterations there were, 0 if nobody asks.
    """

    def __init__(
        self, item: Loop, number: int, around: Link, storage: Storage, addresses: Mapping[Kernel, int], bases: Bases
    ) -> None:
        from .link import Link

        self.item, self._number, self._around = item, number, around
        self._now = [bases.take() for _ in item.states]
        self.iterations = bases.take() if item.is_open else 0
        self._body = Link(item.body, addresses, storage, bases)

    def bind(self, layout: Layout, stage: int, extents: Mapping[str, int]) -> Any:
        """The runtime's loop for these extents; `layout` is that of the stage which the item is in."""
        from .runtime.executor import Loop as Bound

        item, around, body = self.item, self._around, self._body
        inner = layout.loops[self._number]
        own = inner.workspace
        arena = around.arena(stage)

        def place(value: str) -> tuple[int, int]:
            return around.base(value), around.offset(value, layout, stage, extents)

        def piece(value: str, one: Piece, inside: str) -> tuple[int, ...]:
            grows = item.is_open and value in item.made
            base, offset = (around.base(value), 0) if grows else place(value)
            return (base, offset, one.first, one.step, one.rows, one.row, one.pitch, one.copy, body.base(inside), grows)

        given = iter(item.body.inputs)
        cells = [body.base(next(given)) for _ in range(2 if item.op == "Loop" else 0)] or [0, 0]
        made = iter(item.body.outputs)
        goes = body.base(next(made)) if item.ends else 0
        states = []
        for i, value in enumerate(item.states):
            result = item.outputs[i]
            to = place(result) if result else (arena, inner.offset + own.target[i])
            size = symbolic.evaluate(nbytes(around.plan.type(value)), extents)
            bases = body.base(next(given)), body.base(next(made)), self._now[i]
            states.append((*place(value), *to, own.spare[i], size, *bases))
        scanned = [piece(v, one, next(given)) for v, one in zip(item.scanned, own.scanned, strict=True)]
        pieces = [piece(v, one, next(made)) for v, one in zip(item.made, own.made, strict=True)]
        captures = [(*place(v), body.base(next(given))) for v in item.captures]
        return Bound(
            iterations=-1 if item.iterations is None else max(0, symbolic.evaluate(item.iterations, extents)),
            count=place(item.count) if item.count else None,
            going=place(item.going) if item.going else None,
            workspace=(arena, inner.offset),
            bases=(body.arena(0), *cells, goes),
            cells=own.cells,
            done=self.iterations,
            guards=[(*place(v), wanted) for v, wanted in item.when],
            states=states,
            scanned=scanned,
            made=pieces,
            captures=captures,
            body=body.block(0, inner.body, extents),
        )
