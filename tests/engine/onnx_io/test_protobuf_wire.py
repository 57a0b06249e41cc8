"""Models written without copies of their constants: the same bytes as the libraries write."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from rewrite.engine.ir.description import Description, Note
from rewrite.engine.ir.graph import Constant, Graph, Node, TensorType
from rewrite.engine.onnx_io import exporter, importer, model_file
from rewrite.engine.onnx_io.exporter import Portion, writing
from rewrite.engine.onnx_io.protobuf_wire import LARGE_FROM, Malformed, fields, lightened, outside
from rewrite.errors import UserError
from rewrite.system.mapped_memory import mapping_of


def graph(arrays: dict[str, np.ndarray], defaults: dict[str, np.ndarray] | None = None) -> Graph:
    """Return a graph that applies an operator to each of its constants."""
    constants = {name: Constant(array) for name, array in arrays.items()}
    made = Graph(
        inputs=("x", *(defaults or {})),
        outputs=tuple(f"{name}_out" for name in constants),
        nodes=[Node("Neg", (name,), (f"{name}_out",), {}, name) for name in constants],
        constants=constants,
        types={"x": onnx_in_type(np.zeros((2, 3), np.float32))},
        opset={"": 21},
        name="numbers",
        ir_version=10,
        about=Description(model=Note("what it is", {"author": "nobody"})),
    )
    made.defaults = {name: Constant(array) for name, array in (defaults or {}).items()}
    made.types |= {name: c.type for name, c in (*constants.items(), *made.defaults.items())}
    made.types |= {f"{name}_out": c.type for name, c in constants.items()}
    return made


def save_graph(graph: Graph, path: Path) -> list[Portion] | None:
    with writing(graph, path) as finish:
        return finish()


def onnx_in_type(array: np.ndarray) -> TensorType:
    return Constant(array).type


def large(rng: np.random.Generator, dtype: type, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) * 50).astype(dtype)


CASES = {
    "none": {"a": np.float32([1, 2])},
    "every size of element": {
        str(i): large(np.random.default_rng(i), dtype, 3, 2500)
        for i, dtype in enumerate((np.float32, np.float64, np.int8, np.int64, np.float16, ml_dtypes.bfloat16))
    },
    "views": {
        "turned": large(np.random.default_rng(1), np.float32, 40, 50).T,
        "strided": large(np.random.default_rng(2), np.float32, 5000)[::2],
        "whole": large(np.random.default_rng(3), np.float32, 90, 100),
        "turned too": large(np.random.default_rng(4), np.int32, 20, 30, 40).transpose(2, 0, 1),
    },
    "small between large": {
        "l": np.arange(5000, dtype=np.int64),
        "s": np.int64(3),
        "e": np.empty((0, 4), np.float32),
        "m": np.arange(5000, dtype=np.int64) * 2,
    },
    "4095 and 4096 bytes": {"below": np.arange(4095, dtype=np.uint8), "at": np.arange(4096, dtype=np.uint8) * 3},
}


@pytest.mark.parametrize("arrays", CASES.values(), ids=CASES.keys())
def test_the_same_bytes_as_the_library_writes(arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    model = graph(arrays, {"d": np.linspace(0, 1, 3000), "few": np.float32([4])})
    portions = save_graph(model, tmp_path / "a.onnx")
    exporter.save(exporter.write(model), tmp_path / "b.onnx")
    written = (tmp_path / "a.onnx").read_bytes()
    assert written == (tmp_path / "b.onnx").read_bytes()
    assert portions == [(-1, len(written))]
    again = importer.read(tmp_path / "a.onnx")
    for name, array in arrays.items():
        np.testing.assert_array_equal(again.constants[name].array, array)


def test_malformed_messages_are_reported() -> None:
    model = exporter.write(graph(CASES["views"])).SerializeToString()
    assert [number for number, *_ in fields(memoryview(model))] == [1, 2, 6, 7, 8, 14]
    for damaged in (model[:-1], model[:40], b"\x3a\xff", b"\x0b", b"\x80" * 12, b"\x09\x00"):
        with pytest.raises(Malformed):
            list(fields(memoryview(damaged)))


def test_fields_of_every_kind_are_passed_over() -> None:
    proto = onnx.AttributeProto(name="a", f=2.5, i=-1, s=b"text", type=onnx.AttributeProto.FLOAT)
    data = memoryview(proto.SerializeToString())
    found = {number: bytes(data[start:end]) for number, _, _, start, end in fields(data)}
    assert found[1] == b"a"
    assert found[2] == np.float32(2.5).tobytes()
    assert found[3] == b"\xff" * 9 + b"\x01"
    assert found[4] == b"text"


def saved(model: onnx.ModelProto, path: Path) -> Path:
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("arrays", CASES.values(), ids=CASES.keys())
def test_large_initializers_are_read_where_they_are(
    arrays: dict[str, np.ndarray], mapped: bool, tmp_path: Path
) -> None:
    proto = exporter.write(graph(arrays, {"d": np.linspace(0, 1, 3000)}))
    of_proto = importer.read(proto)
    path = saved(proto, tmp_path / "m.onnx")
    for found in (importer.read(path, mapped=mapped), importer.read(path.read_bytes())):
        assert (found.nodes, found.types, found.opset) == (of_proto.nodes, of_proto.types, of_proto.opset)
        assert found.constants == of_proto.constants
        assert found.defaults == of_proto.defaults
        for name, array in arrays.items():
            read = found.constants[name].array
            np.testing.assert_array_equal(read, array)
            assert read.dtype == array.dtype
            if array.nbytes >= LARGE_FROM:
                assert not read.flags.owndata
                assert not read.flags.writeable


def test_only_raw_data_of_large_initializers_is_left_out() -> None:
    inline = onnx.helper.make_tensor("floats", onnx.TensorProto.FLOAT, [3000], np.zeros(3000))  # not as raw data
    both = onnx.numpy_helper.from_array(np.arange(3000.0), "both")
    both.external_data.add(key="location", value="elsewhere")
    four = onnx.numpy_helper.from_array(np.arange(9000).astype(ml_dtypes.int4), "four")
    proto = exporter.write(graph(CASES["views"]))
    proto.graph.initializer.extend([inline, both, four])
    data = proto.SerializeToString()
    light = onnx.ModelProto.FromString(lightened(memoryview(data), "here"))
    external = {t.name: t for t in light.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL}
    assert external.keys() == {*CASES["views"], "four"}
    rest = outside(memoryview(data))
    assert b"elsewhere" in rest
    for name, tensor in external.items():
        where = {entry.key: entry.value for entry in tensor.external_data}
        whole = next(t for t in proto.graph.initializer if t.name == name)
        assert where["location"] == "here"
        assert data[int(where["offset"]) :][: int(where["length"])] == whole.raw_data
        assert whole.raw_data not in rest
    assert len(rest) == len(data) - sum(len(t.raw_data) for t in proto.graph.initializer if t.name in external)


def test_elements_of_four_bits_and_a_wrong_size(tmp_path: Path) -> None:
    four = np.arange(9000).astype(ml_dtypes.int4)
    proto = exporter.write(graph({"a": np.float32([1])}))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(four, "four"))
    path = saved(proto, tmp_path / "m.onnx")
    np.testing.assert_array_equal(importer.read(path).constants["four"].array, four)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(3000), "wrong"))
    proto.graph.initializer[-1].dims[0] = 2999
    with pytest.raises(UserError, match=r"24000 bytes do not match the shape \[2999\]"):
        importer.read(saved(proto, path))


def test_a_model_cannot_forge_the_location_of_its_own_bytes(tmp_path: Path) -> None:
    """A tensor that claims to be in the model's bytes is read from there, or refused like any other."""
    proto = exporter.write(graph({"a": np.float32([1])}))
    tensor = proto.graph.initializer.add(name="t", data_type=onnx.TensorProto.UINT8, dims=[4])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="\0")
    for offset in ("", "-3", "x"):
        with pytest.raises(UserError, match="is invalid"):
            importer.read(saved(proto, tmp_path / "m.onnx"))
        tensor.external_data.add(key="offset", value=offset)
    tensor.external_data.add(key="length", value="4")
    tensor.external_data.add(key="offset", value="999999")
    with pytest.raises(UserError, match="0 bytes do not match"):
        importer.read(saved(proto, tmp_path / "m.onnx"))


@pytest.mark.parametrize("arrays", CASES.values(), ids=CASES.keys())
def test_portions_of_a_written_model(arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    """The parts that are said to be the original's, and the rest, are the model."""
    big = np.random.default_rng(0).integers(0, 255, (3, 70_000), np.uint8)
    path = saved(exporter.write(graph({**arrays, "big": big})), tmp_path / "m.onnx")
    mapped = importer.read(path, mapped=True)
    mapped.constants["turned big"] = Constant(mapped.constants["big"].array.T)
    portions = save_graph(mapped, tmp_path / "o.onnx")
    assert portions is not None
    before, after = path.read_bytes(), (tmp_path / "o.onnx").read_bytes()
    at = 0
    for start, size in portions:
        if start >= 0:
            assert after[at : at + size] == before[start : start + size]
        at += size
    assert at == len(after)
    assert sum(size for start, size in portions if start >= 0) >= big.nbytes
    exporter.save(exporter.write(mapped), tmp_path / "w.onnx")
    assert after == (tmp_path / "w.onnx").read_bytes()


def test_an_unfinished_file_is_not_published(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"before")
    made = graph(CASES["views"])
    with writing(made, path):
        pass
    with pytest.raises(KeyboardInterrupt), writing(made, path):
        raise KeyboardInterrupt
    assert path.read_bytes() == b"before"
    with writing(made, path) as finish:
        assert path.read_bytes() == b"before"
        finish()
    assert onnx.load(path) == exporter.write(made)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    with pytest.raises(UserError, match="cannot be written: No such file"), writing(made, tmp_path / "no" / "m.onnx"):
        pass


def test_tensors_whose_external_data_was_read_stay_in_place(tmp_path: Path) -> None:
    """Those who read external data into a model leave the field that says where it is, now with 0."""
    array = np.arange(5000, dtype=np.float32)
    proto = exporter.write(graph({"a": array}))
    proto.graph.initializer[0].data_location = onnx.TensorProto.DEFAULT
    assert proto.graph.initializer[0].HasField("data_location")
    found = importer.read(saved(proto, tmp_path / "m.onnx"), mapped=True).constants["a"].array
    np.testing.assert_array_equal(found, array)
    assert mapping_of(found) is not None
    again = importer.read(tmp_path / "m.onnx", mapped=True).constants["a"].array
    assert mapping_of(again) is mapping_of(found)


def test_constants_of_large_models_go_to_a_second_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "LARGE", 1000)
    made = graph({**CASES["views"], "l": np.arange(5000, dtype=np.int64), "s": np.int64(3)})
    assert save_graph(made, tmp_path / "a.onnx") is None
    (tmp_path / "b").mkdir()
    exporter.save(exporter.write(made), tmp_path / "b" / "a.onnx")
    for name in ("a.onnx", "a.onnx.data"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    again = importer.read(tmp_path / "a.onnx")
    assert again.constants == made.constants
    assert onnx.load(tmp_path / "a.onnx").graph.initializer[0].data_location == onnx.TensorProto.DEFAULT


def test_models_with_their_weights_elsewhere(tmp_path: Path) -> None:
    """Those of a graph share its arrays, and those of a file are mapped, with external data and without."""
    made = graph({**CASES["views"], "s": np.int64(3)})
    apart = exporter.detached(made)
    for name, array in apart.tensors.items():
        found = made.constants[name].array
        assert np.shares_memory(array, found) == found.flags.c_contiguous
    assert apart.whole() == exporter.write(made)
    for elsewhere in (False, True):
        path = tmp_path / f"{elsewhere}.onnx"
        onnx.save(exporter.write(made), path, save_as_external_data=elsewhere, location=f"{elsewhere}.data")
        of_file = model_file.detached(path)
        assert of_file.tensors.keys() == apart.tensors.keys()
        assert all(mapping_of(array) is not None for array in of_file.tensors.values())
        assert importer.read(of_file.whole()).constants == made.constants
