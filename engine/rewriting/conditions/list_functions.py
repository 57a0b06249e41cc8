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
    terms = _terms(equation)
    letters = list(dict.fromkeys("".join(terms)))
    plain = all(letter.isascii() and letter.isalpha() for letter in letters)
    if not plain or any(len(set(term)) < len(term) for term in terms) or not set(terms[-1]) <= set("".join(terms[:-1])):
        return []
    return [[letters.index(letter) for letter in term] for term in terms]


@function
def einsum_terms(context: RuleContext, equation: str, ranks: list[int]) -> list[list[int]]:
    """The labels of an Einsum equation on operands of these ranks, where an ellipsis stands for labels of its own.

    The axes of ellipses are aligned at the last one, as in broadcasting. `Unprovable` for an equation that does not
    fit the ranks, or that names a label of the result twice or in no operand."""
    require(isinstance(equation, str), "this is not an equation")
    terms = _terms(equation)
    require(len(terms) == len(ranks) + 1, "the equation has another number of operands")
    named = [term.replace("...", "") for term in terms]
    require(all(label.isascii() and label.isalpha() for term in named for label in term), "a label is no letter")
    dots = [rank - len(name) if "..." in term else 0 for term, name, rank in zip(terms, named, ranks, strict=False)]
    fits = all(d + len(name) == rank for d, name, rank in zip(dots, named, ranks, strict=False))
    require(fits and min(dots, default=0) >= 0, "the equation does not fit the ranks of its operands")
    most = max(dots, default=0)
    letters = list(dict.fromkeys("".join(named)))
    if "..." not in terms[-1] and most:
        require("->" in equation, "the ellipsis is summed")
    found = []
    for term, count in zip(terms, [*dots, most], strict=True):
        before, dotted, after = term.partition("...")
        axes = list(range(len(letters) + most - count, len(letters) + most)) if dotted else []
        found.append([*map(letters.index, before), *axes, *map(letters.index, after)])
    result, known = found[-1], {label for term in found[:-1] for label in term}
    require(len(set(result)) == len(result) and known.issuperset(result), "the result has other labels")
    return found


def _terms(equation: str) -> list[str]:
    """The terms of an equation without blanks: those of the operands, and of the result, which may be implicit."""
    operands, arrow, result = equation.replace(" ", "").partition("->")
    if not arrow:
        named = operands.replace(".", "")
        once = sorted(label for label in set(named) - {","} if named.count(label) == 1)
        result = "".join(["..." * ("..." in operands), *once])
    return [*operands.split(","), result]


_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@function
def einsum_equation(context: RuleContext, terms: list[list[int]]) -> str:
    """The equation with these labels, which get letters in the order in which they appear."""
    numbers = list(dict.fromkeys(label for term in terms for label in term))
    require(len(numbers) <= len(_LETTERS), "more labels than letters")
    *operands, result = ("".join(_LETTERS[numbers.index(label)] for label in term) for term in terms)
    return f"{','.join(operands)}->{result}"
