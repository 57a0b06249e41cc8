"""Dims of shapes, and proofs about them.

A `Dim` is an `int`, or an `Expr` in normal form when it depends on symbols such as a batch size (see `dim_expr`). Here
are the functions on dims: extrema, broadcasting, proofs of equality and order, substitution and evaluation.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import zip_longest

from .dim_expr import Atom, bounds, function_of, of_atom, towards_zero
from .dim_expr import Dim as Dim
from .dim_expr import Expr as Expr
from .dim_expr import exact_div as exact_div
from .dim_expr import symbol as symbol
from .dim_expr import symbol_name as symbol_name


def divides(d: Dim, n: Dim) -> bool:
    """Whether `n` provably divides `d` for all values of the symbols."""
    return exact_div(d, n) is not None


def ceildiv(a: Dim, b: Dim) -> Dim:
    """Return `ceil(a / b)`, for b > 0."""
    if isinstance(a, int) and isinstance(b, int):
        return -(-a // b)
    return (a + b - 1) // b


def truncdiv(a: Dim, b: Dim) -> Dim:
    """Return `a / b` rounded towards zero; raise `ValueError` unless b is a number > 0."""
    if not isinstance(b, int) or b <= 0:
        raise ValueError(f"a division by {b} towards zero")
    if isinstance(a, int):
        return towards_zero(a, b)
    if at_least(a, 0):
        return a // b
    return -(-a // b) if at_least(-a, 0) else function_of("truncdiv", (a, b))


def maximum(*dims: Dim) -> Dim:
    """Return the largest of the dims."""
    return _extremum("max", dims)


def minimum(*dims: Dim) -> Dim:
    """Return the smallest of the dims."""
    return _extremum("min", dims)


def _extremum(kind: str, dims: Sequence[Dim]) -> Dim:
    """Normalize max or min: flat, without arguments that another one bounds, the least constant term pulled out."""
    if all(isinstance(d, int) for d in dims):
        return (max if kind == "max" else min)(dims)  # type: ignore[type-var]
    flat = _flat(kind, dims)
    remaining = list(flat)
    for dim in flat:
        others = [other for other in remaining if other is not dim]
        if any(at_least(other - dim if kind == "max" else dim - other, 0) for other in others):
            remaining = others
    if len(remaining) == 1:
        return remaining[0]
    shift = min(d if isinstance(d, int) else d.constant for d in remaining)
    args = tuple(sorted((d - shift for d in remaining), key=str))
    return function_of(kind, args) + shift


def _flat(kind: str, dims: Iterable[Dim]) -> dict[Dim, None]:
    """Return the different dims, those that are a function of this kind replaced by its arguments."""
    return dict.fromkeys(arg for dim in dims for arg in _as_function(dim, kind) or (dim,))


def _as_function(dim: Dim, kind: str) -> tuple[Dim, ...] | None:
    """Return the arguments of a dim that is one function of this kind plus a constant, which is added to each."""
    if isinstance(dim, int) or len(dim.terms) > 2:
        return None
    monomial, factor = dim.terms[0]
    if factor != 1 or len(monomial) != 1 or monomial[0].kind != kind or (len(dim.terms) == 2 and not dim.constant):
        return None
    return tuple(arg + dim.constant for arg in monomial[0].args)


def slice_bound(bound: Dim, size: Dim, low: Dim, high: Dim) -> Dim:
    """Return where a bound of a slice lies: counted from the end if it is negative, then clamped to `low .. high`.

    If its sign is not known, `size` is added as often as the bound is negative: never or once."""
    if at_least(-1, bound):
        bound = bound + size
    elif not at_least(bound, 0):
        bound = bound + size * minimum(maximum(-bound, 0), 1)
    return maximum(minimum(bound, high), low)


def broadcast_dims(*dims: Dim) -> Dim | None:
    """Return the common size of dims broadcast together as in NumPy; None if they provably cannot be.

    A dim against a number n > 1 (or 0) is n: at run time it is n or 1, or the model fails. Of two different symbolic
    dims the larger does not always win (0 wins against 1). So unless one is provably > 1 the answer is the atom
    `bcast(M,N)`, whose value is that of the two that is not 1."""
    flat = _flat("bcast", dims)
    flat.pop(1, None)
    # min(c, N) against N is N: they are equal for N <= c, else the model fails (a table of c positions, sliced to N).
    for d in list(flat):
        limits = _as_function(d, "min") or ()
        if any(a in flat for a in limits) and all(a in flat or (isinstance(a, int) and a >= 1) for a in limits):
            del flat[d]
    # max(0, N) against N is N, since N is a size.
    for d in list(flat):
        limits = _as_function(d, "max") or ()
        if any(a in flat for a in limits) and all(a in flat or (isinstance(a, int) and a <= 0) for a in limits):
            del flat[d]
    if len(flat) <= 1:
        return next(iter(flat), 1)
    numbers = [d for d in flat if isinstance(d, int)]
    if numbers:
        fit = len(numbers) == 1 and not any(certainly_differ(d, numbers[0]) and certainly_differ(d, 1) for d in flat)
        return numbers[0] if fit else None
    large = [d for d in flat if at_least(d, 2)]
    if large:
        return None if any(certainly_differ(d, large[0]) for d in large[1:]) else large[0]
    return function_of("bcast", tuple(sorted(flat, key=str)))


def required_equal(a: Dim, b: Dim) -> Dim | None:
    """Return the common value of two dims that must be equal; None if they provably differ.

    Unless they are provably equal it is the atom `same(M,N)`, which has a value only where they are."""
    if same(a, b):
        return a
    return None if certainly_differ(a, b) else function_of("same", tuple(sorted((a, b), key=str)))


def broadcast(*shapes: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """Return the shape of arrays of these shapes broadcast together (see `broadcast_dims`); None if provably
    impossible."""
    aligned = zip_longest(*map(reversed, shapes), fillvalue=1)
    result = [broadcast_dims(*dims) for dims in aligned][::-1]
    return None if None in result else tuple(d for d in result if d is not None)


def product(dims: Iterable[Dim]) -> Dim:
    """Return the product of the dims; 1 for none."""
    return reduce(operator.mul, dims, 1)


def total(dims: Iterable[Dim]) -> Dim:
    """Return the sum of the dims; 0 for none."""
    return reduce(operator.add, dims, 0)


def same(a: Dim, b: Dim) -> bool:
    """Whether the dims are provably equal."""
    return a == b


def certainly_differ(a: Dim, b: Dim) -> bool:
    """Whether the dims are provably unequal, for all values of the symbols."""
    return a != b and (at_least(a - b, 1) or at_least(b - a, 1))


def known(d: Dim) -> bool:
    """Whether the dim is a number."""
    return isinstance(d, int)


def at_least(d: Dim, n: Dim) -> bool:
    """Whether `d >= n` provably holds for all values (>= 0) of the symbols."""
    return _holds(d - n, 5)


@lru_cache(maxsize=8192)
def _nonnegative(d: Expr, depth: int) -> bool:
    low, _ = bounds(d)
    if low is not None and low >= 0:
        return True
    if depth == 0:
        return False
    # Replace a function that is alone in its term by a bound, or by each possible value, and try again. Extrema come
    # first: their arguments may cancel with other terms, as in N//2 - min(N//2, 3).
    functions = [(m[0], factor) for m, factor in d.terms if len(m) == 1 and m[0].kind != "symbol"]
    for atom, factor in sorted(functions, key=lambda found: found[0].kind.endswith("div")):
        rest = d - factor * of_atom(atom)
        if atom.kind in ("floordiv", "truncdiv"):
            divisor = atom.args[1]
            if not isinstance(divisor, int):
                continue
            up = divisor - 1 if atom.kind == "truncdiv" else 0
            numerator = atom.args[0] + up if factor < 0 else atom.args[0] - (divisor - 1)
            return _holds(rest * divisor + factor * numerator, depth)
        cases = [rest + factor * arg for arg in atom.args]
        # max >= each argument, min <= each argument: one case is enough on this side, all are needed on the other.
        enough = any if atom.kind == ("max" if factor > 0 else "min") else all
        return enough(_holds(case, depth) for case in cases)
    return False


def _holds(d: Dim, depth: int) -> bool:
    return d >= 0 if isinstance(d, int) else _nonnegative(d, depth - 1)


@lru_cache(maxsize=8192)
def growth(d: Dim) -> float:
    """Return a factor by which a dim grows at most with the largest of its symbols; infinite for products of them."""
    if isinstance(d, int):
        return 0.0
    return sum(abs(factor) * (_growth(m[0]) if len(m) == 1 else math.inf) for m, factor in d.terms if m)


def _growth(atom: Atom) -> float:
    if atom.kind == "symbol":
        return 1.0
    if atom.kind in ("floordiv", "truncdiv"):
        numerator, divisor = atom.args
        return growth(numerator) / (divisor if isinstance(divisor, int) else 1)
    return max(map(growth, atom.args))


@lru_cache(maxsize=8192)
def symbols(d: Dim) -> frozenset[str]:
    """Return the names of the symbols in a dim."""
    if isinstance(d, int):
        return frozenset()
    atoms = {atom for monomial, _ in d.terms for atom in monomial}
    own = {atom.key.strip("'") for atom in atoms if atom.kind == "symbol"}
    return frozenset(own.union(*(symbols(arg) for atom in atoms for arg in atom.args)))


def substitute(d: Dim, values: Mapping[str, Dim]) -> Dim:
    """Replace symbols by dims; a symbol that is not in `values` stays."""

    def leaf(atom: Atom) -> Dim:
        found = values.get(atom.key.strip("'"))
        return of_atom(atom) if found is None else found

    return _rebuild(d, leaf)


def evaluate(d: Dim, values: Mapping[str, int]) -> int:
    """Evaluate a dim for these values of its symbols.

    Raises `KeyError` for a symbol without a value, `ZeroDivisionError`, and `ValueError` for sizes that cannot be
    broadcast or are not equal."""
    result = _rebuild(d, lambda atom: values[atom.key.strip("'")])
    assert isinstance(result, int)
    return result


def _rebuild(d: Dim, leaf: Callable[[Atom], Dim]) -> Dim:
    if isinstance(d, int):
        return d
    result: Dim = 0
    for monomial, factor in d.terms:
        part: Dim = factor
        for atom in monomial:
            part = part * _apply(atom, leaf)
        result = result + part
    return result


_FUNCTIONS: Mapping[str, Callable[..., Dim | None]] = {
    "floordiv": operator.floordiv, "max": maximum, "min": minimum, "bcast": broadcast_dims, "same": required_equal,
    "truncdiv": truncdiv,
}  # fmt: skip


def _apply(atom: Atom, leaf: Callable[[Atom], Dim]) -> Dim:
    if atom.kind == "symbol":
        return leaf(atom)
    args = [_rebuild(arg, leaf) for arg in atom.args]
    result: Dim | None = _FUNCTIONS[atom.kind](*args)
    if result is None:
        sizes = " and ".join(map(str, args))
        raise ValueError(f"{sizes} are not equal" if atom.kind == "same" else f"{sizes} cannot be broadcast together")
    return result


def solution(a: Dim, b: Dim) -> tuple[str, int] | None:
    """Return the only symbol of two equal dims and the size that it must be; None where that is not determined."""
    difference = a - b
    if isinstance(difference, int) or len(difference.terms) > 2:
        return None
    (monomial, slope), offset = difference.terms[0], difference.constant
    name = symbol_name(of_atom(monomial[0])) if len(monomial) == 1 else None
    if name is None or slope * symbol(name) + offset != difference or offset % slope or -offset // slope < 0:
        return None
    return name, -offset // slope
