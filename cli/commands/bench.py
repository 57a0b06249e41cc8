"""`rewrite bench`: measure a model or bundle, by turns with other engines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import RewriteError, UserError
from ..measure import PEERS, Timing, check_peers, interleave, peer
from ..options import Json, Precision, Shape, Threads, parse_pairs, parse_shapes, writable

if TYPE_CHECKING:
    import numpy as np

    from ...backend.program import Program


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL|BUNDLE", help="An ONNX model, or a bundle directory.")],
    against: Annotated[
        str | None,
        typer.Option(
            metavar="ENGINE,...",
            help=f"Engines to compare with: {', '.join(PEERS)}, or none. Default: onnxruntime; none with --profile "
            "and for bundles.",
            show_default=False,
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", metavar="NAME=FILE", help="An input's array (.npy); the others are made up."),
    ] = None,
    shape: Shape = [],  # noqa: B006
    threads: Threads = None,
    precision: Precision = "f32",
    seconds: Annotated[
        float, typer.Option(metavar="S", min=0.1, max=3600, help="How long to measure each engine.")
    ] = 3.0,
    profile: Annotated[
        bool,
        typer.Option("--profile", help="Show the time of each kernel, and how near it is to the machine's limits."),
    ] = False,
    top: Annotated[int, typer.Option(metavar="N", min=0, help="Lines of the profile; 0: all.")] = 30,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a trace of one run for Perfetto or chrome://tracing (JSON)."),
    ] = None,
    json_file: Json = None,
) -> None:
    """Measure a model compiled by rewrite: against other engines by turns, or kernel by kernel (--profile)."""
    from .. import profiling, tables
    from ..console import out
    from ..progress import Stages
    from ..results import timings_json, write_json
    from .run import load_program

    bundle = model.is_dir()
    profile = profile or trace is not None
    if against is None:
        against = "none" if profile or bundle else "onnxruntime"
    peers = [name for name in against.split(",") if name and name != "none"]
    if peers and bundle:
        raise UserError("other engines cannot run a bundle", where=str(model), hint="Name the ONNX model to compare.")
    check_peers(peers)
    for file in (trace, json_file):
        if file is not None and str(file) != "-":
            writable(file)
    sizes = parse_shapes(shape)
    program = load_program(model, threads, precision)
    result: dict[str, Any] = {"schema": 1, "model": str(model)}
    lines: list[Any] = []
    with Stages() as stages:
        stages("bench", {})
        arrays = feeds_for(program, None if bundle else model, sizes, inputs or [])
        if profile:
            machine = profiling.machine(stages)
            stages("profile", {})
            profiled = program.profile(arrays, seconds=seconds, machine=machine)
            result["profile"] = profiling.profile_json(profiled)
            lines += [profiling.table(profiled, top or None), *profiling.summary(profiled)]
            if trace is not None:
                profiling.write_trace(profiled, trace)
        if peers or not profile:
            measured = measure(program, model, arrays, peers, program.threads, seconds)
            result["bench"] = timings_json(measured, program.threads)
            lines += [
                tables.timings(measured, "rewrite"),
                f"{program.threads} thread{'s' * (program.threads != 1)}, {precision}"
                + (", the others as they are named" if precision != "f32" and peers else ""),
            ]
    if str(json_file) != "-":
        for line in lines:
            out().print(line, style="dim" if isinstance(line, str) else None)
    if json_file is not None:
        write_json(result, json_file)


def measure(
    program: Program, model: Path, feeds: Mapping[str, np.ndarray], peers: list[str], threads: int, seconds: float
) -> dict[str, Timing]:
    """Times of `program` and of each peer on `model`, by turns."""
    runners = {
        "rewrite": lambda given: program.run(dict(given)),
        **{name: peer(name, model, threads) for name in peers},
    }
    return interleave(runners, feeds, seconds=seconds)


def feeds_for(
    program: Program, model: Path | None, shapes: Mapping[str, int], given: list[str]
) -> dict[str, np.ndarray]:
    """Arrays for all inputs of a program: those in `given` (NAME=FILE), the rest made up at the sizes in `shapes`.

    Symbolic sizes that are not given are tried until `program` runs; `model` is what it was compiled from, if there.

    Raises:
        UserError: an input that the model has not, a file that is no array, or no sizes that work.
    """
    from ...engine import onnx_in, sample
    from ...engine.graph import Graph
    from .run import read_array

    if model is not None:
        graph = onnx_in.read(model, shapes=shapes)
    else:
        plan = program.plan
        graph = Graph(plan.inputs, plan.outputs, types=dict(plan.types), defaults=dict(plan.defaults))
        free = sample.free_symbols(graph)
        if lost := [name for name in shapes if name not in free]:
            hint = f"Free dimensions: {', '.join(free)}" if free else "All its sizes are fixed."
            raise UserError(f"the program has no free dimension {lost[0]!r}", hint=hint)
    files = parse_pairs(given, "--input")
    if lost := [name for name in files if name not in graph.inputs]:
        raise UserError(f"the model has no input {lost[0]!r}; it has {', '.join(graph.inputs)}")
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
    raise UserError(f"no sizes were found that the model runs at: {refused}", hint="Give them with --shape or --input.")
