"""Models of `onnx_ir`: their nodes are serialized, the contents of their large initializers are not.

Those are copied once, for they may be the parameters of a module, which goes on to change."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.ir.detached_model import DETACHED, DetachedModel
from ..errors import UserError

_LARGE_FROM = 1 << 10
"""Initializers of at least this many bytes are not serialized."""


def detached(model: Any) -> DetachedModel:
    """Return an `onnx_ir.Model` with copies of its large initializers beside it.

    The model is not changed. Raises `UserError` for initializers without contents."""
    import onnx_ir as ir

    copy = model.clone()
    _drop_metadata(copy)
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    for name, value in copy.graph.initializers.items():
        tensor = value.const_value
        if tensor is None:
            raise UserError(f"the initializer {name!r} has no contents", hint="Load the weights before you compile.")
        if tensor.nbytes < _LARGE_FROM or tensor.dtype == ir.DataType.STRING or tensor.dtype.bitwidth < 8:
            continue
        tensors[name] = np.array(tensor.numpy(), order="C")
        value.const_value = ir.ExternalTensor(DETACHED, None, None, tensor.dtype, shape=tensor.shape, name=name)
    return DetachedModel(ir.serde.serialize_model(copy), tensors)


def _drop_metadata(model: Any) -> None:
    """Remove notes of exporters, such as stack traces: they are larger than the graph, and would decide cache keys."""
    model.metadata_props.clear()
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        graph.metadata_props.clear()
        for node in graph.all_nodes():
            node.metadata_props.clear()
            for value in node.outputs:
                value.metadata_props.clear()
        for value in (*graph.inputs, *graph.initializers.values()):
            value.metadata_props.clear()
