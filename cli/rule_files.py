"""Writing rule files: whole texts in place of others, and new rules to fill in."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

from ..errors import UserError

_NEW_FILE = '"""What the rules of this file are about."""\n'
_NEW_RULE = """rule {name}  # what equals what, in one line: this is the rule's doc
  # left what to look for, right what it equals
  Relu(Relu(x))  =>  Relu(x)
  class exact  # or reassoc: rounding may differ; or fast: finite values, approximately
  test fires    x: f32[2,3]  # operands for which the rule holds
  test refuses in Relu(Abs(x)) for x: f32[2,3]  # what comes near and must stay
"""


def write(path: Path, text: str) -> None:
    """Put a text into a file at once, with the ends of lines and the permissions that the file had."""
    from ..transient import replacing

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
    """Append a rule to fill in to a file, or make a file with it; the line where it begins.

    Raises:
        UserError: the name is no name or `taken`, the file is no rule file or cannot be written.
        RuleErrors: what is in the file is not well formed.
    """
    from ..grammar.diagnostics import RuleErrors
    from ..grammar.format import format_text
    from ..grammar.parse import parse_fresh, read
    from ..grammar.syntax_errors import RESERVED

    if not (name.isascii() and name[:1].isalpha() and name.replace("_", "a").isalnum()):
        raise UserError(f"{name!r} is no name of a rule", hint="letters, digits and _, a letter first")
    if name in RESERVED:
        raise UserError(f"{name!r} is a word of the language and names no rule")
    if path.suffix != ".rules" or path.is_dir():
        raise UserError("is no rule file", where=str(path), hint="its name ends in .rules")
    before = read(path) if path.exists() else _NEW_FILE
    parsed = parse_fresh(before, str(path))
    if parsed.diagnostics:
        raise RuleErrors(parsed.diagnostics, {str(path): before})
    if name in taken or any(getattr(item, "name", "") == name for item in parsed.file.items):
        raise UserError(f"there is a {name!r} already", where=str(path))
    before += "\n" * (bool(before) and not before.endswith("\n")) + "\n" * bool(before)
    after = before + format_text(_NEW_RULE.format(name=name))
    if parse_fresh(after, str(path)).diagnostics:  # such as an item that goes on where the rule begins
        raise UserError("nothing can be appended to this file", where=str(path))
    write(path, after)
    return before.count("\n") + 1
