"""Matching of any number of operands: inputs of a variadic operator, and terms of a sum or product.

Inputs are distributed over the parts of the pattern in order: `xs[*]`, one input, `Relu(x[i]) ...`. `Add(x, -x, ys[*])`
matches a whole tree of Adds, whatever its order and bracketing (AC matching). No rule re-brackets anything. The terms
of the maximal tree at a class are collected, Sub being the sum with a negated term, and distributed over the parts.
`P ...` takes as many terms of the form `P` that agree as it can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ....grammar.syntax import ast
from ....grammar.syntax.scope import indices_in, owned_by
from ...egraph.egraph import EGraph
from ...ir.names import ABSENT
from ...ir.values import TensorRef, Unprovable
from ..build_nodes import build_node
from ..notation import count_of, starred, start_of
from ..rule_context import Bindings, RuleContext, require
from .backtracking import Search
from .compiled_patterns import VariadicPart

MAX_TERMS = 256
"""Maximum number of terms of a tree that is matched."""


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a sum: a class, or its negation."""

    handle: int
    negated: bool = False


def is_maximal(egraph: EGraph, handle: int, op: str) -> bool:
    """Return whether the tree of an operator ends at a class: its value is also read from outside the tree."""
    users = [egraph.nodes[user].op for user in egraph.users(handle)]
    is_root = egraph.find(handle) in map(egraph.find, egraph.roots.values())
    return is_root or not users or not set(users) <= set(_tree_operators(op))


def _tree_operators(op: str) -> tuple[str, ...]:
    return ("Add", "Sub") if op == "Add" else (op,)


def collect_terms(egraph: EGraph, handle: int, op: str, *, newest: bool = True) -> list[Term]:
    """Return the terms of the tree of an operator at a class.

    Of several such nodes in a class the newest counts, which rules have simplified most; else the oldest."""
    operators = _tree_operators(op)
    found: list[Term] = []
    pending = [(Term(egraph.find(handle)), frozenset[int]())]
    while pending:
        term, path = pending.pop()
        nodes = [egraph.nodes[h] for h in egraph.members(term.handle)]
        nodes = [n for n in nodes if n.op in operators and not n.serial]
        if not nodes or term.handle in path or (path and egraph.is_const(term.handle)):
            found.append(term)
            require(len(found) <= MAX_TERMS, f"the {op} has more than {MAX_TERMS} terms")
            continue
        node = nodes[-1 if newest else 0]
        inside = path | {term.handle}
        left, right = (egraph.find(c) for c in node.children)
        pending.append((Term(right, term.negated is not (node.op == "Sub")), inside))
        pending.append((Term(left, term.negated), inside))
    return found


def bind_terms(context: RuleContext, rule: ast.Rule, call: ast.Call, handle: int, env: Bindings) -> None:
    """Bind the variables of a sum or product at the class where its tree ends.

    Raises `Unprovable` where the terms do not have this form."""
    tried: list[list[Term]] = []
    for newest in (True, False):
        found = collect_terms(context.egraph, handle, call.head, newest=newest)
        if found in tried:
            continue
        tried.append(found)
        search = Search(context, exact=rule.numerics == "exact", given=rule.given)
        best = _Distribution(context, search).best(call, found, env)
        if best is not None:
            env.update(best)
            return
    raise Unprovable(f"the {len(tried[0])} terms are not of this form")


@dataclass(frozen=True, slots=True)
class _Distribution:
    """Distribution of the terms of a tree over the parts of a pattern."""

    context: RuleContext
    search: Search

    def best(self, call: ast.Call, found: list[Term], env: Bindings) -> Bindings | None:
        """Return the bindings of the first distribution in which each `P ...` takes as many terms as it can."""
        fixed = [a for a in call.args if not isinstance(a, ast.Each) and starred(a) is None]
        each = [a for a in call.args if isinstance(a, ast.Each)]
        star = next((base.id for a in call.args if isinstance(base := starred(a), ast.Name)), None)
        for bound, left in self._fixed(fixed, found, env):
            for pattern in each:
                taken = self._each(pattern.value, left, bound)
                if taken is None:
                    break
                bound, left = taken
            else:
                if star is None:
                    if not left:
                        return bound
                    continue
                rest = [TensorRef(self._value(t)) for t in left]
                if bound.setdefault(star, rest) == rest:
                    return bound
        return None

    def _fixed(
        self, patterns: Sequence[ast.Expr], left: list[Term], env: Bindings
    ) -> Iterator[tuple[Bindings, list[Term]]]:
        """Enumerate the ways to match each of some patterns with one term, and the terms left over."""
        if not patterns:
            yield dict(env), left
            return
        for i, term in enumerate(left):
            for after in self._matches(patterns[0], term, env):
                yield from self._fixed(patterns[1:], left[:i] + left[i + 1 :], after)

    def _each(self, pattern: ast.Expr, left: list[Term], env: Bindings) -> tuple[Bindings, list[Term]] | None:
        """Return the bindings of a largest set of terms of one form, the first of these, and the other terms."""
        index = indices_in(pattern)[0]
        names = owned_by(pattern, index)
        best: tuple[Bindings, list[Term]] | None = None
        best_count = 0
        for i, seed in enumerate(left):
            if best_count >= len(left) - i:
                break
            for start in self._matches(pattern, seed, env):
                shared = start
                own = [{name: shared.pop(name) for name in names}]
                rest = left[:i]
                for term in left[i + 1 :]:
                    one = next(self._matches(pattern, term, shared), None)
                    if one is None:
                        rest.append(term)
                        continue
                    own.append({name: one.pop(name) for name in names})
                    shared = one
                if len(own) > best_count:
                    lists = {name: [one[name] for one in own] for name in names}
                    best_count, best = len(own), ({**shared, **lists, count_of(index): len(own)}, rest)
        return best

    def _matches(self, pattern: ast.Expr, term: Term, env: Bindings) -> Iterator[Bindings]:
        """Enumerate the matches of one term. A negated one matches a negation without being built."""
        operand = _negated(pattern) if term.negated else None
        if operand is not None:
            return self.search.matches(operand, term.handle, env)
        return self.search.matches(pattern, self._value(term), env)

    def _value(self, term: Term) -> int:
        if not term.negated or term.handle == ABSENT:
            return term.handle
        return build_node(self.context, "Neg", {}, [TensorRef(term.handle)]).handle


def _negated(pattern: ast.Expr) -> ast.Expr | None:
    if isinstance(pattern, ast.Unary) and pattern.operator == "-":
        return pattern.operand
    if isinstance(pattern, ast.Call) and pattern.head == "Neg" and len(pattern.args) == 1:
        return pattern.args[0]
    return None


# --- inputs of a variadic operator ---


@dataclass(frozen=True, slots=True)
class VariadicMatch:
    """Match of one node: its inputs, the parts of its pattern, and the positions at which egglog found them."""

    context: RuleContext
    rule: ast.Rule
    children: Sequence[int]
    parts: tuple[VariadicPart, ...]
    at: Mapping[str, int]
    env: Bindings

    def bind(self) -> None:
        """Bind the variables of the parts; raise `Unprovable` unless these cover the inputs exactly."""
        runs = {number: self._run(number, part) for number, part in enumerate(self.parts) if part.each is not None}
        start = 0
        for number, part in enumerate(self.parts):
            if part.name:
                end = self._start_after(number, runs)
                require(start < end or (start == end and len(self.parts) > 1), f"no inputs remain for {part.name}")
                found = [TensorRef(c) for c in self.children[start:end]]
                agrees = self.env.setdefault(part.name, found) == found
                require(agrees, f"{part.name} matches different inputs elsewhere")
                start = end
            elif number in runs:
                require(runs[number][0] == start, "an input does not have the form that each has")
                start = runs[number][1]
            else:
                require(self._at(part) == start, "an input is at another position")
                start += self._width(part, start)
        require(start == len(self.children), "the node has more inputs than the pattern")

    def _start_after(self, number: int, runs: Mapping[int, tuple[int, int]]) -> int:
        if number + 1 == len(self.parts):
            return len(self.children)
        return runs[number + 1][0] if number + 1 in runs else self._at(self.parts[number + 1])

    def _at(self, part: VariadicPart) -> int:
        """Return the position of the input that egglog found for a part."""
        return part.position if isinstance(part.position, int) else self.at[part.position]

    def _width(self, part: VariadicPart, start: int) -> int:
        """Return the number of inputs of a part that egglog found: one, or all outputs of a node."""
        if not part.whole:
            return 1
        egraph = self.context.egraph
        whole = egraph.find(self.at[part.whole])
        count = len(egraph.types(whole))
        found = self.children[start : start + count]
        if len(found) < count or not all(egraph.is_output(child, whole, k) for k, child in enumerate(found)):
            raise Unprovable("its inputs are not all the outputs of one node in order")
        return count

    def _run(self, number: int, part: VariadicPart) -> tuple[int, int]:
        """Bind the maximal run of inputs of a part's form around the one that egglog found; return its bounds."""
        low, high = self._bounds(number)
        open_left = number > 0 and bool(self.parts[number - 1].name)
        open_right = number + 1 < len(self.parts) and bool(self.parts[number + 1].name)
        seed = self._at(part)
        require(low <= seed < high, "an input is at another position")
        search = Search(self.context, exact=self.rule.numerics == "exact", given=self.rule.given)
        assert part.each is not None
        for env in search.matches(part.each, self.children[seed], self.env):
            own = [{name: env.pop(name) for name in part.own}]
            start, end = seed, seed + 1
            while start > low and (one := self._one(search, part, start - 1, env)) is not None:
                own.insert(0, one)
                start -= 1
            while end < high and (one := self._one(search, part, end, env)) is not None:
                own.append(one)
                end += 1
            if (start == low or open_left) and (end == high or open_right):
                self.env.update(env)
                self.env.update({name: [one[name] for one in own] for name in part.own})
                self.env[count_of(part.index)] = end - start
                self.env[start_of(part.index)] = start
                return start, end
        raise Unprovable("not all inputs have the form that each has")

    def _one(self, search: Search, part: VariadicPart, position: int, env: Bindings) -> Bindings | None:
        """Match one input and return what it binds for itself; what it shares with the others is added to `env`."""
        assert part.each is not None
        found = next(search.matches(part.each, self.children[position], env), None)
        own = None if found is None else {name: found.pop(name) for name in part.own}
        env.update(found or {})
        return own

    def _bounds(self, number: int) -> tuple[int, int]:
        """Return the bounds of a run: the nearest parts on both sides with a known position."""
        placed = [(i, part) for i, part in enumerate(self.parts) if part.variable and part.each is None]
        before = next((part for i, part in reversed(placed) if i < number), None)
        after = next((part for i, part in placed if i > number), None)
        low = 0 if before is None else self._at(before) + self._width(before, self._at(before))
        return low, len(self.children) if after is None else self._at(after)
