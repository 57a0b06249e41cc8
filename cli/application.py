"""The application behind `rewrite`: all commands and their help, by Typer."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..errors import UserError
from .commands import NAMES

MAIN_COMMAND = "optimize"
_GROUP_OPTIONS = {"--help", "-h", "--version", "-V", "--help-all", "--install-completion", "--show-completion"}


class MainGroup(TyperGroup):
    """Group whose main command needs no name: `rewrite MODEL.onnx` means `rewrite optimize MODEL.onnx`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the name of the main command if no command is named. `help COMMAND` is `COMMAND --help`.

        Raises UserError for a word that is not a file and looks like a command, and for a shell without completion."""
        if args and args[0] == "help":
            args = [*args[1:2], "--help"]
        if len(args) > 1 and args[0] == "--show-completion":
            typer.echo(_completion(args[1]))
            ctx.exit()
        if args and args[0] not in self.commands and _is_word(args[0]) and not Path(args[0]).exists():
            similar = difflib.get_close_matches(args[0], self.commands, n=1, cutoff=0.65)
            hint = f"Did you mean `rewrite {similar[0]}`?" if similar else "`rewrite MODEL.onnx` compiles a model."
            hint += " `rewrite help` lists the commands."
            raise UserError(f"{args[0]!r} is neither a command nor a file", hint=hint)
        if args and args[0] not in self.commands and args[0] not in _GROUP_OPTIONS:
            args = [MAIN_COMMAND, *args]
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help of the main command, then the other commands."""
        from rich import box
        from rich.console import Console
        from rich.panel import Panel
        from rich.table import Table

        main_command = self.commands[MAIN_COMMAND]
        inner = type(ctx)(main_command, info_name=ctx.info_name, help_option_names=ctx.help_option_names)
        main_command.format_help(inner, formatter)
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for name, command in self.commands.items():
            if not command.hidden:
                table.add_row(f"[bold cyan]{name}[/]", command.get_short_help_str(200))
        console = Console(width=min(Console().width, 120))
        console.print(Panel(table, title="Other commands", title_align="left", border_style="dim", box=box.ROUNDED))
        console.print(" [dim]`rewrite COMMAND --help` explains each, `rewrite --help-all` all of them.[/]")
        console.print(" [dim]Exit codes: 0 done, 1 check failed, 2 bad input, 3 internal error, 130 interrupted.[/]\n")


def _completion(shell: str) -> str:
    """Return the script of a shell's completion. Typer's option takes none: it looks for the shell that runs it."""
    from typer.completion import Shells, get_completion_script  # type: ignore[attr-defined]

    if shell not in (known := [one.value for one in Shells]):
        raise UserError(f"no completion for the shell {shell!r}", hint=f"There is one for {', '.join(known)}.")
    return get_completion_script(prog_name="rewrite", complete_var="_REWRITE_COMPLETE", shell=shell)


def _is_word(argument: str) -> bool:
    """Whether an argument is neither an option nor the path of a file with a suffix or in another folder."""
    return not argument.startswith("-") and "." not in argument and "/" not in argument


def _help(command: Callable[..., object]) -> str:
    """Return a command's docstring with each paragraph on one line, so that the terminal breaks the lines."""
    return "\n\n".join(" ".join(part.split()) for part in (inspect.getdoc(command) or "").split("\n\n"))


app = typer.Typer(
    cls=MainGroup,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
for _name in NAMES:
    _module = import_module(f".commands.{_name}", __package__)
    if hasattr(_module, "app"):  # a command with commands of its own
        app.add_typer(_module.app, name=_name)
    else:
        app.command(_name, hidden=_name == MAIN_COMMAND, help=_help(_module.command))(_module.command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from ..version import VERSION

        typer.echo(f"rewrite {VERSION}")
        raise typer.Exit()


def _print_all_help(ctx: typer.Context, wanted: bool) -> None:
    """Print the help of every command, and of the commands inside it."""
    if not wanted:
        return
    typer.echo(ctx.get_help(), nl=False)
    pending = [(ctx, name, command) for name, command in getattr(ctx.command, "commands", {}).items()]
    while pending:
        parent, name, command = pending.pop(0)
        if command.hidden:  # the main command, which is shown first
            continue
        inner = type(ctx)(command, info_name=name, parent=parent, help_option_names=ctx.help_option_names)
        typer.echo(command.get_help(inner), nl=False)
        pending[:0] = [(inner, *entry) for entry in getattr(command, "commands", {}).items()]
    raise typer.Exit()


@app.callback()
def _group(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
    help_all: Annotated[
        bool,
        typer.Option("--help-all", help="Show the help of all commands.", callback=_print_all_help, is_eager=True),
    ] = False,
) -> None:
    """A declarative graph compiler for ONNX."""
