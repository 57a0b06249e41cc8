"""Registry of lowerers: which function turns groups anchored at an operator into steps that call kernels."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, wraps

from ...engine.ir.graph import DType, Node
from ..ir.kernel_graph import Item, Step
from ..ir.lower import Context, Group

Lowerer = Callable[[Group, Context], "Sequence[Item] | None"]
"""Turns a group into the items that compute it, or returns None if no native kernel does.

The planner then splits the group; a single node that no lowerer accepts runs on the reference implementation. A lowerer
writes to the context only when it is sure to succeed. Each input and output of the group is a tensor whose element type
and rank are known."""

NodeLowerer = Callable[[Node, Context], "Sequence[Item] | None"]
"""The same for a node without neighbors in its group."""

_LOWERERS: dict[str, Lowerer] = {}
_GENERIC: set[str] = set()  # operators registered with `f64`


def lowering(*operators: str, f64: bool = False) -> Callable[[Lowerer], Lowerer]:
    """Register a lowerer for groups anchored at these operators; `""` stands for groups without an anchor.

    `f64`: its kernels are generic in the element type. Then a group with an f64 tensor is lowered in the context
    `Context.in_f64`, and its kernels are rendered for f64 unless their params name another element type."""

    def register(lowerer: Lowerer) -> Lowerer:
        for op in operators:
            assert op not in _LOWERERS or _LOWERERS[op].__qualname__ == lowerer.__qualname__, f"two lowerers for {op}"
            _LOWERERS[op] = _generic(lowerer) if f64 else lowerer
        if f64:
            _GENERIC.update(operators)
        return lowerer

    return register


def lowering_alone(*operators: str, f64: bool = False) -> Callable[[NodeLowerer], NodeLowerer]:
    """Register a lowerer of single nodes, for operators whose kernels fuse nothing; `f64` as in `lowering`."""

    def register(lower: NodeLowerer) -> NodeLowerer:
        @wraps(lower)
        def lower_group(group: Group, ctx: Context) -> Sequence[Item] | None:
            return lower(group.anchor, ctx) if group.anchor is not None and len(group.nodes) == 1 else None

        lowering(*operators, f64=f64)(lower_group)
        return lower

    return register


def _generic(lowerer: Lowerer) -> Lowerer:
    """Return the lowerer that lowers groups with f64 tensors to f64 kernels."""

    @wraps(lowerer)
    def lower(group: Group, ctx: Context) -> Sequence[Item] | None:
        values = {v for node in group.nodes for v in (*node.inputs, *node.outputs) if v}
        if all(ctx.type(v).dtype is not DType.F64 for v in values):
            return lowerer(group, ctx)
        items = lowerer(group, ctx.in_f64())
        return items and [_in_f64(item) if isinstance(item, Step) else item for item in items]

    return lower


def _in_f64(step: Step) -> Step:
    params = {"real": "f64", **step.kernel.params}
    return replace(step, kernel=replace(step.kernel, params=params))


def lowerer_of(op: str) -> Lowerer | None:
    """Return the lowerer of groups anchored at `op` (`""`: no anchor), or None."""
    load()
    return _LOWERERS.get(op)


def element_types() -> dict[str, str]:
    """Return what the kernels of each operator work on: "floats", "integers", or elements of "any" type."""
    load()
    return {
        op: "floats" if op in _GENERIC else "integers" if ".quantized." in lowerer.__module__ else "any"
        for op, lowerer in _LOWERERS.items()
        if op
    }


@cache
def load() -> None:
    """Import all kernel modules, which register their lowerers."""
    package = __package__ or ""
    path = importlib.import_module(package).__path__
    for module in sorted(m.name for m in pkgutil.walk_packages(path, f"{package}.")):
        importlib.import_module(module)
