"""Sessions that answer by ONNX Runtime or NumPy until their model is compiled."""

from __future__ import annotations

import gc
import logging
import time
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser
from rewrite import ort
from rewrite.ort import background
from rewrite.system import installed_onnxruntime

X = np.linspace(-2, 2, 32, dtype=np.float32).reshape(2, 16)


def model(scale: float) -> onnx.ModelProto:
    """A model that no cache has: its constants are those of a test."""
    return parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        agraph (float[N, 16] x) => (float[N, 16] y)
        <float[1] k = {{{scale}}}>
        {{ s = Mul(x, k) t = Relu(s) y = Softmax<axis: int = 1>(t) }}"""
    )


def want(scale: float) -> Any:
    t = np.exp(np.maximum(X * np.float32(scale), 0))
    return t / t.sum(1, keepdims=True)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(background, "NICENESS", 0)  # other tests keep all cores busy
    monkeypatch.delenv("REWRITE_COMPILE_IN_BACKGROUND", raising=False)


def test_an_unknown_model_is_answered_before_it_is_compiled(caplog: pytest.LogCaptureFixture) -> None:
    data = model(1.25).SerializeToString()
    with caplog.at_level(logging.INFO, "rewrite.ort"):
        session = ort.InferenceSession(data)
        assert session.program is None
        np.testing.assert_allclose(session.run(None, {"x": X})[0], want(1.25), rtol=1e-5)
        before = [(p.name, p.type, p.shape) for p in (*session.get_inputs(), *session.get_outputs())]
        assert session.wait(120)
    assert session.program is not None
    assert any("switched to compiled code" in record.getMessage() for record in caplog.records)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], want(1.25), rtol=1e-5)
    assert before == [(p.name, p.type, p.shape) for p in (*session.get_inputs(), *session.get_outputs())]
    again = ort.InferenceSession(data)  # from the cache
    assert again.program is not None


def test_what_answers_first_refuses_what_onnx_runtime_refuses() -> None:
    """Its session is called below the checks in Python, if names and types allow it."""
    session = ort.InferenceSession(model(1.75).SerializeToString())
    assert session.program is None
    wrong: list[tuple[Any, Any]] = [
        (None, {"x": X[:, :3]}), (None, {"x": X.astype(np.float64)}), (["z"], {"x": X}), (None, {"x": X, "z": X}),
    ]  # fmt: skip
    theirs = onnxruntime.InferenceSession(model(1.75).SerializeToString(), providers=["CPUExecutionProvider"])
    for names, feed in wrong:
        with pytest.raises(Exception, match=r".") as refused:
            theirs.run(names, feed)
        with pytest.raises(ort.errors.InvalidArgument) as ours:
            session.run(names, feed)
        assert isinstance(refused.value, ValueError) or isinstance(ours.value, type(refused.value))
    with pytest.raises(ValueError, match="x"):
        session.run(None, {})
    feeds: list[Any] = [{"x": X}, {"x": X.tolist()}, {"x": np.asfortranarray(X)}, MappingProxyType({"x": X})]
    for feed in feeds:
        np.testing.assert_allclose(session.run(["y"], feed)[0], want(1.75), rtol=1e-5)
    assert session.program is None


@pytest.mark.parametrize("module", [ort, onnxruntime], ids=["ours", "ONNX Runtime's"])
def test_onnx_runtime_has_the_options_of_the_session_while_it_answers(module: Any) -> None:
    options = module.SessionOptions()
    options.graph_optimization_level = module.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.execution_mode = module.ExecutionMode.ORT_PARALLEL
    options.inter_op_num_threads = 2
    options.intra_op_num_threads = 1
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("rewrite.compile_in_background", "1")
    session: Any = ort.InferenceSession(model(2.75).SerializeToString(), options)
    found = session._engine.session.get_session_options()
    assert found.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    assert found.execution_mode == onnxruntime.ExecutionMode.ORT_PARALLEL
    assert (found.inter_op_num_threads, found.intra_op_num_threads, found.enable_mem_pattern) == (2, 1, False)
    assert found.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    np.testing.assert_allclose(session.run(None, {"x": X})[0], want(2.75), rtol=1e-5)


def test_by_default_onnx_runtime_chooses_its_threads() -> None:
    """With a number of them it does not pin them to cores."""
    session: Any = ort.InferenceSession(model(3.75).SerializeToString())
    assert session._engine.session.get_session_options().intra_op_num_threads == 0


def test_data_beside_the_model(tmp_path: Path) -> None:
    proto = model(1.5)
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.full((1, 16), 1.5, np.float32), "k"))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=1)
    session = ort.InferenceSession(tmp_path / "m.onnx")
    assert session.program is None
    np.testing.assert_allclose(session.run(None, {"x": X})[0], want(1.5), rtol=1e-5)
    assert session.wait(120)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], want(1.5), rtol=1e-5)


def test_those_who_want_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ort.InferenceSession(model(1.75), compile_in_background=False).program is not None
    options = ort.SessionOptions()
    options.add_session_config_entry("rewrite.compile_in_background", "0")
    assert ort.InferenceSession(model(2.0), options).program is not None
    monkeypatch.setenv("REWRITE_COMPILE_IN_BACKGROUND", "0")
    assert ort.InferenceSession(model(2.25)).program is not None


def test_without_onnx_runtime_numpy_answers_first(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(installed_onnxruntime, "is_installed", lambda: False)
    with caplog.at_level(logging.INFO, "rewrite.ort"):
        session = ort.InferenceSession(model(2.5))
        assert session.program is None
        assert "in NumPy" in repr(session)
        np.testing.assert_allclose(session.run(None, {"x": X})[0], want(2.5), rtol=1e-5)
        before = [(p.name, p.type, p.shape) for p in (*session.get_inputs(), *session.get_outputs())]
        with pytest.raises(ValueError, match="x"):
            session.run(None, {})
        assert session.wait(120)
    assert any("switched to compiled code" in record.getMessage() for record in caplog.records)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], want(2.5), rtol=1e-5)
    assert before == [(p.name, p.type, p.shape) for p in (*session.get_inputs(), *session.get_outputs())]


def test_a_model_that_numpy_does_not_run_is_compiled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_onnxruntime, "is_installed", lambda: False)
    proto = model(2.875)
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    node = proto.graph.node[1]
    node.op_type, node.domain = "QuickGelu", "com.microsoft"
    session = ort.InferenceSession(proto)
    assert session.program is not None
    s = X * np.float32(2.875)
    t = np.exp(s / (1 + np.exp(-1.702 * s)))
    np.testing.assert_allclose(session.run(None, {"x": X})[0], t / t.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(("peer", "first"), [(True, "ONNX Runtime"), (False, "NumPy")])
def test_a_model_that_cannot_be_compiled_stays_with_what_answers_first(
    peer: bool, first: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if not peer:
        monkeypatch.setattr(installed_onnxruntime, "is_installed", lambda: False)
    monkeypatch.setenv("CC", "/nonexistent/compiler")
    with caplog.at_level(logging.WARNING, "rewrite.ort"):
        session = ort.InferenceSession(model(2.75))
        assert not session.wait(120)
    assert any(f"{first} goes on" in record.getMessage() for record in caplog.records)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], want(2.75), rtol=1e-5)


def test_quantized_networks_are_exact_before_they_are_compiled() -> None:
    """Without VNNI ONNX Runtime would add pairs of products in 16 bits, and the answer would change with the switch."""
    weights = ", ".join(["127"] * 64)
    quantized = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> agraph (uint8[N, 64] x) => (int32[N, 1] y)
        <int8[64, 1] w = {{{weights}}}, uint8 z = {{3}}> {{ y = MatMulInteger(x, w, z) }}"""
    )
    session = ort.InferenceSession(quantized.SerializeToString())
    assert session.program is None
    answer = session.run(None, {"x": np.full((2, 64), 255, np.uint8)})[0]
    np.testing.assert_array_equal(answer, np.full((2, 1), 64 * 252 * 127))


def test_a_dropped_session_ends_its_child() -> None:
    session = ort.InferenceSession(model(3.0))
    compilation = session._compilation
    assert compilation is not None
    while compilation._child is None:
        time.sleep(0.01)
    del session
    gc.collect()
    assert compilation.wait(20)
    assert compilation._child.returncode != 0


def test_a_model_that_changes_is_not_switched_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "m.onnx"
    onnx.save(model(3.1), file)
    with caplog.at_level(logging.WARNING, "rewrite.ort"):
        session = ort.InferenceSession(file)
        onnx.save(model(-4.125), file)
        np.testing.assert_allclose(session.run(None, {"x": X})[0], want(3.1), rtol=1e-5)
        assert not session.wait(120)
    assert any("the model has changed" in record.getMessage() for record in caplog.records)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], want(3.1), rtol=1e-5)


def test_a_program_that_is_gone_is_reported(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rewrite.ort"):
        session = ort.InferenceSession(model(3.15).SerializeToString())
        monkeypatch.setattr(background.Job, "cached", lambda job: None)
        assert not session.wait(120)
    assert any("no longer in the cache" in record.getMessage() for record in caplog.records)


def test_errors_before_and_after_the_switch_are_of_one_kind() -> None:
    session = ort.InferenceSession(model(3.25))
    for _ in range(2):
        with pytest.raises(ort.errors.InvalidArgument):
            session.run(None, {"x": X[0]})
        with pytest.raises(ort.errors.InvalidArgument):
            session.run(["z"], {"x": X})
        with pytest.raises(ValueError, match="x"):
            session.run(None, {})
        assert session.wait(120)


def test_bound_outputs_before_the_switch() -> None:
    session = ort.InferenceSession(model(3.5))
    binding, result = session.io_binding(), np.empty_like(X)
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("y", ort.OrtValue(result))
    session.run_with_iobinding(binding)
    assert session.program is None
    np.testing.assert_allclose(result, want(3.5), rtol=1e-5)
