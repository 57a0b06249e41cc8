"""Operators of ai.onnx.ml."""

from __future__ import annotations

import numpy as np

from ..maker import (
    F32,
    F64,
    I32,
    I64,
    Maker,
)
from .registry import draws

ML = "ai.onnx.ml"


@draws(2)
def classical(m: Maker) -> object:
    rows, width = m.between(1, 5), m.between(1, 6)
    dtype = m.pick((F32, F32, F64, I64, I32))
    x = m.new(dtype, (rows, width), "small" if dtype.kind == "i" else "")
    numbers = [float(v) for v in m.array(F32, (64,), "unit")]
    kind = m.between(0, 9)
    if kind == 0:
        return m.emit("ArrayFeatureExtractor", [x, m.fresh(np.asarray(m.rng.integers(0, width, 3)))], domain=ML)
    if kind == 1:
        return m.emit("Binarizer", [m.new(F32, (rows, width))], domain=ML, threshold=0.3)
    if kind == 2:
        y = m.new(m.dtype(x), (rows, 2), "small")
        return m.emit("FeatureVectorizer", [x, y], domain=ML, inputdimensions=[width, 2])
    if kind == 3:
        y = m.new(F32, (rows, width), "small")
        return m.emit("Imputer", [y], domain=ML, imputed_value_floats=numbers[:width], replaced_value_float=1.0)
    if kind == 4:
        y = m.new(I64, (rows, width), "small")
        return m.emit("LabelEncoder", [y], domain=ML, keys_int64s=[0, 1, 3], values_int64s=[5, -2, 7], default_int64=9)
    if kind == 5:
        targets = m.between(1, 3)
        post = m.pick(("NONE", "NONE", "LOGISTIC", "SOFTMAX"))
        if m.chance(0.5):
            return m.emit(
                "LinearRegressor", [x], domain=ML, coefficients=numbers[: width * targets], targets=targets,
                intercepts=numbers[-targets:],
            )  # fmt: skip
        classes = m.between(2, 4)
        return m.emit(
            "LinearClassifier", [x], 2, domain=ML, coefficients=numbers[: width * classes],
            intercepts=numbers[-classes:], classlabels_ints=list(range(classes)), post_transform=post,
        )  # fmt: skip
    if kind == 6:
        return m.emit("Normalizer", [x], domain=ML, norm=m.pick(("MAX", "L1", "L2")))
    if kind == 7:
        return m.emit("Scaler", [x], domain=ML, offset=numbers[:width], scale=numbers[-width:])
    if kind == 8:
        y = m.new(I64, (rows, width), "small")
        return m.emit("OneHotEncoder", [y], domain=ML, cats_int64s=[0, 1, 2, 3])
    depth = m.between(1, 4)
    inner, leaves = 2**depth - 1, 2**depth
    count = inner + leaves
    nodes = {
        "nodes_treeids": [0] * count, "nodes_nodeids": list(range(count)),
        "nodes_featureids": [m.between(0, width - 1) for _ in range(inner)] + [0] * leaves,
        "nodes_modes": [m.pick(("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"))] * inner + ["LEAF"] * leaves,
        "nodes_values": (numbers * 2)[:inner] + [0.0] * leaves,
        "nodes_truenodeids": [2 * i + 1 for i in range(inner)] + [0] * leaves,
        "nodes_falsenodeids": [2 * i + 2 for i in range(inner)] + [0] * leaves,
    }  # fmt: skip
    at = list(range(inner, count))
    if m.chance(0.5):
        way = m.pick(("SUM", "AVERAGE", "MIN", "MAX"))
        return m.emit(
            "TreeEnsembleRegressor", [x], domain=ML, n_targets=1, target_ids=[0] * leaves, target_nodeids=at,
            target_treeids=[0] * leaves, target_weights=numbers[:leaves], aggregate_function=way, **nodes,
        )  # fmt: skip
    return m.emit(
        "TreeEnsembleClassifier", [x], 2, domain=ML, class_ids=[i % 3 for i in range(leaves)], class_nodeids=at,
        class_treeids=[0] * leaves, class_weights=[abs(v) + 0.01 for v in numbers[:leaves]],
        classlabels_int64s=[0, 1, 2], **nodes,
    )  # fmt: skip


@draws(0.7)
def vector_machine(m: Maker) -> object:
    rows, width, vectors = m.between(1, 4), m.between(1, 4), 4
    x = m.new(m.pick((F32, F32, F64)), (rows, width))
    numbers = [float(v) for v in m.array(F32, (32,), "unit")]
    kernel = m.pick(("LINEAR", "RBF", "POLY", "SIGMOID"))
    common = {"kernel_type": kernel, "kernel_params": [0.5, 0.1, 3.0], "support_vectors": numbers[: vectors * width]}
    if m.chance(0.5):
        return m.emit(
            "SVMRegressor", [x], domain=ML, coefficients=numbers[-vectors:], n_supports=vectors, rho=[0.2], **common
        )
    return m.emit(
        "SVMClassifier", [x], 2, domain=ML, coefficients=numbers[-vectors:], rho=[0.1], vectors_per_class=[2, 2],
        classlabels_ints=[0, 1], **common,
    )  # fmt: skip
