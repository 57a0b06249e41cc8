"""Element types, as far as they matter: a float, a signed or an unsigned integer, or a truth value.

A type is a name: of a dtype (`f32`), or of a variable that stands for one. Variables are put together where operators
ask for equal types, and are settled by cases where the meaning of an operator depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence

from .path import Infeasible, Path
from .scalars import Scalar

FLOATS = ("f32", "f16", "bf16", "f64")
KINDS: dict[str, str] = {
    **dict.fromkeys(FLOATS, "float"),
    **dict.fromkeys(("i8", "i16", "i32", "i64"), "int"),
    **dict.fromkeys(("u8", "u16", "u32", "u64"), "uint"),
    "bool": "bool",
}
NUMBERS = ("float", "int", "uint")
TRUTH = frozenset((
    "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "Not", "IsNaN", "IsInf",
))  # fmt: skip
"""The operators that give truth values."""


def root(path: Path, name: str) -> str:
    """The name that stands for all types known to be the same."""
    while ("type", name) in path.extra:
        name = str(path.extra[("type", name)])
    return name


def unify(path: Path, a: str, b: str) -> None:
    """Says that two types are the same; `Infeasible` if they cannot be."""
    a, b = root(path, a), root(path, b)
    if a == b:
        return
    if a in KINDS and b in KINDS:
        raise Infeasible(f"{a} is not {b}")
    if a in KINDS:
        a, b = b, a
    kind = path.extra.get(("kind", a))
    path.extra[("type", a)] = b
    if kind is not None:
        restrict(path, b, kind)


def restrict(path: Path, name: str, allowed: Sequence[str]) -> None:
    """Says that a type is of one of these kinds."""
    name = root(path, name)
    if name in KINDS:
        if KINDS[name] not in allowed:
            raise Infeasible(f"{name} is not allowed")
        return
    known = path.extra.get(("kind", name), (*NUMBERS, "bool"))
    left = tuple(k for k in known if k in allowed)
    if not left:
        raise Infeasible("no element type is allowed")
    path.extra[("kind", name)] = left


def kind(path: Path, name: str) -> str:
    """The kind of a type, by cases."""
    name = root(path, name)
    if name in KINDS:
        return KINDS[name]
    known: tuple[str, ...] = path.extra.get(("kind", name), (*NUMBERS, "bool"))
    found = path.choose(known, f"kind of {name}")
    path.extra[("kind", name)] = (found,)
    return found


def is_one_of(path: Path, name: str, kinds: Sequence[str]) -> bool:
    """Whether a type is of one of these kinds, without settling which; by cases if it is open."""
    name = root(path, name)
    if name in KINDS:
        return KINDS[name] in kinds
    known = path.extra.get(("kind", name), (*NUMBERS, "bool"))
    inside, outside = tuple(k for k in known if k in kinds), tuple(k for k in known if k not in kinds)
    if not inside or not outside:
        return bool(inside)
    found = path.choose((True, False), f"{name} is {' or '.join(kinds)}")
    path.extra[("kind", name)] = inside if found else outside
    return found


def type_of(path: Path, scalar: Scalar) -> str | None:
    """The type of a scalar; None for a number that takes the type it meets."""
    match scalar.op:
        case "read" | "flat":
            found = path.extra.get(("dtype of", scalar.args[0]))
            return None if found is None else root(path, found)
        case "app":
            op, attrs, *operands = scalar.args
            if op in TRUTH:
                return "bool"
            if op.startswith("Cast"):
                return root(path, str(dict(attrs)["to"]))
            if op == "Where":
                operands = operands[1:]
            return next((t for t in (type_of(path, o) for o in operands) if t is not None), None)
        case "ite":
            return type_of(path, scalar.args[1]) or type_of(path, scalar.args[2])
        case "big":
            return type_of(path, scalar.args[2])
        case "inverse":
            return type_of(path, scalar.args[0])
    return None
