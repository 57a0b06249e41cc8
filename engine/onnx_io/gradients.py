"""Expansion of `Gradient`: nodes that compute the derivatives of a value of the graph.

Reverse accumulation (Griewank and Walther, Evaluating Derivatives, 2008, chapter 3): from the value backwards, the
derivative that arrives at the result of a node is multiplied by the node's own. Those of operators are data
(`derivatives.txt`): functions of standard operators, most of which have derivatives again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ..ir.graph import Constant, Graph, Node, TensorType, trimmed
from ..ir.protos import attribute_from_proto
from ..ir.symbolic import same
from .model_file import constant_from_proto
from .model_values import ModelValues
from .proto_graphs import MOST_INLINED, gradient_of

OPSET = 18
"""Opset of the nodes that are made."""
DATA = Path(__file__).with_name("derivatives.txt")


def expand_gradient(
    proto: Any,
    scope: Mapping[str, str],
    graph: Graph,
    known: ModelValues,
    add: Callable[[Node, int], None],
    where: str,
) -> dict[str, str]:
    """Add nodes that compute a `Gradient` to the graph that it is part of; return the values of its outputs by name.

    The derivative is that of the sum of all elements of the value `y` with respect to the values `xs`, where these and
    `zs` are the inputs; other values are as they are in the graph. `scope` maps the model's names to the graph's. `add`
    takes a node and its opset.

    Raises `UserError` if the inputs are not as many as `xs` and `zs`, or `y` depends on `xs` through an operator that
    has no derivative here."""
    xs, zs, (y,) = ([scope[name] for name in names] for names in gradient_of(proto))
    given = list(filter(None, proto.input))
    if len(given) != len(xs) + len(zs):
        message = f"has {len(given)} inputs; xs and zs name {len(xs) + len(zs)} values"
        raise UserError(message, where=where)
    at = dict(zip((*xs, *zs), map(scope.__getitem__, given), strict=True))
    expansion = _Expansion(graph, known, add, proto.name or proto.op_type, where)
    path = expansion.path(y, at)
    if any(name != value for name, value in at.items()):
        path = [expansion.copied(node, at) for node in path]
    found = expansion.derivatives(path, at.get(y, y), {at[x] for x in xs})
    outputs = {name: at[x] for name, x in zip(proto.output, xs, strict=False) if name}
    return {name: found.get(x) or expansion.call("zeros", [x], {}) for name, x in outputs.items()}


@dataclass
class _Expansion:
    """Expansion of one Gradient; `origin` is its name, `where` its place for messages."""

    graph: Graph
    known: ModelValues
    add: Callable[[Node, int], None]
    origin: str
    where: str

    def path(self, y: str, at: Mapping[str, str]) -> list[Node]:
        """Return the nodes that `y` depends on and that depend on the values in `at`, in topological order."""
        depends, later = set(at), []
        for node in self.graph.nodes:
            if not depends.isdisjoint(node.reads()) and at.keys().isdisjoint(node.outputs):
                depends.update(filter(None, node.outputs))
                later.append(node)
        needed, path = {y}, []
        for node in reversed(later):
            if not needed.isdisjoint(node.outputs):
                needed.update(node.reads())
                path.append(node)
        return path[::-1]

    def copied(self, node: Node, names: dict[str, str]) -> Node:
        """Add a copy of a node that reads the values in `names` in place of its own; add its results to these."""
        if any(node.subgraphs()):
            raise self.error(node)
        inputs = tuple(names.get(value, value) for value in node.inputs)
        names.update({value: self.known.new_value(value) for value in node.outputs if value})
        made = replace(node, inputs=inputs, outputs=tuple(names.get(value, "") for value in node.outputs))
        self.graph.nodes.append(made)
        self.known.add_node(made)
        return made

    def derivatives(self, path: Sequence[Node], y: str, xs: set[str]) -> dict[str, str]:
        """Return the derivatives of `y` with respect to the values between `xs` and it.

        What is not of floats, such as an index, is constant where it has a derivative at all."""
        depends = set(xs)
        for node in path:
            if not depends.isdisjoint(node.reads()):
                depends.update(value for value in node.outputs if value and self.may_be_float(value))
        found = {y: self.call("ones", [y], {})} if y in depends else {}
        for node in reversed(path):
            if found.keys().isdisjoint(node.outputs) or depends.isdisjoint(node.reads()):
                continue
            for i, operand in enumerate(node.inputs):
                if operand in depends:
                    part, before = self.part(node, i, found), found.get(operand)
                    found[operand] = self.make("Add", (before, part), {}) if before else part
            if any(node.subgraphs()):
                raise self.error(node)
        return found

    def part(self, node: Node, i: int, found: Mapping[str, str]) -> str:
        """Add the nodes of the derivative with respect to operand `i` of a node, from that of its result."""
        name = next((name for name in (f"{node.op}_{i}", f"{node.op}_each") if name in functions()), "")
        if not name or any(value in found for value in node.outputs[1:]):
            raise self.error(node)
        operands = list(node.inputs) if name.endswith(f"_{i}") else [node.inputs[i]]
        absent = len(functions()[name].inputs) - 2 - len(operands)
        result = node.outputs[0]
        return self.call(name, [*operands, *[""] * absent, result, found[result]], _with_inverses(node.attrs))

    def call(self, name: str, inputs: Sequence[str], attrs: Mapping[str, Any]) -> str:
        """Add the nodes of a function; return its result."""
        function = functions()[name]
        names = {"": "", **dict(zip(function.inputs, inputs, strict=True))}
        for step in function.steps:
            operands = tuple(names[value] for value in step.inputs)
            given = {key: attrs.get(v.name) if isinstance(v, _Reference) else v for key, v in step.attrs.items()}
            own: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
            if step.op == "Constant":
                ((key, value),) = own.items()
                if key != "value":
                    value = Constant(np.array(value, np.float32 if key == "value_float" else np.int64))
                names[step.output] = made = self.known.new_value(f"{self.origin}_{step.output}")
                self.known.add_constant(self.graph, made, value)
            elif step.op == "sum_to" and (axes := self.summed_axes(*operands)) is not None:
                names[step.output] = self.call("sum_over", operands, {"axes": axes}) if axes else operands[0]
            elif step.op in functions():
                names[step.output] = self.call(step.op, operands, own)
            else:
                names[step.output] = self.make(step.op, operands, own)
        return names[function.output]

    def make(self, op: str, inputs: tuple[str, ...], attrs: dict[str, Any]) -> str:
        """Add a node; return its result."""
        if len(self.graph.nodes) > MOST_INLINED:  # derivatives of derivatives grow exponentially
            raise UserError(f"its derivatives are more than {MOST_INLINED:,} nodes", where=self.where)
        result = self.known.new_value(f"{self.origin}_{op}")
        self.add(Node(op, trimmed(inputs), (result,), attrs, result, (), (self.origin,)), OPSET)
        return result

    def summed_axes(self, g: str, x: str) -> tuple[int, ...] | None:
        """Return the axes over which `g` is to be summed for the shape of `x`, which was broadcast; None if unknown."""
        wide, narrow = (getattr(self.known.types.get(value), "shape", None) for value in (g, x))
        if wide is None or narrow is None:
            return None
        padded = (1,) * (len(wide) - len(narrow)) + narrow
        axes = tuple(i for i, (a, b) in enumerate(zip(wide, padded, strict=True)) if not same(a, b))
        return axes if all(padded[i] == 1 for i in axes) else None

    def may_be_float(self, value: str) -> bool:
        """Return whether a value may consist of floats."""
        found = self.known.types.get(value, TensorType())
        return isinstance(found, TensorType) and (found.dtype is None or found.dtype.is_float)

    def error(self, node: Node) -> UserError:
        """Return the error for a node without a derivative."""
        known = sorted({name.partition("_")[0] for name in functions() if name[0].isupper()})
        message = f"the value {node.outputs[0]!r} is a result of {node.op}, which has no derivative here"
        return UserError(message, where=self.where, hint=f"There are derivatives of {', '.join(known)}.")


@dataclass(frozen=True, slots=True)
class _Reference:
    """The attribute of that name of the node that a function stands for."""

    name: str


@dataclass(frozen=True, slots=True)
class _Step:
    op: str
    inputs: tuple[str, ...]
    output: str
    attrs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Function:
    inputs: tuple[str, ...]
    output: str
    steps: tuple[_Step, ...]


@cache
def functions() -> dict[str, _Function]:
    """Return the functions in `derivatives.txt` by name."""
    from onnx import parser

    tensor = partial(constant_from_proto, files=None, where=str(DATA))

    def attribute(a: Any) -> Any:
        return _Reference(a.ref_attr_name) if a.ref_attr_name else attribute_from_proto(a, Graph, tensor)

    text = "".join(line for line in DATA.read_text(encoding="utf-8").splitlines(keepends=True) if line[0] != "#")
    found = {}
    for part in re.split(r"\n+(?=\w)", text.strip()):
        proto = parser.parse_function(f'<domain: "derivatives", opset_import: ["": {OPSET}]> {part}')
        steps = (_Step(n.op_type, tuple(n.input), n.output[0], {a.name: attribute(a) for a in n.attribute})
                 for n in proto.node)  # fmt: skip
        found[proto.name] = _Function(tuple(proto.input), proto.output[0], tuple(steps))
    return found


def _with_inverses(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node's attributes, and the inverses of permutations and transpositions among them."""
    found = dict(attrs)
    if "perm" in attrs:
        found["inverse_perm"] = tuple(int(axis) for axis in np.argsort(attrs["perm"]))
    for key in ("transA", "transB"):
        transposed = attrs.get(key, 0)
        found |= {f"not_{key}": 1 - transposed, f"order_{key}": (1, 0) if transposed else (0, 1)}
    return found
