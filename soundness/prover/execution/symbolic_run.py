"""Symbolic run of a rule: its pattern as a graph over variables, its conditions as facts, its right side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from ....grammar.syntax import ast
from ..paths.path import NotModeled
from ..paths.tensors import Leaf, Tensor, place_of
from ..semantics.semantics_registry import CONTENTS
from ..terms import integers, scalars
from ..terms.integers import Cond, Int, eq
from ..terms.scalars import Scalar
from .arithmetic import Stretch
from .expressions import WORDS, Expressions
from .functions import FUNCTIONS


class Run(Expressions):
    """Execution of one direction of a rule on a path."""

    functions = FUNCTIONS

    # --- the pattern ---

    def bind(self, pattern: Sequence[ast.Expr], index: str | None) -> None:
        """Collect the variables of a pattern. Those with the index of a group exist once per member."""
        self.index = index
        self.roots = tuple(pattern)
        named = [e for p in pattern for e in p.walk()]
        self.indexed = frozenset(
            e.base.id for e in named
            if isinstance(e, ast.Subscript) and isinstance(e.base, ast.Name) and isinstance(e.index, ast.Name)
            and e.index.id == index
        )  # fmt: skip
        calls = [e for e in named if isinstance(e, ast.Call)]
        self.lists = frozenset(
            a.id if isinstance(a, ast.Name) else a.name
            for e in calls for i, a in enumerate(e.args)
            if isinstance(a, (ast.Name, ast.Optional))
            and (i in CONTENTS.get(e.head, ()) or (e.kind == "reduction" and i))
        )  # fmt: skip
        self.padding = frozenset(a.id for e in calls if e.head == "Pad" for a in e.args[1:2] if isinstance(a, ast.Name))
        if index is not None:
            self.env["*"] = list(range(self.members))

    def root(self, name: str, expr: ast.Expr) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensor of a root of the pattern with its name, for each member of a group."""
        with self.reading(pattern=True):
            if self.index is None:
                yield name, self.tensor(self.evaluate(expr))
            else:
                for i, value in enumerate(self.per_member(expr)):
                    yield f"{name}[{i}]", self.tensor(value)

    def reads_pattern(self, condition: ast.Expr) -> bool:
        """Whether a condition reads variables of the pattern only; those of inputs are created."""
        todo, seen = [condition], set()
        while todo:
            for e in todo.pop().walk():
                if isinstance(e, ast.Call) and (e.is_operator or e.head not in self.functions):
                    return False  # of a class head, which the pattern binds
                if isinstance(e, ast.Name) and e.id not in self.lets:
                    self._create(e.id)
                elif isinstance(e, ast.Name) and e.id not in seen:
                    seen.add(e.id)
                    todo.append(self.lets[e.id])
        return True

    def _create(self, name: str) -> None:
        """Create the variable of an input of the pattern, so that a condition can read it before the pattern does."""
        if name in self.env or name in self.indexed or name in WORDS:
            return
        for e in (e for root in self.roots for e in root.walk()):
            for a in e.args if isinstance(e, ast.Call) else (e.left, e.right) if isinstance(e, ast.Binary) else ():
                if isinstance(a, ast.Optional) and a.name == name:
                    self.optional(a)
                    return
                if isinstance(a, ast.Name) and a.id == name:
                    self.leaf(name)
                    return

    def check_given(self) -> None:
        """Bind and equate the dims that `given` clauses name."""
        clauses = [] if self.path.pointwise else [c for c in self.rule.given if c.type.shape is not None]
        for clause, target in ((c, t) for c in clauses for t in c.targets):
            members = range(self.members)
            for name in [f"{target.name}[{i}]" for i in members] if target.name in self.indexed else [target.name]:
                found = self.env.get(name)
                for t in found if isinstance(found, list) else [found]:
                    if isinstance(t, Tensor):
                        self._shape(t, clause.type.shape or ())

    def _shape(self, t: Tensor, wanted: Sequence[Any]) -> None:
        shape = t.shape
        rest = next((i for i, d in enumerate(wanted) if isinstance(d, ast.ShapeRest)), None)
        least = len(wanted) - (rest is not None)
        fits = len(shape) == least or (rest is not None and len(shape) > least)
        self.path.require(fits, "the rank differs from that of a given clause")
        pairs = list(zip(wanted, shape, strict=False))
        if rest is not None:
            end = len(shape) - (len(wanted) - rest - 1)
            pairs = [*pairs[:rest], *zip(wanted[rest + 1 :], shape[end:], strict=True)]
            name = wanted[rest].name
            if name is not None:
                if name in self.env:
                    self.assume(self.compare("==", self.env[name], shape[rest:end]))
                self.env[name] = shape[rest:end]
        for expr, d in pairs:
            if isinstance(expr, ast.Name) and expr.id not in self.env and expr.id not in WORDS:
                self.env[expr.id] = d
            elif not isinstance(expr, (ast.AnyDim, ast.ShapeRest)):
                self.assume(self.compare("==", self.evaluate(expr), d))

    # --- conditions ---

    def hold(self, expr: ast.Expr) -> None:
        """Add a condition as a fact. A condition that is not modeled is left out, which assumes less."""
        with suppress(NotModeled):
            match expr:
                case ast.Binary(operator="and"):
                    self.hold(expr.left)
                    self.hold(expr.right)
                case ast.Binary(operator="or"):
                    either = self.evaluate(expr.left)
                    if isinstance(either, (bool, Cond)):
                        first = self.path.decide(either)
                    else:
                        first = self.path.choose((True, False), "the first of two conditions")
                        if first:
                            self.assume(either)
                    if not first:
                        self.hold(expr.right)
                case ast.Unary(operator="not"):
                    found = self.evaluate(expr.operand)
                    if isinstance(found, (bool, Cond)):
                        self.path.assume(integers.negate(found))
                case ast.Compare(operator="==") if self._described(expr):
                    pass
                case _:
                    self.assume(self.evaluate(expr))

    def _described(self, expr: ast.Compare) -> bool:
        """Whether a condition defines the elements of an index tensor of any length, like `ints(i) == range(a, b)`."""
        call = expr.left
        if not (isinstance(call, ast.Call) and call.head in ("ints", "values") and isinstance(call.args[0], ast.Name)):
            return False
        leaf = self.env.get(call.args[0].id)
        if not isinstance(leaf, Leaf) or leaf.name in self.lists or self.path.pointwise:
            return False
        try:
            stretch = self.evaluate(expr.right)
        except NotModeled:
            return False
        if not isinstance(stretch, Stretch):
            return False
        self.path.require(call.head != "ints" or leaf.rank <= 1, "a list")
        self.path.assume(eq(leaf.size, integers.product([1, stretch.high - stretch.low])))

        def at(index: list[Int]) -> Scalar:
            return scalars.number(self.path.normal(stretch.low + place_of(index, leaf.shape)))

        self.path.extra[("value of", leaf.name)] = at
        return True
