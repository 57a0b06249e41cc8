"""Instances of patterns: whether a term has the form of a pattern whose variables all have known values.

Nothing is searched for: a trail says what each variable stands for, and this module only compares. It shares no code
with compiled patterns, egglog's queries or the binding of matches, so a fault in these does not hide here.

The answer is a list of equalities that it rests on, each between two e-nodes of one class, from which the steps that a
later one needs are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...grammar.builtins import NARY
from ...grammar.syntax import ast
from ...grammar.syntax.scope import indices_in
from ..egraph.analysis import ENode
from ..ir.graph import Constant, Graph
from ..ir.names import ABSENT, CAPTURES, WITH_BODIES
from ..ir.values import BodyRef, OpRef, RestRef, TensorRef, Unprovable, Value, as_attribute
from ..operators.schemas import default_attrs, graph_name
from ..rewriting.build_nodes import declared_defaults
from ..rewriting.evaluate import Evaluator
from ..rewriting.matching.attribute_matching import LITERAL_TOLERANCE
from ..rewriting.notation import as_call, count_of, is_literal, starred
from ..rewriting.rule_context import Bindings
from .coding import body_digest

STEPS = 100_000
"""Maximum number of comparisons of one instance."""

Equalities = tuple[tuple[int, int], ...]
"""Pairs of e-nodes that are in one class."""


class NotAnInstance(Exception):
    """A term does not have the form of a pattern; the message says where they differ first."""


@dataclass(slots=True)
class Instances:
    """Comparison of terms in the e-graph of a context with the patterns of one rule."""

    context: Evaluator
    exact: bool
    pattern: ast.Expr | ast.Roots
    steps: int = 0
    differs: str = field(default="the terms differ")

    def check(self, pattern: ast.Expr, handle: int, env: Bindings) -> Equalities:
        """Return the equalities by which class `handle` holds an instance of a pattern; raise `NotAnInstance`.

        Names of optional operands that are absent get their defaults in `env`."""
        found = next(self._compare(pattern, handle, env), None)
        if found is None:
            raise NotAnInstance(self.differs)
        return found

    # --- terms ---

    def _compare(self, pattern: ast.Expr, handle: int, env: Bindings) -> Iterator[Equalities]:
        """Enumerate the ways in which a class holds an instance; more than one only where nodes of it are alike."""
        self.steps += 1
        if self.steps > STEPS:
            raise NotAnInstance(f"more than {STEPS:,} comparisons")
        call = as_call(pattern)
        if call is not None and call.is_operator:
            yield from self._operator(call, handle, env)
            return
        match pattern:
            case ast.Name(id="none"):
                if self._is_absent(handle):
                    yield ()
            case ast.Optional(name=name, default=default):
                if self._is_absent(handle):
                    value = self.context.evaluate(default, env)
                    if _alike(env.setdefault(name, value), value):
                        yield ()
                else:
                    yield from self._same(name, env.get(name), handle)
            case ast.Subscript(base=ast.Name(id=name), index=ast.Name(id=index)):
                value = env.get(name)
                yield from self._same(name, value[env[index]] if isinstance(value, list) else value, handle)
            case ast.Name(id=name) if not is_literal(name):
                yield from self._same(name, env.get(name), handle)
            case ast.Omitted(pattern=inner, defaults=defaults):
                values = {d.name: self.context.evaluate(d.default, env) for d in defaults}
                if all(_alike(env.get(name, value), value) for name, value in values.items()):
                    env.update(values)
                    yield from self._compare(inner, handle, env)
            case ast.Alternatives(options=options):
                for option in options:
                    yield from self._compare(option, handle, env)
            case ast.Subscript(base=ast.Call() as call, index=ast.Number() | ast.Name() as index):
                number = int(index.value) if isinstance(index, ast.Number) else env.get(index.id)
                yield from self._output(call, number, handle, env)
            case _:
                yield from self._literal(pattern, handle, env)

    def _is_absent(self, handle: int) -> bool:
        return self.context.egraph.find(handle) == ABSENT

    def _same(self, name: str, value: Value, handle: int) -> Iterator[Equalities]:
        """Yield the equality of a class with the value of a variable, if they are equal."""
        find = self.context.egraph.find
        if isinstance(value, TensorRef) and find(value.handle) == find(handle):
            yield ((handle, value.handle),)
        else:
            self.differs = f"{name} stands for something else"

    def _nodes(self, handle: int) -> Iterator[tuple[int, ENode]]:
        nodes = self.context.egraph.nodes
        for member in list(self.context.egraph.members(handle)):
            if not nodes[member].serial:
                yield member, nodes[member]

    def _operator(self, call: ast.Call, handle: int, env: Bindings, *, one_output: bool = True) -> Iterator[Equalities]:
        if call.head in NARY and (call.has_many or len(call.args) > 2):
            yield from _Tree(self, call, env).compare(handle)
            return
        for member, node in self._nodes(handle):
            if (one_output and node.outputs != 1) or not self._is_operator(call, node, env):
                continue
            if not self._same_attributes(call, node, env) or not self._same_captures(call, node, env):
                continue
            if not call.args and call.rest is not None and call.rest.name is None:  # `Transpose(..)`: any inputs
                yield ((handle, member),)
                continue
            for children in self._orders(call, node):
                for rest in self._inputs(call, call.args, children, env):
                    yield ((handle, member), *rest)

    def _is_operator(self, call: ast.Call, node: ENode, env: Bindings) -> bool:
        if call.kind is not None:
            bound = env.get(call.head)
            return isinstance(bound, OpRef) and bound.op == node.op and self.context.kinds.get(node.op) == call.kind
        if node.op != (graph_name(call.head) if call.head in self.context.declared else call.head):
            self.differs = f"there is no {call.head}"
            return False
        return True

    def _orders(self, call: ast.Call, node: ENode) -> Iterator[tuple[int, ...]]:
        """Enumerate the orders of a node's operands that mean the same, without captured and unnamed absent ones."""
        children = node.children
        captured = node.attrs.get(CAPTURES, ())
        assert isinstance(captured, tuple)
        children = children[: len(children) - len(captured)]
        if not (call.has_many or call.head in WITH_BODIES):
            while len(children) > len(call.args) and children[-1] == ABSENT:
                children = children[:-1]
        yield children
        if node.op in self.context.egraph.commutative and len(children) == 2 and children[0] != children[1]:
            yield children[::-1]

    def _inputs(
        self, call: ast.Call, args: Sequence[ast.Expr], children: Sequence[int], env: Bindings
    ) -> Iterator[Equalities]:
        if not args:
            if not children:
                yield ()
            return
        first, rest = args[0], args[1:]
        many = starred(first)
        if isinstance(many, ast.Name):
            values = env.get(many.id)
            if isinstance(values, list) and len(values) <= len(children):
                pairs = list(zip(children, values, strict=False))
                found = [next(self._same(many.id, value, child), None) for child, value in pairs]
                if None not in found:
                    for after in self._inputs(call, rest, children[len(values) :], env):
                        yield (*(pair for one in found if one is not None for pair in one), *after)
        elif isinstance(many, ast.Call):  # all outputs of one node, in order
            yield from self._all_outputs(many, call, rest, children, env)
        elif isinstance(first, ast.Each):
            index = indices_in(first)[0]
            count = env.get(count_of(index))
            if isinstance(count, int) and 0 < count <= len(children):
                yield from self._run(call, first, index, count, rest, children, env)
        elif children or isinstance(first, ast.Optional) or (isinstance(first, ast.Name) and first.id == "none"):
            for found_ in self._compare(first, children[0] if children else ABSENT, env):
                for after in self._inputs(call, rest, children[1:], env):
                    yield (*found_, *after)

    def _run(
        self, call: ast.Call, each: ast.Each, index: str, count: int, rest: Sequence[ast.Expr],
        children: Sequence[int], env: Bindings,
    ) -> Iterator[Equalities]:  # fmt: skip
        """Compare `count` inputs with the form that each has, then the others."""
        pairs: list[tuple[int, int]] = []
        for i in range(count):
            one = next(self._compare(each.value, children[i], {**env, index: i}), None)
            if one is None:
                return
            pairs += one
        for after in self._inputs(call, rest, children[count:], env):
            yield (*pairs, *after)

    def _all_outputs(
        self, inner: ast.Call, call: ast.Call, rest: Sequence[ast.Expr], children: Sequence[int], env: Bindings
    ) -> Iterator[Equalities]:
        egraph = self.context.egraph
        for first, node in self._nodes(children[0]) if children else ():
            if node.op != "Proj" or node.attrs["index"] != 0:
                continue
            whole = node.children[0]
            count = len(egraph.types(whole))
            parts = [self._projection(child, whole, k) for k, child in enumerate(children[:count])]
            if len(parts) < count or None in parts:
                continue
            pairs = tuple((child, part) for child, part in zip(children, parts, strict=False) if part is not None)
            for found in self._operator(inner, whole, env, one_output=False):
                for after in self._inputs(call, rest, children[count:], env):
                    yield ((children[0], first), *pairs, *found, *after)

    def _projection(self, handle: int, whole: int, index: int) -> int | None:
        find = self.context.egraph.find
        return next(
            (
                member
                for member, node in self._nodes(handle)
                if node.op == "Proj" and node.attrs["index"] == index and find(node.children[0]) == find(whole)
            ),
            None,
        )

    def _output(self, call: ast.Call, number: Value, handle: int, env: Bindings) -> Iterator[Equalities]:
        for member, node in self._nodes(handle):
            if node.op == "Proj" and node.attrs["index"] == number:
                for found in self._operator(call, node.children[0], env, one_output=False):
                    yield ((handle, member), *found)
        if number == 0 and call.head in WITH_BODIES:  # a node with one output is its own first
            yield from self._operator(call, handle, env)

    # --- attributes and literals ---

    def _same_attributes(self, call: ast.Call, node: ENode, env: Bindings) -> bool:
        attrs = {name: value for name, value in node.attrs.items() if name != CAPTURES}
        named = {a.name: a for a in call.attributes}
        for name, attribute in named.items():
            if name in attrs:
                ok = self._is_value(attribute.value, attrs[name], env)
            elif attribute.default is not None:
                ok = self._is_value(attribute.value, self.context.evaluate(attribute.default, env), env)
            else:
                ok = False
            if not ok:
                self.differs = f"{name} of {node.op} differs"
                return False
        others = {name: value for name, value in attrs.items() if name not in named}
        if call.kind is not None:
            bound = env[call.head].attrs
            return dict(bound) == attrs or (
                _uses(self.pattern, call.head) > 1
                and {name: value for name, value in bound.items() if name not in named} == others
            )
        if call.rest is not None:
            if call.rest.name is None:
                return True
            rest = env.get(call.rest.name)
            same = isinstance(rest, RestRef) and dict(rest.attrs) == others
            self.differs = self.differs if same else f"the other attributes of {node.op} differ"
            return same
        defaults = declared_defaults(self.context, call.head) or default_attrs(call.head)
        for name, value in others.items():
            if name not in defaults or defaults[name] != value:
                self.differs = f"{name} of {node.op} is {value!r}"
                return False
        return True

    def _same_captures(self, call: ast.Call, node: ENode, env: Bindings) -> bool:
        """Whether the bodies that a pattern binds are said to be the node's, and to capture what they capture there."""
        find, names = self.context.egraph.find, node.attrs.get(CAPTURES, ())
        assert isinstance(names, tuple)
        first = len(node.children) - len(names)
        captured = {str(name): find(child) for name, child in zip(names, node.children[first:], strict=True)}
        for attribute in call.attributes:
            bound = env.get(attribute.value.id) if isinstance(attribute.value, ast.Name) else None
            if not isinstance(bound, BodyRef):
                continue
            said = {name: find(tensor.handle) for name, tensor in bound.captures.items()}
            same = all(captured.get(name) == c for name, c in said.items()) and {*bound.graph.captures()} <= {*said}
            if bound.op != node.op or not same:
                self.differs = f"a body of {node.op} captures something else"
                return False
        return True

    def _is_value(self, pattern: ast.Expr, value: Value, env: Bindings) -> bool:
        """Whether an attribute has the value of its pattern."""
        if isinstance(pattern, ast.Axis):
            rank = self.context.evaluate(pattern.rank, env)
            fits = isinstance(value, int) and isinstance(rank, int) and -rank <= value < rank
            return fits and env.get(pattern.name) == value % rank
        if isinstance(pattern, ast.ListExpr) and any(isinstance(item, ast.Axis) for item in pattern.items):
            same = isinstance(value, tuple | list) and len(value) == len(pattern.items)
            return same and all(
                self._is_value(item, part, env) for item, part in zip(pattern.items, value, strict=True)
            )
        name = pattern.id if isinstance(pattern, ast.Name) else None
        if isinstance(value, Graph):
            bound = env.get(name or "")
            return isinstance(bound, BodyRef) and body_digest(bound.graph) == body_digest(value)
        if isinstance(value, Constant):
            bound = env.get(name or "")
            handle = self.context.egraph.add_constant(value)
            if isinstance(bound, TensorRef):
                return self.context.egraph.find(bound.handle) == self.context.egraph.find(handle)
            return self._has_elements(pattern, handle, env)
        wanted = self.context.evaluate(pattern, env)
        if wanted is None or value is None:
            return wanted is value
        if isinstance(wanted, TensorRef):
            wanted = self.context.contents(wanted).tolist()
        wanted, value = as_attribute(wanted), as_attribute(value)
        if isinstance(wanted, float) or isinstance(value, float):
            if not (isinstance(wanted, int | float) and isinstance(value, int | float)):
                return False
            return bool(np.float32(wanted) == np.float32(value))
        return bool(wanted == value)

    def _literal(self, pattern: ast.Expr, handle: int, env: Bindings) -> Iterator[Equalities]:
        if not self._has_elements(pattern, handle, env):
            self.differs = "a constant has other elements"
            return
        constant = next((member for member, node in self._nodes(handle) if node.op == "Const"), handle)
        yield ((handle, constant),)

    def _has_elements(self, pattern: ast.Expr, handle: int, env: Bindings) -> bool:
        """Whether a class is a constant whose elements all are a literal, or are those of a list."""
        try:
            array = self.context.contents(TensorRef(handle))
            if isinstance(pattern, ast.ListExpr) and any(isinstance(item, ast.Axis) for item in pattern.items):
                return self._is_value(pattern, array.tolist(), env)
            wanted = as_attribute(self.context.evaluate(pattern, env))
        except Unprovable:
            return False
        if isinstance(wanted, tuple):
            return array.shape == (len(wanted),) and bool((array == np.array(wanted)).all())
        if not isinstance(wanted, int | float) or not array.size:
            return False
        if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
            return float(np.asarray(wanted).astype(array.dtype)) == float(wanted) and bool((array == wanted).all())
        if self.exact:
            number = np.asarray(wanted).astype(array.dtype)
            signed = wanted != 0 or not np.signbit(array).any()
            return signed and bool((array == number).all())
        near = np.abs(array.astype(np.float64) - wanted) <= LITERAL_TOLERANCE * abs(wanted)
        return bool((near | (array == np.asarray(wanted).astype(array.dtype))).all())


@dataclass(slots=True)
class _Tree:
    """Comparison of a sum or product of any number of terms, in any order and bracketing.

    The terms that the pattern stands for are all known. Classes are taken apart until each is one of them."""

    instances: Instances
    call: ast.Call
    env: Bindings

    def compare(self, handle: int) -> Iterator[Equalities]:
        """Enumerate the ways in which a class is the sum or product of the pattern's terms."""
        terms: list[tuple[ast.Expr | TensorRef, Mapping[str, Value]]] = []
        for arg in self.call.args:
            name = starred(arg)
            if isinstance(name, ast.Name):
                values = self.env.get(name.id)
                if not isinstance(values, list) or not all(isinstance(value, TensorRef) for value in values):
                    return
                terms += [(value, self.env) for value in values]
            elif isinstance(arg, ast.Each):
                index = indices_in(arg)[0]
                terms += [(arg.value, {**self.env, index: i}) for i in range(self.env.get(count_of(index), 0))]
            else:
                terms.append((arg, self.env))
        for left, pairs in self._cover(handle, negated=False, terms=terms, depth=0):
            if not left:
                yield pairs

    def _cover(
        self, handle: int, *, negated: bool, terms: list[tuple[ast.Expr | TensorRef, Mapping[str, Value]]], depth: int
    ) -> Iterator[tuple[list[tuple[ast.Expr | TensorRef, Mapping[str, Value]]], Equalities]]:
        """Enumerate the ways to explain a class by some of the terms, with those that are left over."""
        if depth:
            for i, (term, env) in enumerate(terms):
                for pairs in self._is_term(term, handle, env, negated=negated):
                    yield terms[:i] + terms[i + 1 :], pairs
                    break
        operators = ("Add", "Sub") if self.call.head == "Add" else (self.call.head,)
        for member, node in self.instances._nodes(handle):
            if node.op not in operators or depth > len(terms) + 256:
                continue
            left, right = node.children
            for between, first in self._cover(left, negated=negated, terms=terms, depth=depth + 1):
                other = negated is not (node.op == "Sub")
                for after, second in self._cover(right, negated=other, terms=between, depth=depth + 1):
                    yield after, ((handle, member), *first, *second)

    def _is_term(
        self, term: ast.Expr | TensorRef, handle: int, env: Mapping[str, Value], *, negated: bool
    ) -> Iterator[Equalities]:
        instances, egraph = self.instances, self.instances.context.egraph
        if not negated:
            yield from self._is(term, handle, env)
            return
        operand = _negated(term)
        if operand is not None:
            yield from self._is(operand, handle, env)
            return
        for user in egraph.users(handle):  # the negation that a match made of the term
            node = egraph.nodes[user]
            if node.op == "Neg":
                for pairs in self._is(term, user, env):
                    yield ((node.children[0], handle), *pairs)
                    return
        instances.differs = "a subtracted term has no negation"

    def _is(self, term: ast.Expr | TensorRef, handle: int, env: Mapping[str, Value]) -> Iterator[Equalities]:
        if isinstance(term, TensorRef):
            yield from self.instances._same("a term", term, handle)
        else:
            yield from self.instances._compare(term, handle, dict(env))


def _uses(pattern: ast.Expr | ast.Roots, head: str) -> int:
    """Return how often a pattern names an operator variable; of several, one node's named attributes are bound."""
    return sum(isinstance(e, ast.Call) and e.head == head for e in pattern.walk())


def _negated(term: ast.Expr | TensorRef) -> ast.Expr | None:
    if isinstance(term, ast.Unary) and term.operator == "-":
        return term.operand
    if isinstance(term, ast.Call) and term.head == "Neg" and len(term.args) == 1:
        return term.args[0]
    return None


def _alike(a: Value, b: Value) -> bool:
    """Whether a variable has its default."""
    if isinstance(a, TensorRef) or isinstance(b, TensorRef):
        return bool(a == b)
    try:
        return bool(as_attribute(a) == as_attribute(b))
    except Unprovable:
        return a is b
