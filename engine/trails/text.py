"""Trails as text: each step with its rule, where that stands, what its variables stand for, and what it makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...grammar.printing.printer import print_expr
from ...grammar.syntax import ast
from ...system.short_text import clipped
from ..egraph.reasons import Applied, Defined
from ..ir.graph import DType
from ..ir.names import OWN_DOMAIN
from ..ir.values import BodyRef, OpRef, RestRef, TensorRef, Value
from ..operators.schemas import declared_operators
from ..rewriting.notation import INFIX
from ..rewriting.terms import Unprintable, attributes, literal
from ..stage_values import Source
from .trail import Named, StageTrail, Term, Trail, graph_count

_WIDTH = 150
_DEPTH = 3
"""Operators below each other in a printed term."""
_SYMBOLS = {op: symbol for symbol, op in INFIX.items()}


def lines(trail: Trail, source: Source) -> Iterator[str]:
    """Yield the lines of a trail; `source` has the rules, and where they stand."""
    with declared_operators(source.operators):
        yield from _lines(trail, {rule.name: rule for rule in source.library.rules})


def _lines(trail: Trail, rules: Mapping[str, ast.Rule]) -> Iterator[str]:
    number = 0
    for graph in trail.graphs:
        if graph.body and graph_count(graph):
            yield f"in the body that computes {clipped(', '.join(graph.outputs), _WIDTH)}"
        for at, stage in enumerate(graph.stages):
            if at and any(not isinstance(step, Named) for step in stage.steps):
                yield "from here on with the chosen nodes only"
            text = _Text(stage)
            for step in stage.steps:
                if isinstance(step, Named):
                    continue
                number += 1
                yield from _step(number, step, text, rules)
    if not number:
        yield "no step: it is as in the original"


def _step(number: int, step: Applied | Defined, text: _Text, rules: Mapping[str, ast.Rule]) -> Iterator[str]:
    if isinstance(step, Defined):
        yield f"{number}. definition of {text.terms[step.node].op}"
        yield f"     {clipped(text.line(step.node), _WIDTH)}"
        return
    rule = rules.get(step.rule)
    where = f"  ({Path(rule.span.file).name}:{rule.span.line})" if rule is not None else ""
    yield f"{number}. {step.rule}{', right to left' if step.backward else ''}{where}"
    if rule is not None and isinstance(rule.lhs, ast.Expr) and isinstance(rule.rhs, ast.Expr):
        sides = (rule.rhs, rule.lhs) if step.backward else (rule.lhs, rule.rhs)
        yield f"     {clipped(' => '.join(map(print_expr, sides)), _WIDTH)}"
    bound = {name: shown for name, value in step.env.items() if (shown := text.value(name, value))}
    if bound:
        yield f"     with {clipped(', '.join(f'{name} = {shown}' for name, shown in bound.items()), _WIDTH)}"
    for root, value in zip(step.roots, step.values, strict=True):
        name = text.stage.names.get(root)
        yield f"     {f'{name}: ' if name else ''}{clipped(text.line(root), _WIDTH)}"
        bare = any(isinstance(v, TensorRef) and v.handle == value for v in step.env.values())
        yield f"   = {clipped(text.line(value, depth=1 if bare else _DEPTH), _WIDTH)}"
        text.made.setdefault(value, f"[{number}]" if len(step.roots) == 1 else f"[{number}.{root}]")


@dataclass(slots=True)
class _Text:
    """Texts of the terms of a stage; `made` are those that a step built, with its number."""

    stage: StageTrail
    made: dict[int, str] = field(default_factory=dict)

    @property
    def terms(self) -> list[Term]:
        """The terms."""
        return list(self.stage.terms)

    def value(self, name: str, value: Value) -> str:
        """Return the value of a variable; empty for what needs no words."""
        match value:
            case TensorRef(handle=number):
                return self.line(number, depth=1)
            case list() if value and all(isinstance(item, TensorRef) for item in value):
                return f"[{', '.join(self.line(item.handle, depth=1) for item in value)}]"
            case OpRef(op=op):
                return op
            case RestRef() | BodyRef() | None:
                return ""
        return "" if name[:1] in "*#" else str(value)

    def line(self, number: int, depth: int = _DEPTH) -> str:
        """Return a term in the notation of rules; named values and what earlier steps built by their names."""
        return print_expr(self._expr(number, depth, top=True))

    def _expr(self, number: int, depth: int, *, top: bool = False) -> ast.Expr:
        span = ast.Span("", 1, 1, 1, 1)

        def name(text: str) -> ast.Expr:
            return ast.Name(span=span, id=text)

        term = self.stage.terms[number]
        if term.op == "Absent":
            return name("none")
        if term.op == "Input":
            return name(str(term.attrs["name"]))
        if term.op == "Const":
            return self._constant(number, term, name("a constant"))
        known = self.stage.names.get(number) or self.made.get(number)
        if known and (not top or depth == 1):
            return name(known)
        if depth == 0:
            return name("..")
        inputs = [*term.inputs]
        while inputs and self.stage.terms[inputs[-1]].op == "Absent":
            inputs.pop()
        args = [self._expr(i, depth - 1) for i in inputs]
        if term.op == "Proj":
            index = ast.Number(span=span, value=int(term.attrs["index"]))
            return ast.Subscript(span=span, base=args[0], index=index)
        op = term.op.removeprefix(f"{OWN_DOMAIN}.")
        if op in _SYMBOLS and len(args) == 2 and not any(isinstance(a, ast.ListExpr) for a in args):
            return ast.Binary(span=span, operator=_SYMBOLS[op], left=args[0], right=args[1])
        named: tuple[ast.Attribute, ...] = ()
        try:
            named = attributes(term.op, term.attrs)
        except Unprintable:
            named = (ast.Attribute(span=span, name="body", value=name("..")),)
        return ast.Call(span=span, head=op, args=tuple(args), attributes=named)

    def _constant(self, number: int, term: Term, unknown: ast.Expr) -> ast.Expr:
        array = term.elements
        if number in self.stage.names and (array is None or array.size > 1):
            return ast.Name(span=unknown.span, id=self.stage.names[number])
        if array is None:
            return unknown
        if array.size == 1 or (array.size <= 8 and array.dtype.kind in "iub"):
            return literal(array)
        shape = ",".join(map(str, array.shape))
        return ast.Name(span=unknown.span, id=f"const {DType.from_numpy(array.dtype)}[{shape}]")
