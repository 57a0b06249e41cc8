"""The rule language: text to typed rules, with static checks and diagnostics."""

from .diagnostics import Diagnostic, Label, RuleErrors
from .library import Library, load
from .parse import parse_file, parse_text
from .printer import print_expr, print_file, print_rule

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
