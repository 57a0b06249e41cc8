"""Normal form of symbolic dims: integer polynomials over atoms.

An atom is a symbol, or floor division, maximum, minimum, broadcasting, required equality, or division towards zero
(`truncdiv`) of normalized arguments.
Equal normal forms have equal values. The converse holds for polynomials, and for the functions as far as their
rewriting goes.

Symbols stand for sizes, so they are integers >= 0. Expressions may be negative (`N-1`). An expression that divides by
zero, or requires different sizes to be equal, has no value: two expressions are equal if they agree wherever both have
one.

The prover's integers (`soundness/prover/terms/integers.py`) are separate: their atoms are elements of tensors at
symbolic indices, they may be negative, and they translate to z3.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any

FUNCTIONS = ("max", "min", "bcast", "same", "truncdiv")


@dataclass(frozen=True, slots=True, eq=False)
class Atom:
    """An indivisible factor: a symbol, or a function of normalized dims. Interned: equal means identical."""

    kind: str
    key: str
    args: tuple[Dim, ...]

    def __repr__(self) -> str:
        return self.key

    def __reduce__(self) -> tuple[Any, ...]:
        return intern_atom, (self.kind, self.args, self.key)


Monomial = tuple[Atom, ...]
_atoms: dict[tuple[str, tuple[Dim, ...], str], Atom] = {}


def intern_atom(kind: str, args: tuple[Dim, ...], name: str = "") -> Atom:
    """Return the one atom of this kind with these arguments, or of this name."""
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
    """A dim that is not a known number. Immutable and hashable; arithmetic returns an `int` when the result is
    constant.

    `terms` is the normal form: monomials (sorted atoms, repeated for powers) with their non-zero coefficients. Higher
    degrees come first, then names decide; the constant term, of the empty monomial, is last."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)

    def __reduce__(self) -> tuple[Any, ...]:  # the stored hash depends on identities, which differ between processes
        return Expr, (self.terms,)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Expr) and self.terms == other.terms)

    def __add__(self, other: Dim) -> Dim:
        if not isinstance(other, int | Expr):
            return NotImplemented
        total = dict(self.terms)
        for monomial, factor in (((), other),) if isinstance(other, int) else other.terms:
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
            return Expr(tuple((monomial, factor * other) for monomial, factor in self.terms)) if other else 0
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
    def constant(self) -> int:
        """Constant term."""
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


_key = attrgetter("key")


def _order(term: tuple[Monomial, int]) -> tuple[int, tuple[str, ...]]:
    return -len(term[0]), tuple(map(_key, term[0]))


def _make(terms: Mapping[Monomial, int]) -> Dim:
    remaining = sorted((term for term in terms.items() if term[1]), key=_order)
    if not remaining or not remaining[0][0]:  # nothing, or the constant term alone
        return remaining[0][1] if remaining else 0
    return Expr(tuple(remaining))


def _factor(dim: Dim) -> str:
    text = str(dim)
    return text if re.fullmatch(r"\w+|'[^']*'|\w+\([^()]*\)", text) else f"({text})"


def of_atom(atom: Atom) -> Expr:
    """Return the dim that is this atom."""
    return Expr((((atom,), 1),))


def function_of(kind: str, args: tuple[Dim, ...]) -> Expr:
    """Return the dim that is this function of dims; the caller has normalized it."""
    return of_atom(intern_atom(kind, args))


def symbol(name: str) -> Expr:
    """Return the dim of this name: an unknown integer >= 0, the same one for equal names.

    A name need not be an identifier (ONNX has `batch size`); it is then printed in single quotes."""
    if not name.isidentifier() or name in FUNCTIONS or name == "ceildiv":
        name = "'" + name.replace("'", "’") + "'"
    return of_atom(intern_atom("symbol", (), name))


def symbol_name(dim: Dim) -> str | None:
    """Return the name of the symbol that a dim is, as it was passed to `symbol`; None for a number or a larger
    expression."""
    match dim:
        case Expr(terms=(((Atom(kind="symbol", key=key),), 1),)):
            return key.strip("'")
    return None


def towards_zero(a: int, b: int) -> int:
    """Return `a / b` rounded towards zero, as integers of C and ONNX are divided."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _floordiv(a: Dim, b: Dim) -> Dim:
    """Normalize `floor(a / b)`.

    For an integer b > 0, coefficients are reduced to [0, b), the divisible parts moving outside. Common factors are
    canceled, and a quotient of a quotient becomes one. Otherwise polynomial division, where it is exact."""
    if isinstance(b, int):
        if b == 0:
            raise ZeroDivisionError("integer division of dims by zero")
        if isinstance(a, int):
            return a // b
        return _floordiv_int(a, b) if b > 0 else _floordiv_int(-a, -b)
    exact = exact_div(a, b)
    if exact is not None:
        return exact
    outside, rest = _split_by(a, b)
    return outside + (function_of("floordiv", (rest, b)) if rest != 0 else 0)


def _floordiv_int(a: Expr, b: int) -> Dim:
    if b == 1:
        return a
    quotient = _make({monomial: factor // b for monomial, factor in a.terms})
    rest = _make({monomial: factor % b for monomial, factor in a.terms})
    if isinstance(rest, int):
        return quotient  # 0 <= rest < b
    common = math.gcd(b, *(factor for monomial, factor in rest.terms if monomial))
    if common > 1:
        # floor((g*x + c) / (g*b)) = floor((x + floor(c/g)) / b)
        rest = _make({monomial: factor // common for monomial, factor in rest.terms})
        return quotient + rest // (b // common)
    monomial, factor = rest.terms[0]
    if factor == 1 and len(monomial) == 1 and (len(rest.terms) == 1 or (len(rest.terms) == 2 and rest.constant)):
        inner = monomial[0]
        if inner.kind == "floordiv" and isinstance(inner.args[1], int):
            return quotient + (inner.args[0] + rest.constant * inner.args[1]) // (inner.args[1] * b)
    low, high = bounds(rest)
    if low is not None and high is not None and low // b == high // b:
        return quotient + low // b
    return quotient + function_of("floordiv", (rest, b))


def _split_by(a: Dim, b: Expr) -> tuple[Dim, Dim]:
    """Return `(q, r)` with a = q*b + r, for b a single monomial with coefficient 1: the terms that b divides go to
    q."""
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
    """Return the dim q with `a == q * b` for all values of the symbols, or None if there is none (or b is 0)."""
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
    # Long division by the leading term. The order of terms is compatible with multiplication within one degree,
    # and the number of steps is bounded, so that a failure returns None instead of looping.
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


def bounds(d: Dim) -> tuple[int | None, int | None]:
    """Return the bounds of a dim by interval arithmetic; None where there is none."""
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
            low, high = (None if bound is None else bound // divisor for bound in (lows[0], highs[0]))
            return low, high
        sizes = lows[0] is not None and lows[0] >= 0 and lows[1] is not None and lows[1] >= 0
        return (0, highs[0]) if sizes else (None, None)
    if atom.kind == "truncdiv":
        divisor = atom.args[1]
        assert isinstance(divisor, int)
        low, high = (None if bound is None else towards_zero(bound, divisor) for bound in (lows[0], highs[0]))
        return low, high
    some_low = [low for low in lows if low is not None]
    some_high = [high for high in highs if high is not None]
    all_low = min(some_low) if len(some_low) == len(lows) else None
    all_high = max(some_high) if len(some_high) == len(highs) else None
    if atom.kind == "max":
        return max(some_low, default=None), all_high
    return all_low, min(some_high, default=None) if atom.kind == "min" else all_high
