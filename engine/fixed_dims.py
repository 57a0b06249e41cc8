"""Which dims of a model's inputs a user fixes, whatever they call them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import UserError

NAMELESS = ("", "?", "None", "-1", "*", "unk", "unknown")
"""What exporters write for a dim of any size; elsewhere equal names mean equal sizes."""


def fixed_dims(inputs: Iterable[Any], shapes: Mapping[str, int], where: str) -> dict[str, int]:
    """The numbers in `shapes` by the name of the dim, or `INPUT:AXIS` where it has none.

    `inputs` are `ValueInfoProto`s. In `shapes` a dim is called by its name, `INPUT:AXIS` or `INPUT.AXIS`. Raises
    `UserError` for a dim that no input has, one that the model has at another number, and one given two numbers."""
    meant: dict[str, str] = {}
    numbers: dict[str, int] = {}
    free: dict[str, str] = {}
    for value in inputs:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            place = f"{value.name}:{axis}"
            name = place if dim.dim_param in NAMELESS else dim.dim_param
            for alias in (place, f"{value.name}.{axis}"):
                meant[alias] = name
            if dim.HasField("dim_value"):
                numbers[place] = dim.dim_value
            else:
                free.setdefault(name, place)
    meant |= {name: name for name in free}  # a name that looks like a place is a name
    found: dict[str, int] = {}
    for given, number in shapes.items():
        if given not in meant:
            known = [name if name == place else f"{name} ({place})" for name, place in free.items()]
            hint = f"Free dimensions: {', '.join(known)}" if known else "All dimensions of the inputs are fixed."
            raise UserError(f"no input has a dimension {given!r}", where=where, hint=hint)
        name = meant[given]
        if numbers.setdefault(name, number) != number:
            what = "two numbers are given for" if name in found else "the model itself fixes"
            raise UserError(f"{what} dimension {given}: {numbers[name]} and {number}", where=where)
        if name in free:
            found[name] = number
    return found
