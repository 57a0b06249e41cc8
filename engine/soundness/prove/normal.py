"""Normal forms of scalars.

Of numbers whose class allows it (`reassoc`, `fast`, integers modulo 2ⁿ) a scalar is a polynomial: a sum of terms, each
a product of atoms under a guard, summed over index variables. A choice by index becomes two guarded terms, a sum of
sums one sum, and each index variable is renamed to what it stands for at its first use, so that shifted ranges look
alike. Two polynomials are equal if, for each product of atoms, the guarded coefficients add up to the same; that is one
question to the solver, and what Concat takes apart is put together by it.

Floats of class `exact` keep the structure of their arithmetic; only what IEEE 754 guarantees is normalised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from . import integers, scalars
from .integers import Atom, Bool, Int, conj, eq, ge, inside, negate
from .laws import COMMUTATIVE, definition, flat, laws, snapped
from .path import Bound, NotModelled, Path
from .scalars import ZERO, Scalar, app
from .settle import substituted
from .signs import never_negative, positive

MAX_TERMS = 400


@dataclass(frozen=True, slots=True)
class Term:
    """A coefficient times atoms, summed over index variables where the guard holds."""

    factor: Fraction
    atoms: tuple[Scalar, ...]
    variables: tuple[Int, ...] = ()
    guard: Bool = True


class Normaliser:
    """Brings scalars into normal form on one path.

    `ring` says that arithmetic is that of a field (of a ring for integers), else that of IEEE; `dropped` holds
    afterwards what was cancelled or multiplied by zero, which may hide a NaN or an infinity of the original."""

    def __init__(self, path: Path, *, ring: bool, integer: bool, fast: bool, signed_zero: bool) -> None:
        self.path = path
        self.ring = ring
        self.integer = integer
        self.fast = fast
        self.signed_zero = signed_zero
        self.dropped: list[Scalar] = []
        self.memo: dict[Scalar, Scalar] = {}

    def normal(self, s: Scalar) -> Scalar:
        """The normal form."""
        if s not in self.memo:
            self.path.tick()
            self.memo[s] = self._poly(s) if self.ring else self._exact(s)
        return self.memo[s]

    # --- polynomials ---

    def _poly(self, s: Scalar) -> Scalar:
        terms = self.gathered(self.terms(s))
        if not terms:
            return ZERO
        if len(terms) == 1 and not terms[0].variables and terms[0].guard is True:
            (only,) = terms
            if not only.atoms:
                return Scalar("const", (only.factor,))
            if only.factor == 1 and len(only.atoms) == 1:
                return only.atoms[0]
        rows = [(t.factor, t.atoms, t.variables, t.guard) for t in terms]
        return Scalar("poly", tuple(sorted(rows, key=_row_key)))

    def terms(self, s: Scalar) -> list[Term]:
        """The terms of a scalar."""
        if s.op == "const":
            value = s.args[0]
            if isinstance(value, str):
                return [Term(Fraction(1), (s,))]
            return [Term(snapped(value), ())] if value else []
        if s.op == "int":
            poly = s.args[0]
            return [Term(Fraction(c), tuple(Scalar("int", (integers.of_atom(a),)) for a in m)) for m, c in poly.terms]
        if s.op == "ite":
            cond, a, b = s.args
            return [*self._guarded(self.terms(a), cond), *self._guarded(self.terms(b), negate(cond))]
        if s.op == "big" and s.args[0] == "Sum":
            return [self._under(t, s.args[1]) for t in self.terms(s.args[2])]
        if s.op == "app":
            found = self._arithmetic(s.args[0], s.args[1], list(s.args[2:]))
            if found is not None:
                return found
        return self._atom(s)

    def _arithmetic(self, op: str, attrs: tuple[Any, ...], args: list[Scalar]) -> list[Term] | None:
        """The terms of an operator of the ring; None if it is none."""
        match op:
            case "Add" | "Sum":
                return [t for a in args for t in self.terms(a)]
            case "Sub":
                return [*self.terms(args[0]), *_scaled(self.terms(args[1]), Fraction(-1))]
            case "Neg":
                return _scaled(self.terms(args[0]), Fraction(-1))
            case "Mul":
                return self._product(self.terms(args[0]), self.terms(args[1]))
        if op == "Pow" and args[1].op == "const" and not isinstance(args[1].args[0], str):
            return self._power(args[0], args[1].args[0])
        if self.integer:
            return None
        meaning = definition(op, attrs, args)
        if meaning is not None:
            return self.terms(meaning)
        match op:
            case "Mean":
                return _scaled([t for a in args for t in self.terms(a)], Fraction(1, len(args)))
            case "Div":
                return self._product(self.terms(args[0]), self._inverse(args[1]))
            case "Reciprocal":
                return self._inverse(args[0])
            case "Exp":
                return self._exponential(args[0])
            case "Log" if self.fast:
                inner = self.normal(args[0])
                if inner.op == "app" and inner.args[0] == "Exp":
                    return self.terms(inner.args[2])
            case "Sqrt" if self.fast:
                root = self._square_root(args[0])
                return None if root is None else self._atom(app("Abs", root))
        return None

    def _power(self, base: Scalar, exponent: Fraction) -> list[Term] | None:
        if exponent.denominator == 1 and 1 <= exponent <= 4:
            found = terms = self.terms(base)
            for _ in range(int(exponent) - 1):
                found = self._product(found, terms)
            return found
        if self.integer:
            return None
        if exponent == -1:
            return self._inverse(base)
        # a root of -∞ is NaN, a power of it is infinite or 0
        if abs(exponent) != Fraction(1, 2) or not (self.fast or never_negative(self.path, base)):
            return None
        root = app("Sqrt", base)
        return self.terms(root) if exponent > 0 else self._inverse(root)

    def _square_root(self, s: Scalar) -> Scalar | None:
        found = self.normal(s)
        if found.op != "poly" or len(found.args) != 1:
            return None
        factor, atoms, variables, guard = found.args[0]
        if factor != 1 or variables or guard is not True or len(atoms) % 2:
            return None
        half = atoms[::2]
        if half != atoms[1::2]:
            return None
        total = half[0]
        for a in half[1:]:
            total = app("Mul", total, a)
        return total  # type: ignore[no-any-return]

    def _exponential(self, s: Scalar) -> list[Term] | None:
        inner = self.normal(s)
        if inner.op == "app" and inner.args[0] == "Log" and positive(inner.args[2]):
            return self.terms(inner.args[2])
        if not self.fast or inner.op != "poly" or not all(v == () and g is True for _, _, v, g in inner.args):
            return None
        found = [Term(Fraction(1), ())]
        for factor, atoms, _, _ in inner.args:
            part = (
                Scalar("poly", ((abs(factor), atoms, (), True),)) if abs(factor) != 1 or len(atoms) != 1 else atoms[0]
            )
            one = self._atom(app("Exp", part))
            found = self._product(found, one if factor > 0 else self._inverse(app("Exp", part)))
        return found

    def _inverse(self, s: Scalar) -> list[Term]:
        terms = self.gathered(self.terms(s))
        if len(terms) == 1 and not terms[0].variables and terms[0].guard is True:
            (only,) = terms
            return [Term(1 / only.factor, tuple(x for a in only.atoms for x in self._inverse_atom(a)))]
        found = self._poly(s)
        if found.op == "poly" and not self.integer:  # 1 / (c·p) = (1/c) · 1/p, by the first coefficient
            lead = found.args[0][0]
            rows = tuple((f / lead, *rest) for f, *rest in found.args)
            return [Term(1 / lead, (Scalar("inverse", (Scalar("poly", rows),)),))]
        return [Term(Fraction(1), (Scalar("inverse", (found,)),))]

    def _inverse_atom(self, a: Scalar) -> tuple[Scalar, ...]:
        if a.op == "inverse" and (self.fast or positive(a.args[0]) or a.args[0].op == "int"):
            return (a.args[0],)
        return (Scalar("inverse", (a,)),)

    def _guarded(self, terms: list[Term], cond: Bool) -> list[Term]:
        return [Term(t.factor, t.atoms, t.variables, conj(cond, t.guard)) for t in terms]

    def _under(self, t: Term, listed: Sequence[Int]) -> Term:
        taken = [v for v in listed if v in t.variables]
        if taken:
            t = self._renamed(t)
        return Term(t.factor, t.atoms, (*listed, *t.variables), t.guard)

    def _renamed(self, t: Term) -> Term:
        mapping: dict[Atom, Int] = {}
        for v in t.variables:
            old = integers.as_atom(v)
            assert old is not None
            new = Atom(self.path.fresh("r"))
            self.path.bounds[new] = self.path.bounds[old]
            self.path.nonnegative.add(new)
            mapping[old] = integers.of_atom(new)
        for v in t.variables:  # the range of one may depend on another
            old = integers.as_atom(v)
            assert old is not None
            new_atom = integers.as_atom(mapping[old])
            assert new_atom is not None
            bound = self.path.bounds[old]
            self.path.bounds[new_atom] = Bound(integers.substitute(bound.extent, mapping), bound.summed)
        return Term(
            t.factor,
            tuple(substituted(a, mapping) for a in t.atoms),
            tuple(integers.substitute(v, mapping) for v in t.variables),
            integers.map_cond(t.guard, lambda i: integers.substitute(i, mapping)),
        )

    def _product(self, left: list[Term], right: list[Term]) -> list[Term]:
        if len(left) * len(right) > MAX_TERMS:
            raise NotModelled("a product of too many terms")
        if not left or not right:
            self.dropped += [a for t in (*left, *right) for a in t.atoms]
        out = []
        for a in left:
            for b in right:
                if set(a.variables) & set(b.variables):
                    b = self._renamed(b)
                atoms = self._multiplied((*a.atoms, *b.atoms))
                out.append(Term(a.factor * b.factor, atoms, (*a.variables, *b.variables), conj(a.guard, b.guard)))
        return out

    def _multiplied(self, atoms: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        """Atoms of a product: |a|·|a| is a·a, and what is known not to be 0 cancels."""
        found = list(atoms)
        for a in atoms:
            if a.op == "app" and a.args[0] == "Abs" and found.count(a) >= 2:
                found.remove(a)
                found.remove(a)
                found += [a.args[2]] * 2
            elif a.op == "inverse" and a in found and a.args[0] in found and self._cancels(a.args[0]):
                found.remove(a)
                found.remove(a.args[0])
        return tuple(found)

    def _cancels(self, a: Scalar) -> bool:
        if a.op == "int":
            return self.path.entails(ge(a.args[0], 1))
        if not self.fast:
            return False
        return positive(a)

    def _atom(self, s: Scalar) -> list[Term]:
        """A scalar that is no polynomial, as one term; a choice within it goes outside."""
        if s.op == "app":
            op, attrs, *args = s.args
            for k, a in enumerate(args):
                if a.op == "ite":
                    sides = [app(op, *args[:k], x, *args[k + 1 :], attrs=attrs) for x in a.args[1:]]
                    return self.terms(Scalar("ite", (a.args[0], *sides)))
            values = [self.normal(a) for a in args]
            for simple in laws(op, values, signed_zero=True, integer=self.integer):
                return self.terms(simple)
            if op in ("Max", "Min"):
                values = flat(op, values)
            if op in COMMUTATIVE:
                values.sort(key=_text)
            return [Term(Fraction(1), (app(op, *values, attrs=attrs),))]
        if s.op == "big":
            return [Term(Fraction(1), (self._big(s),))]
        if s.op == "poly":
            return [Term(*row) for row in s.args]
        if s.op == "inverse":
            return self._inverse(s.args[0])
        return [Term(Fraction(1), (s,))]

    def _big(self, s: Scalar) -> Scalar:
        """A maximum, minimum or product over indices, as one over one set of variables."""
        op, listed, body = s.args[:3]
        body = self.normal(body)
        guard: Bool = s.args[3] if len(s.args) > 3 else True
        if body.op == "big" and body.args[0] == op and (op in ("Max", "Min") or self.ring):
            inner = self._renamed(Term(Fraction(1), (body.args[2],), body.args[1], body.args[3]))
            listed, body, guard = (*listed, *inner.variables), inner.atoms[0], conj(guard, inner.guard)
        t = self._canonical(Term(Fraction(1), (body,), tuple(listed), guard), full=True)
        return Scalar("big", (op, t.variables, t.atoms[0], t.guard))

    def hides_nothing(self, *sides: Scalar) -> bool:
        """Whether all that was dropped stands in another term of each side, which is not finite where it is not."""
        for side in sides:
            rows = side.args if side.op == "poly" else [(1, (side,), (), True)]
            kept = {a for _, atoms, variables, guard in rows if not variables and guard is True for a in atoms}
            if any(a not in kept for a in self.dropped):
                return False
        return True

    # --- terms in normal form ---

    def gathered(self, terms: list[Term]) -> list[Term]:
        """Terms in normal form; those that look alike are one."""
        total: dict[tuple[Any, ...], Fraction] = {}
        todo = list(terms)
        while todo:
            term = todo.pop(0)
            if len(total) > MAX_TERMS:
                raise NotModelled("too many terms")
            if self.path.entails(negate(self._whole(term))):
                continue
            term = self._forced(term)
            counted = self._counted(term)
            if counted is not None:
                todo = counted + todo
                continue
            t = self._canonical(term)
            key = (t.atoms, t.variables, t.guard)
            total[key] = total.get(key, Fraction(0)) + t.factor
            if not total[key]:
                del total[key]
                self.dropped += t.atoms
        return [Term(factor, *key) for key, factor in total.items()]

    def _whole(self, t: Term) -> Bool:
        """The guard with the ranges of the variables."""
        return conj(*(self._range(v) for v in t.variables), t.guard)

    def _range(self, v: Int) -> Bool:
        atom = integers.as_atom(v)
        assert atom is not None
        if atom.name.startswith("$"):
            return True  # its range is in the guard already
        return inside(v, self.path.normal(self.path.bounds[atom].extent))

    def _forced(self, t: Term) -> Term:
        """Variables that the guard leaves one value are replaced by it."""
        for v in t.variables:
            atom = integers.as_atom(v)
            assert atom is not None
            lows, highs = [], []
            guard = self.path.normal_cond(conj(self._range(v), t.guard))
            parts = guard.args if isinstance(guard, integers.Cond) and guard.op == "and" else (guard,)
            for part in parts:
                if not isinstance(part, integers.Cond) or part.op not in ("ge", "eq"):
                    continue
                found = integers.coefficient(part.args[0], atom)
                if found is None or found[0] not in (1, -1):
                    continue
                at = -found[1] if found[0] == 1 else found[1]
                if found[0] == 1 or part.op == "eq":
                    lows.append(at)
                if found[0] == -1 or part.op == "eq":
                    highs.append(at)
            for low in lows:
                if any(low == h or (len(parts) > 2 and self.path.entails(eq(low, h))) for h in highs):
                    return self._forced(self._with(t, {atom: low}, [x for x in t.variables if x != v]))
        return t

    def _with(self, t: Term, mapping: dict[Atom, Int], variables: Sequence[Int]) -> Term:
        whole = conj(*(self._range(v) for v in t.variables if integers.as_atom(v) in mapping), t.guard)
        guard = self.path.normal_cond(integers.map_cond(whole, lambda i: integers.substitute(i, mapping)))
        parts = guard.args if isinstance(guard, integers.Cond) and guard.op == "and" else (guard,)
        kept = [p for p in parts if self.path.is_bound(p) or not self.path.entails(p)]
        atoms = tuple(self._simple(substituted(a, mapping)) for a in t.atoms)
        return Term(t.factor, atoms, tuple(variables), conj(*kept))

    def _simple(self, s: Scalar) -> Scalar:
        return scalars.rebuilt(s, lambda a: a, self.path.normal) if s.op in ("read", "flat") else s

    def _counted(self, t: Term) -> list[Term] | None:
        """A sum over a variable that nothing depends on is so many times its body."""
        for v in t.variables:
            atom = integers.as_atom(v)
            assert atom is not None
            if atom.name.startswith("$"):
                continue
            used = list(integers.cond_ints(t.guard)) + [i for a in t.atoms for i in positions(a)]
            others = [integers.as_atom(w) for w in t.variables if w != v]
            sizes = [self.path.bounds[b].extent for b in others if b is not None and not b.name.startswith("$")]
            if any(a == atom for i in (*used, *sizes) for a in integers.atoms(i)):
                continue
            rest = Term(t.factor, t.atoms, tuple(w for w in t.variables if w != v), t.guard)
            return self._product([rest], self.terms(scalars.number(self.path.normal(self.path.bounds[atom].extent))))
        return None

    def _canonical(self, t: Term, *, full: bool = False) -> Term:
        """Atoms in order, and variables named by the index that they stand for at first."""
        atoms = sorted(t.atoms, key=lambda a: (_skeleton(a), _text(a)))
        if not t.variables:
            return Term(t.factor, tuple(atoms), (), self.path.normal_cond(t.guard))
        whole = self._whole(t)
        left = {integers.as_atom(v) for v in t.variables}
        mapping: dict[Atom, Int] = {}
        named: list[Int] = []
        for e in [i for a in atoms for i in positions(a)]:
            e = integers.substitute(e, mapping)
            for atom in sorted({a for a in integers.atoms(e) if a in left}, key=Atom.key):
                found = integers.coefficient(e, atom)
                if found is None or found[0] not in (1, -1):
                    continue
                new = self._variable(len(named))
                by = new - found[1] if found[0] == 1 else found[1] - new
                mapping = {a: integers.substitute(v, {atom: by}) for a, v in mapping.items()}
                mapping[atom] = by
                named.append(new)
                left.discard(atom)
                break
        for atom in sorted((a for a in left if a is not None), key=Atom.key):
            new = self._variable(len(named))
            mapping[atom] = new
            named.append(new)
        guard = self.path.normal_cond(integers.map_cond(whole, lambda i: integers.substitute(i, mapping)))
        done = [substituted(a, mapping) for a in atoms]
        if not full:
            done.sort(key=lambda a: (_skeleton(a), _text(a)))
        return Term(t.factor, tuple(done), tuple(named), _ordered(guard))

    def _variable(self, number: int) -> Int:
        atom = Atom(f"${number}")
        self.path.bounds.setdefault(atom, Bound(None, True))
        return integers.of_atom(atom)

    # --- IEEE ---

    def _exact(self, s: Scalar) -> Scalar:
        if s.op == "big":
            if s.args[0] in ("Max", "Min"):
                return self._big(s)
            op, listed, body = s.args
            return Scalar("big", (op, listed, self.normal(body)))
        if s.op == "ite":
            cond, inner, outer = s.args[0], self.normal(s.args[1]), self.normal(s.args[2])
            if inner.op == "ite" and inner.args[2] == outer:  # one guard within another
                cond, inner = conj(cond, inner.args[0]), inner.args[1]
            return scalars.choice(cond, inner, outer)
        if s.op != "app":
            return s
        op, attrs, *args = s.args
        values = [self.normal(a) for a in args]
        for simple in laws(op, values, signed_zero=self.signed_zero, integer=self.integer):
            return self.normal(simple)
        if op in ("Max", "Min"):  # which of two zeros comes out depends on the order
            values = flat(op, values) if self.signed_zero else list(dict.fromkeys(values))
            if len(values) == 1:
                return values[0]
        if op in COMMUTATIVE:
            values.sort(key=_text)
        return app(op, *values, attrs=attrs)


def positions(s: Scalar) -> Iterator[Int]:
    """The indices of all reads in a scalar, in order."""
    if s.op in ("read", "flat"):
        yield from s.args[1:]
    elif s.op == "int":
        yield s.args[0]
    elif s.op == "poly":
        for _, atoms, _, guard in s.args:
            for a in atoms:
                yield from positions(a)
            yield from integers.cond_ints(guard)
    elif s.op == "ite":
        yield from integers.cond_ints(s.args[0])
        for a in s.args[1:]:
            yield from positions(a)
    else:
        for arg in s.args:
            if isinstance(arg, Scalar):
                yield from positions(arg)
        if s.op == "big" and len(s.args) > 3:
            yield from integers.cond_ints(s.args[3])


def _skeleton(s: Scalar) -> str:
    """A scalar without its indices."""
    if s.op in ("read", "flat"):
        return str(s.args[0])
    if s.op == "int":
        return "int"
    if s.op == "poly":
        return "poly(" + ", ".join("*".join(map(_skeleton, row[1])) for row in s.args) + ")"
    parts = [
        _skeleton(a) if isinstance(a, Scalar) else str(a) for a in s.args if isinstance(a, (Scalar, str, Fraction))
    ]
    return f"{s.op}({', '.join(parts)})"


def _text(s: Scalar) -> str:
    return f"{s.op} {s}"


def _row_key(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return (" * ".join(map(_skeleton, row[1])), str(row[1]), str(row[3]), row[0])


def _ordered(cond: Bool) -> Bool:
    if isinstance(cond, integers.Cond) and cond.op in ("and", "or"):
        return integers.Cond(cond.op, tuple(sorted(cond.args, key=str)))
    return cond


def _scaled(terms: list[Term], factor: Fraction) -> list[Term]:
    return [Term(t.factor * factor, t.atoms, t.variables, t.guard) for t in terms]
