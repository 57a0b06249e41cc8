"""The syntax tree's builder: one method for every production of `rules.lark`, called by the parser as it reduces.

Those of types and expressions are in `build_terms`. Every method takes the production's children in order, punctuation
included, since the first and the last of them give the span. What a production means but its grammar cannot say (each
clause once, the right clauses in the right item) is found here and kept in `diagnostics`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lark import Token

from . import ast
from .ast import Span
from .build_terms import Part, TermBuilder, is_token, nodes
from .builtins import CLASSES, DIRECTIONS, LIMITS, RELAXATIONS, WARNINGS, WORDS
from .diagnostics import Diagnostic, Fix, Label, did_you_mean

_CLAUSES = {
    "rule": ("given", "where", "let", "class", "direction", "joins", "order", "allow", "test"),
    "fuse": ("given", "where", "test"),
    "op": ("kind", "commutative", "impure", "given", "where", "class", "test"),
}


class Builder(TermBuilder):
    """Builds the syntax tree of one file at a time: `begin`, then parse, then read `diagnostics`."""

    # --- items

    def start(self, children: list[Any]) -> ast.RuleFile:
        """The whole file."""
        span = self._span(children) if children else Span(self.path, 1, 1, 1, 1)
        doc = _doc(children[0]) if children and isinstance(children[0], Token) else ""
        items = _documented([c for c in children if isinstance(c, ast.Item)])
        return ast.RuleFile(span=span, path=self.path, doc=doc, items=items)

    def rule(self, children: list[Any]) -> ast.Rule:
        """`rule NAME lhs => rhs clauses`."""
        at = next(i for i, c in enumerate(children) if is_token(c, "ARROW"))
        span = self._span(children)
        clauses = self._clauses("rule", children[at + 2 :])
        numerics = clauses.get("class", ("exact",))
        return ast.Rule(
            span=span,
            doc=self._item_doc(children, span),
            name=str(children[1]),
            lhs=children[at - 1],
            rhs=children[at + 1],
            bidirectional=children[at] == "<=>",
            given=clauses.get("given", ()),
            where=clauses.get("where", ()),
            let=clauses.get("let", ()),
            numerics=numerics[0],
            relaxations=numerics[1:],
            direction=clauses.get("direction", "simplify"),
            joins=clauses.get("joins"),
            allows=clauses["allow"],
            order=clauses.get("order"),
            tests=clauses["test"],
        )

    def fuse(self, children: list[Any]) -> ast.Fuse:
        """`fuse NAME lhs => rhs clauses`."""
        at = next(i for i, c in enumerate(children) if is_token(c, "ARROW"))
        span = self._span(children)
        if children[at] != "=>":
            arrow = self._span(children[at : at + 1])
            message = "a `fuse` goes one way: write `=>`"
            self.diagnostics.append(Diagnostic("misplaced-arrow", message, arrow, fix=Fix(arrow, "=>")))
        clauses = self._clauses("fuse", children[at + 2 :])
        return ast.Fuse(
            span=span,
            doc=self._item_doc(children, span),
            name=str(children[1]),
            lhs=children[at - 1],
            rhs=children[at + 1],
            given=clauses.get("given", ()),
            where=clauses.get("where", ()),
            tests=clauses["test"],
        )

    def op(self, children: list[Any]) -> ast.Op:
        """`op NAME(params) = definition clauses`."""
        span = self._span(children)
        parts = [c for c in children if isinstance(c, Part)]
        head = {p.what: p.value for p in parts if p.what in ("params", "results", "definition")}
        clauses = self._clauses("op", [p for p in parts if p.what not in head])
        numerics = clauses.get("class", ("reassoc",))
        if numerics[1:]:
            at = next(p.span for p in parts if p.what == "class")
            self._complain("unknown-class", f"an `op` takes one class and no relaxation `{numerics[1]}`", at)
        return ast.Op(
            span=span,
            doc=self._item_doc(children, span),
            name=str(children[1]),
            params=head.get("params"),
            definition=head.get("definition"),
            kind=clauses.get("kind"),
            commutative=clauses.get("commutative", False),
            impure=clauses.get("impure", False),
            results=head.get("results", ()),
            given=clauses.get("given", ()),
            where=clauses.get("where", ()),
            numerics=numerics[0],
            tests=clauses["test"],
        )

    def define(self, children: list[Any]) -> ast.Def:
        """`def NAME(params) = body`."""
        span = self._span(children)
        at = next(i for i, c in enumerate(children) if is_token(c, "EQUAL"))
        params = tuple(c.id if isinstance(c, ast.Name) else str(c) for c in children[3:at] if _is_word(c))
        return ast.Def(
            span=span, doc=self._item_doc(children, span), name=str(children[1]), params=params, body=children[-1]
        )

    def use(self, children: list[Any]) -> ast.Use:
        """`use "path"`, `use "path" (rule, Operator)`."""
        span = self._span(children)
        names = tuple(str(c) for c in children[2:] if c.type in ("NAME", "QNAME"))
        return ast.Use(span=span, doc=self._item_doc(children, span), path=str(children[1])[1:-1], names=names)

    def domain(self, children: list[Any]) -> ast.UseDomain:
        """`use onnx(13)`, `use onnx(13 ..)`, `use onnx(13 .. 24)`."""
        span = self._span(children)
        versions = [self._whole(c, "a version") for c in children if is_token(c, "NUMBER")]
        open_end = len(versions) == 1 and any(c == ".." for c in children)
        high = None if open_end else versions[-1]
        doc = self._item_doc(children, span)
        return ast.UseDomain(span=span, doc=doc, domain=str(children[1]), low=versions[0], high=high)

    def _whole(self, token: Token, what: str) -> int:
        """A number that has to be a whole one, 1 or more."""
        if token.isdigit() and len(token) < 10 and int(token):
            return int(token)
        self._complain("bad-number", f"{what} is a whole number from 1 on", self._span([token]))
        return 1

    def ruleset(self, children: list[Any]) -> ast.Ruleset:
        """`ruleset NAME limits`."""
        span = self._span(children)
        joins = [c for c in children if isinstance(c, Part)]
        if joins[1:]:
            first = Label(joins[0].span, "the first one is here")
            self._complain("duplicate-clause", "`joins` is given twice", joins[1].span, first)
        return ast.Ruleset(
            span=span, doc=self._item_doc(children, span), name=str(children[1]), limits=nodes(children),
            joins=joins[0].value if joins else None,
        )  # fmt: skip

    def limit(self, children: list[Any]) -> ast.Limit:
        """`matches 1000`."""
        name, number = str(children[0]), children[1]
        if name == "seconds":
            value: int | float = float(number)
            if not 0 < value < math.inf:
                self._complain("bad-number", "`seconds` is a number above 0", self._span([number]))
        else:
            value = self._whole(number, f"`{name}`")
        self._one_of("unknown-limit", "limit", children[0], LIMITS)
        return ast.Limit(span=self._span(children), name=name, value=value)

    def part_of(self, children: list[Any]) -> Part:
        """`joins NAME` of a ruleset."""
        return Part("joins", str(children[1]), self._span(children))

    def schedule(self, children: list[Any]) -> ast.Schedule:
        """`schedule NAME = steps`."""
        span = self._span(children)
        doc = self._item_doc(children, span)
        return ast.Schedule(span=span, doc=doc, name=str(children[1]), steps=nodes(children))

    def run(self, children: list[Any]) -> ast.Run:
        """The name of a ruleset."""
        return ast.Run(span=self._span(children), ruleset=str(children[0]))

    def saturate(self, children: list[Any]) -> ast.Saturate:
        """`saturate(steps)`."""
        self._word(children[0], "saturate", "to run steps until nothing changes is written `saturate(..)`")
        return ast.Saturate(span=self._span(children), steps=nodes(children))

    def repeated(self, children: list[Any]) -> ast.Repeat:
        """`repeat N (steps)`."""
        self._word(children[0], "repeat", "to run steps several times is written `repeat 3 (..)`")
        count = self._whole(children[1], "how often to repeat")
        return ast.Repeat(span=self._span(children), count=count, steps=nodes(children))

    def _word(self, token: Token, word: str, hint: str) -> None:
        """Complain of a word that is not the only one which may stand there."""
        if token != word:
            self._complain("unknown-word", f"`{token}` means nothing here", self._span([token]), hint=hint)

    def _item_doc(self, children: list[Any], span: Span) -> str:
        for child in children:
            if is_token(child, "DOC"):
                return _doc(child)
        return self._comments.get(span.line, "")

    def _clauses(self, item: str, clauses: list[Part]) -> dict[str, Any]:
        """The clauses of an item by name, tests as a tuple; complains about the second of a kind and misplaced ones."""
        found: dict[str, Part] = {}
        tests = []
        allows = []
        for clause in clauses:
            if clause.what not in _CLAUSES[item]:
                self._complain(
                    "misplaced-clause",
                    f"{'an' if item == 'op' else 'a'} `{item}` has no `{clause.what}` clause",
                    clause.span,
                    hint="it may have " + ", ".join(f"`{c}`" for c in _CLAUSES[item]),
                )
            elif clause.what == "test":
                tests.append(clause.value)
            elif clause.what == "allow":
                allows.append(clause.value)
            elif clause.what in found:
                first = Label(found[clause.what].span, "the first one is here")
                self._complain("duplicate-clause", f"`{clause.what}` is given twice", clause.span, first)
            else:
                found[clause.what] = clause
        return {**{name: clause.value for name, clause in found.items()}, "test": tuple(tests), "allow": tuple(allows)}

    def roots(self, children: list[Any]) -> ast.Roots:
        """`{ a = .., b = .. }`."""
        return ast.Roots(span=self._span(children), bindings=nodes(children))

    def binding(self, children: list[Any]) -> ast.Binding:
        """`target = value`."""
        return ast.Binding(span=self._span(children), target=children[0], value=children[2])

    def target(self, children: list[Any]) -> ast.Target:
        """`y`, `y[i]` or `y[*]`."""
        index = children[2] if len(children) > 1 else None
        return ast.Target(span=self._span(children), name=str(children[0]), index=index)

    def opname(self, children: list[Any]) -> Token:
        """The name of a declared operator."""
        name: Token = children[0]
        return name

    def params(self, children: list[Any]) -> Part:
        """The parameters of an operator."""
        return Part("params", nodes(children), self._span(children))

    def input_param(self, children: list[Any]) -> ast.Param:
        """`x`."""
        return ast.Param(span=self._span(children), name=str(children[0]))

    def optional_param(self, children: list[Any]) -> ast.Param:
        """`x = default`."""
        return ast.Param(span=self._span(children), name=str(children[0]), default=children[2])

    def variadic_param(self, children: list[Any]) -> ast.Param:
        """`xs[*]`, `xs[*]: T[N]`."""
        type_ = self._param_type(children[5:]) if len(children) > 5 else None
        return ast.Param(span=self._span(children), name=str(children[0]), variadic=True, type=type_)

    def attribute_param(self, children: list[Any]) -> ast.Param:
        """`alpha: default`."""
        return ast.Param(span=self._span(children), name=str(children[0]), attribute=children[2])

    def typed_param(self, children: list[Any]) -> ast.Param:
        """`x: f32[N]`, `b: T[N] = none`; `flag: true` is an attribute, since `true` is no type."""
        span, name = self._span(children), str(children[0])
        default = children[-1] if is_token(children[-2], "EQUAL") else None
        parts = [c for c in children if isinstance(c, Part)]
        if len(parts) == 1 and parts[0].value in WORDS and default is None:
            return ast.Param(span=span, name=name, attribute=ast.Name(span=parts[0].span, id=parts[0].value))
        return ast.Param(span=span, name=name, default=default, type=self._param_type(parts))

    def _param_type(self, parts: Sequence[Part]) -> ast.TypeExpr:
        """The type of a parameter from its element and shape."""
        shape = parts[1].value if len(parts) > 1 else None
        span = parts[0].span.to(parts[-1].span)
        return ast.TypeExpr(span=span, const=False, element=parts[0].value, shape=shape)

    def results(self, children: list[Any]) -> Part:
        """`-> T[N]`, `-> (T[N], i64)`."""
        return Part("results", nodes(children), self._span(children))

    def definition(self, children: list[Any]) -> Part:
        """`= expr` of an operator."""
        return Part("definition", children[1], self._span(children))

    # --- clauses

    def given(self, children: list[Any]) -> Part:
        """`given x: f32[N], ..`."""
        return Part("given", nodes(children), self._span(children))

    def where(self, children: list[Any]) -> Part:
        """`where condition, ..`."""
        return Part("where", nodes(children), self._span(children))

    def let(self, children: list[Any]) -> Part:
        """`let k = expr, ..`."""
        return Part("let", nodes(children), self._span(children))

    def numerics(self, children: list[Any]) -> Part:
        """`class exact signed_zero`."""
        self._one_of("unknown-class", "class", children[1], CLASSES)
        for word in children[2:]:
            self._one_of("unknown-class", "relaxation", word, RELAXATIONS)
            if children[1] in CLASSES[1:]:
                at = self._span([word])
                self._complain("unknown-class", f"`{word}` relaxes `exact`; `{children[1]}` implies it", at)
        return Part("class", tuple(str(c) for c in children[1:]), self._span(children))

    def _one_of(self, code: str, what: str, word: Token, choices: Sequence[str]) -> None:
        if word not in choices:
            hint = did_you_mean(word, choices) or "one of " + ", ".join(f"`{c}`" for c in choices)
            self._complain(code, f"there is no {what} `{word}`", self._span([word]), hint=hint)

    def direction(self, children: list[Any]) -> Part:
        """`direction explore`."""
        self._one_of("unknown-direction", "direction", children[1], DIRECTIONS)
        return Part("direction", str(children[1]), self._span(children))

    def op_kind(self, children: list[Any]) -> Part:
        """`kind elementwise`."""
        return Part("kind", str(children[1]), self._span(children))

    def commutative(self, children: list[Any]) -> Part:
        """`commutative`."""
        return Part("commutative", True, self._span(children))

    def impure(self, children: list[Any]) -> Part:
        """`impure`."""
        return Part("impure", True, self._span(children))

    def order(self, children: list[Any]) -> Part:
        """`order key`."""
        return Part("order", children[1], self._span(children))

    def allow(self, children: list[Any]) -> Part:
        """`allow overlap "reason"`."""
        self._one_of("unknown-warning", "warning", children[1], WARNINGS)
        span = self._span(children)
        reason = str(children[2])[1:-1].strip()
        if not reason:
            self._complain("unknown-warning", "a warning is allowed for a reason", self._span(children[2:]))
        return Part("allow", ast.Allow(span=span, code=str(children[1]), reason=reason), span)

    def joins(self, children: list[Any]) -> Part:
        """`joins NAME` of a rule."""
        return Part("joins", str(children[1]), self._span(children))

    def test(self, children: list[Any]) -> Part:
        """`test fires operands gives expr`."""
        operands: tuple[ast.Operand, ...] = ()
        gives = None
        for part in children[2:]:
            if part.what == "operands":
                operands = part.value
            else:
                gives = part.value
        span = self._span(children)
        return Part("test", ast.RuleTest(span=span, verdict=str(children[1]), operands=operands, gives=gives), span)

    def test_model(self, children: list[Any]) -> Part:
        """`test fires model "file.onnx" times 3`."""
        span = self._span(children)
        self._word(children[2], "model", 'a test on a model is written `test fires model "file.onnx"`')
        times = None
        if len(children) > 4:
            self._word(children[4], "times", "how often the rule is applied is written `times 3`")
            times = self._whole(children[5], "`times`")
            if children[1] == "refuses":
                message = "a test that refuses has no number of times"
                self._complain("bad-operand", message, self._span(children[4:]), hint="drop it or write `fires`")
        test = ast.RuleTest(span=span, verdict=str(children[1]), model=str(children[3])[1:-1], times=times)
        return Part("test", test, span)

    def test_term(self, children: list[Any]) -> Part:
        """`test refuses in term for operands`."""
        operands = children[5].value if len(children) > 5 else ()
        span = self._span(children)
        test = ast.RuleTest(span=span, verdict=str(children[1]), operands=operands, term=children[3])
        return Part("test", test, span)

    def test_equals(self, children: list[Any]) -> Part:
        """`test equals left == right for operands`."""
        span, claim = self._span(children), children[2]
        sides: tuple[ast.Expr, ...] = ()
        if isinstance(claim, ast.Compare) and claim.operator == "==":
            sides = (claim.left, claim.right)
        else:
            hint = "such as `test equals x * 1 == x for x: f32[2,3]`"
            self._complain("bad-operand", "a test `equals` compares two terms by `==`", claim.span, hint=hint)
        operands = children[4].value if len(children) > 4 else ()
        return Part("test", ast.RuleTest(span=span, verdict="equals", operands=operands, equals=sides), span)

    def operands(self, children: list[Any]) -> Part:
        """The operands of a test."""
        return Part("operands", nodes(children), self._span(children))

    def operand(self, children: list[Any]) -> ast.Operand:
        """`x: f32[2]`, `c = value`, `c: i64 = value` or `x`."""
        kind = children[2] if len(children) > 2 and is_token(children[1], "COLON") else None
        value = children[-1] if len(children) > 2 and is_token(children[-2], "EQUAL") else None
        return ast.Operand(span=self._span(children), target=children[0], type=kind, value=value)

    def gives(self, children: list[Any]) -> Part:
        """`gives expr`."""
        return Part("gives", children[1], self._span(children))

    def typed(self, children: list[Any]) -> ast.Given:
        """`x, y: const f32`."""
        targets = tuple(c for c in children if isinstance(c, ast.Target))
        return ast.Given(span=self._span(children), targets=targets, type=children[-1])


def _is_word(child: Any) -> bool:
    return isinstance(child, Token) and child.type not in ("LPAR", "RPAR", "COMMA", "DOC")


def _doc(token: Token) -> str:
    """The text of a docstring without its quotes and common indentation."""
    lines = str(token)[3:-3].strip().split("\n")
    return "\n".join(line.strip() for line in lines)


def _documented(items: Sequence[ast.Item]) -> tuple[ast.Item, ...]:
    """The items of a file; where several begin on one line, a comment at its end is the doc of the last."""
    out = list(items)
    for i, (item, following) in enumerate(itertools.pairwise(items)):
        if item.span.line == following.span.line and item.doc and item.doc == following.doc:
            out[i] = replace(item, doc="")
    return tuple(out)
