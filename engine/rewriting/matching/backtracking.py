"""Matching of a pattern with one class, by backtracking over its e-nodes.

egglog finds where a whole pattern matches. What a conjunctive query cannot express, a form that each of many inputs or
terms has, is matched here, below a node that egglog found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ....grammar.syntax import ast
from ...egraph.analysis import ENode
from ...ir.names import ABSENT, OWN_DOMAIN
from ...ir.values import OpRef, TensorRef, Unprovable
from ...operators.schemas import signature
from ..notation import as_call, is_literal, starred
from ..rule_context import Bindings, RuleContext, require
from .attribute_matching import PartialMatch
from .type_constraints import check_given

STEPS = 20_000
"""Maximum number of e-nodes that one search visits; a match that needs more is not found."""


@dataclass(slots=True)
class Search:
    """One search in the e-graph of a context; `exact` as the rule is, `given` the types that it requires."""

    context: RuleContext
    exact: bool
    given: Sequence[ast.Given] = ()
    steps: int = 0

    def matches(self, pattern: ast.Expr, handle: int, env: Bindings) -> Iterator[Bindings]:
        """Enumerate the matches of a class, each as `env` with further bindings.

        The `x` of `x[i]` is bound to one value."""
        for state in self._match(pattern, handle, PartialMatch(env, self.context, self.exact)):
            found = state.fork()
            with contextlib.suppress(Unprovable):
                found.finish()
                bound = found.env.keys() - env.keys()
                check_given(self.context, [g for g in self.given if any(t.name in bound for t in g.targets)], found.env)
                yield found.env

    def _match(self, pattern: ast.Expr, handle: int, state: PartialMatch) -> Iterator[PartialMatch]:
        handle = self.context.egraph.find(handle)
        call = as_call(pattern)
        if call is not None and call.is_operator:
            yield from self._operator(call, handle, state)
            return
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
                    yield replace(state, defaults={**state.defaults, name: default})
                else:
                    yield from self._bind(name, handle, state)
            case ast.Alternatives(options=options):
                for option in options:
                    yield from self._match(option, handle, state)
            case ast.Subscript(base=ast.Call() as call, index=index):
                yield from self._output(call, index, handle, state)
            case _:
                found = state.fork()
                with contextlib.suppress(Unprovable):
                    found.add_literal(pattern, handle)
                    yield found

    def _bind(self, name: str, handle: int, state: PartialMatch) -> Iterator[PartialMatch]:
        known = state.env.get(name)
        if handle == ABSENT:
            return
        if known is None:
            yield state.fork({name: TensorRef(handle)})
        elif isinstance(known, TensorRef) and self.context.egraph.find(known.handle) == handle:
            yield state

    def _output(self, call: ast.Call, index: ast.Expr, handle: int, state: PartialMatch) -> Iterator[PartialMatch]:
        for node in self._nodes(handle):
            number = node.attrs.get("index")
            if node.op != "Proj":
                continue
            if isinstance(index, ast.Name) and state.env.get(index.id, number) == number:
                after = state.fork({index.id: number})
                yield from self._operator(call, node.children[0], after, one_output=False)
            elif isinstance(index, ast.Number) and index.value == number:
                yield from self._operator(call, node.children[0], state, one_output=False)

    def _nodes(self, handle: int) -> Iterator[ENode]:
        for member in list(self.context.egraph.members(handle)):
            self.steps += 1
            require(self.steps <= STEPS, f"the pattern has more than {STEPS} ways to match")
            node = self.context.egraph.nodes[member]
            if not node.serial:
                yield node

    def _operator(
        self, call: ast.Call, handle: int, state: PartialMatch, *, one_output: bool = True
    ) -> Iterator[PartialMatch]:
        for node in self._nodes(handle):
            name = None if one_output and node.outputs != 1 else self._name(call, node, state.env)
            if name is None:
                continue
            after = state.fork()
            if call.kind is not None:
                after.env.setdefault(call.head, OpRef(node.op, node.attrs))
            try:
                after.add_node(call, name, node.attrs)
            except Unprovable:
                continue
            if not call.args and call.rest is not None and call.rest.name is None:  # `Transpose(..)`: any inputs
                yield after
                continue
            for children in self._orders(call, node):
                yield from self._inputs(call.args, children, after)

    def _name(self, call: ast.Call, node: ENode, env: Mapping[str, object]) -> str | None:
        """Return the name that rules have for a node's operator; None if it is not the one of the pattern."""
        if call.kind is not None:
            bound = env.get(call.head)
            fits = not isinstance(bound, OpRef) or bound.op == node.op
            return node.op if fits and self.context.kinds.get(node.op) == call.kind else None
        wanted = f"{OWN_DOMAIN}.{call.head}" if call.head in self.context.declared else call.head
        return call.head if node.op == wanted else None

    def _orders(self, call: ast.Call, node: ENode) -> Iterator[tuple[int, ...]]:
        """Enumerate the orders in which operands may match, without absent ones at the end."""
        children = node.children
        if call.kind is None and (sig := signature(call.head)) is not None and sig.max_inputs is not None:
            while len(children) > len(call.args) and children[-1] == ABSENT:
                children = children[:-1]
        yield children
        if node.op in self.context.egraph.commutative and len(children) == 2 and children[0] != children[1]:
            yield children[::-1]

    def _inputs(self, args: Sequence[ast.Expr], children: Sequence[int], state: PartialMatch) -> Iterator[PartialMatch]:
        if not args:
            if not children:
                yield state
            return
        first, rest = args[0], args[1:]
        if isinstance(many := starred(first), ast.Name):
            for count in range(len(children) + 1):
                found = [TensorRef(self.context.egraph.find(c)) for c in children[:count]]
                if state.env.get(many.id, found) == found:
                    yield from self._inputs(rest, children[count:], state.fork({many.id: found}))
        elif children or isinstance(first, ast.Optional) or (isinstance(first, ast.Name) and first.id == "none"):
            for after in self._match(first, children[0] if children else ABSENT, state):
                yield from self._inputs(rest, children[1:], after)
