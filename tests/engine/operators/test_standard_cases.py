"""Import, inference and export on the node tests of the ONNX standard.

Each case is a small model with inputs and expected outputs.
"""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from rewrite.engine.ir.graph import TensorType
from rewrite.engine.ir.symbolic import known
from rewrite.engine.onnx_io import exporter, importer

from ..models import run

RANDOM = ("bernoulli", "training_dropout")


@cache
def cases() -> list[Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [c for c in load_model_tests(kind="node") if not any(word in c.name for word in RANDOM)]


def load(case: Any) -> tuple[Any, list[Any], list[Any]]:
    """Return the model, its inputs and the expected outputs."""
    proto = case.model if case.model is not None else onnx.load(Path(case.model_dir) / "model.onnx")
    if case.data_sets:
        return proto, list(case.data_sets[0][0]), list(case.data_sets[0][1])

    def values(kind: str, infos: Any) -> list[Any]:
        found: list[Any] = []
        for i, info in enumerate(infos):
            raw = (Path(case.model_dir) / "test_data_set_0" / f"{kind}_{i}.pb").read_bytes()
            which = info.type.WhichOneof("value")
            if which == "tensor_type":
                found.append(onnx.numpy_helper.to_array(onnx.TensorProto.FromString(raw)))
            elif which == "sequence_type":
                found.append(onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(raw)))
            else:
                found.append(onnx.numpy_helper.to_optional(onnx.OptionalProto.FromString(raw)))
        return found

    return proto, values("input", proto.graph.input), values("output", proto.graph.output)


def without_hints(proto: Any, inputs: list[Any]) -> Any:
    """Drop declared output types, and turn small inputs after the first into constants."""
    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    for info in bare.graph.output:
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")
            info.type.tensor_type.elem_type = 0
    del bare.graph.value_info[:]
    del bare.graph.input[:]
    for i, (info, value) in enumerate(zip(proto.graph.input, inputs, strict=True)):
        array = np.asarray(value) if isinstance(value, np.ndarray | np.generic) else None
        if i and array is not None and array.ndim <= 1 and array.size <= 64 and array.dtype.kind not in "OSU":
            bare.graph.initializer.append(onnx.numpy_helper.from_array(array, info.name))
        else:
            bare.graph.input.append(info)
    return bare


def differences(found: Any, array: Any) -> bool:
    """Whether an inferred type contradicts a value."""
    if not isinstance(found, TensorType) or not isinstance(array, np.ndarray | np.generic):
        return False
    array = np.asarray(array)
    if found.dtype is not None and array.dtype.kind not in "OSU" and found.dtype.numpy != array.dtype:
        return True
    if found.shape is None:
        return False
    return len(found.shape) != array.ndim or any(
        known(d) and d != s for d, s in zip(found.shape, array.shape, strict=True)
    )


def test_inference_agrees_with_every_case() -> None:
    wrong = []
    total = complete = 0
    for case in cases():
        proto, inputs, outputs = load(case)
        graph = importer.read(without_hints(proto, inputs))
        types = [graph.types[name] for name in graph.outputs]
        wrong += [case.name for t, array in zip(types, outputs, strict=False) if differences(t, array)]
        total += 1
        complete += all(not isinstance(t, TensorType) or t.is_static for t in types)
    assert wrong == []
    assert total > 1000
    # What is left depends on data: NonZero, Unique, NonMaxSuppression, ImageDecoder, ...
    assert complete / total > 0.94


def close(a: Any, b: Any) -> bool:
    if isinstance(a, list) or isinstance(b, list):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b, strict=True))
    if a is None or b is None:
        return a is b
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return False
    if a.dtype.kind in "OSU":
        return bool(np.all(a.astype(str) == b.astype(str)))
    return bool(np.allclose(a.astype(np.complex128), b.astype(np.complex128), rtol=1e-3, atol=1e-5, equal_nan=True))


def agrees(proto: Any, feeds: dict[str, Any], outputs: list[Any]) -> bool | None:
    """Whether ONNX Runtime gives these outputs; None if it cannot run the model."""
    try:
        return all(close(a, b) for a, b in zip(run(proto, feeds), outputs, strict=True))
    except Exception:
        return None


@pytest.mark.slow
def test_import_and_export_preserve_results() -> None:
    """Every case that ONNX Runtime passes must still pass after import and export, at its own opset.

    A Scan of opset 8 becomes two of opset 9."""
    wrong, compared = [], 0
    for case in cases():
        proto, inputs, outputs = load(case)
        feeds = {info.name: value for info, value in zip(proto.graph.input, inputs, strict=True)}
        if not agrees(proto, feeds, outputs):
            continue
        written = exporter.write(importer.read(proto))
        onnx.checker.check_model(written)
        compared += 1
        same_opset = {o.domain: o.version for o in proto.opset_import} == {
            o.domain: o.version for o in written.opset_import
        }
        if not agrees(written, feeds, outputs) or not (same_opset or case.name == "test_scan_sum"):
            wrong.append(case.name)
    assert wrong == []
    assert compared > 1000


@pytest.mark.slow
@pytest.mark.parametrize("opset", [7, 9, 11, 13, 18])
def test_older_opsets_compute_the_same(opset: int) -> None:
    """Export to an older opset, or the least one above it that can express the node, and import from there."""
    # ONNX Runtime refuses a Clip of an old opset with min > max, and an Identity of an optional of opset 14.
    refused_by_the_runtime = {"test_clip_min_greater_than_max", "test_identity_opt", "test_loop16_seq_none"}
    wrong, compared = [], 0
    for case in cases():
        if "expanded" in case.name or case.name in refused_by_the_runtime:
            continue
        proto, inputs, outputs = load(case)
        bare = without_hints(proto, inputs)
        del bare.graph.output[:]
        bare.graph.output.extend(proto.graph.output)
        wanted = {info.name for info in bare.graph.input}
        feeds = {i.name: v for i, v in zip(proto.graph.input, inputs, strict=True) if i.name in wanted}
        if not agrees(bare, feeds, outputs):
            continue
        down = exporter.write(importer.read(bare), opset=opset)
        up = exporter.write(importer.read(down), opset=22)
        for target in (down, up):
            found = agrees(target, feeds, outputs)
            compared += found is True
            if found is False:
                wrong.append((case.name, [o.version for o in target.opset_import]))
    assert wrong == []
    assert compared > 1500


def light_models() -> list[Path]:
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return sorted(folder.glob("*.onnx"))


@pytest.mark.parametrize("path", light_models(), ids=lambda p: p.stem)
def test_light_models_survive_import_and_export(path: Path) -> None:
    graph = importer.read(path)
    values = [name for n in graph.nodes for name in n.outputs if name]
    assert all(graph.type(v).is_static for v in values)
    assert not any("@" in n.op for n in graph.nodes)
    written = exporter.write(graph)
    onnx.checker.check_model(written, full_check=True)
    original = onnx.load(path)
    assert written.opset_import[0].version == original.opset_import[0].version
    (feed,) = graph.inputs
    shape = tuple(d for d in graph.type(feed).shape or () if isinstance(d, int))
    feeds = {feed: np.random.default_rng(0).random(shape, np.float32)}
    for got, want in zip(run(written, feeds), run(original, feeds), strict=True):
        np.testing.assert_array_equal(got, want)
