"""Sums over nothing, where operands may be NaN or infinite.

Over the real numbers `(Σ_k a_k) · b` is `Σ_k a_k · b`. With infinities it is, too, as long as there is a `k`: a product
with a factor that is not finite is not finite, nor is a sum with such a term. Without one the first is 0 · b, NaN for
an infinite `b`, and the second is 0. So it has to be told which operands a side looks at when a sum is empty.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import integers
from .integers import Int, ge
from .normal import positions
from .path import Path
from .scalars import Scalar, operands, walk

_STRICT = frozenset(("Add", "Sub", "Neg", "Mul", "Div", "Sum", "Mean", "Abs"))
"""Operators whose operands are all looked at by themselves."""

Reach = frozenset[tuple[Scalar, frozenset[Int]]]


def same_reach(path: Path, a: Scalar, b: Scalar) -> bool:
    """Whether both sides look at the same operands, whichever of their sums are empty.

    The sides are as they were before products were multiplied out."""
    doubtful = {v: size for s in (a, b) for v, size in _sums(path, s).items() if not path.entails(ge(size, 1))}
    return not doubtful or _reach(path, a, doubtful) == _reach(path, b, doubtful)


def _sums(path: Path, s: Scalar) -> dict[Int, Int]:
    """The variables of sums with how many values they take."""
    found: dict[Int, Int] = {}
    for part in walk(s):
        if part.op == "big" and part.args[0] == "Sum":
            for v in part.args[1]:
                atom = integers.as_atom(v)
                if atom is not None and atom in path.bounds and path.bounds[atom].extent is not None:
                    found[v] = path.normal(path.bounds[atom].extent)
    return found


def _reach(path: Path, s: Scalar, doubtful: dict[Int, Int]) -> Reach:
    """The operands that a sum of products looks at, by name; with each the sizes of the sums around it that it does not
    run over: if one of those is empty, the operand is not looked at."""
    found: set[tuple[Scalar, frozenset[Int]]] = set()

    def visit(part: Scalar, around: tuple[Int, ...]) -> None:
        if part.op in ("const", "int"):
            return
        if part.op == "big" and part.args[0] == "Sum":
            visit(part.args[2], (*around, *part.args[1]))
        elif part.op == "ite" or (part.op == "app" and part.args[0] in _STRICT):
            for operand in operands(part):
                visit(operand, around)
        else:
            found.add((_named(part), left_out(part, around)))

    def left_out(part: Scalar, around: Sequence[Int]) -> frozenset[Int]:
        used = {a for i in positions(part) for a in integers.atoms(i)}
        return frozenset(doubtful[v] for v in around if v in doubtful and integers.as_atom(v) not in used)

    visit(s, ())
    # what is looked at anyway need not be said again
    return frozenset((name, left) for name, left in found if not any(n == name and less < left for n, less in found))


def _named(part: Scalar) -> Scalar:
    """A scalar without its indices."""
    if part.op in ("read", "flat"):
        return Scalar("read", (part.args[0],))
    if part.op == "big":
        return Scalar("big", (part.args[0], (), _named(part.args[2])))
    return Scalar(part.op, tuple(_named(a) if isinstance(a, Scalar) else str(type(a)) for a in part.args))
