"""The public functions: optimise a model, compile it, load a compiled one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

    from .backend.program import Program
    from .backend.programs import Programs
    from .engine.pipeline import Optimized
    from .engine.report import Report

Progress = Callable[[str, Mapping[str, Any]], None]


def optimize(
    model: str | PathLike[str] | onnx.ModelProto,
    *,
    rules: Sequence[str | PathLike[str]] = (),
    std_rules: bool = True,
    numerics: str = "reassoc",
    shapes: Mapping[str, int] | None = None,
    time_limit: float | None = None,
    node_limit: int | None = None,
    memory_limit: int | None = None,
    disabled: Sequence[str] = (),
    schedule: str = "standard",
    precision: str = "f32",
    why_not: str | None = None,
    mapped: bool = False,
    progress: Progress | None = None,
) -> Optimized:
    """Rewrite the graph of `model` (a file or a `ModelProto`) into the cheapest equal one that the rules reach.

    Args:
        model: the model; it is not changed.
        rules: rule files, or directories of them, used besides the standard library.
        std_rules: whether to use the standard library at all.
        numerics: the widest class of rules to admit: `exact`, `reassoc` or `fast`.
        shapes: sizes for symbolic dimensions of the inputs, by name; the result is then made for these only.
        time_limit: seconds for saturation and extraction; the best graph found by then is the result.
        node_limit: the most e-nodes to make.
        memory_limit: the most memory for saturation, in MiB; where rules want more the result has fewer rewrites, and
            there is a warning.
        disabled: names of rules to leave out.
        schedule: the schedule to run, of those that the rule files hold.
        precision: `f32`, or `bf16` or `int8` for native products of operands rounded to that where it is faster;
            `.model` keeps f32. `rewrite MODEL --precision bf16` tells how far results are off.
        why_not: a rule to look into: `.why_not` of the result tells where it came nearest to firing, and what was
            missing there.
        mapped: whether to leave large constants in the model's file, mapped into memory: nothing may be written to it
            then as long as the result is in use.
        progress: called with the name of a stage and figures about it.

    Returns:
        A result with `.model` (a `ModelProto` at the input's opset), `.report` and `.explain(node)`.

    Raises:
        rewrite.errors.UserError: the model or a rule file cannot be used.
    """
    from .engine import pipeline

    memory = memory_limit << 20 if memory_limit is not None else None
    limits = {"time_limit": time_limit, "node_limit": node_limit, "memory_limit": memory}
    return pipeline.optimize(
        Path(model) if isinstance(model, str | PathLike) else model,
        rules=_paths(rules),
        std_rules=std_rules,
        numerics=numerics,
        shapes=dict(shapes) if shapes else None,
        disabled=disabled,
        schedule=schedule,
        precision=precision,
        why_not=why_not,
        mapped=mapped,
        progress=progress,
        **{name: limit for name, limit in limits.items() if limit is not None},  # type: ignore[arg-type]
    )


def compile(
    model: str | PathLike[str] | onnx.ModelProto,
    *,
    threads: int | None = None,
    target: str = "native",
    rules: Sequence[str | PathLike[str]] = (),
    std_rules: bool = True,
    numerics: str = "reassoc",
    precision: str = "f32",
    shapes: Mapping[str, int] | None = None,
    time_limit: float | None = None,
    node_limit: int | None = None,
    progress: Progress | None = None,
) -> Program:
    """Optimise `model` and compile it to native code.

    A model in a file is kept in the user's cache as it was compiled, and loaded from there the next time.

    Args:
        model: as for `optimize`, like the arguments that are not listed here.
        threads: threads that one run uses; by default as many as this process may use.
        target: the CPUs to compile for: `native` (this one), `avx512`, `avx2`, `portable`, or several with commas
            between them, all of which `program.save` writes; the best that this CPU can run is run.

    Returns:
        A program: `.run({name: array})` gives a dict of output arrays.

    Raises:
        rewrite.errors.UserError: the model or a rule file cannot be used, or there is no C compiler.
    """
    from .backend.fallback import warn_of_fallbacks
    from .backend.programs import Programs
    from .backend.target import parse_targets
    from .engine.processes import usable_cores

    parse_targets(target)  # a wrong name is told before the work begins
    used = threads or usable_cores()
    known = Programs()
    settings = {"threads": used, "target": target, "std_rules": std_rules, "numerics": numerics, "precision": precision}
    key = program_key(
        known, model, rules, shapes, settings, ready_to_load, time_limit=time_limit, node_limit=node_limit
    )
    found = known.find(key, threads=used) if key is not None else None
    if found is not None:
        warn_of_fallbacks(found.fallbacks())
        return found
    optimized = optimize(
        model,
        rules=rules,
        std_rules=std_rules,
        numerics=numerics,
        precision=precision,
        shapes=shapes,
        time_limit=time_limit,
        node_limit=node_limit,
        progress=warming(progress),
    )
    program = compile_optimized(
        optimized, threads=used, target=target, rules=rules, std_rules=std_rules, progress=progress
    )
    if key is not None and is_repeatable(optimized.report):
        known.store(key, program)
    return program


def program_key(
    known: Programs,
    model: Any,
    rules: Sequence[str | PathLike[str]],
    shapes: Mapping[str, int] | None,
    settings: Mapping[str, Any],
    meanwhile: Callable[[], object],
    **limits: Any,
) -> str | None:
    """The key of a program in the cache: for a model in a file, or the bytes of one; None for others. `limits` and
    settings that are None are as if they were not given; `meanwhile` may be called beside the work. Raises `UserError`
    for rule files that cannot be read."""
    from .grammar.library import sources

    if isinstance(model, str | PathLike):
        if not Path(model).is_file():
            return None
        model = Path(model)
    elif not isinstance(model, bytes):
        return None
    given = {name: value for name, value in {**settings, **limits}.items() if value is not None}
    texts = sources(_paths(rules)) if rules else {}
    try:
        return known.key(model, {**given, "shapes": sorted((shapes or {}).items())}, texts, meanwhile)
    except OSError:  # told where the file is read
        return None


def ready_to_load() -> None:
    """Imports what loads a program."""
    from .backend import bundle  # noqa: F401


def _paths(rules: Sequence[str | PathLike[str]]) -> list[Path]:
    """The paths of rule files. Raises `UserError` for a single one, whose letters would be taken for files."""
    from .errors import UserError

    if isinstance(rules, str | bytes | PathLike):
        raise UserError(f"rules are a list of files, not {rules!r}", hint=f"Write rules=[{str(rules)!r}].")
    return [Path(path) for path in rules]


def is_repeatable(report: Report) -> bool:
    """Whether the same comes of a model whenever it is compiled: not where time or memory ran out."""
    return report.egraph["stop_reason"] not in ("time_limit", "memory_limit")


def warming(progress: Progress | None = None) -> Progress:
    """A `progress` for `optimize` that gets the compiler ready while a child process saturates and this one waits."""
    import threading

    done: list[threading.Thread] = []
    late = threading.Event()

    def warm_up() -> None:
        with contextlib.suppress(Exception):  # what is wrong comes up again where it can be told
            from .backend.pipeline import warm_up

            warm_up(late.is_set)

    def tell(stage: str, facts: Mapping[str, Any]) -> None:
        if stage == "saturate" and not done:
            done.append(threading.Thread(target=warm_up, daemon=True))
            done[0].start()
        if stage == "extract":
            late.set()
        if progress is not None:
            progress(stage, facts)

    return tell


def compile_optimized(
    optimized: Optimized,
    *,
    threads: int | None = None,
    target: str = "native",
    rules: Sequence[str | PathLike[str]] = (),
    std_rules: bool = True,
    keep_source: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Program:
    """Compile what `optimize` gave; `compile` is both in one. `keep_source` is a directory for the generated code."""
    from .backend.pipeline import compile_graph
    from .engine.library import load_rules
    from .engine.processes import usable_cores

    def count(stage: str, done: int, total: int) -> None:
        if progress is not None:
            progress(stage, {"done": done, "total": total})

    if progress is not None:
        progress("plan", {})
    return compile_graph(
        optimized.native,
        threads=threads or usable_cores(),
        target=target,
        keep_source=Path(keep_source) if keep_source is not None else None,
        reassociate=optimized.numerics != "exact",
        library=load_rules(_paths(rules), std=std_rules) if rules or not std_rules else None,
        progress=count,
    )


def load(bundle: str | PathLike[str], *, threads: int | None = None) -> Program:
    """Load a bundle that `rewrite MODEL` wrote. `threads`: how many one run uses; by default as it was compiled for.

    Raises:
        rewrite.errors.UserError: it is no bundle, is damaged, or was made for another kind of machine.
    """
    from .backend import bundle as bundles

    return bundles.load(Path(bundle), threads=threads)
