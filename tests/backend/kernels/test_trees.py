"""Ensembles of trees against ONNX Runtime: comparisons, missing values, several outputs, and what is no ensemble."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import rewrite
from onnx import helper, numpy_helper
from rewrite.backend.kernels.trees.tree_tables import tables
from rewrite.backend.kernels.trees.unified_trees import as_regressor
from rewrite.engine.ir.graph import Constant, Node
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


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_classifiers(transform: str) -> None:
    rng = np.random.default_rng(2)
    cases = []
    for count, labels in ((1, (3, 1, 7)), (20, tuple(range(10)))):
        attrs = {**ensemble(rng, "class", 11, 4, len(labels)), "classlabels_int64s": labels}
        attrs |= {"post_transform": transform, "base_values": (0.25,) * len(labels)}
        cases.append(classifier(rows(rng, count), attrs))
    check(cases)


def stump(ids: tuple[int, ...], weights: tuple[float, ...], transform: str) -> dict[str, Any]:
    """Return one decision whose leaves, 1 and 2 in turn, have weights for these of three classes."""
    nodes = {"treeids": (0,) * 3, "nodeids": (0, 1, 2), "truenodeids": (1, 0, 0), "falsenodeids": (2, 0, 0)}
    nodes |= {"modes": ("BRANCH_LEQ", "LEAF", "LEAF"), "values": (0.0,) * 3, "featureids": (0,) * 3}
    leaves = tuple(1 + i % 2 for i in range(len(ids)))
    classes = {"treeids": (0,) * len(ids), "nodeids": leaves, "ids": ids, "weights": weights}
    found: dict[str, Any] = {f"nodes_{name}": value for name, value in nodes.items()}
    found |= {f"class_{name}": value for name, value in classes.items()}
    return found | {"classlabels_int64s": (7, 8, 9), "post_transform": transform}


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize(
    ("ids", "weights", "native"),
    [
        ((0, 0), (-1.0, -2.0), False),  # the others have no sum, which ONNX Runtime does not take for 0
        ((0, 1), (-1.0, -2.0), False),
        ((0, 1), (1.0, 2.0), True),
        ((2, 1), (0.0, 1.0), False),  # a sum of 0 is better than none
        ((1, 0, 1), (2.0, 2.0, -2.0), False),
        ((0, 0, 1, 1, 2, 2), (-1.0, -2.0, -3.0, 1.0, -1.5, -1.0), True),
    ],
)
def test_the_best_class_is_one_with_a_weight(
    ids: tuple[int, ...], weights: tuple[float, ...], native: bool, transform: str, recwarn: pytest.WarningsRecorder
) -> None:
    attrs = stump(ids, weights, transform)
    node = helper.make_node("TreeEnsembleClassifier", ["x"], ["l", "y"], domain="ai.onnx.ml", **attrs)
    ports = [helper.make_tensor_value_info(*port) for port in (("x", 1, [2, 1]), ("l", 7, [2]), ("y", 1, [2, 3]))]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(helper.make_graph([node], "g", ports[:1], ports[1:]), opset_imports=opsets, ir_version=8)
    x = np.array([[-1], [1]], np.float32)
    found, wanted = rewrite.compile(model, threads=1).run({"x": x}), onnx_runtime(model).run({"x": x})
    np.testing.assert_array_equal(found["l"], wanted["l"])
    np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-6, atol=1e-7)
    assert any("no native kernel" in str(w.message) for w in recwarn) != native


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
        changed(nodes_modes=lambda modes: tuple("BRANCH_MEMBER" if m != "LEAF" else m for m in modes)),
        changed(nodes_modes=lambda modes: tuple("BRANCH_LT" if i == 0 else m for i, m in enumerate(modes))),
        changed(nodes_truenodeids=lambda ids: tuple(0 for _ in ids)),  # a cycle
        changed(nodes_falsenodeids=lambda ids: tuple(i + 1000 for i in ids)),  # no such node
        changed(nodes_falsenodeids=lambda ids: ids[:-1]),
        changed(nodes_nodeids=lambda ids: tuple(0 for _ in ids)),
        changed(nodes_featureids=lambda ids: tuple(-1 for _ in ids)),
        changed(target_ids=lambda ids: tuple(2 for _ in ids)),
        changed(target_nodeids=lambda ids: tuple(0 for _ in ids)),  # weights of inner nodes
        changed(target_nodeids=lambda ids: tuple(2**62 for _ in ids)),
        changed(target_treeids=lambda ids: tuple(-(2**63) for _ in ids)),
        changed(target_weights=lambda weights: weights[1:]),
        changed(nodes_featureids=lambda ids: tuple(2**31 for _ in ids)),
        changed(nodes_nodeids=lambda ids: tuple(int(n) << 58 for n in ids)),
        changed(nodes_treeids=lambda ids: ()),
        changed(nodes_modes=lambda modes: tuple(f"{m}\0" for m in modes)),
        changed(nodes_modes=lambda modes: (*modes[:-1], "x" * 1000)),
        changed(nodes_truenodeids=lambda ids: tuple(2**63 - 1 for _ in ids)),
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


def doubled(attrs: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the attributes with thresholds and weights as tensors of f64, which f32 does not hold."""
    rng = np.random.default_rng(8)
    found = dict(attrs)
    for name in ("nodes_values", f"{kind}_weights"):
        values = np.array(found.pop(name), np.float64)
        found[f"{name}_as_tensor"] = Constant(values + rng.standard_normal(values.shape) * 1e-9)
    return found


def model_of(op: str, attrs: dict[str, Any], x: Array, outputs: list[Any], version: int) -> onnx.ModelProto:
    plain = {k: numpy_helper.from_array(v.array, k) if isinstance(v, Constant) else v for k, v in attrs.items()}
    node = helper.make_node(op, ["x"], [o.name for o in outputs], domain="ai.onnx.ml", **plain)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", kind, [None, x.shape[1]])], outputs)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def agrees(model: onnx.ModelProto, x: Array) -> None:
    program = rewrite.compile(model, threads=2)
    assert program.fallbacks() == {}
    theirs, fed = onnx.ModelProto(), x
    theirs.CopyFrom(model)
    if x.dtype.kind == "i":  # of ONNX Runtime's operators not all take integers
        theirs.graph.input[0].type.tensor_type.elem_type, fed = 1, x.astype(np.float32)
    for name, value in onnx_runtime(theirs).run({"x": fed}).items():
        assert program.run({"x": x})[name].dtype == value.dtype
        np.testing.assert_allclose(program.run({"x": x})[name], value, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32])
def test_features_of_other_types(dtype: type) -> None:
    rng = np.random.default_rng(7)
    x = rows(rng, 37).astype(dtype) if dtype == np.float64 else rng.integers(-2, 3, (37, FEATURES)).astype(dtype)
    for outputs in (1, 3):
        attrs = {**ensemble(rng, "target", 7, 4, outputs), "n_targets": outputs}
        attrs = doubled(attrs, "target") if dtype == np.float64 else attrs
        ports = [helper.make_tensor_value_info("y", 1, [None, outputs])]
        agrees(model_of("TreeEnsembleRegressor", attrs, x, ports, 3), x)
    attrs = {**ensemble(rng, "class", 6, 4, 3), "classlabels_int64s": (3, 1, 7), "post_transform": "SOFTMAX"}
    attrs["base_values"] = (0.25, 0.5, 0.0)
    ports = [helper.make_tensor_value_info("l", 7, [None]), helper.make_tensor_value_info("y", 1, [None, 3])]
    agrees(model_of("TreeEnsembleClassifier", attrs, x, ports, 3), x)


@pytest.mark.parametrize("aggregate", ["MIN", "MAX"])
def test_least_and_largest_weights(aggregate: str) -> None:
    rng = np.random.default_rng(9)
    attrs = {**ensemble(rng, "target", 9, 4, 1), "n_targets": 1, "aggregate_function": aggregate}
    check([regressor(rows(rng, 40), attrs)])


def unified(rng: np.random.Generator, dtype: type, trees: int, depth: int, outputs: int, mode: int) -> dict[str, Any]:
    """Return the attributes of random trees of version 5."""
    nodes: list[list[Any]] = []
    leaves: list[tuple[int, float]] = []

    def grow(left: int) -> tuple[int, int]:
        """Return the place of a new node or leaf, and whether it is a leaf."""
        if not left:
            leaves.append((int(rng.integers(outputs)), float(dtype(rng.normal()))))
            return len(leaves) - 1, 1
        at = len(nodes)
        nodes.append([])
        (true, is_true_leaf), (false, is_false_leaf) = grow(left - 1), grow(int(rng.integers(left)))
        values = (int(rng.integers(FEATURES)), float(dtype(rng.normal())), true, false, is_true_leaf, is_false_leaf)
        nodes[at] = [*values, int(rng.random() < 0.5)]
        return at, 0

    roots = [grow(depth)[0] for _ in range(trees)]
    leaves.append((0, 0.5))
    roots.append(len(nodes))  # a tree that is a leaf
    nodes.append([0, 0.0, len(leaves) - 1, len(leaves) - 1, 1, 1, 0])
    features, splits, trues, falses, true_leafs, false_leafs, tracks = zip(*nodes, strict=True)
    targets, weights = zip(*leaves, strict=True)
    return {
        "tree_roots": tuple(roots), "n_targets": outputs, "leaf_targetids": targets, "nodes_featureids": features,
        "nodes_truenodeids": trues, "nodes_falsenodeids": falses, "nodes_trueleafs": true_leafs,
        "nodes_falseleafs": false_leafs, "nodes_missing_value_tracks_true": tracks,
        "nodes_modes": Constant(np.full(len(nodes), mode, np.uint8)), "nodes_splits": Constant(np.array(splits, dtype)),
        "leaf_weights": Constant(np.array(weights, dtype)), "aggregate_function": 1, "post_transform": 0,
    }  # fmt: skip


@pytest.mark.parametrize(("dtype", "mode", "outputs"), [
    (np.float32, 0, 1), (np.float32, 3, 4), (np.float64, 1, 2), (np.float32, 4, 1), (np.float32, 5, 1)
])  # fmt: skip
def test_version_5(dtype: type, mode: int, outputs: int) -> None:
    rng = np.random.default_rng(10)
    x = rows(rng, 45).astype(dtype)
    if mode == 4:  # comparisons for equality
        x = np.round(x)
    attrs = unified(rng, dtype, 6, 4, outputs, mode)
    if mode >= 4:
        attrs["nodes_splits"] = Constant(np.round(attrs["nodes_splits"].array))
    ports = [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(x.dtype), [None, outputs])]
    agrees(model_of("TreeEnsemble", attrs, x, ports, 5), x)


def test_version_5_without_trees() -> None:
    """Cycles, nodes and leaves that are not there or in many trees, sets, transforms: no kernel computes them."""
    attrs = unified(np.random.default_rng(11), np.float32, 3, 3, 2, 0)
    assert as_regressor(attrs) is not None
    assert as_regressor({**attrs, "tree_roots": (0, 0)}) is not None
    count = len(attrs["nodes_featureids"])
    for change in (
        {"nodes_trueleafs": (0,) * count, "nodes_truenodeids": (0,) * count},
        {"nodes_truenodeids": (count,) * count, "nodes_trueleafs": (0,) * count},
        {"nodes_truenodeids": (-1,) * count},
        {"nodes_falsenodeids": (10_000,) * count},
        {"tree_roots": (count,)},
        {"tree_roots": (0,) * 1000},
        {"nodes_modes": Constant(np.full(count, 6, np.uint8))},
        {"nodes_featureids": (0,) * (count + 1)},
        {"post_transform": 1},
    ):
        assert as_regressor({**attrs, **change}) is None


def test_nodes_follow_their_parents() -> None:
    """Two children come first, then what is below the one with more below it, then what is below the other one."""
    attrs = ensemble(np.random.default_rng(8), "target", 7, 5, 3)
    place = {name: i for i, name in enumerate(zip(attrs["nodes_treeids"], attrs["nodes_nodeids"], strict=True))}
    order, roots, child = list[int](), list[int](), dict[int, int]()

    def children(i: int) -> list[int]:
        tree, ends = attrs["nodes_treeids"][i], attrs["nodes_modes"][i] == "LEAF"
        return [] if ends else [place[tree, attrs[f"nodes_{side}nodeids"][i]] for side in ("true", "false")]

    def size(i: int) -> int:
        return sum(1 + size(j) for j in children(i))

    def lay(i: int, at: int) -> None:
        pair = children(i)
        if pair:
            child[at] = len(order)
            order.extend(pair)
            for k in sorted((0, 1), key=lambda k: -size(pair[k])):
                lay(pair[k], child[at] + k)

    for tree in dict.fromkeys(attrs["nodes_treeids"]):
        roots.append(len(order))
        order.append(place[tree, 0])
        lay(order[-1], roots[-1])
    found = tables(attrs, "target", 3)
    assert found is not None
    np.testing.assert_array_equal(found.roots, roots)
    np.testing.assert_array_equal(found.nodes[:, 2], [child.get(at, at) for at in range(len(order))])
    inner = sorted(child)
    np.testing.assert_array_equal(found.nodes[inner, 1], [attrs["nodes_featureids"][order[at]] for at in inner])


def test_trees_that_are_too_deep_have_no_tables() -> None:
    for inner, is_tree in ((9_000, True), (11_000, False)):
        numbers = tuple(range(2 * inner + 1))  # node 2 i has leaf 2 i + 1 and node 2 i + 2
        modes = tuple("LEAF" if i % 2 or i == 2 * inner else "BRANCH_LEQ" for i in numbers)
        nodes = {"treeids": (0,) * len(numbers), "nodeids": numbers, "modes": modes, "values": (0.0,) * len(numbers)}
        nodes |= {"truenodeids": tuple(i + 1 for i in numbers), "falsenodeids": tuple(i + 2 for i in numbers)}
        attrs = {f"nodes_{k}": v for k, v in {**nodes, "featureids": (0,) * len(numbers)}.items()}
        assert (tables(attrs, "target", 1) is not None) == is_tree


def test_reports_leave_out_long_lists() -> None:
    x = rows(np.random.default_rng(9), 4)
    attrs = {**ensemble(np.random.default_rng(9), "target", 9, 5, 1), "n_targets": 1}
    model = model_of("TreeEnsembleRegressor", attrs, x, [helper.make_tensor_value_info("y", 1, [None, 1])], 3)
    [step] = rewrite.compile(model, threads=1).plan.items
    [origin] = step.origins
    assert origin.attrs["n_targets"] == 1
    assert "nodes_values" not in origin.attrs
