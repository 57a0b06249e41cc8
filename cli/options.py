"""Options that several commands share, and how their text is read."""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from ..errors import UserError


class Numerics(enum.StrEnum):
    """How far results may differ from the original's."""

    EXACT = "exact"
    REASSOC = "reassoc"
    FAST = "fast"


Precision = Annotated[
    Literal["f32", "bf16", "int8"],
    typer.Option(help="The precision of products in native kernels where a lower one is faster; the error is told."),
]
RULES_PANEL = "Rules and limits"

Rules = Annotated[
    list[Path],
    typer.Option("--rules", metavar="PATH", help="More rules: a file or a directory.", rich_help_panel=RULES_PANEL),
]
StdRules = Annotated[
    bool,
    typer.Option("--std-rules/--no-std-rules", help="Use the standard library of rules.", rich_help_panel=RULES_PANEL),
]
Schedule = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Which rulesets are run, and in what order; rule files hold more.",
        rich_help_panel=RULES_PANEL,
    ),
]
NumericsOption = Annotated[
    Numerics,
    typer.Option(
        help="exact: same bits. reassoc: rounding may differ. fast: assumes finite values, approximates.",
        rich_help_panel=RULES_PANEL,
    ),
]
Shape = Annotated[
    list[str],
    typer.Option("--shape", metavar="NAME=DIM", help="Fix a free dimension, by name or place: batch=1, x:0=1."),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(metavar="S", min=0.0, help="Seconds for saturation and extraction.", rich_help_panel=RULES_PANEL),
]
NodeLimit = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="The most e-nodes to make.", rich_help_panel=RULES_PANEL)
]
MemoryLimit = Annotated[
    int | None,
    typer.Option(metavar="MB", min=64, help="The most memory for saturation.", rich_help_panel=RULES_PANEL),
]
Threads = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=256, help="Threads of one run; default: all usable cores.")
]
Target = Annotated[
    str,
    typer.Option(
        metavar="NAME,..",
        help="CPUs to compile for: native (this one), avx512, avx2, portable; the best of several is loaded.",
    ),
]
Json = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the results as JSON; - is standard output (docs/json.md)."),
]


def parse_shapes(texts: Sequence[str]) -> dict[str, int]:
    """`["batch=1", "seq=64,height=224"]` as a dict.

    Raises:
        UserError: a part that is no NAME=DIM with a whole number of at least 0, or a name given two sizes.
    """
    sizes: dict[str, int] = {}
    for part in (part for text in texts for part in text.split(",")):
        name, equals, number = part.strip().rpartition("=")
        if not equals or not name or not number.isdigit():
            raise UserError(
                f"--shape wants NAME=DIM with a whole number, not {part!r}", hint="For example: --shape batch=1"
            )
        if sizes.setdefault(name, int(number)) != int(number):
            raise UserError(f"--shape gives {name!r} two sizes, {sizes[name]} and {number}")
    return sizes


def parse_pairs(texts: Sequence[str], option: str) -> dict[str, Path]:
    """`["x=a.npy"]` as a dict of paths; a UserError names the option and the part that is wrong."""
    pairs: dict[str, Path] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or not name or not path:
            raise UserError(f"{option} wants NAME=FILE, not {text!r}", hint=f"For example: {option} x=x.npy")
        if name in pairs:
            raise UserError(f"{option} names {name!r} twice")
        pairs[name] = Path(path)
    return pairs


def writable(path: Path) -> None:
    """Check, as far as can be before the work begins, that a file can be made at `path`; a UserError if not."""
    folder = path.parent
    if not folder.is_dir():
        raise UserError("no such directory", where=str(folder), hint=f"It is where {path.name} would be written.")
    if not os.access(folder, os.W_OK):
        raise UserError("cannot be written to", where=str(folder), hint=f"Name another place for {path.name}.")


def writable_folder(path: Path) -> None:
    """Check, as far as can be before the work begins, that files can be made in a directory, which may be yet to be
    made; a UserError if not."""
    there = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not there.is_dir():
        raise UserError("is not a directory", where=str(there))
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError("cannot be written to", where=str(there), hint="Name another directory.")


def existing_model(path: Path) -> Path:
    """The path of a model file, or a UserError that says what is there instead."""
    if path.is_dir():
        raise UserError("is a directory, not an ONNX model", where=str(path))
    if not path.exists():
        from .commands import NAMES

        hint = ""
        if not path.suffix:
            import difflib

            near = difflib.get_close_matches(str(path), NAMES, 1)
            hint = f"Did you mean the command `rewrite {near[0]}`?" if near else ""
        raise UserError("no such file", where=str(path), hint=hint)
    return path
