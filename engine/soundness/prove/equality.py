"""Whether two scalars are equal under the numerics class of a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import integers, scalars, types
from .empty import same_reach
from .integers import Bool, conj, eq, negate
from .laws import COMMUTATIVE
from .normal import Normaliser
from .path import Path
from .scalars import Scalar
from .settle import settle


@dataclass(frozen=True, slots=True)
class Claim:
    """What a rule says of its two sides."""

    numerics: str
    signed_zero: bool


def equal(path: Path, a: Scalar, b: Scalar, claim: Claim, dtype: str) -> str:
    """How two scalars were found equal; empty if they were not."""
    a, b = settle(path, a, b)
    if a == b or same(path, a, b, True):
        return "the same reads"
    found = types.type_of(path, a) or types.type_of(path, b) or dtype
    kind = types.kind(path, found)
    if kind == "bool":
        normaliser = Normaliser(path, ring=False, integer=False, fast=False, signed_zero=False)
    else:
        ring = kind != "float" or claim.numerics != "exact"
        normaliser = Normaliser(
            path, ring=ring, integer=kind != "float", fast=claim.numerics == "fast", signed_zero=claim.signed_zero
        )
    x, y = normaliser.normal(a), normaliser.normal(b)
    careful = kind == "float" and claim.numerics == "reassoc"
    if x == y or same(path, x, y, True) or (normaliser.ring and _polynomials(path, x, y)):
        if not careful or (normaliser.hides_nothing(x, y) and same_reach(path, a, b)):
            return "polynomials" if normaliser.ring and x.op == "poly" else "normal forms"
    from .smt import decided

    return decided(path, (a, b), (x, y), claim, found)


def same(path: Path, a: Scalar, b: Scalar, under: Bool) -> bool:
    """Whether two scalars have one structure and, under a condition, equal indices."""
    if a == b:
        return True
    if a.op != b.op or len(a.args) != len(b.args):
        return False
    if a.op == "poly":
        return _polynomials(path, a, b)
    if a.op == "ite":
        if not path.entails(_iff(a.args[0], b.args[0]), under):
            return False
        return same(path, a.args[1], b.args[1], conj(under, a.args[0])) and same(
            path, a.args[2], b.args[2], conj(under, negate(a.args[0]))
        )
    if a.op == "big":
        return _same_big(path, a, b, under)
    if a.op == "app" and a.args[0] == b.args[0] and a.args[0] in COMMUTATIVE and len(a.args) == 4:
        (p, q), (r, s) = a.args[2:], b.args[2:]
        return (same(path, p, r, under) and same(path, q, s, under)) or (
            same(path, p, s, under) and same(path, q, r, under)
        )
    return all(_same_part(path, x, y, under) for x, y in zip(a.args, b.args, strict=True))


def _same_part(path: Path, x: Any, y: Any, under: Bool) -> bool:
    if isinstance(x, Scalar) and isinstance(y, Scalar):
        return same(path, x, y, under)
    if isinstance(x, (int, integers.Poly)) and isinstance(y, (int, integers.Poly)):
        return x == y or path.entails(eq(x, y), under)
    if isinstance(x, tuple) and isinstance(y, tuple) and len(x) == len(y):
        return all(_same_part(path, p, q, under) for p, q in zip(x, y, strict=True))
    return bool(x == y)


def _iff(a: Bool, b: Bool) -> Bool:
    return integers.disj(conj(a, b), conj(negate(a), negate(b)))


def _same_big(path: Path, a: Scalar, b: Scalar, under: Bool) -> bool:
    """Over the same ranges in the same order; the variables of one are put in for those of the other."""
    if a.args[0] != b.args[0] or len(a.args[1]) != len(b.args[1]):
        return False
    if len(a.args) > 3:  # in normal form: one set of variables under a guard
        guards = conj(under, a.args[3])
        return path.entails(_iff(a.args[3], b.args[3]), under) and same(path, a.args[2], b.args[2], guards)
    mapping: dict[integers.Atom, integers.Int] = {}
    for v, w in zip(a.args[1], b.args[1], strict=True):
        x, y = integers.as_atom(v), integers.as_atom(w)
        assert x is not None
        assert y is not None
        size = integers.substitute(path.bounds[y].extent, mapping)
        if not path.entails(eq(path.bounds[x].extent, size), under):
            return False
        mapping[y] = v
    from .settle import substituted

    return same(path, a.args[2], substituted(b.args[2], mapping), under)


def _polynomials(path: Path, a: Scalar, b: Scalar) -> bool:
    """Whether for each product of atoms the guarded coefficients of two polynomials add up to the same."""
    rows = [(1, row) for row in _rows(a)] + [(-1, row) for row in _rows(b)]
    groups: list[tuple[tuple[Scalar, ...], tuple[Any, ...], list[tuple[Any, Bool]]]] = []
    for sign, (factor, atoms, variables, guard) in rows:
        for known, others, members in groups:
            if len(variables) == len(others) and _same_atoms(path, known, atoms, guard):
                members.append((sign * factor, guard))
                break
        else:
            groups.append((atoms, variables, [(sign * factor, guard)]))
    return all(_vanishes(path, members) for _, _, members in groups)


def _rows(s: Scalar) -> list[Any]:
    if s.op == "poly":
        return list(s.args)
    if s.op == "const" and s.args[0] == 0:
        return []
    if s.op == "const" and not isinstance(s.args[0], str):
        return [(s.args[0], (), (), True)]
    return [(scalars.ONE.args[0], (s,), (), True)]


def _same_atoms(path: Path, a: tuple[Scalar, ...], b: tuple[Scalar, ...], under: Bool) -> bool:
    if a == b:
        return True
    if len(a) != len(b):
        return False
    left = list(b)
    for x in a:
        found = next((y for y in left if same(path, x, y, under)), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _vanishes(path: Path, members: list[tuple[Any, Bool]]) -> bool:
    """Whether guarded coefficients add up to 0 everywhere."""
    total: dict[Bool, Any] = {}
    for factor, guard in members:
        total[guard] = total.get(guard, 0) + factor
    left = [(f, g) for g, f in total.items() if f]
    if not left:
        return True
    # wherever a set of guards holds and no other does, the factors must add up to 0
    if len(left) > 8:
        return False
    for chosen in range(1, 1 << len(left)):
        inside = [left[i] for i in range(len(left)) if chosen >> i & 1]
        if sum(f for f, _ in inside):
            outside = [left[i][1] for i in range(len(left)) if not chosen >> i & 1]
            if not path.entails(negate(conj(*(g for _, g in inside), *(negate(g) for g in outside)))):
                return False
    return True
