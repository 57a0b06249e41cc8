"""Support vector machines and FeatureVectorizer: kernel functions, classes, probabilities, element types."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import rewrite
from onnx import helper
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import DType, Graph, Node, TensorType
from rewrite.engine.ir.symbolic import symbol

from .oracle import Array, Case, check

RNG = np.random.default_rng(43)
FEATURES = 7


def floats(*shape: int) -> tuple[float, ...]:
    return tuple(np.asarray(RNG.standard_normal(shape), np.float32).ravel().tolist())


def rows(count: int) -> Array:
    return np.asarray(RNG.standard_normal((count, FEATURES)), np.float32)


def regressor(x: Array, vectors: int, kernel: str, **attrs: Any) -> Case:
    given = {"kernel_type": kernel, "kernel_params": (0.2, 0.1, 3.0), "rho": (0.25,), "n_supports": vectors, **attrs}
    given |= {"coefficients": floats(max(vectors, 1) if vectors else FEATURES)}
    given |= {"support_vectors": floats(vectors, FEATURES)} if vectors else {}
    return Case([Node("ai.onnx.ml.SVMRegressor", ("x",), ("y",), given)], {"x": x}, rtol=1e-4, atol=1e-4)


def classifier(x: Array, per_class: tuple[int, ...], kernel: str, *, coupled: bool, **attrs: Any) -> Case:
    count, classes = sum(per_class), len(per_class)
    pairs = classes * (classes - 1) // 2
    given = {"kernel_type": kernel, "kernel_params": (0.1, 0.1, 2.0), "vectors_per_class": per_class, **attrs}
    given |= {"classlabels_ints": tuple(range(9, 9 - classes, -1)), "rho": floats(pairs)}
    given |= {"coefficients": floats(classes - 1, count), "support_vectors": floats(count, FEATURES)}
    if coupled:
        given |= {"prob_a": tuple(-1 - abs(v) for v in floats(pairs)), "prob_b": floats(pairs)}
    node = Node("ai.onnx.ml.SVMClassifier", ("x",), ("l", "y"), given)
    return Case([node], {"x": x}, rtol=1e-4, atol=1e-5)


def test_regressors() -> None:
    cases = [regressor(rows(5), 33, kernel) for kernel in ("RBF", "POLY", "SIGMOID", "LINEAR")]
    cases += [regressor(rows(4), 3, "RBF", one_class=1), regressor(rows(3), 0, "LINEAR"), regressor(rows(0), 5, "RBF")]
    free = regressor(rows(6), 40, "RBF")
    free.symbolic, free.types = {"x": ("N", FEATURES)}, {"y": TensorType(DType.F32, (symbol("N"), 1))}
    check([*cases, free])


def test_classifiers() -> None:
    cases = []
    for per_class in ((8, 3), (4, 1, 7), (3, 0, 2, 9, 5)):
        cases += [classifier(rows(20), per_class, "RBF", coupled=coupled) for coupled in (False, True)]
    cases.append(classifier(rows(9), (5, 4), "LINEAR", coupled=False, post_transform="LOGISTIC"))
    cases.append(classifier(rows(9), (5, 4, 2), "POLY", coupled=False, post_transform="SOFTMAX"))
    cases.append(classifier(rows(9), (5, 4, 2), "SIGMOID", coupled=True, post_transform="SOFTMAX"))
    cases.append(classifier(rows(0), (5, 4), "RBF", coupled=True))
    check(cases)


@pytest.mark.parametrize("attrs", [
    {"post_transform": "PROBIT"}, {"rho": (0.1, 0.2)}, {"support_vectors": (1.0, 2.0)}, {"vectors_per_class": (3,)},
    {"kernel_type": "POLY", "kernel_params": (0.1, 0.1, 2.5)}, {"prob_a": (1.0,), "prob_b": (1.0, 2.0)},
    {"coefficients": (1.0,)},
])  # fmt: skip
def test_what_does_not_fit_has_no_kernel(attrs: dict[str, Any]) -> None:
    """Numbers of vectors, classes and pairs that contradict each other, and what implementations disagree about."""
    given = {**classifier(rows(1), (3, 2), "RBF", coupled=False).nodes[0].attrs}
    assert harness.lower(graph_of(given))[0]
    assert harness.lower(graph_of({**given, **attrs}))[0] is None


def graph_of(attrs: dict[str, Any]) -> Graph:
    types = {"l": TensorType(DType.I64, (1,)), "y": TensorType(DType.F32, (1, 2))}
    node = Node("ai.onnx.ml.SVMClassifier", ("x",), ("l", "y"), attrs)
    return harness.make_graph([node], {"x": rows(1)}, types=types)


def model(op: str, attrs: dict[str, Any], inputs: dict[str, Array], outputs: list[str]) -> onnx.ModelProto:
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in inputs.items()
    ]
    node = helper.make_node(op, list(inputs), outputs, domain="ai.onnx.ml", **attrs)
    graph = helper.make_graph([node], "g", ports, [onnx.ValueInfoProto(name=name) for name in outputs])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32])
def test_features_of_other_types(dtype: type) -> None:
    """ONNX Runtime lacks them; the result is that of the same numbers in f32."""
    x = RNG.integers(-2, 3, (6, FEATURES))
    attrs = dict(regressor(rows(1), 9, "RBF").nodes[0].attrs)
    found = [
        rewrite.compile(model("SVMRegressor", attrs, {"x": x.astype(kind)}, ["y"]), threads=1).run(
            {"x": x.astype(kind)}
        )
        for kind in (dtype, np.float32)
    ]
    np.testing.assert_array_equal(found[0]["y"], found[1]["y"])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_feature_vectorizer(dtype: type) -> None:
    inputs = {name: RNG.integers(-9, 9, (5, width)).astype(dtype) for name, width in (("a", 3), ("b", 1), ("c", 4))}
    for dimensions in ((3, 1, 4), (2, 3, 4)):
        proto = model("FeatureVectorizer", {"inputdimensions": dimensions}, inputs, ["y"])
        program = rewrite.compile(proto, threads=1)
        assert program.fallbacks() == {}
        parts = [np.pad(v, ((0, 0), (0, 9)))[:, :width] for v, width in zip(inputs.values(), dimensions, strict=True)]
        found = program.run(inputs)["y"]
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, np.concatenate(parts, 1))
