"""Summaries of constants: what conditions know of large ones."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
import rewrite
from numpy.typing import NDArray
from onnx import numpy_helper
from rewrite.engine.ir.constants import SMALL, leading_axes, summarize
from rewrite.engine.ir.graph import Constant

ROWS = np.arange(2 * SMALL, dtype=np.int64)[:, None]


@pytest.mark.parametrize(
    ("array", "axes"),
    [
        (np.full((3, 4), 7), 0),
        (np.repeat([[1], [2]], 3, axis=1), 1),
        (np.repeat([[[1]], [[2]]], 3, axis=2), 1),
        (np.array([[[1], [2]], [[1], [2]]]), 2),  # the same along the first axis, not along the second
        (np.array([[1, 1], [1, 2]]), 2),
        (np.array(5), 0),
        (np.zeros((0, 3), np.int64), 0),
        (np.zeros((3, 0), np.int64), 0),
    ],
)
def test_leading_axes(array: NDArray[np.int64], axes: int) -> None:
    assert leading_axes(array) == axes


def test_a_large_constant_is_known_to_repeat() -> None:
    array = np.repeat(ROWS, 3, axis=1)
    summary = summarize(Constant(array))
    assert (summary.elements, summary.axes) == (None, 1)
    array[-1, -1] += 1
    assert summarize(Constant(array)).axes == 2


@pytest.mark.parametrize(("changed", "op"), [(0, "ScatterND"), (1, "ScatterElements")])
def test_rows_are_scattered_as_rows(changed: int, op: str) -> None:
    at = np.repeat(ROWS, 3, axis=1)
    at[-1, -1] -= changed
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
g (float[{len(ROWS)}, 3] x, float[{len(ROWS)}, 3] u) => (float[{len(ROWS)}, 3] y)
{{ y = ScatterElements<axis = 0, reduction = "add">(x, at, u) }}""")
    model.graph.initializer.append(numpy_helper.from_array(at, "at"))
    assert [node.op for node in rewrite.optimize(model).native.nodes] == [op]


def test_threads_hash_constants_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Python 3.12 a `cached_property` has one lock for all instances."""
    both = threading.Barrier(2)
    hashed = Constant._hash

    def meet(constant: Constant) -> str:
        both.wait(20)  # broken, were one computed after the other
        return hashed(constant)

    monkeypatch.setattr(Constant, "_hash", meet)
    constants = [Constant(np.full(3, n, np.float32)) for n in (1, 2)]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda constant: constant.digest, constants)
    assert first != second
    assert [constant.digest for constant in constants] == [first, second]
