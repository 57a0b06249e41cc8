"""Compilation of a rule's left side to conjunctive queries for egglog.

What a query cannot express (literals, attributes, operator kinds, types) becomes demands, which `match_binding` checks
on each row. Operators are padded to their full number of inputs with the absent leaf, so that one query covers every
way to leave out optional inputs. Inputs of a variadic operator are distributed after matching.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ....grammar.builtins import NARY
from ....grammar.syntax import ast
from ....grammar.syntax.scope import indices_in, owned_by
from ...egraph.matcher import Atom, Query
from ...ir.names import WITH_BODIES
from ...operators.schemas import signature
from ..build_nodes import max_inputs
from ..notation import as_call, is_literal, starred
from .compiled_patterns import CompiledRule, PatternConstraint, Unsupported, VariadicPart, Variant


@dataclass(slots=True)
class _State:
    """A partly compiled pattern, owned by its last receiver; copied at branches."""

    atoms: list[Atom] = field(default_factory=list)
    tensors: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, ast.Expr] = field(default_factory=dict)
    heads: dict[str, tuple[str, str]] = field(default_factory=dict)
    demands: list[PatternConstraint] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    kinds: list[tuple[str, str]] = field(default_factory=list)
    fixed: list[str] = field(default_factory=list)
    variadics: list[tuple[str, tuple[VariadicPart, ...]]] = field(default_factory=list)
    seen: dict[tuple[Any, ...], str] = field(default_factory=dict)
    wholes: dict[str, str] = field(default_factory=dict)
    ac_trees: list[tuple[str, ast.Call]] = field(default_factory=list)
    counter: int = 0

    def copy(self) -> _State:
        return _State(
            self.atoms.copy(), self.tensors.copy(), self.defaults.copy(), self.heads.copy(), self.demands.copy(),
            self.absent.copy(), self.kinds.copy(), self.fixed.copy(), self.variadics.copy(), self.seen.copy(),
            self.wholes.copy(), self.ac_trees.copy(), self.counter,
        )  # fmt: skip

    def fresh(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}_{self.counter}"


_T = TypeVar("_T")
_States = Iterator[tuple[_State, str]]
"""Ways to compile an expression, each with the class variable of its value."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """Compiler of patterns for the operators of one e-graph.

    `op_id` numbers the operators, `declared` are those that rule files define, by their names in rules."""

    op_id: Mapping[str, int]
    commutative: frozenset[str]
    prefix: str
    declared: Mapping[str, ast.Op]

    def variants(self, rule: CompiledRule, known: set[tuple[object, ...]]) -> Iterator[Variant]:
        """Enumerate the variants of a rule that are not in `known`, and add them to it."""
        roots = [b.value for b in rule.lhs.bindings] if isinstance(rule.lhs, ast.Roots) else [rule.lhs]
        for state, tops in self._all(roots, _State()):
            key = (rule.name, tuple(state.atoms), tuple(tops))
            if key not in known:
                known.add(key)
                yield self._variant(rule, state, tuple(tops), len(known))

    def _variant(self, rule: CompiledRule, state: _State, roots: tuple[str, ...], number: int) -> Variant:
        classes = [*roots, *(name for atom in state.atoms for name in (atom.root, *atom.children))]
        integers: list[str] = []
        for atom in state.atoms:
            integers += [atom.attrs, *([atom.node] if atom.node else ())]
            integers += [position for position in atom.positions if isinstance(position, str)]
            integers += [atom.op] if isinstance(atom.op, str) else []
        # a default stands for an absent input, which is not a constant term
        constants = [t.name for g in rule.rule.given if g.type.const for t in g.targets if t.name not in state.defaults]
        fixed = [*state.fixed, *(state.tensors[name] for name in constants if name in state.tensors)]
        names = _distinct(classes), _distinct(integers), tuple(state.absent), _distinct(fixed), _distinct(state.kinds)
        different = _different(state.atoms, roots)
        query = Query(f"{self.prefix}_{number}", f"{self.prefix}_{rule.ruleset}", tuple(state.atoms), *names, different)
        whole, demands, variadics = state.wholes.get(rule.index or ""), tuple(state.demands), tuple(state.variadics)
        tables = (state.tensors, state.defaults, state.heads)
        return Variant(query, roots, *tables, demands, variadics, whole, tuple(state.ac_trees))

    def _all(self, exprs: Iterable[ast.Expr], state: _State) -> list[tuple[_State, list[str]]]:
        """Return the ways to compile expressions one after the other, each with the variables of all."""
        states: list[tuple[_State, list[str]]] = [(state, [])]
        for expr in exprs:
            states = [(s, [*done, v]) for before, done in states for s, v in self._match(expr, before)]
        return states

    def _match(self, expr: ast.Expr, before: _State) -> _States:
        state = before.copy()
        call = as_call(expr)
        if call is not None and call.is_operator:
            yield from self._operator(call, state)
            return
        match expr:
            case ast.Name(id="none"):
                state.absent.append(variable := state.fresh("absent"))
                yield state, variable
            case ast.Optional(name=name, default=default):
                state.defaults[name] = default
                yield state, state.tensors.setdefault(name, f"v_{name}")
            case ast.Subscript(base=ast.Name(id=name), index=ast.Name()):  # W[i], one for each match of a group
                yield state, state.tensors.setdefault(name, f"v_{name}")
            case ast.Name(id=name) if not is_literal(name):
                yield state, state.tensors.setdefault(name, f"v_{name}")
            case ast.Subscript(base=ast.Call() as call, index=ast.Number() | ast.Name() as index):
                if call.head in WITH_BODIES:
                    yield from self._only_output(call, index, state.copy())
                yield from self._output(call, index, state)
            case ast.Omitted(pattern=pattern, defaults=defaults):
                state.defaults.update({d.name: d.default for d in defaults})
                yield from self._match(pattern, state)
            case ast.Alternatives(options=options):
                for option in options:
                    yield from self._match(option, state)
            case ast.Unary(operator="-") | ast.Number() | ast.ListExpr() | ast.Name() | ast.Call():
                # a literal, or a number computed from numbers: sqrt(2)
                state.fixed.append(variable := state.fresh("k"))
                state.demands.append(PatternConstraint(variable, literal=expr))
                yield state, variable
            case _:
                raise Unsupported("this cannot stand in a pattern")

    def _output(self, call: ast.Call, index: ast.Number | ast.Name, state: _State) -> _States:
        """Compile an output with a number, or any output if the index is a name."""
        for after, whole in self._operator(call, state, outputs=None):
            root, attrs = after.fresh("p"), after.fresh("a")
            after.atoms.append(Atom(root, self.op_id["Proj"], attrs, (whole,)))
            if isinstance(index, ast.Name):
                after.demands.append(PatternConstraint(attrs, op="Proj", any_index=index.id))
                after.wholes[index.id] = whole
            else:
                after.demands.append(PatternConstraint(attrs, op="Proj", index=int(index.value)))
            yield after, root

    def _only_output(self, call: ast.Call, index: ast.Number | ast.Name, state: _State) -> _States:
        """Compile the output of a node that has one, where its operator allows any number."""
        if isinstance(index, ast.Number) and index.value != 0:
            return
        for after, root in self._operator(call, state):
            if isinstance(index, ast.Name):
                after.demands.append(PatternConstraint(after.demands[-1].variable, op=call.head, any_index=index.id))
            yield after, root

    def _operator(self, call: ast.Call, state: _State, outputs: int | None = 1) -> _States:
        if call.head in NARY and (call.has_many or len(call.args) > 2):
            yield from self._ac_tree(call, state)
            return
        if call.kind is None and call.head not in self.op_id:
            return  # no such operator in this e-graph
        if call.has_many or call.head in WITH_BODIES:
            yield from self._variadic(call, state, outputs)
            return
        # Equal nodes share a class, so a subpattern that occurs twice is one atom: joining two would be quadratic.
        # That does not hold where attributes are left open or operands may be swapped.
        settled = call.kind is None and (call.rest is None or call.rest.name is not None)
        settled = settled and call.head not in self.commutative
        for after, children in self._all(call.args, state):
            for _ in range((self._max_inputs(call) or 0) - len(children)):
                children.append(after.fresh("absent"))
                after.absent.append(children[-1])
            key = (call.head, tuple(children), call.attributes, call.rest, outputs)
            if settled and key in after.seen:
                yield after, after.seen[key]
                continue
            root, attrs = after.fresh("n"), after.fresh("a")
            if settled:
                after.seen[key] = root
            if call.kind is not None:
                variable = after.fresh("o")
                op, _ = after.heads.setdefault(call.head, (variable, attrs))
                after.kinds.append((op, call.kind))
                after.demands.append(PatternConstraint(attrs, call, outputs=outputs))
                after.atoms.append(Atom(root, op, attrs, tuple(children)))
            else:
                commutative = call.head in self.commutative and len(children) == 2
                after.demands.append(PatternConstraint(attrs, call, call.head, outputs=outputs))
                after.atoms.append(Atom(root, self.op_id[call.head], attrs, tuple(children), commutative))
            yield after, root

    def _max_inputs(self, call: ast.Call) -> int | None:
        """Return the number of inputs that nodes of an operator have in an e-graph, absent ones included."""
        if call.kind is not None:
            return None
        if (found := signature(call.head)) is not None:
            return found.max_inputs
        return max_inputs(self.declared[call.head]) if call.head in self.declared else None

    def _ac_tree(self, call: ast.Call, state: _State) -> _States:
        """Compile the tree of an operator: egglog finds the node where it ends, `many_operands` matches its terms."""
        for op in ("Add", "Sub") if call.head == "Add" else (call.head,):
            if op in self.op_id:
                after = state.copy()
                root, attrs, left, right = (after.fresh(stem) for stem in "nakk")
                after.atoms.append(Atom(root, self.op_id[op], attrs, (left, right)))
                after.ac_trees.append((root, call))
                yield after, root

    def _variadic(self, call: ast.Call, state: _State, outputs: int | None) -> _States:
        """Compile an operator with inputs such as `xs[*], Concat(ys[*]), zs[*]`: any number for each starred one."""
        root, attrs, node = (state.fresh(stem) for stem in "nai")
        states: list[tuple[_State, list[VariadicPart]]] = [(state, [])]
        for arg in call.args:
            states = [(s, [*parts, part]) for before, parts in states for s, part in self._part(arg, before)]
        for after, found in states:
            parts = _placed(found)
            picks = [p for p in parts if p.variable]
            children, positions = (tuple(p.variable for p in picks), tuple(p.position for p in picks))
            op, neighbors = self.op_id[call.head], _neighbors(parts)
            after.atoms.append(Atom(root, op, attrs, children, node=node, positions=positions, neighbors=neighbors))
            after.demands.append(PatternConstraint(attrs, call, call.head, outputs=outputs))
            after.variadics.append((node, tuple(parts)))
            yield after, root

    def _part(self, arg: ast.Expr, before: _State) -> Iterator[tuple[_State, VariadicPart]]:
        whole = starred(arg)
        if isinstance(whole, ast.Name):
            yield before, VariadicPart(name=whole.id)
        elif isinstance(arg, ast.Each):
            yield from self._one_of_each(arg.value, before)
        elif isinstance(whole, ast.Call):  # all outputs of one node, in order; egglog finds the first
            first = ast.Number(span=whole.span, value=0)
            for after, variable in self._output(whole, first, before.copy()):
                (tuple_,) = after.atoms[-1].children
                yield after, VariadicPart(variable=variable, position=after.fresh("i"), whole=tuple_)
        elif whole is not None:
            raise Unsupported("only an operator has outputs")
        else:
            for after, variable in self._match(arg, before):
                yield after, VariadicPart(variable=variable, position=after.fresh("i"))

    def _one_of_each(self, each: ast.Expr, state: _State) -> Iterator[tuple[_State, VariadicPart]]:
        """Compile `P ...`: egglog finds any one of the inputs, `many_operands` matches the others around it."""
        index = indices_in(each)[0]
        for found, variable in self._match(each, _State(counter=state.counter)):
            after = state.copy()
            after.counter = found.counter
            after.atoms += found.atoms
            after.absent += found.absent
            after.kinds += found.kinds
            after.fixed += found.fixed
            own = tuple(owned_by(each, index))
            yield after, VariadicPart(variable=variable, position=after.fresh("i"), each=each, index=index, own=own)


def _placed(parts: Iterable[VariadicPart]) -> list[VariadicPart]:
    """Return parts with the positions of those that come before any part of more than one input.

    Without them a node of k inputs, the captured values of a Loop included, has k rows for each part."""
    parts = list(parts)
    ahead = itertools.takewhile(lambda part: not (part.name or part.whole or part.each), parts)
    placed = [replace(part, position=position) for position, part in enumerate(ahead)]
    return placed + parts[len(placed) :]


def _neighbors(parts: Iterable[VariadicPart]) -> tuple[tuple[str, str], ...]:
    """Return the position variables of single inputs and of the parts that come right after them.

    Without this condition a node of k inputs has k² rows for two such parts."""
    return tuple(
        (before.position, after.position)
        for before, after in itertools.pairwise(parts)
        if isinstance(before.position, str) and isinstance(after.position, str)
        if before.variable and after.variable and not (before.whole or before.each or after.each)
    )


def _different(atoms: Sequence[Atom], roots: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return pairs of the root and each node below it; none for a rule of several roots.

    A term that contains its own class (`Min(m, m)`, which is m, or `m + 0`) is never cheaper than what it contains, and
    rules that join or move operators would rewrite it without end: members of the class match two nodes of a pattern,
    and each pair of the n members, or of n constants, is a new one."""
    below = _distinct(atom.root for atom in atoms if atom.root not in roots)
    return tuple((roots[0], name) for name in below) if len(roots) == 1 else ()


def _distinct(items: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(items))
