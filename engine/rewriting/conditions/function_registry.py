"""Registry of the functions that rules may call; their signatures and descriptions are in `grammar.builtins`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...ir.values import BodyRef, Unprovable, Value
from ..rule_context import RuleContext

Function = Callable[..., Value]
FUNCTIONS: dict[str, Function] = {}
"""Functions by name; each gets the rule context before its arguments."""
F = TypeVar("F", bound=Function)


def function(implementation: F) -> F:
    """Register a function under its name, without the trailing underscore of one named like a Python builtin."""
    FUNCTIONS[implementation.__name__.rstrip("_")] = implementation
    return implementation


def body_function(implementation: F) -> F:
    """Register a function whose first argument must be the body of an If, Loop or Scan."""

    def checked(context: RuleContext, body: Value, *args: Any) -> Value:
        if not isinstance(body, BodyRef):
            raise Unprovable("this is not a body")
        return implementation(context, body, *args)

    FUNCTIONS[implementation.__name__] = checked
    return implementation
