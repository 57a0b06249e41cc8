"""TreeEnsemble of version 5 in the form of TreeEnsembleRegressor, whose leaves are nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....engine.ir.graph import AttrValue, Constant

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_COPIES = 4
"""How many times as large shared nodes may make an ensemble, at most."""
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


def as_regressor(attrs: Mapping[str, AttrValue]) -> dict[str, AttrValue] | None:
    """Return the attributes of a TreeEnsembleRegressor with the same trees.

    Nodes that several trees share are copied. None for sets of members, for scores that are transformed, for what is no
    tree, and where copies would be many times as large as the model."""
    names = ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    features, trues, falses, true_leafs, false_leafs = (_ints(attrs, f"nodes_{name}") for name in names)
    modes, splits, weights = (_tensor(attrs, name) for name in ("nodes_modes", "nodes_splits", "leaf_weights"))
    targets, roots, count = _ints(attrs, "leaf_targetids"), _ints(attrs, "tree_roots"), len(features)
    tracks = _ints(attrs, "nodes_missing_value_tracks_true") or [0] * count
    aggregate = attrs.get("aggregate_function", 1)
    lists = (trues, falses, true_leafs, false_leafs, modes, splits, tracks)
    if any(len(each) != count for each in lists) or len(weights) != len(targets):
        return None
    if attrs.get("post_transform", 0) != 0 or aggregate not in range(4) or any(m not in range(6) for m in modes):
        return None
    most = _COPIES * (2 * count + len(roots))
    nodes: list[tuple[Any, ...]] = []
    leaves: list[tuple[int, int, int, float]] = []
    for tree, root in enumerate(roots):
        if not 0 <= root < count:
            return None
        alone = true_leafs[root] and false_leafs[root] and trues[root] == falses[root]
        todo = [(bool(alone), trues[root] if alone else root, 0)]
        number = 1  # of the next node of the tree
        seen = set[int]()
        while todo:
            if len(nodes) > most:
                return None
            is_leaf, at, own = todo.pop()
            if not 0 <= at < (len(targets) if is_leaf else count) or (not is_leaf and at in seen):
                return None
            if is_leaf:
                nodes.append((tree, own, 0, "LEAF", 0.0, 0, 0, 0))
                leaves.append((tree, own, targets[at], float(weights[at])))
                continue
            seen.add(at)
            below = (number, number + 1)
            number += 2
            mode, split = _MODES[int(modes[at])], float(splits[at])
            nodes.append((tree, own, features[at], mode, split, *below, tracks[at]))
            todo += [(bool(true_leafs[at]), trues[at], below[0]), (bool(false_leafs[at]), falses[at], below[1])]
    columns = list(zip(*sorted(nodes, key=lambda node: node[:2]), strict=True)) or [()] * 8
    of_leaf = list(zip(*leaves, strict=True)) or [()] * 4
    keys = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    found: dict[str, AttrValue] = {f"nodes_{key}": column for key, column in zip(keys, columns, strict=False)}
    found["nodes_missing_value_tracks_true"] = columns[7]
    found |= {f"target_{k}": v for k, v in zip(("treeids", "nodeids", "ids", "weights"), of_leaf, strict=True)}
    targeted = attrs.get("n_targets", 1)
    return {**found, "n_targets": targeted, "aggregate_function": _AGGREGATES[int(str(aggregate))]}


def _ints(attrs: Mapping[str, AttrValue], name: str) -> list[int]:
    found = attrs.get(name)
    return [v for v in found if isinstance(v, int)] if isinstance(found, tuple) else []


def _tensor(attrs: Mapping[str, AttrValue], name: str) -> list[float]:
    found = attrs.get(name)
    return found.array.ravel().tolist() if isinstance(found, Constant) else []
