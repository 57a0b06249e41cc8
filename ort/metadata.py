"""What a session says of its model: `NodeArg` and `ModelMetadata`."""

from __future__ import annotations

import contextlib
import mmap
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..backend.runtime.program import Port
from ..engine.ir.graph import DType, OtherType
from ..engine.onnx_io.protobuf_wire import GRAPH, Malformed, fields, varint
from ..system.short_text import clipped

ELEMENT_NAMES = {
    DType.F32: "float",
    DType.F64: "double",
    DType.F16: "float16",
    DType.BF16: "bfloat16",
    DType.I8: "int8",
    DType.I16: "int16",
    DType.I32: "int32",
    DType.I64: "int64",
    DType.U8: "uint8",
    DType.U16: "uint16",
    DType.U32: "uint32",
    DType.U64: "uint64",
    DType.BOOL: "bool",
    DType.STRING: "string",
}
"""ONNX Runtime's names of element types, where they are not ours."""

_UNNAMED = re.compile(r"(?<!\w)_\w")
"""Symbols of dims that the model gives no name: theirs begin with an underscore, and no others do."""

_QUOTED = re.compile(r"'([^']*)'")
"""A name that is no identifier, such as `'batch size'`."""


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output in ONNX Runtime's terms: a `type` such as `tensor(float)`, free dims as names or None."""

    name: str
    type: str
    shape: list[int | str | None]

    def __repr__(self) -> str:
        dims = ", ".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"<NodeArg {clipped(self.name)}: {clipped(f'{self.type}[{dims}]')}>"

    @staticmethod
    def of(port: Port) -> NodeArg:
        """Return the description of an input or output of a program."""
        if isinstance(port.type, OtherType):
            import onnx

            which = onnx.TypeProto.FromString(port.type.proto).WhichOneof("value") or "unknown"
            return NodeArg(port.name, which.removesuffix("_type"), [])
        name = "unknown" if port.dtype is None else ELEMENT_NAMES.get(port.dtype, port.dtype.value)
        return NodeArg(port.name, f"tensor({name})", [_described(dim) for dim in port.shape or ()])


def _described(dim: int | str) -> int | str | None:
    """Return a dim as ONNX Runtime describes it: a name without quotes, None for a dim without a name."""
    if isinstance(dim, int):
        return dim
    if quoted := _QUOTED.fullmatch(dim):
        return quoted[1]
    return None if _UNNAMED.search(dim) else dim


@dataclass(slots=True)
class ModelMetadata:
    """Descriptions in a model's file."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<ModelMetadata {clipped(self.graph_name)}: made by {clipped(self.producer_name)}>"


_MODEL_TEXTS = {2: "producer_name", 4: "domain", 6: "description"}  # fields of ModelProto
_VERSION, _METADATA = 5, 14
_GRAPH_TEXTS = {2: "graph_name", 10: "graph_description"}  # fields of GraphProto


def read_metadata(model: Any) -> ModelMetadata:
    """Return the metadata of a model: a file, the bytes of one, or a `ModelProto`.

    Only the fields of the model and of its graph are visited; no tensor is read."""
    if isinstance(model, Path):
        with (
            model.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            memoryview(data) as view,
        ):
            return _read(view)
    if not isinstance(model, bytes | bytearray | memoryview):
        return _of_proto(model)
    return _read(memoryview(model))


def _read(data: memoryview) -> ModelMetadata:
    found = ModelMetadata()
    with contextlib.suppress(Malformed):  # it was loaded, so this is a form that protobuf's library accepts
        for key, _, _, start, end in fields(data):
            if key in _MODEL_TEXTS:
                setattr(found, _MODEL_TEXTS[key], _text(data, start, end))
            elif key == _VERSION:
                value, _ = varint(data, start)
                found.version = value - (1 << 64) if value >> 63 else value
            elif key == _METADATA:
                entry = {k: _text(data, start + a, start + b) for k, _, _, a, b in fields(data[start:end])}
                found.custom_metadata_map[entry.get(1, "")] = entry.get(2, "")
            elif key == GRAPH:
                for inner, _, _, a, b in fields(data[start:end]):
                    if inner in _GRAPH_TEXTS:
                        setattr(found, _GRAPH_TEXTS[inner], _text(data, start + a, start + b))
    return found


def _text(data: memoryview, start: int, end: int) -> str:
    return bytes(data[start:end]).decode(errors="replace")


def _of_proto(model: Any) -> ModelMetadata:
    return ModelMetadata(
        model.producer_name, model.graph.name, model.domain, model.doc_string, model.graph.doc_string,
        model.model_version, {entry.key: entry.value for entry in model.metadata_props},
    )  # fmt: skip
