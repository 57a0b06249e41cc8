"""From a rule's left side to queries for the matcher.

A pattern becomes a conjunctive query over e-nodes. What the matcher cannot see (literals, attributes, operator kinds,
types) becomes a list of demands that `bind` checks on each match. Operators are padded to their full number of inputs
with the absent leaf, so that one query serves every way of leaving optional inputs out; the inputs of a variadic
operator are taken apart after matching.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..grammar import ast
from ..grammar.builtins import NARY
from ..grammar.scope import indices_in, owned_by
from .declared import max_inputs
from .evaluate import INFIX, is_literal
from .matcher import Atom, Query, Spread
from .operators import WITH_BODIES, signature
from .patterns import CompiledRule, Demand, Part, Unsupported, Variant


@dataclass(slots=True)
class _State:
    """A pattern half translated; copied where the translation branches."""

    atoms: list[Atom | Spread] = field(default_factory=list)
    tensors: dict[str, str | list[str]] = field(default_factory=dict)
    defaults: dict[str, ast.Expr] = field(default_factory=dict)
    heads: dict[str, tuple[str, str]] = field(default_factory=dict)
    demands: list[Demand] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    kinds: list[tuple[str, str]] = field(default_factory=list)
    fixed: list[str] = field(default_factory=list)
    spreads: list[tuple[str, tuple[Part, ...]]] = field(default_factory=list)
    seen: dict[tuple[Any, ...], str] = field(default_factory=dict)
    wholes: dict[str, str] = field(default_factory=dict)
    naries: list[tuple[str, ast.Call]] = field(default_factory=list)
    counter: int = 0

    def copy(self) -> _State:
        tensors = {k: list(v) if isinstance(v, list) else v for k, v in self.tensors.items()}
        return _State(
            list(self.atoms),
            tensors,
            dict(self.defaults),
            dict(self.heads),
            list(self.demands),
            list(self.absent),
            list(self.kinds),
            list(self.fixed),
            list(self.spreads),
            dict(self.seen),
            dict(self.wholes),
            list(self.naries),
            self.counter,
        )

    def fresh(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}_{self.counter}"


class Compiler:
    """Compiles patterns against the operators of one e-graph, which `op_id` numbers; `declared` are those that rule
    files define, by their names there."""

    def __init__(
        self, op_id: Mapping[str, int], commutative: frozenset[str], prefix: str, declared: Mapping[str, ast.Op]
    ) -> None:
        self.prefix = prefix
        self.op_id = op_id
        self.declared = declared
        self.commutative = commutative

    def variants(self, rule: CompiledRule, known: set[tuple[object, ...]]) -> Iterator[Variant]:
        """The variants of a rule not yet in `known`, which is added to."""
        roots = rule.lhs.bindings if isinstance(rule.lhs, ast.Roots) else (rule.lhs,)
        states: list[tuple[_State, tuple[str, ...]]] = [(_State(), ())]
        for root in roots:
            expr = root.value if isinstance(root, ast.Binding) else root
            states = [(s, (*done, v)) for state, done in states for s, v in self._match(expr, state)]
        for state, tops in states:
            key = (rule.name, tuple(state.atoms), tops)
            if key in known:
                continue
            known.add(key)
            yield self._variant(rule, state, tops, len(known))

    def _variant(self, rule: CompiledRule, state: _State, roots: tuple[str, ...], number: int) -> Variant:
        classes: dict[str, None] = dict.fromkeys(roots)
        integers: dict[str, None] = {}
        for atom in state.atoms:
            classes[atom.root] = None
            integers[atom.attrs] = None
            if isinstance(atom, Spread):
                integers.update(dict.fromkeys([atom.node, *(position for position, _ in atom.picks)]))
                classes.update(dict.fromkeys(child for _, child in atom.picks))
                continue
            classes.update(dict.fromkeys(atom.children))
            if isinstance(atom.op, str):
                integers[atom.op] = None
        # a default stands for an absent input, which is no constant term
        constants = [t.name for g in rule.rule.given if g.type.const for t in g.targets if t.name not in state.defaults]
        fixed = [*state.fixed, *(v for name in constants if isinstance(v := state.tensors.get(name), str))]
        query = Query(
            f"{self.prefix}_{number}",
            f"{self.prefix}_{rule.ruleset}",
            tuple(state.atoms),
            tuple(classes),
            tuple(integers),
            tuple(state.absent),
            tuple(dict.fromkeys(fixed)),
            tuple(dict.fromkeys(state.kinds)),
        )
        return Variant(
            query,
            roots,
            state.tensors,
            state.defaults,
            state.heads,
            tuple(state.demands),
            tuple(state.spreads),
            state.wholes.get(rule.index or ""),
            tuple(state.naries),
        )

    def _match(self, expr: ast.Expr, state: _State) -> Iterator[tuple[_State, str]]:
        """Translations of `expr` in continuation of `state`, each with the class variable of its value."""
        match expr:
            case ast.Name(id="none"):
                state = state.copy()
                variable = state.fresh("absent")
                state.absent.append(variable)
                yield state, variable
            case ast.Name() if not is_literal(expr.id):
                yield self._variable(expr.id, state)
            case ast.Optional():
                state, variable = self._variable(expr.name, state)
                state.defaults[expr.name] = expr.default
                yield state, variable
            case ast.Subscript(base=ast.Name(id=name), index=ast.Name()):  # W[i], one for each match of a group
                yield self._variable(name, state)
            case ast.Subscript(base=ast.Call() as call, index=ast.Number() | ast.Name() as index):
                if call.head in WITH_BODIES:
                    yield from self._only_output(call, index, state)
                yield from self._output(call, index, state)
            case ast.Unary(operator="-", operand=ast.Number()) | ast.Number() | ast.ListExpr() | ast.Name():
                state = state.copy()
                variable = state.fresh("k")
                state.demands.append(Demand(variable, literal=expr))
                state.fixed.append(variable)
                yield state, variable
            case ast.Unary(operator="-") as neg:
                yield from self._operator(_call("Neg", neg.span, neg.operand), state)
            case ast.Binary() as binary if binary.operator in INFIX:
                yield from self._operator(_call(INFIX[binary.operator], binary.span, binary.left, binary.right), state)
            case ast.Alternatives():
                for option in expr.options:
                    yield from self._match(option, state.copy())
            case ast.Call() if expr.is_operator:
                yield from self._operator(expr, state)
            case ast.Call():  # a number computed from numbers: sqrt(2)
                state = state.copy()
                variable = state.fresh("k")
                state.demands.append(Demand(variable, literal=expr))
                state.fixed.append(variable)
                yield state, variable
            case _:
                raise Unsupported("this cannot stand in a pattern")

    def _output(self, call: ast.Call, index: ast.Number | ast.Name, state: _State) -> Iterator[tuple[_State, str]]:
        """An output by its number, or any for a name."""
        for after, whole in self._operator(call, state.copy(), outputs=None):
            root, attrs = after.fresh("p"), after.fresh("a")
            after.atoms.append(Atom(root, self.op_id["Proj"], attrs, (whole,)))
            if isinstance(index, ast.Name):
                after.demands.append(Demand(attrs, op="Proj", any_index=index.id))
                after.wholes[index.id] = whole
            else:
                after.demands.append(Demand(attrs, op="Proj", index=int(index.value)))
            yield after, root

    def _only_output(self, call: ast.Call, index: ast.Number | ast.Name, state: _State) -> Iterator[tuple[_State, str]]:
        """The output of a node that happens to have one, where it may have any number."""
        if isinstance(index, ast.Number) and index.value != 0:
            return
        for after, root in self._operator(call, state.copy(), outputs=1):
            if isinstance(index, ast.Name):
                after.demands.append(Demand(after.demands[-1].variable, op=call.head, any_index=index.id))
            yield after, root

    def _variable(self, name: str, state: _State) -> tuple[_State, str]:
        state = state.copy()
        bound = state.tensors.setdefault(name, f"v_{name}")
        if isinstance(bound, list):
            raise Unsupported(f"{name} stands for several inputs here")
        return state, bound

    def _operator(self, call: ast.Call, state: _State, outputs: int | None = 1) -> Iterator[tuple[_State, str]]:
        if call.head in NARY and (call.has_many or len(call.args) > 2):
            yield from self._nary(call, state)
            return
        if call.has_many or call.head in WITH_BODIES:
            yield from self._variadic(call, state, outputs)
            return
        for before, children in self._inputs(call, state):
            after = before.copy()
            # What is written twice is one node, for equal nodes share a class: fewer atoms, and no join of each of
            # them with all the others. Not so where attributes are left open, or operands may be swapped.
            key = (call.head, tuple(children), call.attributes, call.rest, outputs)
            settled = call.kind is None and (call.rest is None or call.rest.name is not None)
            settled = settled and call.head not in self.commutative
            if settled and key in after.seen:
                yield after, after.seen[key]
                continue
            root, attrs = after.fresh("n"), after.fresh("a")
            if settled:
                after.seen[key] = root
            if call.kind is not None:
                op: int | str = after.fresh("o")
                assert isinstance(op, str)
                bound = after.heads.get(call.head)
                if bound is not None:
                    op = bound[0]
                else:
                    after.heads[call.head] = (op, attrs)
                after.demands.append(Demand(attrs, call, outputs=outputs, kind=call.kind))
                after.kinds.append((op, call.kind))
                after.atoms.append(Atom(root, op, attrs, tuple(children)))
            else:
                if call.head not in self.op_id:
                    return  # no such operator in this e-graph
                commutative = call.head in self.commutative and len(children) == 2
                after.demands.append(Demand(attrs, call, call.head, outputs=outputs))
                after.atoms.append(Atom(root, self.op_id[call.head], attrs, tuple(children), commutative))
            yield after, root

    def _inputs(self, call: ast.Call, state: _State) -> Iterator[tuple[_State, list[str]]]:
        """Ways to match the inputs of a call, each with the class variables of all inputs."""
        states: list[tuple[_State, list[str]]] = [(state, [])]
        for arg in call.args:
            states = [(s, [*done, v]) for before, done in states for s, v in self._match(arg, before)]
        most = self._max_inputs(call) or 0
        for before, children in states:
            if len(children) < most:
                before = before.copy()
                while len(children) < most:
                    children.append(before.fresh("absent"))
                    before.absent.append(children[-1])
            yield before, children

    def _max_inputs(self, call: ast.Call) -> int | None:
        """How many inputs the nodes of an operator have in an e-graph, absent ones among them."""
        sig = signature(call.head) if call.kind is None else None
        if sig is not None:
            return sig.max_inputs
        return max_inputs(self.declared[call.head]) if call.kind is None and call.head in self.declared else None

    def _nary(self, call: ast.Call, state: _State) -> Iterator[tuple[_State, str]]:
        """The tree of an operator: the matcher finds the node where it ends, the rest is for `nary`."""
        for op in ("Add", "Sub") if call.head == "Add" else (call.head,):
            if op not in self.op_id:
                continue
            after = state.copy()
            root, attrs, left, right = after.fresh("n"), after.fresh("a"), after.fresh("k"), after.fresh("k")
            after.atoms.append(Atom(root, self.op_id[op], attrs, (left, right)))
            after.naries.append((root, call))
            yield after, root

    def _variadic(self, call: ast.Call, state: _State, outputs: int | None) -> Iterator[tuple[_State, str]]:
        """An operator with inputs such as `xs[*], Concat(ys[*]), zs[*]`: any number for each starred one."""
        if call.head not in self.op_id:
            return
        before = state.copy()
        root, attrs, node = before.fresh("n"), before.fresh("a"), before.fresh("i")
        states: list[tuple[_State, list[Part]]] = [(before, [])]
        for arg in call.args:
            starred = arg.base if isinstance(arg, ast.Subscript) and isinstance(arg.index, ast.All) else None
            if isinstance(starred, ast.Name):
                name = starred.id
                states = [(s, [*parts, Part(name=name)]) for s, parts in states]
            elif isinstance(arg, ast.Each):
                states = [found for s, parts in states for found in self._one_of_each(arg.value, s, parts)]
            elif starred is not None:  # all outputs of one node, in order; the matcher looks at the first
                states = [found for s, parts in states for found in self._first_output(starred, s, parts)]
            else:
                states = [
                    (after, [*parts, Part(variable=v, position=after.fresh("i"))])
                    for s, parts in states
                    for after, v in self._match(arg, s.copy())
                ]
        for after, parts in states:
            picks = tuple((p.position, p.variable) for p in parts if p.variable)
            after.atoms.append(Spread(root, self.op_id[call.head], attrs, node, picks))
            after.demands.append(Demand(attrs, call, call.head, outputs=outputs))
            after.spreads.append((node, tuple(parts)))
            yield after, root

    def _one_of_each(self, each: ast.Expr, state: _State, parts: list[Part]) -> Iterator[tuple[_State, list[Part]]]:
        """The matcher looks for any one of the inputs; all of them are looked at when it is found."""
        index = indices_in(each)[0]
        own = owned_by(each, index)
        for found, variable in self._match(each, _State(counter=state.counter)):
            after = state.copy()
            after.counter = found.counter
            after.atoms += found.atoms
            after.absent += found.absent
            after.kinds += found.kinds
            after.fixed += found.fixed
            part = Part(variable=variable, position=after.fresh("i"), each=each, index=index, own=tuple(own))
            yield after, [*parts, part]

    def _first_output(self, base: ast.Expr, state: _State, parts: list[Part]) -> Iterator[tuple[_State, list[Part]]]:
        if not isinstance(base, ast.Call):
            raise Unsupported("only an operator has outputs")
        for after, whole in self._operator(base, state.copy(), outputs=None):
            root, attrs = after.fresh("p"), after.fresh("a")
            after.atoms.append(Atom(root, self.op_id["Proj"], attrs, (whole,)))
            after.demands.append(Demand(attrs, op="Proj", index=0))
            yield after, [*parts, Part(variable=root, position=after.fresh("i"), whole=whole)]


def _call(op: str, span: ast.Span, *args: ast.Expr) -> ast.Call:
    return ast.Call(span=span, head=op, args=args)


def heads(rule: CompiledRule) -> tuple[str, ...]:
    """The operators named in a rule's pattern; a variant can match once all of its own occur."""
    if rule.heads is None:
        names = [e.head for e in rule.lhs.walk() if isinstance(e, ast.Call)]
        names += [INFIX[e.operator] for e in rule.lhs.walk() if isinstance(e, ast.Binary) and e.operator in INFIX]
        rule.heads = tuple(sorted({*names, "Neg", "Proj", "Sub"}))
    return rule.heads
