"""What is known of a graph's values, and the `If`s that this decides: inlined, so that kernels see through them.

Exporters write operators on tensors of varying rank (`squeeze` of a dim that may not be 1) as an `If` on a shape, whose
branches give different ranks. Where the condition is known, or both branches are the same, one branch takes the place
of the `If`, and what comes after it gets the ranks that kernels need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..engine import shapes, symbolic
from ..engine.graph import AttrValue, Constant, Graph, Node, TensorType, ValueType
from ..engine.shapes import IllTyped, SymbolicValue
from ..engine.symbolic import Dim
from .carried import REPEATED, body_of, inputs_of_body, is_fixed, types_after


@dataclass
class Settled:
    """A graph whose decided `If`s are inlined, with the contents of its small integer tensors.

    `fails` says that a node outside all bodies is given operands on which its operator is not defined; `inside` has the
    contents for each branch of an `If` that is left, by the identity of its graph (what is known around it included).
    """

    graph: Graph
    contents: dict[str, SymbolicValue]
    fails: bool
    inside: dict[int, dict[str, SymbolicValue]]


def settle(graph: Graph) -> Settled:
    """Infers all types anew, from the inputs on, and inlines the `If`s that are decided.

    The types that were known before fill in what isn't inferred."""
    settler = _Settler(_names(graph), _symbols(graph))
    contents: dict[str, SymbolicValue] = {}
    found = settler.settle(graph, {}, contents, {})
    return Settled(found, contents, id(found) in settler.failing, settler.inside)


def substitute(graph: Graph, numbers: Mapping[str, Dim]) -> Graph:
    """The graph, bodies included, with dims in place of symbols in all types."""

    def change(kind: ValueType) -> ValueType:
        if not isinstance(kind, TensorType) or kind.shape is None:
            return kind
        return TensorType(kind.dtype, tuple(symbolic.substitute(d, numbers) for d in kind.shape))

    nodes = [with_bodies(node, lambda body: substitute(body, numbers)) for node in graph.nodes]
    return replace(graph, nodes=nodes, types={v: change(kind) for v, kind in graph.types.items()})


@dataclass
class _Settler:
    """Settles a graph and its bodies; `taken` are the names of values, `symbols` those of dims that are in use."""

    taken: set[str]
    symbols: set[str]
    failing: set[int] = field(default_factory=set)  # identities of settled graphs that fail whenever they are run
    inside: dict[int, dict[str, SymbolicValue]] = field(default_factory=dict)
    # By the identity of the body of a loop, which is kept for that, the types of its inputs in all iterations.
    fixed: dict[int, tuple[Graph, list[TensorType]]] = field(default_factory=dict)
    _fresh: set[str] = field(default_factory=set)
    _count: int = 0

    def settle(
        self,
        graph: Graph,
        around: Mapping[str, ValueType],
        contents: dict[str, SymbolicValue],
        constants: Mapping[str, Constant],
    ) -> Graph:
        """The graph settled, `around` and `constants` being those of what it captures; fills in `contents`."""
        made = {v for node in graph.nodes for v in node.outputs}
        types = {v: kind for v, kind in graph.types.items() if v not in made}
        types.update((v, kind) for v, kind in around.items() if v not in made and v not in graph.inputs)
        known = {**constants, **graph.constants}
        types.update((v, constant.type) for v, constant in graph.constants.items())
        result = replace(graph, nodes=[], types=types, constants=dict(graph.constants))
        before = dict(graph.types)
        todo = graph.nodes[::-1]
        while todo:
            node = todo.pop()
            branch = self._decided(node, types, contents, known)
            if branch is not None:
                nodes, extra, kinds = self._inlined(node, branch)
                result.constants.update(extra)
                known.update(extra)
                types.update((v, constant.type) for v, constant in extra.items())
                before.update(kinds)
                todo += nodes[::-1]
                continue
            if node.op == "If":
                node = with_bodies(node, lambda body: self._settle_inside(body, types, contents, known))
            elif node.op in REPEATED:
                node = self._settle_repeated(node, types, contents, known)
            result.nodes.append(node)
            if not self._infer(node, types, contents, known, before):
                self.failing.add(id(result))
        return result

    def _settle_inside(
        self,
        body: Graph,
        around: Mapping[str, ValueType],
        contents: Mapping[str, SymbolicValue],
        constants: Mapping[str, Constant],
    ) -> Graph:
        own = dict(contents)
        found = self.settle(body, around, own, constants)
        self.inside[id(found)] = own
        return found

    def _settle_repeated(
        self,
        node: Node,
        types: Mapping[str, ValueType],
        contents: Mapping[str, SymbolicValue],
        constants: Mapping[str, Constant],
    ) -> Node:
        """A Loop or Scan with its body settled, if what it carries is of one type in all iterations."""
        body = body_of(node)
        kinds = None if body is None else inputs_of_body(node, body, types)
        if body is None or kinds is None:
            return node
        given = replace(body, types={**body.types, **dict(zip(body.inputs, kinds, strict=True))})
        settled = self._settle_inside(given, types, contents, constants)
        if not is_fixed(node, settled, kinds):
            return node
        self.fixed[id(settled)] = settled, kinds
        return with_bodies(node, lambda _: settled)

    def _decided(
        self,
        node: Node,
        types: Mapping[str, ValueType],
        contents: Mapping[str, SymbolicValue],
        constants: Mapping[str, Constant],
    ) -> Graph | None:
        """The branch that an `If` takes for sure (or that is the same as the other)."""
        if node.op != "If":
            return None
        yes, no = node.attrs["then_branch"], node.attrs["else_branch"]
        assert isinstance(yes, Graph)
        assert isinstance(no, Graph)
        constant = constants.get(node.inputs[0])
        if constant is not None and constant.array.size == 1:
            return yes if constant.array.reshape(-1)[0] else no
        found = contents.get(node.inputs[0])
        if found is not None and len(found.dims) == 1 and isinstance(found.dims[0], int):
            return yes if found.dims[0] else no
        return yes if _alike(yes, no) else None

    def _inlined(self, node: Node, branch: Graph) -> tuple[list[Node], dict[str, Constant], dict[str, ValueType]]:
        """A branch under names of its own, giving the outputs of the `If`: nodes, constants and types."""
        own = [*branch.constants, *dict.fromkeys(v for n in branch.nodes for v in n.outputs if v)]
        made = {v for n in branch.nodes for v in n.outputs}
        names: dict[str, str] = {}
        for value, out in zip(branch.outputs, node.outputs, strict=True):
            if value in made and out and value not in names:
                names[value] = out
        for value in own:
            if value not in names:
                names[value] = self._new_name(value)
        nodes = [rename(n, names) for n in branch.nodes]
        for value, out in zip(branch.outputs, node.outputs, strict=True):
            if out and names.get(value) != out:
                nodes.append(Node("Identity", (names.get(value, value),), (out,), {}, f"{node.name}_{out}"))
        extra = {names[v]: constant for v, constant in branch.constants.items()}
        return nodes, extra, {names.get(v, v): kind for v, kind in branch.types.items() if v in names}

    def _new_name(self, hint: str) -> str:
        name = f"{hint}_inlined"
        while name in self.taken:
            self._count += 1
            name = f"{hint}_inlined_{self._count}"
        self.taken.add(name)
        return name

    def _fresh_dim(self) -> Dim:
        number = len(self._fresh)
        while (name := f"_v{number}") in self.symbols:
            number += 1
        self.symbols.add(name)
        self._fresh.add(name)
        return symbolic.symbol(name)

    def _infer(
        self,
        node: Node,
        types: dict[str, ValueType],
        contents: dict[str, SymbolicValue],
        constants: Mapping[str, Constant],
        before: Mapping[str, ValueType],
    ) -> bool:
        """Adds what is known of a node's outputs; False if its operator is not defined on its operands."""
        defined = True
        found: tuple[ValueType, ...] = tuple(TensorType() for _ in node.outputs)
        values: tuple[SymbolicValue | None, ...] = (None,) * len(node.outputs)
        try:
            inference = shapes.infer(
                node.op,
                node.attrs,
                [types.get(v, TensorType()) if v else None for v in node.inputs],
                [contents.get(v) if v else None for v in node.inputs],
                len(node.outputs),
                constants=[constants.get(v) if v else None for v in node.inputs],
                fresh=self._fresh_dim,
            )
            found, values = inference.types, inference.values
        except IllTyped:
            defined = False
        if node.op == "If":
            found = self._joined(node, found, types)
        elif node.op in REPEATED:
            found = self._after(node, found, types, contents, constants)
        for value, kind, content in zip(node.outputs, found, values, strict=False):
            if value:
                types[value] = self._merged(kind, before.get(value, TensorType()))
                if content is not None:
                    contents[value] = content
        return defined

    def _after(
        self,
        node: Node,
        found: tuple[ValueType, ...],
        types: Mapping[str, ValueType],
        contents: Mapping[str, SymbolicValue],
        constants: Mapping[str, Constant],
    ) -> tuple[ValueType, ...]:
        """The types of the outputs of a Loop or Scan."""
        body, kinds = self.fixed.get(id(node.attrs.get("body")), (None, []))
        if body is None:
            return found
        known = {s for kind in types.values() for s in _symbols_of(kind)}
        return types_after(
            node, body, kinds, found, contents, types, constants, lambda kind: _symbols_of(kind) <= known
        )

    def _joined(
        self, node: Node, found: tuple[ValueType, ...], types: Mapping[str, ValueType]
    ) -> tuple[ValueType, ...]:
        """The types of an If's outputs where its branches agree in dims that are known around it, or one branch never
        ends but in an error."""
        branches = [node.attrs["then_branch"], node.attrs["else_branch"]]
        ending = [b for b in branches if isinstance(b, Graph) and id(b) not in self.failing]
        known = {s for kind in types.values() for s in _symbols_of(kind)}
        result = list(found)
        for i in range(len(result) if ending else 0):
            kinds = [b.types.get(b.outputs[i], TensorType()) for b in ending]
            if all(k == kinds[0] for k in kinds) and isinstance(kinds[0], TensorType):
                if kinds[0].shape is not None and _symbols_of(kinds[0]) <= known:
                    result[i] = kinds[0]
        return tuple(result)

    def _merged(self, inferred: ValueType, before: ValueType) -> ValueType:
        """What was inferred, completed by what was known before."""
        if not isinstance(inferred, TensorType):
            return inferred
        if not isinstance(before, TensorType):
            return before if inferred == TensorType() else inferred
        dtype = inferred.dtype or before.dtype
        if inferred.shape is None or before.shape is None or len(inferred.shape) != len(before.shape):
            return TensorType(dtype, before.shape if inferred.shape is None else inferred.shape)
        return TensorType(
            dtype,
            tuple(
                b if symbolic.symbol_name(a) in self._fresh else a
                for a, b in zip(inferred.shape, before.shape, strict=True)
            ),
        )


def rename(node: Node, names: Mapping[str, str]) -> Node:
    """The node with values under other names, in its bodies too."""

    def inside(body: Graph) -> Graph:
        shadowed = {*body.inputs, *body.constants, *(v for n in body.nodes for v in n.outputs)}
        outer = {a: b for a, b in names.items() if a not in shadowed}
        return replace(
            body,
            nodes=[rename(n, outer) for n in body.nodes],
            outputs=tuple(outer.get(v, v) for v in body.outputs),
            types={outer.get(v, v): kind for v, kind in body.types.items()},
        )

    node = with_bodies(node, inside)
    return replace(
        node,
        inputs=tuple(names.get(v, v) for v in node.inputs),
        outputs=tuple(names.get(v, v) for v in node.outputs),
    )


def with_bodies(node: Node, change: Any) -> Node:
    """The node with each graph in it changed."""
    if not any(True for _ in node.subgraphs()):
        return node
    attrs: dict[str, AttrValue] = {}
    for key, value in node.attrs.items():
        if isinstance(value, Graph):
            attrs[key] = change(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Graph):
            attrs[key] = tuple(change(g) for g in value)
        else:
            attrs[key] = value
    return replace(node, attrs=attrs)


def _alike(a: Graph, b: Graph) -> bool:
    """Whether two branches are the same but for the names of their values."""
    if len(a.nodes) != len(b.nodes) or len(a.outputs) != len(b.outputs):
        return False
    names: dict[str, str] = {}

    def equal(x: str, y: str) -> bool:
        if x in a.constants or y in b.constants:
            return a.constants.get(x) == b.constants.get(y)
        return names.get(x, x) == y

    for m, n in zip(a.nodes, b.nodes, strict=True):
        if (m.op, m.attrs) != (n.op, n.attrs) or any(True for _ in m.subgraphs()):
            return False
        if len(m.inputs) != len(n.inputs) or len(m.outputs) != len(n.outputs):
            return False
        if not all(map(equal, m.inputs, n.inputs)) or not _repeatable(m):
            return False
        names.update(zip(m.outputs, n.outputs, strict=True))
    return all(map(equal, a.outputs, b.outputs))


def _repeatable(node: Node) -> bool:
    """Whether the node gives the same on the same operands each time."""
    from ..engine.operators import is_pure

    return is_pure(node.op, node.attrs)


def _names(graph: Graph) -> set[str]:
    found = {*graph.inputs, *graph.constants, *graph.types, *(v for n in graph.nodes for v in n.outputs)}
    for node in graph.nodes:
        for _, body in node.subgraphs():
            found |= _names(body)
    return found


def _symbols_of(kind: ValueType) -> set[str]:
    shape = kind.shape if isinstance(kind, TensorType) else None
    return {s for d in shape or () for s in symbolic.symbols(d)}


def _symbols(graph: Graph) -> set[str]:
    found = {s for kind in graph.types.values() for s in _symbols_of(kind)}
    for node in graph.nodes:
        for _, body in node.subgraphs():
            found |= _symbols(body)
    return found
