"""Combined effect of rules on blocks of known networks. `optimize` verifies the results."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnx.parser
import rewrite
from onnx import numpy_helper

RNG = np.random.default_rng(7)


def optimized(text: str, numerics: str = "reassoc", opset: int = 21, **weights: tuple[int, ...]) -> Counter[str]:
    """The operators of the optimized model; `weights` are constants of these shapes, positive and around 1."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')
    for name, shape in weights.items():
        array = (RNG.random(shape) * 0.5 + 0.5).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.checker.check_model(model)
    result: Any = rewrite.optimize(model, numerics=numerics)
    return Counter(node.op_type for node in result.model.graph.node)


def norm(name: str, channels: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}{i}": (channels,) for i in range(4)}


def test_the_branches_of_repvgg_are_one_convolution() -> None:
    found = optimized(
        """g (float[1, 4, 8, 8] x) => (float[1, 4, 8, 8] y) {
          a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, W)
          an = BatchNormalization (a, p0, p1, p2, p3)
          b = Conv <kernel_shape = [1, 1]> (x, V)
          bn = BatchNormalization (b, q0, q1, q2, q3)
          xn = BatchNormalization (x, r0, r1, r2, r3)
          ab = Add (an, bn)
          abx = Add (ab, xn)
          y = Relu (abx)
        }""",
        W=(4, 4, 3, 3), V=(4, 4, 1, 1), **norm("p", 4), **norm("q", 4), **norm("r", 4),
    )  # fmt: skip
    assert found == {"Conv": 1, "Relu": 1}


def test_a_low_rank_update_goes_into_the_weight() -> None:
    found = optimized(
        """g (float[2, 5, 8] x) => (float[2, 5, 6] y) <float s = {2.0}> {
          w = MatMul (x, W)
          wb = Add (w, b)
          a = MatMul (x, A)
          ab = MatMul (a, B)
          abs = Mul (ab, s)
          y = Add (wb, abs)
        }""",
        W=(8, 6), b=(6,), A=(8, 2), B=(2, 6),
    )  # fmt: skip
    assert found == {"MatMul": 1, "Add": 1}


def test_a_channel_shuffle_between_pointwise_convolutions_is_free() -> None:
    found = optimized(
        """g (float[1, 3, 4, 4] x) => (float[1, 5, 4, 4] y)
           <int64[5] s = {1, 2, 3, 4, 4}, int64[4] t = {1, 6, 4, 4}> {
          a = Conv (x, W, b)
          r = Reshape (a, s)
          p = Transpose <perm = [0, 2, 1, 3, 4]> (r)
          q = Reshape (p, t)
          y = Conv (q, V)
        }""",
        W=(6, 3, 1, 1), b=(6,), V=(5, 6, 1, 1),
    )  # fmt: skip
    assert set(found) == {"Conv"}


def test_group_normalization_and_silu() -> None:
    found = optimized(
        """g (float[2, 6, 4, 4] x) => (float[2, 6, 4, 4] y)
           <int64[3] s = {2, 3, -1}, int64[4] t = {2, 6, 4, 4}, float[3] one = {1, 1, 1}, float[3] zero = {0, 0, 0}> {
          r = Reshape (x, s)
          n = InstanceNormalization <epsilon = 1e-5> (r, one, zero)
          u = Reshape (n, t)
          w = Mul (u, g)
          v = Add (w, b)
          z = Sigmoid (v)
          y = Mul (v, z)
        }""",
        opset=24, g=(6, 1, 1), b=(6, 1, 1),
    )  # fmt: skip
    assert found == {"GroupNormalization": 1, "Swish": 1}


TRAINING = """g (float[2, 3, 8, 8] x, float[4] gamma, float[4] beta, float[4] mu, float[4] var)
     => (float[2, 4, 8, 8] z{more}) {{
  a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, W)
  n{outputs} = BatchNormalization <training_mode = 1> (a, gamma, beta, mu, var)
  r = Relu (n)
  z = Conv <kernel_shape = [1, 1]> (r, V)
}}"""


def forms(text: str, numerics: str) -> set[str]:
    """The rules that were applied to a model."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}')
    for name, shape in {"W": (4, 3, 3, 3), "V": (4, 4, 1, 1)}.items():
        model.graph.initializer.append(numpy_helper.from_array(RNG.random(shape, np.float32), name))
    result: Any = rewrite.optimize(model, numerics=numerics)
    return {rule.name for rule in result.report.rules if rule.applied}


def test_normalization_with_batch_statistics_is_decomposed() -> None:
    """Statistics as sums over what the convolution makes, and an affine map of it that the next one reads."""
    text = TRAINING.format(more="", outputs="")
    assert "batch_norm_training" in forms(text, "reassoc")
    assert "batch_norm_training_one_pass" in forms(text, "fast")
    assert "batch_norm_training_one_pass" not in forms(text, "reassoc")
    running = TRAINING.format(more=", float[4] m, float[4] v", outputs=", m, v")
    assert "batch_norm_training_statistics" in forms(running, "reassoc")


def test_dims_of_a_dynamic_model_fold() -> None:
    """A head split written by shape arithmetic is one Reshape with a constant target."""
    found = optimized(
        """g (float[N, T, 12] x) => (float[N, T, 3, 4] y)
           <int64 zero = {0}, int64 one = {1}, int64[2] heads = {3, 4}, int64[1] ax = {0}> {
          s = Shape (x)
          n = Gather (s, zero)
          t = Gather (s, one)
          n1 = Unsqueeze (n, ax)
          t1 = Unsqueeze (t, ax)
          target = Concat <axis = 0> (n1, t1, heads)
          y = Reshape (x, target)
        }"""
    )
    assert found == {"Reshape": 1}
