"""Instances of rules that match control flow: the models of their tests, with other operands and other bodies.

A pattern does not describe the body of an If, Loop or Scan, so instances cannot be drawn from it. They come from the
models that the rule's tests name. Inputs and constants of a model are operands, and all other types are inferred again.
Each node and each output of a body is changed in a few ways, so that branches or iterations that agree no longer do, or
the reverse.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...engine.egraph.egraph import EGraph
from ...engine.egraph.encode import encode
from ...engine.ir.graph import Graph, TensorType
from ...engine.onnx_io import importer
from ...engine.onnx_io.model_file import constant_from_proto
from ...engine.operators.schemas import signature
from ...engine.rule_tests.run_tests import model_path
from ...errors import UserError
from ...grammar.syntax import ast
from .instance import Tensor

VARIANTS = 48
"""Maximum number of models derived from one by changing a body."""
_GROUPS = (
    ("Relu", "Abs", "Neg", "Sin", "Cos", "Exp", "Sqrt", "Identity", "Softmax"),
    ("Add", "Sub", "Mul", "Div", "Max", "MatMul"),
    ("Identity", "Not"),
)
"""Operators that replace each other, grouped by signature."""


@dataclass(frozen=True, eq=False)
class Model:
    """Model that a test names, or one derived from it; `proto` states the types of its inputs only."""

    name: str
    proto: Any

    @cached_property
    def operands(self) -> dict[str, Tensor]:
        """Inputs and constants of the model."""
        found: dict[str, Tensor] = {}
        graph = self.proto.graph
        for tensor in graph.initializer:
            found[tensor.name] = Tensor.of(constant_from_proto(tensor, None, "").array)
        types = importer.read(self.proto).types
        for value in graph.input:
            type_ = types.get(value.name)
            if not isinstance(type_, TensorType) or type_.dtype is None or type_.shape is None:
                raise UserError(f"input {value.name!r} has no rank", where=self.name)
            found.setdefault(value.name, Tensor(type_.dtype, type_.shape))
        return found

    def graph(self, operands: Mapping[str, Any]) -> Graph:
        """Return the model with other operands. Raises `UserError`, `LookupError` or `ValueError` if they do not
        fit."""
        if set(operands) != set(self.operands) or not all(isinstance(v, Tensor) for v in operands.values()):
            raise ValueError("these are not the operands of the model")
        import onnx

        proto = copy.deepcopy(self.proto)
        del proto.graph.input[:], proto.graph.initializer[:]
        for name, tensor in operands.items():
            if tensor.array is not None:
                proto.graph.initializer.append(onnx.numpy_helper.from_array(tensor.array, name))
            else:
                proto.graph.input.append(onnx.helper.make_value_info(name, _type_proto(tensor)))
        found = importer.read(_with_loop_state_types(proto, operands))
        return found if _loop_state_is_stable(found) else importer.read(proto)

    def build(self, operands: Mapping[str, Any], egraph: EGraph, prefix: str) -> tuple[tuple[int, ...], list[str]]:
        """Add the model with these operands to an e-graph; return the classes of its outputs and its inputs' names."""
        graph = self.graph(operands)
        before = dict(egraph.roots)
        at = encode(graph, egraph, prefix=prefix)
        roots = tuple(dict.fromkeys(at[name] for name in graph.outputs))
        egraph.roots = {**before, **{prefix + name: at[name] for name in graph.outputs}}
        return roots, list(graph.inputs)


def models(rule: ast.Rule) -> tuple[Model, ...]:
    """Return the models of a rule's tests, then those that differ from them in one place.

    Raises `UserError` for files that are not models."""
    import onnx

    own: list[Model] = []
    for name in (t.model for t in sorted(rule.tests, key=lambda t: t.verdict != "fires") if t.model is not None):
        path = model_path(rule.span.file, name)
        try:
            proto = onnx.load(path)
        except Exception as error:  # the protobuf parser raises several kinds
            raise UserError("is not an ONNX model", where=str(path)) from error
        _strip(proto.graph, proto.graph.output)
        own.append(Model(name, proto))
    return (*own, *(other for model in own for other in _variants(model)))


def _strip(graph: Any, values: Iterable[Any]) -> None:
    """Remove the types of some values, and those that bodies state, because they depend on the operands."""
    for value in values:
        value.ClearField("type")
    del graph.value_info[:]
    for body in (a.g for node in graph.node for a in node.attribute if a.HasField("g")):
        _strip(body, (*body.input, *body.output))


def _type_proto(tensor: Tensor) -> Any:
    import onnx

    dims = [d if isinstance(d, int) else str(d) for d in tensor.shape]
    return onnx.helper.make_tensor_type_proto(tensor.dtype.onnx, dims)


def _with_loop_state_types(proto: Any, operands: Mapping[str, Tensor]) -> Any:
    """Return the model with the carried inputs of Loop bodies typed as the operands; the body may still change them."""
    found = copy.deepcopy(proto)
    for node in (n for n in found.graph.node if n.op_type == "Loop"):
        body = next(a.g for a in node.attribute if a.name == "body")
        for value, name in zip(body.input[2:], node.input[2:], strict=False):
            if (tensor := operands.get(name)) is not None:
                value.type.CopyFrom(_type_proto(tensor))
    return found


def _loop_state_is_stable(graph: Graph) -> bool:
    """Whether the values that each Loop carries have one type in all iterations."""
    bodies = [body for node in graph.nodes if node.op == "Loop" for _, body in node.subgraphs()]
    carried = [(body, *pair) for body in bodies for pair in zip(body.inputs[2:], body.outputs[1:], strict=False)]
    return all(body.type(before) == body.type(after) for body, before, after in carried)


# --- other bodies ---


def _variants(model: Model) -> list[Model]:
    """Return models one change away, spread evenly over all of them."""
    found = list(_changed(model.proto))
    count = min(VARIANTS, len(found))
    chosen = [found[i * len(found) // count] for i in range(count)]
    return [Model(f"{model.name}, {what}", proto) for what, proto in chosen]


def _changed(proto: Any) -> Iterator[tuple[str, Any]]:
    outer = [v.name for v in (*proto.graph.input, *proto.graph.initializer)]
    for at, node in enumerate(proto.graph.node):
        for number, attribute in enumerate(node.attribute):
            if not attribute.HasField("g"):
                continue
            for what, body in _changed_body(attribute.g, outer):
                changed = copy.deepcopy(proto)
                changed.graph.node[at].attribute[number].g.CopyFrom(body)
                yield f"in {attribute.g.name} {what}", changed


def _changed_body(body: Any, outer: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield bodies with another operator, another input of a node, another output, or two outputs exchanged."""
    inputs = [v.name for v in body.input]
    computed = [name for node in body.node for name in node.output if name]
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
                    yield f"{node.output[0]} reads {name} instead of {before}", changed
    for place, output in enumerate(body.output):
        for name in computed:
            if name != output.name and name not in [v.name for v in body.output]:
                changed = copy.deepcopy(body)
                changed.output[place].name = name
                yield f"{name} is an output instead of {output.name}", changed
    for one, other in itertools.combinations(range(len(body.output)), 2):
        changed = copy.deepcopy(body)
        changed.output[one].name, changed.output[other].name = body.output[other].name, body.output[one].name
        yield f"{body.output[one].name} and {body.output[other].name} change places", changed
