"""What an expression of a rule stands for while types are inferred: a tensor, a number, a list, a word."""

from __future__ import annotations

from dataclasses import dataclass

from .linear import Linear
from .terms import DTypes, Shape, Tensor

ATTRIBUTE_SORTS = {
    "INT": "int", "FLOAT": "float", "STRING": "string", "INTS": "ints", "FLOATS": "floats", "STRINGS": "strings",
    "TENSOR": "tensor", "GRAPH": "graph", "GRAPHS": "graphs",
}  # fmt: skip
"""How the language calls the kinds of ONNX attributes."""

LISTS = ("list", "ints", "floats", "strings", "dims", "numbers", "graphs", "bools", "dtypes")
NUMERIC = ("int", "dim", "float", "number", "bool")


@dataclass(slots=True, eq=False)
class Value:
    """A value of a sort, with as much of it as is known.

    `number` is that of an int or dim, `length` and `items` those of a list, `shape` the shape that a list of dims is
    of; `contents` is set where the value is the contents of that tensor. An `exact` float has a fraction."""

    sort: str
    tensor: Tensor | None = None
    number: Linear | None = None
    length: Linear | None = None
    items: list[Value] | None = None
    element: Value | None = None
    shape: Shape | None = None
    dtype: DTypes | None = None
    text: str | None = None
    fraction: bool = False
    starred: bool = False

    @property
    def is_list(self) -> bool:
        """Whether it is a list for sure."""
        return self.sort in LISTS

    @property
    def is_number(self) -> bool:
        """Whether it is one number or truth value for sure."""
        return self.sort in NUMERIC

    def known_items(self) -> list[int] | None:
        """The integers of a list that is written out."""
        if self.items is None:
            return None
        out = []
        for item in self.items:
            if item.sort != "int" or item.number is None or item.number.known is None:
                return None
            out.append(item.number.known)
        return out


ANY = "any"


def unknown() -> Value:
    """A value of which nothing is known."""
    return Value(ANY)


def said(value: Value) -> str:
    """How a message calls a value: `a tensor`, `a list`, `an int`."""
    names = {
        "tensor": "a tensor", "tensors": "several tensors", "int": "an integer", "float": "a number",
        "number": "a number", "bool": "a truth value", "string": "a string", "dtype": "an element type",
        "dim": "a dim", "operator": "an operator", "rest": "a rest of attributes", "none": "`none`",
        "graph": "a graph", "contents": "a tensor's contents",
    }  # fmt: skip
    return names.get(value.sort, "a list" if value.is_list else value.sort)
