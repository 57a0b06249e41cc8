"""Compiling a model: from the cache of programs if it was compiled before, else by the engine and the backend.

In: a model and engine `Options`. Out: a `Program`. Heavy modules are imported where they
are used, so that loading a cached program stays fast.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine.options import Options
from ..errors import UserError
from ..system.process_pool import usable_cores
from ..system.progress import Progress, ignore

if TYPE_CHECKING:
    from ..engine.optimizer import Optimized
    from ..engine.report import Report
    from .bundle.program_cache import ProgramCache
    from .runtime.program import Program


def compile_model(
    model: Any, options: Options, *, threads: int | None = None, target: str = "native", progress: Progress = ignore
) -> Program:
    """Optimize and compile a model: a path, bytes or a `ModelProto`; see `rewrite.compile`."""
    from .bundle.program_cache import ProgramCache
    from .ir.target import parse_targets

    parse_targets(target)  # a wrong name is reported before the work begins
    threads = threads or usable_cores()
    programs = ProgramCache()
    with ThreadPoolExecutor(1) as pool:  # hashes the model while this thread imports what runs a program
        hashed = pool.submit(program_key, programs, model, options, threads, target)
        from .bundle import load_bundle  # noqa: F401
        from .runtime.fallback import warn_of_fallbacks

        key = hashed.result()
    if key is not None and (cached := programs.find(key, threads=threads)) is not None:
        warn_of_fallbacks(cached.fallbacks())
        return cached
    from ..engine.optimizer import optimize

    optimized = optimize(model, options, preloading(progress, target))
    program = compile_optimized(optimized, threads=threads, target=target, progress=progress)
    if key is not None and is_repeatable(optimized.report):
        programs.add(key, program)
    return program


def compile_optimized(
    optimized: Optimized, *, threads: int | None = None, target: str = "native",
    keep_source: str | PathLike[str] | None = None, progress: Progress = ignore,
) -> Program:  # fmt: skip
    """Compile the native graph of a result. `keep_source` is a directory for the generated code."""
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
    )


def program_key(programs: ProgramCache, model: Any, options: Options, threads: int, target: str) -> str | None:
    """Return the cache key of a program, for a model in a file or as bytes that is compiled for this CPU, else None.

    Raises `UserError` for rule files that cannot be read."""
    from .ir.target import parse_targets, runs_here

    if not any(map(runs_here, parse_targets(target))):  # what is cached is loaded, and this CPU could not run it
        return None
    model = Path(model) if isinstance(model, str | PathLike) else model
    if not (model.is_file() if isinstance(model, Path) else isinstance(model, bytes)):
        return None
    settings = {**options.key(), "threads": threads, "target": target}
    rules: Mapping[str, str] = {}
    if options.rules:
        from ..grammar.library.load import sources  # takes longer to import than a small program to load

        rules = sources(options.rules)
    try:
        return programs.key(model, settings, rules)
    except OSError:  # reported where the model is read
        return None


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
