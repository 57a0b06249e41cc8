"""Tables of a tree ensemble: nodes of all trees in one array, in the form that the kernel walks.

A node holds a threshold, a feature, and the place of its first child; the second one follows it. A leaf is its own
child, so that several walks can go on together until all have arrived. (Hummingbird pads trees to that end: Nakandala
et al., "A Tensor Compiler for Unified Machine Learning Prediction Serving", OSDI 2020.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....engine.ir.graph import AttrValue, Constant

COMPARISONS = {
    "BRANCH_LEQ": "<=", "BRANCH_LT": "<", "BRANCH_GTE": ">=", "BRANCH_GT": ">", "BRANCH_EQ": "==", "BRANCH_NEQ": "!=",
}  # fmt: skip
"""Comparison with the threshold that leads to the true child, by mode. NaN, unless it is unequal, leads to the false
one."""
INNER, MISSING = 1, 2
"""Bits of a node: it has children; NaN leads to the true child."""
_PLACES = [("feature", np.int32), ("child", np.int32), ("bits", np.int32)]
_NODE = np.dtype([("value", np.float32), *_PLACES])
_WIDE_NODE = np.dtype([("value", np.float64), *_PLACES, ("unused", np.int32)])


@dataclass(frozen=True, slots=True)
class Trees:
    """Tables of an ensemble.

    `nodes` is [n, 4] in i32: the threshold as its bits, feature, child, `INNER` and `MISSING`. In the place of the
    threshold a leaf has its weight, or its number if it has several. With thresholds in f64 a node has six numbers.
    `roots` is [trees] in i32, `weights` is [leaves, outputs] in the type of thresholds."""

    nodes: NDArray[np.int32]
    roots: NDArray[np.int32]
    weights: NDArray[np.floating]
    comparison: str
    missing: bool
    features: int


def tables(attrs: Mapping[str, AttrValue], kind: str, outputs: int, *, wide: bool = False) -> Trees | None:
    """Return the tables of TreeEnsembleRegressor (`kind` is "target") or TreeEnsembleClassifier ("class").

    `wide`: thresholds and weights are in f64, and may be given as tensors. None for an ensemble that the kernel does
    not compute: of several modes, of sets, or whose nodes are not trees."""
    ids = list(zip(_ints(attrs, "nodes_treeids"), _ints(attrs, "nodes_nodeids"), strict=False))
    count, place = len(ids), {key: i for i, key in enumerate(ids)}
    names = ("falsenodeids", "truenodeids", "featureids")
    falses, trues, features = (_ints(attrs, f"nodes_{name}") for name in names)
    modes, values = _list(attrs, "nodes_modes"), numbers(attrs, "nodes_values", wide=wide)
    tracks = _ints(attrs, "nodes_missing_value_tracks_true") or [0] * count
    branches = {str(mode) for mode in modes} - {"LEAF"}
    if any(len(each) != count for each in (falses, trues, features, modes, values, tracks)):
        return None
    if not count or len(place) != count or len(branches) > 1 or not branches <= set(COMPARISONS):
        return None
    if any(f < 0 for f in features):
        return None
    order, roots, children = _laid_out(ids, place, [mode == "LEAF" for mode in modes], trues, falses)
    if len(order) != count:
        return None
    leaves = [i for i in order if modes[i] == "LEAF"]
    weights = _weights(attrs, kind, outputs, {ids[i]: n for n, i in enumerate(leaves)}, wide=wide)
    if weights is None:
        return None
    nodes, number = np.zeros(count, _WIDE_NODE if wide else _NODE), {i: n for n, i in enumerate(leaves)}
    for at, i in enumerate(order):
        if i in number:
            value = weights[number[i], 0] if outputs == 1 else 0
            nodes[at] = (value, 0, at, 0, *((0,) if wide else ()))
        else:
            bits = INNER | (MISSING if tracks[i] else 0)
            nodes[at] = (values[i], features[i], children[i], bits, *((0,) if wide else ()))
    words = nodes.view(np.int32).reshape(count, -1)
    if outputs > 1:
        for at, i in enumerate(order):
            if i in number:
                words[at, 0] = number[i]
    return Trees(
        words,
        np.array(roots, np.int32),
        weights,
        COMPARISONS[next(iter(branches), "BRANCH_LEQ")],
        any(tracks[i] and modes[i] != "LEAF" for i in order),
        max((features[i] for i in order if modes[i] != "LEAF"), default=0) + 1,
    )


def _laid_out(
    ids: Sequence[tuple[int, int]],
    place: Mapping[tuple[int, int], int],
    is_leaf: Sequence[bool],
    trues: Sequence[int],
    falses: Sequence[int],
) -> tuple[list[int], list[int], dict[int, int]]:
    """Return the nodes in their new order, where each tree begins, and the new place of the true child of each node.

    The first node of a tree in the model is its root. Nodes that are reached twice or not at all make the order shorter
    or longer than the model's, which the caller refuses."""
    order: list[int] = []
    roots: list[int] = []
    children: dict[int, int] = {}
    first: dict[int, int] = {}
    for i, (tree, _) in enumerate(ids):
        first.setdefault(tree, i)
    for tree, root in first.items():
        roots.append(len(order))
        order.append(root)
        at = len(order) - 1
        while at < len(order) <= len(ids):
            i = order[at]
            if not is_leaf[i]:
                children[i] = len(order)
                below = [place.get((tree, child)) for child in (trues[i], falses[i])]
                if None in below:
                    return [], [], {}
                order += [child for child in below if child is not None]
            at += 1
    return (order if len(set(order)) == len(order) else []), roots, children


def _weights(
    attrs: Mapping[str, AttrValue], kind: str, outputs: int, leaves: Mapping[tuple[int, int], int], *, wide: bool
) -> NDArray[np.floating] | None:
    """Return the weights of each leaf for each output; None if some are of no leaf or no output."""
    names = ("treeids", "nodeids", "ids")
    trees, nodes, targets = (_ints(attrs, f"{kind}_{name}") for name in names)
    weights = numbers(attrs, f"{kind}_weights", wide=wide)
    if not len(trees) == len(nodes) == len(targets) == len(weights):
        return None
    found = np.zeros((len(leaves), outputs), np.float64 if wide else np.float32)
    for tree, node, target, weight in zip(trees, nodes, targets, weights, strict=True):
        leaf = leaves.get((tree, node))
        if leaf is None or not 0 <= target < outputs:
            return None
        found[leaf, target] += found.dtype.type(weight)
    return found


def numbers(attrs: Mapping[str, AttrValue], name: str, *, wide: bool) -> list[float]:
    """Return a list of floats: an attribute, or in f64 the tensor that stands for it."""
    tensor = attrs.get(f"{name}_as_tensor") if wide else None
    if isinstance(tensor, Constant):
        return [float(v) for v in tensor.array.ravel().tolist()]
    return [float(v) for v in _list(attrs, name) if isinstance(v, int | float)]


def _list(attrs: Mapping[str, AttrValue], name: str) -> Sequence[object]:
    found = attrs.get(name)
    return found if isinstance(found, tuple) else ()


def _ints(attrs: Mapping[str, AttrValue], name: str) -> list[int]:
    return [v for v in _list(attrs, name) if isinstance(v, int)]
