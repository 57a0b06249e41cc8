"""Lists, permutations and axes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ...ir.values import compare
from ..rule_context import RuleContext, known, require
from .function_registry import FUNCTIONS, function

FUNCTIONS |= {
    "len": lambda _, items: len(items),
    "reverse": lambda _, items: items[::-1],
    "sorted": lambda _, items: sorted(items),
    "unique": lambda _, items: list(dict.fromkeys(items)),
    "take": lambda _, items, indices: [at(items, i) for i in indices],
    "slice": lambda _, items, start, end: items[start:end],
    "flatten": lambda _, lists: list(itertools.chain.from_iterable(lists)),
    "zip": lambda _, *lists: [list(t) for t in zip(*lists, strict=True)],
    "enumerate": lambda _, items: [[i, item] for i, item in enumerate(items)],
    "all": lambda _, items: all(np.all(item) for item in _parts(items)),
    "any": lambda _, items: any(np.any(item) for item in _parts(items)),
    "inverse_perm": lambda _, perm: [perm.index(i) for i in range(len(perm))],
    "compose_perm": lambda _, first, second: [first[i] for i in second],
    "identity_perm": lambda _, perm: list(perm) == list(range(len(perm))),
}


def at(items: list[Any], index: int) -> Any:
    """Return an element of a list, or raise `Unprovable`."""
    require(-len(items) <= index < len(items), f"there is no element {index} among {len(items)}")
    return items[index]


def _parts(items: Any) -> list[Any]:
    """Return the items of a list; a comparison of contents is one item."""
    return items if isinstance(items, list) else [items]


@function
def range_(context: RuleContext, low: int, high: int) -> list[int]:
    """The integers from `low` up to but not including `high`."""
    require(high - low <= 4096, "a range of more than 4096 numbers")
    return list(range(low, high))


@function
def index(context: RuleContext, items: list[Any], value: Any) -> int:
    """The position of the first element equal to `value`."""
    found = next((i for i, item in enumerate(items) if compare("==", item, value)), None)
    return known(found, f"{value} is not in the list")


@function
def drop(context: RuleContext, items: list[Any], indices: list[int]) -> list[Any]:
    """The elements not at these positions (negative ones count from the end)."""
    dropped = {i + len(items) if i < 0 else i for i in indices}
    return [item for i, item in enumerate(items) if i not in dropped]


@function
def set_at(context: RuleContext, items: list[Any], position: int, value: Any) -> list[Any]:
    """A list with one element replaced."""
    at(items, position)
    out = list(items)
    out[position] = value
    return out


@function
def repeat(context: RuleContext, value: Any, count: int) -> list[Any]:
    """A list of `count` times `value`."""
    require(0 <= count <= 4096, "a list of more than 4096 elements")
    return [value] * count


@function
def swap_perm(context: RuleContext, rank: int, i: int, j: int) -> list[int]:
    """The permutation of `rank` axes that swaps two of them."""
    perm = list(range(rank))
    perm[i], perm[j] = perm[j], perm[i]
    return perm


@function
def axis(context: RuleContext, a: int, rank: int) -> int:
    """An axis counted from the front."""
    require(-rank <= a < rank, f"there is no axis {a} among {rank}")
    return a % rank


@function
def axes(context: RuleContext, items: list[int], rank: int) -> list[int]:
    """Axes counted from the front, sorted; `Unprovable` for duplicates."""
    found = sorted(axis(context, a, rank) for a in items)
    require(len(set(found)) == len(found), "an axis occurs twice")
    return found


@function
def subscripts(context: RuleContext, equation: str) -> list[list[int]]:
    """The labels of an Einsum equation, numbered as they appear: a list for each operand and one for the result.

    An implicit result has the labels that occur once, in alphabetical order. Empty unless each term names a label at
    most once, and only letters are labels."""
    require(isinstance(equation, str), "this is not an equation")
    operands, arrow, result = equation.replace(" ", "").partition("->")
    if not arrow:
        result = "".join(sorted(label for label in set(operands) - {","} if operands.count(label) == 1))
    terms = [*operands.split(","), result]
    letters = list(dict.fromkeys("".join(terms)))
    plain = all(letter.isascii() and letter.isalpha() for letter in letters)
    if not plain or any(len(set(term)) < len(term) for term in terms) or not set(result) <= set("".join(terms[:-1])):
        return []
    return [[letters.index(letter) for letter in term] for term in terms]
