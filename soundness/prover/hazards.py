"""What the prover's arithmetic does not show, so that a rule is not proved: overflow, and operators that may fail.

Numbers are real, with infinities and NaN, and quotients of integers are total. So a formula that overflows equals one
that does not, and an element that is never selected may be computed on the other side.
"""

from __future__ import annotations

from ...grammar.syntax import ast
from .paths.path import NotModeled

_STABLE = ("Softmax", "LogSoftmax", "Softplus", "ReduceLogSumExp")
"""Operators that kernels compute without an overflow that the standard's formula has."""
_SELECTING = ("Slice", "Gather", "GatherElements", "GatherND", "Split", "Compress", "Where")
"""Operators whose result need not hold all elements of their operands."""
_FLOATS = ("float", "f16", "f32", "f64", "bf16")


def check_hazards(rule: ast.Rule, left: ast.Syntax, right: ast.Syntax) -> None:
    """Raise `NotModeled` if the right side may overflow or fail where the left side does not."""
    heads = [{n.head for n in side.walk() if isinstance(n, ast.Call)} for side in (left, right)]
    stable = [op for op in _STABLE if op in heads[0]]
    if rule.numerics != "fast" and stable and heads[1] & {"Exp", "exp"}:
        raise NotModeled(f"an exponential that may overflow where {stable[0]} does not")
    bound = {n.head for n in left.walk() if isinstance(n, ast.Call) and n.kind == "elementwise"}
    total = any(isinstance(n, ast.Call) and n.head == "total" for c in rule.where for n in c.walk())
    floats = {t.name for g in rule.given if g.type.element in _FLOATS for t in g.targets}
    for node in right.walk():
        if isinstance(node, ast.Call) and node.head in _SELECTING:
            for inner in (n for arg in node.args for n in arg.walk() if _divides(n, set() if total else bound)):
                if not floats & {n.id for n in inner.walk() if isinstance(n, ast.Name)}:
                    raise NotModeled("a quotient that may be one of integers, and that the left side need not compute")


def _divides(node: ast.Syntax, unknown: set[str]) -> bool:
    """Whether a term divides, or applies an operator that a class head has bound and that may divide."""
    match node:
        case ast.Binary(operator=operator):
            return operator in ("/", "%")
        case ast.Call(head=head, args=args):
            return head in ("Div", "Mod") or (head in unknown and len(args) > 1)
    return False
