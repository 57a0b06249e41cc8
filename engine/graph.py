"""The graph: what ONNX is read into, what the e-graph is made from, and what extraction gives back.

A plain value in static single assignment form. Values are named by strings, as in ONNX; nodes stand in topological
order. Every operator means what it means in ONNX at the working opset (`operators.WORKING_OPSET`) with all attributes
that have a default filled in; `onnx_in` and `onnx_out` translate from and to other opsets.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .symbolic import Dim


class DType(enum.StrEnum):
    """An element type, under the short name that rule files use."""

    F32 = "f32"
    F64 = "f64"
    F16 = "f16"
    BF16 = "bf16"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    BOOL = "bool"
    STRING = "string"
    C64 = "c64"
    C128 = "c128"
    F8E4M3FN = "f8e4m3fn"
    F8E4M3FNUZ = "f8e4m3fnuz"
    F8E5M2 = "f8e5m2"
    F8E5M2FNUZ = "f8e5m2fnuz"
    F8E8M0 = "f8e8m0"
    F4E2M1 = "f4e2m1"
    I4 = "i4"
    U4 = "u4"
    I2 = "i2"
    U2 = "u2"

    @property
    def onnx(self) -> int:
        """The number of this type in ONNX's `TensorProto.DataType`."""
        return _ONNX[self]

    @classmethod
    def from_onnx(cls, number: int) -> DType:
        """The type with that `TensorProto.DataType` number; `ValueError` for one that is not known."""
        for dtype, n in _ONNX.items():
            if n == number:
                return dtype
        raise ValueError(f"unknown ONNX element type {number}")

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype that holds it (`ml_dtypes` for the small floats; strings as `object`)."""
        return _numpy_dtype(self)

    @classmethod
    def from_numpy(cls, dtype: np.dtype[np.generic] | type) -> DType:
        """The element type of arrays with this NumPy dtype. Raises ValueError for one that is not known."""
        return _from_numpy(np.dtype(dtype))

    @property
    def is_float(self) -> bool:
        """Whether it is a real floating-point type."""
        return self.value[0] == "f" or self is DType.BF16

    @property
    def is_integer(self) -> bool:
        """Whether it is a signed or unsigned integer type (bool is not)."""
        return self.value[0] in "iu"

    @property
    def bits(self) -> int:
        """The size of one element in bits (strings: of a pointer)."""
        return _BITS[self]


_ONNX = {
    DType.F32: 1,
    DType.U8: 2,
    DType.I8: 3,
    DType.U16: 4,
    DType.I16: 5,
    DType.I32: 6,
    DType.I64: 7,
    DType.STRING: 8,
    DType.BOOL: 9,
    DType.F16: 10,
    DType.F64: 11,
    DType.U32: 12,
    DType.U64: 13,
    DType.C64: 14,
    DType.C128: 15,
    DType.BF16: 16,
    DType.F8E4M3FN: 17,
    DType.F8E4M3FNUZ: 18,
    DType.F8E5M2: 19,
    DType.F8E5M2FNUZ: 20,
    DType.U4: 21,
    DType.I4: 22,
    DType.F4E2M1: 23,
    DType.F8E8M0: 24,
    DType.U2: 25,
    DType.I2: 26,
}


_NAMES = {
    DType.BOOL: "bool",
    DType.C64: "complex64",
    DType.C128: "complex128",
    **{DType(f"f{bits}"): f"float{bits}" for bits in (16, 32, 64)},
    **{DType(f"{kind[0]}{bits}"): f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
}
_SMALL_NAMES = {
    DType.BF16: "bfloat16",
    DType.F8E4M3FN: "float8_e4m3fn",
    DType.F8E4M3FNUZ: "float8_e4m3fnuz",
    DType.F8E5M2: "float8_e5m2",
    DType.F8E5M2FNUZ: "float8_e5m2fnuz",
    DType.F8E8M0: "float8_e8m0fnu",
    DType.F4E2M1: "float4_e2m1fn",
    DType.I4: "int4",
    DType.U4: "uint4",
    DType.I2: "int2",
    DType.U2: "uint2",
}
_FROM_NAMES = {name: dtype for dtype, name in (_NAMES | _SMALL_NAMES).items()}


# NumPy makes the name of a type anew whenever it is asked for, which is most of what these two take


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


@cache
def _numpy_dtype(dtype: DType) -> np.dtype[np.generic]:
    # not asked of `onnx`, which takes 9 MB: a bundle runs without it
    if dtype is DType.STRING:
        return np.dtype(object)
    if dtype in _NAMES:
        return np.dtype(_NAMES[dtype])
    import ml_dtypes

    found: np.dtype[np.generic] = np.dtype(getattr(ml_dtypes, _SMALL_NAMES[dtype]))
    return found


_BITS = {
    dtype: {"bool": 8, "string": 64, "c64": 64, "c128": 128, "bf16": 16}.get(dtype.value)
    or int("".join(c for c in dtype.value[1:3] if c.isdigit()) if dtype.value[2:3].isdigit() else dtype.value[1])
    for dtype in DType
}


@dataclass(frozen=True, slots=True)
class TensorType:
    """What is known of a tensor: its element type and shape, each None when unknown.

    A shape is a tuple of ints and symbolic `Dim` expressions; its length is the rank."""

    dtype: DType | None = None
    shape: tuple[Dim, ...] | None = None

    @property
    def rank(self) -> int | None:
        """The number of dims, None when unknown."""
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
    """The type of a value that is no dense tensor: a sequence, an optional, a map or a sparse tensor.

    `proto` is the serialised ONNX `TypeProto`; the value passes through opaque operators only."""

    proto: bytes


ValueType = TensorType | OtherType


class Constant:
    """A constant tensor, identified by its content: dtype, shape and bytes.

    `array` is never written to. Equal constants compare and hash equal."""

    def __init__(self, array: NDArray[np.generic]) -> None:
        self.array = array

    @cached_property
    def digest(self) -> str:
        """A hash of dtype, shape and elements (BLAKE2b, 128 bits, hexadecimal)."""
        import hashlib  # and with it the system's library for encryption, 4 MB: runs do without

        head = f"{_type_names(self.array.dtype)}{self.array.shape}".encode()
        data = (
            repr(self.array.tolist()).encode()
            if self.array.dtype.kind == "O"
            else np.ascontiguousarray(self.array).view(np.uint8).data
            if self.array.size and self.array.ndim
            else self.array.tobytes()
        )
        digest = hashlib.blake2b(head, digest_size=16)
        digest.update(data)
        return digest.hexdigest()

    @property
    def type(self) -> TensorType:
        """Its tensor type; always static."""
        return TensorType(DType.from_numpy(self.array.dtype), tuple(self.array.shape))

    @property
    def nbytes(self) -> int:
        """Its stored size in bytes."""
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


@dataclass(slots=True)
class Node:
    """One application of an operator.

    `op` is the operator's name, qualified by its domain unless that is ONNX's own: `Conv`, `com.microsoft.Gelu`,
    `ai.onnx.ml.LabelEncoder`. An absent optional input or unused output is the empty string; trailing ones are cut.
    `rules` names the rules that made the node (empty for one of the original model), `origins` the original nodes it
    stands for. Lists of floats or ints in `attrs` are tuples; strings are `str` (raw bytes where not UTF-8)."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, AttrValue] = field(default_factory=dict)
    name: str = ""
    rules: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    @property
    def domain(self) -> str:
        """The operator's domain; empty for ONNX's own."""
        return self.op.rpartition(".")[0]

    def subgraphs(self) -> Iterator[tuple[str, Graph]]:
        """The graphs among the attributes, with the attribute's name."""
        for key, value in self.attrs.items():
            for graph in value if isinstance(value, tuple) else (value,):
                if isinstance(graph, Graph):
                    yield key, graph


@dataclass(slots=True)
class Graph:
    """A dataflow graph (the model's main graph, or the body of an If, Loop or Scan).

    `types` holds what is known of every value: inputs, constants and node outputs. A subgraph may name values of the
    graphs around it; `captures()` lists them. `opset` maps each domain to the version that the *original model*
    imports, the target of `onnx_out`. An input in `defaults` need not be given when the graph is run. `written` counts
    the nodes of the model that the graph was read from, before reading leaves out what it can; 0 if it was not read."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    types: dict[str, ValueType] = field(default_factory=dict)
    name: str = "graph"
    opset: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    doc: str = ""
    ir_version: int = 0
    defaults: dict[str, Constant] = field(default_factory=dict)
    written: int = 0

    def type(self, value: str) -> TensorType:
        """The tensor type of a value; all unknown if nothing was noted or the value is no tensor."""
        found = self.types.get(value)
        return found if isinstance(found, TensorType) else TensorType()

    def producers(self) -> dict[str, Node]:
        """The node that makes each value."""
        return {out: node for node in self.nodes for out in node.outputs if out}

    def consumers(self) -> dict[str, list[Node]]:
        """The nodes that read each value, those that capture it in a subgraph among them; in graph order."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys((*node.inputs, *(c for _, g in node.subgraphs() for c in g.captures()))):
                if value:
                    found.setdefault(value, []).append(node)
        return found

    def captures(self) -> tuple[str, ...]:
        """The values that this graph and the graphs inside it read from around it, in order of first use."""
        known = {*self.inputs, *self.constants}
        found: dict[str, None] = {}
        for node in self.nodes:
            for value in (*node.inputs, *(c for _, g in node.subgraphs() for c in g.captures())):
                if value and value not in known:
                    found[value] = None
            known.update(node.outputs)
        for value in self.outputs:
            if value and value not in known:
                found[value] = None
        return tuple(found)
