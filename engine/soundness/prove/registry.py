"""The table of operators that have a meaning here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from .attributes import Attrs
from .path import Infeasible, Path
from .tensors import Tensor

Inputs: TypeAlias = "Sequence[Tensor | None]"
Meaning = Callable[[Path, Attrs, Inputs], list[Tensor]]
OPERATORS: dict[str, Meaning] = {}


def operator(*names: str) -> Callable[[Meaning], Meaning]:
    """Registers the meaning of operators."""

    def register(meaning: Meaning) -> Meaning:
        OPERATORS.update(dict.fromkeys(names, meaning))
        return meaning

    return register


def given(inputs: Inputs, place: int) -> Tensor:
    """An input that must be there."""
    found = inputs[place] if place < len(inputs) else None
    if found is None:
        raise Infeasible("an input is absent")
    return found
