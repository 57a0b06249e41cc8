"""Wire format of protocol buffers: large tensors of a serialized `ModelProto` are inserted and skipped without copying.

A message is a sequence of fields. Each is a tag (the field's number and its wire type), then a varint, four or eight
bytes, or a length and that many bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

GRAPH = 7  # in ModelProto
INITIALIZER = 5  # in GraphProto
RAW_DATA, EXTERNAL_DATA, DATA_LOCATION = 9, 13, 14  # in TensorProto
_BYTES = 2  # wire type of strings, bytes and messages
_SHORT, _LONG = 5, 10
"""Maximum bytes of a varint: tags and lengths, and other numbers, as the libraries read them."""
LARGE_FROM = 1 << 12
"""Tensors of at least this many bytes are left in place."""


class Malformed(ValueError):
    """The bytes are not a message."""


def fields(data: memoryview) -> Iterator[tuple[int, int, int, int, int]]:
    """Iterate over the fields of a message: number, wire type, begin of the field, begin and end of its value.

    The value of a field of bytes begins after its length. Raises `Malformed`."""
    at, size = 0, len(data)
    while at < size:
        begin = at
        tag, at = varint(data, at, _SHORT)
        number, wire_type, start = tag >> 3, tag & 7, at
        if not 8 <= tag < 1 << 32:
            raise Malformed("invalid field number")
        if wire_type == _BYTES:
            length, start = varint(data, at, _SHORT)
            at = start + length
        elif wire_type == 0:
            _, at = varint(data, at)
        elif wire_type in (1, 5):
            at += 8 if wire_type == 1 else 4
        else:
            raise Malformed("unsupported wire type")
        if at > size:
            raise Malformed("a field extends past its message")
        yield number, wire_type, begin, start, at


def varint(data: memoryview, at: int, most: int = _LONG) -> tuple[int, int]:
    """Read a varint of at most this many bytes; return it and where it ends. Raises `Malformed`."""
    value = shift = 0
    while True:
        if at >= len(data) or shift >= 7 * most:
            raise Malformed("unterminated number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _written(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def head(number: int, length: int) -> bytes:
    """Return the tag and length before the bytes of a field."""
    return _written(number << 3 | _BYTES) + _written(length)


def spliced(model: memoryview, arrays: Sequence[np.ndarray | None]) -> Iterator[memoryview]:
    """Iterate over the bytes of a serialized model, with the elements of arrays as raw data of its initializers.

    `arrays` has one entry for each initializer of the graph, None for a complete one. The others have no field after
    their raw data, which the libraries write last. A piece is valid until the next one is requested. Raises
    `Malformed`."""
    strided = (array.nbytes for array in arrays if array is not None and not array.flags.c_contiguous)
    buffer = np.empty(max(strided, default=0), np.uint8)
    for number, _, begin, start, end in fields(model):
        if number != GRAPH:
            yield model[begin:end]
            continue
        pieces = list(_graph(model[start:end], arrays))
        yield memoryview(head(GRAPH, sum(piece.nbytes for piece in pieces)))
        for piece in pieces:
            yield piece if isinstance(piece, memoryview) else _elements(piece, buffer)


def _graph(graph: memoryview, arrays: Sequence[np.ndarray | None]) -> Iterator[memoryview | np.ndarray]:
    """Iterate over the pieces of a serialized graph, arrays as they are."""
    left = iter(arrays)
    for number, _, begin, start, end in fields(graph):
        array = next(left) if number == INITIALIZER else None
        if array is None:
            yield graph[begin:end]
            continue
        before = head(RAW_DATA, array.nbytes)
        yield memoryview(head(INITIALIZER, end - start + len(before) + array.nbytes) + graph[start:end] + before)
        yield array


def _elements(array: np.ndarray, buffer: np.ndarray) -> memoryview:
    """Return the elements of an array in C order, copied into `buffer` if they are not contiguous."""
    if not array.flags.c_contiguous:
        ordered = buffer[: array.nbytes].view(array.dtype).reshape(array.shape)
        ordered[...] = array
        array = ordered
    return array.reshape(-1).view(np.uint8).data


class LargeInitializer(NamedTuple):
    """An initializer with large raw data in the bytes of a model.

    For the fields of the graph, of the tensor and of its raw data: begin of the field, begin and end of its value."""

    graph: tuple[int, int, int]
    tensor: tuple[int, int, int]
    raw: tuple[int, int, int]


def large_initializers(model: memoryview) -> list[LargeInitializer]:
    """Return the initializers of a serialized model with large raw data, in order. Raises `Malformed`."""
    found = []
    for number, wire_type, begin, start, end in fields(model):
        if number == GRAPH and wire_type == _BYTES:
            for inner, kind, at, value, behind in fields(model[start:end]):
                if inner == INITIALIZER and kind == _BYTES and behind - value >= LARGE_FROM:
                    raw = _raw_data(model[start + value : start + behind], start + value)
                    if raw is not None:
                        tensor = (start + at, start + value, start + behind)
                        found.append(LargeInitializer((begin, start, end), tensor, raw))
    return found


def _raw_data(tensor: memoryview, base: int) -> tuple[int, int, int] | None:
    """Return where the raw data of a tensor is, its bytes being at `base`; None if it is small or not the only data."""
    found = None
    for number, wire_type, begin, start, end in fields(tensor):
        # a location of 0 says that the data is here: it is written once external data was read
        is_elsewhere = number == DATA_LOCATION and bytes(tensor[start:end]) != b"\0"
        if number == EXTERNAL_DATA or is_elsewhere or (number == RAW_DATA and (found or wire_type != _BYTES)):
            return None
        if number == RAW_DATA:
            found = (base + begin, base + start, base + end)
    return found if found is not None and found[2] - found[1] >= LARGE_FROM else None


def lightened(model: memoryview, location: str) -> bytes:
    """Serialize a model with its large initializers marked as external data, in a file of this name, at their offsets
    in `model`. Raises `Malformed`."""
    out: list[bytes | memoryview] = []
    done = 0
    for (begin, start, end), tensors in groupby(large_initializers(model), lambda found: found.graph):
        inside: list[bytes | memoryview] = []
        at = start
        for found in tensors:
            (first, value, behind), (cut, raw, after) = found.tensor, found.raw
            entries = b"".join(
                head(EXTERNAL_DATA, len(entry)) + entry
                for key, text in (("location", location), ("offset", str(raw)), ("length", str(after - raw)))
                if (entry := head(1, len(key)) + key.encode() + head(2, len(text)) + text.encode())
            )
            rest = b"".join((model[value:cut], model[after:behind], entries, _written(DATA_LOCATION << 3), b"\1"))
            inside += (model[at:first], head(INITIALIZER, len(rest)), rest)
            at = behind
        inside.append(model[at:end])
        out += (model[done:begin], head(GRAPH, sum(map(len, inside))), *inside)
        done = end
    return b"".join((*out, model[done:]))


def outside(model: memoryview) -> bytes:
    """Return all bytes of a serialized model but the raw data of its large initializers. Raises `Malformed`.

    The result is not a message; it identifies the model without its weights."""
    places = [0, *(at for found in large_initializers(model) for at in found.raw[1:]), len(model)]
    return b"".join(model[begin:end] for begin, end in zip(places[::2], places[1::2], strict=True))
