"""The table that the functions of the condition library enter themselves into."""

from __future__ import annotations

from collections.abc import Callable

from ..values import Value

Function = Callable[..., Value]
FUNCTIONS: dict[str, Function] = {}


def function(implementation: Function) -> Function:
    """Enters a function under its name, without the trailing underscore that keeps it apart from a builtin."""
    FUNCTIONS[implementation.__name__.rstrip("_")] = implementation
    return implementation
