"""Sign analysis: which tensors have no element below zero, by the operators that they are made of.

An analysis of e-classes like their types: each e-node is looked at when it is added and when more becomes known of its
operands, never by searching through them. What is known spreads upwards from operators that are nonnegative whatever
their operands, so that a cycle of the e-graph proves nothing about itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.constants import ConstantInfo

_NONNEGATIVE = frozenset((
    "Abs", "Relu", "Exp", "Sigmoid", "Sqrt", "Softmax", "HardSigmoid", "Softplus", "ReduceSumSquare", "ReduceL1",
    "ReduceL2",
))  # fmt: skip
"""Operators whose results are never below zero."""
_PLUS_ZERO = _NONNEGATIVE - {"Relu", "Sqrt", "HardSigmoid"}
"""Those whose zeros are positive: the root of -0 is -0, and which zero a maximum returns is not specified."""
_KEEPS_SIGN = frozenset((
    "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Expand", "Identity", "Slice", "Flatten", "MaxPool", "AveragePool",
    "GlobalAveragePool", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "Gather", "Tile",
))  # fmt: skip
"""Operators whose results are not below zero if their first operand is not."""


@dataclass(frozen=True, slots=True)
class Sign:
    """What is known of the signs of a tensor: no element is below zero; none of those that are not is -0.

    As a divisor, -0 gives -∞."""

    nonnegative: bool = False
    no_minus_zero: bool = False

    def __or__(self, other: Sign) -> Sign:
        """Combine two descriptions of one tensor."""
        if self == other:
            return self
        return Sign(self.nonnegative or other.nonnegative, self.no_minus_zero or other.no_minus_zero)


UNKNOWN = Sign()


def sign_of_constant(info: ConstantInfo) -> Sign:
    """Return the sign of a constant."""
    low = info.low
    return UNKNOWN if low is None else Sign(bool(low >= 0), bool(low > 0))


def infer_sign(op: str, operands: Sequence[Sign | None], *, wraps: bool, square: bool) -> Sign:
    """Return the sign of an operator's only output from those of its operands, None where absent.

    With `wraps` its element type is not a float: |-128| and 12 · 12 are negative in eight bits. `square` says that both
    operands are one tensor."""
    found = Sign(_nonnegative(op, operands, wraps, square), _no_minus_zero(op, operands, square))
    return found if found != UNKNOWN else UNKNOWN


def _nonnegative(op: str, operands: Sequence[Sign | None], wraps: bool, square: bool) -> bool:
    if op in _NONNEGATIVE:
        return op == "Relu" or not wraps
    if op in _KEEPS_SIGN:
        return _is(operands[0]) and not (wraps and op == "ReduceSum")
    if op == "Clip":  # min(max(x, low), high)
        low, high = ([*operands[1:], None, None])[:2]
        return _is(low) and (high is None or high.nonnegative)
    if op == "Mul" and square and not wraps:
        return True
    if op not in (("Max",) if wraps else ("Add", "Mul", "Div", "Max")):
        return False
    divisor = operands[1] if op == "Div" else None
    return all(map(_is, operands)) and (op != "Div" or (divisor is not None and divisor.no_minus_zero))


def _is(sign: Sign | None) -> bool:
    return sign is not None and sign.nonnegative


def _no_minus_zero(op: str, operands: Sequence[Sign | None], square: bool) -> bool:
    if op in _PLUS_ZERO or (op == "Mul" and square):
        return True
    if op in _KEEPS_SIGN or op == "Sqrt":
        return operands[0] is not None and operands[0].no_minus_zero
    enough = any if op == "Add" else all  # zeros of both signs add up to +0
    return op in ("Add", "Mul", "Div") and enough(sign is not None and sign.no_minus_zero for sign in operands)
