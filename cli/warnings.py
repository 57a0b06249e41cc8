"""Warnings about rule files, on standard error; with `--strict` they fail the command."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import CheckFailed

if TYPE_CHECKING:
    from ..grammar.library import Library

Strict = Annotated[bool, typer.Option("--strict", help="Let warnings about rules fail the command.")]


def tell(library: Library, paths: Iterable[str | Path], *, strict: bool) -> None:
    """Show what is odd about the rules below these paths.

    Raises:
        CheckFailed: there is something, and `strict` is set.
    """
    from ..grammar.diagnostics import report
    from .console import err

    places = [Path(p).resolve() for p in paths]

    def is_asked(file: str) -> bool:
        at = Path(file).resolve()
        return any(place == at or place in at.parents for place in places)

    found = [w for w in library.warnings if is_asked(w.span.file)]
    if not found:
        return
    files = {span.file for w in found for span in (w.span, *(label.span for label in w.labels))}
    sources = {file: Path(file).read_text(encoding="utf-8") for file in sorted(files)}
    err().print(report(found, sources), markup=False, soft_wrap=True)
    if strict:
        raise CheckFailed("there are warnings, and --strict lets none pass")
