"""The stand-in for ONNX Runtime's session, beside ONNX Runtime itself."""

from __future__ import annotations

import json
import pickle
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as state
from rewrite import ort
from rewrite.errors import UserError
from rewrite.ort import InferenceSession
from rewrite.ort import session as session_module

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def model() -> onnx.ModelProto:
    """relu(x + b) and the sum of its rows, for any number of rows."""
    nodes = [
        helper.make_node("Add", ["x", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
        helper.make_node("ReduceSum", ["y", "axes"], ["total"], keepdims=0),
    ]
    constants = [
        onnx.numpy_helper.from_array(np.array([1, 0, -1], np.float32), "b"),
        onnx.numpy_helper.from_array(np.array([1]), "axes"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3]),
            helper.make_tensor_value_info("total", TensorProto.FLOAT, ["N"]),
        ],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def expected(x: np.ndarray) -> np.ndarray:
    return np.maximum(x + np.array([1, 0, -1], np.float32), 0)


@pytest.fixture(scope="module")
def session() -> InferenceSession:
    return InferenceSession(model(), providers=["CPUExecutionProvider"], compile_in_background=False)


def test_it_runs(session: InferenceSession) -> None:
    y, total = session.run(None, {"x": X})
    np.testing.assert_allclose(y, expected(X), rtol=1e-6)
    np.testing.assert_allclose(total, expected(X).sum(1), rtol=1e-6)


def test_outputs_are_given_in_the_order_asked_for(session: InferenceSession) -> None:
    total, y = session.run(["total", "y"], {"x": X})
    assert (total.shape, y.shape) == ((2,), (2, 3))
    [only] = session.run(["total"], {"x": X})
    np.testing.assert_array_equal(only, total)


def test_it_describes_itself(session: InferenceSession) -> None:
    [x] = session.get_inputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["N", 3])
    assert [(o.name, o.shape) for o in session.get_outputs()] == [("y", ["N", 3]), ("total", ["N"])]
    assert session.get_providers() == ["CPUExecutionProvider"]


def test_wrong_names_are_reported(session: InferenceSession) -> None:
    with pytest.raises(UserError, match=r"(?s)no output 'totals'.*Did you mean 'total'"):
        session.run(["totals"], {"x": X})
    with pytest.raises(UserError, match="no input 'z'"):
        session.run(None, {"z": X})


def test_paths_bytes_and_bundles(session: InferenceSession, tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    onnx.save(model(), file)
    assert session.program is not None
    bundle = session.program.save(tmp_path / "m.rewrite")
    want = session.run(None, {"x": X})
    for source in (file, str(file), file.read_bytes(), bundle):
        for a, b in zip(InferenceSession(source, compile_in_background=False).run(None, {"x": X}), want, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_missing_model_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        InferenceSession(tmp_path / "none.onnx")


def test_the_number_of_threads_is_taken_from_the_options() -> None:
    session = InferenceSession(model(), SimpleNamespace(intra_op_num_threads=1), compile_in_background=False)
    assert session.program is not None
    assert session.program.threads == 1


# --- the same code with both packages ---------------------------------------------------------------------------------

BOTH = pytest.mark.parametrize("module", [onnxruntime, ort], ids=["onnxruntime", "rewrite"])


def made(module: Any, options: Any = None) -> Any:
    """A session of either package, compiled if it is ours."""
    more = {"compile_in_background": False} if module is ort else {}
    return module.InferenceSession(model().SerializeToString(), options, providers=["CPUExecutionProvider"], **more)


@BOTH
def test_lists_are_converted_to_the_declared_type(module: Any) -> None:
    [y] = made(module).run(["y"], {"x": X.tolist()})
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, expected(X), rtol=1e-6)


@BOTH
def test_bound_inputs_and_outputs(module: Any) -> None:
    session = made(module)
    binding, result = session.io_binding(), np.empty((2, 3), np.float32)
    binding.bind_cpu_input("x", X)
    binding.bind_output("total")
    binding.bind_output("y", "cpu", 0, np.float32, [2, 3], result.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(result, expected(X), rtol=1e-6)
    total, y = (value.numpy() for value in binding.get_outputs())
    np.testing.assert_allclose(total, expected(X).sum(1), rtol=1e-6)
    np.testing.assert_array_equal(y, result)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], total)


@BOTH
def test_values_bound_to_values(module: Any) -> None:
    session = made(module)
    x = module.OrtValue.ortvalue_from_numpy(X.copy())
    y = module.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    for shift in (0, 1):
        x.update_inplace(X + np.float32(shift))
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(y.numpy(), expected(X + shift), rtol=1e-6)
    binding.clear_binding_outputs()
    binding.bind_input("x", "cpu", 0, np.float32, X.shape, X.ctypes.data)
    binding.bind_output("total")
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(binding.get_outputs()[0].numpy(), expected(X).sum(1), rtol=1e-6)


@BOTH
def test_values_describe_themselves(module: Any) -> None:
    value = module.OrtValue.ortvalue_from_numpy(np.arange(6, dtype=np.int64).reshape(2, 3))
    assert (value.data_type(), list(value.shape()), value.element_type()) == ("tensor(int64)", [2, 3], 7)
    assert value.has_value()
    assert value.is_tensor()
    assert not value.is_tensor_sequence()
    assert not value.is_sparse_tensor()
    assert value.device_name().lower() == "cpu"
    assert value.tensor_size_in_bytes() == 48
    assert module.OrtValue.ortvalue_from_numpy(np.zeros(2, bool)).data_type() == "tensor(bool)"
    assert (
        module.OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros(2, np.uint16), 10).data_type() == "tensor(float16)"
    )


@BOTH
def test_runs_on_values(module: Any) -> None:
    session = made(module)
    feed = {"x": module.OrtValue.ortvalue_from_numpy(X)}
    [total] = session.run_with_ort_values(["total"], feed)
    np.testing.assert_allclose(total.numpy(), expected(X).sum(1), rtol=1e-6)


@BOTH
def test_asynchronous_runs(module: Any) -> None:
    session, found, done = made(module), list[Any](), threading.Event()

    def callback(results: Any, user_data: Any, message: str) -> None:
        found.append((results, user_data, message))
        done.set()

    session.run_async(["total"], {"x": X}, callback, "mine")
    assert done.wait(30)
    [([total], user_data, message)] = found
    np.testing.assert_allclose(total, expected(X).sum(1), rtol=1e-6)
    assert (user_data, message) == ("mine", "")


@BOTH
def test_descriptions(module: Any) -> None:
    proto = model()
    proto.producer_name, proto.doc_string, proto.graph.doc_string, proto.model_version = "me", "what", "how", 7
    entry = proto.metadata_props.add()
    entry.key, entry.value = "labels", "a,b"
    more = {"compile_in_background": False} if module is ort else {}
    session = module.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"], **more)
    meta = session.get_modelmeta()
    assert (meta.producer_name, meta.graph_name, meta.domain) == ("me", "g", "")
    assert (meta.description, meta.graph_description, meta.version) == ("what", "how", 7)
    assert meta.custom_metadata_map == {"labels": "a,b"}
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert "CPUExecutionProvider" in session.get_provider_options()
    [x] = session.get_inputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["N", 3])
    assert session.get_overridable_initializers() == []


@BOTH
def test_dims_without_a_name(module: Any) -> None:
    proto = model()
    proto.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    proto.graph.output[0].type.tensor_type.shape.dim[0].Clear()
    more = {"compile_in_background": False} if module is ort else {}
    session = module.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"], **more)
    assert [x.shape for x in session.get_inputs()] == [[None, 3]]
    assert session.get_outputs()[0].shape == [None, 3]


@BOTH
@pytest.mark.parametrize("name", ["batch size", "x.1", "a _b"])
def test_names_of_dims_that_are_no_identifiers(module: Any, name: str) -> None:
    proto = model()
    for port in (proto.graph.input[0], proto.graph.output[0]):
        port.type.tensor_type.shape.dim[0].dim_param = name
    more = {"compile_in_background": False} if module is ort else {}
    session = module.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"], **more)
    assert session.get_inputs()[0].shape == session.get_outputs()[0].shape == [name, 3]


@BOTH
def test_initializers_that_inputs_override(module: Any) -> None:
    proto = model()
    proto.graph.input.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [3]))
    more = {"compile_in_background": False} if module is ort else {}
    session = module.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"], **more)
    assert [i.name for i in session.get_inputs()] == ["x"]
    assert [i.name for i in session.get_overridable_initializers()] == ["b"]
    np.testing.assert_allclose(session.run(["y"], {"x": X})[0], expected(X), rtol=1e-6)
    zero = np.zeros(3, np.float32)
    np.testing.assert_allclose(session.run(["y"], {"x": X, "b": zero})[0], np.maximum(X, 0), rtol=1e-6)


@BOTH
def test_options(module: Any, tmp_path: Path) -> None:
    options = module.SessionOptions()
    options.graph_optimization_level = module.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.execution_mode = module.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = 1
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.add_free_dimension_override_by_name("N", 2)
    options.add_session_config_entry("session.set_denormal_as_zero", "0")
    options.add_initializer("b", kept := module.OrtValue.ortvalue_from_numpy(np.ones(3, np.float32)))
    assert options.get_session_config_entry("session.set_denormal_as_zero") == "0"
    if module is onnxruntime:
        options = module.SessionOptions()  # ONNX Runtime wants such an initializer to be external data
        options.add_free_dimension_override_by_name("N", 2)
        want = expected(X)
    else:
        want = np.maximum(X + 1, 0)
    session = made(module, options)
    assert session.get_inputs()[0].shape == [2, 3]
    np.testing.assert_allclose(session.run(["y"], {"x": X})[0], want, rtol=1e-6)
    if module is ort:
        written = onnxruntime.InferenceSession(tmp_path / "optimized.onnx")
        np.testing.assert_allclose(written.run(["y"], {"x": X})[0], want, rtol=1e-6)
    assert kept.is_tensor()


@BOTH
def test_profiles(module: Any, tmp_path: Path) -> None:
    options = module.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    session = made(module, options)
    session.run(None, {"x": X})
    path = Path(session.end_profiling())
    assert path.parent == tmp_path
    events = json.loads(path.read_text())
    assert events["traceEvents"] if isinstance(events, dict) else events


# --- errors -----------------------------------------------------------------------------------------------------------


@BOTH
def test_missing_inputs_are_value_errors(module: Any) -> None:
    with pytest.raises(ValueError, match="x"):
        made(module).run(None, {})


@BOTH
@pytest.mark.parametrize("feed", [{"x": X.astype(np.float64)}, {"x": X[0]}, {"x": X, "z": X}])
def test_wrong_inputs_are_invalid_arguments(module: Any, feed: Any) -> None:
    with pytest.raises((state.InvalidArgument, RuntimeError)):
        made(module).run(None, feed)


@BOTH
def test_errors_of_loading(module: Any, tmp_path: Path) -> None:
    with pytest.raises(state.NoSuchFile):
        module.InferenceSession(str(tmp_path / "none.onnx"), providers=["CPUExecutionProvider"])
    (tmp_path / "text.onnx").write_bytes(b"\xff\xff no model")
    with pytest.raises(state.InvalidProtobuf):
        module.InferenceSession(str(tmp_path / "text.onnx"), providers=["CPUExecutionProvider"])


def test_errors_are_ours_too(tmp_path: Path) -> None:
    with pytest.raises(ort.errors.NoSuchFile) as found:
        InferenceSession(tmp_path / "none.onnx")
    assert isinstance(found.value, UserError)
    assert isinstance(found.value, state.NoSuchFile)
    copied = pickle.loads(pickle.dumps(found.value))
    assert (type(copied), str(copied)) == (type(found.value), str(found.value))


def test_an_unknown_initializer_is_reported() -> None:
    options = ort.SessionOptions()
    options.add_initializer("c", ort.OrtValue.ortvalue_from_numpy(np.ones(3, np.float32)))
    with pytest.raises(ort.errors.InvalidArgument, match="no initializer 'c'"):
        InferenceSession(model(), options)


def test_what_an_option_cannot_mean_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    options = ort.SessionOptions()
    options.inter_op_num_threads = 3
    with caplog.at_level("INFO", "rewrite.ort"):
        for _ in range(2):
            InferenceSession(model(), options, providers=["CUDAExecutionProvider"], compile_in_background=False)
    texts = [record.getMessage() for record in caplog.records]
    assert sum("inter_op_num_threads" in text for text in texts) <= 1
    assert sum("CUDAExecutionProvider" in text for text in texts) <= 1
    assert any("CUDAExecutionProvider" in text for text in ort.options._noted)


def test_other_devices_and_libraries_are_refused() -> None:
    with pytest.raises(ort.errors.InvalidArgument, match="no device 'cuda'"):
        ort.OrtValue.ortvalue_from_numpy(X, "cuda")
    with pytest.raises(ort.errors.NotImplemented, match="cannot be loaded"):
        ort.SessionOptions().register_custom_ops_library("lib.so")


def test_errors_of_missing_inputs_can_be_copied() -> None:
    with pytest.raises(ort.errors.MissingInput) as found:
        made(ort).run(None, {})
    copied = pickle.loads(pickle.dumps(found.value))
    assert (type(copied), str(copied)) == (type(found.value), str(found.value))


def test_a_model_too_large_for_bytes_is_compiled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_LARGEST", 10)
    session = InferenceSession(model())
    assert session.program is not None
    assert session.get_modelmeta().graph_name == "g"


def test_descriptions_outlive_the_file(tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "m.onnx")
    session = InferenceSession(tmp_path / "m.onnx")
    (tmp_path / "m.onnx").unlink()
    assert session.get_modelmeta().graph_name == "g"


@pytest.mark.parametrize("background", [False, True])
def test_an_empty_file_is_reported(tmp_path: Path, background: bool) -> None:
    (tmp_path / "m.onnx").touch()
    with pytest.raises(state.InvalidProtobuf):
        InferenceSession(tmp_path / "m.onnx", compile_in_background=background)
    with pytest.raises(state.InvalidProtobuf):
        InferenceSession(b"", compile_in_background=background)


def test_types_that_onnx_runtime_does_not_pass() -> None:
    assert ort.OrtValue(np.zeros(2, ml_dtypes.float8_e4m3fn)).data_type() == "tensor(f8e4m3fn)"
    assert ort.OrtValue(np.array(["a"])).data_type() == "tensor(string)"
