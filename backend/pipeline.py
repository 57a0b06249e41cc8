"""The backend, stage by stage: Graph → groups → steps → kernels → storage → Program."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from ..engine.graph import Graph
from ..errors import UserError
from ..grammar.library import Library as Rules
from .build import Builder
from .cache import Cache
from .fallback import FallbackWarning as FallbackWarning
from .fallback import computable, warn_of_fallbacks
from .group import FusePolicy, policy
from .kernel_graph import ModelPlan
from .plan import plan_graph
from .program import Program
from .target import parse_targets, runs_here, thread_count

Progress = Callable[[str, int, int], None]


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
    """Compiles a graph to native code, ready to run.

    `threads` is how many a run uses (all cores if None); `target` names what to compile for
    (see `target.parse_targets`): a bundle of the program holds all of them, the best is run here; `cache_dir` is where
    compiled kernels are kept (the user's cache if None); `keep_source` is a directory for the generated `.pyx`; without
    `reassociate` no algorithm is used that rounds otherwise than the plain one (Winograd's); `library` has the rules
    whose `op` and `fuse` declarations say what is grouped (the standard ones if None). `progress` is called with a
    stage, how much is done, and of what. Raises UserError if there is no compiler and kernels are missing, and if no
    target runs here; warns with FallbackWarning about operators without a kernel."""
    count = thread_count(threads)
    fusing = policy(library) if library is not None else standard_policy()
    source = Path(keep_source) if keep_source is not None else None
    variants, linked = [], None
    for kind in parse_targets(target):
        with Builder(kind, Cache(cache_dir), keep_source=source) as builder:
            plan = plan_graph(graph, fusing, kind, count, reassociate=reassociate, announce=builder.add)
            refuse_unknown(plan)
            for kernel in plan.kernels:
                builder.add(kernel)
            kernels = builder.finish(progress)
        variants.append((kind, plan))
        if linked is None and runs_here(kind):
            linked = plan, {k: kernels.address(k, kind) for k in plan.kernels}
    assert linked is not None
    warn_of_fallbacks(linked[0].fallbacks())
    return Program(*linked, threads=count, variants=variants)


def warm_up(is_late: Callable[[], bool] = lambda: False) -> None:
    """Loads what compiling needs. For a thread beside one that waits, as it does for saturation, until it `is_late`."""
    from .build import warm_up as load_cython
    from .lower import lowerer_of
    from .render import warm_up as load_templates

    lowerer_of("")
    load_cython()
    load_templates(is_late)


@lru_cache(maxsize=1)
def standard_policy() -> FusePolicy:
    """The policy of the standard rules."""
    from ..engine.library import load_rules

    return policy(load_rules())


def refuse_unknown(plan: ModelPlan) -> None:
    """Raises UserError for operators that neither a kernel nor the reference implementation computes, naming all."""
    first = {node.op: node for node in reversed(list(plan.fallback_nodes()))}
    unknown = {op: node for op, node in sorted(first.items()) if not computable(node)}
    if unknown:
        nodes = ", ".join(f"node {node.name or node.outputs[0]} ({op})" for op, node in unknown.items())
        raise UserError(
            f"no implementation is known of the operator{'s' * (len(unknown) > 1)} {', '.join(unknown)}",
            where=nodes,
            hint="The optimised ONNX model runs wherever the operators are known: rewrite MODEL.onnx --emit onnx",
        )
