"""Lowering of tree ensembles: TreeEnsembleRegressor, TreeEnsembleClassifier and TreeEnsemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....engine.ir.graph import DType, Node
from ....engine.ir.symbolic import product
from ...codegen.pointwise_emit import C_TYPES
from ...codegen.template_params import int_attr, launch, threads
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Item, Step
from ...ir.lower import Context
from ..registry import lowering_alone
from .tree_tables import Trees, numbers, tables
from .unified_trees import as_regressor

_DOMAIN = "ai.onnx.ml"
_VERSIONS = ("", "@1", "@3")
"""Versions of the operators by the marks in their names: later ones only add attributes."""
_MOST = 64
"""Outputs of an ensemble, at most: the kernel sums them for `_ROWS` rows on its stack."""
_ROWS = 32
_STEP_WORK = 8
"""Simple operations per level of a tree."""
_TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
_FOLDS = {"SUM": "sum", "AVERAGE": "sum", "MIN": "min", "MAX": "max"}
"""What becomes of the weights of several trees, by the attribute."""
_INPUTS = (DType.F32, DType.F64, DType.I64, DType.I32)
"""Element types of features: integers are compared as f32."""


@lowering_alone(*(f"{_DOMAIN}.TreeEnsembleRegressor{version}" for version in _VERSIONS))
def lower_regressor(node: Node, ctx: Context) -> list[Step] | None:
    """Rows with a known number of features; the least or largest weight of one target only."""
    outputs = int_attr(node, "n_targets", 1)
    aggregate = str(node.attrs.get("aggregate_function", "SUM"))
    if _FOLDS.get(aggregate) is None or _transform(node) != "NONE" or (outputs > 1 and _FOLDS[aggregate] != "sum"):
        return None
    found = _ensemble(node, ctx, "target", outputs)
    base = _base(node, ctx, outputs)
    if found is None or base is None:
        return None
    how = {"base": base, "average": aggregate == "AVERAGE", "classes": None, "fold": _FOLDS[aggregate]}
    return _steps(node, ctx, found, how)


@lowering_alone(f"{_DOMAIN}.TreeEnsemble")
def lower_unified(node: Node, ctx: Context) -> Sequence[Item] | None:
    """The operator of version 5, whose leaves are apart from its nodes: as the regressor with the same trees."""
    attrs = as_regressor(node.attrs)
    return None if attrs is None else lower_regressor(replace(node, attrs=attrs), ctx)


@lowering_alone(*(f"{_DOMAIN}.TreeEnsembleClassifier{version}" for version in _VERSIONS))
def lower_classifier(node: Node, ctx: Context) -> list[Step] | None:
    """Classes numbered by integers: three or more, or two whose leaves have the weights of one.

    Two classes are either probabilities or logits: weights below 0 tell. Of more, the best one is among those that the
    leaves of a row have weights for, if there are no base values. So where sums may be 0 or below, as those without
    weights are, each class must have a tree with weights for it in all its leaves."""
    labels = node.attrs.get("classlabels_int64s")
    if not isinstance(labels, tuple) or len(labels) < 2 or _transform(node) not in _TRANSFORMS:
        return None
    used = node.attrs.get("class_ids")
    binary = len(labels) == 2
    if binary and (not isinstance(used, tuple) or set(used) != {0}):
        return None
    outputs = 1 if binary else len(labels)
    found = _ensemble(node, ctx, "class", outputs)
    base = _base(node, ctx, outputs)
    if found is None or base is None:
        return None
    positive = bool((found.weights >= 0).all())
    if binary and _transform(node) != ("NONE" if positive else "LOGISTIC"):
        return None  # ONNX Runtime and the reference implementation differ
    scores = numbers(node.attrs, "class_weights", wide=_is_wide(node, ctx))
    if not (binary or min(scores, default=0) > 0 or any(base) or _always_scored(node, outputs)):
        return None
    params = {"base": base, "average": False, "classes": labels, "binary": binary, "positive": positive, "fold": "sum"}
    return _steps(node, ctx, found, {**params, "transform": _transform(node)})


def _always_scored(node: Node, classes: int) -> bool:
    """Whether each class has a tree that has a weight for it in all its leaves."""
    names = ("class_treeids", "class_nodeids", "class_ids", "nodes_treeids", "nodes_modes")
    trees, leaves, ids, owners, modes = (np.array(node.attrs.get(name, ())) for name in names)
    places = np.unique(np.stack([trees, ids, leaves]), axis=1)  # a leaf may have several weights for a class
    scored, counts = np.unique(places[:2], axis=1, return_counts=True)
    of_tree = dict(zip(*np.unique(owners[modes == "LEAF"], return_counts=True), strict=True))
    whole = [one for tree, one, count in zip(*scored, counts, strict=True) if count == of_tree.get(tree, 0)]
    return len(set(whole)) == classes


def _transform(node: Node) -> str:
    return str(node.attrs.get("post_transform", "NONE"))


def _base(node: Node, ctx: Context, outputs: int) -> list[float] | None:
    """Return the values that are added to the sums; None if their number is another."""
    values = numbers(node.attrs, "base_values", wide=_is_wide(node, ctx))
    return (values or [0.0] * outputs) if len(values) in (0, outputs) else None


def _is_wide(node: Node, ctx: Context) -> bool:
    return ctx.type(node.inputs[0]).dtype is DType.F64


def _ensemble(node: Node, ctx: Context, kind: str, outputs: int) -> Trees | None:
    x = ctx.type(node.inputs[0])
    if x.shape is None or len(x.shape) != 2 or x.dtype not in _INPUTS or not 1 <= outputs <= _MOST:
        return None
    found = tables(node.attrs, kind, outputs, wide=_is_wide(node, ctx))
    width = x.shape[1]
    return found if found is not None and isinstance(width, int) and found.features <= width else None


def _steps(node: Node, ctx: Context, trees: Trees, how: dict[str, object]) -> list[Step]:
    x, extents = ctx.type(node.inputs[0]), Extents()
    assert x.shape is not None
    assert x.dtype is not None
    count = len(trees.roots)
    depth = max(1, int(np.log2(len(trees.nodes) / count + 1)))
    packed = [ctx.add_constant(trees.nodes, "tree_nodes"), ctx.add_constant(trees.roots, "tree_roots")]
    if trees.weights.shape[1] > 1:
        packed.append(ctx.add_constant(trees.weights, "leaf_weights"))
    wanted = [value for value in node.outputs if value]
    params = {
        "real": "f64" if x.dtype is DType.F64 else "f32",
        "x": C_TYPES[x.dtype],
        "y": "double" if ctx.type(wanted[-1]).dtype is DType.F64 else "float",
        "rows": extents(x.shape[0]),
        "features": x.shape[1],
        "trees": count,
        "outputs": trees.weights.shape[1],
        "comparison": trees.comparison,
        "missing": trees.missing,
        "block": _ROWS,
        "written": [bool(value) for value in node.outputs],
        **how,
    }
    work = threads((product(x.shape[:1]), count, depth), _STEP_WORK)
    inputs: Sequence[str] = (node.inputs[0], *packed)
    return [launch(Kernel("trees", params), node, inputs, wanted, extents, work)]
