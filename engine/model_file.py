"""Model files: parsing, and the tensors in them or beside them."""

from __future__ import annotations

import math
import mmap
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from .graph import Constant, DType
from .wire import Malformed, lightened

_OWN = "\0"
"""Stands for the model's own file where tensors say in which file they are; no file has that name."""
_DAMAGED = "It is truncated or damaged, or no ONNX model at all."
_DESCRIPTIONS = {"doc_string", "metadata_props", "producer_name", "producer_version"}
"""What models say in prose; nothing depends on it."""

_MOST_DIMS, _MOST_ELEMENTS = 64, 1 << 59
"""What NumPy's arrays can have at most, of elements of 16 bytes."""
_DIGITS = 20
"""No place in a file takes more."""
_DENSEST = 1 << 31
"""Sparse tensors are made dense up to so many bytes, the most that any other tensor in a model can have."""


@dataclass(frozen=True, slots=True)
class Files:
    """Where the contents of tensors are that a `ModelProto` does not hold: in files in `directory` (None if the model
    has no file), and in `own`, the bytes of the model."""

    directory: Path | None = None
    own: memoryview | None = None


def load(source: Any, *, mapped: bool = False) -> tuple[Any, Files, str]:
    """`(model, files, name)` of a path, the bytes of a file, or a `ModelProto`.

    External data is not read yet, and large tensors of a file or bytes are left where they are. If `mapped`, a file is
    mapped into memory: it must not become shorter as long as the tensors are in use. Raises `UserError` for what is no
    ONNX model."""
    import onnx

    if isinstance(source, onnx.ModelProto):
        _check_names(source, "model")
        return source, Files(), source.graph.name or "model"
    if isinstance(source, bytes | bytearray | memoryview):
        model, own = _parse(bytes(source), "model")
        return model, Files(None, own), "model"
    path = Path(source)
    where = str(path)
    try:
        raw = _mapped(path) if mapped else path.read_bytes()
    except FileNotFoundError:
        raise UserError("no such file", where=where) from None
    except IsADirectoryError:
        raise UserError("this is a directory, not a model", where=where) from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", where=where) from None
    model, own = _parse(raw, where)
    return model, Files(path.parent, own), where


def _mapped(path: Path) -> bytes | mmap.mmap:
    """The bytes of a file, mapped into memory if it is one that can be. Raises OSError."""
    with path.open("rb") as file:
        try:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (ValueError, OSError):  # empty, or a pipe
            return file.read()


def _parse(raw: bytes | mmap.mmap, where: str) -> tuple[Any, memoryview]:
    """The model in some bytes, and these, which large tensors in it are read from."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    model, data = onnx.ModelProto(), memoryview(raw)
    try:
        light = lightened(data, _OWN)
    except Malformed:
        light = bytes(data)  # for the library to say what is wrong
    try:
        model.ParseFromString(light)
    except DecodeError:
        hint = _DAMAGED
        if raw[:2] == b"PK":
            hint = "It is a ZIP archive, such as a PyTorch checkpoint; export it to ONNX first."
        elif raw[:1] in (b"{", b"<"):
            hint = "It is text, not a binary ONNX model."
        raise UserError("not an ONNX model", where=where, hint=hint) from None
    if not model.HasField("graph") or not (model.ir_version or model.opset_import):
        what = "the file is empty" if not raw else "not an ONNX model"
        raise UserError(what, where=where, hint="An ONNX model has a graph and says which operator sets it uses.")
    _check_names(model, where)
    return model, data


def _check_names(message: Any, where: str) -> None:
    """Raises `UserError` for a name that is no UTF-8: libraries differ in what they make of it. Descriptions may be
    anything."""
    for field, value in message.ListFields():
        if field.name in _DESCRIPTIONS:
            continue
        if field.type == field.TYPE_STRING:
            wrong = next((v for v in (value if hasattr(value, "extend") else (value,)) if isinstance(v, bytes)), None)
            if wrong is not None:
                raise UserError(f"the name {wrong[:60]!r} is no UTF-8", where=where, hint=_DAMAGED)
        elif field.type == field.TYPE_MESSAGE:
            for inner in value if hasattr(value, "extend") else (value,):
                _check_names(inner, where)


def constant_from_proto(proto: Any, files: Files | None, where: str) -> Constant:
    """The contents of a `TensorProto`: mapped into memory if they are in a file of their own, where they are if that is
    among the bytes of the model.

    Raises `UserError` if they are missing, do not fit the shape, or would lie outside the model's directory."""
    import onnx

    label = f"{where}: tensor {proto.name!r}" if proto.name else where
    try:
        dtype = DType.from_onnx(proto.data_type)
    except ValueError:
        raise UserError(f"unknown element type {proto.data_type}", where=label) from None
    shape = tuple(proto.dims)
    _check_dims(shape, label)
    own = _own(proto, files)
    if own is None and proto.data_location == onnx.TensorProto.EXTERNAL:
        return Constant(_external(proto, dtype, shape, files.directory if files is not None else None, label))
    if dtype is DType.STRING:
        if len(proto.string_data) != math.prod(shape):
            raise UserError("the elements do not fit the shape", where=label)
        texts = np.empty(len(proto.string_data), object)
        texts[:] = [_text(s) for s in proto.string_data]
        return Constant(texts.reshape(shape))
    if own is not None or (proto.HasField("raw_data") and dtype.bits >= 8 and sys.byteorder == "little"):
        raw = own if own is not None else proto.raw_data
        if dtype.bits < 8 or sys.byteorder != "little":
            whole = onnx.TensorProto(name=proto.name, data_type=proto.data_type, dims=shape, raw_data=bytes(raw))
            return constant_from_proto(whole, None, where)
        if len(raw) != math.prod(shape) * dtype.bits // 8:
            raise UserError(f"{len(raw)} bytes do not fit the shape {list(shape)}", where=label)
        return Constant(np.frombuffer(raw, dtype.numpy).reshape(shape))
    try:
        return Constant(np.asarray(onnx.numpy_helper.to_array(proto)))
    except (ValueError, TypeError) as error:
        raise UserError(f"the elements do not fit the shape: {error}", where=label) from None


def _check_dims(shape: tuple[int, ...], where: str) -> None:
    """Raises `UserError` for dims that no array has."""
    if any(d < 0 for d in shape):
        raise UserError(f"negative dims {list(shape)}", where=where)
    if len(shape) > _MOST_DIMS or math.prod(max(d, 1) for d in shape) > _MOST_ELEMENTS:
        what = f"dims {list(shape)}" if len(shape) <= _MOST_DIMS else f"{len(shape)} dims"
        raise UserError(f"{what}, which no array has", where=where)


def _own(proto: Any, files: Files | None) -> memoryview | None:
    """The raw data of a tensor that was left in the bytes of its model."""
    import onnx

    if files is None or files.own is None or proto.data_location != onnx.TensorProto.EXTERNAL:
        return None
    entries = {entry.key: entry.value for entry in proto.external_data}
    start, size = entries.get("offset", ""), entries.get("length", "")
    if entries.get("location") != _OWN or not (start.isdecimal() and size.isdecimal()):
        return None
    if max(len(start), len(size)) > _DIGITS:  # far behind the end
        return files.own[:0]
    return files.own[int(start) : int(start) + int(size)]


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _external(proto: Any, dtype: DType, shape: tuple[int, ...], directory: Path | None, where: str) -> np.ndarray:
    entries = {entry.key: entry.value for entry in proto.external_data}
    location = entries.get("location", "")
    if directory is None:
        raise UserError(
            f"its data is in the file {location!r}, but the model was given without a path",
            where=where,
            hint="Give the path of the model's file, or load the model with its external data.",
        )
    path = inside(directory, location, where)
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or 0)
    except ValueError:
        raise UserError("offset and length of its external data are no numbers", where=where) from None
    count = math.prod(shape)
    needed = (count * dtype.bits + 7) // 8
    if not path.exists():
        raise UserError(f"its data file {location!r} is missing", where=where, hint=f"Expected at {path}.")
    if not path.is_file():
        raise UserError(f"its data file {location!r} is no file", where=where)
    if offset < 0 or (length and length != needed):
        raise UserError(
            f"its external data has {length or needed} bytes at offset {offset}, {needed} at 0 or more are needed",
            where=where,
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
    try:
        if count == 0:
            return np.zeros(shape, dtype.numpy)
        if dtype.bits < 8:
            return _packed(proto, path, offset, needed)
        found = np.memmap(path, np.uint8, "r", offset, needed).view(np.ndarray)
        return found.view(dtype.numpy.newbyteorder("<") if dtype.numpy.kind in "iufc" else dtype.numpy).reshape(shape)
    except (OSError, ValueError) as error:  # no permission, cut meanwhile, dims that no array has
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise UserError(f"its data file {location!r} cannot be read: {reason}", where=where) from None


def _packed(proto: Any, path: Path, offset: int, size: int) -> np.ndarray:
    import onnx

    with path.open("rb") as file:
        file.seek(offset)
        raw = file.read(size)
    inline = onnx.TensorProto(name=proto.name, data_type=proto.data_type, dims=proto.dims, raw_data=raw)
    return np.asarray(onnx.numpy_helper.to_array(inline))


def inside(directory: Path, location: str, where: str) -> Path:
    """The path of a data file, which must lie in the model's directory or below, links followed."""
    if not location:
        raise UserError("its external data names no file", where=where)
    try:
        root = directory.resolve()
        path = (root / location).resolve()
        path.exists()  # may refuse it, too
    except (OSError, ValueError, RuntimeError) as error:  # too long, a zero byte, links in a circle
        raise UserError(f"its data file {location!r} has no name that can be: {error}", where=where) from None
    if os.path.isabs(location) or ".." in Path(location).parts or not path.is_relative_to(root):
        raise UserError(
            f"its data file {location!r} is outside the model's directory",
            where=where,
            hint="For safety only files beside the model, or in directories below, are read.",
        )
    return path


def sparse_constant(proto: Any, files: Files | None, where: str) -> Constant:
    """The contents of a `SparseTensorProto`, made dense. Raises `UserError` if they are not consistent."""
    values = constant_from_proto(proto.values, files, where).array
    indices = constant_from_proto(proto.indices, files, where).array
    shape = tuple(proto.dims)
    _check_dims(shape, f"{where}: sparse tensor {proto.values.name!r}")
    size = math.prod(shape) * values.itemsize
    if size > _DENSEST:
        what = f"sparse tensor {proto.values.name!r} has {size} bytes when it is made dense"
        raise UserError(what, where=where, hint=f"At most {_DENSEST} bytes are made of one.")
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
