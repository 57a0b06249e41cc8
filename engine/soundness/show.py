"""Terms of an e-graph as ONNX models, for people to read and for other tools to run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import RewriteError
from ..bodies import rename_captures
from ..egraph import ABSENT, CAPTURES, EGraph
from ..graph import AttrValue, Constant, Graph, Node
from ..operators import WORKING_OPSET


def graph_of(egraph: EGraph, root: int, names: Mapping[str, str] | None = None) -> Graph:
    """The graph that computes node `root`, every class below it by its oldest node.

    `names` gives names to constants by their digest. Inputs lose the number before the dot in their names."""
    builder = _Builder(egraph, dict(names or {}))
    outputs = builder.node(root)
    graph = builder.graph
    types = egraph.types(root)
    for name, type_ in zip(outputs, types, strict=False):
        graph.types[name] = type_
    graph.inputs = tuple(dict.fromkeys(builder.inputs))
    graph.outputs = outputs
    return graph


def model_of(graph: Graph) -> Any:
    """The `ModelProto` of a graph. Raises `RewriteError` if it cannot be written."""
    from ..onnx_out import write

    return write(graph, own_operators=True)


def bytes_of(graph: Graph) -> bytes:
    """The graph as a serialised model; empty if it cannot be written."""
    try:
        return bytes(model_of(graph).SerializeToString(deterministic=True))
    except RewriteError:
        return b""


def text_of(graph: Graph) -> str:
    """The graph in ONNX's text format."""
    import onnx

    try:
        model = model_of(graph)
    except RewriteError as error:
        return f"(it cannot be written: {error})"
    for node in model.graph.node:
        del node.metadata_props[:]
    text = str(onnx.printer.to_text(model.graph)).strip()
    return text.replace('[""] ', "")


class _Builder:
    def __init__(self, egraph: EGraph, names: dict[str, str]) -> None:
        self.egraph = egraph
        self.names = names
        self.graph = Graph(name="counterexample", opset={"": WORKING_OPSET}, ir_version=10)
        self.inputs: list[str] = []
        self.taken: set[str] = set()
        self.memo: dict[int, tuple[str, ...]] = {}

    def of_class(self, handle: int) -> tuple[str, ...]:
        """The names of a class's outputs."""
        if handle == ABSENT:
            return ("",)
        handle = self.egraph.find(handle)
        if handle not in self.memo:
            self.memo[handle] = self.node(handle)
        return self.memo[handle]

    def node(self, handle: int) -> tuple[str, ...]:
        """The names of a node's outputs; the node is added, and what it is made of."""
        node = self.egraph.nodes[handle]
        if node.op == "Input":
            name = self._fresh(str(node.attrs["name"]).partition(".")[2] or str(node.attrs["name"]))
            self.inputs.append(name)
            self.graph.types[name] = self.egraph.type(handle)
            return (name,)
        if node.op == "Const":
            digest = str(node.attrs["digest"])
            contents = self.egraph.constants[digest].contents()
            assert contents is not None
            name = self._fresh(self.names.get(digest, f"c{len(self.graph.constants) + 1}"))
            self.graph.constants[name] = Constant(contents)
            self.graph.types[name] = self.graph.constants[name].type
            return (name,)
        if node.op == "Proj":
            index = node.attrs["index"]
            assert isinstance(index, int)
            return (self.of_class(node.children[0])[index],)
        captured = node.attrs.get(CAPTURES, ())
        assert isinstance(captured, tuple)
        inner = len(node.children) - len(captured)
        around = {str(n): self.of_class(c)[0] for n, c in zip(captured, node.children[inner:], strict=True)}
        attrs = {name: self._body(value, around) for name, value in node.attrs.items() if name != CAPTURES}
        inputs = [self.of_class(c)[0] for c in node.children[:inner]]
        while inputs and not inputs[-1]:
            inputs.pop()
        outputs = tuple(self._fresh(f"t{len(self.taken) + 1}") for _ in range(node.outputs))
        for name, type_ in zip(outputs, self.egraph.types(handle), strict=False):
            self.graph.types[name] = type_
        self.graph.nodes.append(Node(node.op, tuple(inputs), outputs, attrs))
        return outputs

    def _body(self, value: AttrValue, around: Mapping[str, str]) -> AttrValue:
        """An attribute; a body reads what is around it by its new names, and its own names are taken."""
        if not isinstance(value, Graph):
            return value
        self.taken |= {*value.inputs, *value.constants, *(name for node in value.nodes for name in node.outputs)}
        return rename_captures(value, around)

    def _fresh(self, name: str) -> str:
        found, number = name, 1
        while found in self.taken:
            number += 1
            found = f"{name}_{number}"
        self.taken.add(found)
        return found
