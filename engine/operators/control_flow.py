"""If, Loop and Scan in NumPy, for tests of rules about bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.graph import AttrValue, Graph
from ..ir.values import Unprovable
from .folding import evaluate

Array = NDArray[Any]
Compute = Callable[[str, Mapping[str, AttrValue], Sequence[Array | None], int], "Sequence[Array] | None"]
"""Returns the outputs of a node, from its operator, attributes, inputs and number of outputs; None if it cannot."""
MAX_RUNS = 1000
"""Maximum number of runs of a body."""


def run(
    op: str,
    attrs: Mapping[str, AttrValue],
    arrays: Sequence[Array | None],
    around: Mapping[str, Array],
    compute: Compute = evaluate,
) -> list[Array]:
    """Compute the outputs of a node with bodies.

    `around` are the captured values; `compute` computes the nodes of the bodies. Raises `Unprovable` for what cannot be
    computed."""
    match op:
        case "If":
            assert arrays[0] is not None
            return _body(attrs["then_branch" if arrays[0].all() else "else_branch"], (), around, compute)
        case "Loop":
            return _loop(attrs["body"], arrays, around, compute)
        case "Scan":
            return _scan(attrs, arrays, around, compute)
    raise Unprovable(f"{op} cannot be computed")


def _body(body: AttrValue, inputs: Sequence[Array], around: Mapping[str, Array], compute: Compute) -> list[Array]:
    """Return the outputs of one run of a body."""
    assert isinstance(body, Graph)
    known: dict[str, Array] = {**around, **dict(zip(body.inputs, inputs, strict=True))}
    known |= {name: constant.array for name, constant in body.constants.items()}
    for node in body.nodes:
        arrays = [known[name] if name else None for name in node.inputs]
        found = (
            run(node.op, node.attrs, arrays, known, compute)
            if any(node.subgraphs())
            else compute(node.op, node.attrs, arrays, len(node.outputs))
        )
        if found is None:
            raise Unprovable(f"{node.op} of the body cannot be computed on these operands")
        known.update((name, array) for name, array in zip(node.outputs, found, strict=False) if name)
    return [known[name] for name in body.outputs]


def _stacked(runs: list[list[Array]], count: int) -> list[Array]:
    """Stack the per-iteration outputs."""
    if count and not runs:
        raise Unprovable("the type of an output without runs is unknown")
    return [np.stack([found[i] for found in runs]) for i in range(count)]


def _loop(
    body: AttrValue, arrays: Sequence[Array | None], around: Mapping[str, Array], compute: Compute
) -> list[Array]:
    assert isinstance(body, Graph)
    most, first = (*arrays, None, None)[:2]
    goes_on = first is None or bool(first.all())
    carried = [a for a in arrays[2:] if a is not None]
    added: list[list[Array]] = []
    while goes_on and (most is None or len(added) < int(most.reshape(()))):
        if len(added) == MAX_RUNS:
            raise Unprovable(f"this Loop runs more than {MAX_RUNS} times")
        number = np.array(len(added), np.int64)
        condition, *found = _body(body, [number, np.array(True), *carried], around, compute)
        goes_on, carried = bool(condition.all()), found[: len(carried)]
        added.append(found[len(carried) :])
    return [*carried, *_stacked(added, len(body.outputs) - 1 - len(carried))]


def _scan(
    attrs: Mapping[str, AttrValue], arrays: Sequence[Array | None], around: Mapping[str, Array], compute: Compute
) -> list[Array]:
    body, count = attrs["body"], attrs["num_scan_inputs"]
    assert isinstance(body, Graph)
    assert isinstance(count, int)
    for name in ("scan_input_axes", "scan_output_axes", "scan_input_directions", "scan_output_directions"):
        value = attrs.get(name, ())
        if isinstance(value, tuple) and any(value):
            raise Unprovable(f"Scan with {name} is not supported")
    given = [a for a in arrays if a is not None]
    states, scanned = given[: len(given) - count], given[len(given) - count :]
    added: list[list[Array]] = []
    for items in zip(*scanned, strict=True):
        found = _body(body, [*states, *map(np.asarray, items)], around, compute)
        states = found[: len(states)]
        added.append(found[len(states) :])
    return [*states, *_stacked(added, len(body.outputs) - len(states))]
