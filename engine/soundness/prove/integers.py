"""Symbolic integers: polynomials over atoms, and conditions on them.

An integer is a Python `int` or a `Poly` in normal form, so that equal polynomials are equal values. An atom is a
variable, the floor quotient of two integers, or an element of an integer tensor at symbolic places. Conditions are
`True`, `False` or a `Cond`. Both have a translation to z3, which is imported where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

Int: TypeAlias = "int | Poly"
Bool: TypeAlias = "bool | Cond"


@dataclass(frozen=True, slots=True)
class Atom:
    """A variable (no arguments), a quotient (`kind` "div") or an element of a tensor (`kind` "data")."""

    name: str
    kind: str = "var"
    args: tuple[Int, ...] = ()
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.name, self.kind, self.args)))

    def __hash__(self) -> int:
        return self._hash

    def key(self) -> tuple[Any, ...]:
        """The place of the atom among all atoms."""
        return (self.kind, self.name, tuple(str(a) for a in self.args))


Monomial = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Poly:
    """A polynomial that is no constant: monomials (atoms in order) with their non-zero coefficients, in order."""

    terms: tuple[tuple[Monomial, int], ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.terms))

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Int) -> Int:
        return _make(_items(self), _items(other))

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
        return " + ".join("*".join([str(c)] * (c != 1 or not m) + [_name(a) for a in m]) for m, c in self.terms)


def _name(atom: Atom) -> str:
    if atom.kind == "div":
        return f"(({atom.args[0]}) / ({atom.args[1]}))"
    return f"{atom.name}[{', '.join(map(str, atom.args))}]" if atom.kind == "data" else atom.name


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
    return Poly(tuple(sorted(found, key=lambda item: _key(item[0]))))


def var(name: str) -> Poly:
    """The variable of this name."""
    return of_atom(Atom(name))


def of_atom(atom: Atom) -> Poly:
    """An atom as a polynomial."""
    return Poly((((atom,), 1),))


def as_atom(value: Int) -> Atom | None:
    """The atom that a polynomial consists of, if it is one."""
    if isinstance(value, Poly) and len(value.terms) == 1 and value.terms[0][1] == 1 and len(value.terms[0][0]) == 1:
        return value.terms[0][0][0]
    return None


def product(values: Iterable[Int]) -> Int:
    """The product of integers."""
    total: Int = 1
    for value in values:
        total = total * value
    return total


def atoms(value: Int) -> Iterator[Atom]:
    """All atoms of an integer, those inside of quotients too."""
    if isinstance(value, Poly):
        for monomial, _ in value.terms:
            for atom in monomial:
                yield atom
                for arg in atom.args:
                    yield from atoms(arg)


def substitute(value: Int, mapping: Mapping[Atom, Int], again: Callable[[Atom], Int] = of_atom) -> Int:
    """The integer with atoms replaced; a compound atom whose arguments change is made anew by `again`."""
    if not isinstance(value, Poly) or not mapping:
        return value
    if not any(a in mapping for a in atoms(value)):
        return value
    total: Int = 0
    for monomial, factor in value.terms:
        term: Int = factor
        for atom in monomial:
            if atom in mapping:
                term = term * mapping[atom]
            elif atom.args:
                args = tuple(substitute(a, mapping, again) for a in atom.args)
                term = term * (of_atom(atom) if args == atom.args else again(Atom(atom.name, atom.kind, args)))
            else:
                term = term * of_atom(atom)
        total = total + term
    return total


def coefficient(value: Int, atom: Atom) -> tuple[Int, Int] | None:
    """`(c, rest)` with `value = c * atom + rest`, both free of the atom; None if it is not linear in it."""
    factor: Int = 0
    rest: Int = 0
    for monomial, c in _items(value):
        count = monomial.count(atom)
        if count > 1:
            return None
        if count:
            others = list(monomial)
            others.remove(atom)
            factor = factor + _make([(tuple(others), c)])
        else:
            rest = rest + _make([(monomial, c)])
    if any(a == atom for part in (factor, rest) for a in atoms(part)):
        return None
    return factor, rest


def exact_quotient(value: Int, divisor: Int) -> Int | None:
    """The quotient if a divisor that is one monomial divides every term."""
    q, r = split_multiples(value, divisor)
    return q if r == 0 else None


def split_multiples(value: Int, divisor: Int) -> tuple[Int, Int]:
    """`(q, r)` with `value = q * divisor + r`, where r holds the terms that the divisor, one monomial, does not divide.

    The quotient is 0 where the divisor is no monomial, unless it divides the whole by a number."""
    items = _items(divisor)
    if len(items) != 1:
        for k in range(1, 9):
            if value == divisor * k:
                return k, 0
        return 0, value
    ((wanted, number),) = items
    quotient: Int = 0
    rest: Int = 0
    for monomial, c in _items(value):
        left = list(monomial)
        try:
            for atom in wanted:
                left.remove(atom)
        except ValueError:
            rest = rest + _make([(monomial, c)])
            continue
        whole, part = divmod(c, number)
        if monomial:  # a multiple of an atom: as much of it as can be taken out evenly
            if part:
                rest = rest + _make([(monomial, c)])
                continue
        quotient = quotient + _make([(tuple(left), whole)])
        if part:
            rest = rest + _make([(monomial, part)])
    return quotient, rest


# --- conditions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cond:
    """A condition: `ge` (an integer is at least 0), `eq` (is 0), `and`, `or`, `not`."""

    op: str
    args: tuple[Any, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.op, self.args)))

    def __hash__(self) -> int:
        return self._hash

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
        d = -d
        assert isinstance(d, Poly)
    return Cond("eq", (d,))


def negate(cond: Bool) -> Bool:
    """The opposite."""
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
    """All of them."""
    return _join("and", conds)


def disj(*conds: Bool) -> Bool:
    """One of them at least."""
    return _join("or", conds)


def inside(index: Int, size: Int) -> Bool:
    """`0 <= index < size`."""
    return conj(ge(index), lt(index, size))


def cond_ints(cond: Bool) -> Iterator[Int]:
    """The integers that a condition compares with 0."""
    if isinstance(cond, Cond):
        for arg in cond.args:
            if isinstance(arg, Cond):
                yield from cond_ints(arg)
            else:
                yield arg


def map_cond(cond: Bool, change: Callable[[Int], Int]) -> Bool:
    """The condition with every integer changed."""
    if isinstance(cond, bool):
        return cond
    if cond.op == "ge":
        return ge(change(cond.args[0]))
    if cond.op == "eq":
        return eq(change(cond.args[0]))
    if cond.op == "not":
        return negate(map_cond(cond.args[0], change))
    return _join(cond.op, [map_cond(a, change) for a in cond.args])


# --- z3 --------------------------------------------------------------------------------------------------------------


def forget() -> None:
    """Forgets all terms, and gives the solver a state of its own: what it answers next depends on nothing before."""
    import z3.z3 as core

    for known in (_key, _merge, to_z3, _z3_atom, cond_z3):
        known.cache_clear()
    core._main_ctx = core.Context()


@cache
def to_z3(value: Int) -> Any:
    """The integer as a term of z3."""
    import z3

    if isinstance(value, int):
        return z3.IntVal(value)
    terms = []
    for monomial, factor in value.terms:
        parts = [_z3_atom(a) for a in monomial]
        if factor != 1 or not parts:
            parts.insert(0, z3.IntVal(factor))
        terms.append(parts[0] if len(parts) == 1 else z3.Product(*parts))
    return terms[0] if len(terms) == 1 else z3.Sum(*terms)


@cache
def _z3_atom(atom: Atom) -> Any:
    import z3

    if atom.kind == "data":
        f = z3.Function(f"data.{atom.name}", *[z3.IntSort()] * (len(atom.args) + 1))
        return f(*[to_z3(a) for a in atom.args]) if atom.args else z3.Int(f"data.{atom.name}")
    return z3.Int(_name(atom))


@cache
def cond_z3(cond: Bool) -> Any:
    """The condition as a formula of z3."""
    import z3

    if isinstance(cond, bool):
        return z3.BoolVal(cond)
    if cond.op == "ge":
        return to_z3(cond.args[0]) >= 0
    if cond.op == "eq":
        return to_z3(cond.args[0]) == 0
    parts = [cond_z3(a) for a in cond.args]
    return z3.Not(parts[0]) if cond.op == "not" else z3.And(*parts) if cond.op == "and" else z3.Or(*parts)
