"""`rewrite cache`: what is in the cache of this user, and clearing it."""

from __future__ import annotations

import typer

from ...system.short_text import memory_size
from .. import tables
from ..console import out, say

app = typer.Typer(help="Show or clear the cache of compiled kernels, programs and checked rules.", no_args_is_help=True)


@app.command("info")
def info() -> None:
    """Show where the cache is and what is in it."""
    from ...system.store import Store

    store = Store()
    table = tables.simple("", "entries", "size", "at most", numbers=(1, 2, 3))
    for found in store.info():
        table.add_row(found.name, str(found.entries), memory_size(found.size), memory_size(found.limit))
    say(f"directory: {store.root}")
    out().print(table)


@app.command("clear")
def clear() -> None:
    """Remove everything in the cache; entries are rebuilt when needed."""
    from ...system.store import Store

    out().print(f"{memory_size(Store().clear())} freed")
