"""Inferred types of names as the language server, docs and warnings show them."""

from __future__ import annotations

from dataclasses import dataclass

from ..builtins import DTYPES

FLOATS = frozenset(d for d in DTYPES if d[0] == "f" or d == "bf16")
INTEGERS = frozenset(d for d in DTYPES if d[0] in "iu")
NUMBERS = FLOATS | INTEGERS
CLASSES = {"float": FLOATS, "integer": INTEGERS, "number": NUMBERS, "bool": frozenset(("bool",))}
ALL = frozenset(DTYPES)


def dtypes_text(allowed: frozenset[str] | None) -> str:
    """Return the narrowest word of the language for a set of element types; empty for any type."""
    if allowed is None or not allowed:
        return ""
    if len(allowed) == 1:
        return next(iter(allowed))
    return next((word for word in ("float", "integer", "number") if allowed <= CLASSES[word]), "")


def shown(allowed: frozenset[str]) -> str:
    """Describe a set of element types for a message."""
    text = dtypes_text(allowed)
    if text:
        return text
    if allowed & NUMBERS and not allowed & INTEGERS:
        return "float"
    return "number" if len(allowed) > 4 else " or ".join(sorted(allowed))


@dataclass(frozen=True, slots=True)
class Type:
    """Inferred type of a name.

    `sort` is a word: `tensor`, `tensors` (several inputs), `int`, `ints`, `float`, `floats`, `string`, `strings`,
    `graph` (attributes), `number`, `bool`, `dim`, `dims`, `dtype`, `operator`, `rest`, `list`, or `any`.
    Of a tensor, `dtypes` are the possible element types (None if unknown), `rank` its bounds, and `dims` the dims as
    text if the rank is known. `variable` is the name of its element type (`T`), if it has one."""

    sort: str
    const: bool = False
    dtypes: frozenset[str] | None = None
    rank: tuple[int, int | None] = (0, None)
    dims: tuple[str, ...] | None = None
    variable: str = ""
    length: str = ""

    def __str__(self) -> str:
        if self.sort in ("tensor", "tensors"):
            one = self.dtypes is not None and len(self.dtypes) == 1
            element = dtypes_text(self.dtypes) if one or not self.variable else self.variable
            if self.dims is not None:
                shape = f"[{', '.join(self.dims)}]"
            else:
                shape = f"[{'_, ' * self.rank[0]}..]" if self.rank[0] else ""
            text = " ".join(p for p in ("const" * self.const, element + shape) if p) or "tensor"
            return text if self.sort == "tensor" else f"list of {text}"
        return f"{self.sort} of length {self.length}" if self.length not in ("", "_") else self.sort
