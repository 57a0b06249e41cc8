"""Matching a pattern with one class, by backtracking over its e-nodes.

The matcher finds where a whole pattern is; what it cannot count, patterns of each of many inputs or terms, is matched
here, below a node that it has found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..grammar import ast
from .attributes import Attributes, Binding
from .egraph import ABSENT, ENode
from .evaluate import INFIX, Evaluator, is_literal
from .given import check_given
from .operators import OWN_DOMAIN, signature
from .values import OpRef, TensorRef, Unprovable

STEPS = 20_000
"""How many e-nodes are tried in one search; what needs more is not matched."""


@dataclass(frozen=True, slots=True)
class _State:
    env: Binding
    later: tuple[tuple[ast.Expr, object, str], ...] = ()
    missing: tuple[ast.Attribute, ...] = ()
    defaults: tuple[tuple[str, ast.Expr], ...] = ()


class Search:
    """One search in the e-graph of an evaluator; `exact` as the rule is, `given` the types that it asks for."""

    def __init__(self, evaluator: Evaluator, *, exact: bool, given: Sequence[ast.Given] = ()) -> None:
        self.given = given
        self.evaluator = evaluator
        self.egraph = evaluator.egraph
        self.exact = exact
        self.steps = 0

    def matches(self, pattern: ast.Expr, handle: int, env: Binding) -> Iterator[Binding]:
        """The ways in which a class matches, each with `env` and what is bound besides. The `x` of `x[i]` is bound to
        one value."""
        for state in self._match(pattern, handle, _State(dict(env))):
            attributes = Attributes(dict(state.env), self.evaluator, self.exact, list(state.later), list(state.missing))
            try:
                for name, default in state.defaults:
                    if name not in attributes.env:
                        attributes.env[name] = self.evaluator.evaluate(default, attributes.env)
                attributes.settle()
                bound = attributes.env.keys() - env.keys()
                asked = [g for g in self.given if any(t.name in bound for t in g.targets)]
                check_given(asked, attributes.env, self.evaluator)
            except Unprovable:
                continue
            yield attributes.env

    def _match(self, pattern: ast.Expr, handle: int, state: _State) -> Iterator[_State]:
        handle = self.egraph.find(handle)
        match pattern:
            case ast.Name(id="none"):
                if handle == ABSENT:
                    yield state
            case ast.Subscript(base=ast.Name(id=name), index=ast.Name()):
                yield from self._bind(name, handle, state)
            case ast.Name(id=name) if not is_literal(name):
                yield from self._bind(name, handle, state)
            case ast.Optional(name=name, default=default):
                if handle == ABSENT:
                    yield replace(state, defaults=(*state.defaults, (name, default)))
                else:
                    yield from self._bind(name, handle, state)
            case ast.Alternatives(options=options):
                for option in options:
                    yield from self._match(option, handle, state)
            case ast.Subscript(base=ast.Call() as call, index=index):
                yield from self._output(call, index, handle, state)
            case ast.Unary(operator="-", operand=operand) if not isinstance(operand, ast.Number):
                yield from self._operator(ast.Call(span=pattern.span, head="Neg", args=(operand,)), handle, state)
            case ast.Binary(operator=operator, left=left, right=right) if operator in INFIX:
                call = ast.Call(span=pattern.span, head=INFIX[operator], args=(left, right))
                yield from self._operator(call, handle, state)
            case ast.Call() if pattern.is_operator:
                yield from self._operator(pattern, handle, state)
            case _:
                try:
                    self.evaluator.match_literal(pattern, handle, exact=self.exact)
                except Unprovable:
                    return
                yield state

    def _bind(self, name: str, handle: int, state: _State) -> Iterator[_State]:
        known = state.env.get(name)
        if handle == ABSENT:
            return
        if known is None:
            yield replace(state, env={**state.env, name: TensorRef(handle)})
        elif isinstance(known, TensorRef) and self.egraph.find(known.handle) == handle:
            yield state

    def _output(self, call: ast.Call, index: ast.Expr, handle: int, state: _State) -> Iterator[_State]:
        for node in self._nodes(handle):
            if node.op != "Proj":
                continue
            number = node.attrs["index"]
            after = state
            if isinstance(index, ast.Name):
                if state.env.get(index.id, number) != number:
                    continue
                after = replace(state, env={**state.env, index.id: number})
            elif not isinstance(index, ast.Number) or index.value != number:
                continue
            yield from self._operator(call, node.children[0], after, one_output=False)

    def _nodes(self, handle: int) -> Iterator[ENode]:
        for member in list(self.egraph.members(handle)):
            self.steps += 1
            if self.steps > STEPS:
                raise Unprovable("there are too many ways to match")
            node = self.egraph.nodes[member]
            if not node.serial:
                yield node

    def _operator(self, call: ast.Call, handle: int, state: _State, *, one_output: bool = True) -> Iterator[_State]:
        for node in self._nodes(handle):
            if (node.outputs == 1) is not one_output and one_output:
                continue
            name = self._name(call, node, state.env)
            if name is None:
                continue
            env = dict(state.env)
            if call.kind is not None:
                env.setdefault(call.head, OpRef(node.op, node.attrs))
            attributes = Attributes(env, self.evaluator, self.exact, list(state.later), list(state.missing))
            try:
                attributes.node(call, name, node.attrs)
            except Unprovable:
                continue
            after = _State(env, tuple(attributes.later), tuple(attributes.missing), state.defaults)
            if not call.args and call.rest is not None and call.rest.name is None:  # `Transpose(..)`: whatever it reads
                yield after
                continue
            for children in self._orders(call, node):
                yield from self._inputs(call.args, children, after)

    def _name(self, call: ast.Call, node: ENode, env: Mapping[str, object]) -> str | None:
        """What rules call the operator of a node, if it is the one that the pattern asks for."""
        if call.kind is not None:
            bound = env.get(call.head)
            if isinstance(bound, OpRef) and bound.op != node.op:
                return None
            return node.op if self.evaluator.kinds.get(node.op) == call.kind else None
        wanted = f"{OWN_DOMAIN}.{call.head}" if call.head in self.evaluator.declared else call.head
        return call.head if node.op == wanted else None

    def _orders(self, call: ast.Call, node: ENode) -> Iterator[tuple[int, ...]]:
        """The children in every order in which they may stand, without the absent ones at the end."""
        children = node.children
        if call.kind is None and (sig := signature(call.head)) is not None and sig.max_inputs is not None:
            while len(children) > len(call.args) and children[-1] == ABSENT:
                children = children[:-1]
        yield children
        if node.op in self.egraph.commutative and len(children) == 2 and children[0] != children[1]:
            yield children[::-1]

    def _inputs(self, args: Sequence[ast.Expr], children: Sequence[int], state: _State) -> Iterator[_State]:
        if not args:
            if not children:
                yield state
            return
        first, rest = args[0], args[1:]
        if isinstance(first, ast.Subscript) and isinstance(first.index, ast.All) and isinstance(first.base, ast.Name):
            name = first.base.id
            for count in range(len(children) + 1):
                found = [TensorRef(self.egraph.find(c)) for c in children[:count]]
                if state.env.get(name, found) == found:
                    yield from self._inputs(rest, children[count:], replace(state, env={**state.env, name: found}))
            return
        if children:
            for after in self._match(first, children[0], state):
                yield from self._inputs(rest, children[1:], after)
        elif isinstance(first, ast.Optional) or (isinstance(first, ast.Name) and first.id == "none"):
            for after in self._match(first, ABSENT, state):
                yield from self._inputs(rest, (), after)
