"""Lowering of support vector machines: SVMRegressor and SVMClassifier."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ....engine.ir.graph import DType, Node
from ....engine.ir.symbolic import Dim
from ...codegen.pointwise_emit import C_TYPES
from ...codegen.template_params import int_attr, launch, threads
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context
from ..registry import lowering_alone

_DOMAIN = "ai.onnx.ml"
_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
_INPUTS = (DType.F32, DType.F64, DType.I64, DType.I32)
"""Element types of features, which are computed as f32."""
_MOST = 32
"""Classes, at most: the kernel has a row of their pairs on its stack."""


@lowering_alone(f"{_DOMAIN}.SVMRegressor")
def lower_regressor(node: Node, ctx: Context) -> list[Step] | None:
    """One target, from support vectors or from a linear function; membership of one class."""
    if _text(node, "post_transform", "NONE") != "NONE":
        return None
    weights, count = _floats(node, "coefficients"), int_attr(node, "n_supports", 0)
    vectors = _floats(node, "support_vectors") if count else weights
    rho = _floats(node, "rho")
    if count < 0 or len(rho) != 1 or (count and len(weights) != count):
        return None
    table = weights if count else np.ones(1, np.float32)
    how: dict[str, object] = {"pairs": False, "rho": rho.tolist(), "one_class": bool(int_attr(node, "one_class", 0))}
    return _steps(node, ctx, vectors, table.reshape(1, -1), how, linear=not count)


@lowering_alone(f"{_DOMAIN}.SVMClassifier")
def lower_classifier(node: Node, ctx: Context) -> list[Step] | None:
    """Classes that are numbered by integers, by the votes of pairs; with probabilities or scores of pairs."""
    labels, per_class = (_ints(node, name) for name in ("classlabels_ints", "vectors_per_class"))
    classes, transform = len(labels), _text(node, "post_transform", "NONE")
    rho, prob_a, prob_b = (_floats(node, name).tolist() for name in ("rho", "prob_a", "prob_b"))
    weights, count, pairs = _floats(node, "coefficients"), sum(per_class), classes * (classes - 1) // 2
    if not 2 <= classes <= _MOST or len(per_class) != classes or min(per_class) < 0 or count < 1:
        return None
    if len(rho) != pairs or len(prob_a) not in (0, pairs) or len(prob_a) != len(prob_b):
        return None
    if transform not in ("NONE", "LOGISTIC", "SOFTMAX") or len(weights) != (classes - 1) * count:
        return None
    if classes == 2 and not prob_a and (transform == "SOFTMAX" or (weights >= 0).all()):
        return None  # ONNX Runtime takes one score, or always chooses the second class
    how: dict[str, object] = {
        "pairs": True,
        "classes": classes,
        "labels": labels,
        "starts": [0, *np.cumsum(per_class).tolist()],
        "rho": rho,
        "prob_a": prob_a,
        "prob_b": prob_b,
        "results": classes if prob_a or classes == 2 else pairs,
        "transform": transform,
    }
    return _steps(node, ctx, _floats(node, "support_vectors"), weights.reshape(classes - 1, count), how, linear=False)


def _steps(
    node: Node,
    ctx: Context,
    vectors: NDArray[np.float32],
    weights: NDArray[np.float32],
    how: dict[str, object],
    *,
    linear: bool,
) -> list[Step] | None:
    """Return the step for rows of `vectors`, flat, with `weights` [functions, vectors]."""
    x, count = ctx.type(node.inputs[0]), weights.shape[1]
    if x.dtype not in _INPUTS or x.shape is None or len(x.shape) != 2:
        return None
    features, kernel = x.shape[1], "LINEAR" if linear else _text(node, "kernel_type", "LINEAR")
    given = [*_floats(node, "kernel_params").tolist(), 0.0, 0.0, 0.0][:3]
    if not isinstance(features, int) or features < 1 or len(vectors) != count * features or kernel not in _KERNELS:
        return None
    degree = int(given[2])
    if kernel == "POLY" and not (degree == given[2] and 0 <= degree <= 64):
        return None
    lanes = 4 * ctx.target.lanes
    padded = -(-count // lanes) * lanes
    table, rows = np.zeros((features, padded), np.float32), np.zeros((len(weights), padded), np.float32)
    table[:, :count], rows[:, :count] = vectors.reshape(count, features).T, weights
    extents = Extents()
    params = {
        "x": C_TYPES[x.dtype],
        "rows": extents(x.shape[0]),
        "features": features,
        "vectors": count,
        "padded": padded,
        "kernel": kernel,
        "gamma": given[0],
        "coef0": given[1],
        "degree": degree,
        "written": [bool(value) for value in node.outputs],
        "scratch": padded * 4,
        **how,
    }
    inputs: Sequence[str] = (node.inputs[0], ctx.add_constant(table, "vectors"), ctx.add_constant(rows, "weights"))
    size: Dim = x.shape[0]
    work, outputs = threads((size, padded, features + 8 + len(weights))), [value for value in node.outputs if value]
    return [launch(Kernel("svm", params), node, inputs, outputs, extents, work, scratch=padded * 4)]


def _text(node: Node, name: str, default: str) -> str:
    return str(node.attrs.get(name, default) or default)


def _floats(node: Node, name: str) -> NDArray[np.float32]:
    found = node.attrs.get(name)
    return np.array([v for v in found if isinstance(v, int | float)] if isinstance(found, tuple) else [], np.float32)


def _ints(node: Node, name: str) -> list[int]:
    found = node.attrs.get(name)
    return [v for v in found if isinstance(v, int)] if isinstance(found, tuple) else []
