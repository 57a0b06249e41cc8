"""Branches of an `If` as guarded steps of the enclosing plan, so that the runtime takes the branch without Python.

Each step of a branch gets the condition, and those of enclosing `If`s, as its guard. Both branches write their results
to the same buffer: the last computed value goes straight there, a value merely passed on is copied. A branch without
kernels for all its nodes remains a program of its own, run from Python when the condition asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...engine.ir import symbolic
from ...engine.ir.graph import Constant, DType, Requirement, ValueType
from ...engine.ir.names import unique_name
from ..ir.dataflow import is_single, same_type, writes
from ..ir.kernel_graph import Control, Item, Join, Loop, ModelPlan, Shape, Step, View
from ..kernels.movement.copies import copy_values
from .aliases import aliased

_VALUES: Mapping[type, tuple[str, ...]] = {
    Step: ("inputs", "outputs"),
    Loop: ("states", "scanned", "captures", "outputs", "count", "going"),
    View: ("input", "output"),
    Join: ("parts", "output"),
    Shape: ("output",),
}
"""The fields of items that hold values."""


class BranchInliner:
    """Inlines `If`s into the plan of a graph; extends its `types` and `constants`, whose names stay unique.

    `requirements` are those of the plan. They grow by what all branches of an `If` require, and by what one requires,
    on its condition: where sizes do not meet that, its steps do not run."""

    def __init__(
        self, types: dict[str, ValueType], constants: dict[str, Constant], requirements: Sequence[Requirement]
    ) -> None:
        self.types, self.constants, self.requirements = types, constants, list(requirements)
        self._taken = {*types, *constants}

    def inline(self, item: Item) -> list[Item]:
        """Return the items equivalent to an `If`; only the item if it is none, or cannot be inlined.

        Some branch must have kernels throughout, and such a branch must give results of the types around it."""
        if not isinstance(item, Control) or item.op != "If":
            return [item]
        self.requirements += self._common(item)
        native = [body for body in item.bodies if self._is_inlined(body)]
        condition = item.inputs[0]
        known = is_single(self.types.get(condition), DType.BOOL) and condition not in self.constants
        if not native or not known or not all(self._agree(item, body) for body in native):
            return [item]
        found: list[Item] = []
        rest: list[Item] = []  # comes last: a run that does not need it ends there
        for key, body, captured in zip(("then", "else"), item.bodies, item.captures, strict=True):
            guard = (condition, key == "then")
            if self._is_inlined(body):
                found += self._steps(item, body, captured, guard)
            else:
                name = f"{item.name} ({key})"
                rest.append(Control("Branch", (), item.outputs, {}, (body,), (captured,), name, (guard,)))
        return [*found, *rest]

    def _common(self, item: Control) -> list[Requirement]:
        """Return what all branches require, whichever runs."""
        first, *others = item.bodies
        asked = [{r.excess for r in body.requirements if not r.when} for body in others]
        return [r for r in first.requirements if not r.when and all(r.excess in other for other in asked)]

    def _own(self, body: ModelPlan) -> list[Requirement]:
        """Return what a branch requires that the plan around it does not."""
        known = {r.excess for r in self.requirements if not r.when}
        return [r for r in body.requirements if r.excess not in known]

    def _is_inlined(self, body: ModelPlan) -> bool:
        """Return whether a branch has kernels throughout, which sizes can keep from running if they have to."""
        return body.is_native and not (self._own(body) and any(isinstance(i, Loop) for i in body.items))

    def _agree(self, item: Control, body: ModelPlan) -> bool:
        """Return whether a branch gives dense tensors of the types that the `If` has around it."""
        results = [
            (body.type(v), self.types.get(made)) for v, made in zip(body.outputs, item.outputs, strict=True) if made
        ]
        return all(inner.dtype is not DType.STRING and same_type(inner, outer) for inner, outer in results)

    def _steps(self, item: Control, body: ModelPlan, captured: tuple[str, ...], guard: tuple[str, bool]) -> list[Item]:
        names = {value: value for value in captured}
        names |= {v: v for v, constant in body.constants.items() if self.constants.get(v) is constant}
        copies = []
        steps = {v for i in body.items if isinstance(i, Step | Join | Loop) for v in writes(i)}
        for value, made in zip(body.outputs, item.outputs, strict=True):
            root = aliased(body, value)
            if made and root in steps and root not in names:
                names[root] = made
            elif made:
                copies.append((value, made))
        for value in (*body.constants, *(v for i in body.items for v in writes(i))):
            if value not in names:
                names[value] = unique_name(value, self._taken)
        self.constants.update({names[v]: c for v, c in body.constants.items()})
        self.types.update({names[v]: t for v, t in body.types.items() if v in names and names[v] not in self.types})
        found = [_renamed(i, names, guard) for i in body.items]
        for r in self._own(body):
            when = (guard, *((names.get(v, v), wanted) for v, wanted in r.when))
            self.requirements.append(replace(r, when=when))
            met = (symbolic.maximum(r.excess, -r.excess), 0)
            found = [replace(i, only=(*i.only, met)) if isinstance(i, Step) else i for i in found]
        for value, made in copies:
            step = copy_values(names.get(value, value), made, body.type(value))
            found.append(replace(step, when=(guard,), nodes=(item.name,)))
        return found


def _renamed(item: Item, names: Mapping[str, str], guard: tuple[str, bool]) -> Item:
    """Return an item of a branch for the enclosing plan."""
    changes: dict[str, Any] = {}
    for field in _VALUES[type(item)]:
        found = getattr(item, field)
        changes[field] = names.get(found, found) if isinstance(found, str) else tuple(names.get(v, v) for v in found)
    if isinstance(item, Step | Loop):
        changes["when"] = (guard, *((names.get(v, v), wanted) for v, wanted in item.when))
    return replace(item, **changes)
