"""Damaged models, at random or with intent: the importer reads what `onnx` reads, and all else is one `UserError`."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper
from rewrite.engine.ir.graph import Constant, Graph
from rewrite.engine.onnx_io import importer
from rewrite.engine.onnx_io.protobuf_wire import LARGE_FROM, Malformed, fields, large_initializers, lightened, outside
from rewrite.errors import UserError

LOCATION = "here"
NUMBERS = (0, 1, 2, 127, 128, 4096, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def _info(name: str, kind: int, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _sample() -> bytes:
    """Return a model with tensors of all kinds, bodies, and a function."""
    rng = np.random.default_rng(0)
    then = helper.make_graph([helper.make_node("Neg", ["h"], ["t"])], "then", [], [_info("t", 1, "N", 4)])
    two = numpy_helper.from_array(np.float32(2), "two")
    other = helper.make_graph(
        [helper.make_node("Add", ["h", "two"], ["e"])], "else", [], [_info("e", 1, "N", 4)], [two]
    )
    twice = [helper.make_node("Add", ["a", "a"], ["b"])]
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["h"], name="product", doc_string="what it is"),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.arange(6).reshape(2, 3), "v")),
        helper.make_node("Twice", ["h"], ["z"], domain="my"),
    ]
    tensors = [
        numpy_helper.from_array(rng.standard_normal((300, 4)).astype(np.float32), "W"),
        numpy_helper.from_array(np.arange(9000).astype(ml_dtypes.int4), "four"),
        numpy_helper.from_array(np.arange(600.0), "V"),
        helper.make_tensor("words", TensorProto.STRING, [2], [b"a", b"b"]),
        helper.make_tensor("few", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0]),
    ]
    outputs = [_info("y", 1, "N", 4), _info("z", 1, "N", 4), _info("k", 7, 2, 3), _info("V", 11, 600)]
    graph = helper.make_graph(nodes, "g", [_info("x", 1, "N", 300), _info("c", 9)], outputs, tensors)
    made = helper.make_sparse_tensor(
        helper.make_tensor("some", TensorProto.FLOAT, [2], [1.0, 2.0]),
        helper.make_tensor("at", TensorProto.INT64, [2], [1, 3]),
        [5],
    )
    graph.sparse_initializer.append(made)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
    function = helper.make_function("my", "Twice", ["a"], ["b"], twice, opsets[:1])
    model = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=10)
    model.metadata_props.add(key="author", value="nobody")
    return bytes(model.SerializeToString())


SAMPLE = _sample()
HEADS = [at for found in large_initializers(memoryview(SAMPLE)) for at in (found.raw[1], found.raw[2])]
LIGHT = [at for a, b in zip([0, *HEADS[1::2]], [*HEADS[::2], len(SAMPLE)], strict=True) for at in range(a, b)]
"""Offsets of the bytes that are not elements of large tensors."""


def _varint(value: int, least: int = 1) -> bytes:
    out = bytearray()
    while value >= 0x80 or len(out) < least - 1:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _changed(rng: random.Random) -> bytes:
    """Change the sample one to four times: bits, bytes inserted, removed or moved, numbers, truncation."""
    data = bytearray(SAMPLE)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.choice(LIGHT) if rng.random() < 0.95 else rng.randrange(len(data))
        n = rng.randrange(1, 40)
        match rng.randrange(8):
            case 0 | 1:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            case 2:
                data[at % len(data)] = rng.randrange(256)
            case 3:
                data[at:at] = rng.randbytes(rng.randrange(1, 8))
            case 4:
                del data[at : at + rng.randrange(1, 8)]
            case 5:
                data[at : at + 1] = _varint(rng.choice(NUMBERS), rng.randrange(1, 13))
            case 6:
                source = rng.choice(LIGHT)
                data[at : at + rng.choice((0, n))] = data[source : source + n]
            case _:
                del data[max(at, 1) :]
    return bytes(data)


def _parsed(data: bytes) -> onnx.ModelProto | None:
    try:
        return onnx.ModelProto.FromString(data)
    except DecodeError:
        return None


def _put_back(model: onnx.ModelProto, data: bytes) -> onnx.ModelProto:
    """Insert the raw data of its tensors into a lightened model."""
    for tensor in model.graph.initializer:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if tensor.data_location == TensorProto.EXTERNAL and entries.get("location") == LOCATION:
            start, size = int(entries["offset"]), int(entries["length"])
            assert start + size <= len(data)
            tensor.raw_data = data[start : start + size]
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
    return model


def check_wire(data: bytes) -> bool:
    """Check that our reader and the library agree on some bytes; return whether they accept them."""
    wanted = _parsed(data)
    try:
        found = _parsed(lightened(memoryview(data), LOCATION))
        outside(memoryview(data))
    except Malformed:  # the library decides then
        return wanted is not None
    assert (found is None) == (wanted is None)
    if found is not None and wanted is not None:
        assert _put_back(found, data).SerializeToString() == wanted.SerializeToString()
    return wanted is not None


def _contents(value: Any) -> Any:
    """Return what can be compared of a graph, a constant, or an attribute; NaN equals itself."""
    if isinstance(value, Graph):
        nodes = [
            (n.op, n.inputs, n.outputs, n.name, {k: _contents(v) for k, v in n.attrs.items()}) for n in value.nodes
        ]
        constants = {name: _contents(c) for part in (value.constants, value.defaults) for name, c in part.items()}
        return value.inputs, value.outputs, nodes, constants, value.types, value.opset, value.about, value.metadata
    if isinstance(value, Constant):
        array = value.array
        return array.dtype, array.shape, array.tolist() if array.dtype == object else array.tobytes()
    return tuple(map(_contents, value)) if isinstance(value, tuple) else repr(value)


def _read(source: Any, **options: Any) -> Any:
    try:
        return _contents(importer.read(source, **options))
    except UserError:
        return UserError


def check_read(data: bytes) -> bool:
    """Check that bytes and the message that the library parses give the same import; return whether it succeeds."""
    message = _parsed(data)
    found = _read(data)
    assert found == (UserError if message is None else _read(message))
    return found is not UserError


# --- bytes ------------------------------------------------------------------------------------------------------------


def test_the_sample_is_read() -> None:
    assert len(large_initializers(memoryview(SAMPLE))) == 3
    assert check_wire(SAMPLE)
    assert check_read(SAMPLE)


def test_a_model_cut_anywhere() -> None:
    ends = [*LIGHT, *range(0, len(SAMPLE), 97)]
    accepted = sum(check_wire(SAMPLE[:end]) for end in ends)
    assert 0 < accepted < len(ends) // 20
    for end in ends[::40]:
        check_read(SAMPLE[:end])


def test_a_model_with_any_bit_turned() -> None:
    for at in LIGHT:
        for bit in range(at % 2, 8, 2):
            data = bytearray(SAMPLE)
            data[at] ^= 1 << bit
            check_wire(bytes(data))


@pytest.mark.parametrize("seed", range(4))
def test_damage_of_all_kinds(seed: int) -> None:
    rng = random.Random(seed)
    cases = [_changed(rng) for _ in range(1500)]
    accepted = [data for data in cases if check_wire(data)]
    assert 100 < len(accepted) < 1400
    read = [check_read(data) for data in accepted[:60]]
    assert any(read)
    assert not all(read)


def _field(number: int, data: bytes, least: int = 1) -> bytes:
    return _varint(number << 3 | 2, least) + _varint(len(data), least) + data


def _tensor(least: int, tag: int) -> bytes:
    return b"\x08\x04\x10\x02" + _varint(tag, least) + _varint(LARGE_FROM, least) + bytes(LARGE_FROM)


HOSTILE = {
    "tags that are too long": _field(7, _field(5, _tensor(6, 9 << 3 | 2))),
    "tags of five bytes": _field(7, _field(5, _tensor(5, 9 << 3 | 2), 5), 5),
    "tags beyond 32 bits": _field(7, _field(5, _tensor(1, 1 << 35 | 9 << 3 | 2))),
    "field 0": _field(7, _field(5, _tensor(1, 2))),
    "raw data twice": _field(7, _field(5, _tensor(1, 74) + _tensor(1, 74))),
    "a graph twice": _field(7, _field(5, _tensor(1, 74))) * 2,
    "a number as a graph": b"\x38\x01" + _field(7, _field(5, _tensor(1, 74))),
    "a length of 2**63": b"\x3a" + _varint(2**63),
    "a length without end": b"\x3a" + b"\xff" * 1000,
    "a number without end": b"\x08" + b"\x80" * 100_000,
    "a group": b"\x3b\x08\x01\x3c",
    "groups in groups": b"\x3b" * 100_000 + b"\x3c" * 100_000,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_bytes(kind: str) -> None:
    check_wire(HOSTILE[kind])
    check_read(HOSTILE[kind])
    with_rest = b"\x08\x0a\x42\x02\x10\x15" + HOSTILE[kind]
    check_wire(with_rest)
    check_read(with_rest)


def test_messages_in_messages_to_great_depth() -> None:
    data = b""
    for _ in range(3000):  # node, attribute, graph
        data = _field(1, _field(5, _field(6, data)))
    data = b"\x08\x0a\x42\x02\x10\x15" + _field(7, data)
    assert not check_wire(data)
    assert not check_read(data)
    assert [number for number, *_ in fields(memoryview(data))] == [1, 8, 7]


# --- complete messages ------------------------------------------------------------------------------------------------


def _weights(**fields: Any) -> onnx.ModelProto:
    """Return a model whose output is one f32 tensor made of these fields."""
    tensor = TensorProto(name="w", data_type=fields.pop("data_type", TensorProto.FLOAT), **fields)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("Neg", ["w"], ["y"])
    graph = helper.make_graph([node], "g", [], [output], [tensor])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    "dims", [[2**62], [2**32, 2**32], [2**63 - 1] * 4, [-1], [-(2**63)], [0, 2**63 - 1], [2**62, 0], [1] * 70, [0] * 70]
)
def test_impossible_dims(dims: list[int]) -> None:
    for data in (b"", b"\0" * 4, b"\0" * 8000):
        assert _read(_weights(dims=dims, raw_data=data).SerializeToString()) is UserError


def test_a_sparse_tensor_too_large_to_be_dense() -> None:
    model = onnx.ModelProto.FromString(SAMPLE)
    for dims in ([2**40], [2**62], [2**40, 2**40], [-5], [0], [3]):
        model.graph.sparse_initializer[0].dims[:] = dims
        assert _read(model) is UserError


def _names() -> Iterator[tuple[onnx.ModelProto, bytes]]:
    """Put a byte that is not UTF-8 into one of the sample's names; return both."""
    for name in (b"MatMul", b"then_branch", b"Twice", b"four", b"some", b"else_branch"):
        at = SAMPLE.index(name)
        yield onnx.ModelProto.FromString(SAMPLE[:at] + b"\xff" + SAMPLE[at + 1 :]), b"\xff" + name[1:]


def test_names_are_utf_8() -> None:
    for model, name in _names():
        with pytest.raises(UserError, match="is not UTF-8") as error:
            importer.read(model)
        assert repr(name) in str(error.value)


def test_descriptions_are_anything() -> None:
    for text in (b"what it is", b"nobody", b"author"):
        at = SAMPLE.index(text)
        assert check_read(SAMPLE[:at] + b"\xff" + SAMPLE[at + 1 :])


# --- data in other files ----------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a directory for a model, beside files that it must not read."""
    (tmp_path / "secret").write_bytes(b"\x2a" * 4096)
    place = tmp_path / "model"
    place.mkdir()
    (place / "w.bin").write_bytes(np.arange(64, dtype=np.float32).tobytes())
    (place / "inner").mkdir()
    (place / "link").symlink_to(tmp_path / "secret")
    (place / "folder").symlink_to(tmp_path)
    (place / "circle").symlink_to(place / "circle")
    (place / "good").symlink_to("w.bin")
    os.mkfifo(place / "pipe")
    return place


def _external(place: Path, location: str, dims: list[int], kind: int = TensorProto.FLOAT, **entries: str) -> Any:
    model = _weights(dims=dims, data_type=kind, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        model.graph.initializer[0].external_data.add(key=key, value=value)
    path = place / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return _read(path), _read(path, mapped=True)


ESCAPES = (
    *("../secret", "inner/../../secret", "inner/../w.bin", "link", "folder/secret", "/etc/passwd", "..", "."),
    *("circle", "pipe", "inner", "", "\0", "w.bin\0", "a" * 5000, "nowhere/w.bin", "w.bin/x", "~/w.bin", "file:w.bin"),
)


@pytest.mark.parametrize("location", ESCAPES)
def test_files_outside_and_files_that_are_none(place: Path, location: str) -> None:
    assert _external(place, location, [4]) == (UserError, UserError)


HUGE = "9" * 5000
OFFSETS = ("-1", "-4", "256", "244", str(2**63), str(2**64), HUGE, "x", "0x0", "1e3", "٣x")
LENGTHS = ("-1", "15", "17", "257", str(2**63), HUGE, "x")
PLACES = [("offset", value) for value in OFFSETS] + [("length", value) for value in LENGTHS]


@pytest.mark.parametrize(("key", "value"), PLACES)
def test_places_outside_the_file(place: Path, key: str, value: str) -> None:
    assert _external(place, "w.bin", [4], **{key: value}) == (UserError, UserError)
    own = _external(place, "\0", [4], **{"offset": "0", "length": "16", key: value})
    assert own == (UserError, UserError)


def test_what_fits_is_read_and_nothing_else(place: Path) -> None:
    for location in ("w.bin", "good", "./w.bin"):
        for offset in (0, 4, 1, 240):
            path = place / "m.onnx"
            _external(place, location, [4], offset=str(offset), length="16")
            found = importer.read(path).constants["w"].array
            assert found.tobytes() == (place / "w.bin").read_bytes()[offset : offset + 16]
    for dims in ([2**62], [2**40], [65], [-4], [2**32, 2**32]):
        assert _external(place, "w.bin", dims) == (UserError, UserError)
    assert _external(place, "w.bin", [2**62, 0]) == (UserError, UserError)
    for kind in (TensorProto.STRING, 99, TensorProto.UNDEFINED):
        assert _external(place, "w.bin", [4], kind) == (UserError, UserError)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_a_file_that_may_not_be_read(place: Path) -> None:
    (place / "w.bin").chmod(0)
    assert _external(place, "w.bin", [4]) == (UserError, UserError)
