"""Printer of items: a syntax tree to text that parses to an equal tree.

Parentheses stand where the tree needs them. With the `Source` of the tree, comments stay in place, as do redundant
parentheses, the spelling of numbers, and clauses that state a default.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from ..builtins import OP_FLAGS, WORDS
from ..syntax import ast
from .layout import (
    WIDTH,
    Align,
    Doc,
    EndComment,
    Group,
    Line,
    LineComment,
    Nest,
    Newline,
    align_comments,
    fill,
    fits,
    flat,
    joined,
    rendered,
)

if TYPE_CHECKING:
    from ..syntax.comments import Source

_INDENT = 2
_TEST = 14  # column of a test's operands, relative to the word `test`

# Precedence, loosest first; an operand that binds looser than its place requires gets parentheses.
_OR, _AND, _NOT, _COMPARE, _RANGE, _SUM, _TERM, _UNARY, _POWER, _POSTFIX = range(10)
_BINARY = {"or": _OR, "and": _AND, "+": _SUM, "-": _SUM, "*": _TERM, "/": _TERM, "%": _TERM, "@": _TERM, "**": _POWER}


def print_rule(item: ast.Item) -> str:
    """Return the text of one item, without a final newline."""
    return "\n".join(align_comments(rendered(Printer().item(item))))


def print_expr(expr: ast.Expr, at_least: int = _OR) -> str:
    """Return an expression or pattern on one line, in parentheses if it binds looser than `at_least`."""
    return flat(Printer().expr(expr, at_least))


class Printer:
    """Builds the layout document of an item and of each of its parts."""

    def __init__(self, source: Source | None = None) -> None:
        self.source = source

    def around(self, key: Hashable, doc: Doc) -> Doc:
        """Return a document with the comments that belong to it."""
        before, after = self._comments(key)
        return (*before, doc, *after) if before or after else doc

    def _comments(self, key: Hashable) -> tuple[tuple[Doc, ...], tuple[Doc, ...]]:
        if self.source is None:
            return (), ()
        found = self.source.attached(key)
        before: list[Doc] = []
        for comment in found.before:
            before += [LineComment(comment.text)] if comment.own_line else [EndComment(comment.text), Newline()]
        end = tuple(EndComment(c.text) for c in found.end)
        return tuple(before), (*end, *(LineComment(c.text) for c in found.after))

    # --- items

    def item(self, item: ast.Item) -> Doc:
        """Return the document of a whole item, without the comments before it."""
        match item:
            case ast.Rule() | ast.Fuse():
                arrow = "<=>" if isinstance(item, ast.Rule) and item.bidirectional else "=>"
                opening = (f"{type(item).__name__.lower()} {item.name}", *self._doc(item))
                sides = self._sides(item.lhs, arrow, item.rhs)
                return (*self._head(item, opening), sides, *self._clauses(item))
            case ast.Op():
                return self._op(item)
            case ast.Def():
                opening = (f"def {item.name}({', '.join(item.params)})", *self._doc(item))
                return self._defined(item, opening, self.expr(item.body), _INDENT)
            case ast.Use():
                names = f" ({', '.join(item.names)})" if item.names else ""
                return (f'use "{item.path}"{names}', *self._doc(item), *self._below_head(item))
            case ast.UseDomain():
                return (f"use {item.domain}({_versions(item)})", *self._doc(item), *self._below_head(item))
            case ast.Ruleset():
                return self._ruleset(item)
            case ast.Schedule():
                opening = (f"schedule {item.name}", *self._doc(item))
                return self._defined(item, opening, self._steps(item.steps), _INDENT)
        raise TypeError(f"{type(item).__name__} is no item")

    def _head(self, item: ast.Item, opening: Doc) -> tuple[Doc, ...]:
        return (opening, *self._below_head(item), Nest(_INDENT, tuple(self._docstring(item))))

    def _doc(self, item: ast.Item) -> tuple[Doc, ...]:
        """The comment at the end of an item's first line: its doc, unless that is a docstring.

        It is emitted at the end of the first line; on another line it would be an ordinary comment."""
        if self.source is None:
            return (EndComment(f"# {item.doc}", waits=True),) if item.doc and "\n" not in item.doc else ()
        comment = self.source.first_lines.get(id(item))
        return (EndComment(comment.text, waits=True),) if comment is not None else ()

    def _below_head(self, item: ast.Item) -> tuple[Doc, ...]:
        return self._comments((id(item), "head"))[1]

    def _docstring(self, item: ast.Item) -> list[Doc]:
        if self.source is None:
            written = f'"""{item.doc}"""' if "\n" in item.doc else None
        else:
            written = self.source.docstrings.get(id(item))
        if written is None:
            return []
        first, *lines = written.split("\n")
        common = min((len(s) - len(s.lstrip()) for s in lines if s.strip()), default=0)
        out: list[Doc] = [Newline(), first.rstrip()]
        for line in lines:
            text = line.strip()
            out.append(Nest(max(len(line) - len(line.lstrip()) - common, 0), (Newline(blank=True), text)))
        return out

    def _defined(self, item: ast.Item, opening: Doc, value: Doc, indent: int) -> Doc:
        """`opening = value`, on one line if it fits."""
        if self._docstring(item):
            return (*self._head(item, opening), Nest(_INDENT, (Newline(), "= ", Align(value))))
        below = self._below_head(item)
        if fits((opening, " = ", value), WIDTH):
            return (opening, " = ", value, *below)
        return (opening, " =", *below, Nest(indent, (Newline(), value)))

    def _ruleset(self, item: ast.Ruleset) -> Doc:
        limits = [self.around(id(limit), f"{limit.name} {_number(limit.value)}") for limit in item.limits]
        if item.joins is not None:
            limits.append(self.around((id(item), "joins"), f"joins {item.joins}"))
        opening: Doc = (f"ruleset {item.name}", *self._doc(item))
        line = joined([opening, *limits], "  ")
        if not self._docstring(item) and fits(line, WIDTH):
            return (line, *self._below_head(item))
        return (*self._head(item, opening), *map(self._below, limits))

    def _steps(self, steps: Sequence[ast.Step]) -> Doc:
        return Align(fill([self._step(step) for step in steps], after=" ;"))

    def _step(self, step: ast.Step) -> Doc:
        match step:
            case ast.Run(ruleset=name):
                doc: Doc = name
            case ast.Saturate(steps=steps):
                doc = ("saturate(", self._steps(steps), ")")
            case ast.Repeat(count=count, steps=steps):
                doc = (f"repeat {count} (", self._steps(steps), ")")
        return self.around(id(step), doc)

    def _op(self, op: ast.Op) -> Doc:
        opening: Doc = (f"op {op.name}", *self._doc(op))
        if op.params is not None:
            opening = (opening, "(", Align(fill([self._param(p) for p in op.params])), ")")
        if op.results:
            types = [self.type(t) for t in op.results]
            results = Group(types[0]) if len(types) == 1 else ("(", Align(fill(types)), ")")
            opening = (opening, Nest(2 * _INDENT, Group((Line(), "-> ", results))))
        clauses = self._clauses(op)
        words = [*[f"kind {op.kind}"] * bool(op.kind), *(flag for flag in OP_FLAGS if getattr(op, flag))]
        if op.params is None and not op.results and not clauses and not self._docstring(op) and self._are_bare(op):
            return (joined([opening, *words], " "), *self._below_head(op))
        first = [self._clause(op, word.partition(" ")[0], word) for word in words]
        if op.definition is None:
            return (*self._head(op, opening), *first, *clauses)
        return (self._defined(op, opening, self.expr(op.definition), 2 * _INDENT), *first, *clauses)

    def _are_bare(self, op: ast.Op) -> bool:
        return not any(any(self._comments((id(op), word))) for word in ("kind", *OP_FLAGS))

    def _param(self, param: ast.Param) -> Doc:
        doc: Doc = f"{param.name}[*]" if param.variadic else param.name
        if param.attribute is not None:
            doc = (doc, ": ", self.expr(param.attribute))
        if param.type is not None:
            doc = (doc, ": ", self.type(param.type))
        if param.default is not None:
            doc = (doc, " = ", self.expr(param.default))
        return self.around(id(param), doc)

    # --- sides

    def _sides(self, lhs: ast.Expr | ast.Roots, arrow: str, rhs: ast.Expr | ast.Roots) -> Doc:
        left, right = self._bare_side(lhs), self._bare_side(rhs)
        above, left_end = self._comments(id(lhs))
        between, end = self._comments(id(rhs))
        if not left_end and not between and fits((left, "  ", arrow, "  ", right), WIDTH - _INDENT):
            return Nest(_INDENT, (Newline(), *above, left, f"  {arrow}  ", right, *end))
        middle = Nest(_INDENT, (Newline(), arrow))
        return Nest(_INDENT, (Newline(), *above, left, *left_end, middle, Newline(), *between, right, *end))

    def _bare_side(self, side: ast.Expr | ast.Roots) -> Doc:
        if isinstance(side, ast.Roots):
            return ("{ ", Align(fill([self._binding(b) for b in side.bindings])), " }")
        return self._expr(side)[0]

    def _binding(self, binding: ast.Binding) -> Doc:
        return self.around(id(binding), (self._target(binding.target), " = ", Align(self.expr(binding.value))))

    def _target(self, target: ast.Target) -> Doc:
        index = ("[", self.expr(target.index), "]") if target.index is not None else ""
        return self.around(id(target), (target.name, index))

    # --- clauses

    def _clauses(self, item: ast.Rule | ast.Fuse | ast.Op) -> tuple[Doc, ...]:
        out: list[Doc] = []
        if isinstance(item, ast.Rule):
            out += self._listed(item, "let", [self._binding(b) for b in item.let])
        out += self._listed(item, "given", [self._given(g) for g in item.given])
        out += self._listed(item, "where", [self.expr(condition) for condition in item.where])
        if isinstance(item, ast.Rule):
            if item.order is not None:
                out.append(self._clause(item, "order", ("order ", self.expr(item.order))))
            if self._says(item, "class", item.numerics != "exact" or bool(item.relaxations) or self.source is None):
                out.append(self._clause(item, "class", f"class {' '.join((item.numerics, *item.relaxations))}"))
            if self._says(item, "direction", item.direction != "simplify"):
                out.append(self._clause(item, "direction", f"direction {item.direction}"))
            if item.joins is not None:
                out.append(self._clause(item, "joins", f"joins {item.joins}"))
            for allow in item.allows:
                out.append(self._below(self.around(id(allow), f'allow {allow.code} "{allow.reason}"')))
        if isinstance(item, ast.Op) and self._says(item, "class", item.numerics != "reassoc"):
            out.append(self._clause(item, "class", f"class {item.numerics}"))
        out += [self._below(self._test(test)) for test in item.tests]
        return tuple(out)

    def _says(self, item: ast.Item, word: str, needed: bool) -> bool:
        """Return whether a clause is printed: it differs from the default, or its author wrote it."""
        return needed or (self.source is not None and word in self.source.clauses[id(item)])

    def _clause(self, item: ast.Item, word: str, doc: Doc) -> Doc:
        return self._below(self.around((id(item), word), doc))

    def _below(self, doc: Doc) -> Doc:
        return Nest(_INDENT, (Newline(), doc))

    def _listed(self, item: ast.Item, word: str, parts: Sequence[Doc]) -> list[Doc]:
        return [self._clause(item, word, (word, " ", Align(fill(parts))))] if parts else []

    def _given(self, given: ast.Given) -> Doc:
        targets = joined([self._target(t) for t in given.targets], ", ")
        return self.around(id(given), (targets, ": ", self.type(given.type)))

    def _test(self, test: ast.RuleTest) -> Doc:
        opening = f"test {test.verdict}"
        operands = fill([self._operand(o) for o in test.operands])
        where: Doc = Nest(_TEST, Group((Line(), "for ", Align(operands)))) if test.operands else ""
        if test.equals:
            left, right = (self.operand(side, _RANGE) for side in test.equals)
            body: Doc = (f"{opening} ", Align((left, Nest(_INDENT, Group((Line(), "== ", right))))), where)
        elif test.term is not None:
            body = (f"{opening} in ", Align(self.expr(test.term)), where)
        elif test.model is not None:
            body = f'{opening:<12}  model "{test.model}"' + (f" times {test.times}" if test.times is not None else "")
        else:
            gives: Doc = "" if test.gives is None else Group((Line("  "), "gives ", Align(self.expr(test.gives))))
            body = (f"{opening:<12}  ", Align((operands, gives))) if test.operands else (opening, gives)
        return self.around(id(test), body)

    def _operand(self, operand: ast.Operand) -> Doc:
        kind: Doc = (": ", self.type(operand.type, is_operand=True)) if operand.type is not None else ""
        value: Doc = (" = ", Align(self.expr(operand.value))) if operand.value is not None else ""
        return self.around(id(operand), (self._target(operand.target), kind, value))

    # --- types

    def type(self, type_: ast.TypeExpr, *, is_operand: bool = False) -> Doc:
        """Return the document of `const f32[N, ..s]`; compact in operands, `f32[2,3]`."""
        shape: Doc = ""
        if type_.shape is not None:
            close = is_operand and all(isinstance(d, ast.Number | ast.Name) for d in type_.shape)
            shape = ("[", self._items([self._dim(d) for d in type_.shape], close), "]")
        words = ("const " if type_.element or type_.shape is not None else "const") if type_.const else ""
        written: Doc = (words, type_.element or "", shape)
        if type_.broadcasts is not None:
            gap = " " if type_.const or type_.element or type_.shape is not None else ""
            written = (written, f"{gap}broadcasts to ", self.expr(type_.broadcasts))
        return self.around(id(type_), written)

    def _items(self, parts: Sequence[Doc], close: bool) -> Doc:
        if close:
            return Align(joined(parts, (",", Group(Line("")))))
        return Align(fill(parts))

    def _dim(self, dim: ast.Expr | ast.ShapeRest | ast.AnyDim) -> Doc:
        match dim:
            case ast.AnyDim():
                return self.around(id(dim), "_")
            case ast.ShapeRest():
                return self.around(id(dim), f"..{dim.name or ''}")
        return self.expr(dim)

    # --- expressions

    def expr(self, expr: ast.Expr, at_least: int = _OR) -> Doc:
        """Return the document of an expression, in parentheses if it binds looser than `at_least`."""
        doc, strength = self._expr(expr)
        if strength < at_least:
            doc = ("(", Align(doc), ")")
        return self.around(id(expr), doc)

    def operand(self, expr: ast.Expr, at_least: int) -> Doc:
        """Return the document of an operand; the author's parentheses stay, and optional operands need them."""
        doc, strength = self._expr(expr)
        if strength < at_least or isinstance(expr, ast.Optional) or self._is_bracketed(expr, strength):
            doc = ("(", Align(doc), ")")
        return self.around(id(expr), doc)

    def _is_bracketed(self, expr: ast.Expr, strength: int) -> bool:
        return strength < _POSTFIX and self.source is not None and self.source.is_parenthesized(expr)

    def _expr(self, expr: ast.Expr) -> tuple[Doc, int]:
        match expr:
            case ast.Number():
                text = (self.source.spelling(expr) if self.source is not None else None) or _number(expr.value)
                return text, _UNARY if text.startswith("-") else _POSTFIX
            case ast.String(value=text):
                return f'"{text}"', _POSTFIX
            case ast.Name(id=name):
                return name, _POSTFIX
            case ast.ListExpr(items=items):
                return ("[", self._items([self.expr(i) for i in items], _is_literal(expr)), "]"), _POSTFIX
            case ast.Comprehension():
                loop: list[Doc] = [self.expr(expr.item), (f"for {expr.variable} in ", self.expr(expr.iterable))]
                loop += [("if ", self.expr(expr.condition))] if expr.condition is not None else []
                return ("[", Align(fill(loop, after="")), "]"), _POSTFIX
            case ast.Range(low=low, high=high):
                return (self.operand(low, _SUM), " .. ", self.operand(high, _SUM)), _RANGE
            case ast.Unary(operator="not", operand=ast.Compare(operator="in", left=left, right=right)):
                return (self.operand(left, _RANGE), " not in ", self.operand(right, _RANGE)), _COMPARE
            case ast.Unary(operator="not", operand=operand):
                return ("not ", self.operand(operand, _NOT)), _NOT
            case ast.Unary(operand=operand):
                # A minus before a bare literal would become part of it.
                literal = isinstance(operand, ast.Number)
                return ("-", self.operand(operand, _POSTFIX + 1 if literal else _UNARY)), _UNARY
            case ast.Binary(operator="**"):  # right-associative; its left side is atomic
                return (self.operand(expr.left, _POSTFIX), " ** ", self.operand(expr.right, _UNARY)), _POWER
            case ast.Binary():
                return self._chain(expr)
            case ast.Compare(operator=operator, left=left, right=right):
                listed = isinstance(right, ast.ListExpr | ast.Comprehension)  # a list breaks inside
                tail = Group((" " if listed else Line(), f"{operator} ", self.operand(right, _RANGE)))
                return (self.operand(left, _RANGE), Nest(_INDENT, tail)), _COMPARE
            case ast.Optional(name=name, default=default):
                return (f"{name} = ", self.expr(default)), _OR
            case ast.Each(value=value):
                return (self.operand(value, _OR), " ..."), _OR
            case ast.Rest(name=name):
                return f"..{name or ''}", _OR
            case ast.All():
                return "*", _POSTFIX
            case ast.Subscript(base=base, index=index):
                return (self.operand(base, _POSTFIX), "[", self.expr(index), "]"), _POSTFIX
            case ast.Axis(name=name, rank=rank):
                return (f"{name} in ", self.operand(rank, _RANGE)), _COMPARE
            case ast.Omitted(pattern=pattern):
                return self._expr(pattern)
            case ast.Alternatives(options=options):
                body = fill([Align(self.expr(o)) for o in options], before="| ", after="")
                return ("(", Align(body), ")"), _POSTFIX
            case ast.Conditional(then=then, condition=condition, otherwise=otherwise):
                choices = (self.expr(then), ("if ", self.expr(condition)), ("else ", self.expr(otherwise)))
                return ("(", Align(fill(choices, after="")), ")"), _POSTFIX
            case ast.Call():
                return self._call(expr), _POSTFIX
        raise TypeError(f"{type(expr).__name__} is not an expression")

    def _chain(self, expr: ast.Binary) -> tuple[Doc, int]:
        """Return operands joined left to right by operators of equal precedence."""
        strength = _BINARY[expr.operator]
        links: list[ast.Binary] = [expr]
        while (
            isinstance(left := links[-1].left, ast.Binary)
            and _BINARY[left.operator] == strength
            and not self._is_bracketed(left, strength)
        ):
            links.append(left)
        links.reverse()
        doc: Doc = self.operand(links[0].left, strength)
        for link in links:
            right = self.operand(link.right, strength + 1)
            doc = (doc, Nest(_INDENT, Group((Line(), f"{link.operator} ", Group(right)))))
            if link is not expr:
                doc = self.around(id(link), doc)
        return doc, strength

    def _call(self, call: ast.Call) -> Doc:
        parts = [self.expr(arg) for arg in call.args]
        for attribute in call.attributes:
            value: Doc = self.expr(attribute.value)
            if attribute.default is not None:
                value = (value, " = ", self.expr(attribute.default))
            parts.append(self.around(id(attribute), (f"{attribute.name}: ", Align(value))))
        if call.rest is not None:
            parts.append(self.expr(call.rest))
        kind = f"{call.kind} " if call.kind else ""
        return (f"{kind}{call.head}(", Align(fill(parts)), ")")


def _versions(item: ast.UseDomain) -> str:
    if item.high is None:
        return f"{item.low} .."
    return str(item.low) if item.low == item.high else f"{item.low} .. {item.high}"


def _number(value: int | float) -> str:
    mantissa, e, exponent = repr(value).partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa


def _is_literal(expr: ast.Expr) -> bool:
    """Return whether an expression is a number, a word such as `true`, or a list of these, which prints compactly."""
    if isinstance(expr, ast.ListExpr):
        return all(_is_literal(item) for item in expr.items)
    if isinstance(expr, ast.Unary):
        return expr.operator == "-" and _is_literal(expr.operand)
    return isinstance(expr, ast.Number) or (isinstance(expr, ast.Name) and expr.id in WORDS)
