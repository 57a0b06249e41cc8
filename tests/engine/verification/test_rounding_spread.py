"""Results that rounding alone decides pass, wrong ones do not."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from rewrite.engine.onnx_io.exporter import write
from rewrite.engine.onnx_io.importer import read
from rewrite.engine.verification.rounding_spread import LEAST, RUNS, Sampler, Spread, with_errors
from rewrite.engine.verification.verify import Verification, check_model


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 18]>' + text)


def check(original: str, other: str, numerics: str = "reassoc") -> Verification:
    before = model(original)
    return check_model(before, model(other), read(before), numerics=numerics)


SCORES = (
    "main (float16[256, 64] x) => (int64[256, 1] y) <float16 far = {20480}>"
    " { s = Add(x, far) y = ArgMax<axis = 1, keepdims = 1>(s) }"
)
"""Scores near 32, where f16 has few numbers. The constant is written as its bits."""


def check_choice(choose: Callable[[Any], Any]) -> Verification:
    def program(feeds: Mapping[str, Any]) -> dict[str, Any]:
        scores = feeds["x"] + np.float16(32)
        assert scores.dtype == np.float16
        return {"y": choose(scores)[:, None]}

    original = model(SCORES)
    return check_model(original, original, read(original), others={"the program": program})


def test_a_choice_between_equal_numbers_may_differ() -> None:
    """The last of the largest numbers may be chosen in place of the first: before rounding they were not equal."""
    found = check_choice(lambda scores: 63 - scores[:, ::-1].argmax(1))
    assert found.ok, str(found)
    assert "of 256 numbers of 'y' of the program, which rounding alone decides" in str(found)


def test_a_wrong_choice_is_refused() -> None:
    found = check_choice(lambda scores: scores.argmin(1))
    assert not found.ok
    assert "output 'y'" in str(found)


LOGISTIC = (
    "main (float[1000] z) => (float[1000] y) <float k = {K}, float one = {1}> { x0 = Sigmoid(z) "
    + " ".join(f"a{i} = Mul(k, x{i}) b{i} = Sub(one, x{i}) x{i + 1} = Mul(a{i}, b{i})" for i in range(18))
    + " y = Identity(x18) }"
).replace("K", "3.9")
"""The logistic map, which doubles a rounding error with each step."""


def test_amplified_rounding_is_no_fault() -> None:
    """18 steps make 1e-7 an error of 1e-2, a hundred times what is allowed."""
    other = re.sub(
        r"b(\d+) = Sub\(one, x\d+\) (x\d+) = Mul\((a\d+), b\d+\)", r"c\1 = Mul(\3, x\1) \2 = Sub(\3, c\1)", LOGISTIC
    )
    assert other != LOGISTIC
    assert check(LOGISTIC, other).ok
    assert not check(LOGISTIC, other, "exact").ok


def test_a_fault_is_not_taken_for_amplified_rounding() -> None:
    assert not check(LOGISTIC, LOGISTIC.replace("3.9", "3.9001")).ok


def test_sizes_have_no_errors_and_exact_operators_add_none() -> None:
    graph = read(model(
        "main (float[N, 4] x) => (float[N, 4] y, float[N, 4] r) <float half = {0.5}, int64[1] one = {1}> {"
        " n = Shape(x) f = Cast<to = 1>(n) h = Mul(f, half) e = Div(h, half) c = Cast<to = 7>(e)"
        " y = Reshape(x, c) r = Relu(x) }"
    ))  # fmt: skip
    assert [n.op for n in with_errors(graph).nodes] == [n.op for n in graph.nodes]


def test_errors_are_of_the_size_of_the_element_type() -> None:
    sampler = Sampler(read(model("main (float[100] x, float16[100] w) => (float[100] y, float16[100] v)"
                                 " { y = Exp(x) v = Exp(w) }")))  # fmt: skip
    x = np.linspace(-3, 3, 100)
    spread = sampler.sample({"x": x.astype(np.float32), "w": x.astype(np.float16)}, 60.0)
    assert len(spread.samples["y"]) == RUNS
    for name, unit in (("y", 2.0**-23), ("v", 2.0**-10)):
        error = np.abs(np.stack(spread.samples[name]).astype(np.float64) / np.exp(x) - 1)
        assert unit < error.max() < 8 * unit + (name == "v") * 4 * unit


def test_the_time_limits_the_runs() -> None:
    sampler = Sampler(read(model("main (float[4] x) => (float[4] y) { y = Exp(x) }")))
    assert len(sampler.sample({"x": np.ones(4, np.float32)}, 0.0).samples["y"]) == LEAST


def test_sums_that_cancel_have_the_error_of_their_terms() -> None:
    graph = read(
        model("main (float[8, 64] x) => (float[8] y) <int64[1] a = {1}> { y = ReduceSum<keepdims = 0>(x, a) }")
    )
    x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    x[0] = 0.0
    found = np.stack(Sampler(graph).sample({"x": x}, 60.0).samples["y"])
    assert (np.ptp(found, axis=0) > 1e-7).all()


F32 = np.float32


@pytest.mark.parametrize(
    ("reference", "found", "samples", "mended"),
    [
        ([1, 2, 3], [1, 9, 3], [[1, 9, 3], [1, 2, 3]], [1, 2, 3]),
        ([1, 2, 3], [1, 9, 3], [[1, 2, 3], [1, 2, 3]], [1, 9, 3]),
        ([1, 2, 3], [1, 9, 4], [[1, 9, 3], [1, 2, 3]], [1, 2, 4]),
        ([1, 2, np.nan], [1, 2, 3], [[1, 2, 3], [1, 2, np.nan]], [1, 2, np.nan]),
        ([1, 2, 3], [1, 2, np.nan], [[1, 2, 3], [1, 2, 3]], [1, 2, np.nan]),
        ([1, 2, 3], [1, 2, np.inf], [[1, 2, 3], [1, 2, np.inf]], [1, 2, 3]),
        ([1, 2, 3], [1, 2, -np.inf], [[1, 2, 3], [1, 2, np.inf]], [1, 2, -np.inf]),
        ([1, 2, np.inf], [1, 2, 90], [[1, 2, 7], [1, 2, np.inf]], [1, 2, np.inf]),
        ([1, 2, np.inf], [1, 2, -90], [[1, 2, 7], [1, 2, 8]], [1, 2, -90]),
        ([1, 2, np.inf], [1, 2, 90], [[1, 2, np.inf], [1, 2, np.inf]], [1, 2, 90]),
    ],
)
def test_only_what_differs_from_sample_to_sample_is_explained(
    reference: list[float], found: list[float], samples: list[list[float]], mended: list[float]
) -> None:
    spread = Spread({"y": [np.array(s, F32) for s in samples]})
    result, count = spread.reconciled("y", np.array(reference, F32), np.array(found, F32), 1e-4)
    np.testing.assert_array_equal(result, np.array(mended, F32))
    assert count == sum(not np.array_equal([a], [b], equal_nan=True) for a, b in zip(found, mended, strict=True))


@pytest.mark.parametrize("other", [np.zeros(4, F32), np.zeros(3, np.float64), [np.zeros(3, F32)], None])
def test_other_shapes_and_types_are_never_explained(other: Any) -> None:
    spread = Spread({"y": [np.zeros(3, F32), np.ones(3, F32)]})
    result, count = spread.reconciled("y", np.zeros(3, F32), other, 1e-4)
    assert result is other
    assert count == 0


def test_a_graph_with_errors_is_a_model() -> None:
    graph = read(model(LOGISTIC))
    onnx.checker.check_model(write(with_errors(graph)), full_check=True)


def test_quantized_operators_may_move_by_a_step() -> None:
    graph = read(model(
        "main (uint8[4000, 1] x) => (uint8[4000, 1] y)"
        " <float s = {0.5}, float t = {1}, uint8 z = {0}, uint8[1, 1] w = {1}>"
        " { y = QLinearMatMul(x, s, z, w, t, z, s, z) }"
    ))  # fmt: skip
    x = np.arange(4000).astype(np.uint8)[:, None]
    samples = np.stack(Sampler(graph).sample({"x": x}, 60.0).samples["y"]).astype(int)
    steps = samples - np.median(samples, axis=0)
    assert set(np.unique(steps)) == {-1, 0, 1}
    assert 0.005 < (steps != 0).mean() < 0.02


def test_operands_of_operators_that_quantize_have_errors() -> None:
    """A number in the middle between two steps falls either way, although nothing is computed before."""
    graph = read(model(
        "main (float[512] x) => (uint8[512] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }"
    ))  # fmt: skip
    x = (np.arange(512) % 255 + 0.5).astype(F32)
    x[:2] = 0, 255
    samples = Sampler(graph).sample({"x": x}, 60.0).samples["y"]
    assert (np.ptp(np.stack(samples).astype(int), axis=0) > 0).mean() > 0.1
