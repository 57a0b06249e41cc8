"""The cases of the test suites in the `onnx` package, ready to run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests


@dataclass(frozen=True)
class Case:
    """One case: a model of (usually) one node, with inputs and expected outputs."""

    name: str
    model: onnx.ModelProto
    data: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float


@lru_cache(maxsize=1)
def node_cases() -> dict[str, Case]:
    """Return all node cases by name. The package generates them in a few seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    cases = {}
    for case in found:
        data = [([_plain(v) for v in inputs], [_plain(v) for v in outputs]) for inputs, outputs in case.data_sets]
        cases[case.name] = Case(case.name, case.model, data, case.rtol, case.atol)
    return cases


@lru_cache(maxsize=1)
def stored_cases() -> dict[str, Case]:
    """Return the cases that the package has as files, by name: simple models, and those that PyTorch has exported."""
    cases = {}
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        for case in load_model_tests(kind=kind):
            model = case.model or onnx.load(Path(case.model_dir) / "model.onnx")
            data = case.data_sets if case.model else _stored(Path(case.model_dir), model.graph)
            plain = [([_plain(v) for v in inputs], [_plain(v) for v in outputs]) for inputs, outputs in data]
            cases[case.name] = Case(case.name, model, plain, case.rtol, case.atol)
    return cases


def _stored(folder: Path, graph: onnx.GraphProto) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield the inputs and outputs in the data sets of a case."""
    for data in sorted(folder.glob("test_data_set_*")):
        yield _messages(data, "input", graph.input), _messages(data, "output", graph.output)


def _messages(data: Path, prefix: str, ports: Any) -> list[Any]:
    kinds = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}
    found = []
    for number, port in enumerate(ports[: len(list(data.glob(f"{prefix}_*.pb")))]):
        message = kinds.get(port.type.WhichOneof("value"), onnx.TensorProto)()
        message.ParseFromString((data / f"{prefix}_{number}.pb").read_bytes())
        found.append(message)
    return found


def _plain(value: Any) -> Any:
    """Return a value as an array or list, from any kind of message."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return numpy_helper.to_optional(value)
    return value
