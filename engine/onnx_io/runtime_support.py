"""Element types for which ONNX Runtime has kernels.

The standard allows more types than any runtime implements: of most activations, ONNX Runtime has a kernel for f32 only.
An optimized file must not need a kernel that the model did without. `runtime_types.txt` is the data, by operator and
input. Types of half precision count where there is a kernel for f32, since ONNX Runtime inserts casts. An operator that
it replaces by its function counts where the function runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ..ir.graph import DType, TensorType, ValueType

DATA = Path(__file__).with_name("runtime_types.txt")


@cache
def _table() -> dict[str, list[tuple[int, frozenset[str]]]]:
    found: dict[str, list[tuple[int, frozenset[str]]]] = {}
    for line in DATA.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            op, place, *types = line.split()
            found.setdefault(op, []).append((int(place), frozenset(types)))
    return found


def has_kernel(op: str, inputs: Sequence[ValueType | None]) -> bool:
    """Whether ONNX Runtime has a kernel for an operator on inputs of these types; unknown types count as accepted."""
    for place, accepted in _table().get(op, ()):
        found = inputs[place] if place < len(inputs) else None
        if isinstance(found, TensorType) and found.dtype is not None and DType(found.dtype) not in accepted:
            return False
    return True
