"""Element types and opsets for which ONNX Runtime has kernels.

The standard allows more types than any runtime implements: of most activations, ONNX Runtime has a kernel for f32 only.
An optimized file must not need a kernel that the model did without. `runtime_types.txt` is the data, by operator and
input. Types of half precision count where there is a kernel for f32, since ONNX Runtime inserts casts. An operator that
it replaces by its function counts where the function runs in the newest opset. Opsets may be newer than its kernels: it
has none for the latest definition of some operators.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..ir.graph import DType, TensorType, ValueType

DATA = Path(__file__).with_name("runtime_types.txt")


UNTIL = "until"
"""Word in the place of an input in lines that have the last opset whose definition of the operator has a kernel."""


@dataclass(frozen=True, slots=True)
class _Table:
    types: dict[str, list[tuple[int, frozenset[str]]]]
    until: dict[str, int]


@cache
def _table() -> _Table:
    found = _Table({}, {})
    for line in DATA.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        op, place, *items = line.split()
        if place == UNTIL:
            found.until[op] = int(items[0])
        else:
            found.types.setdefault(op, []).append((int(place), frozenset(items)))
    return found


def has_kernel(op: str, inputs: Sequence[ValueType | None], opset: Mapping[str, int]) -> bool:
    """Whether ONNX Runtime has a kernel for an operator of these opsets on inputs of these types; unknown types count
    as accepted."""
    table = _table()
    if opset.get("", 0) > table.until.get(op, math.inf):
        return False
    for place, accepted in table.types.get(op, ()):
        found = inputs[place] if place < len(inputs) else None
        if isinstance(found, TensorType) and found.dtype is not None and DType(found.dtype) not in accepted:
            return False
    return True
