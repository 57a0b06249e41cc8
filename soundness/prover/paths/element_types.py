"""Element types by kind: float, signed or unsigned integer, truth value.

A type is a name, of a dtype (`f32`) or of a type variable. Variables are unified where operators require equal types,
and resolved by cases where the meaning of an operator depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..terms.scalars import Scalar, operands
from .path import Path

KINDS: dict[str, str] = {
    **dict.fromkeys(("f32", "f16", "bf16", "f64"), "float"),
    **dict.fromkeys(("i8", "i16", "i32", "i64"), "int"),
    **dict.fromkeys(("u8", "u16", "u32", "u64"), "uint"),
    "bool": "bool",
}
NUMBERS = ("float", "int", "uint")
TRUTH = frozenset((
    "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "Not", "IsNaN", "IsInf",
))  # fmt: skip
"""Operators that return truth values."""
CONVERSIONS = frozenset(("Cast", "DequantizeLinear", "QuantizeLinear", "index of"))
"""Operators whose attribute `to` is the type of their result."""


def root(path: Path, name: str) -> str:
    """Return the representative of all types that are known to be equal."""
    while ("type", name) in path.extra:
        name = str(path.extra[("type", name)])
    return name


def unify(path: Path, a: str, *others: str) -> None:
    """Equate types. Raises `Infeasible` if they differ."""
    for b in others:
        # a dtype, rather than a type variable, represents both
        first, second = sorted((root(path, a), root(path, b)), key=KINDS.__contains__)
        if first != second:
            path.require(first not in KINDS, f"{first} is not {second}")
            known = kinds(path, first)
            path.extra[("type", first)] = second
            restrict(path, second, known)


def restrict(path: Path, name: str, allowed: Sequence[str]) -> None:
    """Restrict a type to these kinds. Raises `Infeasible` if none is left."""
    name = root(path, name)
    left = tuple(k for k in kinds(path, name) if k in allowed)
    path.require(bool(left), f"{name} is not allowed" if name in KINDS else "no element type is allowed")
    if name not in KINDS:
        path.extra[("kind", name)] = left


def of_kind(kind: str) -> tuple[str, ...]:
    """Return the element types of a kind."""
    return tuple(t for t, found in KINDS.items() if found == kind)


def kinds(path: Path, name: str) -> tuple[str, ...]:
    """Return the kinds that a type may be of."""
    name = root(path, name)
    known: tuple[str, ...] = path.extra.get(("kind", name), (*NUMBERS, "bool"))
    return (KINDS[name],) if name in KINDS else known


def kind(path: Path, name: str) -> str:
    """Return the kind of a type, by cases."""
    found = path.choose(kinds(path, name), f"kind of {root(path, name)}")
    restrict(path, name, (found,))
    return found


def is_one_of(path: Path, name: str, wanted: Sequence[str]) -> bool:
    """Whether a type is of one of these kinds, by cases, without deciding which."""
    name, known = root(path, name), kinds(path, name)
    inside, outside = tuple(k for k in known if k in wanted), tuple(k for k in known if k not in wanted)
    if not inside or not outside:
        return bool(inside)
    found = path.choose((True, False), f"{name} is {' or '.join(wanted)}")
    path.extra[("kind", name)] = inside if found else outside
    return found


def type_of(path: Path, scalar: Scalar) -> str | None:
    """Return the type of a scalar; None for a number, which takes the type of its context."""
    match scalar.op:
        case "read" | "flat":
            found = path.extra.get(("dtype of", scalar.args[0]))
            return None if found is None else root(path, found)
        case "app" if scalar.args[0] in TRUTH:
            return "bool"
        case "app" if scalar.args[0] in CONVERSIONS:
            return root(path, str(dict(scalar.args[1])["to"]))
        case "app" if scalar.args[0].startswith("op "):
            return root(path, path.extra[("dtype of", scalar.args[0])])
        case "app" if scalar.args[0] == "Pow":
            return type_of(path, scalar.args[2])
        case "app":
            typed = scalar.args[3:] if scalar.args[0] == "Where" else scalar.args[2:]
        case "ite":
            typed = scalar.args[1:]
        case _:
            typed = tuple(operands(scalar))
    return next((t for t in (type_of(path, o) for o in typed) if t is not None), None)
