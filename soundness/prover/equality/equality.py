"""Equality of two scalars under the numerics class of a rule."""

from __future__ import annotations

from typing import Any

from ..paths import element_types
from ..paths.path import Path
from ..terms import integers, scalars
from ..terms.integers import Atom, Bool, Int, conj, eq, ge, negate
from ..terms.laws import COMMUTATIVE
from ..terms.scalars import Scalar, operands, walk
from .canonicalize import canonicalize, positions, substituted
from .normal_form import Normalizer, always_finite
from .smt import Claim, decided


def equal(path: Path, a: Scalar, b: Scalar, claim: Claim, dtype: str) -> str:
    """Return the method by which two scalars were shown equal; empty if they were not."""
    a, b = canonicalize(path, a, b)
    if a == b or same(path, a, b, True):
        return "the same reads"
    found = element_types.type_of(path, a) or element_types.type_of(path, b) or dtype
    kind = element_types.kind(path, found)
    normalizer = Normalizer(
        path,
        ring=kind in element_types.NUMBERS and (kind != "float" or claim.numerics != "exact"),
        integer=kind in ("int", "uint"),
        fast=claim.numerics == "fast",
        signed_zero=claim.signed_zero and kind != "bool",
    )
    x, y = normalizer.normal(a), normalizer.normal(b)
    careful = kind == "float" and claim.numerics == "reassoc"
    if x == y or same(path, x, y, True) or (normalizer.ring and _polynomials(path, x, y)):
        if not careful or (normalizer.hides_nothing(x, y) and same_reach(path, a, b)):
            return "polynomials" if normalizer.ring and x.op == "poly" else "normal forms"
    return decided(path, (a, b), (x, y), claim, found)


def same(path: Path, a: Scalar, b: Scalar, under: Bool) -> bool:
    """Whether two scalars have the same structure and, under a condition, equal indices."""
    if a == b:
        return True
    if {a.op, b.op} == {"int", "const"}:
        whole, other = (a, b) if a.op == "const" else (b, a)
        exact = whole.is_number and whole.args[0].denominator == 1
        return exact and path.entails(eq(other.args[0], int(whole.args[0])), under)
    if a.op != b.op or len(a.args) != len(b.args):
        return False
    match a.op, a.args, b.args:
        case "poly", _, _:
            return _polynomials(path, a, b)
        case "ite", (cond, inner, outer), (other, *sides):
            return (
                path.entails(_iff(cond, other), under)
                and same(path, inner, sides[0], conj(under, cond))
                and same(path, outer, sides[1], conj(under, negate(cond)))
            )
        case "big", _, _:
            return _same_big(path, a, b, under)
        case "app", (op, _, *operands), (other, _, *others) if op == other and op in COMMUTATIVE and len(operands) == 2:
            orders = (others, others[::-1])
            return any(all(same(path, x, y, under) for x, y in zip(operands, o, strict=True)) for o in orders)
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
    """Compare two sums or extremes over the same ranges in the same order, after renaming variables."""
    if a.args[0] != b.args[0] or len(a.args[1]) != len(b.args[1]):
        return False
    if len(a.args) > 3:  # in normal form: one set of variables under a guard
        guards = conj(under, a.args[3])
        return path.entails(_iff(a.args[3], b.args[3]), under) and same(path, a.args[2], b.args[2], guards)
    mapping: dict[Atom, Int] = {}
    for x, y in zip(a.args[1], b.args[1], strict=True):
        size = integers.substitute(path.bounds[y].extent, mapping)
        if not path.entails(eq(path.bounds[x].extent, size), under):
            return False
        mapping[y] = integers.of_atom(x)
    return same(path, a.args[2], substituted(b.args[2], mapping), under)


def _polynomials(path: Path, a: Scalar, b: Scalar) -> bool:
    """Whether the guarded coefficients of each product of atoms have the same sum in two polynomials."""
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
    if s.is_number:
        return [(s.args[0], (), (), True)] if s.args[0] else []
    return [(scalars.ONE.args[0], (s,), (), True)]


def _same_atoms(path: Path, a: tuple[Scalar, ...], b: tuple[Scalar, ...], under: Bool) -> bool:
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
    total: dict[Bool, Any] = {}
    for factor, guard in members:
        total[guard] = total.get(guard, 0) + factor
    left = [(f, g) for g, f in total.items() if f]
    if len(left) > 8:
        return False
    # where exactly these guards hold, the factors must add up to 0
    for chosen in range(1, 1 << len(left)):
        inside = [left[i] for i in range(len(left)) if chosen >> i & 1]
        if sum(f for f, _ in inside):
            outside = [left[i][1] for i in range(len(left)) if not chosen >> i & 1]
            if not path.entails(negate(conj(*(g for _, g in inside), *(negate(g) for g in outside)))):
                return False
    return True


# --- empty sums whose operands may be NaN or infinite ---

_STRICT = frozenset(("Add", "Sub", "Neg", "Mul", "Div", "Sum", "Mean", "Abs"))
"""Operators that read all of their operands."""

Reach = frozenset[tuple[Scalar, frozenset[Int]]]


def same_reach(path: Path, a: Scalar, b: Scalar) -> bool:
    """Whether both sides read the same operands, whichever of their sums are empty.

    Over the real numbers, `(Σ_k a_k) · b` is `Σ_k a_k · b`. With infinities this holds as long as there is a `k`: a
    factor or a term that is not finite makes the result not finite. For an empty sum the first is 0 · b, which is NaN
    for an infinite `b`, and the second is 0. Operands that are known to be finite do not count. The sides must not have
    been multiplied out yet."""
    doubtful = {v: size for s in (a, b) for v, size in _sums(path, s).items() if not path.entails(ge(size, 1))}
    return not doubtful or _reach(path, a, doubtful) == _reach(path, b, doubtful)


def _sums(path: Path, s: Scalar) -> dict[Atom, Int]:
    sums = (part for part in walk(s) if part.op == "big" and part.args[0] == "Sum")
    return {v: path.normal(path.bounds[v].extent) for part in sums for v in part.args[1]}


def _reach(path: Path, s: Scalar, doubtful: dict[Atom, Int]) -> Reach:
    """Return the operands that a sum of products reads, by name.

    Each comes with the sizes of the enclosing sums that it does not depend on: if one of these is empty, it is not
    read."""
    found: set[tuple[Scalar, frozenset[Int]]] = set()

    def visit(part: Scalar, around: tuple[Atom, ...]) -> None:
        if part.op == "big" and part.args[0] == "Sum":
            visit(part.args[2], (*around, *part.args[1]))
        elif part.op == "ite" or part.applies(*_STRICT):
            for operand in operands(part):
                visit(operand, around)
        elif not always_finite(path, part):  # a finite factor does not matter where the sum is empty
            used = {a for i in positions(part) for a in integers.atoms(i)}
            left_out = frozenset(doubtful[v] for v in around if v in doubtful and v not in used)
            found.add((_named(part), left_out))

    visit(s, ())
    # an operand that is read under fewer conditions subsumes the others
    return frozenset((name, left) for name, left in found if not any(n == name and less < left for n, less in found))


def _named(part: Scalar) -> Scalar:
    if part.op in ("read", "flat"):
        return Scalar("read", (part.args[0],))
    if part.op == "big":
        return Scalar("big", (part.args[0], (), _named(part.args[2])))
    return Scalar(part.op, tuple(_named(a) if isinstance(a, Scalar) else str(type(a)) for a in part.args))
