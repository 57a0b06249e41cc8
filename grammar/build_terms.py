"""The syntax tree's builder, for types and expressions: one method for each of their productions in `rules.lark`.

Every method takes the production's children in order, punctuation included, since the first and the last of them give
the span. What is found wrong is kept in `diagnostics`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lark import Token, Transformer

from . import ast
from .ast import Span
from .diagnostics import Diagnostic, Label


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of an item that is no syntax node of its own: a clause, a parameter list, a call's arguments."""

    what: str
    value: Any
    span: Span


class TermBuilder(Transformer[Token, Any]):
    """Builds types and expressions, and knows where in the file it is."""

    def __init__(self) -> None:
        super().__init__(visit_tokens=False)
        self.begin("")

    def begin(self, path: str) -> None:
        """Forget the last file and take spans' file name from `path`."""
        self.path = path
        self.diagnostics: list[Diagnostic] = []
        self._comments: dict[int, str] = {}

    def comment(self, token: Token) -> Token:
        """Remember a comment by its line: an item's first line gives its doc."""
        assert token.line is not None
        self._comments[token.line] = str(token).lstrip("#").strip()
        return token

    # --- spans

    def _span(self, children: Sequence[Any]) -> Span:
        first, last = children[0], children[-1]
        if isinstance(first, Token):
            line, column = first.line or 1, first.column or 1
        else:
            line, column = first.span.line, first.span.column
        if isinstance(last, Token):
            return Span(self.path, line, column, last.end_line or line, last.end_column or column)
        return Span(self.path, line, column, last.span.end_line, last.span.end_column)

    def _complain(self, code: str, message: str, span: Span, *labels: Label, hint: str = "") -> None:
        self.diagnostics.append(Diagnostic(code, message, span, labels, hint))

    # --- types

    def type_expression(self, children: list[Any]) -> ast.TypeExpr:
        """`const f32[N, ..s]`."""
        element = next((c.value for c in children if isinstance(c, Part) and c.what == "element"), None)
        shape = next((c.value for c in children if isinstance(c, Part) and c.what == "shape"), None)
        const = is_token(children[0], "CONST")
        return ast.TypeExpr(span=self._span(children), const=const, element=element, shape=shape)

    def element(self, children: list[Any]) -> Part:
        """A dtype, dtype class or `scalar`."""
        return Part("element", str(children[0]), self._span(children))

    def shape(self, children: list[Any]) -> Part:
        """`[N, 3, ..s]`."""
        return Part("shape", nodes(children), self._span(children))

    def any_dim(self, children: list[Any]) -> ast.AnyDim:
        """`_`."""
        return ast.AnyDim(span=self._span(children))

    def shape_rest(self, children: list[Any]) -> ast.ShapeRest:
        """`..s`."""
        return ast.ShapeRest(span=self._span(children), name=str(children[1]) if len(children) > 1 else None)

    # --- expressions

    def binary(self, children: list[Any]) -> ast.Binary:
        """`left op right`."""
        left, operator, right = children
        return ast.Binary(span=self._span(children), operator=str(operator), left=left, right=right)

    def unary(self, children: list[Any]) -> ast.Expr:
        """`-x`, `not x`; a minus before a literal is part of the literal."""
        operator, operand = children
        span = self._span(children)
        if operator == "-" and isinstance(operand, ast.Number) and not _is_negative(operand):
            return ast.Number(span=span, value=-operand.value)
        return ast.Unary(span=span, operator=str(operator), operand=operand)

    def compare(self, children: list[Any]) -> ast.Expr:
        """`left op right`; `a not in b` is `not (a in b)`."""
        left, operator, right = children
        span = self._span(children)
        if operator.value == "not in":
            inner = ast.Compare(span=span, operator="in", left=left, right=right)
            return ast.Unary(span=span, operator="not", operand=inner)
        return ast.Compare(span=span, operator=operator.value, left=left, right=right)

    def compare_op(self, children: list[Any]) -> Part:
        """`==`, `not in`, `is not` …"""
        return Part("compare_op", " ".join(str(c) for c in children), self._span(children))

    def inclusive(self, children: list[Any]) -> ast.Range:
        """`low .. high`."""
        return ast.Range(span=self._span(children), low=children[0], high=children[2])

    def subscript(self, children: list[Any]) -> ast.Subscript:
        """`p[i]`, `xs[*]`."""
        return ast.Subscript(span=self._span(children), base=children[0], index=children[2])

    def every(self, children: list[Any]) -> ast.All:
        """`*` in brackets."""
        return ast.All(span=self._span(children))

    def name(self, children: list[Any]) -> ast.Name:
        """A variable or constant word."""
        return ast.Name(span=self._span(children), id=str(children[0]))

    def number(self, children: list[Any]) -> ast.Number:
        """A literal number: an int without point and exponent, else a float."""
        text, span = str(children[0]), self._span(children)
        value = float(text)
        if not math.isfinite(value):
            self._complain("number-too-large", "this number is too large; infinity is written `inf`", span)
        return ast.Number(span=span, value=int(text) if text.isdigit() and math.isfinite(value) else value)

    def string(self, children: list[Any]) -> ast.String:
        """A literal string."""
        return ast.String(span=self._span(children), value=str(children[0])[1:-1])

    def parenthesised(self, children: list[Any]) -> ast.Expr:
        """`(expr)`: the expression itself, with the parentheses in its span."""
        inner: ast.Expr = children[1]
        return replace(inner, span=self._span(children))

    def alternatives(self, children: list[Any]) -> ast.Alternatives:
        """`(a | b)`."""
        return ast.Alternatives(span=self._span(children), options=nodes(children))

    def conditional(self, children: list[Any]) -> ast.Conditional:
        """`(then if condition else otherwise)`."""
        then, condition, otherwise = nodes(children)
        return ast.Conditional(span=self._span(children), then=then, condition=condition, otherwise=otherwise)

    def list_literal(self, children: list[Any]) -> ast.ListExpr:
        """`[a, b]`."""
        return ast.ListExpr(span=self._span(children), items=nodes(children))

    def comprehension(self, children: list[Any]) -> ast.Comprehension:
        """`[item for variable in iterable if condition]`."""
        return ast.Comprehension(
            span=self._span(children),
            item=children[1],
            variable=str(children[3]),
            iterable=children[5],
            condition=children[7] if len(children) > 7 else None,
        )

    def call(self, children: list[Any]) -> ast.Call:
        """`Conv(x, W, ..a)`, `rank(x)`."""
        return self._call(self._span(children), str(children[0]), children[1].value, None)

    def class_head(self, children: list[Any]) -> ast.Call:
        """`elementwise f(x)`."""
        return self._call(self._span(children), str(children[1]), children[2].value, str(children[0]))

    def _call(self, span: Span, head: str, arguments: tuple[ast.Syntax, ...], kind: str | None) -> ast.Call:
        inputs: list[ast.Expr] = []
        attributes: list[ast.Attribute] = []
        rest: ast.Rest | None = None
        for argument in arguments:
            if isinstance(argument, ast.Attribute):
                attributes.append(argument)
            elif isinstance(argument, ast.Rest):
                if rest is not None:
                    self._complain("duplicate-rest", f"`{head}` has two `..`", argument.span, Label(rest.span, "here"))
                rest = argument
            else:
                assert isinstance(argument, ast.Expr)
                if attributes or rest:
                    self._complain("input-after-attribute", "inputs come before attributes and `..`", argument.span)
                inputs.append(argument)
        return ast.Call(span=span, head=head, args=tuple(inputs), attributes=tuple(attributes), rest=rest, kind=kind)

    def arguments(self, children: list[Any]) -> Part:
        """All that stands in an operator's or function's parentheses."""
        return Part("arguments", nodes(children), self._span(children))

    def each(self, children: list[Any]) -> ast.Each:
        """`P ...`."""
        return ast.Each(span=self._span(children), value=children[0])

    def default(self, children: list[Any]) -> ast.Optional:
        """`B = 0`."""
        return ast.Optional(span=self._span(children), name=str(children[0]), default=children[2])

    def attribute(self, children: list[Any]) -> ast.Attribute:
        """`axis: a`, `pads: p = [0, 0]`."""
        default = children[4] if len(children) > 3 else None
        return ast.Attribute(span=self._span(children), name=str(children[0]), value=children[2], default=default)

    def rest(self, children: list[Any]) -> ast.Rest:
        """`..a`."""
        return ast.Rest(span=self._span(children), name=str(children[1]) if len(children) > 1 else None)


def is_token(child: Any, token_type: str) -> bool:
    """Whether a child is a token of this type."""
    return isinstance(child, Token) and child.type == token_type


def nodes(children: list[Any]) -> tuple[Any, ...]:
    """The children that are syntax."""
    return tuple(c for c in children if isinstance(c, ast.Syntax))


def _is_negative(number: ast.Number) -> bool:
    return str(number.value).startswith("-")
