"""`rewrite bench`: measure a model or bundle, interleaved with other engines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from ...errors import RewriteError, UserError
from ...pages.page import finite
from ...system.short_text import plural
from .. import profiling, tables
from ..console import Stages, out
from ..measure import PEERS, Feeds, Runner, Timing, check_peers, interleave, peer
from ..options import (
    Argument,
    Json,
    Option,
    Precision,
    Shape,
    Threads,
    Trusted,
    grouped,
    parse_pairs,
    parse_shapes,
    writable,
)
from ..results import SCHEMA, timings_json, write_json, write_text
from .run import load_program, read_array

if TYPE_CHECKING:
    import numpy as np

    from ...backend.runtime.program import Program


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs of the model: files of arrays, and the sizes of random ones."""

    inputs: Annotated[
        list[str] | None,
        Option("--input", "-i", metavar="NAME=FILE", help="Array of an input (.npy); the other inputs are random."),
    ] = None
    shape: Shape = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Measurement:
    """What is measured, for how long, and where the results go."""

    seconds: Annotated[float, Option(metavar="S", min=0.1, max=3600, help="Seconds to measure each engine.")] = 3.0
    profile: Annotated[
        bool,
        Option("--profile", help="Show the time of each kernel, and how close it is to the limits of the machine."),
    ] = False
    top: Annotated[int, Option(metavar="N", min=0, help="Rows of the profile; 0 for all.")] = 30
    trace: Annotated[
        Path | None, Option(metavar="FILE", help="Write a trace of one run for Perfetto or chrome://tracing (JSON).")
    ] = None
    json_file: Json = None

    @property
    def profiles(self) -> bool:
        """Whether kernels are measured one by one; a trace needs that."""
        return self.profile or self.trace is not None


@grouped
def command(
    model: Annotated[Path, Argument(metavar="MODEL|BUNDLE", help="An ONNX model, or a bundle directory.")],
    feeds: Inputs,
    what: Measurement,
    against: Annotated[
        str | None,
        Option(
            metavar="ENGINE,...",
            help=f"Engines to compare with: {', '.join(PEERS)}, or none. Default: onnxruntime; none with --profile "
            "and for bundles.",
            show_default=False,
        ),
    ] = None,
    threads: Threads = None,
    precision: Precision = "f32",
    trusted: Trusted = None,
) -> None:
    """Measure a model compiled by rewrite, interleaved with other engines, or kernel by kernel (--profile)."""
    bundle = model.is_dir()
    if against is None:
        against = "none" if what.profiles or bundle else "onnxruntime"
    peers = [name for name in against.split(",") if name and name != "none"]
    if peers and bundle:
        raise UserError("other engines cannot run a bundle", where=str(model), hint="Pass the ONNX model instead.")
    check_peers(peers)
    writable(what.trace, what.json_file)
    sizes = parse_shapes(feeds.shape)
    program = load_program(model, threads, precision, trusted)
    result: dict[str, Any] = {"schema": SCHEMA, "model": str(model)}
    lines: list[Any] = []
    with Stages() as stages:
        stages("bench", {})
        others = {name: peer(name, model, program.threads) for name in peers}
        arrays, ran = feeds_for(program, None if bundle else model, sizes, feeds.inputs or (), others)
        if what.profiles:
            lines += _profile(program, arrays, what, stages, result)
            result["profile"]["sizes"] = ran
        if peers or not what.profiles:
            measured = measure(program, arrays, others, what.seconds)
            result["bench"] = timings_json(measured, program.threads, ran)
            named = ", the others as named" if precision != "f32" and peers else ""
            threads_used = plural(program.threads, "thread")
            lines += [tables.timings(measured, "rewrite"), f"{threads_used}, {precision}{named}"]
        if ran and not sizes:
            lines.append(f"for {tables.sizes(ran)}; state others with --shape")
    if str(what.json_file) != "-":
        for line in lines:
            out().print(line, style="dim" if isinstance(line, str) else None)
    if what.json_file is not None:
        write_json(result, what.json_file)


def _profile(program: Program, feeds: Feeds, what: Measurement, stages: Stages, result: dict[str, Any]) -> list[Any]:
    """Measure each kernel, add the profile to `result`, and return the lines to print."""
    from ...backend.runtime.run_data import profile_data

    machine = profiling.machine(stages)
    stages("profile", {})
    profile = program.profile(feeds, seconds=what.seconds, machine=machine)
    result["profile"] = profile_data(profile)
    if what.trace is not None:
        write_text(json.dumps(finite(profile.trace())) + "\n", what.trace)  # for Chrome
    return [profiling.table(profile, what.top or None), *profiling.summary(profile)]


def measure(program: Program, feeds: Feeds, peers: Mapping[str, Runner], seconds: float) -> dict[str, Timing]:
    """Return the times of `program` and of each peer, measured interleaved."""
    return interleave({"rewrite": lambda given: program.run(dict(given)), **peers}, feeds, seconds=seconds)


def _failure(peers: Mapping[str, Runner], feeds: Feeds) -> str:
    """Return which engine does not run on these inputs, and why; empty if all do."""
    for name, run in peers.items():
        try:
            run(feeds)
        except Exception as error:  # engines have errors of their own
            return f"{name}: {error}"
    return ""


def feeds_for(
    program: Program,
    model: Path | None,
    shapes: Mapping[str, int],
    given: Sequence[str] = (),
    peers: Mapping[str, Runner] = MappingProxyType({}),
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Return arrays for all inputs of a program, and the sizes that they give to its free dims.

    Arrays are those in `given` (NAME=FILE), and random ones for the rest. Sizes that are not in `shapes` are tried
    until the program and the peers run, likely ones first. `model` is the model it was compiled from, if known. Raises
    `UserError` for an unknown input, a file that is not an array, and if no sizes work."""
    from ...engine.cost.likely_sizes import likely_sizes
    from ...engine.ir.graph import Graph
    from ...engine.verification import random_inputs

    if model is not None:
        from ...engine.onnx_io import importer  # bundles run without the packages that it needs

        graph = importer.read(model, shapes=shapes)
    else:
        plan = program.plan
        graph = Graph(plan.inputs, plan.outputs, types=dict(plan.types), defaults=dict(plan.defaults))
        free = random_inputs.free_symbols(graph)
        if lost := [name for name in shapes if name not in free]:
            hint = f"Free dimensions: {', '.join(free)}" if free else "All its sizes are fixed."
            raise UserError(f"the program has no free dimension {lost[0]!r}", hint=hint)
    files = parse_pairs(given, "--input")
    if lost := [name for name in files if name not in graph.inputs]:
        raise UserError(f"the model has no input {lost[0]!r}; it has {', '.join(graph.inputs)}")
    fixed = {name: read_array(path, name) for name, path in files.items()}
    refused = ""
    for sizes in ({**likely_sizes(graph), **shapes}, *random_inputs.assignments(graph, shapes)):
        arrays: dict[str, np.ndarray] = {**random_inputs.make_inputs(graph, sizes), **fixed}
        try:
            program.run(arrays)
        except RewriteError as error:
            refused = str(error)
            continue
        if not (failed := _failure(peers, arrays)):
            return arrays, {**shapes, **random_inputs.sizes_of(graph, arrays)}
        refused = failed
    raise UserError(f"no sizes found for which the model runs: {refused}", hint="Give them with --shape or --input.")
