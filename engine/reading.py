"""What is known of the values of a graph while it is read: names, types, constants, small contents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .fold import evaluate
from .graph import Constant, DType, Graph, Node, TensorType, ValueType
from .operators import is_pure
from .protos import type_from_proto
from .shapes import IllTyped, Misfit, SymbolicValue, contents_of, fresh_dims, infer
from .symbolic import Dim, known

SMALL = 64
"""Constants of at most this many elements are computed with, to learn shapes that depend on them."""


@dataclass(slots=True)
class Knowledge:
    """Types, constants and contents by value, for a graph and all graphs in it: names are unique across them."""

    taken: set[str] = field(default_factory=set)
    types: dict[str, ValueType] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    contents: dict[str, SymbolicValue] = field(default_factory=dict)
    fresh: Any = field(default_factory=lambda: fresh_dims("_d"))
    refused: list[str] = field(default_factory=list)
    """For each node that fails on all inputs of the types that theirs have why it does, if sizes that are numbers show
    it; empty if they don't."""

    def type(self, value: str) -> TensorType:
        """The tensor type of a value; all unknown if nothing else is."""
        found = self.types.get(value)
        return found if isinstance(found, TensorType) else TensorType()

    def new_value(self, hint: str) -> str:
        """A name that no value has yet: the hint itself, or with a number behind."""
        name, n = hint, 1
        while name in self.taken:
            n += 1
            name = f"{hint}_{n}"
        self.taken.add(name)
        return name

    def add(self, graph: Graph, name: str, constant: Constant) -> None:
        """Adds a constant to a graph."""
        self.taken.add(name)
        graph.constants[name] = constant
        self.constants[name] = constant
        self.types[name] = constant.type
        found = contents_of(constant)
        if found is not None:
            self.contents[name] = found

    def alias(self, name: str, source: str) -> None:
        """Notes that a value is another one under a second name."""
        for table in (self.types, self.constants, self.contents):
            if source in table:
                table[name] = table[source]  # type: ignore[assignment]

    def context(self, graph: Graph) -> GraphContext:
        """The context for adapters of nodes of this graph."""
        return GraphContext(self, graph)

    def infer(self, node: Node, graph: Graph, declared: Mapping[str, Any] | None = None) -> Node:
        """Notes what is known of a node's outputs, and gives the node. `declared` are types the model states."""
        types = [self.types.get(name, TensorType()) if name else None for name in node.inputs]
        try:
            inference = infer(
                node.op,
                node.attrs,
                types,
                [self.contents.get(name) for name in node.inputs],
                len(node.outputs),
                constants=[self.constants.get(name) for name in node.inputs],
                fresh=self.fresh,
            )
            found, values = inference.types, inference.values
        except IllTyped as why:
            # It fails if it is run; that is for whoever runs it to say, it may be in a branch never taken.
            found, values = (TensorType(),) * len(node.outputs), (None,) * len(node.outputs)
            self.refused.append(str(why).removeprefix(f"{node.op}: ") if self.misfits(node) else "")
        for name, what, value in zip(node.outputs, found, values, strict=True):
            if name:
                stated = (declared or {}).get(name)
                self.types[name] = what if stated is None else self.refined(what, stated)
                if value is not None:
                    self.contents[name] = value
        self.compute(node)
        return node

    def misfits(self, node: Node) -> bool:
        """Whether inputs of a node have sizes, all of them positive numbers, that differ where they must be equal.

        Symbols are taken for any sizes: a model may run with two under one name. Of tensors without elements nothing
        is said."""
        types: list[ValueType | None] = []
        for name in node.inputs:
            found = self.types.get(name, TensorType()) if name else None
            if isinstance(found, TensorType) and found.shape is not None:
                found = TensorType(found.dtype, tuple(d if known(d) else self.fresh() for d in found.shape))
                if 0 in (found.shape or ()):
                    return False
            types.append(found)
        contents = [self.contents.get(name) for name in node.inputs]
        numbers = [v if v is not None and all(known(d) for d in v.dims) else None for v in contents]
        constants = [self.constants.get(name) for name in node.inputs]
        try:
            infer(node.op, node.attrs, types, numbers, len(node.outputs), constants=constants, fresh=self.fresh)
        except Misfit:
            return True
        except IllTyped:
            return False
        return False

    def refined(self, inferred: ValueType, stated: Any) -> ValueType:
        """The inferred type, completed by what the model states where nothing was inferred."""
        given = type_from_proto(stated, lambda name: self.fresh(), self.fresh)
        if not isinstance(inferred, TensorType) or inferred == TensorType():
            return given if isinstance(inferred, TensorType) else inferred
        if not isinstance(given, TensorType):
            return inferred
        shape = given.shape if inferred.shape is None else inferred.shape
        if inferred.shape is not None and given.shape is not None and len(given.shape) == len(inferred.shape):
            # A dim of which inference knows nothing is the number that the model states.
            shape = tuple(g if known(g) and _free(i) else i for i, g in zip(inferred.shape, given.shape, strict=True))
        return TensorType(inferred.dtype or given.dtype, shape)

    def compute(self, node: Node) -> None:
        """Evaluates a node over small constants, so that shapes which depend on it are known."""
        if not node.inputs or not is_pure(node.op, node.attrs) or any(True for _ in node.subgraphs()):
            return
        arrays: list[np.ndarray | None] = []
        for name in node.inputs:
            array = self.small(name) if name else None
            if name and array is None:
                return
            arrays.append(array)
        for name in node.outputs:
            shape = self.type(name).shape
            if name and (shape is None or not all(known(d) for d in shape) or int(np.prod(shape)) > SMALL):  # type: ignore[arg-type]
                return
        results = evaluate(node.op, node.attrs, arrays, len(node.outputs), limit=SMALL * 16)
        for name, array in zip(node.outputs, results or (), strict=False):
            if name:
                constant = Constant(array)
                self.constants[name] = constant
                self.types[name] = constant.type
                found = contents_of(constant)
                if found is not None:
                    self.contents[name] = found

    def small(self, name: str) -> np.ndarray | None:
        """The contents of a value, if they are known and few."""
        constant = self.constants.get(name)
        if constant is not None:
            return constant.array if constant.array.size <= SMALL else None
        value, dtype = self.contents.get(name), self.type(name).dtype
        if value is None or dtype is None or not all(known(d) for d in value.dims):
            return None
        return np.array(value.dims, dtype.numpy).reshape(value.shape)

    def body_input(self, node: Any, i: int, given: ValueType, inputs: list[str]) -> ValueType:
        """The type of input i of a body: what the body states, completed by what is known around it.

        The number of an iteration and a condition are scalars; a slice of a scanned input has its type without the
        scanned axis; a state of Scan keeps its shape. A state of Loop may change its shape, so only its element type
        is taken over."""
        if not isinstance(given, TensorType) or node.domain not in ("", "ai.onnx"):
            return given
        if node.op_type == "Loop":
            if i < 2:
                return TensorType((DType.I64, DType.BOOL)[i], ())
            outer = self.types.get(inputs[i]) if i < len(inputs) else None
            if outer is not None and not isinstance(outer, TensorType):
                return outer
            return TensorType(given.dtype or (outer.dtype if outer else None), given.shape)
        if node.op_type == "Scan":
            numbers = {a.name: a for a in node.attribute}
            if "num_scan_inputs" not in numbers or i >= len(inputs):
                return given
            states = len(inputs) - numbers["num_scan_inputs"].i
            around = self.type(inputs[i])
            if i < states:
                return TensorType(given.dtype or around.dtype, given.shape if around.shape is None else around.shape)
            axes = list(numbers["scan_input_axes"].ints) if "scan_input_axes" in numbers else []
            axis = axes[i - states] if axes else 0
            if around.shape is None or not -len(around.shape) <= axis < len(around.shape):
                return TensorType(given.dtype or around.dtype, given.shape)
            axis %= len(around.shape)
            return TensorType(given.dtype or around.dtype, (*around.shape[:axis], *around.shape[axis + 1 :]))
        return given


def _free(d: Dim) -> bool:
    """Whether nothing is known of the dim: it is a symbol of our own making."""
    text = str(d)
    return text.startswith("_") and text[2:].isdigit()


@dataclass(slots=True)
class GraphContext:
    """What adapters see of a graph that is being read or written (`opsets.Context`)."""

    knowledge: Knowledge
    graph: Graph

    def type(self, value: str) -> TensorType:
        """What is known of a value."""
        return self.knowledge.type(value)

    def constant(self, value: str) -> Constant | None:
        """The contents of a value, if it is a constant."""
        found = self.knowledge.constants.get(value)
        if found is None and value:
            array = self.knowledge.small(value)
            return None if array is None else Constant(array)
        return found

    def contents(self, value: str) -> tuple[Dim, ...] | None:
        """The elements of a small integer tensor, if they are followed."""
        found = self.knowledge.contents.get(value)
        return None if found is None else found.dims

    def is_used(self, value: str) -> bool:
        """Whether anything reads the value: outputs that nothing reads have lost their names already."""
        return bool(value)

    def add_constant(self, array: np.ndarray, hint: str) -> str:
        """Adds a constant and gives its name."""
        name = self.knowledge.new_value(hint)
        self.knowledge.add(self.graph, name, Constant(np.ascontiguousarray(array).reshape(np.shape(array))))
        return name

    def new_value(self, hint: str) -> str:
        """A name that no value has."""
        return self.knowledge.new_value(hint)


def rename_values(graph: Graph, names: Mapping[str, str], knowledge: Knowledge | None = None) -> None:
    """Gives values of a graph other names, in the graphs inside it too."""

    def new(values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(v, v) for v in values)

    graph.outputs = new(graph.outputs)
    graph.nodes[:] = [replace(n, inputs=new(n.inputs), outputs=new(n.outputs)) for n in graph.nodes]
    graph.types = {names.get(v, v): t for v, t in graph.types.items()}
    for node in graph.nodes:
        for _, body in node.subgraphs():
            rename_values(body, names)
    if knowledge is not None:
        for old, name in names.items():
            knowledge.alias(name, old)
