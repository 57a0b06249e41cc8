"""The types that are inferred for the names of a rule, as others see them: language server, docs, warnings."""

from __future__ import annotations

from dataclasses import dataclass

from ..builtins import DTYPES

FLOATS = frozenset(d for d in DTYPES if d[0] == "f" or d == "bf16")
INTEGERS = frozenset(d for d in DTYPES if d[0] in "iu")
NUMBERS = FLOATS | INTEGERS
CLASSES = {"float": FLOATS, "integer": INTEGERS, "number": NUMBERS, "bool": frozenset(("bool",))}
ALL = frozenset(DTYPES)


def dtypes_text(allowed: frozenset[str] | None) -> str:
    """The narrowest word of the language for a set of element types; nothing if any is in it."""
    if allowed is None or not allowed:
        return ""
    if len(allowed) == 1:
        return next(iter(allowed))
    return next((word for word in ("float", "integer", "number") if allowed <= CLASSES[word]), "")


def shown(allowed: frozenset[str]) -> str:
    """How a message calls a set of element types."""
    text = dtypes_text(allowed)
    if text:
        return text
    if allowed & NUMBERS and not allowed & INTEGERS:
        return "float"
    return "number" if len(allowed) > 4 else " or ".join(sorted(allowed))


@dataclass(frozen=True, slots=True)
class Type:
    """What a name stands for.

    `sort` is a word: `tensor`, `tensors` (several inputs), `int`, `ints`, `float`, `floats`, `string`, `strings`,
    `graph` … (attributes), `number`, `bool`, `dim`, `dims`, `dtype`, `operator`, `rest`, `list`, or `any`. Of tensors
    `dtypes` are the element types it may have (None: not known), `rank` its bounds, `dims` the dims as text if the
    rank is known. `variable` is the element type's own name (`T`), if a type names it."""

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
