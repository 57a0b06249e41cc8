"""Lowering context: facts about the graph and the machine that lowerers read, and the constants and values they add.

The lowerers themselves, one module per family of kernels, are registered in `backend/kernels/registry.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.cost.likely_sizes import likely_sizes
from ...engine.cost.operator_cost import Estimator
from ...engine.ir.graph import Constant, DType, Graph, Node, TensorType
from ...engine.ir.names import unique_name
from ...engine.ir.symbolic import Dim
from ...system.mapped_memory import MappedArrays
from .arrays import Contents, usable
from .kernel import Kernel
from .schedule import Schedules
from .target import Target
from .weight_memory import ReadyMemory, WeightMemory


@dataclass(frozen=True)
class Group:
    """Nodes that become one kernel (or a few): a prologue, at most one anchor, an epilogue of elementwise nodes.

    The nodes of a prologue are elementwise, or those of a group that was joined with this one (`join_groups`).

    `nodes` are in topological order. `inputs` are the values read from outside, constants included, in order of first
    use. `outputs` are the values needed outside, in order of production."""

    nodes: tuple[Node, ...]
    anchor: Node | None  # the one node that isn't elementwise; None if all are
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def node(self) -> Node:
        """The anchor of a group that has one."""
        assert self.anchor is not None
        return self.anchor

    @property
    def op(self) -> str:
        """The operator whose lowerer takes the group: the anchor's, or `""` if all nodes are elementwise."""
        return self.anchor.op if self.anchor else ""

    @property
    def prologue(self) -> tuple[Node, ...]:
        """The nodes before the anchor (none without an anchor)."""
        return self.nodes[: self.nodes.index(self.anchor)] if self.anchor else ()

    @property
    def epilogue(self) -> tuple[Node, ...]:
        """The nodes after the anchor (all of them without an anchor)."""
        return self.nodes[self.nodes.index(self.anchor) + 1 :] if self.anchor else self.nodes

    @property
    def label(self) -> str:
        """The nodes' names, for messages."""
        return " + ".join(node.name or node.op for node in self.nodes)


class Context:
    """Facts about the model and the machine for lowerers, and the packed weights and temporaries that they add.

    `threads` is the likely number of threads of a run; kernels must be right with any number. `reassociate` allows
    results that round differently from the plain order of operations. `schedules` knows those of tuned kernels.
    Weights may be packed in `memory`, where `add_constant` leaves them."""

    def __init__(
        self,
        graph: Graph,
        target: Target,
        threads: int = 1,
        contents: Mapping[str, tuple[Dim, ...]] | None = None,
        reassociate: bool = True,
        schedules: Schedules | None = None,
        memory: ReadyMemory | None = None,
    ) -> None:
        self.graph, self.target, self.threads, self.reassociate = graph, target, threads, reassociate
        self.schedules = schedules
        self.added_constants: dict[str, Constant] = {}
        self.added_types: dict[str, TensorType] = {}
        self.made: set[str] = set()  # values written by the items so far
        self.measured: set[str] = set()  # values whose extents their own lowerers measure
        self._contents = contents or {}
        self._known, self.memory = Contents(), WeightMemory(memory)
        self._taken = {*graph.types, *graph.inputs, *graph.constants}
        self._weights = MappedArrays(constant.array for constant in graph.constants.values())
        self._weights.give_back()  # earlier stages have read them all

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of the graph's constants."""
        return sum(constant.nbytes for constant in self.graph.constants.values())

    @property
    def real(self) -> DType:
        """The element type that kernels generic in it compute with: f32, or f64 (see `registry.lowering`)."""
        return DType.F64 if self.target.element_bytes == 8 else DType.F32

    def in_f64(self) -> Context:
        """Return this context for kernels that compute in f64; both add to the same constants and values."""
        found = copy(self)
        found.target = replace(self.target, element_bytes=8)
        return found

    def with_bits(self, bits: int) -> Context:
        """Return this context for kernels with vectors of this width; both add to the same constants and values."""
        found = copy(self)
        found.target = self.target.with_bits(bits)
        return found

    def kernel(self, template: str, params: Mapping[str, Any]) -> Kernel:
        """Return a kernel that is rendered for the vectors of this context."""
        bits = 8 * self.target.vector_bytes
        return Kernel(template, {**params, "vector_bits": bits} if self.target.is_narrowed else params)

    def type(self, value: str, /) -> TensorType:
        """Return the tensor type of a value of the graph, or of one that lowering added."""
        return self.added_types.get(value) or self.graph.type(value)

    def constant(self, value: str, /) -> Constant | None:
        """Return the contents of a value; None if it is not constant."""
        return self.graph.constants.get(value) or self.added_constants.get(value)

    def ints(self, value: str, /) -> tuple[int, ...] | None:
        """Return the elements of a constant integer tensor, flat; None if it is not constant."""
        found = self.constant(value)
        return None if found is None else tuple(map(int, found.array.ravel().tolist()))

    def contents(self, value: str, /) -> tuple[Dim, ...] | None:
        """Return the elements of an integer tensor of rank 0 or 1 in terms of dims, if known; constants included."""
        found = self.constant(value)
        if found is not None and found.array.ndim <= 1 and found.array.dtype.kind in "iu" and found.array.size <= 64:
            return self.ints(value)
        return self._contents.get(value)

    def likely(self, dim: Dim) -> int:
        """Return an extent, or a likely value of one that is known at run time only."""
        return dim if isinstance(dim, int) else int(self._estimator.dim(dim))

    @cached_property
    def _estimator(self) -> Estimator:
        return Estimator(likely_sizes(self.graph))

    @cached_property
    def _makers(self) -> dict[str, Node]:
        return self.graph.producers()

    def maker(self, value: str, /) -> Node | None:
        """Return the node of the graph that produces a value; None if there is none."""
        return self._makers.get(value)

    @cached_property
    def columns(self) -> frozenset[str]:
        """Values that may be laid out as columns of wider ones: see `concat_in_place`.

        They are operands of Concats along the last axis, and the operands and results of Split and Slice."""
        found: set[str] = set()
        for node in self.graph.nodes:
            if node.op == "Concat":
                shape = self.type(node.outputs[0]).shape
                if shape is not None and node.attrs.get("axis") in (-1, len(shape) - 1):
                    found.update(node.inputs)
            elif node.op in ("Split", "Slice"):
                found.update(node.inputs[:1], node.outputs)
        return frozenset(found - self.graph.constants.keys())

    def in_memory(self, value: str, /) -> bool:
        """Return whether a value is in memory when the group runs, not only in the registers of a kernel."""
        return value in self.made or value in self.graph.constants or value in self.graph.inputs

    def add_constant(self, array: NDArray[np.generic], hint: str = "packed") -> str:
        """Add a constant, such as packed weights; return its name. Equal contents share a name."""
        self._weights.note(array.nbytes)  # the model's were read for it
        found = self._known.find(array)
        if found is not None:
            self.memory.give_back(array)
            return found
        array = usable(array if isinstance(array.base, np.memmap) else self.memory.copy(array))
        self._known.add(array, name := unique_name(hint, self._taken))
        constant = self.added_constants[name] = Constant(array)
        self.added_types[name] = constant.type
        return name

    def new_value(self, type: TensorType, hint: str = "temp") -> str:  # noqa: A002
        """Add an intermediate value that some step writes and later ones read; return its name."""
        name = unique_name(hint, self._taken)
        self.added_types[name] = type
        return name

    def bytes_value(self, size: Dim, hint: str = "temp") -> str:
        """Add an untyped intermediate of `size` bytes; return its name."""
        return self.new_value(TensorType(DType.U8, (size,)), hint)
