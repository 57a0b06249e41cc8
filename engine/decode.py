"""Decoding: an extraction becomes a graph again.

Graph inputs and outputs keep their names and order; a value that the original had keeps its name where it still
exists. Constant terms are evaluated here, once; one that cannot be evaluated stays as nodes. Nodes come in the order
of a depth-first walk from the outputs, so that nothing unused is written and the same extraction gives the same graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from ..errors import RewriteError
from .bodies import rename_captures
from .egraph import CAPTURES, LOCAL
from .extract import ABSENT, EGraphLike, ENodeLike, Extraction, dependencies
from .fold import Array, evaluate
from .graph import AttrValue, Constant, Graph, Node, TensorType, ValueType
from .operators import find_schema
from .provenance import Provenance

_SMALL = 1 << 16
"""A new constant of at most this many bytes is looked up among those of the original."""
_LARGE = 1 << 20
"""A constant of this many bytes may stay a transposed view of another."""


def decode(
    egraph: EGraphLike,
    extraction: Extraction,
    original: Graph,
    *,
    prefix: str | None = None,
    evaluated: Evaluated | None = None,
) -> Graph:
    """The graph of an extraction from an e-graph that was encoded from `original`, which also holds the constants.

    Every node carries the rules that made it and the original nodes that it stands for. New values get names that begin
    with `prefix`; by default that is nothing for a model's main graph, and the first output's name for a body, since
    names must differ from those of the graphs around it."""
    if prefix is None:
        prefix = "" if original.ir_version or not original.outputs else f"{original.outputs[0]}_"
    decoder = _Decoder(egraph, extraction, original, prefix, evaluated or Evaluated())
    decoder.run()
    return replace(original, nodes=decoder.nodes, constants=decoder.constants, types=decoder.types)


class Evaluated:
    """What constant terms come to, found by how they are made of the constants of a model: several extractions mostly
    agree on them."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self.values: dict[int, tuple[Array, ...] | None] = {}
        self.constants: dict[int, Constant] = {}

    def leaf(self, digest: str) -> int:
        """The number of a constant."""
        return self._number(("Const", digest))

    def number(self, op: str, attrs: Mapping[str, AttrValue], operands: Sequence[int], outputs: int) -> int:
        """The number of a term, the same for the same operator on terms of the same numbers."""
        named = sorted((name, v.digest if isinstance(v, Constant) else repr(v)) for name, v in attrs.items())
        return self._number((op, *named, tuple(operands), outputs))

    def _number(self, key: tuple[object, ...]) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


class Terms:
    """Evaluates the constant terms of an extraction."""

    def __init__(
        self,
        egraph: EGraphLike,
        choice: Mapping[int, int],
        constants: Mapping[str, Constant],
        evaluated: Evaluated,
    ) -> None:
        self._egraph = egraph
        self._choice = choice
        self._constants = constants
        self._known = evaluated
        self._numbers: dict[int, int] = {}

    def constant(self, c: int) -> Constant | None:
        """The contents of a class, None if it cannot be evaluated or does not have the type that was inferred."""
        node = self._egraph.nodes[self._choice[c]]
        if node.op == "Const":
            return self._leaf(node.attrs)
        number = self._term(c)
        values = self._known.values[number]
        if values is None or len(values) != 1:
            return None
        if number not in self._known.constants:
            self._known.constants[number] = Constant(_settled(values[0]))
        found = self._known.constants[number]
        (type_,) = self._egraph.types(c)
        return found if found.type == type_ else None

    def _leaf(self, attrs: Mapping[str, AttrValue]) -> Constant:
        found = self._constants.get(str(attrs["digest"]))
        if found is None:
            raise RewriteError(f"the constant {attrs['digest']!r} of the e-graph is not in the graph")
        return found

    def _term(self, c: int) -> int:
        """The number of a class among the terms, which is evaluated then."""
        known, numbers = self._known, self._numbers
        pending = [c]
        while pending:
            at = pending[-1]
            if at in numbers:
                pending.pop()
                continue
            handle = self._choice[at]
            node = self._egraph.nodes[handle]
            if node.op == "Const":
                numbers[at] = known.leaf(str(node.attrs["digest"]))
                known.values[numbers[at]] = (self._leaf(node.attrs).array,)
                continue
            missing = [d for d in dependencies(self._egraph, handle) if d not in numbers]
            if missing:
                pending.extend(reversed(missing))
                continue
            operands = [-1 if d == ABSENT else numbers[self._egraph.find(d)] for d in node.children]
            numbers[at] = number = known.number(node.op, node.attrs, operands, node.outputs)
            if number not in known.values:
                known.values[number] = self._evaluate(node, [None if n < 0 else known.values[n] for n in operands])
        return numbers[c]

    def _evaluate(self, node: ENodeLike, operands: Sequence[tuple[Array, ...] | None]) -> tuple[Array, ...] | None:
        if any(v is None and d != ABSENT for v, d in zip(operands, node.children, strict=True)):
            return None
        if node.op == "Proj":
            index = node.attrs["index"]
            assert operands[0] is not None
            assert isinstance(index, int)
            return (operands[0][index],) if index < len(operands[0]) else None
        arrays = [None if v is None else v[0] for v in operands]
        found = evaluate(node.op, node.attrs, arrays, node.outputs)
        return None if found is None else tuple(found)


def _settled(array: Array) -> Array:
    """An array as constants hold it: contiguous, but for transposed weights, packed in yet another order anyway.
    Turning those of a transformer takes longer than reading its file."""
    if array.nbytes >= _LARGE and array.transpose(np.argsort(array.strides)[::-1]).flags.c_contiguous:
        return array
    return np.ascontiguousarray(array).reshape(array.shape)


class _Decoder:
    """The state of one decoding."""

    def __init__(
        self, egraph: EGraphLike, extraction: Extraction, original: Graph, prefix: str, evaluated: Evaluated
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
        """The classes that bodies read under their own names: another one gets another name in a copy of a body."""
        self.fixed = set(extraction.folded)
        self.values: dict[int, Constant] = {}
        stored = {c.digest: c for c in original.constants.values()}
        for digest, info in getattr(egraph, "constants", {}).items():
            if digest not in stored and info.elements is not None:
                stored[digest] = Constant(info.elements)
        self.terms = Terms(egraph, self.choice, stored, evaluated)
        self.order = self._order()
        self.provenance = Provenance(egraph, self.choice, self.order, self.values)
        self.taken = set(_all_names(original))
        self.node_names: set[str] = set()

    def run(self) -> None:
        """Fills in nodes, constants and types."""
        self._name()
        for name in self.original.inputs:
            self._note(name, self.original.types.get(name, TensorType()))
        for c in self.order:
            self._emit(c)
        for name in self.original.outputs:
            self._alias(self.egraph.find(self.egraph.roots[name]), name)
            if name in self.original.types:
                self.types[name] = self.original.types[name]

    # --- order and names -------------------------------------------------------------------------------------------

    def _order(self) -> list[int]:
        """The classes that run or are stored, each after those that it reads."""
        done: dict[int, None] = {}
        for name in self.original.outputs:
            stack = [(self.egraph.find(self.egraph.roots[name]), False)]
            while stack:
                c, ready = stack.pop()
                if c in done:
                    continue
                if ready or self._evaluate(c):
                    done[c] = None
                    continue
                stack.append((c, True))
                reads = dependencies(self.egraph, self.choice[c])
                if c in self.fixed:  # could not be evaluated; perhaps what it is made of can
                    self.fixed.update(d for d in reads if self.egraph.is_const(d))
                stack.extend((d, False) for d in reversed(reads) if d not in done)
        return list(done)

    def _evaluate(self, c: int) -> bool:
        if c not in self.fixed:
            return False
        found = self.terms.constant(c)
        if found is None:
            return False
        self.values[c] = found
        return True

    def _name(self) -> None:
        """Gives every class a name: that of an output, of a captured value, or of a value of the original."""
        used: set[str] = set()

        def give(c: int, name: str) -> None:
            if c not in self.names and name not in used:
                self.names[c] = name
                used.add(name)

        live = set(self.order)
        for c in self.order:
            node = self.egraph.nodes[self.choice[c]]
            if node.op == "Input":
                give(c, str(node.attrs["name"]))
        first = {c.digest: name for name, c in reversed(self.original.constants.items())}
        for c, constant in self.values.items():
            stored = self.egraph.nodes[self.choice[c]].op == "Const"
            # hashing a large new constant only to find that it is new would take long
            if c in live and (stored or constant.nbytes <= _SMALL) and constant.digest in first:
                give(c, first[constant.digest])
        for name in self.original.outputs:
            c = self.egraph.find(self.egraph.roots[name])
            if c not in self.values:
                give(c, name)
        used.update(self.original.outputs)
        used.update(self.original.inputs)
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
                op = self.egraph.nodes[self.choice[c]].op
                self.names[c] = self._fresh(
                    "const" if c in self.values else op.rpartition(".")[2].partition("@")[0].lower()
                )

    def _original_values(self) -> Iterator[tuple[int, str]]:
        """The classes of the original's values, so far as the e-graph tells, by value."""
        by_name: dict[str, Node] = {}
        ambiguous: set[str] = set()
        for node in self.original.nodes:
            if node.name in by_name:
                ambiguous.add(node.name)
            by_name[node.name] = node
        for handle, origins in enumerate(self.egraph.origins):
            if len(origins) != 1 or self.egraph.made_by[handle] is not None or origins[0] in ambiguous:
                continue
            found = by_name.get(origins[0])
            enode = self.egraph.nodes[handle]
            if found is None:
                continue
            index = enode.attrs["index"] if enode.op == "Proj" else 0
            if (enode.op == "Proj") == (len(found.outputs) > 1) and isinstance(index, int):
                if index < len(found.outputs) and found.outputs[index]:
                    yield self.egraph.find(handle), found.outputs[index]

    def _fresh(self, base: str) -> str:
        number = 0
        while (name := f"{self.prefix}{base}_{number}") in self.taken:
            number += 1
        self.taken.add(name)
        return name

    def _captures(self, c: int) -> list[tuple[str, int]]:
        """The names under which the subgraphs of a class's node read values, with their classes."""
        if c in self.values:
            return []
        node = self.egraph.nodes[self.choice[c]]
        captured = node.attrs.get(CAPTURES, ())
        assert isinstance(captured, tuple)
        classes = node.children[len(node.children) - len(captured) :]
        return [(str(name), self.egraph.find(child)) for name, child in zip(captured, classes, strict=True)]

    # --- emission --------------------------------------------------------------------------------------------------

    def _note(self, name: str, type_: ValueType) -> None:
        self.types.setdefault(name, type_)

    def _emit(self, c: int) -> None:
        """Writes what makes a class. The outputs of a multi-output node are named by the projections of it."""
        types = self.egraph.types(c)
        if c in self.values:
            self.constants[self.names[c]] = self.values[c]
            self._note(self.names[c], self.values[c].type)
            return
        node = self.egraph.nodes[self.choice[c]]
        if node.op == "Input":
            self._note(self.names[c], types[0])
            return
        if node.op == "Proj":
            parent, index = self.egraph.find(node.children[0]), node.attrs["index"]
            source = self._projections().get((parent, index))
            if source != c:  # another class of the same value: not merged, but the same
                assert source is not None
                self._node(c, "Identity", {}, (self.names[source],), (self.names[c],))
            self._note(self.names[c], types[0])
            return
        renamed = {}
        for name, child in self._captures(c):
            if name.startswith(LOCAL) or self.captured.setdefault(name, child) != child:
                renamed[name] = self.names[child]
            else:
                self._alias(child, name)
        children = node.children[: len(node.children) - len(self._captures(c))]
        inputs = [self.names[self.egraph.find(d)] if d != ABSENT else "" for d in children]
        while inputs and not inputs[-1]:
            inputs.pop()
        attrs = {key: _reading(value, renamed) for key, value in node.attrs.items() if key != CAPTURES}
        outputs = (self.names[c],) if node.outputs == 1 else self._outputs(c, node.op, node.outputs)
        for name, type_ in zip(outputs, types, strict=False):
            if name:
                self._note(name, type_)
        self._node(c, node.op, attrs, tuple(inputs), outputs)

    def _projections(self) -> dict[tuple[int, AttrValue], int]:
        """The class that takes each output of each multi-output class."""
        if not hasattr(self, "_projected"):
            self._projected: dict[tuple[int, AttrValue], int] = {}
            for c in self.order:
                node = self.egraph.nodes[self.choice[c]]
                if node.op == "Proj" and c not in self.values:
                    self._projected.setdefault((self.egraph.find(node.children[0]), node.attrs["index"]), c)
        return self._projected

    def _outputs(self, c: int, op: str, count: int) -> tuple[str, ...]:
        """The output names of a multi-output node; those that nobody reads stay empty where the schema allows."""
        names: list[str] = []
        optional = _optional_outputs(op)
        for index in range(count):
            reader = self._projections().get((c, index))
            if reader is not None:
                names.append(self.names[reader])
            else:
                names.append("" if optional(index) else self._fresh(f"{op.rpartition('.')[2].lower()}_unused"))
        while names and not names[-1]:
            names.pop()
        return tuple(names)

    def _node(
        self, c: int, op: str, attrs: dict[str, AttrValue], inputs: tuple[str, ...], outputs: tuple[str, ...]
    ) -> None:
        rules, origins = self.provenance.of(c)
        name = next((o for o in origins if o and o not in self.node_names), "")
        if not name:
            base = f"{op.rpartition('.')[2].partition('@')[0]}_{next((o for o in outputs if o), c)}"
            number = 0
            while (name := base if not number else f"{base}_{number}") in self.node_names:
                number += 1
        self.node_names.add(name)
        self.nodes.append(Node(op, inputs, outputs, attrs, name, rules, origins))

    def _alias(self, c: int, name: str) -> None:
        """Makes a class readable under another name: an output or a captured value."""
        if self.names[c] == name or (name in self.types and self._defined(name)):
            return
        if c in self.values and name in self.original.constants:
            self.constants[name] = self.values[c]
            self._note(name, self.values[c].type)
            return
        self._note(name, self.egraph.types(c)[0])
        self._node(c, "Identity", {}, (self.names[c],), (name,))

    def _defined(self, name: str) -> bool:
        """Whether a name already stands for a value of the result."""
        return name in self.original.inputs or name in self.constants or any(name in n.outputs for n in self.nodes)


def _reading(value: AttrValue, renamed: Mapping[str, str]) -> AttrValue:
    """An attribute whose bodies read what is around them by new names."""
    if isinstance(value, Graph):
        return rename_captures(value, renamed)
    if isinstance(value, tuple) and value and isinstance(value[0], Graph):
        return tuple(rename_captures(g, renamed) for g in value if isinstance(g, Graph))
    return value


def _optional_outputs(op: str) -> Callable[[int], bool]:
    """Whether each output of an operator may be left unnamed."""
    flags, variadic = _output_options(op)
    return lambda index: index < len(flags) and flags[index] and not variadic


@cache
def _output_options(op: str) -> tuple[tuple[bool, ...], bool]:
    import onnx

    schema = find_schema(op)
    if schema is None:
        return (), True
    kinds = onnx.defs.OpSchema.FormalParameterOption
    return (
        tuple(o.option == kinds.Optional for o in schema.outputs),
        any(o.option == kinds.Variadic for o in schema.outputs),
    )


def _all_names(graph: Graph) -> Iterable[str]:
    """Every name that a graph and the graphs inside it use for values."""
    yield from graph.inputs
    yield from graph.outputs
    yield from graph.constants
    for node in graph.nodes:
        yield from node.inputs
        yield from node.outputs
        for _, body in node.subgraphs():
            yield from _all_names(body)
