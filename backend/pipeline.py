"""The backend, stage by stage. Each stage is a function from value to value; `stages` yields the value after each one.

    group      Graph → GroupedGraph        which nodes become one kernel, and which need none    planning/
    lower      GroupedGraph → ModelPlan    steps that call kernels, packed weights               kernels/, planning/
    place      ModelPlan → Storage         which memory holds each value                         memory/
    generate   ModelPlan → [Rendered]      C source of each kernel                               codegen/
    build      ModelPlan → Library         machine code, from the cache or the C compiler        toolchain/
    link       ModelPlan, Storage, Library → Program                                             runtime/

`compile_graph` runs these stages for several targets. It starts C compilers while later groups are still lowered, and
generates source only for kernels that the cache lacks.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..engine.ir.graph import Graph
from ..system.store import Store
from .bundle.save_bundle import save
from .codegen.render import Rendered, render_kernel
from .ir.kernel_graph import ModelPlan
from .ir.target import Target
from .memory.buffer_assignment import Storage
from .memory.buffer_assignment import assign_buffers as place
from .planning.plan import GroupedGraph, PlanSettings, group, lower
from .runtime.program import Program, Variants
from .toolchain.builder import Library, build

Stage = GroupedGraph | ModelPlan | Storage | list[Rendered] | Library | Program


def generate(plan: ModelPlan, target: Target) -> list[Rendered]:
    """Return the C source of each kernel of a plan."""
    return [render_kernel(kernel, target) for kernel in plan.kernels]


def link(
    plan: ModelPlan, target: Target, storage: Storage, library: Library, variants: Variants, threads: int
) -> Program:
    """Return the program that runs a plan on this machine, which is a `target`.

    `variants` are the targets that a bundle of it holds, with their plans."""
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
    yield "link", link(plan, target, storage, library, [(target, plan)], settings.threads)
