"""Models that tests of several commands compile."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper


def save_inverse(path: Path) -> None:
    """Write a model with com.microsoft.Inverse, which only ONNX Runtime has: from x to y [N, 4, 4] f32."""
    nodes = [
        helper.make_node("Mul", ["x", "one"], ["a"]),
        helper.make_node("MatMul", ["a", "W"], ["b"]),
        helper.make_node("Inverse", ["b"], ["y"], domain="com.microsoft"),
    ]
    weights = {"one": np.ones((), np.float32), "W": np.eye(4, dtype=np.float32)}
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("N", 4, 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("N", 4, 4))],
        [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
