"""Declarations of arguments and options where Typer is not installed: with the attributes of Typer's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Declaration:
    """An option, or an argument if it has no names: what `typer.Option` and `typer.Argument` hold of it."""

    param_decls: tuple[str, ...]
    help: str = ""
    metavar: str | None = None
    min: float | None = None
    max: float | None = None
    is_argument: bool = False


def option(*names: str, **settings: Any) -> Declaration:
    """Declare an option. Settings that concern the layout of Typer's help are ignored."""
    known = {key: settings[key] for key in ("help", "metavar", "min", "max") if key in settings}
    return Declaration(names, **known)


def argument(**settings: Any) -> Declaration:
    """Declare an argument by position."""
    return Declaration((), settings.get("help", ""), settings.get("metavar"), is_argument=True)
