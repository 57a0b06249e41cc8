"""`rewrite bench`: measure a model or bundle, by turns with other engines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import RewriteError, UserError
from ..measure import PEERS, Timing, check_peers, interleave, peer
from ..options import Json, Shape, Threads, existing_model, parse_pairs, parse_shapes

if TYPE_CHECKING:
    import numpy as np


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX model.")],
    against: Annotated[
        str, typer.Option(metavar="ENGINE,...", help=f"Engines to compare with: {', '.join(PEERS)}.")
    ] = "onnxruntime",
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", metavar="NAME=FILE", help="An input's array (.npy); the others are made up."),
    ] = None,
    shape: Shape = [],  # noqa: B006
    threads: Threads = None,
    seconds: Annotated[float, typer.Option(metavar="S", min=0.1, help="How long to measure each engine.")] = 3.0,
    json_file: Json = None,
) -> None:
    """Measure a model compiled by rewrite against other engines, by turns."""
    from ... import api
    from .. import tables
    from ..console import out
    from ..progress import Stages

    existing_model(model)
    peers = [name for name in against.split(",") if name and name != "none"]
    check_peers(peers)
    used = threads or api.usable_cores()
    sizes = parse_shapes(shape)
    with Stages() as stages:
        program = api.compile(model, threads=used, progress=stages)
        stages("bench", {})
        arrays = feeds_for(program, model, sizes, inputs or [])
        measured = measure(program, model, arrays, peers, used, seconds)
    if str(json_file) != "-":
        out().print(tables.timings(measured, "rewrite"))
        out().print(f"{used} thread{'s' * (used != 1)}, f32", style="dim")
    if json_file is not None:
        from ..results import timings_json, write_json

        write_json({"schema": 1, "model": str(model), "bench": timings_json(measured, used)}, json_file)


def measure(
    program: Any, model: Path, feeds: Mapping[str, np.ndarray], peers: list[str], threads: int, seconds: float
) -> dict[str, Timing]:
    """Times of `program` and of each peer on `model`, by turns."""
    runners = {
        "rewrite": lambda given: program.run(dict(given)),
        **{name: peer(name, model, threads) for name in peers},
    }
    return interleave(runners, feeds, seconds=seconds)


def feeds_for(program: Any, model: Path, shapes: Mapping[str, int], given: list[str]) -> dict[str, np.ndarray]:
    """Arrays for all inputs of a model: those in `given` (NAME=FILE), the rest made up at the sizes in `shapes`.

    Symbolic sizes that are not given are tried until `program` runs.

    Raises:
        UserError: an input that the model has not, a file that is no array, or no sizes that work.
    """
    from ...engine import onnx_in, sample
    from .run import read_array

    graph = onnx_in.read(model, shapes=shapes)
    files = parse_pairs(given, "--input")
    if lost := [name for name in files if name not in graph.inputs]:
        raise UserError(f"the model has no input {lost[0]!r}; it has {', '.join(graph.inputs)}", where=str(model))
    fixed = {name: read_array(path, name) for name, path in files.items()}
    refused = ""
    for sizes in sample.assignments(graph, shapes):
        arrays: dict[str, np.ndarray] = {**sample.make_inputs(graph, sizes), **fixed}
        try:
            program.run(arrays)
        except RewriteError as error:
            refused = str(error)
        else:
            return arrays
    raise UserError(
        f"no sizes were found that the model runs at: {refused}",
        where=str(model),
        hint="Give them with --shape or --input.",
    )
