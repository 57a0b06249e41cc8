"""`rewrite rules`: list the rules, show one with its documentation and tests, or create a new one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from ...errors import UserError
from .. import tables
from ..console import out, say
from ..options import Rules, StdRules, Strict
from ..rule_files import add_rule, show_warnings

if TYPE_CHECKING:
    from ...grammar.library.load import Library
    from ...grammar.syntax.ast import Item, RuleFile


def command(
    name: Annotated[str | None, Argument(metavar="RULE", help="Show this rule; without it, list all.")] = None,
    rules: Rules = [],  # noqa: B006  Typer reads the default, nothing changes it
    std_rules: StdRules = True,
    strict: Strict = False,
    new: Annotated[
        Path | None, Option(metavar="FILE", help="Append the template of a rule, named RULE, to this file.")
    ] = None,
) -> None:
    """List the rules, show one, or create a new one."""
    from ...engine.rewriting.rule_library import STANDARD, load_rules

    library = load_rules(rules, std=std_rules)
    if new is not None:
        if name is None:
            raise UserError("a new rule needs a name", hint="rewrite rules --new my.rules my_rule")
        taken = {str(getattr(item, "name", "")) for file in library.files for item in file.items}
        say(f"{new}:{add_rule(new, name, taken)}: {name}, to be filled in")
        return
    show_warnings(library, rules or [STANDARD], strict=strict)
    if name is None:
        _list(library.files)
    else:
        _show(name, library)


def _list(files: Sequence[RuleFile]) -> None:
    from ...grammar.syntax.ast import Fuse, Op, Rule

    total = 0
    for file in files:
        rows: list[tuple[str, ...]] = []
        for item in file.items:
            says, tests = _first_line(item.doc), str(len(getattr(item, "tests", ())))
            if isinstance(item, Rule):
                rows.append((item.name, " ".join((item.numerics, *item.relaxations)), item.direction, tests, says))
            elif isinstance(item, Op) and item.definition is not None:
                rows.append((f"op {item.name}", item.numerics, "recognize", tests, says))
            elif isinstance(item, Fuse):
                rows.append((f"fuse {item.name}", "", "group", tests, says))
        if not rows:
            continue
        table = tables.simple("rule", "class", "direction", "tests", "meaning", numbers=(3,))
        for column, width in zip(table.columns, (32, 8, 10, 5), strict=False):
            column.min_width, column.no_wrap = width, True
        table.columns[-1].no_wrap, table.columns[-1].overflow = True, "ellipsis"
        for row in rows:
            table.add_row(*row)
        out().print(f"[bold]{Path(file.path).name}[/]  [dim]{_first_line(file.doc)}[/]")
        out().print(table)
        total += len(rows)
    out().print(f"{total} rules in {len(files)} files")


def _show(name: str, library: Library) -> None:
    import difflib

    from ...grammar.syntax.ast import Fuse, Op, Rule
    from ...grammar.syntax.parse import read

    named = [item for file in library.files for item in file.items if isinstance(item, Rule | Op | Fuse)]
    found = [item for item in named if item.name == name or f"recognize_{item.name}" == name]
    if not found:
        near = difflib.get_close_matches(name, [item.name for item in named], 3)
        raise UserError(f"unknown rule {name!r}", hint=f"Did you mean {', '.join(near)}?" if near else "")
    for item in found:
        out().print(f"[dim]{item.span.file}:{item.span.line}[/]", soft_wrap=True)
        lines = read(item.span.file).split("\n")  # comments included
        say("\n".join(lines[item.span.line - 1 : item.span.end_line]))
        types = _types(item, library)
        if types:
            out().print("\n[dim]inferred types[/]")
            for variable, type_ in types.items():
                say(f"  {variable}: {type_}")


def _types(item: Item, library: Library) -> dict[str, str]:
    from ...engine.rewriting.rule_library import OperatorTable
    from ...grammar.types import infer

    checked = [i for i in (*library.rules, *library.ops, *library.fuses) if i.span == item.span]
    found = infer(checked, OperatorTable(), among=library.ops).types
    return {variable: str(type_) for types in found.values() for variable, type_ in types.items()}


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].replace("[", r"\[")
