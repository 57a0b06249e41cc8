"""Dataflow graph in SSA form, passed between importer, e-graph, extraction and backend.

A graph is in static single assignment form. Values are named by strings, as in ONNX; nodes are in topological order.
Every operator has its meaning at the working opset (`schemas.WORKING_OPSET`), with all default attributes filled in;
`onnx_io` translates from and to other opsets.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...system.short_text import clipped, listed, plural
from .description import Description
from .symbolic import Dim, symbols


class DType(enum.StrEnum):
    """Element type, under the short name that rule files use."""

    F32 = "f32", 1, "float32", 32
    F64 = "f64", 11, "float64", 64
    F16 = "f16", 10, "float16", 16
    BF16 = "bf16", 16, "bfloat16", 16
    I8 = "i8", 3, "int8", 8
    I16 = "i16", 5, "int16", 16
    I32 = "i32", 6, "int32", 32
    I64 = "i64", 7, "int64", 64
    U8 = "u8", 2, "uint8", 8
    U16 = "u16", 4, "uint16", 16
    U32 = "u32", 12, "uint32", 32
    U64 = "u64", 13, "uint64", 64
    BOOL = "bool", 9, "bool", 8
    STRING = "string", 8, "object", 64
    C64 = "c64", 14, "complex64", 64
    C128 = "c128", 15, "complex128", 128
    F8E4M3FN = "f8e4m3fn", 17, "float8_e4m3fn", 8
    F8E4M3FNUZ = "f8e4m3fnuz", 18, "float8_e4m3fnuz", 8
    F8E5M2 = "f8e5m2", 19, "float8_e5m2", 8
    F8E5M2FNUZ = "f8e5m2fnuz", 20, "float8_e5m2fnuz", 8
    F8E8M0 = "f8e8m0", 24, "float8_e8m0fnu", 8
    F4E2M1 = "f4e2m1", 23, "float4_e2m1fn", 4
    I4 = "i4", 22, "int4", 4
    U4 = "u4", 21, "uint4", 4
    I2 = "i2", 26, "int2", 2
    U2 = "u2", 25, "uint2", 2

    onnx: int
    """Number of this type in ONNX's `TensorProto.DataType`."""
    numpy_name: str
    """Its name in NumPy or `ml_dtypes`."""
    bits: int
    """Size of one element in bits (strings: of a pointer)."""
    is_float: bool
    """Whether it is a real floating-point type."""
    is_integer: bool
    """Whether it is a signed or unsigned integer type (bool is not)."""

    def __new__(cls, name: str, onnx: int = 0, numpy_name: str = "", bits: int = 0) -> DType:
        """Make a member from its row."""
        self = str.__new__(cls, name)
        self._value_, self.onnx, self.numpy_name, self.bits = name, onnx, numpy_name, bits
        self.is_float, self.is_integer = name[0] == "f" or name == "bf16", name[0] in "iu"
        return self

    @classmethod
    def from_onnx(cls, number: int) -> DType:
        """Return the type with this `TensorProto.DataType` number; raises `ValueError` for an unknown one."""
        if number not in _FROM_ONNX:
            raise ValueError(f"unknown ONNX element type {number}")
        return _FROM_ONNX[number]

    @cached_property
    def numpy(self) -> np.dtype[np.generic]:
        """NumPy dtype that holds it (of `ml_dtypes` for the small types; strings are `object`)."""
        # Not asked of `onnx`, whose import takes 9 MB: a bundle runs without it.
        if self is DType.STRING or hasattr(np, self.numpy_name):
            return np.dtype(self.numpy_name)
        import ml_dtypes

        found: np.dtype[np.generic] = np.dtype(getattr(ml_dtypes, self.numpy_name))
        return found

    @classmethod
    def from_numpy(cls, dtype: np.dtype[np.generic] | type) -> DType:
        """Return the element type of arrays with this NumPy dtype; raises `ValueError` for an unknown one."""
        return _from_numpy(np.dtype(dtype))


_FROM_ONNX = {dtype.onnx: dtype for dtype in DType}
_FROM_NAMES = {dtype.numpy_name: dtype for dtype in DType}

# NumPy builds the name of a type at each access, which is most of the time that these two take.


@lru_cache(256)
def _from_numpy(dtype: np.dtype[np.generic]) -> DType:
    if dtype.kind in "OUS":
        return DType.STRING
    found = _FROM_NAMES.get(dtype.name) if dtype.isnative else None
    if found is None:
        raise ValueError(f"no element type is known for arrays of {dtype}")
    return found


@lru_cache(256)
def _type_names(dtype: np.dtype[np.generic]) -> str:
    return f"{dtype.str}:{dtype.name}"


@dataclass(frozen=True, slots=True)
class TensorType:
    """What is known of a tensor: its element type and shape, each None when unknown.

    A shape is a tuple of ints and symbolic dims; its length is the rank."""

    dtype: DType | None = None
    shape: tuple[Dim, ...] | None = None

    @property
    def rank(self) -> int | None:
        """Number of dims, None when unknown."""
        return None if self.shape is None else len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether dtype and every dim are known numbers."""
        return self.dtype is not None and self.shape is not None and all(isinstance(d, int) for d in self.shape)

    def __str__(self) -> str:
        dims = "..." if self.shape is None else ", ".join(map(str, self.shape))
        return f"{self.dtype or '?'}[{dims}]"


@dataclass(frozen=True, slots=True)
class OtherType:
    """Type of a value that is not a dense tensor: a sequence, an optional, a map or a sparse tensor.

    `proto` is the serialized ONNX `TypeProto`; such a value passes through opaque operators only. `members` has the
    types of a sequence's members where the operator that makes it tells them; the sequence's own type does not."""

    proto: bytes
    members: tuple[TensorType, ...] | None = None

    @property
    def plain(self) -> OtherType:
        """The type without its members, which is all that a value of several origins has."""
        return OtherType(self.proto)


ValueType = TensorType | OtherType


def symbols_of(kind: ValueType | None) -> set[str]:
    """Return the names of the symbols in the dims of a type."""
    shape = kind.shape if isinstance(kind, TensorType) else None
    return {name for d in shape or () for name in symbols(d)}


def without_axis(kind: TensorType, axis: int) -> TensorType | None:
    """Return the type of a slice along an axis; None if the tensor is not known to have this axis."""
    if kind.shape is None or not -len(kind.shape) <= axis < len(kind.shape):
        return None
    axis %= len(kind.shape)
    return TensorType(kind.dtype, (*kind.shape[:axis], *kind.shape[axis + 1 :]))


def with_axis(kind: TensorType, axis: int, length: Dim) -> TensorType | None:
    """Return the type of slices stacked along a new axis; None if that is not known to be possible."""
    if kind.shape is None or not -len(kind.shape) - 1 <= axis <= len(kind.shape):
        return None
    axis %= len(kind.shape) + 1
    return TensorType(kind.dtype, (*kind.shape[:axis], length, *kind.shape[axis:]))


class Constant:
    """A constant tensor, identified by its content: dtype, shape and bytes.

    `array` must not be written to. Equal constants compare and hash equal."""

    def __init__(self, array: NDArray[np.generic]) -> None:
        self.array = array
        self._digest = ""

    @property
    def digest(self) -> str:
        """Hash of dtype, shape and elements (BLAKE3, 128 bits, hexadecimal), computed once.

        Threads may hash several constants: before Python 3.12 a `cached_property` lets only one compute at a time."""
        if not self._digest:
            self._digest = self._hash()
        return self._digest

    def _hash(self) -> str:
        from blake3 import blake3  # not where programs are only run

        digest = blake3(f"{_type_names(self.array.dtype)}{self.array.shape}".encode())
        if self.array.dtype.kind == "O":
            digest.update(repr(self.array.tolist()).encode())
        else:
            digest.update(np.ascontiguousarray(self.array).reshape(-1).view(np.uint8).data)
        return digest.hexdigest(length=16)

    @property
    def type(self) -> TensorType:
        """Tensor type of the constant; always static."""
        return TensorType(DType.from_numpy(self.array.dtype), tuple(self.array.shape))

    @property
    def nbytes(self) -> int:
        """Size of the elements in bytes."""
        return int(self.array.nbytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Constant({self.type}, {self.digest[:8]})"


AttrValue: TypeAlias = (
    "int | float | str | bytes | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Constant | Graph"
    " | tuple[Graph, ...] | OtherType"
)
Attrs: TypeAlias = "Mapping[str, AttrValue]"
_LONG = 1000
"""Elements of a list that is not long."""


def graphs_in(attrs: Attrs) -> Iterator[tuple[str, Graph]]:
    """Iterate over the graphs among attributes, with the attribute's name."""
    for key, value in attrs.items():
        if isinstance(value, Graph):
            yield key, value
        elif isinstance(value, tuple) and value and isinstance(value[0], Graph):  # lists are of one type, and long ones
            yield from ((key, graph) for graph in value if isinstance(graph, Graph))  # are of numbers


def long_list_of(values: Sequence[object]) -> type | None:
    """Return the type of all elements of a long list, which need not be looked at one by one; None for other lists.

    Ensembles of trees have lists of millions of numbers."""
    kinds = set(map(type, values)) if len(values) > _LONG else set()
    return kinds.pop() if len(kinds) == 1 else None


def content_text(value: object) -> str:
    """Return a text that equal attributes, nodes and graphs share and different ones do not; `repr` abbreviates."""
    if isinstance(value, Constant):
        return f"Constant({value.digest})"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(content_text, value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {content_text(item)}' for key, item in value.items())}}}"
    if is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__}{content_text([getattr(value, f.name) for f in fields(value)])}"
    return repr(value)


def trimmed(values: Iterable[str]) -> tuple[str, ...]:
    """Return the values of a node without the absent ones at the end."""
    present = list(values)
    while present and not present[-1]:
        present.pop()
    return tuple(present)


@dataclass(slots=True)
class Node:
    """One application of an operator.

    `op` is the operator's name, qualified by its domain unless that is ONNX's own: `Conv`, `com.microsoft.Gelu`,
    `ai.onnx.ml.LabelEncoder`. An absent optional input or unused output is the empty string; trailing ones are cut.
    `rules` names the rules that made the node, empty for a node of the model. `origins` are the model's nodes that it
    stands for. Lists of floats or ints in `attrs` are tuples; strings are `str` (bytes if they are not UTF-8)."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, AttrValue] = field(default_factory=dict)
    name: str = ""
    rules: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    def __repr__(self) -> str:
        name = f" {clipped(self.name, 40)}" if self.name and self.name not in self.outputs else ""
        return f"<Node{name}: {listed(self.outputs)} = {clipped(self.op, 40)}({listed(self.inputs, 4)})>"

    @property
    def domain(self) -> str:
        """Domain of the operator; empty for ONNX's own."""
        return self.op.rpartition(".")[0]

    def subgraphs(self) -> Iterator[tuple[str, Graph]]:
        """Iterate over the graphs among the attributes, with the attribute's name."""
        return graphs_in(self.attrs)

    def reads(self) -> tuple[str, ...]:
        """Return the values that the node reads: its inputs, and what the graphs in it capture."""
        return (*filter(None, self.inputs), *(value for _, body in self.subgraphs() for value in body.captures()))


@dataclass(frozen=True, slots=True)
class Requirement:
    """What sizes of inputs have to meet where a model does not fail: `excess` is 0.

    `reason` names the node, and what it means for its operands. `when` has the conditions on which its branch runs:
    one-element booleans, each with the value that it must have."""

    excess: Dim
    reason: str
    when: tuple[tuple[str, bool], ...] = ()


@dataclass(slots=True)
class Graph:
    """A dataflow graph: the model's main graph, or the body of an If, Loop or Scan.

    `types` holds what is known of every value: inputs, constants and node outputs. A subgraph may read values of the
    graphs around it; `captures()` lists them. `opset` maps each domain to the version that the model imports, which is
    the export's target. An input in `defaults` may be omitted when the graph is run. `written` counts the model's
    nodes by operator before import dropped any; empty if the graph was not imported. `about` describes the model.
    `metadata` holds notes of our own. `scopes` has the modules that metadata names for nodes, as written.
    `requirements` are those of the graph that it was made from: rewriting relies on them."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    types: dict[str, ValueType] = field(default_factory=dict)
    name: str = "graph"
    opset: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    about: Description = field(default_factory=Description)
    ir_version: int = 0
    defaults: dict[str, Constant] = field(default_factory=dict)
    written: Mapping[str, int] = field(default_factory=dict)
    scopes: dict[str, str] = field(default_factory=dict)
    requirements: tuple[Requirement, ...] = ()

    def __repr__(self) -> str:
        sizes = f"{plural(len(self.nodes), 'node')}, {plural(len(self.constants), 'constant')}"
        return f"<Graph {clipped(self.name, 30)}: {sizes}, {listed(self.inputs)} → {listed(self.outputs)}>"

    def _repr_html_(self) -> str:
        from ...pages import short_tables  # only notebooks need it

        counts = Counter(node.op for node in self.nodes).most_common()
        return short_tables.table(repr(self).strip("<>"), ("operator", "nodes"), counts)

    def type(self, value: str) -> TensorType:
        """Return the tensor type of a value; all unknown if nothing is known or the value is not a tensor."""
        found = self.types.get(value)
        return found if isinstance(found, TensorType) else TensorType()

    def producers(self) -> dict[str, Node]:
        """Return the node that makes each value."""
        return {out: node for node in self.nodes for out in node.outputs if out}

    def consumers(self) -> dict[str, list[Node]]:
        """Return the nodes that read each value, including those that capture it in a subgraph, in graph order."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.reads()):
                found.setdefault(value, []).append(node)
        return found

    def captures(self) -> tuple[str, ...]:
        """Return the values that this graph and the graphs inside it read from around it, in order of first use."""
        known = {*self.inputs, *self.constants}
        found: dict[str, None] = {}
        for node in self.nodes:
            found.update(dict.fromkeys(value for value in node.reads() if value not in known))
            known.update(node.outputs)
        found.update(dict.fromkeys(value for value in self.outputs if value and value not in known))
        return tuple(found)
