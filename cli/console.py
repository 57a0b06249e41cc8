"""The two consoles: results on standard output, everything else on standard error."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@cache
def out() -> Console:
    """Standard output, where results go; in a file or a pipe lines may be longer than on a terminal."""
    import os
    import sys

    from rich.console import Console

    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 140
    return Console(highlight=False, width=wide)


@cache
def err() -> Console:
    """Standard error, where progress, warnings and errors go."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)
