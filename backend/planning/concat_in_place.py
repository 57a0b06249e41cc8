"""Concatenation in place: steps write the operands of a Concat straight into its result.

Along the outermost axis an operand is a run of bytes. Along the last axis, and for the parts of a Split or Slice, it is
columns of a wider tensor: where channels lie last, the rows of a part are as far apart as those of the whole, its
leading dimension, as in BLAS. If the producer of a part and all its readers take that distance as a parameter
(`Step.leading_dimensions`), the part stays where it lies. Chains share one buffer: a join, or an alias of one, may
itself be columns of another join.

An operand that no step can write there (an input, a constant, a part of another value, an output) is copied.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...engine.ir import symbolic
from ...engine.ir.graph import DType, TensorType, ValueType
from ...engine.ir.symbolic import Dim
from ..ir.dataflow import reads, writes
from ..ir.kernel import Kernel
from ..ir.kernel_graph import Item, Join, Step, View, is_host
from ..kernels.movement.copies import Columns, copy_columns, copy_values
from ..memory.buffer_assignment import nbytes


def assign_leading_dimensions(items: Sequence[Item], outputs: Sequence[str], types: dict[str, ValueType]) -> list[Item]:
    """The items with all views and joins of columns laid out or replaced by copies; `types` gets their types."""
    return _Layout(items, outputs, types).laid_out()


@dataclass(frozen=True, slots=True)
class _Part:
    """An operand of a join of columns: the length of its rows and their offset, in elements."""

    value: str
    length: int
    at: int


class _Plan:
    """Items with their types, and the numbers of those that write each value."""

    def __init__(self, items: Sequence[Item], types: dict[str, ValueType]) -> None:
        self.items, self.types = items, types
        self._hosts = [n for n, item in enumerate(items) if is_host(item)]
        self._numbers: defaultdict[str, list[int]] = defaultdict(list)
        for number, item in enumerate(items):
            for value in writes(item):
                self._numbers[value].append(number)

    def makers(self, value: str, number: int) -> list[Item]:
        """Return the items that write a part of join `number`; none if its memory may belong to another stage."""
        numbers = self._numbers[value]
        if any(first < host < number for first in numbers[:1] for host in self._hosts):
            return []
        return [self.items[n] for n in numbers]

    def type(self, value: str) -> TensorType:
        """Return the tensor type of a value; unknown dtype and shape if it is not a tensor."""
        kind = self.types.get(value)
        return kind if isinstance(kind, TensorType) else TensorType()


class _Layout(_Plan):
    """Assignment of values to columns of others, with the leading dimension of each."""

    def __init__(self, items: Sequence[Item], outputs: Sequence[str], types: dict[str, ValueType]) -> None:
        super().__init__(items, types)
        self.readers: defaultdict[str, list[Item]] = defaultdict(list)
        for item in items:
            for value in dict.fromkeys(reads(item)):
                self.readers[value].append(item)
        self.outputs = set(outputs)
        self.home: dict[str, int] = {}  # the join in which a part is written in place
        self.row_stride: dict[str, int] = {}  # leading dimension of each value that is columns of another
        views = {item.output: item for item in items if isinstance(item, View) and item.leading_dimension}
        joins = {n: item for n, item in enumerate(items) if isinstance(item, Join) and item.leading_dimension}
        self.parts = {n: self._whole_parts(join, views) for n, join in joins.items()}
        self.uses = Counter(p.value for parts in self.parts.values() for p in parts)
        for number, join in reversed(joins.items()):
            self._place(join, number)
        for item in items:
            if isinstance(item, View) and self._in_place(item):
                whole = self._row_stride(item.input) if item.leading_dimension else self.row_stride[item.input]
                self.row_stride[item.output] = whole

    def _whole_parts(self, join: Join, views: Mapping[str, View]) -> list[_Part]:
        """Return the operands of a join; consecutive columns that cover a value are replaced by the value."""
        parts: list[_Part] = []
        for value, offset in zip(join.parts, join.offsets, strict=True):
            assert isinstance(offset, int)
            parts.append(_Part(value, self._row_stride(value), offset // self._itemsize(join.output)))
        found: list[_Part] = []
        while parts:
            count = _covering(parts, views, self._itemsize(join.output))
            view = views[parts[0].value] if count else None
            found.append(_Part(view.input, view.leading_dimension, parts[0].at) if view else parts[0])
            del parts[: count or 1]
        return found

    # --- decisions ----------------------------------------------------------------------------------------------------

    def _place(self, join: Join, number: int) -> None:
        """Choose the operands of a join that are written in place. Joins are visited from the last to the first."""
        row_stride = self.row_stride.get(join.output, join.leading_dimension)
        for part in self.parts[number]:
            if part.value not in self.home and self._can_be_made(part, number) and self._readable(part.value):
                self.home[part.value], self.row_stride[part.value] = number, row_stride

    def _can_be_made(self, part: _Part, number: int) -> bool:
        makers = self.makers(part.value, number)
        if not makers or part.value in self.outputs or self.uses[part.value] > 1:
            return False
        return all(
            (isinstance(m, Join) and m.leading_dimension == part.length)
            or (isinstance(m, Step) and _supports_stride(m, part.value, part.length))
            for m in makers
        )

    def _readable(self, value: str) -> bool:
        """Return whether all readers of a value can read it as columns of another."""
        length = self._length(value)
        for item in self.readers[value]:
            if isinstance(item, View) and not item.leading_dimension:
                if not self._same_rows(item) or item.output in self.outputs or not self._readable(item.output):
                    return False
            elif isinstance(item, Step):
                if length is None or not _supports_stride(item, value, length):
                    return False
            elif not (isinstance(item, View | Join) and item.leading_dimension):  # these may copy
                return False
        return True

    def _same_rows(self, view: View) -> bool:
        """Return whether an alias is all of its operand, with the same rows."""
        length = self._length(view.input)
        if length is None or length != self._length(view.output) or view.offset != 0:
            return False
        return nbytes(self.type(view.input)) == nbytes(self.type(view.output))

    def _in_place(self, view: View) -> bool:
        """Return whether an alias is one of columns and all its readers can read it so."""
        if not view.leading_dimension:
            return view.input in self.row_stride
        return view.output not in self.outputs and self._readable(view.output)

    def _length(self, value: str) -> int | None:
        last = (self.type(value).shape or (None,))[-1]
        return last if isinstance(last, int) else None

    def _dtype(self, value: str) -> DType:
        dtype = self.type(value).dtype
        assert dtype is not None
        return dtype

    def _itemsize(self, value: str) -> int:
        return self._dtype(value).bits // 8

    def _row_stride(self, value: str) -> int:
        found = self.row_stride.get(value) or self._length(value)
        assert found is not None
        return found

    # --- applying the decisions ---------------------------------------------------------------------------------------

    def laid_out(self) -> list[Item]:
        """Return all items with leading dimensions assigned."""
        found: list[Item] = []
        for number, item in enumerate(self.items):
            if isinstance(item, Join) and item.leading_dimension:
                found += self._join(item, number)
            elif isinstance(item, View) and item.leading_dimension:
                found.append(self._view(item))
            else:
                found.append(self._step(item) if isinstance(item, Step) and item.leading_dimensions else item)
        return found

    def _step(self, item: Step) -> Step:
        """Return a step with the leading dimensions of its buffers as parameters."""
        values = (*item.inputs, *item.outputs)
        strided = {p.buffer: p for p in item.leading_dimensions if values[p.buffer] in self.row_stride}
        params: Mapping[str, Any] = item.kernel.params
        dims = list(item.dims)
        for buffer, dimension in strided.items():
            stride = self.row_stride[values[buffer]]
            for path, factor in dimension.params:
                params = _replace_at(params, path, stride * factor)
            for entry, factor in dimension.dims:
                dims[entry] = stride * factor
        shared = tuple((i, o) for i, o in item.in_place if not {i, o + len(item.inputs)} & strided.keys())
        kernel = Kernel(item.kernel.template, params) if strided else item.kernel
        return replace(item, kernel=kernel, dims=tuple(dims), in_place=shared, leading_dimensions=())

    def _shape(self, value: str) -> tuple[Dim, ...]:
        shape = self.type(value).shape
        assert shape is not None
        return shape

    def _view(self, item: View) -> Item:
        if item.output in self.row_stride:
            return replace(item, leading_dimension=0)
        assert isinstance(item.offset, int)
        read = Columns(item.input, self._row_stride(item.input), item.offset // self._itemsize(item.input))
        write = Columns(item.output, self._row_stride(item.output))
        return copy_columns([(read, write, self._shape(item.output))], self._dtype(item.output), item.nodes)

    def _join(self, item: Join, number: int) -> Iterator[Item]:
        """Yield a join after the copies that it needs; with no operand written in place, only the copies."""
        row_stride = self._row_stride(item.output)
        names: list[str] = []
        moves: list[tuple[Columns, Columns, Sequence[Dim]]] = []
        alone = not any(self.home.get(p.value) == number for p in self.parts[number])
        for place, part in enumerate(self.parts[number]):
            names.append(part.value)
            if self.home.get(part.value) != number:
                target = Columns(item.output, row_stride, part.at)
                if not alone:
                    names[-1] = f"{item.output} ({place})"
                    self.types[names[-1]] = self.types[part.value]
                    target = Columns(names[-1], row_stride)
                moves.append((Columns(part.value, self._row_stride(part.value)), target, self._shape(part.value)))
        if moves:
            yield copy_columns(moves, self._dtype(item.output), item.nodes)
        if not alone:
            offsets = tuple(part.at * self._itemsize(item.output) for part in self.parts[number])
            yield Join(tuple(names), offsets, item.output, item.nodes)


def _covering(parts: Sequence[_Part], views: Mapping[str, View], itemsize: int) -> int:
    """Return the number of leading parts that are all columns of one value in order; 0 if they are not."""
    done, first = 0, views.get(parts[0].value)
    for count, part in enumerate(parts, 1):
        view = views.get(part.value)
        if first is None or view is None or view.input != first.input or view.offset != done * itemsize:
            return 0
        done += part.length
        if done == first.leading_dimension:
            return count
    return 0


def _supports_stride(step: Step, value: str, length: int) -> bool:
    """Return whether a step takes the leading dimension of a value wherever it reads or writes it."""
    strided = {p.buffer for p in step.leading_dimensions if p.length == length}
    guards = any(v == value for v, _ in step.when)
    return not guards and all(b in strided for b, v in enumerate((*step.inputs, *step.outputs)) if v == value)


def _replace_at(params: Any, path: Sequence[str | int], value: int) -> Any:
    """Return the params with another value at a path."""
    if not path:
        return value
    head, *rest = path
    if isinstance(params, Mapping):
        return {**params, head: _replace_at(params.get(head), rest, value)}
    assert isinstance(head, int)
    return [_replace_at(v, rest, value) if i == head else v for i, v in enumerate(params)]


def concat_in_place(items: Sequence[Item], outputs: Sequence[str], types: dict[str, ValueType]) -> list[Item]:
    """Add the copies of operands that cannot be written in place; `types` gets the types of the copies.

    Joins of columns are laid out before: see `assign_leading_dimensions`."""
    places = _Places(items, outputs, types)
    found: list[Item] = []
    for number, item in enumerate(items):
        if isinstance(item, Join):
            parts = [places.in_place_value(value, number) for value in item.parts]
            for at, value in enumerate(item.parts):
                if parts[at] is None:
                    parts[at] = copy = f"{item.output} ({at})"
                    types[copy] = types[value]
                    found.append(replace(copy_values(value, copy, places.type(value)), nodes=item.nodes))
            item = replace(item, parts=tuple(filter(None, parts)))
        found.append(item)
    return found


class _Places(_Plan):
    """The values that already have a fixed place."""

    def __init__(self, items: Sequence[Item], outputs: Sequence[str], types: dict[str, ValueType]) -> None:
        super().__init__(items, types)
        self.source = {i.output: i.input for i in items if isinstance(i, View)}
        self.taken = {self._root(v) for v in outputs}
        self.uses = Counter(self._root(v) for i in items if isinstance(i, Join) for v in i.parts)

    def _root(self, value: str) -> str:
        while value in self.source:
            value = self.source[value]
        return value

    def in_place_value(self, value: str, number: int) -> str | None:
        """Return the value to write in place for this operand of join `number`; None if it must be copied.

        It is the operand itself, or the value that the operand aliases as a whole."""
        root = self._root(value)
        kind, own, makers = self.types.get(value), self.type(root), self.makers(root, number)
        if not makers or root in self.taken or self.uses[root] > 1:
            return None
        if not all(isinstance(m, Step | Join) for m in makers):
            return None
        if not isinstance(kind, TensorType) or None in (own.shape, own.dtype):
            return None
        return root if symbolic.same(nbytes(kind), nbytes(own)) else None
