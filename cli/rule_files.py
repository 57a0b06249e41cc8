"""Rule files on the command line: their warnings, replacing one, and appending the template of a rule."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CheckFailed, UserError
from ..system.scoped import replacing
from .console import err, say

if TYPE_CHECKING:
    from ..grammar.library.load import Library

_NEW_FILE = '"""The topic of the rules in this file."""\n'
_NEW_RULE = """rule {name}  # what equals what, in one line: the documentation of the rule
  # left: the pattern; right: what it equals
  Relu(Relu(x))  =>  Relu(x)
  class exact  # or reassoc: rounding may differ; or fast: approximate, finite values only
  test fires    x: f32[2,3]  # operands on which the rule fires
  test refuses in Relu(Abs(x)) for x: f32[2,3]  # a near miss that must not change
"""


def show_warnings(library: Library, paths: Iterable[str | Path], *, strict: bool) -> None:
    """Show the warnings about the rules in these files and directories; if `strict`, raise `CheckFailed` for them."""
    from ..grammar.diagnostics import report

    places = {Path(p).resolve() for p in paths}

    def is_asked(file: str) -> bool:
        at = Path(file).resolve()
        return not places.isdisjoint((at, *at.parents))

    found = [w for w in library.warnings if is_asked(w.span.file)]
    if not found:
        return
    files = {span.file for w in found for span in (w.span, *(label.span for label in w.labels))}
    say(report(found, {file: Path(file).read_text(encoding="utf-8") for file in files}), err())
    if strict:
        raise CheckFailed("there are warnings, which --strict does not allow")


def write(path: Path, text: str) -> None:
    """Replace the text of a file atomically, keeping its line endings and permissions."""
    target, data, mode = path.resolve(), text.encode(), None
    if target.exists():
        if b"\r\n" in target.read_bytes():
            data = data.replace(b"\n", b"\r\n")
        mode = stat.S_IMODE(target.stat().st_mode)
        if not os.access(target, os.W_OK):
            raise UserError("cannot be written to", where=str(path))
    try:
        with replacing(target) as file:
            file.write(data)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
    except OSError as error:
        raise UserError(f"cannot be written to: {error.strerror or error}", where=str(path)) from error


def add_rule(path: Path, name: str, taken: Collection[str]) -> int:
    """Append the template of a rule to a file, which need not exist; return the line of the rule.

    Raises `UserError` if the name is invalid or `taken`, or if the file is not a rule file or cannot be written;
    `RuleErrors` if the file has syntax errors."""
    from ..grammar.printing.format import format_text
    from ..grammar.syntax.parse import parse_fresh, read
    from ..grammar.syntax.syntax_errors import RESERVED

    if not (name.isascii() and name[:1].isalpha() and name.replace("_", "a").isalnum()):
        hint = "Use letters, digits and _, beginning with a letter."
        raise UserError(f"{name!r} is not a valid rule name", hint=hint)
    if name in RESERVED:
        raise UserError(f"{name!r} is a reserved word and cannot name a rule")
    if path.suffix != ".rules" or path.is_dir():
        raise UserError("is not a rule file", where=str(path), hint="The name of a rule file ends in .rules.")
    before = read(path) if path.exists() else _NEW_FILE
    items = parse_fresh(before, str(path)).checked(before).items
    if name in taken or any(getattr(item, "name", "") == name for item in items):
        raise UserError(f"{name!r} exists already", where=str(path))
    before += "\n" * (bool(before) and not before.endswith("\n")) + "\n" * bool(before)
    after = before + format_text(_NEW_RULE.format(name=name))
    if parse_fresh(after, str(path)).diagnostics:  # for example an item that would continue with the rule
        raise UserError("cannot append: the last item of the file would continue into the new rule", where=str(path))
    write(path, after)
    return before.count("\n") + 1
