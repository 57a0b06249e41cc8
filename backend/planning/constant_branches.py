"""`If`s that known values decide: inlined, so that kernels can fuse across them.

Exporters write operators on tensors of varying rank (`squeeze` of a dim that may not be 1) as an `If` on a shape whose
branches give different ranks. If the condition is known, or both branches are equal, one branch replaces the `If`, and
the nodes after it get the ranks that kernels need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...engine.ir import symbolic
from ...engine.ir.bodies import all_bodies, change_bodies, rename_values
from ...engine.ir.graph import Constant, Graph, Node, TensorType, ValueType, symbols_of
from ...engine.ir.symbolic import Dim
from ...engine.operators.inference import SymbolicValue
from ...engine.operators.schemas import is_pure
from ...engine.operators.type_inference import FreshSymbols, TypeEnvironment, complete_type
from ..ir.arrays import element
from .loop_plan import REPEATED, body_of, inputs_of_body, is_fixed, types_after


@dataclass
class Resolved:
    """A graph whose decided `If`s are inlined, with the contents of its small integer tensors.

    `fails` if some node outside all bodies has operands on which its operator is not defined. `inside` has the contents
    for each remaining branch of an `If`, by the identity of its graph, including those known around it."""

    graph: Graph
    contents: dict[str, SymbolicValue]
    fails: bool
    inside: dict[int, dict[str, SymbolicValue]]


def resolve(graph: Graph) -> Resolved:
    """Infer all types again from the inputs, and inline the `If`s that are decided.

    Previous types fill in what inference leaves open."""
    graphs = [graph, *all_bodies(graph)]
    values = (v for g in graphs for v in (*g.inputs, *g.constants, *g.types, *(v for n in g.nodes for v in n.outputs)))
    symbols = {s for g in graphs for kind in g.types.values() for s in symbols_of(kind)}
    settler = _Resolver(set(values), FreshSymbols("_v", symbols))
    found, known = settler.resolve(graph, TypeEnvironment(settler.fresh))
    return Resolved(found, known.contents, id(found) in settler.failing, settler.inside)


def substitute(graph: Graph, numbers: Mapping[str, Dim]) -> Graph:
    """Replace symbols by dims in all types and requirements of a graph, bodies included."""

    def change(kind: ValueType) -> ValueType:
        if not isinstance(kind, TensorType) or kind.shape is None:
            return kind
        return TensorType(kind.dtype, tuple(symbolic.substitute(d, numbers) for d in kind.shape))

    nodes = [change_bodies(node, lambda body: substitute(body, numbers)) for node in graph.nodes]
    types = {v: change(kind) for v, kind in graph.types.items()}
    required = tuple(replace(r, excess=symbolic.substitute(r.excess, numbers)) for r in graph.requirements)
    return replace(graph, nodes=nodes, types=types, requirements=required)


@dataclass
class _Resolver:
    """Settles a graph and its bodies; `taken` are the names of values in use."""

    taken: set[str]
    fresh: FreshSymbols
    failing: set[int] = field(default_factory=set)  # identities of settled graphs that always fail
    inside: dict[int, dict[str, SymbolicValue]] = field(default_factory=dict)
    # Input types of loop bodies in all iterations, by the identity of the body, which the entry keeps alive.
    fixed: dict[int, tuple[Graph, list[TensorType]]] = field(default_factory=dict)
    _count: int = 0

    def resolve(self, graph: Graph, around: TypeEnvironment) -> tuple[Graph, TypeEnvironment]:
        """Return the settled graph and its type environment; `around` is the environment of its captures."""
        made = {v for node in graph.nodes for v in node.outputs}
        types = {v: kind for v, kind in graph.types.items() if v not in made}
        types.update((v, kind) for v, kind in around.types.items() if v not in made and v not in graph.inputs)
        types.update((v, constant.type) for v, constant in graph.constants.items())
        constants = {**around.constants, **graph.constants}
        known = TypeEnvironment(self.fresh, types, constants, dict(around.contents))
        result = replace(graph, nodes=[], types=types, constants=dict(graph.constants))
        before = dict(graph.types)
        todo = graph.nodes[::-1]
        while todo:
            node = todo.pop()
            branch = self._decided(node, known)
            if branch is not None:
                nodes, extra, kinds = self._inlined(node, branch)
                result.constants.update(extra)
                constants.update(extra)
                types.update((v, constant.type) for v, constant in extra.items())
                before.update(kinds)
                todo += nodes[::-1]
                continue
            if node.op == "If":
                node = change_bodies(node, lambda body: self._settle_inside(body, known))
            elif node.op in REPEATED:
                node = self._settle_repeated(node, known)
            result.nodes.append(node)
            if not self._infer(node, known, before):
                self.failing.add(id(result))
        return result, known

    def _settle_inside(self, body: Graph, around: TypeEnvironment) -> Graph:
        found, known = self.resolve(body, around)
        self.inside[id(found)] = known.contents
        return found

    def _settle_repeated(self, node: Node, around: TypeEnvironment) -> Node:
        """Settle the body of a Loop or Scan, if its carried values have one type in all iterations."""
        body = body_of(node)
        kinds = None if body is None else inputs_of_body(node, body, around.types)
        if body is None or kinds is None:
            return node
        given = replace(body, types={**body.types, **dict(zip(body.inputs, kinds, strict=True))})
        settled = self._settle_inside(given, around)
        if not is_fixed(node, settled, kinds):
            return node
        self.fixed[id(settled)] = settled, kinds
        return change_bodies(node, lambda _: settled)

    def _decided(self, node: Node, known: TypeEnvironment) -> Graph | None:
        """Return the branch that an `If` always takes, or either one if both are equal."""
        if node.op != "If":
            return None
        yes, no = node.attrs["then_branch"], node.attrs["else_branch"]
        assert isinstance(yes, Graph)
        assert isinstance(no, Graph)
        answer, found = element(known.constants.get(node.inputs[0])), known.contents.get(node.inputs[0])
        if answer is None and found is not None and len(found.dims) == 1 and isinstance(found.dims[0], int):
            answer = found.dims[0]
        if answer is not None:
            return yes if answer else no
        return yes if _alike(yes, no) else None

    def _inlined(self, node: Node, branch: Graph) -> tuple[list[Node], dict[str, Constant], dict[str, ValueType]]:
        """Return the nodes, constants and types of a branch, renamed to give the outputs of the `If`."""
        made = dict.fromkeys(v for n in branch.nodes for v in n.outputs if v)
        names: dict[str, str] = {}
        for value, out in zip(branch.outputs, node.outputs, strict=True):
            if value in made and out:
                names.setdefault(value, out)
        for value in (*branch.constants, *made):
            if value not in names:
                names[value] = self._new_name(value)
        nodes = [rename_values(n, names) for n in branch.nodes]
        for value, out in zip(branch.outputs, node.outputs, strict=True):
            if out and names.get(value) != out:
                nodes.append(Node("Identity", (names.get(value, value),), (out,), {}, f"{node.name}_{out}"))
        extra = {names[v]: constant for v, constant in branch.constants.items()}
        return nodes, extra, {names[v]: kind for v, kind in branch.types.items() if v in names}

    def _new_name(self, hint: str) -> str:
        name = f"{hint}_inlined"
        while name in self.taken:
            self._count += 1
            name = f"{hint}_inlined_{self._count}"
        self.taken.add(name)
        return name

    def _infer(self, node: Node, known: TypeEnvironment, before: Mapping[str, ValueType]) -> bool:
        """Record the types of a node's outputs; return False if its operator is not defined on its operands."""
        found = known.infer(node)
        around = {s for kind in known.types.values() for s in symbols_of(kind)} if any(node.subgraphs()) else set()
        body, kinds = self.fixed.get(id(node.attrs.get("body")), (None, []))
        if node.op == "If":
            found = replace(found, types=self._if_types(node, found.types, around))
        elif body is not None:
            types = types_after(node, body, kinds, found.types, known, lambda kind: symbols_of(kind) <= around)
            found = replace(found, types=types)

        def complete(value: str, kind: ValueType) -> ValueType:
            return complete_type(kind, before.get(value, TensorType()), self._is_fresh)

        known.record(node, found, complete)
        return found.error is None

    def _is_fresh(self, inferred: Dim, before: Dim) -> bool:
        """Return whether inference knows nothing of a dim."""
        return symbolic.symbol_name(inferred) in self.fresh.made

    def _if_types(self, node: Node, found: tuple[ValueType, ...], known: set[str]) -> tuple[ValueType, ...]:
        """Return the types of an `If`'s outputs where its branches agree in dims `known` around it.

        A branch that always ends in an error does not count."""
        ending = [body for _, body in node.subgraphs() if id(body) not in self.failing]
        result = list(found)
        for i in range(len(result) if ending else 0):
            first, *others = (b.type(b.outputs[i]) for b in ending)
            if first.shape is not None and all(k == first for k in others) and symbols_of(first) <= known:
                result[i] = first
        return tuple(result)


def _alike(a: Graph, b: Graph) -> bool:
    """Return whether two branches are equal up to the names of their values."""
    if len(a.nodes) != len(b.nodes):
        return False
    names: dict[str, str] = {}

    def equal(x: str, y: str) -> bool:
        if x in a.constants or y in b.constants:
            return a.constants.get(x) == b.constants.get(y)
        return names.get(x, x) == y

    def all_equal(xs: Sequence[str], ys: Sequence[str]) -> bool:
        return len(xs) == len(ys) and all(map(equal, xs, ys))

    for m, n in zip(a.nodes, b.nodes, strict=True):
        if (m.op, m.attrs, len(m.outputs)) != (n.op, n.attrs, len(n.outputs)) or any(True for _ in m.subgraphs()):
            return False
        if not all_equal(m.inputs, n.inputs) or not is_pure(m.op, m.attrs):
            return False
        names.update(zip(m.outputs, n.outputs, strict=True))
    return all_equal(a.outputs, b.outputs)
