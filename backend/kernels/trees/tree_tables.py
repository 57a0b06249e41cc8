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
_DEEPEST = 10_000
"""Levels of a tree, at most: each takes some 20 µs to lay out, and its nodes are read one after the other."""
_NAMES, _FEATURES = 1 << 62, 1 << 31
"""Bounds of the numbers that name nodes, and of those of features."""
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
    ids = _Ids.of(_ints(attrs, "nodes_treeids"), _ints(attrs, "nodes_nodeids"))
    names = ("falsenodeids", "truenodeids", "featureids", "missing_value_tracks_true")
    falses, trues, features, tracks = (_ints(attrs, f"nodes_{name}") for name in names)
    modes, values = _list(attrs, "nodes_modes"), numbers(attrs, "nodes_values", wide=wide)
    distinct = set(modes)
    if ids is None or not distinct <= {"LEAF", *COMPARISONS} or len(distinct - {"LEAF"}) > 1:
        return None
    count = len(ids.trees)
    tracks = tracks if len(tracks) else np.zeros(count, np.int64)
    if any(len(each) != count for each in (falses, trues, features, modes, values, tracks)):
        return None
    if (features < 0).any() or (features >= _FEATURES).any():
        return None
    is_leaf = np.fromiter((mode == "LEAF" for mode in modes), np.bool_, count)
    laid_out = _laid_out(ids, is_leaf, trues, falses)
    if laid_out is None:
        return None
    order, roots, children = laid_out
    leaf = np.full(count, -1)  # the number of each leaf, in the new order
    leaf[order[is_leaf[order]]] = np.arange(is_leaf.sum())
    weights = _weights(attrs, kind, outputs, ids, leaf, wide=wide)
    if weights is None:
        return None
    nodes, ends = np.zeros(count, _WIDE_NODE if wide else _NODE), is_leaf[order]
    inner = order[~ends]
    nodes["value"][~ends], nodes["feature"][~ends] = np.asarray(values)[inner], features[inner]
    nodes["child"] = np.where(ends, np.arange(count), children)
    nodes["bits"][~ends] = INNER | np.where(tracks[inner] != 0, MISSING, 0)
    words = nodes.view(np.int32).reshape(count, -1)
    if outputs == 1:
        nodes["value"][ends] = weights[:, 0]
    else:
        words[ends, 0] = np.arange(len(weights))
    return Trees(
        words,
        roots,
        weights,
        COMPARISONS[str(next(iter(distinct - {"LEAF"}), "BRANCH_LEQ"))],
        bool((tracks[inner] != 0).any()),
        int(features[inner].max(initial=0)) + 1,
    )


@dataclass(frozen=True, slots=True)
class _Ids:
    """Nodes of an ensemble by their tree and their number in it.

    A name of a node is one number, `span` for each tree; `names` has them in order, and `places` has their nodes."""

    trees: NDArray[np.int64]
    ends: NDArray[np.int64]
    least: int
    span: int
    names: NDArray[np.int64]
    places: NDArray[np.int64]

    @classmethod
    def of(cls, trees: NDArray[np.int64], numbers: NDArray[np.int64]) -> _Ids | None:
        """Sort the nodes; None if there are none, if two have the same name, or numbers are too large for names."""
        if not len(trees) or len(trees) != len(numbers):
            return None
        ends, ranks = np.unique(trees, return_inverse=True)
        least = int(numbers.min())
        span = int(numbers.max()) - least + 1
        if span * len(ends) >= _NAMES:
            return None
        names = ranks * span + (numbers - least)
        places = np.argsort(names, kind="stable")
        names = names[places]
        return None if (np.diff(names) == 0).any() else cls(trees, ends, least, span, names, places)

    def find(self, trees: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the nodes of these trees and numbers, -1 where there is none."""
        ranks = np.minimum(np.searchsorted(self.ends, trees), len(self.ends) - 1)
        known = (self.ends[ranks] == trees) & (numbers >= self.least) & (numbers < self.least + self.span)
        names = np.where(known, ranks * self.span + (np.where(known, numbers, self.least) - self.least), 0)
        at = np.minimum(np.searchsorted(self.names, names), len(self.names) - 1)
        return np.where(known & (self.names[at] == names), self.places[at], -1)


def _laid_out(
    ids: _Ids, is_leaf: NDArray[np.bool_], trues: NDArray[np.int64], falses: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]] | None:
    """Return the nodes in their new order, where each tree begins, and the new place of the true child of each node.

    The first node of a tree in the model is its root, and trees follow each other as their roots do. Two children are
    followed by what is below the one with more below it, then by the rest: a walk often finds its next node in the same
    line of the cache, or the next one. The places of children of leaves are undefined. None if a node has no children,
    is reached twice or not at all, or if a tree is too deep."""
    count = len(is_leaf)
    inner = np.flatnonzero(~is_leaf)
    below = np.full((count, 2), -1)
    for side, children in enumerate((trues, falses)):
        below[inner, side] = ids.find(ids.trees[inner], children[inner])
    first = np.sort(np.unique(ids.trees, return_index=True)[1])
    levels = [first]
    found = len(first)
    while len(levels[-1]):
        level = below[levels[-1][~is_leaf[levels[-1]]]].reshape(-1)
        found += len(level)
        if found > count or (level < 0).any() or len(levels) > _DEEPEST:
            return None
        levels.append(level)
    if len(np.unique(np.concatenate(levels))) != count:
        return None
    sizes = np.zeros(count, np.int64)  # of what is below each node
    for level in reversed(levels):
        parents = level[~is_leaf[level]]
        sizes[parents] = 2 + sizes[below[parents]].sum(axis=1)
    place, child = np.full(count, -1), np.full(count, -1)
    place[first] = np.cumsum(sizes[first] + 1) - sizes[first] - 1
    child[first] = place[first] + 1
    for level in levels:
        parents = level[~is_leaf[level]]
        pair, at = below[parents], child[parents]
        place[pair] = at[:, None] + (0, 1)
        left, right = sizes[pair].T
        child[pair[:, 0]] = at + 2 + np.where(left < right, right, 0)
        child[pair[:, 1]] = at + 2 + np.where(left < right, 0, left)
    order = np.empty(count, np.int64)
    order[place] = np.arange(count)
    return order, place[first].astype(np.int32), child[order]


def _weights(
    attrs: Mapping[str, AttrValue], kind: str, outputs: int, ids: _Ids, leaf: NDArray[np.int64], *, wide: bool
) -> NDArray[np.floating] | None:
    """Return the weights of each leaf for each output; None if some are of no leaf or no output."""
    names = ("treeids", "nodeids", "ids")
    trees, nodes, targets = (_ints(attrs, f"{kind}_{name}") for name in names)
    weights = np.asarray(numbers(attrs, f"{kind}_weights", wide=wide), np.float64 if wide else np.float32)
    if not len(trees) == len(nodes) == len(targets) == len(weights):
        return None
    found = np.zeros((int(leaf.max(initial=-1)) + 1, outputs), weights.dtype)
    at = ids.find(trees, nodes)
    if (at < 0).any() or (leaf[at] < 0).any() or ((targets < 0) | (targets >= outputs)).any():
        return None
    np.add.at(found, (leaf[at], targets), weights)
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


def _ints(attrs: Mapping[str, AttrValue], name: str) -> NDArray[np.int64]:
    return np.array([v for v in _list(attrs, name) if isinstance(v, int)], np.int64)
