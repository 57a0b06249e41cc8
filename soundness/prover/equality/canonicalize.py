"""Canonical scalars: indices in normal form, row-major positions as indices; and the order of terms of polynomials.

What a path learns while reading (an index split in two, a dim equal to another) applies to earlier reads too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ..paths.path import Path
from ..paths.tensors import Leaf, place_of
from ..terms import integers, scalars
from ..terms.integers import Atom, Bool, Int
from ..terms.scalars import Scalar


def canonicalize(path: Path, *sides: Scalar) -> list[Scalar]:
    """Return the scalars after all substitutions that the path knows."""
    found = list(sides)
    by_place: set[str] = set()

    def by_index(s: Scalar) -> Scalar:
        if s.op == "flat":
            leaf: Leaf = path.extra[("leaf", s.args[0])]
            index = path.unflatten(s.args[1], leaf.shape)
            if not any(a.kind == "div" for i in index for a in integers.atoms(i)):
                return leaf.at(index)
            by_place.add(leaf.name)
        return s

    def flattened(s: Scalar) -> Scalar:
        if s.op == "read" and s.args[0] in by_place:
            leaf: Leaf = path.extra[("leaf", s.args[0])]
            return Scalar("flat", (leaf.name, path.normal(place_of(s.args[1:], leaf.shape))))
        return s

    for _ in range(6):
        before = len(path.split), len(path.mapping)
        found = [_with_reads(_normal(path, s, {}), by_index, {}) for s in found]
        if before == (len(path.split), len(path.mapping)):
            break
    return [_with_reads(s, flattened, {}) for s in found] if by_place else found


def _variables(path: Path, listed: Iterable[Int]) -> list[Int]:
    """Return summed variables; those that were split are replaced by their parts."""
    out: list[Int] = []
    for v in listed:
        atom = integers.as_atom(v)
        out += _variables(path, path.split[atom]) if atom is not None and atom in path.split else [v]
    return out


def _normal(path: Path, s: Scalar, memo: dict[Scalar, Scalar]) -> Scalar:
    if s in memo:
        return memo[s]
    if s.op == "big":
        op, listed, body = s.args
        found = scalars.big(op, _variables(path, map(integers.of_atom, listed)), _normal(path, body, memo))
    else:
        found = scalars.rebuilt(s, lambda a: _normal(path, a, memo), path.normal)
        if found.op == "read" and ("integers", found.args[0]) in path.extra:
            found = scalars.number(path.normal(integers.of_atom(Atom(found.args[0], "data", found.args[1:]))))
        known = path.extra.get(("value of", s.args[0])) if s.op in ("read", "flat") else None
        found = known if isinstance(known, Scalar) else found
    memo[s] = found
    return found


def _with_reads(s: Scalar, change: Callable[[Scalar], Scalar], memo: dict[Scalar, Scalar]) -> Scalar:
    if s not in memo:
        memo[s] = change(s) if s.op in ("read", "flat") else scalars.rebuilt(s, lambda a: _with_reads(a, change, memo))
    return memo[s]


def substituted(s: Scalar, mapping: dict[Atom, Int]) -> Scalar:
    """Return the scalar with atoms of its indices replaced, other than the variables of its sums."""
    if not mapping or s.op == "const":
        return s

    if s.op == "poly":
        rows = []
        for factor, atoms, listed, guard in s.args:
            inside = {a: v for a, v in mapping.items() if a not in listed}
            guard = integers.map_cond(guard, functools.partial(integers.substitute, mapping=inside))
            rows.append((factor, tuple(substituted(a, inside) for a in atoms), listed, guard))
        return Scalar("poly", tuple(rows))
    left = {a: v for a, v in mapping.items() if a not in s.args[1]} if s.op == "big" else mapping
    return scalars.rebuilt(s, lambda a: substituted(a, left), lambda i: integers.substitute(i, left))


# --- terms of polynomials ---


@dataclass(frozen=True, slots=True)
class Term:
    """Coefficient times atoms, summed over index variables where the guard holds."""

    factor: Fraction
    atoms: tuple[Scalar, ...]
    variables: tuple[Atom, ...] = ()
    guard: Bool = True


def positions(s: Scalar) -> Iterator[Int]:
    """Yield the indices of all reads in a scalar, in order."""
    if s.op in ("read", "flat"):
        yield from s.args[1:]
        return
    for part in (x for _, atoms, _, guard in s.args for x in (*atoms, guard)) if s.op == "poly" else s.args:
        if isinstance(part, Scalar):
            yield from positions(part)
        else:
            yield from [part] if isinstance(part, integers.Poly) else integers.cond_ints(part)


def skeleton(s: Scalar) -> str:
    """Return the text of a scalar without its indices."""
    if s.op in ("read", "flat"):
        return str(s.args[0])
    if s.op == "int":
        return "int"
    if s.op == "poly":
        return "poly(" + ", ".join("*".join(map(skeleton, row[1])) for row in s.args) + ")"
    parts = [skeleton(a) if isinstance(a, Scalar) else str(a) for a in s.args if isinstance(a, (Scalar, str, Fraction))]
    return f"{s.op}({', '.join(parts)})"


def text_of(s: Scalar) -> str:
    """Return the sort key of a scalar."""
    return f"{s.op} {s}"


def row_key(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the sort key of a term of a polynomial."""
    return (" * ".join(map(skeleton, row[1])), str(row[1]), str(row[3]), row[0])


def ordered(cond: Bool) -> Bool:
    """Return a condition with sorted operands."""
    if isinstance(cond, integers.Cond) and cond.op in ("and", "or"):
        return integers.Cond(cond.op, tuple(sorted(cond.args, key=str)))
    return cond


def scaled(terms: list[Term], factor: Fraction) -> list[Term]:
    """Return terms multiplied by a factor."""
    return [replace(t, factor=t.factor * factor) for t in terms]
