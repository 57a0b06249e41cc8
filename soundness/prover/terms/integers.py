"""Symbolic integers: polynomials over atoms, and conditions on them.

An integer is a Python `int` or a `Poly` in normal form, so that equal polynomials are equal values. An atom is a
variable, the floor quotient of two integers, or an element of an integer tensor at symbolic indices. Conditions are
`True`, `False` or a `Cond`. Both translate to z3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, TypeAlias

import z3

Int: TypeAlias = "int | Poly"
Bool: TypeAlias = "bool | Cond"


class Expression:
    """Base of immutable expressions, which compute their hash once because they are deep.

    Most comparisons are of equal ones, or decided by the hash, so each class compares itself and not as a dataclass
    would: by tuples of all fields."""

    __slots__ = ("_hash",)
    _hash: int

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True, eq=False)
class Application(Expression):
    """Operation on arguments, equal to others of its class only."""

    op: str
    args: tuple[Any, ...]
    __hash__ = Expression.__hash__

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.op, self.args)))

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, self.__class__) or self._hash != other._hash:
            return self is other
        return self.op == other.op and self.args == other.args


@dataclass(frozen=True, slots=True, eq=False)
class Atom(Expression):
    """Variable (no arguments), quotient (`kind` "div") or element of a tensor (`kind` "data")."""

    name: str
    kind: str = "var"
    args: tuple[Int, ...] = ()
    __hash__ = Expression.__hash__

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.name, self.kind, self.args)))

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Atom) or self._hash != other._hash:
            return self is other
        return self.name == other.name and self.kind == other.kind and self.args == other.args

    def key(self) -> tuple[Any, ...]:
        """Return the sort key of the atom."""
        return (self.kind, self.name, tuple(map(str, self.args)))

    def __str__(self) -> str:
        if self.kind == "div":
            return f"(({self.args[0]}) / ({self.args[1]}))"
        return f"{self.name}[{', '.join(map(str, self.args))}]" if self.kind == "data" else self.name


Monomial = tuple[Atom, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Poly(Expression):
    """Polynomial that is not a constant: sorted monomials (sorted atoms) with their non-zero coefficients."""

    terms: tuple[tuple[Monomial, int], ...]
    __hash__ = Expression.__hash__

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.terms,)))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Poly) and self._hash == other._hash and self.terms == other.terms)

    def __add__(self, other: Int) -> Int:
        return _make(self.terms, other.terms) if isinstance(other, Poly) else self._plus(other)

    def _plus(self, number: int) -> Poly:
        """Add a number, whose monomial comes first."""
        if not number:
            return self
        (monomial, factor), *rest = self.terms
        if monomial:
            return Poly((((), number), *self.terms))
        return Poly((((), factor + number), *rest) if factor + number else tuple(rest))

    __radd__ = __add__

    def __neg__(self) -> Int:
        return Poly(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: Int) -> Int:
        return self + -other

    def __rsub__(self, other: int) -> Int:
        return -self + other

    def __mul__(self, other: Int) -> Int:
        if other == 1:
            return self
        return _make([(_merge(m, n), c * d) for m, c in self.terms for n, d in _items(other)])

    __rmul__ = __mul__

    def __str__(self) -> str:
        return " + ".join("*".join([str(c)] * (c != 1 or not m) + [str(a) for a in m]) for m, c in self.terms)


@cache
def _key(monomial: Monomial) -> tuple[Any, ...]:
    return tuple(a.key() for a in monomial)


@cache
def _merge(a: Monomial, b: Monomial) -> Monomial:
    return tuple(sorted(a + b, key=Atom.key))


def _items(value: Int) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(value, Poly):
        return value.terms
    return (((), value),) if value else ()


def _make(*parts: Iterable[tuple[Monomial, int]]) -> Int:
    total: dict[Monomial, int] = {}
    for part in parts:
        for monomial, factor in part:
            total[monomial] = total.get(monomial, 0) + factor
    found = [(m, c) for m, c in total.items() if c]
    if not found:
        return 0
    if len(found) == 1 and not found[0][0]:
        return found[0][1]
    if len(found) > 1:
        found.sort(key=lambda item: _key(item[0]))
    return Poly(tuple(found))


@cache
def var(name: str) -> Poly:
    """Return the variable of this name."""
    return of_atom(Atom(name))


def of_atom(atom: Atom) -> Poly:
    """Return an atom as a polynomial."""
    return Poly((((atom,), 1),))


def as_atom(value: Int) -> Atom | None:
    """Return the atom that a polynomial consists of; None if it is more than that."""
    if isinstance(value, Poly) and len(value.terms) == 1 and value.terms[0][1] == 1 and len(value.terms[0][0]) == 1:
        return value.terms[0][0][0]
    return None


def product(values: Iterable[Int]) -> Int:
    """Return the product of integers."""
    return prod(values, start=1)


def atoms(value: Int) -> Iterator[Atom]:
    """Yield all atoms of an integer, including those inside quotients."""
    if isinstance(value, Poly):
        for monomial, _ in value.terms:
            for atom in monomial:
                yield atom
                for arg in atom.args:
                    yield from atoms(arg)


def substitute(value: Int, mapping: Mapping[Atom, Int], rebuild: Callable[[Atom], Int] = of_atom) -> Int:
    """Return the integer with atoms replaced; `rebuild` creates a compound atom whose arguments change."""
    if not mapping or not isinstance(value, Poly) or not _mentions(value, mapping):
        return value
    total: Int = 0
    for monomial, factor in value.terms:
        term: Int = factor
        for atom in monomial:
            if atom in mapping:
                term = term * mapping[atom]
            else:
                args = tuple([substitute(a, mapping, rebuild) for a in atom.args])
                term = term * (of_atom(atom) if args == atom.args else rebuild(Atom(atom.name, atom.kind, args)))
        total = total + term
    return total


def _mentions(value: Int, mapping: Mapping[Atom, Int]) -> bool:
    """Whether an integer contains one of these atoms."""
    if isinstance(value, Poly):
        for monomial, _ in value.terms:
            for atom in monomial:
                if atom in mapping or (atom.args and any(_mentions(arg, mapping) for arg in atom.args)):
                    return True
    return False


def coefficient(value: Int, atom: Atom) -> tuple[Int, Int] | None:
    """Return `(c, rest)` with `value = c * atom + rest`, both free of the atom; None if it is not linear in it."""
    items = _items(value)
    factor = _make((tuple(a for a in m if a != atom), c) for m, c in items if atom in m)
    rest = _make((m, c) for m, c in items if atom not in m)
    linear = all(m.count(atom) <= 1 for m, _ in items) and not any(a == atom for p in (factor, rest) for a in atoms(p))
    return (factor, rest) if linear else None


def exact_quotient(value: Int, divisor: Int) -> Int | None:
    """Return the quotient if the divisor, one monomial, divides every term."""
    q, r = split_multiples(value, divisor)
    return q if r == 0 else None


def split_multiples(value: Int, divisor: Int) -> tuple[Int, Int]:
    """Return `(q, r)` with `value = q * divisor + r`; r holds what the divisor, one monomial, does not divide.

    If the divisor is not a monomial, the quotient is 0 unless the value is a small multiple of the divisor."""
    if len(_items(divisor)) != 1:
        return next(((k, 0) for k in range(1, 9) if value == divisor * k), (0, value))
    ((wanted, number),) = _items(divisor)
    quotient: list[tuple[Monomial, int]] = []
    for monomial, c in _items(value):
        left = Counter(monomial)
        left.subtract(wanted)
        whole, part = divmod(c, number)
        # a multiple of an atom is divided only if that leaves no remainder
        if min(left.values(), default=0) >= 0 and not (monomial and part):
            quotient.append((tuple(left.elements()), whole))
    found = _make(quotient)
    return found, value - found * divisor


# --- conditions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Cond(Application):
    """Condition: `ge` (an integer is at least 0), `eq` (is 0), `and`, `or`, `not`."""

    def __str__(self) -> str:
        if self.op in ("ge", "eq"):
            return f"{self.args[0]} {'>=' if self.op == 'ge' else '=='} 0"
        return f"({f' {self.op} '.join(map(str, self.args))})" if len(self.args) > 1 else f"{self.op}({self.args[0]})"


def ge(a: Int, b: Int = 0) -> Bool:
    """`a >= b`."""
    d = a - b
    return d >= 0 if isinstance(d, int) else Cond("ge", (d,))


def lt(a: Int, b: Int) -> Bool:
    """`a < b`."""
    return ge(b - a, 1)


def eq(a: Int, b: Int = 0) -> Bool:
    """`a == b`."""
    d = a - b
    if isinstance(d, int):
        return d == 0
    if d.terms[0][1] < 0:
        return Cond("eq", (-d,))
    return Cond("eq", (d,))


def negate(cond: Bool) -> Bool:
    """Return the negation."""
    if isinstance(cond, bool):
        return not cond
    if cond.op == "not":
        return cond.args[0]  # type: ignore[no-any-return]
    if cond.op == "ge":
        return ge(-cond.args[0], 1)
    if cond.op in ("and", "or"):
        return _join("or" if cond.op == "and" else "and", [negate(a) for a in cond.args])
    return Cond("not", (cond,))


def _join(op: str, conds: Iterable[Bool]) -> Bool:
    found: dict[Cond, None] = {}
    for cond in conds:
        if isinstance(cond, bool):
            if cond is (op == "or"):
                return cond
        elif cond.op == op:
            found.update(dict.fromkeys(cond.args))
        else:
            found[cond] = None
    if not found:
        return op == "and"
    return next(iter(found)) if len(found) == 1 else Cond(op, tuple(found))


def conj(*conds: Bool) -> Bool:
    """Return the conjunction."""
    return _join("and", conds)


def disj(*conds: Bool) -> Bool:
    """Return the disjunction."""
    return _join("or", conds)


def inside(index: Int, size: Int) -> Bool:
    """`0 <= index < size`."""
    return conj(ge(index), lt(index, size))


def cond_ints(cond: Bool) -> Iterator[Int]:
    """Yield the integers that a condition compares with 0."""
    if isinstance(cond, Cond):
        for arg in cond.args:
            if isinstance(arg, Cond):
                yield from cond_ints(arg)
            else:
                yield arg


def map_cond(cond: Bool, change: Callable[[Int], Int]) -> Bool:
    """Return the condition with every integer changed."""
    if isinstance(cond, bool):
        return cond
    if cond.op in ("ge", "eq"):
        found = change(cond.args[0])
        return cond if found is cond.args[0] else (ge if cond.op == "ge" else eq)(found)
    parts = [map_cond(a, change) for a in cond.args]
    if all(a is b for a, b in zip(parts, cond.args, strict=True)):
        return cond
    return negate(parts[0]) if cond.op == "not" else _join(cond.op, parts)


def conjuncts(cond: Bool) -> tuple[Bool, ...]:
    """Return the conditions that a conjunction joins, or else the condition alone."""
    return cond.args if isinstance(cond, Cond) and cond.op == "and" else (cond,)


# --- z3 --------------------------------------------------------------------------------------------------------------


def reset_solver() -> None:
    """Clear the cached terms and the state of the solver, so that answers do not depend on earlier questions."""
    for known in (_key, _merge, var, to_z3, _z3_atom, cond_z3):
        known.cache_clear()
    z3.z3._main_ctx = z3.Context()


@cache
def to_z3(value: Int) -> Any:
    """Return the integer as a z3 term."""
    if isinstance(value, int):
        return z3.IntVal(value)
    terms = []
    for monomial, factor in value.terms:
        parts = [z3.IntVal(factor)] * (factor != 1 or not monomial) + [_z3_atom(a) for a in monomial]
        terms.append(parts[0] if len(parts) == 1 else z3.Product(*parts))
    return terms[0] if len(terms) == 1 else z3.Sum(*terms)


@cache
def _z3_atom(atom: Atom) -> Any:
    if atom.kind == "data":
        f = z3.Function(f"data.{atom.name}", *[z3.IntSort()] * (len(atom.args) + 1))
        return f(*map(to_z3, atom.args)) if atom.args else z3.Int(f"data.{atom.name}")
    return z3.Int(str(atom))


@cache
def cond_z3(cond: Bool) -> Any:
    """Return the condition as a z3 formula."""
    if isinstance(cond, bool):
        return z3.BoolVal(cond)
    if cond.op in ("ge", "eq"):
        value = to_z3(cond.args[0])
        return value >= 0 if cond.op == "ge" else value == 0
    return {"and": z3.And, "or": z3.Or, "not": z3.Not}[cond.op](*map(cond_z3, cond.args))
