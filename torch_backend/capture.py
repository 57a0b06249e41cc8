"""From TorchDynamo's graph to a functional one: AOTAutograd removes mutation and views, and decomposes operators.

What it adds around the graph writes results back to inputs that the model changes, and makes outputs that are views of
inputs views again. So the graph inside has inputs, outputs, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_module_simplified

from ..frontends.torch_models import translator
from .settings import Settings, warn_once
from .subgraph import Subgraph


class _NeedsGradients(Exception):
    """The graph is about to be split into a forward and a backward graph."""


def compile_graph(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph for `torch.compile(..., backend="rewrite")`.

    Under grad mode, with inputs or parameters that need gradients, the graph runs in eager mode, with one warning:
    gradients are right, and nothing is faster. Raises `UserError` for unknown options."""
    settings = Settings.of(options, mode)

    def forward(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return Subgraph(graph, settings, _mutated())

    def refuse(*_: Any, **__: Any) -> Any:
        raise _NeedsGradients

    try:
        return aot_module_simplified(
            module,
            example_inputs,
            fw_compiler=refuse,
            bw_compiler=refuse,
            partition_fn=refuse,
            inference_compiler=forward,
            decompositions=translator().decompositions,
            keep_inference_input_mutations=False,
        )
    except _NeedsGradients:
        warn_once(
            "a graph that needs gradients runs in eager mode: the backend 'rewrite' compiles inference only. Call the "
            "model under torch.no_grad() or torch.inference_mode(), or freeze it with requires_grad_(False)."
        )
        return module.forward


def _mutated() -> frozenset[int]:
    """Return the numbers of the inputs that the graph being compiled changes."""
    context = torch._guards.TracingContext.try_get()
    about = context.fw_metadata if context is not None else None
    inputs = about.input_info if about is not None else ()
    return frozenset(number for number, info in enumerate(inputs) if info.mutates_data or info.mutates_metadata)
