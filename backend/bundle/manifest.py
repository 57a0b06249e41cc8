"""Manifests of bundles: plans as JSON, with everything except the weights, which `Weights` collects in one file.

A manifest ends with the checksum of all before it: a number in it that changed would be believed."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ...engine.ir.dim_parser import parse
from ...engine.ir.graph import Constant, DType, Graph, Node, OtherType, Requirement, TensorType, ValueType
from ...errors import UserError
from ...system.crc import crc32
from ..ir.arrays import Contents
from ..ir.kernel import ALIGNMENT, SLACK, Kernel, Origin
from ..ir.kernel_graph import (
    Control,
    Fallback,
    Guard,
    Item,
    Join,
    Loop,
    Measure,
    ModelPlan,
    Shape,
    Slicing,
    Step,
    Version,
    View,
)

Json = Any
FORMAT = 13
"""Version of the bundle format; others are refused."""
WEIGHTS = "weights.bin"
_LARGE, _FETCHED = 1 << 21, 8192
"""From this size on, weights are followed by as many bytes, as `MEMORY_HUGE` and `MEMORY_FETCHED` in `memory.h`."""


_CHECKSUM = re.compile(rb',"checksum":(\d{1,10})\}\s*\Z')


def sealed(manifest: Mapping[str, Json]) -> bytes:
    """Return a manifest as JSON that ends with its checksum, in place of any that it has."""
    content = {key: value for key, value in manifest.items() if key != "checksum"}
    text = json.dumps(content, separators=(",", ":")).encode()
    return text[:-1] + b',"checksum":%d}' % crc32(text[:-1])


def is_intact(text: bytes) -> bool:
    """Return whether the text of a manifest ends with its checksum."""
    found = _CHECKSUM.search(text[-64:])
    return found is not None and crc32(text[: len(text) - len(found[0])]) == int(found[1])


class Weights:
    """The constants of a bundle: each distinct one once, at a multiple of the alignment, with slack behind it."""

    def __init__(self) -> None:
        self._known = Contents()
        self._offsets: dict[str, int] = {}
        self._arrays: list[NDArray[Any]] = []
        self.size = 0

    def add(self, constant: Constant) -> Json:
        """Add a constant; return its entry for the manifest."""
        array = constant.array
        if array.dtype.kind == "O":
            return {"strings": [v if isinstance(v, str) else str(v) for v in array.ravel()], "shape": list(array.shape)}
        name = self._known.name(array, fresh := str(len(self._arrays)))
        if name == fresh:
            self._offsets[name] = self.size
            self._arrays.append(array)
            self.size += -(-(array.nbytes + SLACK) // ALIGNMENT) * ALIGNMENT
        dtype = DType.from_numpy(array.dtype).value
        return {"dtype": dtype, "shape": list(array.shape), "offset": self._offsets[name]}

    def write(self, file: BinaryIO) -> None:
        """Write all constants in order, and what kernels may prefetch behind the last one. Raises OSError."""
        for array in self._arrays:
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            file.write(data.data)
            file.write(bytes(-(-(data.nbytes + SLACK) // ALIGNMENT) * ALIGNMENT - data.nbytes))
        if self.size >= _LARGE:
            file.write(bytes(_FETCHED))


def read_constant(data: Json, weights: NDArray[np.uint8]) -> Constant:
    """Return a constant from the mapped weights."""
    shape = tuple(data["shape"])
    if "strings" in data:
        array = np.empty(len(data["strings"]), object)
        array[:] = data["strings"]
        return Constant(array.reshape(shape))
    dtype = DType(data["dtype"]).numpy
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    start = int(data["offset"])
    if start % ALIGNMENT or start < 0 or start + size > len(weights):
        raise ValueError("a weight is outside the file")
    array = np.ndarray(shape, dtype, weights, start)
    array.flags.writeable = False
    return Constant(array)


def dump_plan(plan: ModelPlan, kernels: Mapping[Kernel, str], weights: Weights) -> Json:
    """Return a plan as JSON-serializable data. Raises UserError if it contains an attribute without such a form."""
    return _PLAN.dump(plan, _Context(kernels, weights))


def load_plan(data: Json, kernels: Mapping[str, Kernel], weights: NDArray[np.uint8]) -> ModelPlan:
    """Return the plan that `dump_plan` wrote. Raises KeyError, TypeError or ValueError for anything else."""
    plan: ModelPlan = _PLAN.load(data, _Context(kernels, weights))
    return plan


@dataclass(frozen=True, slots=True)
class _Context:
    """What an item refers to: kernels by name or names by kernel, the weights written or mapped, its operator."""

    kernels: Any
    weights: Any
    op: str = ""


@dataclass(frozen=True, slots=True)
class _Codec:
    """The JSON form of one kind of field: how it is written and read."""

    dump: Callable[[Any, _Context], Json]
    load: Callable[[Json, _Context], Any]


def _plain(load: Callable[[Json], Any]) -> _Codec:
    """Return the codec of a JSON value; `load` checks its type."""
    return _Codec(lambda v, c: v, lambda v, c: load(v))


def _many(one: _Codec) -> _Codec:
    return _Codec(lambda v, c: [one.dump(x, c) for x in v], lambda v, c: tuple(one.load(x, c) for x in v))


def _named(one: _Codec) -> _Codec:
    return _Codec(
        lambda v, c: {name: one.dump(x, c) for name, x in v.items()},
        lambda v, c: {name: one.load(x, c) for name, x in v.items()},
    )


def _optional(one: _Codec) -> _Codec:
    return _Codec(
        lambda v, c: None if v is None else one.dump(v, c), lambda v, c: None if v is None else one.load(v, c)
    )


def _row(make: Callable[..., Any], fields: Callable[[Any], Iterable[Any]], *codecs: _Codec) -> _Codec:
    """Return the codec of a value as a list of its fields, each with its codec."""
    return _Codec(
        lambda v, c: [codec.dump(x, c) for codec, x in zip(codecs, fields(v), strict=True)],
        lambda v, c: make(*(codec.load(x, c) for codec, x in zip(codecs, v, strict=True))),
    )


def _pair(first: _Codec, second: _Codec) -> _Codec:
    return _row(lambda a, b: (a, b), iter, first, second)


def _record(kind: type, **fields: tuple[str, _Codec] | _Codec) -> _Codec:
    """Return the codec of a dataclass: its JSON keys, each with its field (of the same name if none) and codec."""
    known = {key: about if isinstance(about, tuple) else (key, about) for key, about in fields.items()}

    def dump(value: Any, c: _Context) -> Json:
        c = replace(c, op=getattr(value, "op", ""))
        return {key: codec.dump(getattr(value, field), c) for key, (field, codec) in known.items()}

    return _Codec(dump, lambda v, c: kind(**{field: codec.load(v[key], c) for key, (field, codec) in known.items()}))


def _dump_type(kind: ValueType, c: _Context) -> Json:
    if isinstance(kind, OtherType):
        return {"proto": base64.b64encode(kind.proto).decode()}
    return {"dtype": kind.dtype and kind.dtype.value, "shape": _optional(_many(_DIM)).dump(kind.shape, c)}


def _load_type(data: Json, c: _Context) -> ValueType:
    if "proto" in data:
        return OtherType(base64.b64decode(data["proto"]))
    return TensorType(data["dtype"] and DType(data["dtype"]), _optional(_many(_DIM)).load(data["shape"], c))


def _dump_attr(value: Any, c: _Context) -> Json:
    match value:
        case Constant():
            return {"tensor": c.weights.add(value)}
        case OtherType():
            return {"type": _dump_type(value, c)}
        case bytes():
            return {"bytes": base64.b64encode(value).decode()}
        case tuple() if not any(isinstance(v, Graph) for v in value):
            return {"list": [_dump_attr(v, c) for v in value]}
        case str() | int() | float():
            return value
    raise UserError(f"{c.op} has an attribute that a bundle cannot hold")


def _load_attr(data: Json, c: _Context) -> Any:
    if not isinstance(data, dict):
        return data
    if "tensor" in data:
        return read_constant(data["tensor"], c.weights)
    if "type" in data:
        return _load_type(data["type"], c)
    if "bytes" in data:
        return base64.b64decode(data["bytes"])
    return tuple(_load_attr(v, c) for v in data["list"])


def _dump_item(item: Item, c: _Context) -> Json:
    found = item.node if isinstance(item, Fallback) else item
    return _ITEMS[_KEYS[type(found)]].dump(found, c)


def _load_item(data: Json, c: _Context) -> Item:
    item = _ITEMS[next((key for key in data if key in _ITEMS), "kind")].load(data, c)
    return Fallback(item) if isinstance(item, Node) else item


_PLAIN = _plain(lambda v: v)
_STRING, _INTEGER, _FLAG = _plain(str), _plain(int), _plain(bool)
_NAMES = _Codec(lambda v, c: list(v), lambda v, c: tuple(v))
_DIM = _Codec(lambda v, c: v if isinstance(v, int) else str(v), lambda v, c: v if isinstance(v, int) else parse(v))
_TYPE = _Codec(_dump_type, _load_type)
_TYPES = _many(_optional(_TYPE))
_CONSTANTS = _named(_Codec(lambda v, c: c.weights.add(v), lambda v, c: read_constant(v, c.weights)))
_ATTRS = _named(_Codec(_dump_attr, _load_attr))
_WHEN = _many(_pair(_STRING, _FLAG))
_SLICINGS = _many(_row(Slicing, lambda v: (v.axis, v.reverse), _INTEGER, _FLAG))
_REQUIREMENTS = _many(_row(Requirement, lambda v: (v.excess, v.reason, v.when), _DIM, _STRING, _WHEN))
_GUARDS = _many(_row(Guard, lambda v: (v.left, v.right, v.equal), _DIM, _DIM, _FLAG))
_KERNEL = _Codec(lambda v, c: c.kernels[v], lambda v, c: c.kernels[v])
_ORIGIN = _record(Origin, op=_PLAIN, name=_PLAIN, attrs=_ATTRS, inputs=_TYPES, outputs=_TYPES)
_BODY = _Codec(lambda v, c: _PLAN.dump(v, c), lambda v, c: _PLAN.load(v, c))  # a plan inside a plan

_KEYS = {
    Step: "step", View: "view", Join: "join", Shape: "shape", Node: "fallback", Loop: "loop", Control: "control",
    Measure: "measure",
}  # fmt: skip
"""The key that identifies each kind of item."""
_ITEMS: Mapping[str, _Codec] = {
    "step": _record(
        Step, step=("kernel", _KERNEL), inputs=_NAMES, outputs=_NAMES, dims=_many(_DIM), scratch=_DIM,
        in_place=_many(_pair(_INTEGER, _INTEGER)), threads=_DIM, only=_many(_pair(_DIM, _DIM)), nodes=_NAMES,
        origins=_many(_ORIGIN), when=_WHEN,
    ),
    "view": _record(View, view=("input", _PLAIN), output=_PLAIN, offset=_DIM, nodes=_NAMES),
    "join": _record(Join, join=("parts", _NAMES), offsets=_many(_DIM), output=_PLAIN, nodes=_NAMES),
    "shape": _record(Shape, shape=("dims", _many(_DIM)), output=_PLAIN, nodes=_NAMES),
    "measure": _record(Measure, measure=("count", _PLAIN), extent=_PLAIN, most=_DIM, name=_PLAIN),
    "fallback": _record(Node, fallback=("op", _PLAIN), inputs=_NAMES, outputs=_NAMES, attrs=_ATTRS, name=_PLAIN),
    "loop": _record(
        Loop, loop=("op", _PLAIN), body=_BODY, states=_NAMES, scanned=_NAMES, captures=_NAMES, outputs=_NAMES,
        scans=_SLICINGS, makes=_SLICINGS, iterations=_optional(_DIM), count=_PLAIN, going=_PLAIN, ends=_FLAG,
        name=_PLAIN, when=_WHEN,
    ),
    "control": _record(
        Control, control=("op", _PLAIN), inputs=_NAMES, outputs=_NAMES, attrs=_ATTRS, bodies=_many(_BODY),
        captures=_many(_NAMES), name=_PLAIN, when=_WHEN,
    ),
}  # fmt: skip
_PLAN: _Codec = _record(
    ModelPlan, name=_PLAIN, inputs=_NAMES, outputs=_NAMES, symbols=_NAMES, types=_named(_TYPE), constants=_CONSTANTS,
    defaults=_CONSTANTS, items=_many(_Codec(_dump_item, _load_item)),
    versions=_many(_record(Version, guards=_GUARDS, plan=_BODY, fails=_FLAG)), fails=_FLAG,
    requirements=_REQUIREMENTS,
)  # fmt: skip
