"""Terms of an e-graph as expressions of the rule language, for people to read and for rule files."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..grammar import ast
from ..grammar.printer import print_expr
from .egraph import ABSENT, EGraph
from .evaluate import INFIX
from .graph import AttrValue, DType, Graph
from .operators import OWN_DOMAIN, normalise_attrs, signature

_NOWHERE = ast.Span("", 1, 1, 1, 1)
_SYMBOL = {op: symbol for symbol, op in INFIX.items()}
_LITERAL_SIZE = 16
"""How many elements a constant may have to be written out."""


class Unprintable(Exception):
    """A term that the rule language cannot write: it holds a large constant or a graph."""


def term(egraph: EGraph, handle: int, names: Mapping[int, str], *, made_by: str | None = None) -> ast.Expr:
    """The smallest term of a class as an expression.

    `names` gives the classes that are variables their names, by canonical handle. Of the class itself a node made by
    rule `made_by` is taken if there is one. Raises `Unprintable`."""
    return _Terms(egraph, names).root(handle, made_by)


def node_term(egraph: EGraph, handle: int, names: Mapping[int, str]) -> ast.Expr:
    """A node as an expression, with the smallest term of each of its operands. Raises `Unprintable`."""
    return _Terms(egraph, names).node(handle)


def different(expected: ast.Expr, actual: ast.Expr) -> list[str]:
    """Two expressions one below the other, with a mark where they part; over several lines if they are long."""
    first, second = print_expr(expected), print_expr(actual)
    if max(len(first), len(second)) <= 96:
        at = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
        at = min(len(first), len(second)) if at is None else at
        return [f"  expected  {first}", f"  found     {second}", " " * (12 + at) + "^"]
    lines = difflib.ndiff(list(_outline(expected)), list(_outline(actual)))
    return ["  (- expected, + found)", *(f"  {line}" for line in lines if not line.startswith("?"))]


def _outline(expr: ast.Expr, depth: int = 0) -> Iterator[str]:
    """An expression with one operator to a line, its operands further in."""
    pad = "  " * depth
    match expr:
        case ast.Binary():
            yield f"{pad}{expr.operator}"
            yield from _outline(expr.left, depth + 1)
            yield from _outline(expr.right, depth + 1)
        case ast.Call() if expr.args:
            named = ", ".join(f"{a.name}: {print_expr(a.value)}" for a in expr.attributes)
            yield f"{pad}{expr.head}" + f"  {named}" * bool(named)
            for arg in expr.args:
                yield from _outline(arg, depth + 1)
        case _:
            yield pad + print_expr(expr)


class _Terms:
    def __init__(self, egraph: EGraph, names: Mapping[int, str]) -> None:
        self.egraph = egraph
        self.names = names
        self.size: dict[int, int] = {}
        self.best: dict[int, int] = {}
        self._measure()

    def _measure(self) -> None:
        """The size of the smallest term of every class; sizes only shrink, so it ends."""
        find, nodes = self.egraph.find, self.egraph.nodes
        for c in self.names:
            self.size[find(c)] = 1
        changed = True
        while changed:
            changed = False
            for handle, node in enumerate(nodes):
                c = find(handle)
                if c in self.names:
                    continue
                kids = [find(k) for k in node.children if k != ABSENT]
                if any(k not in self.size for k in kids):
                    continue
                own = self._constant_size(node.attrs) if node.op == "Const" else 1
                total = own + sum(self.size[k] for k in kids)
                if total < self.size.get(c, 1 << 60):
                    self.size[c], self.best[c] = total, handle
                    changed = True

    def _constant_size(self, attrs: Mapping[str, AttrValue]) -> int:
        shape = self.egraph.constants[str(attrs["digest"])].type.shape
        count = int(np.prod(shape)) if shape is not None else 1 << 30  # type: ignore[arg-type]
        return 1 if count <= _LITERAL_SIZE else 1 << 40

    def root(self, handle: int, made_by: str | None) -> ast.Expr:
        members = self.egraph.members(handle)
        made = [h for h in members if made_by is not None and self.egraph.made_by[h] == made_by]
        made = [h for h in made if all(self.egraph.find(k) in self.size for k in self.egraph.nodes[h].children if k)]
        c = self.egraph.find(handle)
        if not made or c in self.names:
            return self.expression(c)
        return self.node(min(made, key=self._node_size))

    def _node_size(self, handle: int) -> tuple[int, int]:
        kids = [self.egraph.find(k) for k in self.egraph.nodes[handle].children if k != ABSENT]
        return sum(self.size[k] for k in kids), handle

    def expression(self, c: int) -> ast.Expr:
        """The smallest term of a class."""
        c = self.egraph.find(c)
        if c in self.names:
            return ast.Name(span=_NOWHERE, id=self.names[c])
        if c not in self.best:
            raise Unprintable("it is computed from itself")
        return self.node(self.best[c])

    def node(self, handle: int) -> ast.Expr:
        node = self.egraph.nodes[handle]
        if node.op == "Input":
            return ast.Name(span=_NOWHERE, id=str(node.attrs["name"]))
        if node.op == "Const":
            array = self.egraph.constants[str(node.attrs["digest"])].contents()
            if array is None or array.size > _LITERAL_SIZE:
                raise Unprintable("it holds a large constant")
            return literal(array)
        if node.op == "Proj":
            index = ast.Number(span=_NOWHERE, value=int(node.attrs["index"]))  # type: ignore[arg-type]
            return ast.Subscript(span=_NOWHERE, base=self.expression(node.children[0]), index=index)
        kids = list(node.children)
        while kids and self.egraph.find(kids[-1]) == ABSENT:
            kids.pop()
        args: list[ast.Expr] = [
            ast.Name(span=_NOWHERE, id="none") if self.egraph.find(k) == ABSENT else self.expression(k) for k in kids
        ]
        op = node.op.removeprefix(f"{OWN_DOMAIN}.")
        if op in _SYMBOL and len(args) == 2 and not any(isinstance(a, ast.ListExpr) for a in args):
            return ast.Binary(span=_NOWHERE, operator=_SYMBOL[op], left=args[0], right=args[1])
        return ast.Call(span=_NOWHERE, head=op, args=tuple(args), attributes=attributes(op, node.attrs))


def attributes(op: str, attrs: Mapping[str, AttrValue]) -> tuple[ast.Attribute, ...]:
    """The attributes of a node that are not its defaults, as they are written in a rule."""
    defaults: Mapping[str, Any] = normalise_attrs(op, {}) if signature(op) is not None else {}
    return tuple(
        ast.Attribute(span=_NOWHERE, name=name, value=_attribute(op, name, value))
        for name, value in attrs.items()
        if name not in defaults or defaults[name] != value
    )


def _attribute(op: str, name: str, value: AttrValue) -> ast.Expr:
    if isinstance(value, Graph):
        raise Unprintable("it holds a graph")
    if isinstance(value, tuple):
        return ast.ListExpr(span=_NOWHERE, items=tuple(_attribute(op, name, v) for v in value))
    if isinstance(value, str):
        return ast.String(span=_NOWHERE, value=value)
    if isinstance(value, (int, float)):
        if name in ("to", "dtype", "output_dtype") and isinstance(value, int) and value:
            return ast.Name(span=_NOWHERE, id=str(DType.from_onnx(value)))
        return _number(value)
    raise Unprintable(f"its attribute {name} is no number, string or list")


def literal(array: np.ndarray[Any, Any]) -> ast.Expr:
    """A small constant as it is written in a rule."""
    if array.ndim == 0:
        return _number(array.item())
    return ast.ListExpr(span=_NOWHERE, items=tuple(literal(part) for part in array))


def _number(value: Any) -> ast.Expr:
    if isinstance(value, bool):
        return ast.Name(span=_NOWHERE, id="true" if value else "false")
    if isinstance(value, float) and not np.isfinite(value):
        name = ast.Name(span=_NOWHERE, id="nan" if np.isnan(value) else "inf")
        return ast.Unary(span=_NOWHERE, operator="-", operand=name) if value < 0 else name
    if isinstance(value, float):
        short = float(f"{value:.6g}")  # attributes and constants are f32 mostly: 1e-5 is not 9.99999974738e-06
        value = short if np.float32(short) == np.float32(value) else value
    return ast.Number(span=_NOWHERE, value=value)
