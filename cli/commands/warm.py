"""`rewrite warm`: fill the cache of programs before a deployment."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from typer import Argument

from ...errors import UserError
from ..console import Stages, say
from ..options import Numerics, NumericsOption, Precision, Shape, Threads, existing_model, parse_shapes


def command(
    models: Annotated[list[Path], Argument(metavar="MODEL...", help="ONNX models.")],
    threads: Threads = None,
    shape: Shape = [],  # noqa: B006
    numerics: NumericsOption = "reassoc",
    precision: Precision = "f32",
) -> None:
    """Compile models into the cache, so that sessions and programs of them start at once.

    Options must be those of the service: a program is cached for a number of threads and for fixed sizes."""
    for model in models:
        begin = time.monotonic()
        cached = _warm(existing_model(model), threads, parse_shapes(shape), numerics, precision)
        say(f"{model}: {'already cached' if cached else f'compiled in {time.monotonic() - begin:.1f} s'}")


def _warm(model: Path, threads: int | None, shapes: dict[str, int], numerics: Numerics, precision: str) -> bool:
    """Compile a model into the cache; return whether it was there. Raises UserError if it cannot be cached."""
    from ...backend.bundle.program_cache import ProgramCache
    from ...backend.compile_model import ProgramIdentity, compile_model
    from ...engine.options import Options
    from ...system.process_pool import usable_cores

    options = Options.of(shapes=shapes, numerics=numerics, precision=precision)
    count, programs = threads or usable_cores(), ProgramCache()
    identity = ProgramIdentity.of(model, options, count, "native")
    key = identity.key() if identity is not None else None
    if key is None:
        raise UserError(
            "the program cannot be cached, since data is in files beside the model, or is too large for the cache",
            where=str(model),
            hint=f"Write a bundle, and load that in the service: rewrite {model}",
        )
    if programs.find(key, threads=count) is not None:
        return True
    with Stages() as stages:
        compile_model(model, options, threads=count, progress=stages)
    if programs.find(key, threads=count) is None:
        hint = "`rewrite cache` shows its directory and its limit."
        raise UserError("the cache did not take the program", where=str(model), hint=hint)
    return False
