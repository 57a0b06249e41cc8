"""The rule language: text to typed rules, with static checks and diagnostics."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .diagnostics import Diagnostic, Label, RuleErrors
    from .library import Library, load
    from .parse import parse_file, parse_text
    from .printer import print_expr, print_file, print_rule

_PLACES = {
    "diagnostics": ("Diagnostic", "Label", "RuleErrors"),
    "library": ("Library", "load"),
    "parse": ("parse_file", "parse_text"),
    "printer": ("print_expr", "print_file", "print_rule"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, so that what reads rules from the cache loads neither parser nor printer."""
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Diagnostic",
    "Label",
    "Library",
    "RuleErrors",
    "load",
    "parse_file",
    "parse_text",
    "print_expr",
    "print_file",
    "print_rule",
]
