"""Where lowerers ask for a schedule: the key of a problem, and the knobs that several templates share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...engine.ir.graph import DType, Node
from ..ir.iteration_space import Extents
from ..ir.lower import Context, Group
from ..ir.schedule import DEFAULT, Knob, Point, Space, Tunable, problem_key

Only = tuple[str, tuple[int | str, ...]] | None
_WIDE, _NARROW = 512, 256  # bits of vectors
_GAIN = 1.03
"""Ratio of modeled times from which formulas choose narrower vectors: where both fill all lanes, wider ones take 1 or
2 % less on a Zen 4."""


def alone(node: Node) -> Group:
    """Return the group of a node that fuses nothing."""
    values = (tuple(dict.fromkeys(value for value in side if value)) for side in (node.inputs, node.outputs))
    return Group((node,), node, *values)


def bits_knob(ctx: Context, only: Only = None) -> Knob:
    """Return the width of vectors as a knob, for kernels of f32 that follow `at_width`.

    With AVX-512, vectors of 256 bits leave fewer lanes empty, and clocks and units of some CPUs favor them."""
    wide = 8 * ctx.target.vector_bytes == _WIDE and ctx.real is DType.F32
    return Knob("bits", (_NARROW, _WIDE) if wide else (), only)


def at_width(point: Point, ctx: Context, cycles: Callable[[Context], float] | None = None) -> Context:
    """Return the context for the width of vectors at a point of a space that has `bits_knob`.

    Without that knob it is the target's, or a formula's on CPUs that compute wide vectors by halves, on which `cycles`
    models the kernel's time."""
    if not bits_knob(ctx).values:
        return ctx
    narrow, bits = ctx.with_bits(_NARROW), point.get("bits")
    if bits is None and cycles is not None and ctx.target.halves and _GAIN * cycles(narrow) < cycles(ctx):
        return narrow
    return narrow if bits == _NARROW else ctx


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
