"""Models as bytes: the large tensors of a serialised `ModelProto`, put in and passed over without copying them.

The wire format of protocol buffers: a message is a sequence of fields, each a tag (the field's number and how its value
is written), then a number, four or eight bytes, or a length and as many bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

GRAPH = 7  # in ModelProto
INITIALIZER = 5  # in GraphProto
RAW_DATA, EXTERNAL_DATA, DATA_LOCATION = 9, 13, 14  # in TensorProto
_BYTES = 2  # how a string, bytes or a message is written
_SHORT, _LONG = 5, 10
"""How many bytes tags and lengths, and other numbers, may take, as libraries read them."""
APART_FROM = 1 << 12
"""Tensors of so many bytes are left where they are."""


class Malformed(ValueError):
    """The bytes are no message."""


def fields(data: memoryview) -> Iterator[tuple[int, int, int, int, int]]:
    """The fields of a message: number, way of writing, where it begins, where its value does, where that ends.

    The value of a field of bytes begins behind its length. Raises `Malformed`."""
    at, size = 0, len(data)
    while at < size:
        begin = at
        tag, at = _number(data, at, _SHORT)
        way = tag & 7
        if not 8 <= tag < 1 << 32:
            raise Malformed("no field has that number")
        if way == _BYTES:
            length, at = _number(data, at, _SHORT)
        elif way == 0:
            start = at
            _, at = _number(data, at)
            yield tag >> 3, way, begin, start, at
            continue
        elif way in (1, 5):
            length = 8 if way == 1 else 4
        else:
            raise Malformed("a group, or no field")
        if length > size - at:
            raise Malformed("a field ends behind its message")
        yield tag >> 3, way, begin, at, at + length
        at += length


def _number(data: memoryview, at: int, most: int = _LONG) -> tuple[int, int]:
    """The number of at most so many bytes that begins at a place, and where it ends. Raises `Malformed`."""
    value = shift = 0
    while True:
        if at >= len(data) or shift >= 7 * most:
            raise Malformed("a number does not end")
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
    """What stands before the bytes of a field."""
    return _written(number << 3 | _BYTES) + _written(length)


def spliced(model: memoryview, arrays: Sequence[np.ndarray | None]) -> Iterator[memoryview]:
    """The bytes of a serialised model, piece by piece, with the elements of arrays as raw data of its initialisers.

    `arrays` has one entry for each initialiser of the graph, None for those that are whole as they are. The others have
    no field behind raw data, so that it comes last, as libraries write it. A piece may be overwritten when the next one
    is asked for. Raises `Malformed`."""
    turned = [array for array in arrays if array is not None and not array.flags.c_contiguous]
    room = np.empty(max((array.nbytes for array in turned), default=0), np.uint8)
    for number, _, begin, start, end in fields(model):
        if number != GRAPH:
            yield model[begin:end]
            continue
        pieces = list(_graph(model[start:end], arrays))
        yield memoryview(head(GRAPH, sum(piece.nbytes for piece in pieces)))
        for piece in pieces:
            yield piece if isinstance(piece, memoryview) else _elements(piece, room)


def _graph(graph: memoryview, arrays: Sequence[np.ndarray | None]) -> Iterator[memoryview | np.ndarray]:
    """The pieces of a serialised graph, arrays as they are."""
    left = iter(arrays)
    for number, _, begin, start, end in fields(graph):
        array = next(left) if number == INITIALIZER else None
        if array is None:
            yield graph[begin:end]
            continue
        before = head(RAW_DATA, array.nbytes)
        yield memoryview(head(INITIALIZER, end - start + len(before) + array.nbytes) + graph[start:end] + before)
        yield array


def _elements(array: np.ndarray, room: np.ndarray) -> memoryview:
    """The elements of an array as they are written, put in order in `room` if they don't lie so."""
    if not array.flags.c_contiguous:
        ordered = room[: array.nbytes].view(array.dtype).reshape(array.shape)
        ordered[...] = array
        array = ordered
    return array.reshape(-1).view(np.uint8).data


@dataclass(frozen=True, slots=True)
class Apart:
    """An initialiser in the bytes of a model whose raw data is large: where the fields of the graph, of the tensor and
    of its raw data begin, and where the values of these fields begin and end."""

    graph: tuple[int, int, int]
    tensor: tuple[int, int, int]
    raw: tuple[int, int, int]


def apart(model: memoryview) -> list[Apart]:
    """The initialisers of a serialised model with large raw data, in order. Raises `Malformed`."""
    found = []
    for number, way, begin, start, end in fields(model):
        if number == GRAPH and way == _BYTES:
            for inner, kind, at, value, behind in fields(model[start:end]):
                if inner == INITIALIZER and kind == _BYTES and behind - value >= APART_FROM:
                    raw = _raw_data(model[start + value : start + behind], start + value)
                    if raw is not None:
                        found.append(Apart((begin, start, end), (start + at, start + value, start + behind), raw))
    return found


def _raw_data(tensor: memoryview, base: int) -> tuple[int, int, int] | None:
    """Where the raw data of a tensor is, its bytes being at `base`; None if it is small, or not all that there is."""
    found = None
    for number, way, begin, start, end in fields(tensor):
        if number in (EXTERNAL_DATA, DATA_LOCATION) or (number == RAW_DATA and (found or way != _BYTES)):
            return None
        if number == RAW_DATA:
            found = (base + begin, base + start, base + end)
    return found if found is not None and found[2] - found[1] >= APART_FROM else None


def lightened(model: memoryview, location: str) -> bytes:
    """A serialised model whose large initialisers are said to be external data: in a file with this name, at the place
    where they are in `model`. Raises `Malformed`."""
    out: list[bytes | memoryview] = []
    done = 0
    for (begin, start, end), tensors in groupby(apart(model), lambda found: found.graph):
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
    """A serialised model without the raw data of its large initialisers: no message, but all other bytes in order.
    Raises `Malformed`."""
    places = [0, *(at for found in apart(model) for at in found.raw[1:]), len(model)]
    return b"".join(model[begin:end] for begin, end in zip(places[::2], places[1::2], strict=True))
