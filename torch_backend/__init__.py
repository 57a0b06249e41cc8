"""The backend of `torch.compile`: `torch.compile(model, backend="rewrite")`.

In: a graph that TorchDynamo captured. Out: a function on tensors, which runs a `Program` if the graph has one, else
the graph itself. PyTorch finds `compile_graph` by the entry point `torch_dynamo_backends`; nothing else
of this package imports the room, because it imports PyTorch."""

from .capture import compile_graph

__all__ = ["compile_graph"]
