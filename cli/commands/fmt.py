"""`rewrite fmt`: rule files in the project's one layout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ...errors import RewriteError, UserError
from ..rule_files import write


def command(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH", help="Rule files or directories; - for standard input.")
    ],
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if a file would change.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Write nothing; show what would change.")] = False,
) -> None:
    """Lay out rule files: one canonical form, comments kept, meaning checked before anything is written."""
    if "-" in paths:
        if len(paths) > 1:
            raise UserError("- stands for standard input and goes with no other path")
        changes = _standard_input(check, diff)
        raise typer.Exit(1 if check and changes else 0)
    files = list(dict.fromkeys(file for path in paths for file in _files(Path(path))))
    changed = failed = 0
    for file in files:
        try:
            changed += _format(file, check, diff)
        except RewriteError as error:
            from ..failures import complain

            complain(str(error))
            failed = max(failed, error.exit_code)
    _conclude(len(files), changed, write=not (check or diff))
    if failed:
        raise typer.Exit(failed)
    raise typer.Exit(1 if check and changed else 0)


def _files(path: Path) -> list[Path]:
    """The rule files that a path stands for."""
    if path.is_dir():
        found = sorted(p for p in path.rglob("*.rules") if p.is_file())
        if not found:
            raise UserError("no .rules file in this directory", where=str(path))
        return found
    if not path.exists():
        raise UserError("no such file or directory", where=str(path))
    return [path]


def _format(path: Path, check: bool, diff: bool) -> bool:
    """Format one file; whether that changes it."""
    from ...grammar.format import format_text
    from ...grammar.parse import read
    from ..console import err

    before = read(path)
    after = format_text(before, str(path))
    if after == before:
        return False
    if diff:
        _show(before, after, str(path))
    elif check:
        err().print(f"would reformat {path}", markup=False, soft_wrap=True)
    if not (check or diff):
        write(path, after)
        err().print(f"reformatted {path}", markup=False, soft_wrap=True)
    return True


def _standard_input(check: bool, diff: bool) -> bool:
    from ...grammar.format import format_text

    try:
        before = sys.stdin.buffer.read().decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8 text: byte {error.start}", where="standard input") from error
    after = format_text(before, "<stdin>")
    if diff:
        _show(before, after, "<stdin>")
    elif not check:
        sys.stdout.write(after)
    return after != before


def _show(before: str, after: str, name: str) -> None:
    import difflib

    from ..console import out

    colours = {"+": "green", "-": "red", "@": "cyan"}
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{name} (as it is)", f"{name} (formatted)", lineterm=""
    )
    for line in lines:
        out().print(line, style=colours.get(line[0]), markup=False, highlight=False, soft_wrap=True)


def _conclude(total: int, changed: int, *, write: bool) -> None:
    from ..console import err

    left = total - changed
    parts = []
    if changed:
        parts.append(f"{changed} file{'s' * (changed != 1)} {'reformatted' if write else 'would be reformatted'}")
    if left:
        parts.append(f"{left} file{'s' * (left != 1)} left as {'they are' if left != 1 else 'it is'}")
    err().print(", ".join(parts))
