"""The node cases of the test suite in the `onnx` package, ready to run."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
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


def _plain(value: Any) -> Any:
    """Return a value as an array or list, from any kind of message."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return numpy_helper.to_optional(value)
    return value
