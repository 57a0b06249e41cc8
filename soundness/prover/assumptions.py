"""Assumptions of a proof: what it takes for granted about numbers, operators and element types.

They follow from the rule, from the methods by which its cases were shown equal, and from what the meanings of its
operators state as they are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ...grammar.syntax import ast
from .semantics.elementwise import ALL

_NUMBERS = {
    "exact": "floats are IEEE 754 numbers of 16 to 64 bits, and equal sums add the same terms in the same order",
    "reassoc": "floats are real numbers with infinities and NaN, so that rounding and overflow are left to layer 2",
    "fast": "floats are finite real numbers",
}
_WHOLE = "integers have 8 to 64 bits and wrap around; their quotients truncate"
_SOLVER = frozenset((
    "IEEE 754 numbers", "bit-vectors", "truth values", "real numbers", "real numbers, infinities and NaN",
))  # fmt: skip
_QUANTIZED = ("QuantizeLinear", "DequantizeLinear")


def assumptions(
    rule: ast.Rule, methods: Collection[str], operators: Collection[str], stated: Collection[str]
) -> tuple[str, ...]:
    """Return the assumptions of a proof by these methods, which used the meanings of these `operators`.

    `stated` are those that meanings have added on the way."""
    return tuple(dict.fromkeys(_all(rule, methods, operators, stated)))


def _all(
    rule: ast.Rule, methods: Collection[str], operators: Collection[str], stated: Collection[str]
) -> Iterator[str]:
    yield "both sides have one element type and shape, which the engine checks"
    yield _NUMBERS[rule.numerics]
    if set(methods) != {"the same reads"}:
        yield _WHOLE
    quantized = [op for op in sorted(operators) if op in _QUANTIZED]
    known = [op for op in sorted(operators) if op not in ALL and op not in _QUANTIZED]
    if known:
        yield f"ONNX's reference implementation is right about {', '.join(known)}"
    if quantized:
        yield f"{', '.join(quantized)}: a function of an element, its scale and its zero point"
    if any(isinstance(n, ast.Call) and n.kind == "elementwise" for n in rule.lhs.walk()):
        yield "operators that are declared elementwise are functions of one element of each operand"
    yield from sorted(stated)
    if not _SOLVER.isdisjoint(methods):
        yield "the solver z3 is right"
