"""Compiling a model: from the cache of programs if it was compiled before, else by the engine and the backend.

In: a model and engine `Options`. Out: a `Program`. Heavy modules are imported where they
are used, so that loading a cached program stays fast.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine.onnx_io.detached_model import DetachedModel
from ..engine.options import Options
from ..errors import UserError
from ..system.file_contents import FileState
from ..system.process_pool import usable_cores
from ..system.progress import Progress, ignore

if TYPE_CHECKING:
    from ..engine.optimizer import Optimized
    from ..engine.report import Report
    from .runtime.program import Program
    from .schedules.records import Records


def compile_model(
    model: Any, options: Options, *, threads: int | None = None, target: str = "native", progress: Progress = ignore
) -> Program:
    """Optimize and compile a model: a path, bytes, a `ModelProto` or a `DetachedModel`; see `rewrite.compile`."""
    from .ir.target import parse_targets

    parse_targets(target)  # a wrong name is reported before the work begins
    threads, records = threads or usable_cores(), recorded()
    if may_be_cached(model, options, threads, target, records):
        cached = _cached(model, options, threads, target, records)
        if cached is not None:
            return cached
    from ..engine.saturation import child_process

    # The weights of a detached model may change as soon as it is compiled: its key must not be computed later.
    key = partial(program_key, model, options, threads, target, records)
    detached_key = key() if isinstance(model, DetachedModel) else None
    before = _state(model)
    with child_process.start() as child:  # before the imports, which take as long as its own
        from ..engine.optimizer import optimize

        optimized = optimize(model, options, preloading(progress, target), child)
    program = compile_optimized(optimized, threads=threads, target=target, progress=progress, records=records)
    if detached_key is not None and is_repeatable(optimized.report):
        from .bundle.program_cache import ProgramCache

        ProgramCache().add(detached_key, program)
    elif is_repeatable(optimized.report):
        _cache(program, model, before, key)
    return program


def recorded() -> Records:
    """Return the records of tuned kernels as they are now."""
    from .schedules.records import RecordFile

    return RecordFile().read()


def _cached(model: Any, options: Options, threads: int, target: str, records: Records) -> Program | None:
    """Return the program of a model from the cache, None if it is not there."""
    from .bundle.program_cache import ProgramCache

    with ThreadPoolExecutor(1) as pool:  # hashes the model while this thread imports what runs a program
        hashed = pool.submit(program_key, model, options, threads, target, records)
        from .bundle import load_bundle  # noqa: F401
        from .runtime.fallback import warn_of_fallbacks

        key = hashed.result()
    cached = ProgramCache().find(key, threads=threads) if key is not None else None
    if cached is not None:
        warn_of_fallbacks(cached.fallbacks())
    return cached


def _cache(program: Program, model: Any, before: FileState | None, key: Callable[[], str | None]) -> None:
    """Cache a program in the background, unless its model's file has changed since it was as in `before`."""
    from .bundle.program_cache import ProgramCache

    def unchanged_key() -> str | None:
        found = key()
        return found if before is None or before.is_unchanged() else None

    if isinstance(model, str | PathLike | bytes):
        ProgramCache().add_in_background(unchanged_key, program)


def _state(model: Any) -> FileState | None:
    """Return the present state of a model's file; None for other models."""
    return FileState.of(Path(model)) if isinstance(model, str | PathLike) else None


def compile_optimized(
    optimized: Optimized, *, threads: int | None = None, target: str = "native",
    keep_source: str | PathLike[str] | None = None, progress: Progress = ignore, records: Records | None = None,
) -> Program:  # fmt: skip
    """Compile the native graph of a result. `keep_source` is a directory for the generated code.

    `records` of tuned kernels are those of now if None."""
    from .compile_graph import compile_graph

    progress("plan", {})
    options = optimized.options
    return compile_graph(
        optimized.native,
        threads=threads or usable_cores(),
        target=target,
        keep_source=Path(keep_source) if keep_source is not None else None,
        reassociate=options.numerics != "exact",
        library=optimized.library if options.rules or not options.std_rules else None,
        progress=progress,
        schedules=(records or recorded()).schedules,
    )


def program_key(model: Any, options: Options, threads: int, target: str, records: Records | None = None) -> str | None:
    """Return the cache key of a program, that is compiled for this CPU; None for one of a `ModelProto`.

    `records` of tuned kernels are those of now if None.
    Raises `UserError` for rule files that cannot be read."""
    from .bundle.program_cache import ProgramCache

    identity = _identity(model, options, threads, target, records)
    with contextlib.suppress(OSError):  # reported where the model is read
        return ProgramCache().key(*identity) if identity is not None else None
    return None


def may_be_cached(model: Any, options: Options, threads: int, target: str, records: Records | None = None) -> bool:
    """Whether the cache may have the program of a model, without reading the model.

    Raises `UserError` for rule files that cannot be read."""
    from .bundle.program_cache import ProgramCache

    identity = _identity(model, options, threads, target, records)
    with contextlib.suppress(OSError):  # as above
        return identity is not None and ProgramCache().may_have(*identity)
    return False


def _identity(
    model: Any, options: Options, threads: int, target: str, records: Records | None
) -> tuple[Path | bytes | DetachedModel, Mapping[str, Any], Mapping[str, str]] | None:
    """Return a model, the settings and the texts of rules by path that decide about its program; None if the program
    cannot be cached."""
    from .ir.target import parse_targets, runs_here

    if not any(map(runs_here, parse_targets(target))):  # what is cached is loaded, and this CPU could not run it
        return None
    found = Path(model) if isinstance(model, str | PathLike) else model
    if not (found.is_file() if isinstance(found, Path) else isinstance(found, bytes | DetachedModel)):
        return None
    rules: Mapping[str, str] = {}
    if options.rules:
        from ..grammar.library.load import sources  # takes longer to import than a small program to load

        rules = sources(options.rules)
    settings = {"threads": threads, "target": target, "schedules": (records or recorded()).digest}
    return found, {**options.key(), **settings}, rules


def is_repeatable(report: Report) -> bool:
    """Whether compiling the model again gives the same: not if time or memory ran out."""
    return report.egraph["stop_reason"] not in ("time_limit", "memory_limit")


def preloading(progress: Progress = ignore, target: str = "native") -> Progress:
    """Return a `progress` for `optimize` that loads the compiler in threads while the saturation process works.

    Lowerers and templates take most of a second to load, and the precompiled header a quarter to make; without the
    threads every first compile is longer by that."""
    threads = [
        threading.Thread(target=_preload, daemon=True),
        threading.Thread(target=_precompile, args=(target,), daemon=True),
    ]

    def report(stage: str, facts: Mapping[str, Any]) -> None:
        if stage == "saturate":
            while threads:
                threads.pop().start()
        progress(stage, facts)

    return report


def _preload() -> None:
    from . import compile_graph  # noqa: F401
    from .codegen.render import load_templates
    from .kernels.registry import load

    load()
    load_templates()


def _precompile(target: str) -> None:
    from ..system.store import Store
    from .ir.target import parse_targets
    from .toolchain.compiler import find_compiler
    from .toolchain.precompiled_header import find_header

    with contextlib.suppress(UserError):  # reported when the compiler is needed
        for kind in parse_targets(target):
            find_header(Store(), find_compiler(kind.machine), kind, ahead=True)
