"""A rule run symbolically: its pattern as a graph over variables, its conditions as facts, its right side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....grammar import ast
from . import integers, scalars
from .expressions import CONTENTS, WORDS, Expressions
from .integers import Cond, Int, eq
from .path import Infeasible, NotModelled
from .run_types import Stretch
from .scalars import Scalar
from .tensors import Leaf, Tensor, place_of


class Run(Expressions):
    """One run of one direction of a rule on a path."""

    # --- the pattern ---

    def bind(self, pattern: Sequence[ast.Expr], index: str | None) -> None:
        """Makes the variables of a pattern. Those with the index of a group are made once for each member."""
        self.index = index
        self.roots = tuple(pattern)
        named = [e for p in pattern for e in p.walk()]
        self.indexed = frozenset(
            e.base.id for e in named
            if isinstance(e, ast.Subscript) and isinstance(e.base, ast.Name) and isinstance(e.index, ast.Name)
            and e.index.id == index
        )  # fmt: skip
        self.lists = frozenset(
            a.id if isinstance(a, ast.Name) else a.name
            for e in named if isinstance(e, ast.Call)
            for i, a in enumerate(e.args)
            if isinstance(a, (ast.Name, ast.Optional))
            and (i in CONTENTS.get(e.head, ()) or (e.kind == "reduction" and i))
        )  # fmt: skip
        self.padding = frozenset(
            a.id
            for e in named
            if isinstance(e, ast.Call) and e.head == "Pad"
            for a in e.args[1:2]
            if isinstance(a, ast.Name)
        )
        if index is not None:
            self.env["*"] = list(range(self.members))

    def root(self, expr: ast.Expr, member: int | None) -> list[Tensor]:
        """The tensor of a root of the pattern."""
        self.pattern = True
        if member is not None and self.index is not None:
            self.env[self.index] = member
        try:
            return [self.tensor(self.evaluate(expr))]
        finally:
            self.pattern = False

    def check_given(self) -> None:
        """Binds and equates the dims that `given` clauses name."""
        for clause in self.rule.given:
            wanted = clause.type.shape
            if wanted is None or self.path.extra.get("pointwise"):
                continue
            for target in clause.targets:
                names = [target.name]
                if target.name in self.indexed:
                    names = [f"{target.name}[{i}]" for i in range(self.members)]
                for name in names:
                    found = self.env.get(name)
                    for t in found if isinstance(found, list) else [found]:
                        if isinstance(t, Tensor):
                            self._shape(t, wanted)

    def _shape(self, t: Tensor, wanted: Sequence[Any]) -> None:
        shape = t.shape
        rest = next((i for i, d in enumerate(wanted) if isinstance(d, ast.ShapeRest)), None)
        if rest is None:
            if len(shape) != len(wanted):
                raise Infeasible("the rank that is given")
            pairs = list(zip(wanted, shape, strict=True))
        else:
            after = len(wanted) - rest - 1
            if len(shape) < len(wanted) - 1:
                raise Infeasible("the rank that is given")
            pairs = [*zip(wanted[:rest], shape[:rest], strict=True)]
            pairs += zip(wanted[rest + 1 :], shape[len(shape) - after :], strict=True)
            name = wanted[rest].name
            if name is not None:
                stretch = shape[rest : len(shape) - after]
                if name in self.env:
                    self.assume(self.compare("==", self.env[name], stretch))
                self.env[name] = stretch
        for expr, d in pairs:
            if isinstance(expr, ast.Name) and expr.id not in self.env and expr.id not in WORDS:
                self.env[expr.id] = d
            elif not isinstance(expr, (ast.AnyDim, ast.ShapeRest)):
                self.assume(self.compare("==", self.evaluate(expr), d))

    # --- conditions ---

    def hold(self, expr: ast.Expr) -> None:
        """Takes a condition as a fact. What cannot be said here is left out, which assumes less."""
        path = self.path
        match expr:
            case ast.Binary(operator="and"):
                self.hold(expr.left)
                self.hold(expr.right)
                return
            case ast.Binary(operator="or"):
                try:
                    either = self.evaluate(expr.left)
                except NotModelled:
                    return
                if isinstance(either, (bool, Cond)):
                    if not path.decide(either):
                        self.hold(expr.right)
                elif path.choose((True, False), "the first of two conditions"):
                    self.assume(either)
                else:
                    self.hold(expr.right)
                return
            case ast.Unary(operator="not", operand=ast.Compare() as inner):
                try:
                    found = self.evaluate(inner)
                except NotModelled:
                    return
                if isinstance(found, (bool, Cond)):
                    path.assume(integers.negate(found))
                return
            case ast.Unary(operator="not"):
                try:
                    truth = self.evaluate(expr.operand)
                except NotModelled:
                    return
                if isinstance(truth, (bool, Cond)):
                    path.assume(integers.negate(truth))
                return
            case ast.Compare(operator="==") if self._described(expr):
                return
        try:
            value = self.evaluate(expr)
        except NotModelled as reason:
            path.extra.setdefault("left out", []).append(str(reason))
            return
        self.assume(value)

    def _described(self, expr: ast.Compare) -> bool:
        """`ints(i) == range(a, b)` for an index tensor of any length says what its elements are."""
        call = expr.left
        if not (isinstance(call, ast.Call) and call.head in ("ints", "values") and isinstance(call.args[0], ast.Name)):
            return False
        leaf = self.env.get(call.args[0].id)
        if not isinstance(leaf, Leaf) or leaf.name in self.lists or self.path.extra.get("pointwise"):
            return False
        try:
            stretch = self.evaluate(expr.right)
        except NotModelled:
            return False
        if not isinstance(stretch, Stretch):
            return False
        if call.head == "ints" and leaf.rank > 1:
            raise Infeasible("a list")
        self.path.assume(eq(leaf.size, integers.product([1, stretch.high - stretch.low])))

        def at(index: list[Int]) -> Scalar:
            return scalars.number(self.path.normal(stretch.low + place_of(index, leaf.shape)))

        self.path.extra[("value of", leaf.name)] = at
        return True
