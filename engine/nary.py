"""Sums and products of many terms: `Add(x, -x, ys[*])` matches the whole tree of Adds, in any order and bracketing.

No rule re-brackets anything: the terms of the largest tree at a place are gathered, Sub being the sum with a negated
term, and dealt out to the parts of the pattern. `P ...` takes all terms of the form `P` that agree, as many as it can.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..grammar import ast
from ..grammar.scope import indices_in, owned_by
from .attributes import Binding
from .egraph import ABSENT, EGraph
from .evaluate import Evaluator, count_of
from .submatch import Search
from .values import TensorRef, Unprovable

MAX_TERMS = 256


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a sum: a class, or its negation."""

    handle: int
    negated: bool = False


def is_whole(egraph: EGraph, handle: int, op: str) -> bool:
    """Whether a tree of an operator ends here: someone reads its value who is not of the tree."""
    handle = egraph.find(handle)
    if handle in {egraph.find(root) for root in egraph.roots.values()}:
        return True
    users = egraph.users(handle)
    return not users or any(egraph.nodes[u].op not in _tree_operators(op) for u in users)


def _tree_operators(op: str) -> tuple[str, ...]:
    return ("Add", "Sub") if op == "Add" else (op,)


def terms(egraph: EGraph, handle: int, op: str, *, newest: bool = True) -> list[Term]:
    """The terms of the tree of an operator at a class.

    Where a class has several such nodes the newest counts, what rules have simplified already; else the oldest."""
    operators = _tree_operators(op)
    found: list[Term] = []
    pending = [(Term(egraph.find(handle)), frozenset[int]())]
    while pending:
        term, path = pending.pop()
        nodes = [egraph.nodes[h] for h in egraph.members(term.handle)]
        nodes = [n for n in nodes if n.op in operators and not n.serial]
        if not nodes or term.handle in path or (path and egraph.is_const(term.handle)):
            found.append(term)
            if len(found) > MAX_TERMS:
                raise Unprovable("there are too many terms")
            continue
        node = nodes[-1 if newest else 0]
        inside = path | {term.handle}
        left, right = (egraph.find(c) for c in node.children)
        pending.append((Term(right, term.negated is not (node.op == "Sub")), inside))
        pending.append((Term(left, term.negated), inside))
    return found


@dataclass(slots=True)
class Nary:
    """The matching of one such pattern with the class where the tree ends."""

    call: ast.Call
    handle: int
    env: Binding
    evaluator: Evaluator
    exact: bool
    given: Sequence[ast.Given]

    def bind(self) -> None:
        """Binds the variables of the pattern; raises `Unprovable` where the terms are not of this form."""
        egraph, op = self.evaluator.egraph, self.call.head
        tried: list[list[Term]] = []
        for newest in (True, False):
            found = terms(egraph, self.handle, op, newest=newest)
            if found in tried:
                continue
            tried.append(found)
            search = Search(self.evaluator, exact=self.exact, given=self.given)
            env = self._best(search, found)
            if env is not None:
                self.env.update(env)
                return
        raise Unprovable(f"the {len(tried[0])} terms are not of this form")

    def _best(self, search: Search, found: list[Term]) -> Binding | None:
        """The way to deal out the terms in which the most of them go to the patterns of each of many."""
        fixed = [a for a in self.call.args if not isinstance(a, ast.Each) and not _star(a)]
        each = [a for a in self.call.args if isinstance(a, ast.Each)]
        star = next((name for a in self.call.args if (name := _star(a))), None)
        for env, left in self._fixed(search, fixed, found, self.env):
            for pattern in each:
                taken = self._each(search, pattern.value, left, env)
                if taken is None:
                    break
                env, left = taken
            else:
                if star is None and left:
                    continue
                if star is not None:
                    rest = [TensorRef(self._value(t)) for t in left]
                    if env.setdefault(star, rest) != rest:
                        continue
                return env
        return None

    def _fixed(
        self, search: Search, patterns: Sequence[ast.Expr], left: list[Term], env: Binding
    ) -> Iterator[tuple[Binding, list[Term]]]:
        if not patterns:
            yield dict(env), left
            return
        for i, term in enumerate(left):
            for after in self._matches(search, patterns[0], term, env):
                yield from self._fixed(search, patterns[1:], left[:i] + left[i + 1 :], after)

    def _each(
        self, search: Search, pattern: ast.Expr, left: list[Term], env: Binding
    ) -> tuple[Binding, list[Term]] | None:
        """The largest set of terms of one form; of equally large ones the first."""
        index = indices_in(pattern)[0]
        names = owned_by(pattern, index)
        best: tuple[Binding, list[Term]] | None = None
        best_count = 0
        for i, seed in enumerate(left):
            if best_count >= len(left) - i:
                break
            for start in self._matches(search, pattern, seed, env):
                shared = start
                own = [{name: shared.pop(name) for name in names}]
                rest = left[:i]
                for term in left[i + 1 :]:
                    one = next(self._matches(search, pattern, term, shared), None)
                    if one is None:
                        rest.append(term)
                        continue
                    own.append({name: one.pop(name) for name in names})
                    shared = one
                if len(own) > best_count:
                    lists = {name: [one[name] for one in own] for name in names}
                    best_count, best = len(own), ({**shared, **lists, count_of(index): len(own)}, rest)
        return best

    def _matches(self, search: Search, pattern: ast.Expr, term: Term, env: Binding) -> Iterator[Binding]:
        """The ways to match one term. A negated one is not built where the pattern is a negation."""
        if term.negated:
            operand = _negated(pattern)
            if operand is not None:
                yield from search.matches(operand, term.handle, env)
                return
        yield from search.matches(pattern, self._value(term), env)

    def _value(self, term: Term) -> int:
        if not term.negated or term.handle == ABSENT:
            return term.handle
        return self.evaluator.node("Neg", {}, [TensorRef(term.handle)]).handle


def _star(argument: ast.Expr) -> str | None:
    if isinstance(argument, ast.Subscript) and isinstance(argument.index, ast.All):
        return argument.base.id if isinstance(argument.base, ast.Name) else None
    return None


def _negated(pattern: ast.Expr) -> ast.Expr | None:
    if isinstance(pattern, ast.Unary) and pattern.operator == "-":
        return pattern.operand
    if isinstance(pattern, ast.Call) and pattern.head == "Neg" and len(pattern.args) == 1:
        return pattern.args[0]
    return None
