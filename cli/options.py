"""Options that several commands share, and the parsing of their values."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from ..errors import UserError

if TYPE_CHECKING:
    from typer import Argument as Argument
    from typer import Option as Option

    from ..engine.options import Options
else:
    try:
        from typer import Argument, Option
    except ModuleNotFoundError:  # only bundles run here: `runtime_application` reads the declarations
        from .option_declarations import argument as Argument  # noqa: N812
        from .option_declarations import option as Option  # noqa: N812


Numerics = Literal["exact", "reassoc", "fast"]
"""Classes of rules: how far results may differ from the original's."""

Precision = Annotated[
    Literal["f32", "bf16", "int8"],
    Option(help="Precision of products in native kernels where a lower one is faster; the error is reported."),
]
Strict = Annotated[bool, Option("--strict", help="Treat warnings about rules as failures.")]
RuleTargets = Annotated[
    list[str] | None,
    Argument(metavar="PATH[::RULE]", help="Rule files or directories; the standard library by default."),
]
Jobs = Annotated[int | None, Option("--jobs", "-j", min=1, metavar="N", help="Processes to use; all cores by default.")]
in_panel = partial(Option, rich_help_panel="Rules and limits")

Rules = Annotated[list[Path], in_panel("--rules", metavar="PATH", help="More rules: a file or a directory.")]
StdRules = Annotated[bool, in_panel(help="Use the standard library of rules.")]
Schedule = Annotated[
    str, in_panel(metavar="NAME", help="The order in which rulesets run; rule files can define more schedules.")
]
NumericsOption = Annotated[
    Numerics,
    in_panel(help="exact: same bits. reassoc: rounding may differ. fast: assumes finite values, approximates."),
]
TimeLimit = Annotated[float | None, in_panel(metavar="S", min=0.0, help="Seconds for saturation and extraction.")]
NodeLimit = Annotated[int | None, in_panel(metavar="N", min=1, help="Maximum number of e-nodes.")]
MemoryLimit = Annotated[int | None, in_panel(metavar="MiB", min=64, help="Memory limit of saturation in MiB.")]
Shape = Annotated[
    list[str],
    Option("--shape", metavar="NAME=DIM", help="Fix a free dimension by name or position: batch=1, x:0=1."),
]
Threads = Annotated[
    int | None, Option(metavar="N", min=1, max=256, help="Threads of one run; default: all usable cores.")
]
Trusted = Annotated[
    list[str] | None,
    Option("--trusted", metavar="KEY.pub", help="Load the bundle only if this key has signed it (`rewrite sign`)."),
]
Target = Annotated[
    str,
    Option(
        metavar="NAME,..",
        help="CPUs to compile for: native (this one), avx512, avx2, neon, portable; the best of several is loaded.",
    ),
]
Json = Annotated[
    Path | None,
    Option("--json", metavar="FILE", help="Write the results as JSON; - is standard output (docs/json.md)."),
]


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """Options about rules and limits, as `optimize` and `explain` take them."""

    rules: Rules = field(default_factory=list)
    std_rules: StdRules = True
    numerics: NumericsOption = "reassoc"
    schedule: Schedule = "standard"
    time_limit: TimeLimit = None
    node_limit: NodeLimit = None
    memory_limit: MemoryLimit = None

    def options(self, **more: Any) -> Options:
        """Return the engine's options."""
        from ..engine.options import Options

        return Options.of(**{f.name: getattr(self, f.name) for f in fields(self)}, **more)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take dataclasses of options: Typer sees one option per field."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        if not is_dataclass(parameter.annotation):
            parameters.append(parameter.replace(kind=keyword))
            continue
        groups[name] = parameter.annotation
        hints = get_type_hints(parameter.annotation, include_extras=True)
        for f in fields(parameter.annotation):
            default = f.default if f.default_factory is MISSING else f.default_factory()
            parameters.append(inspect.Parameter(f.name, keyword, default=default, annotation=hints[f.name]))

    def run(**values: Any) -> None:
        made = {name: kind(**{f.name: values.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        command(**made, **values)

    run.__doc__, run.__module__, run.__name__ = command.__doc__, command.__module__, command.__name__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def parse_shapes(texts: Sequence[str]) -> dict[str, int]:
    """Parse `["batch=1", "seq=64,height=224"]`. Raises `UserError` for another form, or two sizes of a name."""
    sizes: dict[str, int] = {}
    for part in (part for text in texts for part in text.split(",")):
        name, equals, number = part.strip().rpartition("=")
        if not equals or not name or not number.isdigit():
            problem = f"--shape takes NAME=DIM with a non-negative integer, not {part!r}"
            raise UserError(problem, hint="For example: --shape batch=1")
        if sizes.setdefault(name, int(number)) != int(number):
            raise UserError(f"--shape gives {name!r} two sizes, {sizes[name]} and {number}")
    return sizes


def parse_duration(text: str, option: str) -> float:
    """Parse `90`, `90s`, `5m` or `1h` into seconds. Raises `UserError` for anything else, and for less than 1 s."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in "smh" and text else (text, "s")
    try:
        seconds = float(number) * {"s": 1, "m": 60, "h": 3600}[unit]
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds < math.inf:
        raise UserError(
            f"{option} takes a duration of at least a second, not {text!r}", hint=f"For example: {option} 5m"
        )
    return seconds


def parse_pairs(texts: Sequence[str], option: str) -> dict[str, Path]:
    """Parse `["x=a.npy"]` into paths by name. A `UserError` names the option and the part that is wrong."""
    pairs: dict[str, Path] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or not name or not path:
            raise UserError(f"{option} takes NAME=FILE, not {text!r}", hint=f"For example: {option} x=x.npy")
        if name in pairs:
            raise UserError(f"{option} names {name!r} twice")
        pairs[name] = Path(path)
    return pairs


def rule_targets(texts: Sequence[str] | None) -> list[tuple[Path, str]]:
    """Return the paths, which must exist, and rule names of `PATH[::RULE]`; the standard library by default."""
    from ..engine.rewriting.rule_library import STANDARD

    found = []
    for text in texts or [str(STANDARD)]:
        name, _, rule = text.partition("::")
        if not Path(name).exists():
            raise UserError("no such file or directory", where=name)
        found.append((Path(name), rule))
    return found


def writable(*paths: Path | None) -> None:
    """Check, as far as possible before the work begins, that the files can be written; raise `UserError` if not.

    None and `-` (standard output) are not files."""
    for path in paths:
        if path is None or str(path) == "-":
            continue
        folder = path.parent
        if not folder.is_dir():
            raise UserError("no such directory", where=str(folder), hint=f"{path.name} would be written there.")
        if not os.access(folder, os.W_OK):
            raise UserError("cannot be written to", where=str(folder), hint=f"Choose another place for {path.name}.")


def writable_folder(path: Path) -> None:
    """Check, as far as possible before the work begins, that files can be written to a directory, which need not
    exist yet; raise `UserError` if not."""
    there = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not there.is_dir():
        raise UserError("is not a directory", where=str(there))
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError("cannot be written to", where=str(there), hint="Choose another directory.")


def existing_model(path: Path) -> Path:
    """Return the path of a model file. A `UserError` says what is there instead."""
    if path.is_dir():
        raise UserError("is a directory, not an ONNX model", where=str(path))
    if not path.exists():
        raise UserError("no such file", where=str(path))
    return path
