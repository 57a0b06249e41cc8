"""`rewrite MODEL.onnx`, the main command: optimize, compile, verify, and only then write."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from typer import Argument, Option

from ...errors import UserError
from .. import profiling, tables
from ..console import Stages, out, show_facts, show_log
from ..options import (
    Json,
    Precision,
    RuleOptions,
    Shape,
    Target,
    Threads,
    existing_model,
    grouped,
    parse_shapes,
    writable,
)
from ..results import SCHEMA, timings_json, write_json, write_page
from .bench import feeds_for, measure

if TYPE_CHECKING:
    from ...backend.compile_model import ProgramIdentity
    from ...backend.runtime.program import Program
    from ...backend.schedules.records import Records
    from ...engine.onnx_io.exporter import Portion
    from ...engine.optimizer import Optimized
    from ...engine.options import Options
    from ...engine.report import Report
    from ...system.file_contents import FileState
    from ...tuning.plan_choice import PlanChoice
    from ..measure import Timing
    from ..replay import Earlier

EMITTED = ("onnx", "program")
Targets: TypeAlias = dict[str, Path]
"""Paths of the outputs that are wanted, by kind."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Options that say what to write, and where."""

    output: Annotated[
        Path | None, Option("--output", "-o", metavar="FILE", help="The optimized model; default MODEL.opt.onnx.")
    ] = None
    program: Annotated[Path | None, Option(metavar="DIR", help="The compiled program; default MODEL.rewrite/.")] = None
    emit: Annotated[str, Option(metavar="WHAT", help="What to write: onnx, program, or both.")] = "onnx,program"
    c: Annotated[
        bool, Option("--c", help="Write what a program in C needs into the bundle: header, library, plan.")
    ] = False

    def targets(self, model: Path) -> Targets:
        """Return where to write, checked as far as possible before the work begins."""
        wanted = [word.strip() for word in self.emit.split(",") if word.strip()]
        if not wanted or any(word not in EMITTED for word in wanted):
            raise UserError(f"--emit takes onnx, program or onnx,program, not {self.emit!r}")
        stem = model.name.removesuffix(".onnx")
        file = self.output or model.with_name(f"{stem}.opt.onnx")
        folder = self.program or model.with_name(f"{stem}.rewrite")
        if "onnx" in wanted:
            if file.exists() and file.samefile(model):
                raise UserError("the output would replace the model itself", where=str(file))
            if file.is_dir():
                raise UserError("is a directory; --output takes a file", where=str(file))
            writable(file)
        if "program" in wanted:
            if folder.exists() and not folder.is_dir():
                raise UserError("is a file; --program takes a directory", where=str(folder))
            if folder.exists() and not (folder / "manifest.json").is_file() and any(folder.iterdir()):
                hint = "Choose another directory."
                raise UserError("exists and is not a program of rewrite", where=str(folder), hint=hint)
            writable(folder)
        if self.c and "program" not in wanted:
            raise UserError("--c needs the program, which --emit leaves out")
        return {kind: path for kind, path in zip(EMITTED, (file, folder), strict=True) if kind in wanted}


@dataclass(frozen=True, slots=True)
class Compilation:
    """Options of the compiled program."""

    threads: Threads = None
    target: Target = "native"
    shape: Shape = field(default_factory=list)
    precision: Precision = "f32"
    keep_source: Annotated[Path | None, Option(metavar="DIR", help="Keep the generated kernels here.")] = None


@dataclass(frozen=True, slots=True)
class Results:
    """Options that say how to report the results."""

    report: Annotated[
        Path | None,
        Option(metavar="FILE.html", help="Write a report to read in a browser: graphs, kernels, memory, rules."),
    ] = None
    json_file: Json = None
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print nothing but errors.")] = False
    verbose: Annotated[bool, Option("--verbose", "-v", help="List all rules, and log what is done.")] = False


@grouped
def command(
    model: Annotated[Path, Argument(metavar="MODEL.onnx", help="The ONNX model to optimize and compile.")],
    outputs: Outputs,
    compilation: Compilation,
    rules: RuleOptions,
    results: Results,
    verify: Annotated[bool, Option(help="Compare the results with the original's before writing.")] = True,
    measure: Annotated[
        bool,
        Option("--measure", help="Time several graphs of the model, and take the fastest; later runs take it too."),
    ] = False,
    bench: Annotated[bool, Option("--bench", help="Measure the program, and ONNX Runtime if installed.")] = False,
) -> None:
    """Rewrite a model's graph by rules, compile it to native code, verify both and write them.

    If no program can be made (no C compiler, an operator without any implementation), the optimized model is still
    written, and the error is reported.
    """
    from ...system.store import Store
    from .. import replay

    existing_model(model)
    run = _job(model, outputs, compilation, rules, verify=verify, bench=bench, pictures=results.report is not None)
    writable(results.report, results.json_file)
    if "program" in run.targets:
        Store().prepare()  # reports a cache directory that cannot be written before the work begins
    if results.verbose:
        show_log()
    with Stages(quiet=results.quiet) as stages:
        choice = _choose_plan(run, stages) if measure else None
        if choice is not None:
            run = _with_plan(run, choice.plan)
        key = earlier = None
        identity = run.identity
        if identity is not None and not run.pictures and identity.may_be_cached():  # the cache has no graphs
            stages("load", {})
            key = identity.key(mapped=True)
            earlier = replay.find(key, verify=verify) if key is not None else None
        done = _replay(run, earlier, stages) if earlier is not None else _make(run, stages)
        if outputs.c and "program" in done.targets:
            _add_c(done.targets["program"])
    done.plans = choice
    for stage, seconds in stages.seconds.items():
        done.report.seconds.setdefault(stage, seconds)
    done.show(results)
    if identity is not None and done.portions is not None and done.fallbacks is not None:
        if key := key or identity.key():
            replay.store(key, identity, done.targets, done.portions, done.report, done.verdict, done.fallbacks)
    if done.error is not None:
        hint = "\n".join(filter(None, (done.error.hint, f"The optimized model was written: {done.targets['onnx']}")))
        raise UserError(f"the program could not be compiled: {done.error.message}", where=done.error.where, hint=hint)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the command as asked for, with `pictures` for a report. `identity` is that of its outputs in the
    cache, None if they cannot be cached. `records` are those of tuned kernels as it began."""

    model: Path
    original: FileState
    targets: Targets
    options: Options
    threads: int
    compilation: Compilation
    verify: bool
    bench: bool
    pictures: bool
    identity: ProgramIdentity | None
    records: Records


@dataclass(slots=True)
class RunResult:
    """A finished run. `portions` are those of the written model, `error` says why there is no program.

    `pictures` is what reports show besides: graphs, near misses, a profiled run."""

    model: Path
    targets: Targets
    report: Report
    verdict: str
    threads: int
    fallbacks: dict[str, int] | None = None
    measured: dict[str, Timing] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    portions: Sequence[Portion] | None = None
    error: UserError | None = None
    pictures: dict[str, Any] = field(default_factory=dict)
    plans: PlanChoice | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the results as docs/json.md describes them."""
        data = {"schema": SCHEMA, "model": str(self.model), **self.report.as_json()}
        if self.fallbacks is not None:
            data["fallbacks"] = self.fallbacks
        if self.measured:
            data["bench"] = timings_json(self.measured, self.threads, self.sizes)
        if self.plans is not None:
            data["plans"] = self.plans.as_json()
        return {**data, **self.pictures}

    def show(self, results: Results) -> None:
        """Write the results as JSON, as a page, and on the screen, as asked for."""
        self.report.outputs = {kind: str(path) for kind, path in self.targets.items()}
        if results.json_file is not None:
            write_json(self.as_json(), results.json_file)
        if results.report is not None:
            write_page(self.as_json(), results.report)
        if not results.quiet and str(results.json_file) != "-":
            self._print(verbose=results.verbose)

    def _print(self, *, verbose: bool) -> None:
        report = self.report
        out().print(tables.summary(report, self.measured))
        rules = tables.rules(report, everything=verbose)
        if rules is not None:
            out().print(rules)
        if self.measured:
            out().print(tables.timings(self.measured, "rewrite"))
        rows = [
            ("operators", tables.operators(report)),
            ("time", tables.timed(report, self.measured, self.threads, self.sizes)),
            ("no kernel", tables.without_kernel(report, self.fallbacks or {})),
            ("limits", tables.stopped(report)),
            ("precision", tables.precision(report)),
            ("measured", str(self.plans or "")),
            ("check", self.verdict),
            *report.outputs.items(),
            *(("next" if not i else "", command) for i, command in enumerate(self._next())),
        ]
        show_facts([(label, text) for label, text in rows if text])

    def _next(self) -> list[str]:
        """Return commands that show more of the results."""
        model, more = shlex.quote(str(self.model)), []
        if "program" in self.targets and self.error is None:
            more = [f"rewrite bench {model}", f"rewrite bench {shlex.quote(str(self.targets['program']))} --profile"]
        return [*more, f"rewrite explain {model}"]


def _job(
    model: Path,
    outputs: Outputs,
    compilation: Compilation,
    rules: RuleOptions,
    *,
    verify: bool,
    bench: bool,
    pictures: bool,
) -> Run:
    from ...backend.compile_model import recorded
    from ...backend.ir.target import costs_of
    from ...system.file_contents import FileState
    from ...system.process_pool import usable_cores

    original = FileState.of(model)
    isa = costs_of(compilation.target)
    targets = outputs.targets(model)
    threads = compilation.threads or usable_cores()
    options = rules.options(
        shapes=parse_shapes(compilation.shape), precision=compilation.precision, isa=isa, mapped=True,
        near_misses=pictures,
    )  # fmt: skip
    run = Run(model, original, targets, options, threads, compilation, verify, bench, pictures, None, recorded())
    return _with_plan(run, None)


def _with_plan(run: Run, plan: str | None) -> Run:
    """Return the run with a plan, the recorded one if None, and with its identity in the cache."""
    from ...backend.compile_model import ProgramIdentity, with_plan

    target = run.compilation.target
    if plan is None:
        options = with_plan(run.model, run.options, run.threads, target, run.records)
    else:
        options = replace(run.options, plan=plan)
    identity = None
    if run.targets.keys() == set(EMITTED) and run.compilation.keep_source is None:
        identity = ProgramIdentity.of(run.model, options, run.threads, target, run.records)
    return replace(run, options=options, identity=identity)


def _choose_plan(run: Run, stages: Stages) -> PlanChoice:
    """Measure the plans of the model, and record the fastest."""
    from ...tuning.plan_choice import measured_plan

    return measured_plan(run.model, run.options, run.threads, run.compilation.target, run.records, stages)[1]


def _add_c(bundle: Path) -> None:
    import warnings

    from ...backend.bundle.c_bundle import add_c

    if refused := add_c(bundle):
        warnings.warn(f"the program does not run from C: {refused}", stacklevel=2)


def _replay(run: Run, earlier: Earlier, stages: Stages) -> RunResult:
    from ...backend.runtime.fallback import warn_of_fallbacks

    stages("write", {})
    earlier.write(run.original, run.targets["onnx"], run.targets["program"])
    warn_of_fallbacks(earlier.fallbacks)
    times = _bench(run, earlier.cached.load(run.threads), stages) if run.bench else ({}, {})
    earlier.report.seconds = {}
    return RunResult(run.model, run.targets, earlier.report, earlier.verdict, run.threads, earlier.fallbacks, *times)


def _make(run: Run, stages: Stages) -> RunResult:
    """Optimize, compile, verify and write, then measure if asked for."""
    from ..failures import exit_if_model_changes

    with exit_if_model_changes(run.model):
        done, result, program = _write(run, stages)
    if program is not None:
        done.fallbacks = program.fallbacks()
        done.measured, done.sizes = _bench(run, program, stages) if run.bench else ({}, {})
    if run.pictures:
        done.pictures = _pictures(run, result, program, stages)
    return done


def _pictures(run: Run, result: Optimized, program: Program | None, stages: Stages) -> dict[str, Any]:
    """Return the graphs and, if there is a program, a profile of it on random inputs."""
    found = result.pictures()
    if program is not None:
        machine = profiling.machine(stages)
        stages("profile", {})
        feeds, sizes = feeds_for(program, run.model, dict(run.options.shapes))
        found |= program.pictures(program.profile(feeds, seconds=1.0, machine=machine))
        found["profile"]["sizes"] = sizes
    return found


def _write(run: Run, stages: Stages) -> tuple[RunResult, Optimized, Program | None]:
    """Optimize, compile, verify and write.

    Raises `CheckFailed` if the outputs differ from the original's, and `UserError` if nothing can be written."""
    from ...engine.onnx_io.exporter import writing
    from .. import verification

    result, program, error = _compile(run, (), stages)
    if error is not None:
        run = replace(run, targets={"onnx": run.targets["onnx"]})
    verdict = "not verified"
    if run.verify:
        stages("verify", {})
        found = verification.check(result, run.model, program)
        if not found.ok:
            optimize_without = lambda disabled: _compile(run, disabled, stages)[:2]  # noqa: E731
            raise verification.failure(found, result, run.model, optimize_without)
        result.report.verify, verdict = found.as_json(), f"{found}{_stand_in(run)}"
        if _stand_in(run):
            result.report.measured = {}  # the kernels of the targets did not run
    stages("write", {})
    if run.targets and not run.original.is_unchanged():
        raise UserError("the model was changed during the run", where=str(run.model), hint="Try again.")
    done = RunResult(run.model, run.targets, result.report, verdict, run.threads, error=error)
    with ExitStack() as stack:
        finish = stack.enter_context(writing(result.portable, run.targets["onnx"])) if "onnx" in run.targets else None
        if "program" in run.targets and program is not None:
            program.save(run.targets["program"])  # first, so that a full disk leaves both outputs as they were
        done.portions = finish() if finish is not None else None
    _note_sizes(done)
    return done, result, program


def _note_sizes(done: RunResult) -> None:
    """Add the sizes of the model and the outputs to the report, data files included."""
    from ...engine.onnx_io.model_file import stored_bytes

    stored = done.report.nbytes
    stored["file_before"] = stored_bytes(done.model)
    if "onnx" in done.targets:
        stored["file_after"] = stored_bytes(done.targets["onnx"])
    if "program" in done.targets:
        files = (path for path in done.targets["program"].rglob("*") if path.is_file())
        stored["program"] = sum(path.stat().st_size for path in files)


def _stand_in(run: Run) -> str:
    """What the verdict adds where this CPU can run none of the targets."""
    from ...backend.ir.target import describe, parse_targets, runs_here

    wanted = parse_targets(run.compilation.target)
    if "program" not in run.targets or any(map(runs_here, wanted)):
        return ""
    return f", with kernels for this CPU in the place of those for {', '.join(map(describe, wanted))}"


def _compile(run: Run, disabled: Sequence[str], stages: Stages) -> tuple[Optimized, Program | None, UserError | None]:
    """Optimize and compile without some rules. Where only the program fails, return the error instead of it."""
    from ...engine.saturation import child_process

    wanted = "program" in run.targets or run.bench
    options = replace(run.options, disabled=disabled)
    with child_process.start() as child:  # before the imports, which take as long as its own
        from ...backend.compile_model import compile_optimized, preloading
        from ...engine.optimizer import optimize

        progress = preloading(stages, run.compilation.target) if wanted else stages
        result = optimize(run.model, options, progress, child)
    if not wanted:
        return result, None, None
    target, source = run.compilation.target, run.compilation.keep_source
    try:
        program = compile_optimized(
            result, threads=run.threads, target=target, keep_source=source, progress=stages, records=run.records
        )
    except UserError as error:
        if "onnx" not in run.targets:
            raise
        return result, None, error
    return result, program, None


def _bench(run: Run, program: Program, stages: Stages) -> tuple[dict[str, Timing], dict[str, int]]:
    """Return the times of the program and of ONNX Runtime, and the extents of free dims that they are for."""
    from importlib.util import find_spec

    from ..measure import peer

    stages("bench", {})
    peers = {name: peer(name, run.model, program.threads) for name in ("onnxruntime",) if find_spec(name)}
    feeds, sizes = feeds_for(program, run.model, dict(run.options.shapes), peers=peers)
    return measure(program, feeds, peers, seconds=2.0), sizes
