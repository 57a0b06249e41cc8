"""Normal forms of scalars.

Where the class allows it (`reassoc`, `fast`, integers modulo 2ⁿ), a scalar is a polynomial: a sum of terms, each a
product of atoms under a guard, summed over index variables. A choice by index becomes two guarded terms, and nested
sums become one. Each index variable is renamed by what it indexes first, so that shifted ranges look alike. Two
polynomials are equal if the guarded coefficients of each product of atoms have the same sum, which is one question to
the solver.

Floats of class `exact` keep the structure of their arithmetic, except for the identities that IEEE 754 guarantees.

Length: one normal form, whose steps call each other.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from typing import Any

from ..paths import element_types
from ..paths.path import FINITE, NONNEGATIVE, Bound, NotModeled, Path
from ..paths.tensors import Leaf
from ..terms import integers, scalars
from ..terms.integers import Atom, Bool, Int, conj, eq, ge, inside, negate
from ..terms.laws import COMMUTATIVE, definition, flat, laws, snapped
from ..terms.scalars import ZERO, Scalar, app
from .canonicalize import Term, ordered, positions, row_key, scaled, skeleton, substituted, text_of

MAX_TERMS = 400
"""Maximum number of terms of a polynomial."""


@dataclass(frozen=True)
class Normalizer:
    """Brings scalars into normal form on one path.

    With `ring`, arithmetic is that of a field (of a ring for integers), else that of IEEE 754. `dropped` collects the
    atoms that were canceled or multiplied by zero, which may hide a NaN or an infinity of the original."""

    path: Path
    ring: bool
    integer: bool
    fast: bool
    signed_zero: bool
    dropped: list[Scalar] = field(default_factory=list)
    memo: dict[Scalar, Scalar] = field(default_factory=dict)
    others: dict[str, Normalizer] = field(default_factory=dict)

    def normal(self, s: Scalar) -> Scalar:
        """Return the normal form."""
        if s not in self.memo:
            self.path.tick()
            self.memo[s] = self._poly(s) if self.ring else self._exact(s)
        return self.memo[s]

    def other(self, kind: str) -> Normalizer:
        """Return the normalizer of operands of another kind: integers modulo 2ⁿ, or numbers bit for bit."""
        integer = kind in ("int", "uint")
        if integer and self.integer:
            return self
        return self.others.setdefault(
            kind, Normalizer(self.path, ring=integer, integer=integer, fast=False, signed_zero=False)
        )

    def _operands(self, op: str, args: list[Scalar]) -> list[Scalar]:
        """Return the operands of an operator in normal form, each by the arithmetic of its own type.

        What is compared or converted must not be reassociated, because the result may jump."""
        if op == "Where":
            return [self.other("bool").normal(args[0]), *map(self.normal, args[1:])]
        if op in element_types.TRUTH:
            known = next((t for t in (element_types.type_of(self.path, a) for a in args) if t is not None), "bool")
            simple = all(a.op in ("read", "flat", "const", "int") for a in args)
            return args if simple else list(map(self.other(element_types.kind(self.path, known)).normal, args))
        if op in element_types.CONVERSIONS or op == "Pow" or op.startswith("op "):
            values = [self._operand(a) for a in args]
            return _index_of(values) if op == "index of" else values
        return list(map(self.normal, args))

    def _operand(self, a: Scalar) -> Scalar:
        known = element_types.type_of(self.path, a)
        if known is None or a.op in ("read", "flat"):
            return self.normal(a)
        kind = element_types.kind(self.path, known)
        floats = self.ring and not self.integer  # a conversion between floats rounds only
        return self.normal(a) if kind == "float" and floats else self.other(kind).normal(a)

    # --- polynomials ---

    def _poly(self, s: Scalar) -> Scalar:
        terms = self.gathered(self.terms(s))
        match terms:
            case []:
                return ZERO
            case [Term(factor, (), (), True)]:
                return scalars.number(factor)
            case [Term(1, (atom,), (), True)]:
                return atom
        rows = [(t.factor, t.atoms, t.variables, t.guard) for t in terms]
        return Scalar("poly", tuple(sorted(rows, key=row_key)))

    def terms(self, s: Scalar) -> list[Term]:
        """Return the terms of a scalar."""
        match s.op, s.args:
            case "const", (str(),):
                return [Term(Fraction(1), (s,))]
            case "const", (value,):
                return [Term(snapped(value), ())] if value else []
            case "int", (poly,):
                symbols = ((c, tuple(Scalar("int", (integers.of_atom(a),)) for a in m)) for m, c in poly.terms)
                return [Term(Fraction(c), atoms) for c, atoms in symbols]
            case "ite", (cond, a, b):
                return [*_guarded(self.terms(a), cond), *_guarded(self.terms(b), negate(cond))]
            case "big", ("Sum", listed, body):
                return [self._under(t, listed) for t in self.terms(body)]
            case "big", _ if (outside := self._moved_outside(s)) is not None:
                return self.terms(outside)
            case "app", (op, attrs, *args):
                found = self._arithmetic(op, attrs, args)
                return self._atom(s) if found is None else found
        return self._atom(s)

    def _arithmetic(self, op: str, attrs: tuple[Any, ...], args: list[Scalar]) -> list[Term] | None:
        """Return the terms of an operator of the ring; None for other operators."""
        match op:
            case "Add" | "Sum":
                return [t for a in args for t in self.terms(a)]
            case "Sub":
                return [*self.terms(args[0]), *scaled(self.terms(args[1]), Fraction(-1))]
            case "Neg":
                return scaled(self.terms(args[0]), Fraction(-1))
            case "Mul":
                return self._product(self.terms(args[0]), self.terms(args[1]))
            case "Pow" if args[1].is_number:
                return self._power(args[0], args[1].args[0])
        if self.integer:
            return None
        meaning = definition(op, attrs, args)
        if meaning is not None:
            return self.terms(meaning)
        match op:
            case "Mean":
                return scaled([t for a in args for t in self.terms(a)], Fraction(1, len(args)))
            case "Div":
                return self._product(self.terms(args[0]), self._inverse(args[1]))
            case "Reciprocal":
                return self._inverse(args[0])
            case "Exp":
                return self._exponential(args[0])
            case "Log" if self.fast:
                inner = self.normal(args[0])
                if inner.applies("Exp"):
                    return self.terms(inner.args[2])
            case "Sqrt" if self.fast:
                return self._square_root(args[0])
        return None

    def _power(self, base: Scalar, exponent: Fraction) -> list[Term] | None:
        if exponent.denominator == 1 and 1 <= exponent <= 4:
            return reduce(self._product, [self.terms(base)] * int(exponent))
        if self.integer:
            return None
        if exponent == -1:
            return self._inverse(base)
        # a root of -∞ is NaN, a power of it is infinite or 0
        if abs(exponent) != Fraction(1, 2) or not (self.fast or never_negative(self.path, base)):
            return None
        root = app("Sqrt", base)
        return self.terms(root) if exponent > 0 else self._inverse(root)

    def _square_root(self, s: Scalar) -> list[Term] | None:
        match self.normal(s):
            case Scalar("poly", ((1, atoms, (), True),)) if atoms[::2] == atoms[1::2]:
                return self._atom(app("Abs", reduce(Scalar.__mul__, atoms[::2])))
        return None

    def _exponential(self, s: Scalar) -> list[Term] | None:
        inner = self.normal(s)
        if inner.applies("Log") and positive(inner.args[2]):
            return self.terms(inner.args[2])
        if not self.fast or inner.op != "poly" or not all(v == () and g is True for _, _, v, g in inner.args):
            return None
        found = [Term(Fraction(1), ())]
        for factor, atoms, _, _ in inner.args:
            single = abs(factor) == 1 and len(atoms) == 1
            power = app("Exp", atoms[0] if single else Scalar("poly", ((abs(factor), atoms, (), True),)))
            found = self._product(found, self._atom(power) if factor > 0 else self._inverse(power))
        return found

    def _inverse(self, s: Scalar) -> list[Term]:
        match self.gathered(self.terms(s)):
            case [Term(factor, atoms, (), True)]:
                return [Term(1 / factor, tuple(map(self._inverse_atom, atoms)))]
        found = self._poly(s)
        if found.op == "poly" and not self.integer:  # 1 / (c·p) = (1/c) · 1/p, by the first coefficient
            lead = found.args[0][0]
            rows = tuple((f / lead, *rest) for f, *rest in found.args)
            return [Term(1 / lead, (Scalar("inverse", (Scalar("poly", rows),)),))]
        return [Term(Fraction(1), (Scalar("inverse", (found,)),))]

    def _inverse_atom(self, a: Scalar) -> Scalar:
        if a.op == "inverse" and (self.fast or positive(a.args[0]) or a.args[0].op == "int"):
            return a.args[0]  # type: ignore[no-any-return]
        return Scalar("inverse", (a,))

    def _under(self, t: Term, listed: Sequence[Atom]) -> Term:
        if not set(listed).isdisjoint(t.variables):
            t = self._renamed(t)
        return replace(t, variables=(*listed, *t.variables))

    def _renamed(self, t: Term) -> Term:
        names = {v: Atom(self.path.fresh("r")) for v in t.variables}
        mapping: dict[Atom, Int] = {v: integers.of_atom(new) for v, new in names.items()}
        for old, new in names.items():
            size, summed = self.path.bounds[old].size, self.path.bounds[old].summed
            # the range of a variable may depend on another
            self.path.bounds[new] = Bound(None if size is None else integers.substitute(size, mapping), summed)
            self.path.nonnegative.add(new)
        return Term(
            t.factor,
            tuple(substituted(a, mapping) for a in t.atoms),
            tuple(names.values()),
            integers.map_cond(t.guard, lambda i: integers.substitute(i, mapping)),
        )

    def _product(self, left: list[Term], right: list[Term]) -> list[Term]:
        if len(left) * len(right) > MAX_TERMS:
            raise NotModeled("a product of too many terms")
        if not left or not right:
            self.dropped.extend(a for t in (*left, *right) for a in t.atoms)
        out = []
        for a, b in itertools.product(left, right):
            if not set(a.variables).isdisjoint(b.variables):
                b = self._renamed(b)
            atoms = self._multiplied((*a.atoms, *b.atoms))
            out.append(Term(a.factor * b.factor, atoms, (*a.variables, *b.variables), conj(a.guard, b.guard)))
        return out

    def _multiplied(self, atoms: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        """Simplify the atoms of a product: |a|·|a| is a·a, and factors known to be non-zero cancel."""
        found = list(atoms)
        for a in atoms:
            if a.applies("Abs") and found.count(a) >= 2:
                found.remove(a)
                found.remove(a)
                found += [a.args[2]] * 2
            elif a.op == "inverse" and a in found and a.args[0] in found and self._cancels(a.args[0]):
                found.remove(a)
                found.remove(a.args[0])
        return tuple(found)

    def _cancels(self, a: Scalar) -> bool:
        return self.path.entails(ge(a.args[0], 1)) if a.op == "int" else self.fast and positive(a)

    def _atom(self, s: Scalar) -> list[Term]:
        """Return the terms of a scalar that is not a polynomial; a choice inside it moves outside."""
        one = Fraction(1)
        if s.op == "app":
            op, attrs, *args = s.args
            for k, a in enumerate(args):
                if a.op == "ite":
                    sides = [app(op, *args[:k], x, *args[k + 1 :], attrs=attrs) for x in a.args[1:]]
                    return self.terms(Scalar("ite", (a.args[0], *sides)))
            if (chosen := _chosen_outside(s)) is not None:
                return self.terms(chosen)
            values = self._operands(op, args)
            if op in _ODD | _EVEN and (turned := _turned(values[0])) is not None:
                return [Term(-one if op in _ODD else one, (app(op, turned, attrs=attrs),))]
            for simple in laws(op, values, signed_zero=True, integer=self.integer):
                return self.terms(simple)
            if op in ("Max", "Min"):
                values = flat(op, values)
            if op in COMMUTATIVE:
                values.sort(key=text_of)
            return [Term(one, (app(op, *values, attrs=attrs),))]
        if s.op == "poly":
            return [self._renamed(Term(*row)) for row in s.args]
        if s.op == "inverse":
            return self._inverse(s.args[0])
        return [Term(one, (self._big(s) if s.op == "big" else s,))]

    def _moved_outside(self, s: Scalar) -> Scalar | None:
        """Return an extreme or sum of a function that commutes with it as the function of one of its operands.

        An extreme of nothing is infinite, so its range must not be empty unless the function keeps infinities."""
        op, listed, body, *guard = s.args
        if guard or body.op != "app" or not (self.signed_zero or self.ring):
            return None
        function, attrs, *args = body.args
        if op == "Prod" and function == "Exp" and self.fast:
            return app("Exp", Scalar("big", ("Sum", listed, args[0])))
        if op not in ("Max", "Min", "Sum"):
            return None
        if function == "Neg" and not self.integer:  # of the least integer it is itself
            return -Scalar("big", (_OPPOSITE.get(op, op), listed, args[0]))
        if op == "Sum" or function not in (*_STEPS, *(_MONOTONE if self.ring else ())):
            return None
        if not all(self.path.entails(ge(self.path.bounds[v].extent, 1)) for v in listed):
            return None
        return app(function, Scalar("big", (op, listed, args[0])), attrs=attrs)

    def _big(self, s: Scalar) -> Scalar:
        """Return a maximum, minimum or product over indices as one over a single set of variables."""
        op, listed, body, *given = s.args
        body, guard = self.normal(body), conj(*given)
        if body.op == "big" and body.args[0] == op and (op in ("Max", "Min") or self.ring):
            inner = self._renamed(Term(Fraction(1), (body.args[2],), body.args[1], body.args[3]))
            listed, body, guard = (*listed, *inner.variables), inner.atoms[0], conj(guard, inner.guard)
        t = self._canonical(Term(Fraction(1), (body,), listed, guard))
        return Scalar("big", (op, t.variables, t.atoms[0], t.guard))

    def hides_nothing(self, *sides: Scalar) -> bool:
        """Whether every dropped atom occurs in another term of each side, which is then not finite either."""

        def present(side: Scalar) -> set[Scalar]:
            rows = side.args if side.op == "poly" else [(1, (side,), (), True)]
            return {a for _, atoms, variables, guard in rows if not variables and guard is True for a in atoms}

        unknown = {a for a in self.dropped if not always_finite(self.path, a)}
        return all(present(side).issuperset(unknown) for side in sides)

    # --- terms in normal form ---

    def gathered(self, terms: list[Term]) -> list[Term]:
        """Return terms in normal form; like terms are combined."""
        total: dict[tuple[Any, ...], Fraction] = {}
        todo = deque(terms)
        while todo:
            term = todo.popleft()
            if len(total) > MAX_TERMS:
                raise NotModeled("too many terms")
            if self.path.entails(negate(self._condition(term))):
                continue
            term = self._substitute_forced(term)
            counted = self._sum_as_product(term)
            if counted is not None:
                todo.extendleft(reversed(counted))
                continue
            t = self._canonical(term)
            key = (t.atoms, t.variables, t.guard)
            total[key] = total.get(key, Fraction(0)) + t.factor
            if not total[key]:
                del total[key]
                self.dropped.extend(t.atoms)
        return [Term(factor, *key) for key, factor in total.items()]

    def _condition(self, t: Term) -> Bool:
        return conj(*(self._range(v) for v in t.variables), t.guard)

    def _range(self, v: Atom) -> Bool:
        size = self.path.bounds[v].size
        return True if size is None else inside(integers.of_atom(v), self.path.normal(size))  # else part of the guard

    def _substitute_forced(self, t: Term) -> Term:
        """Replace variables for which the guard leaves one value."""
        for v in t.variables:
            lows, highs = [], []
            parts = integers.conjuncts(self.path.normal_cond(conj(self._range(v), t.guard)))
            for part in parts:
                if not isinstance(part, integers.Cond) or part.op not in ("ge", "eq"):
                    continue
                found = integers.coefficient(part.args[0], v)
                if found is None or found[0] not in (1, -1):
                    continue
                at = -found[1] if found[0] == 1 else found[1]
                if found[0] == 1 or part.op == "eq":
                    lows.append(at)
                if found[0] == -1 or part.op == "eq":
                    highs.append(at)
            for low in lows:
                if any(low == h or (len(parts) > 2 and self.path.entails(eq(low, h))) for h in highs):
                    return self._substitute_forced(self._without(t, v, low))
        return t

    def _without(self, t: Term, v: Atom, value: Int) -> Term:
        mapping = {v: value}
        guard = integers.map_cond(conj(self._range(v), t.guard), lambda i: integers.substitute(i, mapping))
        parts = integers.conjuncts(self.path.normal_cond(guard))
        needed = conj(*(p for p in parts if self.path.is_bound(p) or not self.path.entails(p)))
        atoms = tuple(self._simplify(substituted(a, mapping)) for a in t.atoms)
        return Term(t.factor, atoms, tuple(x for x in t.variables if x != v), needed)

    def _simplify(self, s: Scalar) -> Scalar:
        return scalars.rebuilt(s, lambda a: a, self.path.normal) if s.op in ("read", "flat") else s

    def _sum_as_product(self, t: Term) -> list[Term] | None:
        """Return a sum over a variable that nothing depends on as a product of its size and its body."""
        sizes = {v: self.path.bounds[v].size for v in t.variables}
        for v, size in sizes.items():
            others = [other for w, other in sizes.items() if w != v and other is not None]
            read = (*integers.cond_ints(t.guard), *_positions(t.atoms), *others)
            if size is not None and not any(a == v for i in read for a in integers.atoms(i)):
                rest = replace(t, variables=tuple(w for w in t.variables if w != v))
                return self._product([rest], self.terms(scalars.number(self.path.normal(size))))
        return None

    def _canonical(self, t: Term) -> Term:
        """Return the term with sorted atoms, and variables named by the index in which they occur first."""
        atoms = sorted(t.atoms, key=_place)
        if not t.variables:
            return Term(t.factor, tuple(atoms), (), self.path.normal_cond(t.guard))
        inner = [a.name for i in _positions(atoms) for a in integers.atoms(i) if a.name.startswith("$")]
        first = 1 + max((int(name[1:]) for name in inner), default=-1)  # past the variables of sums inside the atoms
        names = [Atom(f"${first + i}") for i in range(len(t.variables))]
        self.path.bounds.update(dict.fromkeys(names, Bound(None, True)))
        free, left = map(integers.of_atom, names), set(t.variables)
        mapping: dict[Atom, Int] = {}
        for e in _positions(atoms):
            e = integers.substitute(e, mapping)
            for atom in sorted(left.intersection(integers.atoms(e)), key=Atom.key):
                found = integers.coefficient(e, atom)
                if found is None or found[0] not in (1, -1):
                    continue
                new = next(free)
                by = new - found[1] if found[0] == 1 else found[1] - new
                mapping = {a: integers.substitute(v, {atom: by}) for a, v in mapping.items()}
                mapping[atom] = by
                left.discard(atom)
                break
        mapping |= zip(sorted(left, key=Atom.key), free, strict=True)
        whole = integers.map_cond(self._condition(t), lambda i: integers.substitute(i, mapping))
        done = sorted((substituted(a, mapping) for a in atoms), key=_place)
        return Term(t.factor, tuple(done), tuple(names), ordered(self.path.normal_cond(whole)))

    # --- IEEE ---

    def _exact(self, s: Scalar) -> Scalar:
        if s.op == "big":
            if (outside := self._moved_outside(s)) is not None:
                return self.normal(outside)
            op, listed, body, *guard = s.args
            return self._big(s) if op in ("Max", "Min") else Scalar("big", (op, listed, self.normal(body), *guard))
        if s.op == "ite":
            cond, inner, outer = s.args[0], self.normal(s.args[1]), self.normal(s.args[2])
            if inner.op == "ite" and inner.args[2] == outer:  # nested guards
                cond, inner = conj(cond, inner.args[0]), inner.args[1]
            return scalars.choice(cond, inner, outer)
        if s.op != "app":
            return s
        if (chosen := _chosen_outside(s)) is not None:
            return self.normal(chosen)
        op, attrs, *args = s.args
        values = self._operands(op, args)
        for simple in laws(op, values, signed_zero=self.signed_zero, integer=self.integer):
            return self.normal(simple)
        if self._keeps_integer(op, values):
            return values[0]
        if op in ("Max", "Min"):  # the order decides which of two zeros is returned
            values = flat(op, values) if self.signed_zero else list(dict.fromkeys(values))
            if len(values) == 1:
                return values[0]
        if op in COMMUTATIVE:
            values.sort(key=text_of)
        return app(op, *values, attrs=attrs)

    def _keeps_integer(self, op: str, values: Sequence[Scalar]) -> bool:
        """Whether an operator does not change its operand, because that is an integer that was converted to floats.

        Rounding of integers beyond the precision of the floats gives whole numbers, or an infinity."""
        if op not in ("Ceil", "Floor", "Round", "Relu") or not values[0].applies("Cast"):
            return False
        source = element_types.type_of(self.path, values[0].args[2])
        allowed = ("uint",) if op == "Relu" else ("int", "uint")
        return source is not None and set(element_types.kinds(self.path, source)) <= set(allowed)


def _chosen_outside(s: Scalar) -> Scalar | None:
    """Return a conversion or unknown function of a chosen operand as the choice of two."""
    op, attrs, *args = s.args
    if op not in ("Cast", "DequantizeLinear", "QuantizeLinear") and not op.startswith("op "):
        return None
    for k, a in enumerate(args):
        if a.applies("Where"):
            sides = [app(op, *args[:k], x, *args[k + 1 :], attrs=attrs) for x in a.args[3:]]
            return app("Where", a.args[2], *sides)
    return None


def _turned(s: Scalar) -> Scalar | None:
    """Return the negative of a polynomial whose first factor is below zero; None for others."""
    if s.op != "poly" or s.args[0][0] > 0:
        return None
    match s.args:
        case ((factor, (atom,), (), True),) if factor == -1:
            return atom  # type: ignore[no-any-return]
    return Scalar("poly", tuple((-factor, *rest) for factor, *rest in s.args))


def _guarded(terms: list[Term], cond: Bool) -> list[Term]:
    return [replace(t, guard=conj(cond, t.guard)) for t in terms]


def _positions(atoms: Iterable[Scalar]) -> list[Int]:
    return [i for a in atoms for i in positions(a)]


def _place(atom: Scalar) -> tuple[str, str]:
    """Return the sort key of an atom: it depends on indices as little as possible."""
    return skeleton(atom), text_of(atom)


_OPPOSITE = {"Max": "Min", "Min": "Max", "FirstMax": "FirstMin", "LastMax": "LastMin"}
_STEPS = ("Relu", "Ceil", "Floor")
"""Functions of floats that never decrease, bit for bit except for the signs of zeros."""
_MONOTONE = ("Exp", "Sigmoid", "Tanh", "Erf", "Atan", "Softplus")
"""Functions that increase as real functions; a kernel may round neighbors in the other order."""
_ODD = frozenset(("Sin", "Tan", "Tanh", "Atan", "Asin", "Sinh", "Erf", "Asinh", "Atanh"))
_EVEN = frozenset(("Cos", "Cosh"))


def _index_of(values: list[Scalar]) -> list[Scalar]:
    """Return the operand of an index of an extreme: the greatest of negated floats is the least of the floats."""
    (s,) = values
    if s.op == "big" and s.args[0] in ("FirstMax", "LastMax") and s.args[2].applies("Neg"):
        return [Scalar("big", (_OPPOSITE[s.args[0]], s.args[1], s.args[2].args[2], *s.args[3:]))]
    if s.op == "big" and s.args[0] in ("FirstMin", "LastMin") and s.args[2].applies("Neg"):
        flipped = f"{s.args[0][:-3]}Max"
        return [Scalar("big", (flipped, s.args[1], s.args[2].args[2], *s.args[3:]))]
    return values


# --- signs ---

_NEVER_NEGATIVE = frozenset(("Abs", "Relu", "Exp", "Sigmoid", "Sqrt", "Softplus"))
_KEEPING_SIGN = frozenset(("Add", "Sum", "Mul", "Mean", "Max", "Min"))


def positive(s: Scalar) -> bool:
    """Whether a scalar is positive or NaN."""
    if s.op == "const":
        return s.is_number and bool(s.args[0] > 0)
    if s.op == "app":
        op, _, *args = s.args
        return op in ("Exp", "Sigmoid") or (op in ("Add", "Mul", "Div") and all(map(positive, args)))
    if s.op == "inverse":
        return positive(s.args[0])
    if s.op == "big" and s.args[0] == "Sum":
        return positive(s.args[2])
    return s.op == "poly" and all(f > 0 and all(map(positive, a)) for f, a, _, _ in s.args)


def always_finite(path: Path, s: Scalar) -> bool:
    """Whether a scalar is a finite real number; that its computation does not overflow is assumed."""
    if s.op in ("const", "int"):
        return s.op == "int" or s.is_number
    if s.op in ("read", "flat"):
        leaf = path.extra.get(("leaf", s.args[0]))
        own = [p for p in path.predicates if p.left is leaf or p.left == s]
        ops = {p.op for p in own if isinstance(p.right, Scalar) and p.right.is_number}
        return any(p.op == FINITE for p in own) or all(ops & both for both in ({"<", "<="}, {">", ">="}))
    if s.op == "app":
        return s.args[0] in ("Add", "Sub", "Mul", "Neg", "Abs", "Sum") and all(
            always_finite(path, a) for a in s.args[2:]
        )
    return s.op == "big" and s.args[0] == "Sum" and always_finite(path, s.args[2])


def never_negative(path: Path, s: Scalar) -> bool:
    """Whether a scalar is never negative or -∞; it may be NaN or a zero of either sign."""
    if s.op == "const":
        return s.args[0] in ("inf", "nan") if isinstance(s.args[0], str) else s.args[0] >= 0
    if s.op in ("read", "flat"):
        facts = [p.left for p in path.predicates if p.op == NONNEGATIVE]
        return any(isinstance(x, Leaf) and x.name == s.args[0] for x in facts)
    if s.op == "app":
        op, _, *args = s.args
        square = op == "Mul" and args[0] == args[1]
        return op in _NEVER_NEGATIVE or square or (op in _KEEPING_SIGN and all(never_negative(path, a) for a in args))
    if s.op == "ite":
        return all(never_negative(path, a) for a in s.args[1:])
    return s.op == "big" and s.args[0] in ("Sum", "Max", "Min") and never_negative(path, s.args[2])
