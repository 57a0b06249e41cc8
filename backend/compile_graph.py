"""Compiling a graph for some targets: the stages of `pipeline`, overlapped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..engine.ir.graph import Graph
from ..grammar.library.load import Library as Rules
from ..system.progress import Progress
from ..system.store import Store
from .ir.kernel_graph import ModelPlan
from .ir.schedule import Schedules
from .ir.target import Target, detect, parse_targets, runs_here, thread_count
from .ir.weight_memory import ReadyMemory
from .memory.buffer_assignment import Storage
from .memory.buffer_assignment import assign_buffers as place
from .pipeline import link
from .planning.group import policy, standard_policy
from .planning.plan import PlanSettings, group, lower
from .runtime.fallback import refuse_unknown, warn_of_fallbacks
from .runtime.program import Program
from .toolchain.builder import Builder, Library


def compile_graph(
    graph: Graph,
    *,
    threads: int | None = None,
    target: str = "native",
    cache_dir: Path | str | None = None,
    keep_source: Path | str | None = None,
    reassociate: bool = True,
    library: Rules | None = None,
    progress: Progress | None = None,
    schedules: Callable[[Target], Schedules | None] | None = None,
    memory: ReadyMemory | None = None,
) -> Program:
    """Compile a graph to native code, ready to run.

    Args:
        threads: threads of a run; all cores if None.
        target: what to compile for (see `target.parse_targets`): a bundle of the program holds all targets. The best
            that this CPU runs is run here; if it runs none, kernels for this CPU are compiled beside them.
        cache_dir: where compiled kernels are cached; the user's cache if None.
        keep_source: a directory for the generated C files.
        reassociate: allow algorithms that round differently from the plain one (Winograd's does).
        library: rules whose `op` and `fuse` declarations decide what is grouped; the standard ones if None.
        progress: called with the stage `compile` and how many kernels are `done` of a `total`.
        schedules: returns those of tuned kernels for a target; without them, as by default, formulas decide.
        memory: provided ahead for weights.

    Raises:
        UserError: a target is unknown, or kernels are missing and there is no C compiler for it.

    Warns with FallbackWarning about operators without a kernel."""
    count = thread_count(threads)
    fusing = policy(library) if library is not None else standard_policy()
    source = Path(keep_source) if keep_source is not None else None
    targets = parse_targets(target)
    here = next(filter(runs_here, targets), None) or detect()

    def compile_for(kind: Target) -> tuple[ModelPlan, Storage | None, Library]:
        with Builder(kind, Store(cache_dir), keep_source=source) as builder:
            tuned = schedules(kind) if schedules is not None else None
            settings = PlanSettings(fusing, kind, count, reassociate, schedules=tuned, memory=memory)
            plan = lower(group(graph, settings), on_kernel=builder.add)
            refuse_unknown(plan, fusing.defined)
            storage = place(plan) if kind == here else None  # while compilers run
            return plan, storage, builder.finish(plan.kernels, progress)

    compiled = {kind: compile_for(kind) for kind in targets}
    plan, storage, built = compiled[here] if here in compiled else compile_for(here)
    assert storage is not None
    warn_of_fallbacks(plan.fallbacks())
    variants = [(kind, plan) for kind, (plan, _, _) in compiled.items()]
    return link(plan, here, storage, built, variants, count)
