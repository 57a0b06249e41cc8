"""The `light_*` models of the `onnx` package, with weights that make them worth running.

The package ships the graphs of nine classic networks with every large weight replaced by a `ConstantOfShape` of one
value, so that all channels compute the same number and the output says nothing. Here every weight becomes a seeded
random initializer of the same shape, at a scale that keeps the activations near one through the whole network.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

NAMES = (
    "light_bvlc_alexnet",
    "light_densenet121",
    "light_inception_v1",
    "light_inception_v2",
    "light_resnet50",
    "light_shufflenet",
    "light_squeezenet",
    "light_vgg19",
    "light_zfnet512",
)

# Operators that only change the shape of a weight on its way to the operator that uses it.
_MOVES = {"Reshape", "Unsqueeze", "Squeeze"}


def make(name: str, path: Path) -> None:
    """Write the light model `name` with random weights to `path`."""
    import onnx
    from onnx import numpy_helper

    source = Path(onnx.__file__).parent / "backend/test/data/light" / f"{name}.onnx"
    model = onnx.load(source)
    graph = model.graph
    generator = np.random.default_rng(20)
    initial = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    roles = dict(_roles(graph))

    kept = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    drawn: dict[str, np.ndarray] = {}
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shape = tuple(int(n) for n in initial[node.input[0]])
            drawn[node.output[0]] = draw(roles[node.output[0]], shape, generator)
    for key, array in initial.items():
        if array.dtype == np.float32 and array.size > 1 and key in roles:
            drawn[key] = draw(roles[key], array.shape, generator)

    del graph.node[:]
    graph.node.extend(kept)
    used = {value for node in kept for value in node.input}
    others = [t for t in graph.initializer if t.name in used and t.name not in drawn]
    del graph.initializer[:]
    graph.initializer.extend(others)
    graph.initializer.extend(numpy_helper.from_array(array, key) for key, array in drawn.items())
    # The format's version 3, which these files have, lists initializers among the inputs too.
    inputs = [v for v in graph.input if v.name in used]
    listed = {v.name for v in inputs}
    inputs += [
        onnx.helper.make_tensor_value_info(key, onnx.TensorProto.FLOAT, array.shape)
        for key, array in drawn.items()
        if key not in listed
    ]
    del graph.input[:]
    graph.input.extend(inputs)
    onnx.checker.check_model(model)
    _spread_logits(model)
    onnx.save(model, path)


def _spread_logits(model: Any, spread: float = 2.0) -> None:
    """Scale the last weights so that the final softmax sees values of standard deviation `spread`.

    Residual networks with random weights end in large values, of which a softmax makes a single one.
    """
    import onnxruntime
    from onnx import ModelProto, ValueInfoProto, numpy_helper

    from .inputs import make_inputs

    last = model.graph.node[-1]
    if last.op_type != "Softmax":
        return
    makers = {value: node for node in model.graph.node for value in node.output}
    probe = ModelProto()
    probe.CopyFrom(model)
    del probe.graph.output[:]
    probe.graph.output.append(ValueInfoProto(name=last.input[0]))
    session = onnxruntime.InferenceSession(probe.SerializeToString(), providers=["CPUExecutionProvider"])
    factor = np.float32(spread / session.run(None, make_inputs(model))[0].std())

    node = makers[last.input[0]]
    while node.op_type not in ("Conv", "Gemm"):
        node = makers[node.input[0]]
    tensors = {t.name: t for t in model.graph.initializer}
    for value in node.input[1:]:
        while value in makers:
            value = makers[value].input[0]
        tensors[value].CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensors[value]) * factor, value))


def draw(role: str, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Random f32 weights for `role`: a kernel of a given fan-in, a scale around one, a positive variance, an offset."""
    if role.startswith("kernel"):
        fan_in = int(np.prod(shape[1:])) if role == "kernel" else shape[0]
        values = generator.standard_normal(shape, dtype=np.float32) * np.float32(np.sqrt(2 / fan_in))
    elif role == "positive":
        values = generator.uniform(0.5, 1.5, shape)
    else:
        values = generator.normal(0, 0.1, shape)
    return np.asarray(values, dtype=np.float32)


def _roles(graph: Any) -> Iterator[tuple[str, str]]:
    """Each weight's name with what it is used as: `kernel`, `kernel_transposed`, `positive` or `offset`."""
    moved = {node.output[0]: node.input[0] for node in graph.node if node.op_type in _MOVES}

    def source(value: str) -> str:
        while value in moved:
            value = moved[value]
        return value

    for node in graph.node:
        for position, value in enumerate(node.input):
            if (role := _role(node, position)) is not None:
                yield source(value), role


def _role(node: Any, position: int) -> str | None:
    if node.op_type in ("Conv", "Gemm"):
        if position == 1:
            transposed = node.op_type == "Gemm" and not any(a.name == "transB" and a.i for a in node.attribute)
            return "kernel_transposed" if transposed else "kernel"
        return "offset" if position == 2 else None
    if node.op_type == "BatchNormalization":
        return (None, "positive", "offset", "offset", "positive")[position]
    if node.op_type in ("Mul", "Add") and position == 1:
        return "positive" if node.op_type == "Mul" else "offset"
    return None
