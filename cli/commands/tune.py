"""`rewrite tune`: search schedules for a model's kernels by measurement; export, import and prune the records."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ...errors import UserError
from ...system.short_text import duration, plural
from .. import tables
from ..console import Stages, out, say
from ..failures import INTERRUPTED
from ..options import (
    Argument,
    Json,
    Option,
    Precision,
    RuleOptions,
    Shape,
    Target,
    Threads,
    existing_model,
    grouped,
    parse_duration,
    parse_shapes,
    writable,
)
from ..results import SCHEMA, write_json, write_text

if TYPE_CHECKING:
    from ...backend.schedules.records import RecordFile
    from ...tuning.tune import Tuning


@grouped
def command(
    rules: RuleOptions,
    model: Annotated[
        Path | None, Argument(metavar="MODEL.onnx", help="The ONNX model whose kernels are tuned.", show_default=False)
    ] = None,
    budget: Annotated[str, Option(metavar="TIME", help="How long to search: 90s, 5m, 1h.")] = "5m",
    threads: Threads = None,
    shape: Shape = [],  # noqa: B006 - Typer copies it
    target: Target = "native",
    precision: Precision = "f32",
    search: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="guided (by a learned model), evolution, annealing, tpe, random or grid. "
            "Default: guided where LightGBM is installed, else evolution.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int, Option(metavar="N", min=0, help="Build candidates in N processes; measurements stay in one.")
    ] = 0,
    scheduler: Annotated[
        str | None, Option(metavar="ADDRESS", help="Build on the workers of a Dask scheduler: tcp://host:port.")
    ] = None,
    seed: Annotated[int, Option(metavar="N", min=0, help="Seed of the search.")] = 0,
    plans: Annotated[
        bool, Option("--measure", help="First time several graphs of the model, and tune the fastest.")
    ] = False,
    export: Annotated[
        Path | None, Option("--export", metavar="FILE", help="Write the records; - is standard output.")
    ] = None,
    imported: Annotated[
        Path | None, Option("--import", metavar="FILE", help="Add records that another `--export` wrote.")
    ] = None,
    prune: Annotated[
        bool, Option("--prune", help="Remove records that are replaced, damaged, or for other templates.")
    ] = False,
    json_file: Json = None,
) -> None:
    """Search faster schedules for a model's kernels, and record them for all later compiles on this machine.

    Candidates run in a process of their own, interleaved with the default schedule. Ctrl-C ends the search and keeps
    what it found; the next run goes on from there.
    """
    from ...backend.schedules.records import RecordFile

    file = RecordFile()
    if model is None:
        if not (export or imported or prune):
            raise UserError("there is nothing to do", hint="Name a model, or one of --export, --import and --prune.")
        _manage(file, export, imported, prune)
        return
    if export or imported or prune:
        raise UserError("--export, --import and --prune are for records, without a model")
    from ...tuning.strategies.choice import checked_name

    seconds, search = parse_duration(budget, "--budget"), checked_name(search)
    if workers and scheduler:
        raise UserError("--workers starts processes here, --scheduler uses those of a scheduler", hint="Name one.")
    existing_model(model)
    writable(json_file)
    with Stages() as stages:
        from ...backend.compile_model import with_plan
        from ...backend.ir.target import costs_of, thread_count
        from ...engine.optimizer import optimize_native
        from ...tuning.plan_choice import measured_plan
        from ...tuning.tune import tune_optimized

        shapes, isa = parse_shapes(shape), costs_of(target)
        options = rules.options(shapes=shapes, precision=precision, isa=isa, mapped=True)
        count, choice = thread_count(threads), None
        if plans:
            options, choice = measured_plan(model, options, count, target, file.read(), stages)
        else:
            options = with_plan(model, options, count, target)
        optimized = optimize_native(model, options, stages)
        found = tune_optimized(
            optimized, seconds=seconds, threads=threads, target=target, search=search, workers=workers,
            scheduler=scheduler or "", seed=seed, progress=stages, records=file,
        )  # fmt: skip
    if json_file is not None:
        plans_data = {} if choice is None else {"plans": choice.as_json()}
        write_json({**_as_json(found, model), **plans_data}, json_file)
    if str(json_file) != "-":
        if choice is not None:
            say(f"graphs: {choice}")
        _show(found, file)
    if found.interrupted:
        raise SystemExit(INTERRUPTED)


def _show(found: Tuning, file: RecordFile) -> None:
    from ...backend.ir.schedule import describe

    table = tables.simple(
        "kernel", "calls", "of the run", "default", "tuned", "gain", "tried", "schedule", numbers=(1, 2, 3, 4, 5, 6)
    )
    for row in found.kernels:
        times = (duration(row.default_us / 1e6), duration(row.tuned_us / 1e6) if row.point else "", f"{row.gain:.2f}x")
        label, point = tables.escape(row.kernel), tables.escape(describe(row.point))
        table.add_row(label, str(row.count), f"{row.share:.1%}", *times, str(row.measured), point)
    out().print(table)
    if found.tuned:
        say(f"whole model: {duration(found.untuned)} -> {duration(found.tuned)}, {found.gain:.2f}x")
    tuned = sum(bool(row.point) for row in found.kernels)
    took = f"{plural(sum(row.measured for row in found.kernels), 'schedule')} tried"
    say(f"{tuned} of {plural(len(found.kernels), 'kernel')} faster than the default, {took}; records: {file.path}")
    if found.interrupted:
        say("interrupted: the same command goes on from here")


def _as_json(found: Tuning, model: Path) -> dict[str, Any]:
    """Return the result as docs/json.md describes it."""
    kernels = [
        {
            "kernel": row.kernel, "calls": row.count, "share": row.share, "default_us": row.default_us,
            "tuned_us": row.tuned_us, "point": dict(row.point), "tried": row.measured,
        }
        for row in found.kernels
    ]  # fmt: skip
    tuning = {
        "untuned_s": found.untuned, "tuned_s": found.tuned, "share": found.share, "search_s": found.seconds,
        "interrupted": found.interrupted, "search": found.search, "kernels": kernels,
        "history": [{"seconds": at, "tried": tried, "gain": gain} for at, tried, gain in found.history],
    }  # fmt: skip
    return {"schema": SCHEMA, "model": str(model), "tuning": tuning}


def _manage(file: RecordFile, export: Path | None, imported: Path | None, prune: bool) -> None:
    """Import, prune and export records, in this order."""
    from ...backend.schedules.records import is_current

    if imported is not None:
        try:
            text = imported.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"the records cannot be read: {error}", where=str(imported)) from error
        say(f"{plural(file.add_new(text, str(imported)), 'record')} added to {file.path}")
    if prune:
        kept, removed = file.prune(is_current)
        say(f"{plural(kept, 'record')} kept, {removed} removed from {file.path}")
    if export is not None:
        writable(export)
        text = "".join(record.line() for record in file.read().latest.values())
        if str(export) == "-":
            sys.stdout.write(text)
        else:
            write_text(text, export)
