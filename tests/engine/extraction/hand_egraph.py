"""Hand-made e-graphs with the interface that extraction and decoding use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from rewrite.engine.ir.graph import AttrValue, Constant, DType, TensorType, ValueType


@dataclass(frozen=True)
class HandNode:
    op: str
    attrs: Mapping[str, AttrValue]
    children: tuple[int, ...]
    outputs: int = 1
    serial: int = 0


def f32(*shape: int) -> TensorType:
    return TensorType(DType.F32, shape)


class HandEGraph:
    """E-graph in which adding never merges; `union` does, and parents stay separate nodes."""

    def __init__(self) -> None:
        self.nodes: list[HandNode] = [HandNode("Absent", {}, ())]
        self.commutative = frozenset[str]()
        self.made_by: list[str | None] = [None]
        self.unions: list[tuple[int, int, str | None]] = []
        self.origins: list[tuple[str, ...]] = [()]
        self.roots: dict[str, int] = {}
        self.constants: dict[str, object] = {}
        self.earlier: dict[int, tuple[str, ...]] = {}
        self.arrays: dict[str, Constant] = {}
        self._types: list[tuple[ValueType, ...]] = [(TensorType(),)]
        self._const = [False]
        self._parent = [0]
        self._attrs: dict[str, Mapping[str, AttrValue]] = {}

    def add(
        self,
        op: str,
        children: Iterable[int] = (),
        type_: ValueType | tuple[ValueType, ...] | None = None,
        *,
        rule: str | None = None,
        origin: str = "",
        equals: int | None = None,
        serial: int = 0,
        **attrs: AttrValue,
    ) -> int:
        kids = tuple(children)
        handle = len(self.nodes)
        types = type_ if isinstance(type_, tuple) else (type_ or self.types(kids[0])[0],)
        shared = self._attrs.setdefault(repr(attrs), attrs)
        self.nodes.append(HandNode(op, shared, kids, len(types), serial))
        self.made_by.append(rule)
        self.origins.append((origin,) if origin else ())
        self._types.append(types)
        self._const.append(bool(kids) and not serial and all(k == 0 or self.is_const(k) for k in kids))
        self._parent.append(handle)
        if equals is not None:
            self.union(handle, equals)
        return handle

    def input(self, name: str, type_: ValueType) -> int:
        return self.add("Input", (), type_, name=name)

    def const(self, array: object) -> int:
        constant = Constant(np.asarray(array))
        self.arrays[constant.digest] = constant
        handle = self.add("Const", (), constant.type, digest=constant.digest)
        self._const[handle] = True
        return handle

    def union(self, a: int, b: int) -> None:
        low, high = sorted((self.find(a), self.find(b)))
        self._parent[high] = low
        self._const[low] = self._const[low] or self._const[high]

    def find(self, handle: int) -> int:
        while self._parent[handle] != handle:
            handle = self._parent[handle]
        return handle

    def classes(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for handle in range(len(self.nodes)):
            found.setdefault(self.find(handle), []).append(handle)
        return found

    def types(self, handle: int) -> tuple[ValueType, ...]:
        return self._types[self.find(handle)]

    def is_const(self, handle: int) -> bool:
        return self._const[self.find(handle)]
