"""`rewrite MODEL.onnx`: the main job. Optimise, compile, verify, and only then write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import UserError
from ..options import (
    Json,
    MemoryLimit,
    NodeLimit,
    Numerics,
    NumericsOption,
    Precision,
    Rules,
    Schedule,
    Shape,
    StdRules,
    Target,
    Threads,
    TimeLimit,
    existing_model,
    parse_shapes,
    writable,
)

if TYPE_CHECKING:
    from ...backend.program import Program
    from ...engine.pipeline import Optimized
    from ...engine.portions import Portion
    from ...engine.report import Report
    from ..measure import Timing
    from ..progress import Stages

EMITTED = ("onnx", "program")


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The ONNX model to optimise and compile.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The optimised model; default MODEL.opt.onnx.")
    ] = None,
    program: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The compiled program; default MODEL.rewrite/.")
    ] = None,
    emit: Annotated[str, typer.Option(metavar="WHAT", help="What to write: onnx, program, or both.")] = "onnx,program",
    threads: Threads = None,
    target: Target = "native",
    shape: Shape = [],  # noqa: B006
    precision: Precision = "f32",
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Compare the results with the original's before writing.")
    ] = True,
    bench: Annotated[bool, typer.Option("--bench", help="Measure the program, and ONNX Runtime if installed.")] = False,
    rules: Rules = [],  # noqa: B006
    std_rules: StdRules = True,
    numerics: NumericsOption = Numerics.REASSOC,
    schedule: Schedule = "standard",
    time_limit: TimeLimit = None,
    node_limit: NodeLimit = None,
    memory_limit: MemoryLimit = None,
    keep_source: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the generated kernels here.")] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a report to read in a browser.")
    ] = None,
    json_file: Json = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List all rules and fallbacks.")] = False,
) -> None:
    """Rewrite a model's graph by rules, compile it to native code, verify both and write them.

    Where no program can be made (no C compiler, an operator that nothing computes), the optimised model is written all
    the same, and then the error is told.
    """
    from ... import api
    from ...backend.cache import Cache
    from ...backend.fallback import warn_of_fallbacks
    from ...backend.programs import Programs
    from ...backend.target import parse_targets
    from ...engine.processes import usable_cores
    from .. import again, verification
    from ..failures import ending_before_writes
    from ..progress import Stages

    existing_model(model)
    original = again.Original.of(model)
    parse_targets(target)
    job = _targets(model, emit, output, program)
    for file in (report, json_file):
        if file is not None and str(file) != "-":
            writable(file)
    if job.program is not None:
        Cache().prepare()  # kernels are kept there
    used = threads or usable_cores()
    sizes = parse_shapes(shape)
    key = None
    if job.written().keys() == set(EMITTED) and keep_source is None:
        settings = {"threads": used, "target": target, "std_rules": std_rules, "numerics": numerics.value}
        settings |= {"precision": precision, "schedule": schedule if schedule != "standard" else None}
        limits = {"time_limit": time_limit, "node_limit": node_limit, "memory_limit": memory_limit}
        key = api.program_key(Programs(), model, rules, sizes, settings, again.prepare, **limits)
    before = None
    with Stages(quiet=quiet) as stages:
        if key is not None:
            stages("load", {})
            before = again.find(key, verify=verify)
        if before is not None:
            assert job.onnx is not None
            assert job.program is not None
            stages("write", {})
            before.write(original, job.onnx, job.program)
            warn_of_fallbacks(before.fallbacks)
            measured = _bench(model, before.kept.load(used), sizes, used, stages) if bench else {}
    if before is not None:
        before.report.seconds = dict(stages.seconds)
        finished = Finished(model, before.report, before.fallbacks, measured, used, before.verdict)
        finished.tell(job, json_file, report, quiet=quiet, verbose=verbose)
        return
    from ...engine.portions import writing

    with Stages(quiet=quiet) as stages, ExitStack() as begun:
        reading = begun.enter_context(ExitStack())
        reading.enter_context(ending_before_writes(model))

        def make(disabled: Sequence[str]) -> tuple[Optimized, Program | None]:
            result = api.optimize(
                model,
                rules=rules,
                std_rules=std_rules,
                numerics=numerics.value,
                shapes=sizes,
                time_limit=time_limit,
                node_limit=node_limit,
                memory_limit=memory_limit,
                disabled=disabled,
                schedule=schedule,
                precision=precision,
                mapped=True,
                progress=api.warming(stages) if job.program is not None or bench else stages,
            )
            if job.onnx is not None and not disabled:
                finish.append(begun.enter_context(writing(result.portable, job.onnx)))  # beside what follows
            if job.program is None and not bench:
                return result, None
            try:
                program = api.compile_optimized(
                    result,
                    threads=used,
                    target=target,
                    rules=rules,
                    std_rules=std_rules,
                    keep_source=keep_source,
                    progress=stages,
                )
            except UserError as error:
                if job.onnx is None:
                    raise
                problems.append(error)
                return result, None
            return result, program

        problems: list[UserError] = []
        finish: list[Callable[[], list[Portion] | None]] = []
        result, compiled = make(())
        if compiled is None:
            job = replace(job, program=None)
        found = None
        if verify:
            stages("verify", {})
            found = verification.check(result, model, compiled, numerics=numerics.value, shapes=sizes)
            if not found.ok:
                raise verification.refuse(found, result, model, make, numerics=numerics.value, shapes=sizes)
            result.report.verify = found.as_json()
        stages("write", {})
        if job.written() and not original.is_unchanged():
            raise UserError("the model was changed meanwhile", where=str(model), hint="Try again.")
        if job.program is not None and compiled is not None:
            compiled.save(job.program)  # first, so that a disk that gets full leaves both outputs as they were
        portions = finish[0]() if finish else None
        reading.close()
        measured = _bench(model, compiled, sizes, used, stages) if compiled and bench else {}
    for stage, seconds in stages.seconds.items():
        result.report.seconds.setdefault(stage, seconds)
    verdict = str(found) if found is not None else "not verified"
    fallbacks = compiled.fallbacks() if compiled is not None else None
    finished = Finished(model, result.report, fallbacks, measured, used, verdict)
    finished.tell(job, json_file, report, quiet=quiet, verbose=verbose)
    again.keep(key, original, result, compiled, found, job.written(), portions)
    if problems:
        error = problems[0]
        hints = (error.hint, f"The optimised model was written: {job.onnx}")
        raise UserError(f"no program was made: {error.message}", where=error.where, hint="\n".join(filter(None, hints)))


@dataclass(frozen=True, slots=True)
class Targets:
    """Where the outputs go; None for one that is not wanted."""

    onnx: Path | None
    program: Path | None

    def written(self) -> dict[str, Path]:
        """The outputs by kind."""
        return {kind: path for kind, path in (("onnx", self.onnx), ("program", self.program)) if path}


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that is over: what there is to tell of it."""

    model: Path
    report: Report
    fallbacks: dict[str, int] | None
    measured: dict[str, Timing]
    threads: int
    verdict: str

    def as_json(self) -> dict[str, Any]:
        """The results as docs/json.md describes them."""
        from ..results import SCHEMA, timings_json

        data = {"schema": SCHEMA, "model": str(self.model), **self.report.as_json()}
        if self.fallbacks is not None:
            data["fallbacks"] = self.fallbacks
        if self.measured:
            data["bench"] = timings_json(self.measured, self.threads)
        return data

    def tell(
        self, job: Targets, json_file: Path | None, report_file: Path | None, *, quiet: bool, verbose: bool
    ) -> None:
        """Write the results where they are wanted: as JSON, as a page, on the screen."""
        self.report.outputs = {kind: str(path) for kind, path in job.written().items()}
        if json_file is not None:
            from ..results import write_json

            write_json(self.as_json(), json_file)
        if report_file is not None:
            from ..html import write_report

            write_report(self.as_json(), report_file)
        if not quiet and str(json_file) != "-":
            self.show(verbose=verbose)

    def show(self, *, verbose: bool) -> None:
        """Print the closing tables."""
        from .. import tables
        from ..console import out

        console, report = out(), self.report
        console.print(tables.summary(report))
        rules = tables.rules(report, everything=verbose)
        if rules is not None:
            console.print(rules)
        if verbose and self.fallbacks:
            names = ", ".join(f"{op} ×{n}" for op, n in self.fallbacks.items())
            console.print(f"operators without a native kernel: {names}", soft_wrap=True)
        if self.measured:
            console.print(tables.timings(self.measured, "rewrite"))
        if early := tables.stopped(report):
            console.print(early, markup=False, soft_wrap=True)
        if lowered := tables.precision(report):
            console.print(lowered, markup=False, soft_wrap=True)
        console.print(self.verdict, markup=False, soft_wrap=True)
        for kind, path in report.outputs.items():
            console.print(f"{kind:<8} {path}", markup=False, soft_wrap=True)


def _targets(model: Path, emit: str, output: Path | None, program: Path | None) -> Targets:
    """Where to write, checked as far as can be before the work begins."""
    wanted = [word.strip() for word in emit.split(",") if word.strip()]
    if not wanted or any(word not in EMITTED for word in wanted):
        raise UserError(f"--emit wants onnx, program or onnx,program, not {emit!r}")
    stem = model.name.removesuffix(".onnx")
    onnx_file = (output or model.with_name(f"{stem}.opt.onnx")) if "onnx" in wanted else None
    folder = (program or model.with_name(f"{stem}.rewrite")) if "program" in wanted else None
    if onnx_file is not None:
        if onnx_file.exists() and onnx_file.samefile(model):
            raise UserError("the output would replace the model itself", where=str(onnx_file))
        if onnx_file.is_dir():
            raise UserError("is a directory; --output wants a file", where=str(onnx_file))
        writable(onnx_file)
    if folder is not None:
        if folder.exists() and not folder.is_dir():
            raise UserError("is a file; --program wants a directory", where=str(folder))
        if folder.exists() and not (folder / "manifest.json").is_file() and any(folder.iterdir()):
            raise UserError("exists and is no program of rewrite", where=str(folder), hint="Choose another.")
        writable(folder)
    return Targets(onnx_file, folder)


def _bench(model: Path, compiled: Program, shapes: dict[str, int], threads: int, stages: Stages) -> dict[str, Timing]:
    from importlib.util import find_spec

    from .bench import feeds_for, measure

    stages("bench", {})
    peers = [name for name in ("onnxruntime",) if find_spec(name)]
    feeds = feeds_for(compiled, model, shapes, [])
    return measure(compiled, model, feeds, peers, threads, seconds=2.0)
