"""Model files: parsing, and the tensors in them or beside them."""

from __future__ import annotations

import math
import mmap
import os
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import NotAModel, UserError
from ...system.file_contents import FileState, ReadAhead
from ..ir.detached_model import DETACHED, DetachedModel
from ..ir.graph import Constant, DType
from ..ir.protos import fill_tensor, is_raw, set_location, text_from_proto
from .descriptions import text
from .protobuf_wire import Malformed, lightened

_OWN = "\0"
"""Location in external data entries that stands for the model's own file; no file has this name."""
_DAMAGED = "It is truncated or damaged, or not an ONNX model."
_DESCRIPTIONS = {"doc_string", "metadata_props", "producer_name", "producer_version"}
"""Fields with prose, on which nothing depends."""

_MOST_DIMS, _MOST_ELEMENTS = 64, 1 << 59
"""Limits of NumPy's arrays, for elements of 16 bytes."""
_DIGITS = 20
"""Maximum number of digits of an offset in a file."""
_DENSEST = 1 << 31
"""Maximum size in bytes of a dense copy of a sparse tensor, which is that of any other tensor in a model."""


_MAPPINGS: weakref.WeakValueDictionary[FileState, mmap.mmap] = weakref.WeakValueDictionary()
"""Mappings that are in use: a file that is read again is not mapped again, and its tensors have the same addresses."""


@dataclass(frozen=True, slots=True)
class Files:
    """Sources of tensors that a `ModelProto` does not hold: files in `directory` (None for a model without a file),
    `own`, the bytes of the model, and the tensors of a `DetachedModel`."""

    directory: Path | None = None
    own: memoryview | None = None
    tensors: Mapping[str, np.ndarray] | None = None


def load(source: Any, *, mapped: bool = False) -> tuple[Any, Files, str]:
    """Return `(model, files, name)` of a file, whether it is given as its path, as one that is being read or as its
    bytes, of a `ModelProto`, or of a `DetachedModel`.

    External data is not read yet, and large tensors of a file or bytes are left in place. If `mapped`, a file is mapped
    into memory: it must not be truncated while the tensors are in use. Raises `UserError` for anything but an ONNX
    model."""
    import onnx

    if isinstance(source, DetachedModel):
        _check_names(source.model, "model")
        return source.model, Files(tensors=source.tensors), source.model.graph.name or "model"
    if isinstance(source, onnx.ModelProto):
        _check_names(source, "model")
        return source, Files(), source.graph.name or "model"
    if isinstance(source, bytes | bytearray | memoryview):
        model, own = _parse(bytes(source), "model")
        return model, Files(None, own), "model"
    path = source.path if isinstance(source, ReadAhead) else Path(source)
    where = str(path)
    try:
        raw = _mapped(path) if mapped else source.contents() if isinstance(source, ReadAhead) else path.read_bytes()
    except OSError as error:
        reasons = {FileNotFoundError: "no such file", IsADirectoryError: "this is a directory, not a model"}
        reason = reasons.get(type(error)) or f"cannot be read: {error.strerror or error}"
        raise UserError(reason, where=where) from None
    model, own = _parse(raw, where)
    return model, Files(path.parent, own), where


def detached(path: Path) -> DetachedModel:
    """Return the model of a file as it stands, with its large tensors mapped into memory.

    Other tensors that are not in the model, such as those of bodies, are read into it. The file must not be truncated
    while the tensors are in use. Raises `UserError` for anything but an ONNX model."""
    model, files, where = load(path, mapped=True)
    tensors: dict[str, np.ndarray] = {}
    for tensor in _external_tensors(model.graph.initializer):
        array = constant_from_proto(tensor, files, where).array
        if is_raw(array):
            tensors[tensor.name] = array
            set_location(tensor, DETACHED)
    for tensor in _external_tensors([model]):
        if not any(entry.value == DETACHED for entry in tensor.external_data):
            array = constant_from_proto(tensor, files, where).array
            tensor.CopyFrom(fill_tensor(type(tensor)(), array, tensor.name))
    return DetachedModel(model, tensors)


def _external_tensors(messages: Iterable[Any]) -> Iterator[Any]:
    """Iterate over the tensors in messages, at any depth, whose data is outside the model."""
    import onnx

    for message in messages:
        if isinstance(message, onnx.TensorProto):
            if message.data_location == onnx.TensorProto.EXTERNAL:
                yield message
            continue
        for field, value in message.ListFields():
            if field.message_type is not None:
                yield from _external_tensors(value if field.is_repeated else (value,))


def stored_bytes(path: Path) -> int:
    """Return the size in bytes of a model in a file: of the file and of the data files beside it that it names.

    Raises `UserError` for anything but an ONNX model."""
    model, files, where = load(path, mapped=True)
    named = {entry.value for t in model.graph.initializer for entry in t.external_data if entry.key == "location"}
    paths = [path, *(inside(files.directory or path.parent, name, where) for name in sorted(named - {_OWN}))]
    return sum(p.stat().st_size for p in paths if p.is_file())


def _mapped(path: Path) -> bytes | mmap.mmap:
    """Return the bytes of a file, mapped into memory where that is possible; raises `OSError`."""
    with path.open("rb") as file:
        state = FileState.of(path)
        found = _MAPPINGS.get(state)
        if found is not None:
            return found
        try:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (ValueError, OSError):  # empty, or a pipe
            return file.read()
    _MAPPINGS[state] = mapping
    return mapping


def _parse(raw: bytes | mmap.mmap, where: str) -> tuple[Any, memoryview]:
    """Parse some bytes; return the model and the bytes from which its large tensors are read."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    model, data = onnx.ModelProto(), memoryview(raw)
    try:
        light = lightened(data, _OWN)
    except Malformed:
        light = bytes(data)  # the library reports what is wrong
    try:
        model.ParseFromString(light)
    except DecodeError:
        hint = _DAMAGED
        if raw[:2] == b"PK":
            hint = "It is a ZIP archive, such as a PyTorch checkpoint; export it to ONNX first."
        elif raw[:1] in (b"{", b"<"):
            hint = "It is text, not a binary ONNX model."
        raise NotAModel("not an ONNX model", where=where, hint=hint) from None
    if not model.HasField("graph") or not (model.ir_version or model.opset_import):
        what = "the file is empty" if not raw else "not an ONNX model"
        raise NotAModel(what, where=where, hint="An ONNX model has a graph and lists its operator sets.")
    _check_names(model, where)
    return model, data


def _check_names(message: Any, where: str) -> None:
    """Raise `UserError` for a name that is not UTF-8, which libraries treat differently; descriptions may be
    anything."""
    for field, value in message.ListFields():
        if field.name in _DESCRIPTIONS or field.type not in (field.TYPE_STRING, field.TYPE_MESSAGE):
            continue
        for inner in value if hasattr(value, "extend") else (value,):
            if field.type == field.TYPE_MESSAGE:
                _check_names(inner, where)
            elif isinstance(inner, bytes):
                raise UserError(f"the name {inner[:60]!r} is not UTF-8", where=where, hint=_DAMAGED)


def constant_from_proto(proto: Any, files: Files | None, where: str) -> Constant:
    """Return the contents of a `TensorProto`: mapped into memory if they are in a file of their own, in place if they
    are among the bytes of the model.

    Raises `UserError` if they are missing, do not fit the shape, or would be outside the model's directory."""
    import onnx

    label = f"{where}: tensor {proto.name!r}" if proto.name else where
    try:
        dtype = DType.from_onnx(proto.data_type)
    except ValueError:
        raise UserError(f"unknown element type {proto.data_type}", where=label) from None
    shape = tuple(proto.dims)
    _check_dims(shape, label)
    if files is not None and (array := _detached(proto, files)) is not None:
        return Constant(array)
    raw = _own(proto, files)
    if raw is None and proto.data_location == onnx.TensorProto.EXTERNAL:
        return Constant(_external(proto, dtype, shape, files.directory if files is not None else None, label))
    if dtype is DType.STRING:
        if len(proto.string_data) != math.prod(shape):
            raise UserError("the number of elements does not match the shape", where=label)
        texts = np.empty(len(proto.string_data), object)
        texts[:] = list(map(text_from_proto, proto.string_data))
        return Constant(texts.reshape(shape))
    in_place = dtype.bits >= 8 and sys.byteorder == "little"
    if raw is not None and not in_place:
        proto = _inline(proto, raw)
    elif raw is not None or (proto.HasField("raw_data") and in_place):
        raw = proto.raw_data if raw is None else raw
        if len(raw) != math.prod(shape) * dtype.bits // 8:
            raise UserError(f"{len(raw)} bytes do not match the shape {list(shape)}", where=label)
        return Constant(np.frombuffer(raw, dtype.numpy).reshape(shape))
    try:
        return Constant(np.asarray(onnx.numpy_helper.to_array(proto)))
    except (ValueError, TypeError) as error:
        raise UserError(f"the elements do not match the shape: {error}", where=label) from None


def _check_dims(shape: tuple[int, ...], where: str) -> None:
    """Raise `UserError` for dims that no array can have."""
    if any(d < 0 for d in shape):
        raise UserError(f"negative dims {list(shape)}", where=where)
    if len(shape) > _MOST_DIMS or math.prod(max(d, 1) for d in shape) > _MOST_ELEMENTS:
        what = f"dims {list(shape)}" if len(shape) <= _MOST_DIMS else f"{len(shape)} dims"
        raise UserError(f"{what}, which no array can have", where=where)


def _detached(proto: Any, files: Files) -> np.ndarray | None:
    """Return the array of a tensor of a `DetachedModel`; None for other tensors."""
    if files.tensors is None or proto.name not in files.tensors:
        return None
    entries = {entry.key: entry.value for entry in proto.external_data}
    return files.tensors[proto.name] if entries.get("location") == DETACHED else None


def _own(proto: Any, files: Files | None) -> memoryview | None:
    """Return the raw data of a tensor that was left in the bytes of its model, or None."""
    import onnx

    if files is None or files.own is None or proto.data_location != onnx.TensorProto.EXTERNAL:
        return None
    entries = {entry.key: entry.value for entry in proto.external_data}
    start, size = entries.get("offset", ""), entries.get("length", "")
    if entries.get("location") != _OWN or not (start.isdecimal() and size.isdecimal()):
        return None
    if max(len(start), len(size)) > _DIGITS:  # far past the end
        return files.own[:0]
    return files.own[int(start) : int(start) + int(size)]


def _external(proto: Any, dtype: DType, shape: tuple[int, ...], directory: Path | None, where: str) -> np.ndarray:
    import onnx

    entries = {entry.key: entry.value for entry in proto.external_data}
    location = entries.get("location", "")
    if directory is None:
        raise UserError(
            f"its data is in the file {location!r}, but the model was given without a path",
            where=where,
            hint="Pass the path of the model's file, or load the model with its external data.",
        )
    path = inside(directory, location, where)
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or 0)
    except ValueError:
        raise UserError("offset and length of its external data are not numbers", where=where) from None
    count = math.prod(shape)
    needed = (count * dtype.bits + 7) // 8
    if not path.exists():
        raise UserError(f"its data file {location!r} is missing", where=where, hint=f"Expected at {path}.")
    if not path.is_file():
        raise UserError(f"its data file {location!r} is not a regular file", where=where)
    if offset < 0 or (length and length != needed):
        found = f"{length or needed} bytes at offset {offset}"
        raise UserError(
            f"its external data has {found}; needed: {needed} bytes from an offset of at least 0", where=where
        )
    available = os.path.getsize(path) - offset
    if available < needed:
        raise UserError(
            f"its data file {location!r} has {max(available, 0)} bytes from offset {offset} on, {needed} are needed",
            where=where,
            hint="The file is truncated or belongs to another version of the model.",
        )
    if dtype is DType.STRING:
        raise UserError("strings cannot be external data", where=where)
    if count == 0:
        return np.zeros(shape, dtype.numpy)
    try:
        data = np.memmap(path, np.uint8, "r", offset, needed).view(np.ndarray)
        if dtype.bits < 8:
            return np.asarray(onnx.numpy_helper.to_array(_inline(proto, data)))
        return data.view(dtype.numpy.newbyteorder("<") if dtype.numpy.kind in "iufc" else dtype.numpy).reshape(shape)
    except (OSError, ValueError) as error:  # no permission, truncated since, too large
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise UserError(f"its data file {location!r} cannot be read: {reason}", where=where) from None


def _inline(proto: Any, raw: Any) -> Any:
    """Return a `TensorProto` with these bytes as its raw data."""
    import onnx

    return onnx.TensorProto(name=proto.name, data_type=proto.data_type, dims=proto.dims, raw_data=bytes(raw))


def inside(directory: Path, location: str, where: str) -> Path:
    """Return the path of a data file, which must be in the model's directory or below, links followed."""
    if not location:
        raise UserError("its external data names no file", where=where)
    try:
        root = directory.resolve()
        path = (root / location).resolve()
        path.exists()  # may raise, too
    except (OSError, ValueError, RuntimeError) as error:  # too long, a zero byte, circular links
        raise UserError(f"the name of its data file, {location!r}, is invalid: {error}", where=where) from None
    if os.path.isabs(location) or ".." in Path(location).parts or not path.is_relative_to(root):
        raise UserError(
            f"its data file {location!r} is outside the model's directory",
            where=where,
            hint="For safety, only files in the model's directory or below are read.",
        )
    return path


def constant_of_node(node: Any, files: Files | None, where: str) -> Constant:
    """Return the value of a `Constant` node. Raises `UserError` if it has none, and as `constant_from_proto`."""
    for a in node.attribute:
        match a.name:
            case "value":
                return constant_from_proto(a.t, files, where)
            case "sparse_value":
                return sparse_constant(a.sparse_tensor, files, where)
            case "value_float" | "value_floats":
                return Constant(np.array(a.f if a.name == "value_float" else a.floats, np.float32))
            case "value_int" | "value_ints":
                return Constant(np.array(a.i if a.name == "value_int" else a.ints, np.int64))
            case "value_string" | "value_strings":
                texts = text(a.s) if a.name == "value_string" else list(map(text, a.strings))
                return Constant(np.array(texts, object))
    raise UserError("this Constant has no value", where=where)


def sparse_constant(proto: Any, files: Files | None, where: str) -> Constant:
    """Return the contents of a `SparseTensorProto` as a dense tensor; raises `UserError` if they are inconsistent."""
    values = constant_from_proto(proto.values, files, where).array
    indices = constant_from_proto(proto.indices, files, where).array
    shape = tuple(proto.dims)
    _check_dims(shape, f"{where}: sparse tensor {proto.values.name!r}")
    size = math.prod(shape) * values.itemsize
    if size > _DENSEST:
        what = f"sparse tensor {proto.values.name!r} would have {size} bytes as a dense tensor"
        raise UserError(what, where=where, hint=f"The limit is {_DENSEST} bytes.")
    try:
        if indices.ndim == 2:
            flat = np.ravel_multi_index(tuple(indices.T.astype(np.int64)), shape)
        else:
            flat = indices.astype(np.int64)
        dense = np.zeros(math.prod(shape), values.dtype)
        dense[flat] = values
    except (ValueError, IndexError) as error:
        raise UserError(f"sparse tensor {proto.values.name!r}: {error}", where=where) from None
    return Constant(dense.reshape(shape))
