"""Decoding: from an extraction back to a graph.

Graph inputs and outputs keep their names and order; a value of the original keeps its name if it still exists. Constant
terms become constants; one that cannot be evaluated stays as nodes. Nodes are in the order of a depth-first walk from
the outputs, so nothing unused is written, and the same extraction gives the same graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, count

from ...system.short_text import plural
from ..egraph.analysis import ENode
from ..egraph.egraph import EGraph
from ..ir.bodies import rename_captures
from ..ir.graph import AttrValue, Constant, Graph, Node, TensorType, ValueType, trimmed
from ..ir.names import ABSENT, CAPTURES, LOCAL
from ..operators.schemas import find_declared, signature, split_name
from .constant_terms import ConstantTerms
from .constant_terms import TermValues as TermValues
from .extract import Extraction
from .priced_egraph import dependencies, post_order
from .provenance import Provenance

_SMALL = 1 << 16
"""Bytes up to which a new constant is looked up among those of the original."""


def decode(
    egraph: EGraph,
    extraction: Extraction,
    original: Graph,
    *,
    prefix: str | None = None,
    evaluated: TermValues | None = None,
) -> Graph:
    """Return the graph of an extraction from an e-graph that was encoded from `original`, which holds the constants.

    Every node carries the rules that made it and the original nodes that it stands for. Names of new values begin with
    `prefix`: by default empty for a model's main graph, and the first output's name for a body, whose names must differ
    from those of the graphs around it."""
    return decode_named(egraph, extraction, original, prefix, evaluated)[0]


@dataclass(slots=True)
class Naming:
    """What the names in a decoded graph stand for: the class of each value, and for each body directly in the graph, in
    order, the body as it was in the e-graph, with the new names of what it captures."""

    classes: dict[str, int] = field(default_factory=dict)
    bodies: list[tuple[Graph, dict[str, str]]] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<Naming: {plural(len(self.classes), 'value')}, {len(self.bodies)} bodies>"


def decode_named(
    egraph: EGraph,
    extraction: Extraction,
    original: Graph,
    prefix: str | None = None,
    evaluated: TermValues | None = None,
) -> tuple[Graph, Naming]:
    """Return the graph of an extraction, as `decode` does, and what its names stand for."""
    if prefix is None:
        prefix = "" if original.ir_version or not original.outputs else f"{original.outputs[0]}_"
    decoder = _Decoder(egraph, extraction, original, prefix, evaluated or TermValues())
    graph = decoder.graph()
    return graph, Naming({name: c for c, name in decoder.names.items()}, decoder.bodies)


class _Decoder:
    """State of one decoding."""

    def __init__(
        self, egraph: EGraph, extraction: Extraction, original: Graph, prefix: str, evaluated: TermValues
    ) -> None:
        self.egraph = egraph
        self.choice = extraction.choice
        self.original = original
        self.prefix = prefix
        self.nodes: list[Node] = []
        self.constants: dict[str, Constant] = {}
        self.types: dict[str, ValueType] = {}
        self.names: dict[int, str] = {}
        self.captured: dict[str, int] = {}
        """Classes that bodies capture under their own names; another class is captured under a new name."""
        self.bodies: list[tuple[Graph, dict[str, str]]] = []
        self.fixed = set(extraction.folded)
        self.values: dict[int, Constant] = {}
        stored = {c.digest: c for c in original.constants.values()}
        for digest, info in egraph.constants.items():
            if digest not in stored and info.elements is not None:
                stored[digest] = Constant(info.elements)
        self.terms = ConstantTerms(egraph, self.choice, stored, evaluated)
        self.outputs = {name: egraph.find(egraph.roots[name]) for name in original.outputs}
        self.order = post_order(self.outputs.values(), self._reads)
        """Classes that run or are stored, each after those that it reads."""
        self.projections: dict[tuple[int, AttrValue], int] = {}
        """The class of each output of each multi-output class."""
        for c in self.order:
            if self._node(c).op == "Proj" and c not in self.values:
                whole = egraph.find(self._node(c).children[0])
                self.projections.setdefault((whole, self._node(c).attrs["index"]), c)
        self.provenance = Provenance(egraph, self.choice, self.order, self.values)
        self.taken = _all_names(original)
        self.node_names: set[str] = set()

    def graph(self) -> Graph:
        """Return the graph with its nodes, constants and types."""
        self._name()
        for name in self.original.inputs:
            self.types.setdefault(name, self.original.types.get(name, TensorType()))
        for c in self.order:
            self._emit(c)
        for name, c in self.outputs.items():
            self._alias(c, name)
            if name in self.original.types:
                self.types[name] = self.original.types[name]
        return replace(self.original, nodes=self.nodes, constants=self.constants, types=self.types)

    def _node(self, c: int) -> ENode:
        return self.egraph.nodes[self.choice[c]]

    def _reads(self, c: int) -> tuple[int, ...]:
        """Return the classes to compute before a class: none if its constant term can be evaluated now."""
        reads = dependencies(self.egraph, self.choice[c])
        if c not in self.fixed:
            return reads
        found = self.terms.constant(c)
        if found is not None:
            self.values[c] = found
            return ()
        self.fixed.update(d for d in reads if self.egraph.is_const(d))  # perhaps its operands can be
        return reads

    # --- names -----------------------------------------------------------------------------------------------------

    def _name(self) -> None:
        """Name every class: after an output, a captured value or a value of the original, else by its operator."""
        used: set[str] = set()

        def give(c: int, name: str) -> None:
            if c not in self.names and name not in used:
                self.names[c] = name
                used.add(name)

        live = set(self.order)
        for c in self.order:
            if self._node(c).op == "Input":
                give(c, str(self._node(c).attrs["name"]))
        first = {c.digest: name for name, c in reversed(self.original.constants.items())}
        for c, constant in self.values.items():
            stored = self._node(c).op == "Const"
            # a large new constant is not hashed: that would only show that it is new
            if c in live and (stored or constant.nbytes <= _SMALL) and constant.digest in first:
                give(c, first[constant.digest])
        for name, c in self.outputs.items():
            if c not in self.values:
                give(c, name)
        used.update(self.original.outputs, self.original.inputs)
        for c in self.order:
            for name, child in self._captures(c):
                if name.startswith(LOCAL):
                    continue
                if child not in self.values:
                    give(child, name)
                used.add(name)
        for c, name in self._original_values():
            if c in live and name not in self.original.constants:
                give(c, name)
        for c in self.order:
            if c not in self.names and len(self.egraph.types(c)) == 1:
                base = "const" if c in self.values else split_name(self._node(c).op)[1].lower()
                self.names[c] = self._fresh(base)

    def _original_values(self) -> Iterator[tuple[int, str]]:
        """Enumerate the classes of the original's values that origins identify, with the names of the values."""
        counts = Counter(node.name for node in self.original.nodes)
        by_name = {node.name: node for node in self.original.nodes if counts[node.name] == 1}
        for handle, origins in enumerate(self.egraph.origins):
            found = by_name.get(origins[0]) if len(origins) == 1 else None
            if found is None or self.egraph.made_by[handle] is not None:
                continue
            enode = self.egraph.nodes[handle]
            index = enode.attrs["index"] if enode.op == "Proj" else 0
            if (enode.op == "Proj") == (len(found.outputs) > 1) and isinstance(index, int):
                if index < len(found.outputs) and found.outputs[index]:
                    yield self.egraph.find(handle), found.outputs[index]

    def _fresh(self, base: str) -> str:
        name = _unused((f"{self.prefix}{base}_{number}" for number in count()), self.taken)
        self.taken.add(name)
        return name

    def _captures(self, c: int) -> list[tuple[str, int]]:
        """Return the names under which the bodies of a class's node capture values, with their classes."""
        if c in self.values:
            return []
        node = self._node(c)
        captured = node.attrs.get(CAPTURES, ())
        assert isinstance(captured, tuple)
        classes = node.children[len(node.children) - len(captured) :]
        return [(str(name), self.egraph.find(child)) for name, child in zip(captured, classes, strict=True)]

    # --- emission --------------------------------------------------------------------------------------------------

    def _emit(self, c: int) -> None:
        """Write the node or constant of a class. Projections name the outputs of a multi-output node."""
        types = self.egraph.types(c)
        if c in self.values:
            self.constants[self.names[c]] = self.values[c]
            self.types.setdefault(self.names[c], self.values[c].type)
            return
        node = self._node(c)
        if node.op in ("Input", "Proj"):
            if node.op == "Proj":
                source = self.projections[self.egraph.find(node.children[0]), node.attrs["index"]]
                if source != c:  # another class of the same value, which was not merged
                    self._add(c, "Identity", {}, (self.names[source],), (self.names[c],))
            self.types.setdefault(self.names[c], types[0])
            return
        captures, renamed = self._captures(c), {}
        for name, child in captures:
            folded = child in self.values and name not in self.original.constants  # bodies read constants as such
            if folded or name.startswith(LOCAL) or self.captured.setdefault(name, child) != child:
                renamed[name] = self.names[child]
            else:
                self._alias(child, name)
        children = node.children[: len(node.children) - len(captures)]
        if node.op in self.egraph.commutative and len(children) == 2 and self._is_value(children[0]):
            children = children[::-1]  # as exporters write them, and runtimes look for them
        inputs = trimmed(self.names[self.egraph.find(d)] if d != ABSENT else "" for d in children)
        attrs = {key: self._renamed(value, renamed) for key, value in node.attrs.items() if key != CAPTURES}
        outputs = (self.names[c],) if node.outputs == 1 else self._outputs(c, node)
        for name, type_ in zip(outputs, types, strict=False):
            if name:
                self.types.setdefault(name, type_)
        self._add(c, node.op, attrs, inputs, outputs)

    def _renamed(self, value: AttrValue, renamed: Mapping[str, str]) -> AttrValue:
        """Rename the values that the bodies of an attribute capture."""
        if isinstance(value, Graph):
            self.bodies.append((value, {name: renamed[name] for name in value.captures() if name in renamed}))
            return rename_captures(value, renamed)
        if isinstance(value, tuple) and value and isinstance(value[0], Graph):
            return tuple(self._renamed(g, renamed) for g in value)  # type: ignore[return-value]
        return value

    def _is_value(self, c: int) -> bool:
        """Return whether an operand is a constant of the result."""
        return c != ABSENT and self.egraph.find(c) in self.values

    def _outputs(self, c: int, node: ENode) -> tuple[str, ...]:
        """Return the output names of a multi-output node; unread ones are empty where the schema allows."""
        names: list[str] = []
        for index in range(node.outputs):
            if (c, index) in self.projections:
                names.append(self.names[self.projections[c, index]])
            else:
                base = f"{node.op.rpartition('.')[2].lower()}_unused"
                names.append("" if _may_be_unnamed(node.op, index) else self._fresh(base))
        return trimmed(names)

    def _add(
        self, c: int, op: str, attrs: dict[str, AttrValue], inputs: tuple[str, ...], outputs: tuple[str, ...]
    ) -> None:
        rules, origins = self.provenance.of(c)
        base = f"{split_name(op)[1]}_{next((o for o in outputs if o), c)}"
        made = chain([base], (f"{base}_{number}" for number in count(1)))
        name = _unused(chain(filter(None, origins), made), self.node_names)
        self.node_names.add(name)
        self.nodes.append(Node(op, inputs, outputs, attrs, name, rules, origins))

    def _alias(self, c: int, name: str) -> None:
        """Give a class another name: that of an output or a captured value."""
        if self.names[c] == name or (name in self.types and self._defined(name)):
            return
        if c in self.values and name in self.original.constants:
            self.constants[name] = self.values[c]
            self.types.setdefault(name, self.values[c].type)
            return
        self.types.setdefault(name, self.egraph.types(c)[0])
        self._add(c, "Identity", {}, (self.names[c],), (name,))

    def _defined(self, name: str) -> bool:
        """Return whether a name already stands for a value of the result."""
        return name in self.original.inputs or name in self.constants or any(name in n.outputs for n in self.nodes)


def _may_be_unnamed(op: str, index: int) -> bool:
    """Return whether the schema of an operator makes an output optional."""
    found = signature(op) if find_declared(op) is None else None
    if found is None or index >= len(found.outputs) or any(o.variadic for o in found.outputs):
        return False
    return found.outputs[index].optional


def _unused(names: Iterable[str], taken: Container[str]) -> str:
    """Return the first name that is not taken."""
    return next(name for name in names if name not in taken)


def _all_names(graph: Graph) -> set[str]:
    """Return the names that a graph and the graphs inside it use for values."""
    names = {*graph.inputs, *graph.outputs, *graph.constants}
    for node in graph.nodes:
        names.update(node.inputs, node.outputs, *(_all_names(body) for _, body in node.subgraphs()))
    return names
