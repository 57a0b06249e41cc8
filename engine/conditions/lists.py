"""Lists, permutations and axes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ..scope import Scope
from ..values import Unprovable, compare
from .registry import function


def at(items: list[Any], index: int) -> Any:
    """An element of a list; `Unprovable` where there is none."""
    if not -len(items) <= index < len(items):
        raise Unprovable(f"there is no element {index} among {len(items)}")
    return items[index]


@function
def len_(ev: Scope, items: Any) -> int:
    """The length of a list."""
    return len(items)


@function
def range_(ev: Scope, low: int, high: int) -> list[int]:
    """The integers from `low` up to but not including `high`."""
    if high - low > 4096:
        raise Unprovable("a range of more than 4096 numbers")
    return list(range(low, high))


@function
def reverse(ev: Scope, items: list[Any]) -> list[Any]:
    """A list backwards."""
    return items[::-1]


@function
def sorted_(ev: Scope, items: list[Any]) -> list[Any]:
    """A list in ascending order."""
    return sorted(items)


@function
def unique(ev: Scope, items: list[Any]) -> list[Any]:
    """A list without repeated elements, in order of first occurrence."""
    return list(dict.fromkeys(items))


@function
def index(ev: Scope, items: list[Any], value: Any) -> int:
    """The position of the first element equal to `value`."""
    for i, item in enumerate(items):
        if compare("==", item, value):
            return i
    raise Unprovable(f"{value} is not in the list")


@function
def take(ev: Scope, items: list[Any], indices: list[int]) -> list[Any]:
    """The elements at these positions."""
    return [at(items, i) for i in indices]


@function
def drop(ev: Scope, items: list[Any], indices: list[int]) -> list[Any]:
    """The elements not at these positions (negative ones count from the end)."""
    gone = {i + len(items) if i < 0 else i for i in indices}
    return [item for i, item in enumerate(items) if i not in gone]


@function
def slice_(ev: Scope, items: list[Any], start: int, end: int) -> list[Any]:
    """The elements from `start` up to but not including `end`."""
    return items[start:end]


@function
def set_at(ev: Scope, items: list[Any], position: int, value: Any) -> list[Any]:
    """A list with one element replaced."""
    at(items, position)
    out = list(items)
    out[position] = value
    return out


@function
def repeat(ev: Scope, value: Any, count: int) -> list[Any]:
    """A list of `count` times `value`."""
    if not 0 <= count <= 4096:
        raise Unprovable("too many")
    return [value] * count


@function
def flatten(ev: Scope, items: list[list[Any]]) -> list[Any]:
    """The elements of the lists of a list."""
    return list(itertools.chain.from_iterable(items))


@function
def zip_(ev: Scope, *lists: list[Any]) -> list[list[Any]]:
    """Lists of the elements at the same positions; of equal lengths."""
    return [list(t) for t in zip(*lists, strict=True)]


@function
def enumerate_(ev: Scope, items: list[Any]) -> list[list[Any]]:
    """`[position, element]` of every element."""
    return [[i, item] for i, item in enumerate(items)]


@function
def all_(ev: Scope, items: Any) -> bool:
    """Whether all of a list, or of a comparison of contents, hold."""
    if isinstance(items, list):
        return all(bool(np.all(i)) for i in items)
    return bool(np.all(items))


@function
def any_(ev: Scope, items: Any) -> bool:
    """Whether any of a list, or of a comparison of contents, holds."""
    if isinstance(items, list):
        return any(bool(np.any(i)) for i in items)
    return bool(np.any(items))


@function
def inverse_perm(ev: Scope, perm: list[int]) -> list[int]:
    """The permutation that undoes `perm`."""
    out = [0] * len(perm)
    for i, p in enumerate(perm):
        out[p] = i
    return out


@function
def compose_perm(ev: Scope, first: list[int], second: list[int]) -> list[int]:
    """The permutation of transposing by `first` and then by `second`."""
    return [first[i] for i in second]


@function
def identity_perm(ev: Scope, perm: list[int]) -> bool:
    """Whether a permutation moves nothing."""
    return list(perm) == list(range(len(perm)))


@function
def swap_perm(ev: Scope, rank: int, i: int, j: int) -> list[int]:
    """The permutation of `rank` axes that swaps two of them."""
    perm = list(range(rank))
    perm[i], perm[j] = perm[j], perm[i]
    return perm


@function
def axis(ev: Scope, a: int, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= a < rank:
        raise Unprovable(f"there is no axis {a} among {rank}")
    return a % rank


@function
def axes(ev: Scope, items: list[int], rank: int) -> list[int]:
    """Axes counted from the front, sorted; none twice."""
    found = sorted(axis(ev, a, rank) for a in items)
    if len(set(found)) != len(found):
        raise Unprovable("an axis is named twice")
    return found
