"""The backend, stage by stage. Each stage is a function from value to value; `stages` yields the value after each one.

    group      Graph → GroupedGraph        which nodes become one kernel, and which need none    planning/
    lower      GroupedGraph → ModelPlan    steps that call kernels, packed weights               kernels/, planning/
    place      ModelPlan → Storage         which memory holds each value                         memory/
    generate   ModelPlan → [Rendered]      C source of each kernel                               codegen/
    build      ModelPlan → Library         machine code, from the cache or the C compiler        toolchain/
    link       ModelPlan, Storage, Library → Program                                             runtime/

`compile_graph` runs the same stages, but starts C compilers while later groups are still lowered, and generates source
only for kernels that the cache lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from ..engine.ir.graph import Graph
from ..errors import UserError
from ..grammar.library.load import Library as Rules
from ..system.progress import Progress
from ..system.store import Store
from .bundle.save_bundle import save
from .codegen.render import Rendered, render_kernel
from .ir.kernel_graph import Fallback, ModelPlan
from .ir.target import Target, detect, parse_targets, runs_here, thread_count
from .memory.buffer_assignment import Storage
from .memory.buffer_assignment import assign_buffers as place
from .planning.group import FusePolicy, policy
from .planning.plan import GroupedGraph, PlanSettings, group, lower
from .runtime.fallback import FallbackWarning as FallbackWarning
from .runtime.fallback import computable, warn_of_fallbacks
from .runtime.program import Program, Variants
from .toolchain.builder import Builder, Library, build

Stage = GroupedGraph | ModelPlan | Storage | list[Rendered] | Library | Program


def generate(plan: ModelPlan, target: Target) -> list[Rendered]:
    """Return the C source of each kernel of a plan."""
    return [render_kernel(kernel, target) for kernel in plan.kernels]


def link(plan: ModelPlan, storage: Storage, library: Library, variants: Variants, threads: int) -> Program:
    """Return the program that runs a plan on this machine; `variants` are the plans for all targets, for bundles."""
    [target] = [target for target, one in variants if one is plan]
    addresses = {kernel: library.address(kernel, target) for kernel in plan.kernels}
    return Program(plan, storage, addresses, threads=threads, variants=variants, save=save)


def stages(graph: Graph, settings: PlanSettings, store: Store | None = None) -> Iterator[tuple[str, Stage]]:
    """Yield the name and the value of each stage, one after the other, for a target that runs here."""
    target = settings.target
    yield "group", (grouped := group(graph, settings))
    yield "lower", (plan := lower(grouped))
    yield "place", (storage := place(plan))
    yield "generate", generate(plan, target)
    yield "build", (library := build(plan.kernels, target, store or Store()))
    yield "link", link(plan, storage, library, [(target, plan)], settings.threads)


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
) -> Program:
    """Compile a graph to native code, ready to run.

    Args:
        threads: threads of a run; all cores if None.
        target: what to compile for (see `target.parse_targets`): a bundle of the program holds all targets, the best
            one runs here.
        cache_dir: where compiled kernels are cached; the user's cache if None.
        keep_source: a directory for the generated C files.
        reassociate: allow algorithms that round differently from the plain one (Winograd's does).
        library: rules whose `op` and `fuse` declarations decide what is grouped; the standard ones if None.
        progress: called with the stage `compile` and how many kernels are `done` of a `total`.

    Raises:
        UserError: kernels are missing and there is no C compiler, or no target runs here.

    Warns with FallbackWarning about operators without a kernel."""
    count = thread_count(threads)
    fusing = policy(library) if library is not None else standard_policy()
    source = Path(keep_source) if keep_source is not None else None
    variants: list[tuple[Target, ModelPlan]] = []
    best: tuple[ModelPlan, Library] | None = None
    for kind in parse_targets(target):
        with Builder(kind, Store(cache_dir), keep_source=source) as builder:
            plan = lower(group(graph, PlanSettings(fusing, kind, count, reassociate)), announce=builder.add)
            refuse_unknown(plan)
            built = builder.finish(plan.kernels, progress)
        variants.append((kind, plan))
        if best is None and runs_here(kind):
            best = plan, built
    assert best is not None
    plan, built = best
    warn_of_fallbacks(plan.fallbacks())
    return link(plan, place(plan), built, variants, count)


def warm_up(is_late: Callable[[], bool] = lambda: False) -> None:
    """Load what compiling needs, in a thread beside one that waits for saturation, until it `is_late`."""
    from .codegen.render import warm_up as load_templates
    from .kernels.registry import load as load_lowerers
    from .toolchain.compiler import find_compiler
    from .toolchain.precompiled_header import find_header

    load_lowerers()
    find_header(Store(), find_compiler(), detect())
    load_templates(is_late)


@lru_cache(maxsize=1)
def standard_policy() -> FusePolicy:
    """Return the policy of the standard rules."""
    from ..engine.rewriting.rule_library import load_rules

    return policy(load_rules())


def refuse_unknown(plan: ModelPlan) -> None:
    """Raise UserError naming all operators that neither a kernel nor the reference implementation computes."""
    nodes = [item.node for item in plan.all_items() if isinstance(item, Fallback)]
    first = {node.op: node for node in reversed(nodes)}
    unknown = {op: node for op, node in sorted(first.items()) if not computable(node)}
    if unknown:
        where = ", ".join(f"node {node.name or node.outputs[0]} ({op})" for op, node in unknown.items())
        raise UserError(
            f"no implementation is known of the operator{'s' * (len(unknown) > 1)} {', '.join(unknown)}",
            where=where,
            hint="The optimized ONNX model runs wherever the operators are known: rewrite MODEL.onnx --emit onnx",
        )
