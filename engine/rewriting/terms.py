"""Terms of an e-graph as expressions of the rule language, for messages and rule files."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...grammar.printing.printer import print_expr
from ...grammar.syntax import ast
from ..egraph.egraph import EGraph
from ..ir.graph import AttrValue, DType, Graph
from ..ir.names import ABSENT, OWN_DOMAIN
from ..operators.schemas import normalize_attrs, signature
from .notation import INFIX

_NOWHERE = ast.Span("", 1, 1, 1, 1)
_SYMBOL = {op: symbol for symbol, op in INFIX.items()}
_LITERAL_SIZE = 16
"""Maximum number of elements of a constant that is written out."""


class Unprintable(Exception):
    """A term that the rule language cannot express: it holds a large constant or a graph."""


def term(egraph: EGraph, handle: int, names: Mapping[int, str], *, made_by: str | None = None) -> ast.Expr:
    """Return the smallest term of a class as an expression; raise `Unprintable` if there is none.

    `names` are the variables by canonical handle. At the root, a node made by rule `made_by` is preferred."""
    return _Terms(egraph, names).root(handle, made_by)


def node_term(egraph: EGraph, handle: int, names: Mapping[int, str]) -> ast.Expr:
    """Return a node as an expression, with the smallest term of each operand; raise `Unprintable` if there is none."""
    return _Terms(egraph, names).node(handle)


def different(expected: ast.Expr, actual: ast.Expr) -> list[str]:
    """Return two expressions one below the other, with a mark at their first difference; long ones as a diff."""
    first, second = print_expr(expected), print_expr(actual)
    if max(len(first), len(second)) <= 96:
        at = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
        at = min(len(first), len(second)) if at is None else at
        return [f"  expected  {first}", f"  found     {second}", " " * (12 + at) + "^"]
    lines = difflib.ndiff(list(_outline(expected)), list(_outline(actual)))
    return ["  (- expected, + found)", *(f"  {line}" for line in lines if not line.startswith("?"))]


def _outline(expr: ast.Expr, depth: int = 0) -> Iterator[str]:
    """Print an expression with one operator per line, its operands indented."""
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
        self.size = {egraph.find(c): 1 for c in names}
        self.best: dict[int, int] = {}
        while self._measure():
            pass

    def _measure(self) -> bool:
        """Update the size of the smallest term of every class, and return whether one shrank."""
        find, changed = self.egraph.find, False
        for handle, node in enumerate(self.egraph.nodes):
            c, kids = find(handle), [find(k) for k in node.children if k != ABSENT]
            if c in self.names or any(k not in self.size for k in kids):
                continue
            own = self._constant_size(node.attrs) if node.op == "Const" else 1
            total = own + sum(self.size[k] for k in kids)
            if total < self.size.get(c, 1 << 60):
                self.size[c], self.best[c] = total, handle
                changed = True
        return changed

    def _constant_size(self, attrs: Mapping[str, AttrValue]) -> int:
        shape = self.egraph.constants[str(attrs["digest"])].type.shape
        count = int(np.prod(shape)) if shape is not None else 1 << 30  # type: ignore[arg-type]
        return 1 if count <= _LITERAL_SIZE else 1 << 40

    def root(self, handle: int, made_by: str | None) -> ast.Expr:
        find, c = self.egraph.find, self.egraph.find(handle)
        made = [h for h in self.egraph.members(c) if made_by is not None and self.egraph.made_by[h] == made_by]
        kids = {h: [find(k) for k in self.egraph.nodes[h].children if k != ABSENT] for h in made}
        sizes = [(sum(self.size[k] for k in ks), h) for h, ks in kids.items() if self.size.keys() >= {*ks}]
        return self.node(min(sizes)[1]) if sizes and c not in self.names else self.expression(c)

    def expression(self, c: int) -> ast.Expr:
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
        kids = list(map(self.egraph.find, node.children))
        while kids and kids[-1] == ABSENT:
            kids.pop()
        none = ast.Name(span=_NOWHERE, id="none")
        args: list[ast.Expr] = [none if k == ABSENT else self.expression(k) for k in kids]
        op = node.op.removeprefix(f"{OWN_DOMAIN}.")
        if op in _SYMBOL and len(args) == 2 and not any(isinstance(a, ast.ListExpr) for a in args):
            return ast.Binary(span=_NOWHERE, operator=_SYMBOL[op], left=args[0], right=args[1])
        return ast.Call(span=_NOWHERE, head=op, args=tuple(args), attributes=attributes(op, node.attrs))


def attributes(op: str, attrs: Mapping[str, AttrValue]) -> tuple[ast.Attribute, ...]:
    """Return the attributes of a node that differ from the defaults, as they are written in a rule."""
    defaults: Mapping[str, Any] = normalize_attrs(op, {}) if signature(op) is not None else {}
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
    raise Unprintable(f"its attribute {name} is not a number, string or list")


def literal(array: np.ndarray[Any, Any]) -> ast.Expr:
    """Return a small constant as it is written in a rule."""
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
