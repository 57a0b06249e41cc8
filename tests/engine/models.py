"""Small models for the tests of reading and writing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

Value = tuple[str, int, "Sequence[int | str | None] | None"]
FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    ir_version: int = 8,
    functions: Sequence[Any] = (),
    domains: Mapping[str, int] | None = None,
) -> Any:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(*v) for v in inputs],
        [helper.make_tensor_value_info(*v) for v in outputs],
        [onnx.numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in (domains or {}).items())]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version, functions=functions)


def run(proto: Any, feeds: Mapping[str, Any]) -> list[np.ndarray]:
    """The outputs by ONNX Runtime, without its own optimizations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))
