"""Dims as operations in postfix order, which the runtime evaluates in C (`runtime/native/dims.h`)."""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.ir.dim_expr import Atom
from ...engine.ir.symbolic import Dim

Operation = tuple[int, ...]
"""A code; a number and a symbol have a value too."""
_NUMBER, _SYMBOL, _ADD, _MULTIPLY, _FLOORDIV, _MAX, _MIN, _BROADCAST, _SAME, _TRUNCDIV = range(10)
_FUNCTIONS = {
    "floordiv": _FLOORDIV,
    "max": _MAX,
    "min": _MIN,
    "bcast": _BROADCAST,
    "same": _SAME,
    "truncdiv": _TRUNCDIV,
}


def postfix(dim: Dim, symbols: dict[str, int]) -> list[Operation]:
    """Return the operations of a dim. `symbols` numbers those in it, and gets the new ones."""
    if isinstance(dim, int):
        return [(_NUMBER, dim)]
    found: list[Operation] = []
    for number, (monomial, factor) in enumerate(dim.terms):
        parts = [_atom(atom, symbols) for atom in monomial]
        if factor != 1 or not parts:
            parts.insert(0, [(_NUMBER, factor)])
        found += _folded(parts, _MULTIPLY)
        found += [(_ADD,)] * (number > 0)
    return found


def _atom(atom: Atom, symbols: dict[str, int]) -> list[Operation]:
    if atom.kind == "symbol":
        return [(_SYMBOL, symbols.setdefault(atom.key.strip("'"), len(symbols)))]
    return _folded([postfix(arg, symbols) for arg in atom.args], _FUNCTIONS[atom.kind])


def _folded(parts: Sequence[list[Operation]], code: int) -> list[Operation]:
    """Return the operations of an operator on several operands."""
    found = list(parts[0])
    for part in parts[1:]:
        found += [*part, (code,)]
    return found
