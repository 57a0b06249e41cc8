"""Models whose runs may end ONNX Runtime's process: they run in a child."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from rewrite.engine.onnx_io.importer import read
from rewrite.engine.operators.isolated_runtime import isolated, may_crash
from rewrite.engine.operators.reference_runtime import Unavailable
from rewrite.engine.verification.verify import check_model


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 18]>' + text)


CRASHES = parse(
    """g (float[B, N] x) => (float[B, P] state, float[B, M, Q] rows)
    <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] four = {4}, int64[1] last = {-1},
     int64[1] big = {9223372036854775807}, int64[3] shape = {0, -1, 2}> {
        first = Slice(x, zero, four, one) rest = Slice(x, four, big, one) slices = Reshape(rest, shape)
        state, rows = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1], body = body
            (float[B, 4] s, float[B, 2] piece) => (float[B, 4] next, float[B, 6] row) {
                row = Concat<axis = -1>(s, piece) next = Slice(row, two, big, last) }>(first, slices) }"""
)


def test_a_run_that_ends_onnx_runtime_ends_a_child() -> None:
    """It divides by zero where a Scan along the second axis has no slices."""
    x = np.tile(np.arange(8, dtype=np.float32), (2, 1))
    with isolated() as child:
        runner = child.load(CRASHES)
        expected = [[[0, 1, 2, 3, 4, 5], [2, 3, 4, 5, 6, 7]]] * 2
        np.testing.assert_array_equal(runner.run({"x": x})["rows"], expected)
        with pytest.raises(Unavailable, match=r"ended its process \(signal SIGFPE"):
            runner.run({"x": x[:, :4]})
        np.testing.assert_array_equal(runner.run({"x": x})["rows"], expected)
        with pytest.raises(Unavailable, match="x"):
            runner.run({"x": x[0]})
    assert check_model(CRASHES, CRASHES, read(CRASHES)).ok


def test_the_search_path_may_have_entries_that_are_no_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/nowhere")])
    with isolated() as child:
        assert child.load(parse("g (float[N] x) => (float[N] y) { y = Neg(x) }")).run({"x": np.ones(1, np.float32)})


@pytest.mark.parametrize(
    ("body", "risky"),
    [
        ("y = Div(x, x)", True),
        ("two = Constant<value_int = 2>() y = Div(x, two)", False),
        ("y = Mod(x, x)", True),
        ("f = Cast<to = 1>(x) g = Div(f, f) y = Cast<to = 7>(g)", False),
    ],
)
def test_which_models_run_in_a_child(body: str, risky: bool) -> None:
    assert may_crash(read(parse(f"g (int64[N] x) => (int64[N] y) {{ {body} }}"))) == risky
    assert may_crash(read(CRASHES))
