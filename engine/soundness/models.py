"""Instances of rules that look into bodies: the models of their tests, with other operands and other bodies.

No pattern says what stands in the body of an If, Loop or Scan, so instances cannot be drawn from it. They come from the
models that the rule's tests name: their inputs and constants are operands like any others, from which the types of all
else are inferred anew; and each node and each output of a body is changed in a few ways, so that what is the same in
both branches or in every run no longer is, or is at last.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...errors import UserError
from ...grammar import ast
from .. import onnx_in
from ..egraph import EGraph
from ..encode import encode
from ..graph import Graph, TensorType
from ..model_file import constant_from_proto
from ..model_tests import model_path
from ..operators import signature
from .operand import Tensor

VARIANTS = 48
"""How many other bodies are made of one model."""
_GROUPS = (
    ("Relu", "Abs", "Neg", "Sin", "Cos", "Exp", "Sqrt", "Identity", "Softmax"),
    ("Add", "Sub", "Mul", "Div", "Max", "MatMul"),
    ("Identity", "Not"),
)
"""Operators that stand for each other, all of one signature."""


@dataclass(frozen=True, eq=False)
class Model:
    """A model that a test names, or one like it. `proto` states no types but those of its inputs.

    `line` is the test's, `fires` whether the rule is said to fire, `name` what to call it."""

    line: int
    fires: bool
    name: str
    proto: Any

    @cached_property
    def operands(self) -> dict[str, Tensor]:
        """Its inputs and constants, as they are in the model."""
        found: dict[str, Tensor] = {}
        graph = self.proto.graph
        for tensor in graph.initializer:
            found[tensor.name] = Tensor.of(constant_from_proto(tensor, None, "").array)
        types = onnx_in.read(self.proto).types
        for value in graph.input:
            type_ = types.get(value.name)
            if not isinstance(type_, TensorType) or type_.dtype is None or type_.shape is None:
                raise UserError(f"input {value.name!r} has no rank", where=self.name)
            found.setdefault(value.name, Tensor(type_.dtype, type_.shape))
        return found

    def graph(self, operands: Mapping[str, Any]) -> Graph:
        """The model with other operands. Raises `UserError`, `LookupError` or `ValueError` where they do not fit."""
        if set(operands) != set(self.operands) or not all(isinstance(v, Tensor) for v in operands.values()):
            raise ValueError("these are not the operands of the model")
        proto = copy.deepcopy(self.proto)
        del proto.graph.input[:], proto.graph.initializer[:]
        for name, tensor in operands.items():
            _add_operand(proto.graph, name, tensor)
        found = onnx_in.read(_with_carried(proto, operands))
        return found if _carries_on(found) else onnx_in.read(proto)

    def build(self, operands: Mapping[str, Any], egraph: EGraph, prefix: str) -> tuple[tuple[int, ...], list[str]]:
        """Adds the model with these operands to an e-graph; the classes of its outputs, and the names of its inputs."""
        graph = self.graph(operands)
        before = dict(egraph.roots)
        at = encode(graph, egraph, prefix=prefix)
        roots = tuple(dict.fromkeys(at[name] for name in graph.outputs))
        egraph.roots = {**before, **{prefix + name: at[name] for name in graph.outputs}}
        return roots, list(graph.inputs)


def models(rule: ast.Rule) -> tuple[Model, ...]:
    """The models of a rule's tests, then those that differ from them in one place. Raises `UserError` for files that
    are no models."""
    import onnx

    own: list[Model] = []
    for test in rule.tests:
        if test.model is None:
            continue
        path = model_path(rule.span.file, test.model)
        try:
            proto = onnx.load(path)
        except Exception as error:  # whatever the parser of protocol buffers raises
            raise UserError("is no ONNX model", where=str(path)) from error
        _strip(proto.graph)
        del proto.graph.value_info[:]
        for value in proto.graph.output:
            value.ClearField("type")
        own.append(Model(test.span.line, test.verdict == "fires", test.model, proto))
    own.sort(key=lambda m: not m.fires)
    return (*own, *(other for model in own for other in _variants(model)))


def _strip(graph: Any) -> None:
    """Takes away the types that bodies state: they depend on the operands."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                body = attribute.g
                for value in (*body.input, *body.output):
                    value.ClearField("type")
                del body.value_info[:]
                _strip(body)


def _add_operand(graph: Any, name: str, tensor: Tensor) -> None:
    import onnx

    if tensor.array is not None:
        graph.initializer.append(onnx.numpy_helper.from_array(tensor.array, name))
        return
    graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.dtype.onnx, _dims(tensor)))


def _dims(tensor: Tensor) -> list[int | str]:
    return [d if isinstance(d, int) else str(d) for d in tensor.shape]


def _with_carried(proto: Any, operands: Mapping[str, Tensor]) -> Any:
    """The model with each Loop's body stating that it carries what it is given, which it may not."""
    import onnx

    found = copy.deepcopy(proto)
    for node in found.graph.node:
        if node.op_type != "Loop":
            continue
        body = next(a.g for a in node.attribute if a.name == "body")
        for value, name in zip(body.input[2:], node.input[2:], strict=False):
            if (tensor := operands.get(name)) is not None:
                value.type.CopyFrom(onnx.helper.make_tensor_type_proto(tensor.dtype.onnx, _dims(tensor)))
    return found


def _carries_on(graph: Graph) -> bool:
    """Whether what each Loop carries has one type in all runs."""
    for node in graph.nodes:
        body = node.attrs.get("body")
        if node.op == "Loop" and isinstance(body, Graph):
            carried = zip(body.inputs[2:], body.outputs[1:], strict=False)
            if any(body.type(before) != body.type(after) for before, after in carried):
                return False
    return True


# --- other bodies ---


def _variants(model: Model) -> list[Model]:
    """Models one change away, spread over all that there are."""
    found = list(_changed(model.proto))
    count = min(VARIANTS, len(found))
    chosen = [found[i * len(found) // count] for i in range(count)]
    return [Model(model.line, False, f"{model.name}, {what}", proto) for what, proto in chosen]


def _changed(proto: Any) -> Iterator[tuple[str, Any]]:
    outer = [v.name for v in (*proto.graph.input, *proto.graph.initializer)]
    for at, node in enumerate(proto.graph.node):
        for number, attribute in enumerate(node.attribute):
            if not attribute.HasField("g"):
                continue
            for what, body in _changed_body(attribute.g, outer):
                changed = copy.deepcopy(proto)
                changed.graph.node[at].attribute[number].g.CopyFrom(body)
                yield f"where in {attribute.g.name} {what}", changed


def _changed_body(body: Any, outer: list[str]) -> Iterator[tuple[str, Any]]:
    """A body with another operator, another input of a node, another output, or two outputs exchanged."""
    inputs = [v.name for v in body.input]
    made = [name for node in body.node for name in node.output if name]
    for at, node in enumerate(body.node):
        for group in (g for g in _GROUPS if node.op_type in g):
            for op in group:
                if op != node.op_type and signature(op) is not None:
                    changed = copy.deepcopy(body)
                    changed.node[at].op_type = op
                    del changed.node[at].attribute[:]
                    yield f"{node.output[0]} is a {op}", changed
        earlier = [name for other in body.node[:at] for name in other.output if name]
        for place, before in enumerate(node.input):
            for name in dict.fromkeys((*inputs, *earlier, *outer)):
                if name != before:
                    changed = copy.deepcopy(body)
                    changed.node[at].input[place] = name
                    yield f"{node.output[0]} reads {name} for {before}", changed
    for place, output in enumerate(body.output):
        for name in made:
            if name != output.name and name not in [v.name for v in body.output]:
                changed = copy.deepcopy(body)
                changed.output[place].name = name
                yield f"{name} is given out for {output.name}", changed
    for one, other in itertools.combinations(range(len(body.output)), 2):
        changed = copy.deepcopy(body)
        changed.output[one].name, changed.output[other].name = body.output[other].name, body.output[one].name
        yield f"{body.output[one].name} and {body.output[other].name} change places", changed
