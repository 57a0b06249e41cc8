"""What is known of the signs of scalars, by what they are made of and by what conditions say."""

from __future__ import annotations

from .path import Path
from .run_types import Predicate
from .scalars import Scalar
from .tensors import Leaf

NONNEGATIVE = "nonnegative"
"""The operator of the fact that no element of a tensor is below zero; some may be NaN."""
_NEVER = frozenset(("Abs", "Relu", "Exp", "Sigmoid", "Sqrt", "Softplus"))
_KEEPING = frozenset(("Add", "Sum", "Mul", "Mean", "Max", "Min"))


def positive(s: Scalar) -> bool:
    """Whether a scalar is above zero wherever it is a number."""
    if s.op == "const":
        return not isinstance(s.args[0], str) and s.args[0] > 0
    if s.op == "app":
        op, _, *args = s.args
        return op in ("Exp", "Sigmoid") or (op in ("Add", "Mul", "Div") and all(map(positive, args)))
    if s.op == "inverse":
        return positive(s.args[0])
    if s.op == "big" and s.args[0] == "Sum":
        return positive(s.args[2])
    return s.op == "poly" and all(f > 0 and all(map(positive, a)) for f, a, _, _ in s.args)


def never_negative(path: Path, s: Scalar) -> bool:
    """Whether a scalar is nowhere below zero, not at -∞ either, though it may be NaN or a zero of either sign."""
    if s.op == "const":
        return s.args[0] in ("inf", "nan") if isinstance(s.args[0], str) else s.args[0] >= 0
    if s.op in ("read", "flat"):
        facts = [f for f in path.extra.get("facts", ()) if isinstance(f, Predicate) and f.op == NONNEGATIVE]
        return any(isinstance(f.left, Leaf) and f.left.name == s.args[0] for f in facts)
    if s.op == "app":
        op, _, *args = s.args
        square = op == "Mul" and args[0] == args[1]
        return op in _NEVER or square or (op in _KEEPING and all(never_negative(path, a) for a in args))
    if s.op == "ite":
        return all(never_negative(path, a) for a in s.args[1:])
    return s.op == "big" and s.args[0] in ("Sum", "Max", "Min") and never_negative(path, s.args[2])
