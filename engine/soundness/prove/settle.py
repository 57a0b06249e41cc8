"""Scalars made comparable: indices in normal form, places turned back into indices, choices at the outside.

What a path learns while reading (an index split in two, a dim found equal to another) holds for what was read before.
"""

from __future__ import annotations

from . import integers, scalars
from .integers import Atom, Int
from .path import Path
from .scalars import Scalar
from .tensors import Leaf, place_of


def settle(path: Path, *sides: Scalar) -> list[Scalar]:
    """The scalars with all that the path knows put in."""
    found = list(sides)
    flats: set[str] = set()
    for _ in range(6):
        before = len(path.split), len(path.mapping)
        found = [_normal(path, s, {}) for s in found]
        found = [_indexed(path, s, flats, {}) for s in found]
        if before == (len(path.split), len(path.mapping)):
            break
    return [_flattened(path, s, flats, {}) for s in found] if flats else found


def variables(path: Path, listed: tuple[Int, ...]) -> tuple[Int, ...]:
    """Summed variables, those that were split as their parts."""
    out: list[Int] = []
    for v in listed:
        atom = integers.as_atom(v)
        if atom in path.split:
            assert atom is not None
            out.extend(variables(path, path.split[atom]))
        elif not isinstance(v, int):
            out.append(v)
    return tuple(out)


def _normal(path: Path, s: Scalar, memo: dict[Scalar, Scalar]) -> Scalar:
    if s not in memo:
        if s.op == "big":
            op, listed, body = s.args
            memo[s] = scalars.big(op, list(variables(path, listed)), _normal(path, body, memo))
        else:
            found = scalars.rebuilt(s, lambda a: _normal(path, a, memo), path.normal)
            if found.op == "read" and ("integers", found.args[0]) in path.extra:
                found = scalars.number(path.normal(integers.of_atom(Atom(found.args[0], "data", found.args[1:]))))
            known = path.extra.get(("value of", s.args[0])) if s.op in ("read", "flat") else None
            memo[s] = known if isinstance(known, Scalar) else found
    return memo[s]


def _indexed(path: Path, s: Scalar, flats: set[str], memo: dict[Scalar, Scalar]) -> Scalar:
    """Reads by place as reads by index; `flats` gathers the tensors for which a place stays."""
    if s not in memo:
        found = s
        if s.op == "flat":
            leaf: Leaf = path.extra[("leaf", s.args[0])]
            index = path.unflatten(s.args[1], leaf.shape)
            if any(a.kind == "div" for i in index for a in integers.atoms(i)):
                flats.add(s.args[0])
            else:
                found = leaf.at(index)
        elif s.op not in ("read", "const", "int"):
            found = scalars.rebuilt(s, lambda a: _indexed(path, a, flats, memo), lambda i: i)
        memo[s] = found
    return memo[s]


def _flattened(path: Path, s: Scalar, flats: set[str], memo: dict[Scalar, Scalar]) -> Scalar:
    if s not in memo:
        found = s
        if s.op == "read" and s.args[0] in flats and ("leaf", s.args[0]) in path.extra:
            leaf: Leaf = path.extra[("leaf", s.args[0])]
            found = Scalar("flat", (s.args[0], path.normal(place_of(s.args[1:], leaf.shape))))
        elif s.op not in ("read", "flat", "const", "int"):
            found = scalars.rebuilt(s, lambda a: _flattened(path, a, flats, memo), lambda i: i)
        memo[s] = found
    return memo[s]


def substituted(s: Scalar, mapping: dict[Atom, Int]) -> Scalar:
    """The scalar with atoms of its indices replaced."""
    if not mapping or s.op == "const":
        return s

    def integer(value: Int) -> Int:
        return integers.substitute(value, mapping)

    if s.op == "big":
        op, listed, body = s.args[0], s.args[1], s.args[2]
        rest = tuple(integers.map_cond(a, integer) if isinstance(a, (integers.Cond, bool)) else a for a in s.args[3:])
        return Scalar("big", (op, tuple(integer(v) for v in listed), substituted(body, mapping), *rest))
    if s.op == "poly":
        terms = tuple(
            (c, tuple(substituted(a, mapping) for a in atoms), tuple(integer(v) for v in vs),
             integers.map_cond(g, integer))
            for c, atoms, vs, g in s.args
        )  # fmt: skip
        return Scalar("poly", terms)
    return scalars.rebuilt(s, lambda a: substituted(a, mapping), integer)
