"""Where lowerers ask for a schedule: the key of a problem, and the knobs that several templates share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...engine.ir.graph import Node
from ..ir.iteration_space import Extents
from ..ir.lower import Context, Group
from ..ir.schedule import DEFAULT, Point, Space, Tunable, problem_key

Only = tuple[str, tuple[int | str, ...]] | None


def alone(node: Node) -> Group:
    """Return the group of a node that fuses nothing."""
    values = (tuple(dict.fromkeys(value for value in side if value)) for side in (node.inputs, node.outputs))
    return Group((node,), node, *values)


def schedule(
    group: Group,
    ctx: Context,
    label: str,
    problem: Callable[[Extents], Mapping[str, Any]],
    space: Callable[[], Space | None],
) -> Point:
    """Return the point at which to schedule the kernel of a group; `DEFAULT` where formulas decide.

    `problem` returns what is computed as plain data, without names; those with sizes of run time follow the formulas,
    as do those without a `space`. `label` is for people."""
    if ctx.schedules is None:
        return DEFAULT
    extents = Extents()
    described = problem(extents)
    found = None if extents.dims else space()
    if found is None:
        return DEFAULT
    key = problem_key(found.templates, described, ctx.real.name, ctx.threads, ctx.reassociate)
    return ctx.schedules.point(Tunable(key, label, found, group))
