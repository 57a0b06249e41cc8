"""Branches of an `If` as guarded steps of the plan around it, so that the walk takes the branch without Python.

Each step of a branch gets the condition (and those of the `If`s around) as its guard. The results of both branches are
written to the same buffer: what a branch computes last goes straight there, what it only hands on is copied. A branch
that has no kernels for all of its nodes stays a program of its own, run from Python when the condition asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..engine import symbolic
from ..engine.graph import Constant, DType, TensorType, ValueType
from .kernel_graph import Control, Guarded, Item, Join, Loop, ModelPlan, Shape, Step, View, fresh_name, writes
from .kernels.movement import copy_values
from .storage import nbytes


class Conditionals:
    """Inlines `If`s into the plan of a graph; adds to its `types` and `constants`, whose names stay unique."""

    def __init__(self, types: dict[str, ValueType], constants: dict[str, Constant]) -> None:
        self.types, self.constants = types, constants
        self._taken = {*types, *constants}

    def inline(self, item: Control) -> list[Item] | None:
        """The items that do what an `If` does; None if no branch has kernels throughout, or if the branches' results
        are not all of one type with known dims."""
        native = [_is_native(body) for body in item.bodies]
        condition = item.inputs[0]
        kind = self.types.get(condition)
        if not any(native) or not isinstance(kind, TensorType) or kind.dtype is not DType.BOOL or kind.shape is None:
            return None
        if any(d != 1 for d in kind.shape) or condition in self.constants:
            return None
        if not all(self._agree(item, body) for body, whole in zip(item.bodies, native, strict=True) if whole):
            return None
        found: list[Item] = []
        rest: list[Item] = []  # comes last: a run that doesn't need it ends there
        for number, (body, captured) in enumerate(zip(item.bodies, item.captures, strict=True)):
            guard = (condition, number == 0)
            if native[number]:
                found += self._steps(item, body, captured, guard)
            else:
                name = f"{item.name} ({'then' if number == 0 else 'else'})"
                rest.append(Control("Branch", (), item.outputs, {}, (body,), (captured,), name, (guard,)))
        return [*found, *rest]

    def _agree(self, item: Control, body: ModelPlan) -> bool:
        """Whether a branch gives dense tensors of the types that the `If` has around it."""
        for value, made in zip(body.outputs, item.outputs, strict=True):
            inner, outer = body.type(value), self.types.get(made)
            if not made:
                continue
            if not isinstance(outer, TensorType) or outer.dtype is None or outer.dtype is DType.STRING:
                return False
            if inner.dtype is not outer.dtype or inner.shape is None or outer.shape is None:
                return False
            if len(inner.shape) != len(outer.shape) or not all(map(symbolic.same, inner.shape, outer.shape)):
                return False
        return True

    def _steps(self, item: Control, body: ModelPlan, captured: tuple[str, ...], guard: tuple[str, bool]) -> list[Item]:
        names = {value: value for value in captured}
        for value, constant in body.constants.items():
            if self.constants.get(value) is constant:
                names[value] = value
        copies = []
        origin = {i.output: i.input for i in body.items if isinstance(i, View) and i.offset == 0}
        steps = {v for i in body.items if isinstance(i, Step | Join | Loop) for v in writes(i)}
        for value, made in zip(body.outputs, item.outputs, strict=True):
            root = value
            while root in origin:
                root = origin[root]
            whole = root in steps and symbolic.same(nbytes(body.type(root)), nbytes(body.type(value)))
            if made and whole and root not in names:
                names[root] = made
            elif made:
                copies.append((value, made))
        for value in (*body.constants, *(v for i in body.items for v in writes(i))):
            if value not in names:
                names[value] = fresh_name(value, self._taken)
        self.constants.update({names[v]: c for v, c in body.constants.items()})
        self.types.update({names[v]: t for v, t in body.types.items() if v in names and names[v] not in self.types})
        found = [_renamed(i, names, guard) for i in body.items]
        for value, made in copies:
            kind = body.type(value)
            assert kind.shape is not None
            assert kind.dtype is not None
            step = copy_values(names.get(value, value), made, kind)
            found.append(replace(step, when=(guard,), nodes=(item.name,)))
        return found


def _is_native(body: ModelPlan) -> bool:
    """Whether a branch is kernels, views and numbers only, and loops over such."""
    return not body.versions and all(
        isinstance(i, Step | View | Join | Shape) or (isinstance(i, Loop) and not i.is_open) for i in body.items
    )


def _renamed(item: Item, names: Mapping[str, str], guard: tuple[str, bool]) -> Item:
    """An item of a branch for the plan around it."""

    def all_of(values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(v, v) for v in values)

    if isinstance(item, Step | Loop):
        when: Guarded = (guard, *((names.get(v, v), wanted) for v, wanted in item.when))
        if isinstance(item, Step):
            return replace(item, inputs=all_of(item.inputs), outputs=all_of(item.outputs), when=when)
        return replace(
            item,
            states=all_of(item.states),
            scanned=all_of(item.scanned),
            captures=all_of(item.captures),
            outputs=all_of(item.outputs),
            count=names.get(item.count, item.count),
            going=names.get(item.going, item.going),
            when=when,
        )
    if isinstance(item, View):
        return replace(item, input=names.get(item.input, item.input), output=names[item.output])
    if isinstance(item, Join):
        return replace(item, parts=all_of(item.parts), output=names[item.output])
    assert isinstance(item, Shape)
    return replace(item, output=names[item.output])
