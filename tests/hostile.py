"""A model whose names try to leave the page's data: for reports, which show them as text."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

EVIL = "</script><img src=x onerror=\"document.title='broken'\"><!--<script>'\"&\u2028"


def hostile_model() -> onnx.ModelProto:
    """A small trained-like model: its graph, nodes, values and weights have hostile names."""
    nodes = [
        helper.make_node("MatMul", [f"x{EVIL}", f"W{EVIL}"], [f"m{EVIL}"], name=f"block/{EVIL}/MatMul"),
        helper.make_node("Div", [f"m{EVIL}", "three"], [f"s{EVIL}"], name=f"block/{EVIL}/Div"),
        helper.make_node("Relu", [f"s{EVIL}"], [f"y{EVIL}"], name=f"head/{EVIL}/Relu", doc_string=EVIL),
        helper.make_node("Relu", [f"y{EVIL}"], [f"z{EVIL}"], name=f"head/{EVIL}/Again"),
    ]
    shape = [2, 8]
    weights = {f"W{EVIL}": np.arange(64, dtype=np.float32).reshape(8, 8) / 64, "three": np.float32(3)}
    graph = helper.make_graph(
        nodes, EVIL,
        [helper.make_tensor_value_info(f"x{EVIL}", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(f"z{EVIL}", TensorProto.FLOAT, shape)],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
