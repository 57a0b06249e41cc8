"""Builder of the syntax tree: productions of `rules.lark` to nodes.

The parser calls one production per reduction. Its children come in order, punctuation included: the first and the last
give the span. Productions that only build a node or a `Part` are entries of `PRODUCTIONS`; those that check something
or choose between nodes are methods. What the grammar cannot express (each clause once, the right clauses in each item)
is checked here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeAlias

from lark import Token

from ..builtins import CLASSES, CLAUSES, DIRECTIONS, LIMITS, OP_FLAGS, RELAXATIONS, WARNINGS, WORDS
from ..diagnostics import Diagnostic, Fix, Label, did_you_mean
from . import ast
from .ast import Span

Children: TypeAlias = list[Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of an item that is not a syntax node itself: a clause, a parameter list, a call's arguments."""

    what: str
    value: Any
    span: Span


class Builder:
    """Builds the syntax tree of one file at a time: `begin`, then parse, then read `diagnostics`.

    `productions` are what Lark calls with the children of a reduction."""

    def __init__(self) -> None:
        self.begin("")
        methods = {name: method for name, method in vars(Builder).items() if not name.startswith("_")}
        made = {name: partial(self._reduce, make) for name, make in (methods | PRODUCTIONS).items()}
        self.productions: Any = SimpleNamespace(**made)

    def begin(self, path: str) -> None:
        """Start a new file; spans refer to `path`."""
        self.path = path
        self.diagnostics: list[Diagnostic] = []
        self._comments: dict[int, str] = {}

    def comment(self, token: Token) -> Token:
        """Record a comment by its line: the one on an item's first line is its doc."""
        assert token.line is not None
        self._comments[token.line] = str(token).lstrip("#").strip()
        return token

    def _reduce(self, make: Callable[[Builder, Span, Children], Any], children: Children) -> Any:
        return make(self, self._span(children), children)

    def _span(self, children: Sequence[Any]) -> Span:
        if not children:
            return Span(self.path, 1, 1, 1, 1)
        first = span_of(children[0], self.path)
        return first if len(children) == 1 else first.to(span_of(children[-1], self.path))

    def _complain(self, code: str, message: str, span: Span, *labels: Label, hint: str = "") -> None:
        self.diagnostics.append(Diagnostic(code, message, span, labels, hint))

    def _word(self, token: Token, word: str, hint: str) -> None:
        """Report a word that is not the only one allowed here."""
        if token != word:
            self._complain("unknown-word", f"unexpected word `{token}`", self._span([token]), hint=hint)

    def _one_of(self, code: str, what: str, word: Token, choices: Sequence[str]) -> None:
        if word not in choices:
            hint = did_you_mean(word, choices) or "use one of " + ", ".join(f"`{c}`" for c in choices)
            self._complain(code, f"unknown {what} `{word}`", self._span([word]), hint=hint)

    def _whole(self, token: Token, what: str) -> int:
        """Return a positive integer; report any other number."""
        if token.isdigit() and len(token) < 10 and int(token):
            return int(token)
        self._complain("bad-number", f"{what} must be a positive integer", self._span([token]))
        return 1

    # --- items

    def start(self, span: Span, children: Children) -> ast.RuleFile:
        """The whole file."""
        doc = _text(children[0]) if children and isinstance(children[0], Token) else ""
        items = _documented([c for c in children if isinstance(c, ast.Item)])
        return ast.RuleFile(span=span, path=self.path, doc=doc, items=items)

    def rule(self, span: Span, children: Children) -> ast.Rule:
        """`rule NAME lhs => rhs clauses`."""
        return ast.Rule(**self._rewrite("rule", span, children), bidirectional=_arrow(children) == "<=>")

    def fuse(self, span: Span, children: Children) -> ast.Fuse:
        """`fuse NAME lhs => rhs clauses`."""
        if (arrow := _arrow(children)) != "=>":
            at = self._span([arrow])
            message = "a `fuse` has one direction: write `=>`"
            self.diagnostics.append(Diagnostic("misplaced-arrow", message, at, fix=Fix(at, "=>")))
        return ast.Fuse(**self._rewrite("fuse", span, children))

    def _rewrite(self, item: str, span: Span, children: Children) -> dict[str, Any]:
        at = children.index(_arrow(children))
        sides = {"lhs": children[at - 1], "rhs": children[at + 1]}
        return self._head(span, children) | sides | self._clauses(item, children[at + 2 :])

    def op(self, span: Span, children: Children) -> ast.Op:
        """`op NAME(params) = definition clauses`."""
        parts = [c for c in children if isinstance(c, Part)]
        head = {p.what: p.value for p in parts if p.what in ("params", "results", "definition")}
        clauses = self._clauses("op", [p for p in parts if p.what not in head])
        for relaxation in clauses.pop("relaxations", ())[:1]:
            at = next(p.span for p in parts if p.what == "class")
            self._complain("unknown-class", f"an `op` has one class; remove the relaxation `{relaxation}`", at)
        return ast.Op(**self._head(span, children), **head, **clauses)

    def define(self, span: Span, children: Children) -> ast.Def:
        """`def NAME(params) = body`."""
        head = itertools.takewhile(lambda c: not _is(c, "EQUAL"), children[3:])
        params = tuple(str(c) for c in head if not _is(c, "LPAR", "RPAR", "COMMA", "DOC"))
        return ast.Def(**self._head(span, children), params=params, body=children[-1])

    def use(self, span: Span, children: Children) -> ast.Use:
        """`use "path"`, `use "path" (rule, Operator)`."""
        names = tuple(str(c) for c in children[2:] if _is(c, "NAME", "QNAME"))
        return ast.Use(span=span, doc=self._doc(span, children), path=_quoted(children[1]), names=names)

    def domain(self, span: Span, children: Children) -> ast.UseDomain:
        """`use onnx(13)`, `use onnx(13 ..)`, `use onnx(13 .. 24)`."""
        low, *high = [self._whole(c, "a version") for c in children if _is(c, "NUMBER")]
        last = high[0] if high else None if ".." in children else low
        return ast.UseDomain(span=span, doc=self._doc(span, children), domain=str(children[1]), low=low, high=last)

    def ruleset(self, span: Span, children: Children) -> ast.Ruleset:
        """`ruleset NAME limits`."""
        clauses = self._clauses("ruleset", [c for c in children if isinstance(c, Part)])
        return ast.Ruleset(**self._head(span, children), limits=_nodes(children), **clauses)

    def limit(self, span: Span, children: Children) -> ast.Limit:
        """`matches 1000`."""
        name, number = children
        value: int | float = float(number)
        if name != "seconds":
            value = self._whole(number, f"`{name}`")
        elif not 0 < value < math.inf:
            self._complain("bad-number", "`seconds` must be positive", self._span([number]))
        self._one_of("unknown-limit", "limit", name, LIMITS)
        return ast.Limit(span=span, name=str(name), value=value)

    def schedule(self, span: Span, children: Children) -> ast.Schedule:
        """`schedule NAME = steps`."""
        return ast.Schedule(**self._head(span, children), steps=_nodes(children))

    def saturate(self, span: Span, children: Children) -> ast.Saturate:
        """`saturate(steps)`."""
        self._word(children[0], "saturate", "to run steps until nothing changes, write `saturate(..)`")
        return ast.Saturate(span=span, steps=_nodes(children))

    def repeated(self, span: Span, children: Children) -> ast.Repeat:
        """`repeat N (steps)`."""
        self._word(children[0], "repeat", "to run steps several times, write `repeat 3 (..)`")
        count = self._whole(children[1], "the number of repetitions")
        return ast.Repeat(span=span, count=count, steps=_nodes(children))

    def _head(self, span: Span, children: Children) -> dict[str, Any]:
        return {"span": span, "doc": self._doc(span, children), "name": str(children[1])}

    def _doc(self, span: Span, children: Children) -> str:
        doc = next((child for child in children if _is(child, "DOC")), None)
        return self._comments.get(span.line, "") if doc is None else _text(doc)

    def _clauses(self, item: str, clauses: list[Part]) -> dict[str, Any]:
        """Return the clauses of an item by field; report repeated and misplaced ones."""
        found: dict[str, Part] = {}
        lists: dict[str, list[Any]] = {"test": [], "allow": []}
        for clause in clauses:
            if clause.what not in CLAUSES[item]:
                message = f"{'an' if item == 'op' else 'a'} `{item}` has no `{clause.what}` clause"
                hint = "it allows " + ", ".join(f"`{c}`" for c in CLAUSES[item])
                self._complain("misplaced-clause", message, clause.span, hint=hint)
            elif clause.what in lists:
                lists[clause.what].append(clause.value)
            elif clause.what in found:
                first = Label(found[clause.what].span, "the first one is here")
                what = "duplicate" if item == "ruleset" else "duplicate clause"
                self._complain("duplicate-clause", f"{what} `{clause.what}`", clause.span, first)
            else:
                found[clause.what] = clause
        fields = _by_kind(found.values()) | {f"{name}s": tuple(values) for name, values in lists.items() if values}
        if numerics := fields.pop("class", ()):
            fields |= {"numerics": numerics[0], "relaxations": numerics[1:]}
        return fields

    def typed_param(self, span: Span, children: Children) -> ast.Param:
        """`x: f32[N]`, `b: T[N] = none`; `flag: true` is an attribute, since `true` is not a type."""
        name, type_ = str(children[0]), _param_type(children)
        default = children[-1] if _is(children[-2], "EQUAL") else None
        if type_ is not None and type_.shape is None and type_.element in WORDS and default is None:
            return ast.Param(span=span, name=name, attribute=ast.Name(span=type_.span, id=type_.element))
        return ast.Param(span=span, name=name, default=default, type=type_)

    # --- clauses

    def numerics(self, span: Span, children: Children) -> Part:
        """`class exact signed_zero`."""
        _, numerics, *relaxations = children
        self._one_of("unknown-class", "class", numerics, CLASSES)
        for word in relaxations:
            self._one_of("unknown-class", "relaxation", word, RELAXATIONS)
            if numerics in CLASSES[1:]:
                message = f"`{word}` is redundant: it relaxes `exact`, and `{numerics}` implies it"
                self._complain("unknown-class", message, self._span([word]))
        return Part("class", tuple(str(c) for c in children[1:]), span)

    def direction(self, span: Span, children: Children) -> Part:
        """`direction explore`."""
        self._one_of("unknown-direction", "direction", children[1], DIRECTIONS)
        return Part("direction", str(children[1]), span)

    def allow(self, span: Span, children: Children) -> Part:
        """`allow overlap "reason"`."""
        self._one_of("unknown-warning", "warning", children[1], WARNINGS)
        reason = _quoted(children[2]).strip()
        if not reason:
            self._complain("unknown-warning", "`allow` needs a reason", self._span(children[2:]))
        return Part("allow", ast.Allow(span=span, code=str(children[1]), reason=reason), span)

    def test(self, span: Span, children: Children, **fields: Any) -> Part:
        """`test fires operands gives expr`."""
        return Part("test", ast.RuleTest(span=span, verdict=str(children[1]), **_by_kind(children), **fields), span)

    def test_model(self, span: Span, children: Children) -> Part:
        """`test fires model "file.onnx" times 3`."""
        self._word(children[2], "model", 'to test on a model, write `test fires model "file.onnx"`')
        times = None
        if len(children) > 4:
            self._word(children[4], "times", "for the number of applications, write `times 3`")
            times = self._whole(children[5], "`times`")
            if children[1] == "refuses":
                message = "a `refuses` test has no number of applications"
                self._complain("bad-operand", message, self._span(children[4:]), hint="remove it or write `fires`")
        return self.test(span, children, model=_quoted(children[3]), times=times)

    def test_term(self, span: Span, children: Children) -> Part:
        """`test refuses in term for operands`."""
        return self.test(span, children, term=children[3])

    def test_equals(self, span: Span, children: Children) -> Part:
        """`test equals left == right for operands`."""
        claim = children[2]
        if isinstance(claim, ast.Compare) and claim.operator == "==":
            return self.test(span, children, equals=(claim.left, claim.right))
        hint = "for example `test equals x * 1 == x for x: f32[2,3]`"
        self._complain("bad-operand", "an `equals` test must compare two terms with `==`", claim.span, hint=hint)
        return self.test(span, children)

    # --- types

    def type_expression(self, span: Span, children: Children) -> ast.TypeExpr:
        """`const f32[N, ..s]`, `broadcasts to [N, 3]`."""
        absent = {"element": None, "shape": None}
        return ast.TypeExpr(span=span, const=_is(children[0], "CONST"), **absent | _by_kind(children))

    def broadcasts(self, span: Span, children: Children) -> Part:
        """`broadcasts to [N, 3]`."""
        self._word(children[1], "to", "write `to`")
        return Part("broadcasts", children[2], span)

    # --- expressions

    def unary(self, span: Span, children: Children) -> ast.Expr:
        """`-x`, `not x`; a minus before a literal is part of the literal."""
        operator, operand = children
        if operator == "-" and isinstance(operand, ast.Number) and not str(operand.value).startswith("-"):
            return ast.Number(span=span, value=-operand.value)
        return ast.Unary(span=span, operator=str(operator), operand=operand)

    def compare(self, span: Span, children: Children) -> ast.Expr:
        """`left op right`; `a not in b` is `not (a in b)`."""
        left, operator, right = children
        if operator.value == "not in":
            inner = ast.Compare(span=span, operator="in", left=left, right=right)
            return ast.Unary(span=span, operator="not", operand=inner)
        return ast.Compare(span=span, operator=operator.value, left=left, right=right)

    def number(self, span: Span, children: Children) -> ast.Number:
        """A literal number: an int without point and exponent, otherwise a float."""
        text, value = str(children[0]), float(children[0])
        if not math.isfinite(value):
            self._complain("number-too-large", "this number is too large; write `inf` for infinity", span)
        return ast.Number(span=span, value=int(text) if text.isdigit() and math.isfinite(value) else value)

    def call(self, span: Span, children: Children) -> ast.Call:
        """`Conv(x, W, ..a)`, `rank(x)`, `elementwise f(x)`."""
        *kind, head, arguments = children
        inputs: list[ast.Expr] = []
        attributes: list[ast.Attribute] = []
        rest: ast.Rest | None = None
        for argument in arguments.value:
            if isinstance(argument, ast.Attribute):
                attributes.append(argument)
            elif isinstance(argument, ast.Rest):
                if rest is not None:
                    first = Label(rest.span, "the first one is here")
                    self._complain("duplicate-rest", f"`{head}` has two `..`", argument.span, first)
                rest = argument
            else:
                if attributes or rest:
                    message = "inputs must come before attributes and `..`"
                    self._complain("input-after-attribute", message, argument.span)
                inputs.append(argument)
        made = ast.Call(span=span, head=str(head), args=tuple(inputs), attributes=tuple(attributes), rest=rest)
        return replace(made, kind=str(kind[0])) if kind else made


def span_of(child: Any, path: str) -> Span:
    """Return the span of a node, or of a token in the file `path`."""
    if not isinstance(child, Token):
        found: Span = child.span
        return found
    line, column = child.line or 1, child.column or 1
    return Span(path, line, column, child.end_line or line, child.end_column or column + 1)


def _is(child: Any, *types: str) -> bool:
    return isinstance(child, Token) and child.type in types


def _arrow(children: Children) -> Token:
    arrow: Token = next(c for c in children if _is(c, "ARROW"))
    return arrow


def _nodes(children: Children) -> tuple[Any, ...]:
    return tuple(c for c in children if isinstance(c, ast.Syntax))


def _by_kind(children: Iterable[Any]) -> dict[str, Any]:
    return {c.what: c.value for c in children if isinstance(c, Part)}


def _quoted(token: Token) -> str:
    return str(token)[1:-1]


def _text(token: Token) -> str:
    """Return the text of a docstring without its quotes and indentation."""
    return "\n".join(line.strip() for line in str(token)[3:-3].strip().split("\n"))


def _documented(items: Sequence[ast.Item]) -> tuple[ast.Item, ...]:
    """Return the items of a file; of several on one line, only the last owns the comment at its end."""
    out = list(items)
    for i, (item, following) in enumerate(itertools.pairwise(items)):
        if item.span.line == following.span.line and item.doc and item.doc == following.doc:
            out[i] = replace(item, doc="")
    return tuple(out)


def _param_type(children: Children) -> ast.TypeExpr | None:
    parts = [c for c in children if isinstance(c, Part)]
    if not parts:
        return None
    return ast.TypeExpr(span=parts[0].span.to(parts[-1].span), const=False, **{"shape": None} | _by_kind(parts))


def _part(what: str, value: Callable[[Children], Any]) -> Callable[[Builder, Span, Children], Part]:
    return lambda _, span, children: Part(what, value(children), span)


def _node(kind: type[Any], **places: int) -> Callable[[Builder, Span, Children], Any]:
    """Return a builder of nodes whose fields are the children at these places; None where there are fewer."""

    def field(children: Children, place: int) -> Any:
        child = children[place] if place < len(children) else None
        return str(child) if isinstance(child, Token) else child

    return lambda _, span, children: kind(span=span, **{name: field(children, at) for name, at in places.items()})


PRODUCTIONS: dict[str, Callable[[Builder, Span, Children], Any]] = {
    "opname": lambda _, span, c: c[0],
    "run": _node(ast.Run, ruleset=0),
    "roots": lambda _, span, c: ast.Roots(span=span, bindings=_nodes(c)),
    "binding": _node(ast.Binding, target=0, value=2),
    "target": _node(ast.Target, name=0, index=2),
    "input_param": _node(ast.Param, name=0),
    "optional_param": _node(ast.Param, name=0, default=2),
    "attribute_param": _node(ast.Param, name=0, attribute=2),
    "variadic_param": lambda _, span, c: ast.Param(span=span, name=str(c[0]), variadic=True, type=_param_type(c)),
    "typed": lambda _, span, c: ast.Given(span=span, targets=_nodes(c[:-1]), type=c[-1]),
    "operand": lambda _, span, c: ast.Operand(
        span=span,
        target=c[0],
        type=next((child for child in c if isinstance(child, ast.TypeExpr)), None),
        value=c[-1] if len(c) > 2 and _is(c[-2], "EQUAL") else None,
    ),
    **{clause: _part(clause, lambda c: str(c[1])) for clause in ("joins", "kind")},
    **{clause: _part(clause, lambda c: c[1]) for clause in ("definition", "order", "gives")},
    **{clause: _part(clause, lambda _: True) for clause in OP_FLAGS},
    **{what: _part(what, _nodes) for what in ("params", "results", "given", "where", "let", "operands")},
    "element": _part("element", lambda c: str(c[0])),
    "shape": _part("shape", _nodes),
    "any_dim": _node(ast.AnyDim),
    "shape_rest": _node(ast.ShapeRest, name=1),
    "arguments": _part("arguments", _nodes),
    "class_head": Builder.call,
    "compare_op": _part("compare_op", " ".join),
    "binary": _node(ast.Binary, left=0, operator=1, right=2),
    "inclusive": _node(ast.Range, low=0, high=2),
    "subscript": _node(ast.Subscript, base=0, index=2),
    "every": _node(ast.All),
    "name": _node(ast.Name, id=0),
    "string": lambda _, span, c: ast.String(span=span, value=_quoted(c[0])),
    "parenthesized": lambda _, span, c: replace(c[1], span=span),
    "optional_operand": _node(ast.Optional, name=1, default=3),
    "default": _node(ast.Optional, name=0, default=2),
    "alternatives": lambda _, span, c: ast.Alternatives(span=span, options=_nodes(c)),
    "conditional": _node(ast.Conditional, then=1, condition=3, otherwise=5),
    "list_literal": lambda _, span, c: ast.ListExpr(span=span, items=_nodes(c)),
    "comprehension": _node(ast.Comprehension, item=1, variable=3, iterable=5, condition=7),
    "each": _node(ast.Each, value=0),
    "attribute": _node(ast.Attribute, name=0, value=2, default=4),
    "rest": _node(ast.Rest, name=1),
}
"""The productions that are not methods of `Builder`."""
