"""`rewrite fmt`: format rule files."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from ...errors import RewriteError, UserError
from ...system.short_text import plural
from ..console import err, say
from ..failures import print_error
from ..rule_files import write


def command(
    paths: Annotated[list[str], Argument(metavar="PATH", help="Rule files or directories; - for standard input.")],
    check: Annotated[bool, Option("--check", help="Write nothing; exit 1 if a file would change.")] = False,
    diff: Annotated[bool, Option("--diff", help="Write nothing; show what would change.")] = False,
) -> None:
    """Format rule files in one canonical layout. Comments stay; the meaning is checked before anything is written."""
    if "-" in paths:
        if len(paths) > 1:
            raise UserError("- stands for standard input and cannot be combined with other paths")
        raise typer.Exit(1 if _standard_input(check, diff) and check else 0)
    files = list(dict.fromkeys(file for path in paths for file in _files(Path(path))))
    changed = failed = 0
    for file in files:
        try:
            changed += _format(file, check, diff)
        except RewriteError as error:
            print_error(str(error))
            failed = max(failed, error.exit_code)
    left = len(files) - changed
    parts = [f"{plural(changed, 'file')} {'would be ' * (check or diff)}reformatted"] if changed else []
    parts += [f"{plural(left, 'file')} left as {'they are' if left != 1 else 'it is'}"] if left else []
    err().print(", ".join(parts))
    raise typer.Exit(failed or (1 if check and changed else 0))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(p for p in path.rglob("*.rules") if p.is_file())
        if not found:
            raise UserError("no .rules file in this directory", where=str(path))
        return found
    if not path.exists():
        raise UserError("no such file or directory", where=str(path))
    return [path]


def _format(path: Path, check: bool, diff: bool) -> bool:
    """Format one file; return whether that changes it."""
    from ...grammar.printing.format import format_text
    from ...grammar.syntax.parse import read

    before = read(path)
    after = format_text(before, str(path))
    if after == before:
        return False
    if diff:
        _show(before, after, str(path))
    elif check:
        say(f"would reformat {path}", err())
    else:
        write(path, after)
        say(f"reformatted {path}", err())
    return True


def _standard_input(check: bool, diff: bool) -> bool:
    from ...grammar.printing.format import format_text

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
    colors = {"+": "green", "-": "red", "@": "cyan"}
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{name} (as it is)", f"{name} (formatted)", lineterm=""
    )
    for line in lines:
        say(line, style=colors.get(line[0]))
