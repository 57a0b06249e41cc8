"""Edits of several numbers at once, where an edit of one alone leads to no instance or to one that types tell apart.

Begin and end of a slice shift together, what one operand pads another one crops, and two axes of equal extents exchange
their places. A Slice has a table of its own: from the end, in steps, and backwards, alone and inside another.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...engine.ir.values import RestRef
from ...grammar.syntax import ast
from .edit import MAX_DIMS, Edit, Editing, data, extents, is_list, whole, with_extent
from .instance import Instance, Tensor, resize
from .subject import Subject

_LONGEST_PAIR = 8
"""Maximum length of lists of which pairs of elements change together."""
_SLICES = ((-1, -99, -1), (-2, 99, 1), (-3, -1, 1), (1, 99, 2), (-2, -99, -1), (-1, -99, -2), (0, 3, 1))
"""Begin, end and step of slices worth trying: whole reversals, the last elements, every second one, and a part of the
reversal."""
_MOST_SLICES = 2
"""Number of slices of which all combinations are tried."""
Numbers = list[int]


def numbers_of(value: Any) -> Numbers | None:
    """Return the integers of an operand: of an attribute, of a list, or of a constant that is a list or a scalar."""
    if isinstance(value, Tensor):
        small = is_list(value) or (value.is_const and value.dtype.is_integer and not value.shape)
        return None if value.array is None or not small else [int(v) for v in value.array.reshape(-1)]
    if type(value) is int:
        return [value]
    return value if isinstance(value, list) and value and all(type(v) is int for v in value) else None


def with_numbers(value: Any, numbers: Numbers) -> Any:
    """Return the operand with other integers."""
    if isinstance(value, Tensor):
        assert value.array is not None
        shape = value.array.shape if value.array.ndim == 0 else (len(numbers),)
        wide = [min(max(number, -(2**63)), 2**63 - 1) for number in numbers]
        return Tensor.of(np.array(wide, np.int64).astype(value.array.dtype).reshape(shape))
    return numbers if isinstance(value, list) else numbers[0]


def _pairs_of_numbers(editing: Editing, instance: Instance) -> list[Any]:
    found = [n for n, v in instance.operands.items() if 0 < len(numbers_of(v) or ()) <= _LONGEST_PAIR]
    return list(itertools.combinations(found, 2))


def _together(editing: Editing, instance: Instance, one: str, other: str) -> Iterator[Instance]:
    """Two operands change by as much, in one direction or in opposite ones, or exchange their numbers."""
    first, second = instance.operands[one], instance.operands[other]
    a, b = numbers_of(first) or [], numbers_of(second) or []

    def changed(x: Numbers, y: Numbers) -> Instance:
        return instance.replace(**{one: with_numbers(first, x), other: with_numbers(second, y)})

    if len(a) == len(b):
        if a != b:
            yield changed(b, a)
        for step in (1, -1, *(-d for d in extents(data(instance))[-3:])):
            yield changed([v + step for v in a], [v + step for v in b])
        for step in (1, -1):
            yield changed([v + step for v in a], [v - step for v in b])
    for i, j in itertools.product(range(len(a)), range(len(b))) if len(a) + len(b) > 2 else ():
        yield changed([*a[:i], a[i] - 2, *a[i + 1 :]], [*b[:j], b[j] + 2, *b[j + 1 :]])


# --- slices ---


def _slice_operands(subject: Subject, form: int) -> list[tuple[list[str], list[str], list[str] | None]]:
    """Return the variables that are begin, end and step of each Slice of a form; no step if the form states it."""
    found = []
    for node in subject.forms[form].walk():
        if isinstance(node, ast.Call) and node.head == "Slice" and len(node.args) >= 3:
            names = [_names(arg) for arg in node.args]
            if names[1] and names[2]:
                found.append((names[1], names[2], (names[4] or None) if len(names) > 4 else None))
    return found


def _names(arg: ast.Expr) -> list[str]:
    items = arg.items if isinstance(arg, ast.ListExpr) else (arg,)
    return [item.id for item in items if isinstance(item, ast.Name)]


def _slices(editing: Editing, instance: Instance) -> Iterator[Instance]:
    """Each Slice of the pattern has the bounds and steps of a row of the table, or its own."""
    if editing.subject.model(instance) is not None:
        return
    found = _slice_operands(editing.subject, instance.form)
    count = min(len(found), _MOST_SLICES)
    for rows in itertools.product((None, *_SLICES), repeat=count) if found else ():
        operands: dict[str, Any] = {}
        for (begins, ends, steps), row in zip(found, rows, strict=False):
            if row is None or (steps is None and row[2] != 1):
                continue
            for names, number in ((begins, row[0]), (ends, row[1]), (steps or [], row[2])):
                operands |= _filled(instance.operands, names, number)
        if operands:
            yield instance.replace(**operands)


def _filled(operands: Mapping[str, Any], names: list[str], number: int) -> dict[str, Any]:
    known = {name: numbers for name in names if (numbers := numbers_of(operands.get(name)))}
    return {name: with_numbers(operands[name], [number] * len(numbers)) for name, numbers in known.items()}


# --- lists and indices where types do not tell axes apart ---


def _squares(editing: Editing, instance: Instance) -> list[Any]:
    """Return the instance with all extents equal, in lists of sizes too, and each list or number in it."""
    places = []
    for size in (2, 3):
        tensors = dict(instance.tensors)
        others = [d for d in extents(data(instance)) if d not in (0, 1, size)]
        for slot in tensors:
            for old in others:
                tensors[slot] = _replaced(tensors[slot], old, size, editing)
        base = instance.replace_tensors(tensors)
        places += [(base, name) for name, value in base.operands.items() if numbers_of(value)]
    return places


def _replaced(tensor: Tensor, old: int, new: int, editing: Editing) -> Tensor:
    if not is_list(tensor):
        return resize(tensor, with_extent(tensor, old, new), editing.rng)
    assert tensor.array is not None
    return Tensor.of(np.where(tensor.array == old, tensor.array.dtype.type(new), tensor.array))


def _exchanged(editing: Editing, instance: Instance, base: Instance, name: str) -> Iterator[Instance]:
    """Two neighbors exchange their places, all are reversed or rotated, or a number is another one."""
    value = base.operands[name]
    numbers = numbers_of(value) or []
    orders = [[*numbers[:i], numbers[i + 1], numbers[i], *numbers[i + 2 :]] for i in range(len(numbers) - 1)]
    orders += [numbers[::-1], numbers[1:] + numbers[:1]]
    if len(numbers) == 1:
        orders = [[numbers[0] + step] for step in (1, -1, 2)]
    for order in orders:
        if order != numbers:
            yield base.replace(**{name: with_numbers(value, order)})


def _places_of_indices(editing: Editing, instance: Instance) -> list[Any]:
    """Return the constants that are indices of a Gather."""
    if editing.subject.model(instance) is not None:
        return []
    nodes = [n for n in editing.subject.forms[instance.form].walk() if isinstance(n, ast.Call) and n.head == "Gather"]
    names = dict.fromkeys(name for n in nodes for arg in n.args[1:2] for name in _names(arg))
    return [(name,) for name in names if numbers_of(instance.operands.get(name))]


def _matrix_of_indices(editing: Editing, instance: Instance, name: str) -> Iterator[Instance]:
    """Indices are a matrix or a scalar; with as many rows as columns, types do not tell its axes apart."""
    tensor = instance.operands[name]
    if isinstance(tensor, Tensor) and tensor.array is not None and tensor.array.ndim == 1:
        size = tensor.array.size
        for shape in ((size, size), (2, size), (size, 1), ()):
            yield instance.replace(**{name: Tensor.of(np.resize(tensor.array, shape))})


def _sliced_matrices(editing: Editing, instance: Instance) -> list[Any]:
    """Return the instance with matrices of indices, whose axes a Slice may take for others."""
    places = _places_of_indices(editing, instance)
    return [(b,) for p in places for b in itertools.islice(_matrix_of_indices(editing, instance, *p), 2)]


# --- one more axis in front ---


def _shifted(editing: Editing, instance: Instance) -> Iterator[Instance]:
    """All data have one more axis in front, and one operand, which may list axes, counts from behind it."""
    shapes = {slot: (2, *t.shape) for slot, t in data(instance) if len(t.shape) < MAX_DIMS}
    for name, value in instance.operands.items() if shapes else ():
        if numbers := numbers_of(value):
            base = editing.resized(instance, shapes)
            yield base.replace(**{name: with_numbers(value, [n + 1 if n >= 0 else n for n in numbers])})


# --- attributes of 1 ---


def _units(editing: Editing, instance: Instance) -> Iterator[Instance]:
    """Integer attributes that the pattern leaves open, such as a block size, are 1, and all extents of the data are
    equal: axes that differ otherwise are then alike."""
    units = {}
    for name, value in instance.operands.items():
        if isinstance(value, RestRef) and any(type(v) is int and v > 1 for v in value.attrs.values()):
            attrs = {k: 1 if type(v) is int and v > 1 else v for k, v in value.attrs.items()}
            units[name] = RestRef(attrs)
    for size in (2, 3) if units else ():
        squares = {slot: (size,) * len(t.shape) for slot, t in data(instance)}
        yield editing.resized(instance.replace(**units), squares)


COUPLED_EDITS = (
    Edit(whole, _shifted, weight=1, enumerated="all"),
    Edit(whole, _units, weight=1, enumerated="all"),
    Edit(whole, _slices, weight=2, enumerated="share"),
    Edit(_pairs_of_numbers, _together, weight=2, enumerated="share"),
    Edit(_squares, _exchanged, weight=2, enumerated="share"),
    Edit(_places_of_indices, _matrix_of_indices, weight=1, enumerated="all"),
    Edit(_sliced_matrices, lambda editing, _, base: _slices(editing, base), weight=1, enumerated="share"),
)
