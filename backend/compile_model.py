"""Compiling a model: from the cache of programs if it was compiled before, else by the engine and the backend.

In: a model and engine `Options`. Out: a `Program`. Heavy modules are imported where they
are used, so that loading a cached program stays fast.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine.ir.detached_model import DetachedModel
from ..engine.options import Options
from ..errors import UserError
from ..system.file_contents import FileState, ReadAhead
from ..system.process_pool import collecting_seldom, usable_cores
from ..system.progress import Progress, ignore

if TYPE_CHECKING:
    from ..engine.ir.graph import Graph
    from ..engine.optimizer import NativeOnly, Optimized
    from .ir.weight_memory import ReadyMemory
    from .runtime.program import Program
    from .schedules.records import Records

_MANY_BYTES = 32 << 20
"""Bytes of weights for which memory is provided ahead."""


@collecting_seldom()
def compile_model(
    model: Any, options: Options, *, threads: int | None = None, target: str = "native", progress: Progress = ignore
) -> Program:
    """Optimize and compile a model: a path, bytes, a `ModelProto` or a `DetachedModel`; see `rewrite.compile`."""
    from .ir.target import costs_of

    options = replace(options, isa=costs_of(target))  # a wrong name is reported before the work begins
    threads, records = threads or usable_cores(), recorded()
    options = with_plan(model, options, threads, target, records)
    identity = ProgramIdentity.of(model, options, threads, target, records)
    if identity is not None and identity.may_be_cached():
        cached = _cached(identity, threads)
        if cached is not None:
            return cached
    from ..engine.saturation import child_process

    # The weights of a detached model may change as soon as it is compiled: its key must not be computed later.
    detached_key = identity.key() if identity is not None and isinstance(model, DetachedModel) else None
    with child_process.start() as child:  # before the imports, which take as long as its own
        source = _read_ahead(model, options)
        from ..engine.optimizer import optimize_native

        memory = WeightsAhead()
        optimized = optimize_native(source, options, preloading(progress, target), child, memory.provide)
    with memory as ready:
        program = compile_optimized(
            optimized, threads=threads, target=target, progress=progress, records=records, memory=ready
        )
    if identity is not None and optimized.is_repeatable:
        from .bundle.program_cache import ProgramCache

        if isinstance(model, DetachedModel):
            if detached_key is not None:
                ProgramCache().add(detached_key, program)
        else:
            ProgramCache().add_in_background(identity.unchanged_key, program)
    return program


@dataclass(frozen=True, slots=True)
class ProgramIdentity:
    """What decides about the program of a model, as it was when asked for: changes made while it is compiled show.

    Attributes:
        model: a file, the contents of one, or a model whose weights are elsewhere.
        state: the model's file as it was; None for other models.
        settings: of the engine and the backend, tuned kernels and the machine's profile included.
        rules: the texts of all rule files by path.
        rule_files: the files that they were read from and that may use others.
    """

    model: Path | bytes | DetachedModel
    state: FileState | None
    settings: Mapping[str, Any]
    rules: Mapping[str, str]
    rule_files: tuple[str | PathLike[str], ...]

    @classmethod
    def of(
        cls, model: Any, options: Options, threads: int, target: str, records: Records | None = None
    ) -> ProgramIdentity | None:
        """Return the identity of a program for this CPU; None if it cannot be cached, as that of a `ModelProto`.

        `records` of tuned kernels are those of now if None.
        Raises `UserError` for rule files that cannot be read."""
        from .ir.target import parse_targets, runs_here

        if not any(map(runs_here, parse_targets(target))):  # what is cached is loaded, and this CPU could not run it
            return None
        found = Path(model) if isinstance(model, str | PathLike) else model
        if not (found.is_file() if isinstance(found, Path) else isinstance(found, bytes | DetachedModel)):
            return None
        state = FileState.of(found) if isinstance(found, Path) else None
        costs = {"machine": _profiles(options.isa)}
        settings = {"threads": threads, "target": target, "schedules": (records or recorded()).digest, **costs}
        files = tuple(options.rules)
        return cls(found, state, {**options.key(), **settings}, _texts(files), files)

    def may_be_cached(self) -> bool:
        """Whether the cache may have the program, without reading the model."""
        from .bundle.program_cache import ProgramCache

        with contextlib.suppress(OSError):  # reported where the model is read
            return ProgramCache().may_have(self.model, self.settings, self.rules)
        return False

    def key(self, *, mapped: bool = False) -> str | None:
        """Return the program's key in the cache, None if it cannot be cached; see `ProgramCache.key`."""
        from .bundle.program_cache import ProgramCache

        with contextlib.suppress(OSError):  # as above
            return ProgramCache().key(self.model, self.settings, self.rules, mapped=mapped)
        return None

    def is_unchanged(self) -> bool:
        """Whether the files of the model and of the rules, and the machine's profile, are as they were."""
        with contextlib.suppress(UserError):  # a rule file is gone
            files = (self.state is None or self.state.is_unchanged()) and _texts(self.rule_files) == self.rules
            return files and _profiles(self.settings["isa"]) == self.settings["machine"]
        return False

    def unchanged_key(self) -> str | None:
        """Return the key, None if a file has changed: the program may be that of the old file or of the new one."""
        found = self.key()
        return found if self.is_unchanged() else None


def with_plan(model: Any, options: Options, threads: int, target: str, records: Records | None = None) -> Options:
    """Return the options with the plan that was recorded as the fastest for a model, unless they name one."""
    if options.plan:
        return options
    from .schedules.plan_records import PlanFile

    plans = PlanFile().read()
    key = plan_key(model, options, threads, target, records) if plans else None
    return replace(options, plan=plans[key].plan) if key is not None and key in plans else options


def plan_key(model: Any, options: Options, threads: int, target: str, records: Records | None = None) -> str | None:
    """Return the key of a model's plan: of all that decides about its program; None if that cannot be cached.

    Records of tuned kernels are left out: a plan stays when its kernels are tuned."""
    identity = ProgramIdentity.of(model, replace(options, plan=""), threads, target, records)
    if identity is None:
        return None
    return replace(identity, settings={**identity.settings, "schedules": ""}).key()


def _profiles(isa: str) -> list[str]:
    """Return the digests of the profiles that decide: of this machine, and for kernels of a vector extension."""
    from ..engine.cost.machine import load

    return [load(isa=isa).digest() for isa in dict.fromkeys(("", isa))]


def _texts(rule_files: Sequence[str | PathLike[str]]) -> Mapping[str, str]:
    """Return the texts of rule files and of all that they use, by path. Raises `UserError`."""
    if not rule_files:
        return {}
    from ..grammar.library.load import sources  # takes longer to import than a small program to load

    return sources(map(Path, rule_files))


def recorded() -> Records:
    """Return the records of tuned kernels as they are now."""
    from .schedules.records import RecordFile

    return RecordFile().read()


def _read_ahead(model: Any, options: Options) -> Any:
    """Return a model's file being read by a thread, to which the imports leave time; any other model as it is."""
    if options.mapped or not isinstance(model, str | PathLike) or not os.path.isfile(model):
        return model
    return ReadAhead(Path(model))


def _cached(identity: ProgramIdentity, threads: int) -> Program | None:
    """Return a program from the cache, None if it is not there."""
    from .bundle.program_cache import ProgramCache

    with ThreadPoolExecutor(1) as pool:  # hashes the model while this thread imports what runs a program
        hashed = pool.submit(identity.key, mapped=True)
        from .bundle import load_bundle  # noqa: F401
        from .runtime.fallback import warn_of_fallbacks

        key = hashed.result()
    cached = ProgramCache().find(key, threads=threads) if key is not None else None
    if cached is not None:
        warn_of_fallbacks(cached.fallbacks())
    return cached


def compile_optimized(
    optimized: Optimized | NativeOnly, *, threads: int | None = None, target: str = "native",
    keep_source: str | PathLike[str] | None = None, progress: Progress = ignore, records: Records | None = None,
    memory: ReadyMemory | None = None,
) -> Program:  # fmt: skip
    """Compile the native graph of a result. `keep_source` is a directory for the generated code.

    `records` of tuned kernels are those of now if None, `memory` was provided ahead for weights."""
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
        memory=memory,
    )


class WeightsAhead:
    """Memory for the weights of a model, which a thread provides from `provide` on, until the end of a `with` block."""

    def __init__(self) -> None:
        self._memory: ReadyMemory | None = None

    def provide(self, graph: Graph) -> None:
        """Begin to provide memory for the weights of a graph, if they are large and another core is free."""
        from .ir.weight_memory import ReadyMemory, expected_sizes

        sizes = expected_sizes(graph)
        if sum(sizes) >= _MANY_BYTES and usable_cores() > 1:
            self._memory = ReadyMemory(sizes)
            threading.Thread(target=self._memory.fill, daemon=True).start()

    def __enter__(self) -> ReadyMemory | None:
        return self._memory

    def __exit__(self, *_: object) -> None:
        if self._memory is not None:
            self._memory.close()


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
    from .planning.group import standard_policy

    load()
    load_templates()
    standard_policy()


def _precompile(target: str) -> None:
    from ..system.process_pool import yield_cores
    from ..system.store import Store
    from .ir.target import parse_targets
    from .toolchain.compiler import find_compiler
    from .toolchain.precompiled_header import find_header

    yield_cores()  # others wait for the saturation process, not for the header
    with contextlib.suppress(UserError):  # reported when the compiler is needed
        for kind in parse_targets(target):
            find_header(Store(), find_compiler(kind.machine), kind, ahead=True)
