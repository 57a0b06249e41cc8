"""The command line of a machine that only runs bundles: `rewrite run` and `rewrite bench` by argparse.

Options are declared once, in the commands; here argparse reads those declarations in the place of Typer.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from ..errors import NotInstalled, UserError
from ..version import VERSION
from .commands import NAMES, RUNTIME_NAMES


def run(args: Sequence[str], **_: Any) -> int:
    """Run a command; return the exit code. Raises UserError as the command does, SystemExit after help and usage.

    Keyword arguments that Typer's applications take are ignored."""
    args = list(args)
    if args and args[0] == "help":
        args = [*args[1:2], "--help"]
    if args and args[0] in NAMES and args[0] not in RUNTIME_NAMES:
        raise NotInstalled.of(f"`rewrite {args[0]}`")
    if args and args[0] not in RUNTIME_NAMES and not args[0].startswith("-"):
        if args[0].endswith(".onnx"):
            raise NotInstalled.of("compiling a model")
        hint = f"Commands here: {', '.join(RUNTIME_NAMES)}. `pip install onnx-rewrite` brings the others."
        raise UserError(f"unknown command {args[0]!r}", hint=hint)
    parser, commands = _parser()
    found = parser.parse_args(args)
    if found.command is None:
        parser.print_help()
        return 2
    command = commands[found.command]
    signature = inspect.signature(command, eval_str=True).parameters
    command(**{name: _value(parameter, getattr(found, name)) for name, parameter in signature.items()})
    return 0


def _parser() -> tuple[argparse.ArgumentParser, dict[str, Callable[..., None]]]:
    parser = argparse.ArgumentParser(
        "rewrite", description="Run compiled models (compiling: pip install onnx-rewrite)."
    )
    parser.add_argument("--version", "-V", action="version", version=f"rewrite {VERSION}")
    groups = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands = {}
    for name in RUNTIME_NAMES:
        command = import_module(f".commands.{name}", __package__).command
        about = inspect.getdoc(command) or ""
        inner = groups.add_parser(name, help=about.partition("\n")[0], description=about)
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            _declare(inner, parameter)
        commands[name] = command
    return parser, commands


def _declare(parser: argparse.ArgumentParser, parameter: inspect.Parameter) -> None:
    """Add an argument or option to a parser, as Typer would."""
    kind, declaration = _kind(parameter)
    about = declaration.help.replace("%", "%%")
    if getattr(declaration, "is_argument", False):
        parser.add_argument(parameter.name, metavar=declaration.metavar, help=about, type=Path)
        return
    names = declaration.param_decls or (f"--{parameter.name.replace('_', '-')}",)
    settings: dict[str, Any] = {"dest": parameter.name, "default": parameter.default, "help": about}
    if kind is bool:
        parser.add_argument(*names, action="store_true", **settings)
    elif get_origin(kind) is Literal:
        parser.add_argument(*names, choices=get_args(kind), **settings)
    elif get_origin(kind) is list:
        parser.add_argument(*names, action="append", metavar=declaration.metavar, **{**settings, "default": None})
    else:
        convert = _bounded(kind, declaration.min, declaration.max) if kind in (int, float) else kind
        parser.add_argument(*names, type=convert, metavar=declaration.metavar, **settings)


def _kind(parameter: inspect.Parameter) -> tuple[Any, Any]:
    """Return the type of a parameter, None left out, and its declaration."""
    kind, declaration = parameter.annotation, None
    while get_origin(kind) is Annotated:
        kind, declaration = get_args(kind)[0], declaration or get_args(kind)[1]
    if get_origin(kind) in (Union, UnionType):
        [kind] = [one for one in get_args(kind) if one is not NoneType]
    return kind, declaration


def _bounded(kind: type, low: float | None, high: float | None) -> Callable[[str], Any]:
    """Return the parser of a number within limits."""

    def convert(text: str) -> Any:
        value = kind(text)
        if (low is not None and value < low) or (high is not None and value > high):
            raise argparse.ArgumentTypeError(f"{text} is not between {low} and {high}")
        return value

    convert.__name__ = kind.__name__  # for argparse's message about a text that is not a number
    return convert


def _value(parameter: inspect.Parameter, given: Any) -> Any:
    """Return the value of a parameter; the default for an option that may be repeated and was not given."""
    return parameter.default if given is None else given
