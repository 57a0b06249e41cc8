"""Registry of adapters, and pairs of them, up and down, for changes that one line of a table can say."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...ir.graph import AttrValue, Node
from .step import Step, needed, require

Adapter = Callable[[Step], "Node | list[Node]"]
Pair = tuple[Adapter | None, Adapter | None]
"""The adapter up and the one down; None where the schemas say enough."""

UP: dict[tuple[str, int], Adapter] = {}
DOWN: dict[tuple[str, int], Adapter] = {}


def _register(table: dict[tuple[str, int], Adapter], version: int, *ops: str) -> Callable[[Adapter], Adapter]:
    def register(adapter: Adapter) -> Adapter:
        table.update(dict.fromkeys(((op, version) for op in ops), adapter))
        return adapter

    return register


up, down = partial(_register, UP), partial(_register, DOWN)


def unchanged(s: Step) -> Node:
    """Return the node as it is."""
    return s.node


def dropped(name: str, implied: AttrValue | None = None) -> Pair:
    """A removed attribute. Downwards it gets the value `implied`; with None no adapter is needed."""
    downward = None if implied is None else lambda s: s.changed(**{name: implied})
    return lambda s: s.changed(drop=(name,)), downward


def added(name: str, implied: AttrValue) -> Pair:
    """A new attribute; older versions imply this value."""

    def downward(s: Step) -> Node:
        require(s.attrs.get(name) == implied)
        return s.changed(drop=(name,))

    return lambda s: s.changed(**{name: implied}), downward


def renamed(old: str, new: str) -> Pair:
    """A renamed attribute."""
    return (
        lambda s: s.changed(drop=(old,), **{new: needed(s.attrs.get(old))}),
        lambda s: s.changed(drop=(new,), **{old: s.attrs[new]}),
    )


def converted(name: str, upward: Callable[[Any], Any], downward: Callable[[Any], Any] | None = None) -> Pair:
    """An attribute whose values are written in another way; absent is None."""
    back = None if downward is None else lambda s: s.changed(**{name: downward(s.attrs.get(name))})
    return lambda s: s.changed(**{name: upward(s.attrs.get(name))}), back


def moved(name: str, dtype: type[np.generic], *, single: bool = False, optional: bool = False) -> Pair:
    """An attribute, one number or a list of them, that is the second input now."""

    def upward(s: Step) -> Node:
        value = s.attrs.get(name)
        if optional and not value:
            return s.changed(drop=(name,))
        return s.as_inputs({name: np.array(needed(value), dtype).reshape(-1)})

    def downward(s: Step) -> Node:
        if optional and not s.input(1):
            return s.node
        values = s.array(1).reshape(-1).tolist()
        written: dict[str, Any] = {name: values[0] if single else tuple(values)}
        return s.changed(inputs=s.node.inputs[:1], **written)

    return upward, downward


def only_if(condition: Callable[[Node], object], pair: Pair) -> Pair:
    """A change of nodes that meet a condition; others are not adapted."""

    def checked(adapter: Adapter | None) -> Adapter | None:
        if adapter is None:
            return None

        def after_check(s: Step) -> Node | list[Node]:
            require(condition(s.node))
            return adapter(s)

        return after_check

    return checked(pair[0]), checked(pair[1])
