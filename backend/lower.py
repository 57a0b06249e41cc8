"""Lowering: from groups of nodes to steps that call kernels.

A lowerer is a function registered for the operators it implements. It reads a group through its `Context`, and gives
the steps, or None if it can't do this group natively: then the framework splits the group, and a single node that no
lowerer takes falls back. Lowerers live in `kernels/`, one module per family.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from ..engine.graph import Constant, DType, Graph, Node, TensorType
from ..engine.symbolic import Dim
from .arrays import Contents, aligned, usable
from .kernel_graph import Group, Item, Kernel, Shape, Step, Target, View, fresh_name

__all__ = ["Context", "Group", "Kernel", "Lowerer", "Shape", "Step", "Target", "View", "lowerer_of", "lowering"]

Lowerer = Callable[[Group, "Context"], "Sequence[Item] | None"]
_REGISTRY: dict[str, Lowerer] = {}


def lowering(*ops: str) -> Callable[[Lowerer], Lowerer]:
    """Registers a lowerer for groups anchored at one of the operators; `lowering("")` is for groups without an anchor.

    A lowerer must not write to the context before it is sure to succeed. It may assume that every input and output of
    the group is a tensor of known dtype and rank."""

    def register(lowerer: Lowerer) -> Lowerer:
        for op in ops:
            assert op not in _REGISTRY or _REGISTRY[op].__qualname__ == lowerer.__qualname__, f"two lowerers for {op}"
            _REGISTRY[op] = lowerer
        return lowerer

    return register


@cache
def _load() -> None:
    from . import kernels

    for module in sorted(m.name for m in pkgutil.iter_modules(kernels.__path__)):
        importlib.import_module(f"{kernels.__name__}.{module}")


def lowerer_of(op: str) -> Lowerer | None:
    """The lowerer for groups anchored at `op` (`""`: no anchor), None if there is none."""
    _load()
    return _REGISTRY.get(op)


class Context:
    """What a lowerer may know of the model and the machine, and where it puts packed weights and temporaries.

    `threads` is how many the program will most likely run with; kernels must be right with any number. `reassociate`
    says whether results may be rounded otherwise than by the plain order of operations."""

    def __init__(
        self,
        graph: Graph,
        target: Target,
        threads: int = 1,
        contents: Mapping[str, tuple[Dim, ...]] | None = None,
        reassociate: bool = True,
    ) -> None:
        self.graph = graph
        self.target = target
        self.threads = threads
        self.reassociate = reassociate
        self.added_constants: dict[str, Constant] = {}
        self.added_types: dict[str, TensorType] = {}
        self.made: set[str] = set()  # what the items planned so far write
        self._makers: dict[str, Node] | None = None
        self._contents = dict(contents or {})
        self._contents_known = Contents()
        self._taken = {*graph.types, *graph.inputs, *graph.constants}

    def type(self, value: str, /) -> TensorType:
        """The tensor type of a value of the graph or of one that lowering added."""
        return self.added_types.get(value) or self.graph.type(value)

    def constant(self, value: str, /) -> Constant | None:
        """The contents of a value, None when it isn't constant."""
        return self.graph.constants.get(value) or self.added_constants.get(value)

    def ints(self, value: str, /) -> tuple[int, ...] | None:
        """The elements of a constant integer tensor, flat; None when not constant."""
        found = self.constant(value)
        return None if found is None else tuple(int(v) for v in found.array.ravel().tolist())

    def contents(self, value: str, /) -> tuple[Dim, ...] | None:
        """The elements of an integer tensor of rank 0 or 1 in terms of dims, if they are known; constants too."""
        found = self.constant(value)
        if found is not None and found.array.ndim <= 1 and found.array.dtype.kind in "iu" and found.array.size <= 64:
            return tuple(int(v) for v in found.array.ravel().tolist())
        return self._contents.get(value)

    def maker(self, value: str, /) -> Node | None:
        """The node of the graph that makes a value, None if none does."""
        if self._makers is None:
            self._makers = {v: node for node in self.graph.nodes for v in node.outputs if v}
        return self._makers.get(value)

    @cached_property
    def columns(self) -> frozenset[str]:
        """The values that may be laid out as columns of wider ones (see `pitch`): operands of Concats along the last
        axis, and what Split and Slice cut."""
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
        """Whether a value is there as a tensor when the group being lowered runs: none that lies within a kernel."""
        return value in self.made or value in self.graph.constants or value in self.graph.inputs

    def add_constant(self, array: NDArray[np.generic], hint: str = "packed") -> str:
        """A new constant with these contents (packed weights); its name. Equal contents give the same name."""
        if not usable(array):
            copy = aligned(array.shape, array.dtype)
            copy[...] = array
            array = copy
        name = self._contents_known.name(array, fresh := fresh_name(hint, self._taken))
        if name == fresh:
            constant = self.added_constants[name] = Constant(array)
            self.added_types[name] = constant.type
        return name

    def new_value(self, type: TensorType, hint: str = "temp") -> str:  # noqa: A002
        """A new intermediate value that some step writes and later ones read; its name."""
        assert type.dtype is not None
        assert type.shape is not None
        name = fresh_name(hint, self._taken)
        self.added_types[name] = type
        return name

    def bytes_value(self, size: Dim, hint: str = "temp") -> str:
        """A new intermediate of `size` bytes without a structure."""
        return self.new_value(TensorType(DType.U8, (size,)), hint)
