"""Tensors that are columns of a wider one: the operands of a Concat along the last axis, the parts of a Split or Slice.

Where channels lie last, rows of a part lie as far apart as those of the whole (its pitch, or leading dimension as BLAS
has it). If the step that makes a part and all that read it can be told how far (`Step.pitches`), it is made or read
where it lies; else it is copied. Chains are one buffer: a join of columns may itself be columns of another, and a view
may be columns of what is made in a join.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..engine import symbolic
from ..engine.graph import TensorType, ValueType
from ..engine.symbolic import Dim
from .kernel_graph import Item, Join, Kernel, Step, View, is_host, reads, writes
from .kernels.movement import Columns, copy_columns
from .storage import nbytes


def settled(items: Sequence[Item], outputs: Sequence[str], types: dict[str, ValueType]) -> list[Item]:
    """The items with all views and joins of columns laid out or replaced by copies; `types` gets their types."""
    if not any(isinstance(item, View | Join) and item.pitch for item in items):
        return [replace(item, pitches=()) if isinstance(item, Step) and item.pitches else item for item in items]
    return _Layout(items, outputs, types).items()


@dataclass(frozen=True, slots=True)
class _Part:
    """An operand of a join of columns: how long its rows are, and where they begin, in elements."""

    value: str
    length: int
    at: int


class _Layout:
    """Decides which values are columns of which, and how far apart the rows of each lie."""

    def __init__(self, items: Sequence[Item], outputs: Sequence[str], types: dict[str, ValueType]) -> None:
        self.source, self.types = list(items), types
        self.makers: dict[str, list[int]] = {}
        self.readers: dict[str, list[int]] = {}
        for number, item in enumerate(items):
            for value in writes(item):
                self.makers.setdefault(value, []).append(number)
            for value in dict.fromkeys(reads(item)):
                self.readers.setdefault(value, []).append(number)
        self.kept = set(outputs)
        self.hosts = [n for n, item in enumerate(items) if is_host(item)]
        self.views = {item.output: item for item in items if isinstance(item, View)}
        self.joins = {
            n: _whole_parts(item, self.views, types)
            for n, item in enumerate(items)
            if isinstance(item, Join) and item.pitch
        }
        self.uses = Counter(p.value for parts in self.joins.values() for p in parts)
        self.home: dict[str, int] = {}  # of each part that is made in its place: the join
        self.pitch: dict[str, int] = {}  # of what is columns of something else
        for number in sorted(self.joins, reverse=True):
            self._place(number)
        for item in items:
            if isinstance(item, View) and self._in_place(item):
                self.pitch[item.output] = self._pitch(item.input) if item.pitch else self.pitch[item.input]

    # --- decisions ----------------------------------------------------------------------------------------------------

    def _place(self, number: int) -> None:
        """Which operands of a join are made in their places. Joins are looked at from the last one on."""
        join = self.source[number]
        assert isinstance(join, Join)
        pitch = self.pitch.get(join.output, join.pitch)
        for part in self.joins[number]:
            if part.value not in self.home and self._can_be_made(part, number) and self._readable(part.value):
                self.home[part.value], self.pitch[part.value] = number, pitch

    def _can_be_made(self, part: _Part, number: int) -> bool:
        makers = [self.source[m] for m in self.makers.get(part.value, ())]
        if not makers or part.value in self.kept or self.uses[part.value] > 1:
            return False
        if any(self.makers[part.value][0] < host < number for host in self.hosts):
            return False  # its memory may belong to another stage
        return all(
            (isinstance(m, Join) and m.pitch == part.length)
            or (isinstance(m, Step) and _takes(m, part.value, part.length))
            for m in makers
        )

    def _readable(self, value: str) -> bool:
        """Whether all that read a value can do so if it is columns of something."""
        length = self._length(value)
        for number in self.readers.get(value, ()):
            item = self.source[number]
            if isinstance(item, View) and not item.pitch:
                if not self._same_rows(item) or item.output in self.kept or not self._readable(item.output):
                    return False
            elif isinstance(item, Step):
                if length is None or not _takes(item, value, length):
                    return False
            elif not (isinstance(item, View | Join) and item.pitch):  # these may copy
                return False
        return True

    def _same_rows(self, view: View) -> bool:
        """Whether a view is all of its operand with the same rows."""
        whole, seen = self.types.get(view.input), self.types.get(view.output)
        if not isinstance(whole, TensorType) or not isinstance(seen, TensorType) or self._length(view.input) is None:
            return False
        alike = self._length(view.input) == self._length(view.output)
        return alike and symbolic.same(nbytes(whole), nbytes(seen)) and view.offset == 0

    def _in_place(self, view: View) -> bool:
        """Whether a view is one of columns, and all that read it can do so."""
        if not view.pitch:
            return view.input in self.pitch
        return view.output not in self.kept and self._readable(view.output)

    def _length(self, value: str) -> int | None:
        kind = self.types.get(value)
        last = kind.shape[-1] if isinstance(kind, TensorType) and kind.shape else None
        return last if isinstance(last, int) else None

    def _pitch(self, value: str) -> int:
        found = self.pitch.get(value) or self._length(value)
        assert found is not None
        return found

    # --- what follows from them ---------------------------------------------------------------------------------------

    def items(self) -> list[Item]:
        """All items, settled."""
        found: list[Item] = []
        for number, item in enumerate(self.source):
            if number in self.joins:
                found += self._join(item, number)
            elif isinstance(item, View) and item.pitch:
                found.append(self._view(item))
            elif isinstance(item, Step) and item.pitches:
                found.append(self._step(item))
            else:
                found.append(item)
        return found

    def _step(self, item: Step) -> Step:
        """A step that knows how far apart the rows of its buffers lie."""
        values = (*item.inputs, *item.outputs)
        told = {p.buffer: p for p in item.pitches if values[p.buffer] in self.pitch}
        params: Mapping[str, Any] = item.kernel.params
        for buffer, pitch in told.items():
            for path, factor in pitch.params:
                params = _with(params, path, self.pitch[values[buffer]] * factor)
        shared = tuple((i, o) for i, o in item.in_place if not {i, o + len(item.inputs)} & told.keys())
        kernel = Kernel(item.kernel.template, params, item.kernel.weight) if told else item.kernel
        return replace(item, kernel=kernel, in_place=shared, pitches=())

    def _view(self, item: View) -> Item:
        if item.output in self.pitch:
            return replace(item, pitch=0)
        kind = self.types[item.output]
        assert isinstance(kind, TensorType)
        assert kind.shape is not None
        assert isinstance(item.offset, int)
        read = Columns(item.input, self._pitch(item.input), item.offset // 4)
        return copy_columns([(read, Columns(item.output, self._pitch(item.output)), kind.shape)], item.nodes)

    def _join(self, item: Item, number: int) -> Iterator[Item]:
        """A join after the copies that it needs; without operands made in their places it is these alone."""
        assert isinstance(item, Join)
        pitch = self._pitch(item.output)
        parts: list[tuple[str, int]] = []
        moves: list[tuple[Columns, Columns, Sequence[Dim]]] = []
        alone = not any(self.home.get(p.value) == number for p in self.joins[number])
        for place, part in enumerate(self.joins[number]):
            value = part.value
            if self.home.get(value) != number:
                kind = self.types[value]
                assert isinstance(kind, TensorType)
                assert kind.shape is not None
                target = Columns(item.output, pitch, part.at) if alone else Columns(f"{item.output} ({place})", pitch)
                moves.append((Columns(value, self._pitch(value)), target, kind.shape))
                if not alone:
                    value = target.value
                    self.types[value] = kind
            parts.append((value, part.at * 4))
        if moves:
            yield copy_columns(moves, item.nodes)
        if not alone:
            values, offsets = zip(*parts, strict=True)
            yield Join(values, offsets, item.output, item.nodes)


def _whole_parts(join: Join, views: Mapping[str, View], types: Mapping[str, ValueType]) -> list[_Part]:
    """The operands of a join of columns; where all columns of a value follow each other in views, the value."""
    parts: list[_Part] = []
    for value, offset in zip(join.parts, join.offsets, strict=True):
        kind = types[value]
        assert isinstance(kind, TensorType)
        assert kind.shape
        assert isinstance(offset, int)
        length = kind.shape[-1]
        assert isinstance(length, int)
        parts.append(_Part(value, length, offset // 4))
    found: list[_Part] = []
    while parts:
        count = _covering(parts, views)
        first = parts[0]
        found.append(_Part(views[first.value].input, views[first.value].pitch, first.at) if count else first)
        del parts[: count or 1]
    return found


def _covering(parts: Sequence[_Part], views: Mapping[str, View]) -> int:
    """How many of the first parts are all columns of one value in their order; 0 if they aren't."""
    first = views.get(parts[0].value)
    if first is None or not first.pitch:
        return 0
    done = 0
    for count, part in enumerate(parts, 1):
        view = views.get(part.value)
        if view is None or view.input != first.input or not view.pitch or view.offset != done * 4:
            return 0
        done += part.length
        if done == first.pitch:
            return count
    return 0


def _takes(step: Step, value: str, length: int) -> bool:
    """Whether a step can be told how far apart the rows of a value lie, wherever it reads or writes it."""
    told = {p.buffer for p in step.pitches if p.length == length}
    guards = any(v == value for v, _ in step.when)
    return not guards and all(b in told for b, v in enumerate((*step.inputs, *step.outputs)) if v == value)


def _with(params: Any, path: Sequence[str | int], value: int) -> Any:
    """The params with another value at a path."""
    if not path:
        return value
    head, *rest = path
    if isinstance(params, Mapping):
        return {**params, head: _with(params.get(head), rest, value)}
    assert isinstance(head, int)
    return [_with(v, rest, value) if i == head else v for i, v in enumerate(params)]
