"""If, Loop, Scan and SequenceMap, driven from Python over compiled bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..engine.graph import TensorType
from ..errors import RewriteError
from .kernel_graph import Control, ModelPlan

Body = Callable[[Sequence[Any]], list[Any]]


def run_control(
    item: Control, inputs: Sequence[Any], captured: Sequence[Sequence[Any]], bodies: Sequence[Body]
) -> list[Any]:
    """The outputs of a control operator on values for its inputs (None where absent); `captured` are the values of
    what each body captures."""
    if item.op == "If":
        branch = 0 if bool(np.asarray(inputs[0]).reshape(-1)[0]) else 1
        return bodies[branch](list(captured[branch]))
    if item.op == "Branch":
        return bodies[0](list(captured[0]))
    if item.op == "Loop":
        return _loop(item, inputs, captured[0], bodies[0])
    if item.op == "Scan":
        return _scan(item, inputs, captured[0], bodies[0])
    if item.op == "SequenceMap":
        return _sequence_map(item, inputs, captured[0], bodies[0])
    raise RewriteError(f"{item.op} is no control operator", where=item.name)


def _sequence_map(item: Control, inputs: Sequence[Any], captured: Sequence[Any], body: Body) -> list[Any]:
    found = [body([*(v[i] if isinstance(v, list) else v for v in inputs), *captured]) for i in range(len(inputs[0]))]
    return [[row[column] for row in found] for column in range(len(item.outputs))]


def _loop(item: Control, inputs: Sequence[Any], captured: Sequence[Any], body: Body) -> list[Any]:
    trips = None if inputs[0] is None else int(np.asarray(inputs[0]).reshape(-1)[0])
    going = True if len(inputs) < 2 or inputs[1] is None else bool(np.asarray(inputs[1]).reshape(-1)[0])
    state = list(inputs[2:])
    plan = item.bodies[0]
    collected: list[list[Any]] = [[] for _ in plan.outputs[1 + len(state) :]]
    done = 0
    condition = _like(plan, 1, plan.inputs)
    while going and (trips is None or done < trips):
        found = body([np.array(done, np.int64), np.full(condition, going), *state, *captured])
        going = bool(np.asarray(found[0]).reshape(-1)[0])
        state = found[1 : 1 + len(state)]
        for column, value in zip(collected, found[1 + len(state) :], strict=True):
            column.append(value)
        done += 1
    stacked = [
        np.stack(column) if column else _empty(plan, plan.outputs[1 + len(state) + i])
        for i, column in enumerate(collected)
    ]
    return [*state, *stacked]


def _like(plan: ModelPlan, number: int, names: Sequence[str]) -> tuple[int, ...]:
    """The shape in which a body wants the condition: () or (1,)."""
    shape = plan.type(names[number]).shape if number < len(names) else ()
    return (1,) if shape == (1,) else ()


def _empty(plan: ModelPlan, value: str) -> Any:
    """What no iterations collect: an empty tensor of the right dtype and rank."""
    kind = plan.types.get(value)
    if not isinstance(kind, TensorType) or kind.dtype is None or kind.shape is None:
        raise RewriteError(f"the loop made no iterations, and the type of {value} isn't known")
    return np.empty((0, *(d if isinstance(d, int) else 0 for d in kind.shape)), kind.dtype.numpy)


def _scan(item: Control, inputs: Sequence[Any], captured: Sequence[Any], body: Body) -> list[Any]:
    plan = item.bodies[0]
    n_scan = int(item.attrs["num_scan_inputs"])
    n_state = len(inputs) - n_scan
    n_out = len(plan.outputs) - n_state

    def per(name: str, count: int) -> Sequence[int]:
        return item.attrs.get(name) or (0,) * count

    sources = [
        np.moveaxis(np.asarray(v), axis, 0)[:: -1 if direction else 1]
        for v, axis, direction in zip(
            inputs[n_state:], per("scan_input_axes", n_scan), per("scan_input_directions", n_scan), strict=True
        )
    ]
    if len({len(s) for s in sources}) > 1:
        raise RewriteError(f"the scanned inputs have different lengths: {[len(s) for s in sources]}", where=item.name)
    state = list(inputs[:n_state])
    collected: list[list[Any]] = [[] for _ in range(n_out)]
    for i in range(len(sources[0])):
        found = body([*state, *(s[i] for s in sources), *captured])
        state = found[:n_state]
        for column, value in zip(collected, found[n_state:], strict=True):
            column.append(value)
    stacked = []
    for i, (column, axis, direction) in enumerate(
        zip(collected, per("scan_output_axes", n_out), per("scan_output_directions", n_out), strict=True)
    ):
        whole = np.stack(column[:: -1 if direction else 1]) if column else _empty(plan, plan.outputs[n_state + i])
        stacked.append(np.moveaxis(whole, 0, axis))
    return [*state, *stacked]
