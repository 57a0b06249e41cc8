"""`rewrite rules`: list the rules, or show one with its documentation and tests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...errors import UserError
from ..options import Rules, StdRules


def command(
    name: Annotated[str | None, typer.Argument(metavar="RULE", help="Show this rule; without it, list all.")] = None,
    rules: Rules = [],  # noqa: B006  Typer reads the default, nothing changes it
    std_rules: StdRules = True,
) -> None:
    """List the rules, or show one."""
    from ...engine.library import load_rules

    library = load_rules(rules, std=std_rules)
    if name is None:
        _list(library.files)
    else:
        _show(name, [item for file in library.files for item in file.items])


def _list(files: object) -> None:
    from ...grammar.ast import Fuse, Op, Rule, RuleFile
    from .. import tables
    from ..console import out

    total = 0
    table = tables.simple("rule", "class", "direction", "tests", "what it says", numbers=(3,))
    assert isinstance(files, tuple)
    for file in files:
        assert isinstance(file, RuleFile)
        table.add_section()
        table.add_row(f"[bold]{Path(file.path).name}[/]", "", "", "", f"[dim]{_first_line(file.doc)}[/]")
        for item in file.items:
            if isinstance(item, Rule):
                numerics = " ".join((item.numerics, *item.relaxations))
                table.add_row(f"  {item.name}", numerics, item.direction, str(len(item.tests)), _first_line(item.doc))
                total += 1
            elif isinstance(item, Op) and item.definition is not None:
                table.add_row(
                    f"  op {item.name}", item.numerics, "recognise", str(len(item.tests)), _first_line(item.doc)
                )
                total += 1
            elif isinstance(item, Fuse):
                table.add_row(f"  fuse {item.name}", "", "group", str(len(item.tests)), _first_line(item.doc))
                total += 1
    out().print(table)
    out().print(f"{total} rules in {len(files)} files")


def _show(name: str, items: list[object]) -> None:
    import difflib

    from ...grammar.ast import Fuse, Op, Rule
    from ...grammar.printer import print_rule
    from ..console import out

    named = [item for item in items if isinstance(item, Rule | Op | Fuse)]
    found = [item for item in named if item.name == name or f"recognise_{item.name}" == name]
    if not found:
        near = difflib.get_close_matches(name, [item.name for item in named], 3)
        raise UserError(f"there is no rule {name!r}", hint=f"Did you mean {', '.join(near)}?" if near else "")
    for item in found:
        out().print(f"[dim]{item.span.file}:{item.span.line}[/]", soft_wrap=True)
        out().print(print_rule(item), markup=False, soft_wrap=True)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].replace("[", r"\[")
