"""What is known of a class of an e-graph: its types, its contents, and what two such descriptions say together."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .constants import ConstantInfo
from .graph import Constant, OtherType, TensorType, ValueType
from .shapes import SymbolicValue
from .symbolic import Dim, known, same, symbols


@dataclass(slots=True)
class Facts:
    """What is known of a class."""

    types: tuple[ValueType, ...]
    constant: ConstantInfo | None = None
    value: SymbolicValue | None = None
    is_const: bool = False
    numbers: list[int] = field(default_factory=list, compare=False)


def symbolic_contents(info: ConstantInfo) -> SymbolicValue | None:
    """The contents of a small constant of integers as dims."""
    array = info.elements
    if array is None or array.ndim > 1 or array.size > 64 or array.dtype.kind not in "iu":
        return None
    return SymbolicValue(tuple(int(v) for v in array.reshape(-1)), array.ndim)


def holds(type_: ValueType, value: SymbolicValue) -> bool:
    """Whether an element type can hold contents, as far as they are known numbers."""
    if not isinstance(type_, TensorType) or type_.dtype is None or type_.dtype.numpy.kind not in "iu":
        return True
    limits = np.iinfo(type_.dtype.numpy.name)
    return all(limits.min <= d <= limits.max for d in value.dims if isinstance(d, int))


def array_of(what: Facts | None) -> Constant | None:
    """The constant that a class is known to equal, if its elements are at hand."""
    if what is None or what.constant is None or what.constant.elements is None:
        return None
    return Constant(what.constant.elements)


def refine(a: ValueType, b: ValueType) -> ValueType:
    """What two descriptions of one value say together."""
    if isinstance(a, OtherType) or isinstance(b, OtherType):
        return a if isinstance(a, OtherType) else b
    shape = a.shape
    if a.shape is None:
        shape = b.shape
    elif b.shape is not None and len(a.shape) == len(b.shape):
        shape = tuple(y if _openness(y) < _openness(x) else x for x, y in zip(a.shape, b.shape, strict=True))
    return TensorType(a.dtype or b.dtype, shape)


def _openness(dim: Dim) -> int:
    """How little a dim says: a number says most, then one in the model's own symbols, then those that stand for sizes
    the model left open, then those that inference made up while rewriting."""
    if known(dim):
        return 0
    return 1 + sum(2 if name.startswith("_e") else name.startswith("_") for name in symbols(dim))


def agree(a: tuple[ValueType, ...], b: tuple[ValueType, ...], *, loose: bool = False) -> bool:
    """Whether types are provably the same; `loose` lets what is unknown on either side pass."""
    if len(a) != len(b):
        return False
    for x, y in zip(a, b, strict=True):
        if isinstance(x, OtherType) or isinstance(y, OtherType):
            if x != y:
                return False
            continue
        if x.dtype != y.dtype and not (loose and (x.dtype is None or y.dtype is None)):
            return False
        if x.shape is None or y.shape is None:
            if not loose:
                return False
            continue
        if len(x.shape) != len(y.shape):
            return False
        for i, j in zip(x.shape, y.shape, strict=True):
            if not same(i, j) and not (loose and not (known(i) and known(j))):
                return False
    return True
