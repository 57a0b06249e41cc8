"""Values of a model while it is imported or exported: unique names, types, constants and small contents."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..ir.graph import Constant, DType, Graph, Node, OtherType, TensorType, ValueType, without_axis
from ..ir.names import unique_name
from ..ir.protos import type_from_proto
from ..ir.symbolic import Dim, known, same
from ..operators.folding import evaluate
from ..operators.inference import IllTyped, Misfit, contents_of, fresh_dims, infer
from ..operators.schemas import is_pure
from ..operators.type_inference import TypeEnvironment, complete_type

SMALL = 64
"""Largest number of elements of a constant that is folded on import, to learn shapes that depend on it."""


@dataclass(slots=True)
class ModelValues(TypeEnvironment):
    """The values of a graph and of all graphs in it: names are unique across them.

    `refused` has an entry for each node that fails on all inputs of the types that its inputs have: the reason, if
    known sizes prove it; else empty. `asked` are the dims of the model's inputs, which its caller chooses.

    Symbols of sizes that change in a loop are among these, too. `open_ranks` are values whose rank may differ between
    runs."""

    fresh: Any = field(default_factory=lambda: fresh_dims("_d"))
    constants: dict[str, Constant] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    asked: set[Dim] = field(default_factory=set)
    open_ranks: set[str] = field(default_factory=set)

    def new_value(self, hint: str) -> str:
        """Return a name that no value has yet: the hint itself, or the hint with a number appended."""
        return unique_name(hint, self.taken)

    def add_constant(self, graph: Graph, name: str, constant: Constant) -> None:
        """Add a constant to a graph."""
        self.taken.add(name)
        graph.constants[name] = constant
        self.note_constant(name, constant)

    def note_constant(self, name: str, constant: Constant) -> None:
        """Record that a value is a constant."""
        self.constants[name] = constant
        self.types[name] = constant.type
        contents = contents_of(constant)
        if contents is not None:
            self.contents[name] = contents

    def alias(self, name: str, source: str) -> None:
        """Give a value a second name."""
        for table in (self.types, self.constants, self.contents):
            if source in table:
                table[name] = table[source]  # type: ignore[assignment]

    def add_node(self, node: Node, stated: Mapping[str, Any] | None = None, unread: Container[str] = ()) -> None:
        """Record what is known of a node's outputs; `stated` are the `TypeProto`s that the model states.

        Of outputs in `unread`, which no node reads, an open rank stays open: converters state that of one run."""
        inferred = self.infer(node)
        if inferred.error is not None:
            self.refused.append(str(inferred.error).removeprefix(f"{node.op}: ") if self._misfits(node) else "")

        if self._may_open_rank(node):
            pairs = zip(node.outputs, inferred.types, strict=False)
            self.open_ranks.update(name for name, t in pairs if isinstance(t, TensorType) and t.shape is None)

        def complete(name: str, kind: ValueType) -> ValueType:
            proto = (stated or {}).get(name)
            if proto is None:
                return kind
            found = self.completed(kind, proto)
            if isinstance(found, TensorType) and name in self.open_ranks and name in unread:
                return TensorType(found.dtype)
            return found

        self.record(node, inferred, complete)
        self._fold(node)

    def _may_open_rank(self, node: Node) -> bool:
        """Whether the rank of a node's result may differ between runs, where inference does not know it.

        A Squeeze of all axes that are 1 removes free ones in some runs. The branches of an If may differ in rank, and
        the first value of a loop's state from those that iterations make."""
        opens = node.op in ("If", "Loop") or (node.op == "Squeeze" and len(node.inputs) < 2)
        return opens or not self.open_ranks.isdisjoint(node.inputs)

    def _misfits(self, node: Node) -> bool:
        """Whether known positive sizes of a node's inputs differ where the operator requires equal ones.

        Symbols may stand for any sizes: one name may be used for two of them in a model. Tensors without elements are
        not judged."""
        types: list[ValueType | None] = []
        for name in node.inputs:
            found = self.types.get(name, TensorType()) if name else None
            if isinstance(found, TensorType) and found.shape is not None:
                if 0 in found.shape:
                    return False
                found = TensorType(found.dtype, tuple(d if known(d) else self.fresh() for d in found.shape))
            types.append(found)
        contents = [self.contents.get(name) for name in node.inputs]
        numbers = [v if v is not None and all(known(d) for d in v.dims) else None for v in contents]
        constants = [self.constants.get(name) for name in node.inputs]
        try:
            infer(node.op, node.attrs, types, numbers, len(node.outputs), constants=constants, fresh=self.fresh)
        except IllTyped as error:
            return isinstance(error, Misfit)
        return False

    def completed(self, inferred: ValueType, stated: Any) -> ValueType:
        """Complete an inferred type by the `TypeProto` that the model states.

        A dim of which inference knows nothing becomes the number that the model states. One of an input stays: some
        converters state the sizes of one run."""
        other = type_from_proto(stated, lambda name: self.fresh(), self.fresh)
        return complete_type(inferred, other, self._is_better)

    def _is_better(self, dim: Dim, number: Dim) -> bool:
        return known(number) and _is_fresh(dim) and dim not in self.asked

    def _fold(self, node: Node) -> None:
        """Evaluate a node over small constants, so that shapes which depend on it are known."""
        if not node.inputs or not is_pure(node.op, node.attrs) or any(True for _ in node.subgraphs()):
            return
        arrays = [self.small(name) if name else None for name in node.inputs]
        shapes = [self.type(name).shape for name in node.outputs if name]
        if any(name and array is None for name, array in zip(node.inputs, arrays, strict=True)):
            return
        if any(shape is None or not all(map(known, shape)) or math.prod(shape) > SMALL for shape in shapes):  # type: ignore[operator]
            return
        results = evaluate(node.op, node.attrs, arrays, len(node.outputs), limit=SMALL * 16)
        for name, array in zip(node.outputs, results or (), strict=False):
            if name:
                self.note_constant(name, Constant(array))

    def small(self, name: str) -> np.ndarray | None:
        """Return the elements of a value, if they are known and few."""
        if (constant := self.constants.get(name)) is not None:
            return constant.array if constant.array.size <= SMALL else None
        value, dtype = self.contents.get(name), self.type(name).dtype
        if value is None or dtype is None or not all(known(d) for d in value.dims):
            return None
        return np.array(value.dims, dtype.numpy).reshape(value.shape)

    def body_input(self, node: Any, i: int, stated: ValueType, inputs: list[str]) -> ValueType:
        """Return the type of input `i` of a body: what the body states, completed by what is known around it.

        The iteration number and the condition are scalars. A slice of a scanned input has its type without the scanned
        axis. A state of Scan keeps its shape; a state of Loop may change it, so only its element type is taken over."""
        outer = self.types.get(inputs[i]) if i < len(inputs) else None
        if not isinstance(stated, TensorType) or node.domain not in ("", "ai.onnx"):
            return stated
        if node.op_type == "Loop":
            if i < 2:
                return TensorType((DType.I64, DType.BOOL)[i], ())
            if isinstance(outer, OtherType):
                return outer.plain
            return TensorType(stated.dtype or (outer.dtype if outer else None), stated.shape)
        attributes = {a.name: a for a in node.attribute}
        if node.op_type != "Scan" or "num_scan_inputs" not in attributes or i >= len(inputs):
            return stated
        around = self.type(inputs[i])
        scanned = i - (len(inputs) - attributes["num_scan_inputs"].i)
        if scanned >= 0:
            axes = attributes["scan_input_axes"].ints if "scan_input_axes" in attributes else ()
            around = without_axis(around, axes[scanned] if axes else 0) or TensorType(around.dtype)
        return TensorType(stated.dtype or around.dtype, stated.shape if around.shape is None else around.shape)

    def common_type(self, before: ValueType, after: ValueType, varying: set[Dim]) -> ValueType:
        """Return what is common to the types of a state before and after a run of a loop's body.

        `varying` are the symbols of sizes that may differ between runs. A size that changes becomes a new one, which no
        statement of the model replaces."""
        if not isinstance(before, TensorType) or not isinstance(after, TensorType) or before.shape is None:
            return before
        if after.shape is None or len(after.shape) != len(before.shape):
            return TensorType(before.dtype)
        shape = list(before.shape)
        for axis, (a, b) in enumerate(zip(before.shape, after.shape, strict=True)):
            if a not in varying and not same(a, b):
                varying.add(symbol := self.fresh())
                self.asked.add(symbol)
                shape[axis] = symbol
        return TensorType(before.dtype, tuple(shape))


def _is_fresh(d: Dim) -> bool:
    """Whether a dim is a symbol that the importer made, so that nothing is known of it."""
    return re.fullmatch(r"_.\d+", str(d)) is not None
