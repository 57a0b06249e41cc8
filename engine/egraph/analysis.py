"""Analysis of e-classes: types, contents, and the meet of two descriptions of a class.

Here e-nodes are typed: `infer_facts` derives what is known of an e-node from its children (an e-class analysis:
Willsey et al., "egg", POPL 2021, section 4); `contents_of` and `fold` find the constant that it equals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..ir.constants import SMALL, ConstantInfo
from ..ir.graph import AttrValue, Constant, DType, OtherType, TensorType, ValueType
from ..ir.names import CAPTURES
from ..ir.protos import without_shapes
from ..ir.symbolic import Dim, known, same, symbols
from ..operators.folding import evaluate
from ..operators.inference import SymbolicValue, infer
from ..operators.type_inference import complete_type
from .signs import UNKNOWN, Sign, infer_sign

T = TypeVar("T")
_LARGEST = 2**31
"""Maximum product of the non-empty axes of an empty tensor: NumPy refuses to make larger ones."""


@dataclass(frozen=True, slots=True)
class ENode:
    """An operator over classes.

    `attrs` is an interned dictionary: equal attribute sets are one object. A node with several `outputs` has a tuple as
    its value, which `Proj` takes apart. `serial` separates nodes that must not merge: two draws of a random operator.
    Leaves are `Absent`, `Input` (attribute `name`) and `Const` (attribute `digest`)."""

    op: str
    attrs: Mapping[str, AttrValue]
    children: tuple[int, ...]
    outputs: int = 1
    serial: int = 0

    def split(self, items: Sequence[T]) -> tuple[Sequence[T], dict[str, T]]:
        """Divide items, one for each child, into those of the inputs and, by name, those of captured values."""
        names = self.attrs.get(CAPTURES, ())
        assert isinstance(names, tuple)
        count = len(items) - len(names)
        return items[:count], dict(zip(map(str, names), items[count:], strict=True))


@dataclass(slots=True)
class Facts:
    """What is known of a class.

    `types` has a type for each output. `is_const` means that the class has a term over constants only. `sign` is that
    of a tensor. `numbers` caches `EGraph.number`."""

    types: tuple[ValueType, ...]
    constant: ConstantInfo | None = None
    value: SymbolicValue | None = None
    is_const: bool = False
    sign: Sign = UNKNOWN
    numbers: list[int] = field(default_factory=list, compare=False)


def infer_facts(
    node: ENode, children: Sequence[Facts | None], fresh: Callable[[], Dim], stated: tuple[ValueType, ...] | None
) -> Facts:
    """Infer what is known of a node from its children, which are None where absent.

    `stated` are the types that the model states of the outputs. Raises `IllTyped` if the node fails on such inputs."""
    is_const = bool(children) and not node.serial and all(c is None or c.is_const for c in children)
    if node.op == "Proj":
        assert children[0] is not None
        index = node.attrs["index"]
        assert isinstance(index, int)
        types = children[0].types
        return Facts((types[index] if index < len(types) else TensorType(),), is_const=is_const)
    captured = node.attrs.get(CAPTURES, ())
    inputs = children[: len(children) - len(captured)] if isinstance(captured, tuple) else ()
    inference = infer(
        node.op,
        node.attrs,
        [None if c is None else c.types[0] for c in inputs],
        [None if c is None else c.value for c in inputs],
        node.outputs,
        constants=[None if c is None or (array := _elements(c)) is None else Constant(array) for c in inputs],
        fresh=fresh,
    )
    types = inference.types
    if stated is not None:
        types = tuple(refine(a, b) for a, b in zip(types, stated, strict=False))
    is_const &= not any(isinstance(t, OtherType) for t in types)  # sequences are not folded: rules take them apart
    value = inference.values[0] if node.outputs == 1 and inference.values else None
    if value is not None and not _holds(types[0], value):
        value = None  # dims are unbounded integers, but this sum or product of them wraps around
    sign = UNKNOWN
    if node.outputs == 1:
        dtype = types[0].dtype if isinstance(types[0], TensorType) else None
        signs = [None if c is None else c.sign for c in children]
        square = len(children) == 2 and children[0] is children[1]
        sign = infer_sign(node.op, signs, wraps=dtype is None or not dtype.is_float, square=square)
    return Facts(types, None, value, is_const, sign)


def _elements(facts: Facts) -> NDArray[Any] | None:
    """Return the elements of the constant that a class is known to equal, if they are available."""
    return None if facts.constant is None else facts.constant.elements


def _holds(type_: ValueType, value: SymbolicValue) -> bool:
    """Whether an element type can hold contents, as far as they are known numbers."""
    if not isinstance(type_, TensorType) or type_.dtype is None or type_.dtype.numpy.kind not in "iu":
        return True
    limits = np.iinfo(type_.dtype.numpy.name)
    return all(limits.min <= d <= limits.max for d in value.dims if isinstance(d, int))


def contents_of(facts: Facts) -> Constant | None:
    """Return the constant of known numbers that a class holds, or None."""
    type_ = facts.types[0]
    if facts.value is None or not isinstance(type_, TensorType) or type_.dtype is None or type_.dtype.is_float:
        return None
    if not all(known(d) for d in facts.value.dims):
        return None
    return Constant(np.array(facts.value.dims, type_.dtype.numpy).reshape(facts.value.shape))


def empty_constant(type_: ValueType) -> Constant | None:
    """Return the constant that a tensor without elements is; None for any other type.

    Without this, rules about slices would rewrite it forever, since an empty tensor is a slice of itself."""
    if not isinstance(type_, TensorType) or type_.dtype is None or type_.dtype == DType.STRING:
        return None
    dims = type_.shape
    if dims is None or not type_.is_static or 0 not in dims:
        return None
    if math.prod(d or 1 for d in dims if isinstance(d, int)) > _LARGEST:
        return None
    return Constant(np.empty(dims, type_.dtype.numpy))  # type: ignore[arg-type]


def fold(node: ENode, children: Sequence[Facts | None], type_: ValueType) -> Constant | None:
    """Evaluate a small node over small constants; None where that is impossible or too large."""
    shape = type_.shape if isinstance(type_, TensorType) and type_.is_static else None
    if math.prod(d for d in shape or () if isinstance(d, int)) > SMALL:
        return None
    arrays = [None if child is None else _elements(child) for child in children]
    if any(child is not None and array is None for child, array in zip(children, arrays, strict=True)):
        return None
    result = evaluate(node.op, node.attrs, arrays, 1)
    if result is None or result[0] is None or result[0].size > SMALL:
        return None
    return Constant(result[0])


def symbolic_contents(info: ConstantInfo) -> SymbolicValue | None:
    """Return the contents of a small constant of integers as dims."""
    array = info.elements
    if array is None or array.ndim > 1 or array.size > 64 or array.dtype.kind not in "iu":
        return None
    return SymbolicValue(tuple(int(v) for v in array.reshape(-1)), array.ndim)


def combine(a: Facts, b: Facts) -> Facts:
    """Combine what two descriptions say of one class."""
    types = tuple(refine(x, y) for x, y in zip(a.types, b.types, strict=True))
    return Facts(types, a.constant or b.constant, a.value or b.value, a.is_const or b.is_const, a.sign | b.sign)


def refine(a: ValueType, b: ValueType) -> ValueType:
    """Combine two descriptions of one value; of two dims the one that says more."""
    return complete_type(a, b, lambda x, y: _openness(y) < _openness(x))


def _openness(dim: Dim) -> int:
    """Rank dims by how little they say.

    A number says most, then an expression in the model's symbols, then in those of sizes that the model leaves open,
    then in those that inference introduced during rewriting."""
    if known(dim):
        return 0
    return 1 + sum(2 if name.startswith("_e") else name.startswith("_") for name in symbols(dim))


def agree(a: tuple[ValueType, ...], b: tuple[ValueType, ...], *, loose: bool = False) -> bool:
    """Whether types are provably the same; `loose` accepts what is unknown on either side."""
    return len(a) == len(b) and all(_agree(x, y, loose) for x, y in zip(a, b, strict=True))


def _agree(x: ValueType, y: ValueType, loose: bool) -> bool:
    if isinstance(x, OtherType) or isinstance(y, OtherType):
        if not (isinstance(x, OtherType) and isinstance(y, OtherType)):
            return False
        return x.plain == y.plain or without_shapes(x.proto) == without_shapes(y.proto)
    if x.dtype != y.dtype and not (loose and None in (x.dtype, y.dtype)):
        return False
    if x.shape is None or y.shape is None:
        return loose
    pairs = list(zip(x.shape, y.shape, strict=False))
    return len(x.shape) == len(y.shape) and all(same(i, j) or (loose and not (known(i) and known(j))) for i, j in pairs)
