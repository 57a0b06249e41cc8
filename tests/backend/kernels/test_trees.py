"""Ensembles of trees against ONNX Runtime: comparisons, missing values, several outputs, and what is no ensemble."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rewrite
from onnx import helper
from rewrite.backend.kernels.trees.tree_tables import tables
from rewrite.engine.ir.graph import Node
from rewrite.engine.operators.reference_runtime import onnx_runtime

from .oracle import Array, Case, check

REGRESSOR, CLASSIFIER = "ai.onnx.ml.TreeEnsembleRegressor", "ai.onnx.ml.TreeEnsembleClassifier"
FEATURES = 6


def ensemble(
    rng: np.random.Generator, kind: str, trees: int, depth: int, outputs: int, mode: str = "BRANCH_LEQ"
) -> dict[str, Any]:
    """Return the attributes of random trees: nodes in no order, leaves at all depths and of several outputs."""
    found: dict[str, list[Any]] = {}

    def note(prefix: str, **values: Any) -> None:
        for name, value in values.items():
            found.setdefault(f"{prefix}_{name}", []).append(value)

    def grow(tree: int, number: int, left: int) -> None:
        leaf = not left or (left < depth and rng.random() < 0.2)
        true, false = (0, 0) if leaf else (int(numbers.pop()), int(numbers.pop()))
        value, missing = float(np.float32(rng.normal())), int(rng.random() < 0.5)
        about = {"treeids": tree, "nodeids": number, "featureids": int(rng.integers(FEATURES)), "values": value}
        note(
            "nodes", **about, modes="LEAF" if leaf else mode, truenodeids=true, falsenodeids=false,
            missing_value_tracks_true=0 if leaf else missing,
        )  # fmt: skip
        if leaf:
            targets = rng.choice(outputs, int(rng.integers(1, min(3, outputs) + 1)), replace=False)
            for target in targets:
                weight = float(np.float32(rng.normal()))
                note(kind, treeids=tree, nodeids=number, ids=int(target), weights=weight)
            return
        grow(tree, true, left - 1)
        grow(tree, false, left - 1)

    for tree in range(trees):
        numbers = list(rng.permutation(np.arange(1, 2 << depth)))
        grow(tree, 0, depth)
    return {name: tuple(values) for name, values in found.items()}


def rows(rng: np.random.Generator, count: int) -> Array:
    x = rng.standard_normal((count, FEATURES)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    return x


def regressor(x: Array, attrs: dict[str, Any]) -> Case:
    return Case([Node(REGRESSOR, ("x",), ("y",), attrs, name="trees")], {"x": x})


def classifier(x: Array, attrs: dict[str, Any], outputs: tuple[str, ...] = ("l", "y")) -> Case:
    return Case([Node(CLASSIFIER, ("x",), outputs, attrs, name="trees")], {"x": x})


def test_regressors() -> None:
    rng = np.random.default_rng(1)
    cases = []
    modes = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT")
    for i, (count, trees, depth, outputs) in enumerate(
        [(1, 1, 0, 1), (1, 13, 4, 1), (7, 8, 3, 1), (40, 5, 6, 3), (0, 3, 2, 1), (33, 20, 5, 64)]
    ):
        attrs = {**ensemble(rng, "target", trees, depth, outputs, modes[i % 4]), "n_targets": outputs}
        attrs |= {"aggregate_function": ("SUM", "AVERAGE")[i % 2]}
        if outputs == 1:  # ONNX Runtime adds none to an output without any weight
            attrs["base_values"] = tuple(float(v) for v in np.float32(rng.normal(size=outputs)))
        cases.append(regressor(rows(rng, count), attrs))
    check(cases)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_classifiers(transform: str) -> None:
    rng = np.random.default_rng(2)
    cases = []
    for count, labels in ((1, (3, 1, 7)), (20, tuple(range(10)))):
        attrs = {**ensemble(rng, "class", 11, 4, len(labels)), "classlabels_int64s": labels}
        attrs |= {"post_transform": transform, "base_values": (0.25,) * len(labels)}
        cases.append(classifier(rows(rng, count), attrs))
    check(cases)


def test_two_classes() -> None:
    """Probabilities of the second one, or logits."""
    rng = np.random.default_rng(3)
    cases = []
    for positive in (True, False):
        attrs = {**ensemble(rng, "class", 9, 4, 1), "classlabels_int64s": (5, 2)}
        if positive:
            attrs["class_weights"] = tuple(float(np.float32(abs(w) / 18)) for w in attrs["class_weights"])
        attrs["post_transform"] = "NONE" if positive else "LOGISTIC"
        cases.append(classifier(rows(rng, 30), attrs))
    check(cases)


def test_sums_of_unknown_numbers_of_rows() -> None:
    rng = np.random.default_rng(4)
    case = regressor(rows(rng, 19), {**ensemble(rng, "target", 4, 3, 1), "n_targets": 1})
    case.symbolic = {"x": ("N", FEATURES)}
    check([case])


def changed(**attrs: Any) -> dict[str, Any]:
    found = ensemble(np.random.default_rng(5), "target", 3, 3, 2)
    return found | {name: change(found[name]) for name, change in attrs.items()}


def test_tables_of_a_tree() -> None:
    found = tables(changed(), "target", 2)
    assert found is not None
    assert len(found.roots) == 3
    assert found.weights.shape[1] == 2


@pytest.mark.parametrize(
    "attrs",
    [
        changed(nodes_modes=lambda modes: tuple("BRANCH_EQ" if m != "LEAF" else m for m in modes)),
        changed(nodes_truenodeids=lambda ids: tuple(0 for _ in ids)),  # a cycle
        changed(nodes_falsenodeids=lambda ids: tuple(i + 1000 for i in ids)),  # no such node
        changed(nodes_falsenodeids=lambda ids: ids[:-1]),
        changed(nodes_nodeids=lambda ids: tuple(0 for _ in ids)),
        changed(nodes_featureids=lambda ids: tuple(-1 for _ in ids)),
        changed(target_ids=lambda ids: tuple(2 for _ in ids)),
        changed(target_nodeids=lambda ids: tuple(0 for _ in ids)),  # weights of inner nodes
    ],
)
def test_what_is_no_ensemble_has_no_tables(attrs: dict[str, Any]) -> None:
    assert tables(attrs, "target", 2) is None


@pytest.mark.parametrize("version", [1, 3])
def test_models_of_converters_have_no_fallback(version: int, recwarn: pytest.WarningsRecorder) -> None:
    rng = np.random.default_rng(6)
    attrs = {**ensemble(rng, "target", 4, 3, 1), "n_targets": 1}
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **attrs)
    ports = [helper.make_tensor_value_info("x", 1, [None, FEATURES]), helper.make_tensor_value_info("y", 1, [None, 1])]
    graph = helper.make_graph([node], "g", ports[:1], ports[1:])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    x = rows(rng, 5)
    found = rewrite.compile(model).run({"x": x})["y"]
    np.testing.assert_allclose(found, onnx_runtime(model).run({"x": x})["y"], rtol=1e-5, atol=1e-6)
    assert not [str(w.message) for w in recwarn if "no native kernel" in str(w.message)]
