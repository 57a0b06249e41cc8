"""Dimensions as integer expressions: exact arithmetic on shapes that are not all known.

A `Dim` is an `int`, or an `Expr` when it depends on symbols such as a batch size. An `Expr` is kept in one normal form,
an integer polynomial over *atoms*: symbols, and the functions floor division, maximum, minimum and broadcasting of
normalised arguments. Equal normal forms have equal values; the converse holds for polynomials, and for the functions
as far as the rewriting in `_floordiv` and `_extremum` goes.

Symbols stand for sizes, so they are integers >= 0. Expressions may be negative (`N-1`). An expression that divides by
zero has no value: two expressions are equal if they agree wherever both have one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

FUNCTIONS = ("max", "min", "bcast")


class Atom:
    """A factor that is not taken apart: a symbol, or a function of normalised dims. Interned: equal means identical."""

    __slots__ = ("args", "key", "kind")

    def __init__(self, kind: str, key: str, args: tuple[Dim, ...]) -> None:
        self.kind = kind
        self.key = key
        self.args = args

    def __repr__(self) -> str:
        return self.key

    def __reduce__(self) -> tuple[Any, ...]:
        return _atom, (self.kind, self.args, self.key)


Monomial = tuple[Atom, ...]
_atoms: dict[tuple[str, tuple[Dim, ...], str], Atom] = {}


def _atom(kind: str, args: tuple[Dim, ...], name: str = "") -> Atom:
    key = (kind, args, name if kind == "symbol" else "")
    found = _atoms.get(key)
    if found is None:
        if kind == "symbol":
            text = name
        elif kind == "floordiv":
            text = f"{_factor(args[0])}//{_factor(args[1])}"
        else:
            text = f"{kind}({','.join(map(str, args))})"
        found = _atoms.setdefault(key, Atom(kind, text, args))
    return found


class Expr:
    """A dimension that is not a known number. Immutable and hashable; arithmetic gives an `int` when it is constant.

    `terms` is the normal form: monomials (atoms in order, repeated for powers) with their non-zero coefficients,
    higher degree first, then by name; the constant term, of the empty monomial, stands last."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)

    def __reduce__(self) -> tuple[Any, ...]:  # the stored hash rests on identities, which differ between processes
        return Expr, (self.terms,)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Expr) and self.terms == other.terms)

    def __add__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            if not other:
                return self
            return _make({**dict(self.terms), (): self._constant + other})
        if not isinstance(other, Expr):
            return NotImplemented
        total = dict(self.terms)
        for monomial, factor in other.terms:
            total[monomial] = total.get(monomial, 0) + factor
        return _make(total)

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return Expr(tuple((monomial, -factor) for monomial, factor in self.terms))

    def __sub__(self, other: Dim) -> Dim:
        return self + -other

    def __rsub__(self, other: int) -> Dim:
        return -self + other

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            if not other:
                return 0
            return Expr(tuple((monomial, factor * other) for monomial, factor in self.terms))
        if not isinstance(other, Expr):
            return NotImplemented
        total: dict[Monomial, int] = {}
        for m1, f1 in self.terms:
            for m2, f2 in other.terms:
                monomial = tuple(sorted(m1 + m2, key=_key))
                total[monomial] = total.get(monomial, 0) + f1 * f2
        return _make(total)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return _floordiv(self, other)

    def __rfloordiv__(self, other: int) -> Dim:
        return _floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return self - other * (self // other)

    def __rmod__(self, other: int) -> Dim:
        return other - self * (other // self)

    @property
    def _constant(self) -> int:
        monomial, factor = self.terms[-1]
        return factor if not monomial else 0

    def __str__(self) -> str:
        text = ""
        for monomial, factor in self.terms:
            sign = "-" if factor < 0 else "+" if text else ""
            alone = len(monomial) == 1 and factor == 1
            parts = [f"({a.key})" if a.kind == "floordiv" and not alone else a.key for a in monomial]
            if abs(factor) != 1 or not parts:
                parts.insert(0, str(abs(factor)))
            text += sign + "*".join(parts)
        return text

    def __repr__(self) -> str:
        return f"Expr({self})"


Dim = int | Expr


def _key(atom: Atom) -> str:
    return atom.key


def _order(term: tuple[Monomial, int]) -> tuple[int, tuple[str, ...]]:
    return -len(term[0]), tuple(atom.key for atom in term[0])


def _make(terms: Mapping[Monomial, int]) -> Dim:
    kept = [term for term in terms.items() if term[1]]
    if not kept:
        return 0
    if len(kept) == 1:
        return Expr((kept[0],)) if kept[0][0] else kept[0][1]
    kept.sort(key=_order)
    return Expr(tuple(kept))


def _factor(dim: Dim) -> str:
    text = str(dim)
    return text if re.fullmatch(r"\w+|'[^']*'|\w+\([^()]*\)", text) else f"({text})"


def _of(atom: Atom) -> Expr:
    return Expr((((atom,), 1),))


def symbol(name: str) -> Expr:
    """The dim that this name stands for: an unknown integer >= 0, the same one wherever the name stands.

    A name that is no identifier is allowed (ONNX has `batch size`) and printed in single quotes."""
    if not name.isidentifier() or name in FUNCTIONS or name == "ceildiv":
        name = "'" + name.replace("'", "’") + "'"
    return _of(_atom("symbol", (), name))


def symbol_name(dim: Dim) -> str | None:
    """The name of the symbol that the dim is, as it was given to `symbol`; None for a number or a larger expression."""
    if isinstance(dim, Expr) and len(dim.terms) == 1 and dim.terms[0][1] == 1 and len(dim.terms[0][0]) == 1:
        atom = dim.terms[0][0][0]
        return atom.key.strip("'") if atom.kind == "symbol" else None
    return None


def _floordiv(a: Dim, b: Dim) -> Dim:
    """`floor(a / b)` in normal form.

    For an integer b > 0: coefficients are brought into [0, b) (what is divisible goes outside), common factors are
    cancelled, and a quotient of a quotient becomes one. Otherwise polynomial division, if it goes out even."""
    if isinstance(b, int):
        if b == 0:
            raise ZeroDivisionError("integer division of dims by zero")
        if isinstance(a, int):
            return a // b
        if b < 0:
            a, b = -a, -b
        return _floordiv_int(a, b)
    exact = exact_div(a, b)
    if exact is not None:
        return exact
    outside, rest = _split_by(a, b)
    return outside + (_of(_atom("floordiv", (rest, b))) if rest != 0 else 0)


def _floordiv_int(a: Expr, b: int) -> Dim:
    if b == 1:
        return a
    outside: dict[Monomial, int] = {}
    inside: dict[Monomial, int] = {}
    for monomial, factor in a.terms:
        outside[monomial], inside[monomial] = divmod(factor, b)
    quotient, rest = _make(outside), _make(inside)
    if isinstance(rest, int):
        return quotient  # 0 <= rest < b
    common = math.gcd(b, *(factor for monomial, factor in rest.terms if monomial))
    if common > 1:
        # floor((g*x + c) / (g*b)) = floor((x + floor(c/g)) / b)
        rest = _make({monomial: factor // common for monomial, factor in rest.terms})
        return quotient + rest // (b // common)
    monomial, factor = rest.terms[0]
    if factor == 1 and len(monomial) == 1 and (len(rest.terms) == 1 or (len(rest.terms) == 2 and rest._constant)):
        inner = monomial[0]
        if inner.kind == "floordiv" and isinstance(inner.args[1], int):
            return quotient + (inner.args[0] + rest._constant * inner.args[1]) // (inner.args[1] * b)
    low, high = bounds(rest)
    if low is not None and high is not None and low // b == high // b:
        return quotient + low // b
    return quotient + _of(_atom("floordiv", (rest, b)))


def _split_by(a: Dim, b: Expr) -> tuple[Dim, Dim]:
    """`(q, r)` with a = q*b + r, for b a single monomial with coefficient 1: the terms that b divides go to q."""
    if isinstance(a, int) or len(b.terms) != 1 or b.terms[0][1] != 1:
        return 0, a
    outside: dict[Monomial, int] = {}
    inside: dict[Monomial, int] = {}
    for monomial, factor in a.terms:
        quotient = _divide_monomial(monomial, b.terms[0][0])
        if quotient is None:
            inside[monomial] = factor
        else:
            outside[quotient] = factor
    return _make(outside), _make(inside)


def _divide_monomial(a: Monomial, b: Monomial) -> Monomial | None:
    rest = list(a)
    for atom in b:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


@lru_cache(maxsize=4096)
def exact_div(a: Dim, b: Dim) -> Dim | None:
    """The dim q with `a == q * b` for all values of the symbols, or None if there is none (or b is 0)."""
    if isinstance(b, int):
        if b == 0:
            return None
        if isinstance(a, int):
            return a // b if a % b == 0 else None
        if any(factor % b for _, factor in a.terms):
            return None
        return _make({monomial: factor // b for monomial, factor in a.terms})
    if a == 0:
        return 0
    # Long division by the leading term; the order of terms is compatible with multiplication within one degree,
    # and the number of steps is bounded, so that a failure is a None and never a loop.
    lead, lead_factor = b.terms[0]
    quotient: Dim = 0
    rest: Dim = a
    for _ in range(64):
        if rest == 0:
            return quotient
        if isinstance(rest, int):
            return None
        monomial, factor = rest.terms[0]
        step = _divide_monomial(monomial, lead)
        if step is None or factor % lead_factor:
            return None
        part = _make({step: factor // lead_factor})
        quotient, rest = quotient + part, rest - part * b
    return None


def divides(d: Dim, n: Dim) -> bool:
    """Whether `n` provably divides `d` for all values of the symbols."""
    return exact_div(d, n) is not None


def ceildiv(a: Dim, b: Dim) -> Dim:
    """`ceil(a / b)`, for b > 0."""
    if isinstance(a, int) and isinstance(b, int):
        return -(-a // b)
    return (a + b - 1) // b


def maximum(*dims: Dim) -> Dim:
    """The largest of the dims."""
    return _extremum("max", dims)


def minimum(*dims: Dim) -> Dim:
    """The smallest of the dims."""
    return _extremum("min", dims)


def _extremum(kind: str, dims: Sequence[Dim]) -> Dim:
    """max/min in normal form: flat, without arguments that another one bounds, the least constant term pulled out."""
    if all(isinstance(d, int) for d in dims):
        return (max if kind == "max" else min)(dims)  # type: ignore[type-var]
    flat: dict[Dim, None] = {}
    for dim in dims:
        nested = _as_function(dim, kind)
        flat.update(dict.fromkeys(nested if nested else (dim,)))
    kept: list[Dim] = list(flat)
    for dim in list(flat):
        others = [other for other in kept if other is not dim]
        wins = (lambda x, y: at_least(x - y, 0)) if kind == "max" else (lambda x, y: at_least(y - x, 0))
        if any(wins(other, dim) for other in others):
            kept = others
    if len(kept) == 1:
        return kept[0]
    shift = min(d if isinstance(d, int) else d._constant for d in kept)
    args = tuple(sorted((d - shift for d in kept), key=str))
    return _of(_atom(kind, args)) + shift


def _as_function(dim: Dim, kind: str) -> tuple[Dim, ...] | None:
    """The arguments of a dim that is one function of this kind plus a constant; the constant goes into each."""
    if isinstance(dim, int) or len(dim.terms) > 2:
        return None
    monomial, factor = dim.terms[0]
    if factor != 1 or len(monomial) != 1 or monomial[0].kind != kind or (len(dim.terms) == 2 and not dim._constant):
        return None
    return tuple(arg + dim._constant for arg in monomial[0].args)


def broadcast_dims(*dims: Dim) -> Dim | None:
    """The common size of dims broadcast together, as NumPy does; None if they provably cannot be.

    A dim against a number n > 1 (or 0) is n: at run time it is n or 1, or the model fails. Of two different symbolic
    dims the larger is not known to win (0 wins against 1), so unless one is provably > 1 the answer is the atom
    `bcast(M,N)`, whose value is the one of them that is not 1."""
    flat: dict[Dim, None] = {}
    for dim in dims:
        for d in _as_function(dim, "bcast") or (dim,):
            flat[d] = None
    flat.pop(1, None)
    # min(c, N) against N is N: for N <= c they are equal, beyond that the model fails (a table of c positions cut to N)
    for d in list(flat):
        limits = _as_function(d, "min") or ()
        if any(a in flat for a in limits) and all(a in flat or (isinstance(a, int) and a >= 1) for a in limits):
            del flat[d]
    if not flat:
        return 1
    if len(flat) == 1:
        return next(iter(flat))
    numbers = [d for d in flat if isinstance(d, int)]
    if numbers:
        if len(numbers) > 1 or any(certainly_differ(d, numbers[0]) and certainly_differ(d, 1) for d in flat):
            return None
        return numbers[0]
    large = [d for d in flat if at_least(d, 2)]
    if large:
        if any(certainly_differ(d, large[0]) for d in large[1:]):
            return None
        return large[0]
    return _of(_atom("bcast", tuple(sorted(flat, key=str))))


def broadcast(*shapes: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """The shape of arrays of these shapes broadcast together (see `broadcast_dims`); None if provably impossible."""
    rank = max(map(len, shapes), default=0)
    result: list[Dim] = []
    for axis in range(-rank, 0):
        dim = broadcast_dims(*(shape[axis] for shape in shapes if len(shape) >= -axis))
        if dim is None:
            return None
        result.append(dim)
    return tuple(result)


def product(dims: Iterable[Dim]) -> Dim:
    """The product of the dims; 1 of none."""
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return result


def total(dims: Iterable[Dim]) -> Dim:
    """The sum of the dims; 0 of none."""
    result: Dim = 0
    for dim in dims:
        result = result + dim
    return result


def same(a: Dim, b: Dim) -> bool:
    """Whether the dims are provably equal."""
    return a == b


def certainly_differ(a: Dim, b: Dim) -> bool:
    """Whether the dims are provably unequal, for all values of the symbols."""
    if isinstance(a, int) and isinstance(b, int):
        return a != b
    if a == b:
        return False
    return at_least(a - b, 1) or at_least(b - a, 1)


def known(d: Dim) -> bool:
    """Whether the dim is a number."""
    return isinstance(d, int)


def at_least(d: Dim, n: Dim) -> bool:
    """Whether `d >= n` provably holds for all values (>= 0) of the symbols."""
    if isinstance(d, int) and isinstance(n, int):
        return d >= n
    difference = d - n
    if isinstance(difference, int):
        return difference >= 0
    return _nonnegative(difference, 4)


@lru_cache(maxsize=8192)
def _nonnegative(d: Expr, depth: int) -> bool:
    low, _ = bounds(d)
    if low is not None and low >= 0:
        return True
    if depth == 0:
        return False
    # Put a bound or each possible value in the place of a function that stands alone in its term, and try again.
    for monomial, factor in d.terms:
        if len(monomial) != 1 or monomial[0].kind == "symbol":
            continue
        atom = monomial[0]
        rest = d - factor * _of(atom)
        if atom.kind == "floordiv":
            divisor = atom.args[1]
            if not isinstance(divisor, int):
                continue
            numerator = atom.args[0] if factor < 0 else atom.args[0] - (divisor - 1)
            return _holds(rest * divisor + factor * numerator, depth)
        cases = [rest + factor * arg for arg in atom.args]
        # max >= each argument, min <= each argument: one case is enough on the good side, all are needed on the other.
        enough = any if atom.kind == ("max" if factor > 0 else "min") else all
        return enough(_holds(case, depth) for case in cases)
    return False


def _holds(d: Dim, depth: int) -> bool:
    return d >= 0 if isinstance(d, int) else _nonnegative(d, depth - 1)


@lru_cache(maxsize=8192)
def bounds(d: Dim) -> tuple[int | None, int | None]:
    """The least and the greatest value that interval arithmetic gives; None where there is no bound."""
    if isinstance(d, int):
        return d, d
    low: int | None = 0
    high: int | None = 0
    for monomial, factor in d.terms:
        lo: int | None = 1
        hi: int | None = 1
        for atom in monomial:
            a_lo, a_hi = _atom_bounds(atom)
            if a_lo is None or a_lo < 0:  # only products of sizes are bounded here
                lo, hi = (a_lo, a_hi) if len(monomial) == 1 else (None, None)
                break
            lo = None if lo is None else lo * a_lo
            hi = None if hi is None or a_hi is None else hi * a_hi
        if factor < 0:
            lo, hi = hi, lo
        low = None if low is None or lo is None else low + factor * lo
        high = None if high is None or hi is None else high + factor * hi
    return low, high


def _atom_bounds(atom: Atom) -> tuple[int | None, int | None]:
    if atom.kind == "symbol":
        return 0, None
    spans = [bounds(arg) for arg in atom.args]
    lows, highs = [low for low, _ in spans], [high for _, high in spans]
    if atom.kind == "floordiv":
        divisor = atom.args[1]
        if isinstance(divisor, int):
            return (
                None if lows[0] is None else lows[0] // divisor,
                None if highs[0] is None else highs[0] // divisor,
            )
        sizes = lows[0] is not None and lows[0] >= 0 and lows[1] is not None and lows[1] >= 0
        return (0, highs[0]) if sizes else (None, None)
    some_low = [low for low in lows if low is not None]
    some_high = [high for high in highs if high is not None]
    all_low, all_high = len(some_low) == len(lows), len(some_high) == len(highs)
    if atom.kind == "max":
        return max(some_low, default=None), max(some_high) if all_high else None
    if atom.kind == "min":
        return min(some_low) if all_low else None, min(some_high, default=None)
    return min(some_low) if all_low else None, max(some_high) if all_high else None


def symbols(d: Dim) -> frozenset[str]:
    """The names of the symbols in the dim."""
    if isinstance(d, int):
        return frozenset()
    names: set[str] = set()
    for monomial, _ in d.terms:
        for atom in monomial:
            if atom.kind == "symbol":
                names.add(atom.key.strip("'"))
            for arg in atom.args:
                names |= symbols(arg)
    return frozenset(names)


def substitute(d: Dim, values: Mapping[str, Dim]) -> Dim:
    """The dim with dims in place of symbols; a symbol that is not named stays."""
    if isinstance(d, int):
        return d

    def leaf(atom: Atom) -> Dim:
        found = values.get(atom.key.strip("'"))
        return _of(atom) if found is None else found

    return _rebuild(d, leaf)


def evaluate(d: Dim, values: Mapping[str, int]) -> int:
    """The number that the dim is for these values of its symbols.

    Raises `KeyError` for a symbol without a value, `ZeroDivisionError` and, for dims that cannot be broadcast,
    `ValueError`."""
    if isinstance(d, int):
        return d
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


def _apply(atom: Atom, leaf: Callable[[Atom], Dim]) -> Dim:
    if atom.kind == "symbol":
        return leaf(atom)
    args = [_rebuild(arg, leaf) for arg in atom.args]
    if atom.kind == "floordiv":
        return args[0] // args[1]
    if atom.kind == "max":
        return maximum(*args)
    if atom.kind == "min":
        return minimum(*args)
    together = broadcast_dims(*args)
    if together is None:
        raise ValueError(f"sizes {args} cannot be broadcast together")
    return together


def parse(text: str) -> Dim:
    """The dim that the text says: numbers, names (quoted if need be), `+ - * // %`, `max min bcast ceildiv`, brackets.

    `parse(str(d)) == d`. Raises `ValueError` for anything else."""
    from .dim_parser import DimParser

    return DimParser(text).whole()
