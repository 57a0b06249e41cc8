"""What it depends on that a match is refused: where of types and contents only, its likes are refused as well.

A model repeats itself: layer after layer has the same operators at the same shapes. Most matches are refused, and a
rule whose conditions ask for nothing but types and contents of what it has matched need not be asked again for others
that are alike in these.
"""

from __future__ import annotations

from ..grammar import ast
from .patterns import CompiledRule, Variant

_OF_TYPES = frozenset({"shape", "rank", "dim", "dtype", "size", "is_const"})
"""Functions that ask for the type of their first argument, or whether it is a constant term."""

_OF_CONTENTS = ("dims", "ints", "scalar", "values", "uniform", "splat", "min_value", "max_value", "positive", "finite")
_OF_LISTS = (
    *("len", "range", "reverse", "sorted", "unique", "index", "take", "drop", "slice", "set_at", "repeat", "flatten"),
    *("zip", "enumerate", "all", "any", "inverse_perm", "compose_perm", "identity_perm", "swap_perm", "axis", "axes"),
)
_OF_NUMBERS = ("known", "broadcast", "prod", "sum", "floordiv", "ceildiv", "min", "max", "close", "abs", "sqrt")
_OF_OTHERS = ("is_iota", "op_name", "is_float", "is_integer", "lossless", "limits")
_LOCAL = _OF_TYPES.union(_OF_CONTENTS, _OF_LISTS, _OF_NUMBERS, _OF_OTHERS)
"""Functions that ask for types and contents of their arguments only; others may look at how they are made."""


def evidence(rule: CompiledRule, variant: Variant) -> tuple[tuple[int, bool], ...] | None:
    """The classes of a match, by position, that decide whether it is refused, each with whether its contents count and
    not its type only; None where more is looked at. Operators and attributes count always."""
    if rule.indices or variant.spreads or variant.naries:
        return None
    asked = _Asked(rule, variant)
    if not asked.all_local():
        return None
    contents = {variant.tensors[name] for name in asked.contents} | {
        demand.variable for demand in variant.demands if demand.literal is not None
    }
    return tuple((i, variable in contents) for i, variable in enumerate(variant.query.classes))


class _Asked:
    """What the conditions of a rule ask for: `contents` are the tensors whose elements they see."""

    def __init__(self, rule: CompiledRule, variant: Variant) -> None:
        self.rule = rule
        self.tensors = variant.tensors
        self.contents: set[str] = set()
        self._lets = {b.target.name: b.value for b in rule.rule.let}
        roots = rule.lhs.bindings if isinstance(rule.lhs, ast.Roots) else ()
        self._roots = {b.target.name for b in roots}
        self._matched = {_plain(e) for e in rule.lhs.walk() if isinstance(e, ast.Call)}

    def all_local(self) -> bool:
        source = self.rule.rule
        asked: list[ast.Syntax] = [*source.where, *(g.type for g in source.given)]
        asked += [a.value for e in self.rule.lhs.walk() if isinstance(e, ast.Call) for a in e.attributes]
        return all(map(self._local, asked))

    def _local(self, expr: ast.Syntax) -> bool:
        match expr:
            case ast.Name(id=name):
                if name in self._roots:
                    return False
                if name in self._lets:
                    return self._local(self._lets[name])
                if name in self.tensors:
                    self.contents.add(name)
                return True
            case ast.Call() if expr.is_operator or expr.head not in _LOCAL:
                return False
            case ast.Call(head=head, args=args):
                if head in _OF_TYPES and args and self._typed(args[0]):
                    args = args[1:]
                return all(map(self._local, args))
            case ast.Compare(form=form) if form is not None:
                return False
        return all(map(self._local, expr.children()))

    def _typed(self, expr: ast.Expr) -> bool:
        """Whether an expression is a class of the match, whose type is known with it."""
        if isinstance(expr, ast.Name):
            if expr.id in self._lets:
                return self._typed(self._lets[expr.id])
            return expr.id in self.tensors or expr.id in self._roots
        return isinstance(expr, ast.Call) and _plain(expr) in self._matched


def _plain(call: ast.Call) -> tuple[object, ...]:
    """A call without its kind, which only a pattern names."""
    return call.head, call.args, call.attributes, call.rest
