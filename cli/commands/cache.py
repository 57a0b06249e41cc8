"""`rewrite cache`: what is in the cache of compiled kernels, and clearing it."""

from __future__ import annotations

import typer

app = typer.Typer(help="Show or clear the cache of compiled kernels and programs.", no_args_is_help=True)


@app.command("info")
def info() -> None:
    """Show where the cache is and what is in it."""
    from ...backend.cache import Cache
    from ...backend.programs import Programs
    from .. import tables
    from ..console import out

    found, programs = Cache().info(), Programs()
    table = tables.simple("", "", numbers=(1,))
    table.add_row("directory", str(found.root))
    table.add_row("kernels", str(found.kernels))
    table.add_row("modules", str(found.modules))
    table.add_row("size", f"{tables.size(found.size)} of at most {tables.size(found.limit)}")
    table.add_row("programs", str(len(programs.entries())))
    table.add_row("their size", f"{tables.size(programs.size())} of at most {tables.size(programs.limit)}")
    out().print(table)


@app.command("clear")
def clear() -> None:
    """Remove everything in the cache; it is made anew when needed."""
    from ...backend.cache import Cache
    from .. import tables
    from ..console import out

    out().print(f"{tables.size(Cache().clear())} freed")
