"""Maps that a classifier ends with: for each row of scores a dict from the labels to them (ZipMap).

A plan that ends in ZipMap also runs as one without it, whose scores become maps afterwards: such a run is one call of
the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...engine.ir.graph import Node
from ...errors import RewriteError
from ..ir.kernel_graph import Control, Fallback, ModelPlan, Step
from .native import executor as native

ZIP_MAP = "ai.onnx.ml.ZipMap"


class RowMaps:
    """ZipMap of a node: its labels in ascending order, and the column of each."""

    def __init__(self, node: Node) -> None:
        labels = node.attrs.get("classlabels_strings") or node.attrs.get("classlabels_int64s") or ()
        self.where = f"node {node.name} ({node.op})"
        self.count = len(labels) if isinstance(labels, tuple) else 0
        columns = {label: column for column, label in enumerate(labels)} if isinstance(labels, tuple) else {}
        self.labels = tuple(sorted(columns))  # type: ignore[type-var]
        self.columns = np.array([columns[label] for label in self.labels], np.int64)

    def __call__(self, scores: Any) -> list[dict[Any, float]]:
        """Return a dict for each row of a matrix, or for a row. Raises RewriteError if that has another length."""
        rows = np.atleast_2d(np.asarray(scores, np.float32))
        if rows.shape[1] != self.count:
            raise RewriteError("the rows have other lengths than the list of labels", where=self.where)
        found: list[dict[Any, float]] = native.row_maps(rows, self.labels, self.columns)
        return found


def split_maps(plan: ModelPlan) -> tuple[ModelPlan, dict[str, tuple[str, RowMaps]]] | None:
    """Return a plan without ZipMap at its end, and for each output that is a map its scores and how to make it.

    None if there is none, or something else runs from Python."""
    made = {i.node.outputs[0]: i for i in plan.items if isinstance(i, Fallback) and i.node.op == ZIP_MAP}
    rest = tuple(item for item in plan.items if item not in made.values())
    scores = {output: item.node.inputs[0] for output, item in made.items()}
    computed = {value for item in rest if isinstance(item, Step) for value in item.outputs}
    outputs = tuple(scores.get(output, output) for output in plan.outputs)
    whole = set(made) <= set(plan.outputs) and set(scores.values()) <= computed and len(set(outputs)) == len(outputs)
    if not made or not whole or any(isinstance(item, Fallback | Control) for item in rest):
        return None
    maps = {output: (scores[output], RowMaps(item.node)) for output, item in made.items()}
    return replace(plan, outputs=outputs, items=rest), maps


def with_maps(
    outputs: tuple[str, ...], found: Mapping[str, Any], maps: Mapping[str, tuple[str, RowMaps]]
) -> dict[str, Any]:
    """Return the outputs of a plan from those of the plan without its maps."""
    return {name: maps[name][1](found[maps[name][0]]) if name in maps else found[name] for name in outputs}
