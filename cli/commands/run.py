"""`rewrite run`: run a bundle or a model on arrays from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ...errors import UserError
from ...system.short_text import plural
from .. import tables
from ..console import Stages, out, say
from ..options import Argument, Option, Precision, Threads, Trusted, existing_model, parse_pairs, writable
from ..results import writing

if TYPE_CHECKING:
    import numpy as np

    from ...backend.runtime.program import Program


def command(
    program: Annotated[Path, Argument(metavar="BUNDLE|MODEL", help="A bundle directory or an ONNX model.")],
    inputs: Annotated[
        list[str] | None, Option("--input", "-i", metavar="NAME=FILE", help="Array of an input, as .npy or .npz.")
    ] = None,
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="FILE", help="Write all outputs here, as .npz.")
    ] = None,
    threads: Threads = None,
    precision: Precision = "f32",
    trusted: Trusted = None,
) -> None:
    """Run a bundle or a model on given inputs."""
    arrays = {name: read_array(path, name) for name, path in parse_pairs(inputs or [], "--input").items()}
    if output is not None and output.suffix != ".npz":
        raise UserError("--output takes a file name that ends in .npz", where=str(output))
    writable(output)
    results = load_program(program, threads, precision, trusted).run(arrays)
    if output is not None:
        write_arrays(output, results)
        say(f"{plural(len(results), 'output')} written to {output}")
        return
    table = tables.simple("output", "type", "shape", "min", "max", "first values")
    for name, array in results.items():
        table.add_row(name, str(array.dtype), str(list(array.shape)), *_glance(array))
    out().print(table)


def load_program(path: Path, threads: int | None, precision: str = "f32", trusted: list[str] | None = None) -> Program:
    """Load a bundle directory, or compile an ONNX model.

    Raises `UserError` if a precision is given for a bundle, which was compiled with its own, or keys for a model."""
    from ... import api

    if path.is_dir():
        if precision != "f32":
            hint = f"Compile the model again: rewrite MODEL.onnx --precision {precision}"
            raise UserError("the precision of a bundle is fixed when it is compiled", where=str(path), hint=hint)
        return api.load(path, threads=threads, trusted=trusted)
    if trusted:
        raise UserError("only bundles are signed", where=str(path), hint="Leave --trusted out.")
    with Stages() as stages:
        return api.compile(existing_model(path), threads=threads, precision=precision, progress=stages)


def read_array(path: Path, name: str) -> np.ndarray:
    """Return the array in a `.npy` file, or the one called `name`, or the only one, in a `.npz` file.

    Raises `UserError` if there is none."""
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise UserError("no such file", where=str(path), hint=f"It was given for the input {name!r}.") from None
    except (ValueError, EOFError, OSError) as error:
        if "pickle" in str(error):  # NumPy takes unknown files for pickles; its advice to load them would be wrong
            raise UserError("is not a NumPy array file, or holds Python objects", where=str(path)) from error
        raise UserError(f"is not a NumPy array file: {error}", where=str(path)) from error
    if isinstance(loaded, np.ndarray):
        return loaded
    with loaded as archive:
        names = list(archive)
        if name in names or len(names) == 1:
            return np.asarray(archive[name if name in names else names[0]])
    raise UserError(f"has no array {name!r}; it has {', '.join(names)}", where=str(path))


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write named arrays as `.npz`, atomically. Raises `UserError` if that fails."""
    import numpy as np

    with writing(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _glance(array: np.ndarray) -> tuple[str, str, str]:
    if not array.size:
        return "", "", ""
    first = ", ".join(f"{x:.5g}" if array.dtype.kind == "f" else str(x) for x in array.ravel()[:4])
    more = ", …" if array.size > 4 else ""
    if array.dtype.kind not in "fiu":
        return "", "", first + more
    return f"{array.min():.5g}", f"{array.max():.5g}", first + more
