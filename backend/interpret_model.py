"""Programs that need no compiling: NumPy runs every operator, so a model that was never compiled is answered at once.

In: a model and engine `Options`. Out: a `Program`, ready in a second, and slower to run than a compiled one.
No rule is applied: reading the model folds its constants, and planning replaces arithmetic on shapes by numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..engine.options import Options
from ..errors import UserError
from .ir.kernel_graph import HOST_OPERATORS, Fallback, Item
from .ir.target import detect
from .memory.buffer_assignment import assign_buffers
from .planning.group import FusePolicy
from .planning.plan import PlanSettings, group, lower
from .runtime.program import Program


def interpret_model(model: Any, options: Options, *, threads: int) -> Program:
    """Return a program that runs a model (a path or bytes) with NumPy, and what NumPy lacks with `onnx.reference`.

    Raises UserError for a model that cannot be read, and for an operator that neither of the two has."""
    from ..engine.onnx_io.importer import read

    graph = read(model, shapes=options.shapes or None, mapped=options.mapped)
    plan = lower(group(graph, PlanSettings(FusePolicy({}), detect(), threads, kernels=False)))
    _refuse_unknown(plan.all_items())
    return Program(plan, assign_buffers(plan), {}, threads=threads)


def _refuse_unknown(items: Iterable[Item]) -> None:
    from ..engine.operators.folding import supports

    nodes = [item.node for item in items if isinstance(item, Fallback)]
    unknown = sorted({node.op for node in nodes if node.op not in HOST_OPERATORS and not supports(node.op)})
    if unknown:
        raise UserError(f"neither NumPy nor onnx.reference runs {', '.join(unknown)}")
