"""`rewrite rules`: list the rules, show one with its documentation and tests, or begin a new one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import UserError
from ..options import Rules, StdRules
from ..warnings import Strict, tell

if TYPE_CHECKING:
    from ...grammar.ast import Item, RuleFile
    from ...grammar.library import Library


def command(
    name: Annotated[str | None, typer.Argument(metavar="RULE", help="Show this rule; without it, list all.")] = None,
    rules: Rules = [],  # noqa: B006  Typer reads the default, nothing changes it
    std_rules: StdRules = True,
    strict: Strict = False,
    new: Annotated[
        Path | None,
        typer.Option("--new", metavar="FILE", help="Append a rule to fill in, named RULE, to this file or make it."),
    ] = None,
) -> None:
    """List the rules, show one, or begin a new one."""
    from ...engine.library import STANDARD, load_rules

    if new is not None:
        _begin(new, name, load_rules(rules, std=std_rules))
        return
    library = load_rules(rules, std=std_rules)
    tell(library, rules or [STANDARD], strict=strict)
    if name is None:
        _list(library.files)
    else:
        _show(name, library)


def _begin(path: Path, name: str | None, library: Library) -> None:
    """Append a rule to fill in to a file."""
    from ..console import out
    from ..rule_files import add_rule

    if name is None:
        raise UserError("a new rule needs a name", hint="rewrite rules --new my.rules my_rule")
    taken = {str(getattr(item, "name", "")) for file in library.files for item in file.items}
    line = add_rule(path, name, taken)
    out().print(f"{path}:{line}: {name}, to be filled in", markup=False, soft_wrap=True)


def _list(files: Sequence[RuleFile]) -> None:
    from ...grammar.ast import Fuse, Op, Rule
    from .. import tables
    from ..console import out

    total = 0
    for file in files:
        rows: list[tuple[str, ...]] = []
        for item in file.items:
            says, tests = _first_line(item.doc), str(len(getattr(item, "tests", ())))
            if isinstance(item, Rule):
                rows.append((item.name, " ".join((item.numerics, *item.relaxations)), item.direction, tests, says))
            elif isinstance(item, Op) and item.definition is not None:
                rows.append((f"op {item.name}", item.numerics, "recognise", tests, says))
            elif isinstance(item, Fuse):
                rows.append((f"fuse {item.name}", "", "group", tests, says))
        if not rows:
            continue
        table = tables.simple("rule", "class", "direction", "tests", "what it says", numbers=(3,))
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
    """The items of that name as they are written, and the types of their variables."""
    import difflib

    from ...grammar.ast import Fuse, Op, Rule
    from ..console import out

    named = [item for file in library.files for item in file.items if isinstance(item, Rule | Op | Fuse)]
    found = [item for item in named if item.name == name or f"recognise_{item.name}" == name]
    if not found:
        near = difflib.get_close_matches(name, [item.name for item in named], 3)
        raise UserError(f"there is no rule {name!r}", hint=f"Did you mean {', '.join(near)}?" if near else "")
    for item in found:
        out().print(f"[dim]{item.span.file}:{item.span.line}[/]", soft_wrap=True)
        out().print(_source(item), markup=False, soft_wrap=True)
        types = _types(item, library)
        if types:
            out().print("\n[dim]types that follow[/]")
            for variable, type_ in types.items():
                out().print(f"  {variable}: {type_}", markup=False, soft_wrap=True)


def _source(item: Item) -> str:
    """The lines of an item, comments included."""
    from ...grammar.parse import read

    lines = read(item.span.file).split("\n")
    return "\n".join(lines[item.span.line - 1 : item.span.end_line])


def _types(item: Item, library: Library) -> dict[str, str]:
    """What the variables of an item stand for, as far as it can be inferred."""
    from ...engine.library import OperatorTable
    from ...grammar.types import infer

    checked = [i for i in (*library.rules, *library.ops, *library.fuses) if i.span == item.span]
    found = infer(checked, OperatorTable(), among=library.ops).types
    return {variable: str(type_) for types in found.values() for variable, type_ in types.items()}


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].replace("[", r"\[")
