"""Import of ONNX models to graphs.

Functions are inlined, every operator is taken to the working opset (`opsets`), default attributes are filled in.
`Constant` nodes become constants, `Identity` nodes are dropped, an `If` with a known condition becomes the branch that
it takes. Types and symbolic shapes are inferred.

What a model leaves open is decided as in ONNX Runtime. An initializer that is also listed as an input is a default that
callers may override (`Graph.defaults`). Before IR version 4, when every initializer had to be listed, it is a constant.
A value's declared type (`value_info`) is used only where inference leaves it open.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from ...errors import UserError
from ..ir.bodies import rename_values
from ..ir.graph import Constant, Graph, Node, OtherType, TensorType, ValueType, trimmed
from ..ir.names import UNQUALIFIED
from ..ir.protos import attribute_from_proto, type_from_proto
from ..ir.symbolic import Dim, symbol, total
from ..operators import schemas
from . import gradients, proto_graphs
from .descriptions import read_description, text
from .forced_sizes import forced_sizes
from .model_file import Files, constant_from_proto, constant_of_node, load, sparse_constant
from .model_values import ModelValues
from .opsets import upgrade, version_at

LOG = logging.getLogger("rewrite.engine")


def read(
    source: Any,
    *,
    shapes: Mapping[str, int] | None = None,
    declared: Callable[[Mapping[str, int]], Mapping[str, schemas.Declared]] | None = None,
    mapped: bool = False,
) -> Graph:
    """Import a model: a path, the bytes of a file, a `ModelProto`, or a `DetachedModel`.

    Free sizes with which alone the model runs become that size (`forced_sizes`).

    `shapes` maps symbolic dims to numbers, by name (`N`) or by input and axis (`x:0` or `x.0`). A named dim gets the
    number wherever the name occurs. `declared` returns the operators of other domains that are known for a model of
    given opsets. If `mapped`, large constants stay in the file, which must not be truncated while the graph is in use.

    Raises `UserError` for anything but a valid model. A node of the main graph whose operands have sizes that do not
    fit is an error too; in a body it is not, for the branch may never be taken."""
    model, files, where = load(source, mapped=mapped)
    about = read_description(model)
    opset = _opsets(model, where)
    if not model.graph.output:
        raise UserError("the graph has no outputs", where=where)
    model = proto_graphs.inline_functions(model, where)
    with schemas.declared_operators(declared(opset) if declared is not None else {}):
        make = partial(_Reader, files, where, opset, ir_version=model.ir_version)
        reader = make(shapes=dict(shapes or {}))
        graph = reader.main(model)
        while forced := {} if reader.known.refused else forced_sizes(graph):
            for place, (size, node) in forced.items():
                LOG.info(
                    "%s: the size of %s is %d, since %s (%s) runs with no other", where, place, size, node.name, node.op
                )
            reader = make(shapes={**reader.shapes, **{place: size for place, (size, _) in forced.items()}})
            graph = reader.main(model)
        if reader.inlined and reader.known.refused:
            # Inlining hides where a misfit is. Import again without it, to see whether the branch may never run.
            reader = make(shapes=dict(shapes or {}), may_inline=False)
            graph = reader.main(model)
        if reader.known.refused:
            reader = make(shapes=dict(shapes or {}), may_inline=False, believe=False)
            reader.main(model)
            reader.raise_misfit(model.graph)
    if reader.least > opset.get("", 1):
        opset = {**opset, "": reader.least}
    return replace(graph, opset=opset, about=about, ir_version=model.ir_version)


def _opsets(model: Any, where: str) -> dict[str, int]:
    from onnx import defs

    found = proto_graphs.opset_imports(model) or {"": 1}
    newest = defs.onnx_opset_version()
    if found.get("", 1) > newest:
        message = f"opset {found['']} is newer than the installed onnx package knows ({newest})"
        raise UserError(message, where=where, hint="Upgrade the package onnx.")
    if found.get("", 1) < 1:
        raise UserError(f"opset {found['']} does not exist", where=where)
    return found


_NAMELESS = ("", "?", "None", "-1", "*", "unk", "unknown")
"""Names that exporters write for a dim of any size; elsewhere equal names mean equal sizes."""
_SCOPES = "pkg.torch.onnx.name_scopes"
"""Metadata of a node in which PyTorch names the modules around it, from the outside in."""
_NESTED = 3
"""Depth of loops in loops up to which the types of their states are tried: each level may import its body again."""
_ATTEMPTS = 3
"""Number of types that are tried for the states of a loop before nothing is taken to be known of their shapes."""
_RESULT = proto_graphs.MADE
"""Name of a result of an inlined branch."""


@dataclass(slots=True)
class _Body:
    """A graph that is being imported.

    `scope` maps the model's names of values to the graph's, `outputs` are the names of its outputs, `unread` those that
    no node reads, `stated` the types that the model states. `renamed` maps values of the graph to the outputs
    whose names they take."""

    graph: Graph
    scope: dict[str, str]
    outputs: set[str]
    stated: Mapping[str, Any]
    unread: set[str] = field(default_factory=set)
    renamed: dict[str, str] = field(default_factory=dict)


@dataclass
class _Reader:
    """One import of one model; holds the values of all its graphs under unique names."""

    files: Files
    where: str
    opset: dict[str, int]
    shapes: dict[str, int]
    ir_version: int
    may_inline: bool = True
    believe: bool = True
    known: ModelValues = field(default_factory=ModelValues)
    used: frozenset[str] = frozenset()
    dims: dict[str, Dim] = field(default_factory=dict)
    count: int = 0
    graph: Graph = field(default_factory=Graph)
    misfits: list[tuple[str, UserError]] = field(default_factory=list)
    inlining: int = 0
    named: frozenset[str] = frozenset()  # the dims of inputs
    inlined: int = 0
    loops: int = 0
    named_values: bool = False  # by Gradient: they are kept
    least: int = 1  # opset that can express what nodes of an older one have become

    def claim(self, name: str, graph: Graph) -> str:
        """Return the name in the result of a value of the model: its own in the main graph, else a unique one."""
        given = name.removeprefix(proto_graphs.MADE)
        return name if name == given and graph is self.graph and not self.inlining else self.known.new_value(given)

    def main(self, model: Any) -> Graph:
        proto = model.graph
        self.used = frozenset(proto_graphs.all_reads(proto))
        self.named_values = any(map(proto_graphs.is_gradient, proto.node))
        self.known.taken.update(v.name for v in (*proto.input, *proto.output))
        self.known.taken.update(t.name for t in proto.initializer)
        self.known.taken.update(name for node in proto.node for name in node.output)
        graph = self.graph = Graph(name=proto.name or "graph", opset=self.opset)
        names: dict[str, str] = {}
        defaults = self.initializers(proto, graph, names, () if self.ir_version < 4 else proto.input)
        ports = [value for value in proto.input if value.name not in names]
        self.shapes = _fixed_dims(ports, self.shapes, self.where)
        dims = (dim for value in ports for dim in value.type.tensor_type.shape.dim)
        self.named = frozenset(dim.dim_param for dim in dims if "+" not in dim.dim_param).difference(_NAMELESS)
        for value in proto.input:
            if value.name in names:
                continue
            if not value.name:
                raise UserError("an input has no name", where=self.where)
            names[value.name] = value.name
            found = self.known.types[value.name] = self.numbered(value)
            self.known.asked.update((found.shape or ()) if isinstance(found, TensorType) else ())
            graph.inputs += (value.name,)
        self.body(proto, graph, names, {})
        graph.defaults = defaults
        graph.written = proto_graphs.count_operators(proto)
        return graph

    def dim(self, name: str) -> Dim:
        """Return the dim for a name in an input's type. Names that look like ours are changed.

        A sum of dims of inputs, such as `past_length + length`, is that sum."""
        if name in _NAMELESS:
            return cast("Dim", self.known.fresh())
        parts = [part.strip() for part in name.split("+")]
        if len(parts) > 1 and self.named.issuperset(parts) and name not in self.shapes:
            return total(map(self.dim, parts))
        if name not in self.dims:
            unique = name
            while unique.startswith("_") or (unique != name and unique in self.dims):
                unique = f"dim{unique}"
            self.dims[name] = self.shapes[name] if name in self.shapes else symbol(unique)
        return self.dims[name]

    def numbered(self, value: Any) -> ValueType:
        """Return the type of an input with the dims that `shapes` maps to numbers."""
        found = type_from_proto(value.type, self.dim, self.known.fresh)
        if isinstance(found, OtherType) or found.shape is None:
            return found
        shape = tuple(self.shapes.get(f"{value.name}:{i}", d) for i, d in enumerate(found.shape))
        return TensorType(found.dtype, shape)

    def initializers(
        self, proto: Any, graph: Graph, names: dict[str, str], ports: Iterable[Any]
    ) -> dict[str, Constant]:
        """Add the initializers of a graph as constants; return those of `ports`, which are defaults of inputs."""
        inputs = {v.name for v in ports}
        found = {t.name: constant_from_proto(t, self.files, self.where) for t in proto.initializer}
        found |= {t.values.name: sparse_constant(t, self.files, self.where) for t in proto.sparse_initializer}
        for name, constant in found.items():
            if name not in inputs:
                self.define(graph, names, name, constant)
        return {name: constant for name, constant in found.items() if name in inputs}

    def define(self, graph: Graph, names: dict[str, str], name: str, constant: Constant) -> None:
        names[name] = unique = self.claim(name, graph)
        self.known.add_constant(graph, unique, constant)

    def body(self, proto: Any, graph: Graph, names: dict[str, str], outer: Mapping[str, str]) -> None:
        """Import the nodes and outputs of a graph whose inputs and initializers are there already."""
        stated = {v.name: v.type for v in (*proto.value_info, *proto.output) if self.believe}
        outputs = {v.name for v in proto.output}
        unread = outputs.difference(*map(proto_graphs.node_reads, proto.node))
        body = _Body(graph, {**outer, **names}, outputs, stated, unread)
        self.nodes(proto, outer, body)
        scope, renamed = body.scope, body.renamed
        graph.outputs = tuple(renamed.get(scope[v.name], scope[v.name]) for v in proto.output)
        if renamed:
            graph.nodes[:] = [rename_values(node, renamed) for node in graph.nodes]
            graph.types = {renamed.get(v, v): t for v, t in graph.types.items()}
            for old, name in renamed.items():
                self.known.alias(name, old)
        values = (*graph.inputs, *graph.constants, *(o for n in graph.nodes for o in n.outputs if o))
        graph.types.update({name: self.known.types[name] for name in values})

    def nodes(self, proto: Any, outer: Mapping[str, str], body: _Body) -> None:
        nodes = proto_graphs.sorted_nodes(proto, frozenset(outer), self.where)
        for i, node in enumerate(nodes):
            self.check(node, f"{self.where}: {proto_graphs.describe(node, i)}")
        for node in nodes:
            self.node(node, body)

    def check(self, node: Any, where: str) -> None:
        """Refuse an operator that does not exist, and a node that does not fit its operator's interface."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        op = self.operator(node)
        if domain not in self.opset:
            raise UserError(f"the model does not import the domain {domain!r}", where=where)
        opset = self.opset_of(node)
        version = version_at(op, opset)
        if schemas.find_declared(op) is not None or version is not None:
            proto_graphs.check_interface(node, op if version is None else f"{op}@{version}", where)
        elif domain in schemas.STANDARD_DOMAINS:
            later, similar = schemas.signature(op), schemas.suggestions(op)
            if later is not None:
                message = f"{op} does not exist at opset {opset}, only from {later.since_version} on"
                raise UserError(message, where=where)
            hint = f"Did you mean {' or '.join(similar)}?" if similar else ""
            raise UserError(f"unknown operator {op} (opset {opset})", where=where, hint=hint)

    def opset_of(self, node: Any) -> int:
        """Return the opset that defines a node: the model's, or 9 for a Scan that was made from one of opset 8."""
        if node.op_type == "Scan" and any(name.startswith(proto_graphs.MADE) for name in node.output):
            return 9
        return self.opset.get("" if node.domain == "ai.onnx" else node.domain, 1)

    @staticmethod
    def operator(node: Any) -> str:
        """Return the name in graphs of a node's operator."""
        name = schemas.qualified(node.domain, node.op_type)
        runtime = UNQUALIFIED.get(name, "")
        return runtime if schemas.find_declared(runtime) is not None else name

    def node(self, proto: Any, body: _Body) -> None:
        op, graph, scope = self.operator(proto), body.graph, body.scope
        self.count += 1
        where = f"{self.where}: {proto_graphs.describe(proto, self.count)}"
        if op == "Constant":
            self.define(graph, scope, proto.output[0], constant_of_node(proto, self.files, where))
            return
        inputs = [scope[name] if name else "" for name in proto.input]
        if op == "Identity" and not self.named_values and self.drop_identity(proto, body):
            return
        if proto_graphs.is_gradient(proto):
            self.gradient(proto, body, where)
            return
        condition = self.known.small(inputs[0]) if op == "If" and self.may_inline else None
        if condition is not None and condition.size == 1:
            self.inline(proto, body, bool(condition), where)
            return
        if op == "Scan" and self.opset_of(proto) < 9 and not inputs[0]:
            self.least = max(self.least, 9)
            for made in proto_graphs.scan_by_batch(proto):
                self.node(made, body)
            return
        attrs = self.attributes(proto, scope, inputs, where)
        if schemas.find_declared(op) is not None:
            attrs = schemas.normalize_attrs(op, attrs)
        scope.update({name: self.claim(name, graph) for name in proto.output if name})
        results = [scope[name] if name and not self.unread(op, i, name) else "" for i, name in enumerate(proto.output)]
        if not any(results):  # a recurrent cell of which nothing is read
            return
        label = proto.name or f"{proto.op_type}_{self.count - 1}"
        node = Node(op, trimmed(inputs), trimmed(results), attrs, label, (), (label,))
        if path := next((text(p.value) for p in proto.metadata_props if p.key == _SCOPES), ""):
            graph.scopes[label] = path
        stated = {scope[name]: body.stated[name] for name in proto.output if name in body.stated}
        refused = len(self.known.refused)
        opset = self.opset_of(proto) if op == "Scan" else self.opset.get(node.domain, 1)
        self.append(node, opset, graph, stated, {scope[name] for name in proto.output if name in body.unread})
        reason = next(filter(None, self.known.refused[refused:]), None)
        if reason is not None and graph is self.graph and not self.inlining:
            operands = [f"{name} is {self.known.types.get(scope[name], TensorType())}" for name in proto.input if name]
            error = UserError(f"its operands do not fit: {reason}", where=where, hint=f"Here {', '.join(operands)}.")
            self.misfits.append((next(filter(None, proto.output), ""), error))

    def append(
        self, node: Node, opset: int, graph: Graph, stated: Mapping[str, Any] | None = None, unread: Container[str] = ()
    ) -> None:
        """Add a node of an opset to a graph, at the working opset."""
        for upgraded in upgrade(node, opset, self.known, graph):
            graph.nodes.append(upgraded)
            self.known.add_node(upgraded, stated, unread)

    def gradient(self, proto: Any, body: _Body, where: str) -> None:
        """Replace a Gradient by nodes that compute it."""
        if body.graph is not self.graph:
            raise UserError("Gradient is supported in the main graph only", where=where)
        self.least = max(self.least, gradients.OPSET)
        append = partial(self.append, graph=body.graph)
        found = gradients.expand_gradient(proto, body.scope, body.graph, self.known, append, where)
        for name, value in found.items():
            body.scope[name] = self.claim(name, body.graph)
            append(Node("Identity", (value,), (body.scope[name],), {}, name, (), (name,)), gradients.OPSET)

    def unread(self, op: str, i: int, name: str) -> bool:
        """Whether an output may be unnamed, since it is optional and nothing reads it."""
        found = schemas.standard_signature(op) or schemas.signature(op)  # a file has to satisfy the standard's
        if name in self.used or found is None:
            return False
        return (i < len(found.outputs) and found.outputs[i].optional) or (op == "BatchNormalization" and i > 0)

    def raise_misfit(self, proto: Any) -> None:
        """Raise the error for the first node of the main graph whose operands do not fit, if an output needs it."""
        needed = proto_graphs.needed_values(proto)
        for name, error in self.misfits:
            if name in needed:
                raise error

    def drop_identity(self, proto: Any, body: _Body) -> bool:
        """Make the output of an Identity node another name of its input, where outputs of the graph permit."""
        name, source, scope = proto.output[0], body.scope[proto.input[0]], body.scope
        if name not in body.outputs:
            scope[name] = source
            return True
        own = {o for node in body.graph.nodes for o in node.outputs}
        if source not in own or source in {*map(scope.get, body.outputs), *body.renamed}:
            return False
        scope[name] = self.claim(name, body.graph)
        body.renamed[source] = scope[name]
        if name in body.stated and not (source in self.known.open_ranks and name in body.unread):
            known = self.known.types.get(source, TensorType())
            self.known.types[source] = self.known.completed(known, body.stated[name])
        self.known.alias(scope[name], source)
        return True

    def inline(self, proto: Any, body: _Body, condition: bool, where: str) -> None:
        """Import the branch that an If takes, in place of the If."""
        from onnx import helper

        (branch,) = (a.g for a in proto.attribute if a.name == ("then_branch" if condition else "else_branch"))
        names: dict[str, str] = {}
        self.inlining += 1
        self.inlined += 1
        self.initializers(branch, body.graph, names, self.body_inputs(proto, branch, where))
        stated = {v.name: v.type for v in (*branch.value_info, *branch.output)}
        inner = _Body(body.graph, {**body.scope, **names}, set(), stated, renamed=body.renamed)
        self.nodes(branch, body.scope, inner)
        self.inlining -= 1
        for name, result in zip(proto.output, branch.output, strict=False):
            if name:
                body.scope[_RESULT] = inner.scope[result.name]
                self.node(helper.make_node("Identity", [_RESULT], [name], name=f"{proto.name}_{name}"), body)
                del body.scope[_RESULT]

    def attributes(self, proto: Any, scope: Mapping[str, str], inputs: list[str], where: str) -> dict[str, Any]:
        graph = partial(self.subgraph, proto, outer=scope, inputs=inputs, where=where)
        tensor = partial(constant_from_proto, files=self.files, where=where)
        try:
            return {a.name: attribute_from_proto(a, graph, tensor) for a in proto.attribute}
        except ValueError as error:
            raise UserError(str(error), where=where) from None

    def body_inputs(self, node: Any, body: Any, where: str) -> list[Any]:
        """Return the inputs of a body that its node provides."""
        return proto_graphs.body_inputs(node, body, self.opset_of(node), self.ir_version, where)

    def subgraph(self, node: Any, proto: Any, outer: Mapping[str, str], inputs: list[str], where: str) -> Graph:
        """Import the body of an If, Loop or Scan (or of a custom operator), with what is known of its inputs' types.

        The states of a Loop are taken to keep the types of their first values. If the body then gives one another type,
        the body is imported again with what both have in common. What the body states counts where nothing is known."""
        ports = self.body_inputs(node, proto, where)
        if node.op_type != "Loop" or self.loops >= _NESTED:
            return self.body_graph(node, proto, ports, outer, inputs, ())
        first = (self.known.types.get(name) for name in inputs[2:])
        states: list[ValueType | None] = [
            found if isinstance(found, TensorType) and found.shape is not None else None for found in first
        ]
        varying: set[Dim] = set()
        mark = self.count, self.inlined, len(self.misfits), len(self.known.refused)
        for attempt in range(_ATTEMPTS + 1):
            self.loops += 1
            graph = self.body_graph(node, proto, ports, outer, inputs, states)
            self.loops -= 1
            before = [self.known.types.get(name, TensorType()) for name in graph.inputs[2:]]
            after = [self.known.types.get(name, TensorType()) for name in graph.outputs[1:]]
            found = [self.known.common_type(a, b, varying) for a, b in zip(before, after, strict=False)]
            if found == before[: len(found)] or attempt == _ATTEMPTS:
                break
            self.count, self.inlined = mark[:2]
            del self.misfits[mark[2] :], self.known.refused[mark[3] :]
            last = attempt == _ATTEMPTS - 1
            states[: len(found)] = [TensorType(t.dtype) if last and isinstance(t, TensorType) else t for t in found]
        return graph

    def body_graph(
        self,
        node: Any,
        proto: Any,
        ports: list[Any],
        outer: Mapping[str, str],
        inputs: list[str],
        states: Sequence[ValueType | None],
    ) -> Graph:
        """Import a body whose states have the given types; one that is None has the type that the body states.

        `ports` are those of its inputs that the node provides."""
        graph = Graph(name=proto.name or "body", opset=self.opset)
        names: dict[str, str] = {}
        self.initializers(proto, graph, names, ports)
        local: dict[str, Dim] = {}

        def dim(name: str) -> Dim:
            return local.setdefault(name, self.known.fresh())

        for i, value in enumerate(ports):
            names[value.name] = unique = self.claim(value.name, graph)
            given = type_from_proto(value.type, dim, self.known.fresh)
            old = node.op_type == "Scan" and self.opset_of(node) < 9  # with a batch dim
            found = given if old else self.known.body_input(node, i, given, inputs)
            state = states[i - 2] if 2 <= i < 2 + len(states) else None
            if isinstance(state, TensorType) and isinstance(found, TensorType):
                known = TensorType(found.dtype, state.shape)
                found = known if state.shape is None else self.known.completed(known, value.type)
                if state.shape is None:
                    self.known.open_ranks.add(unique)
            self.known.types[unique] = found
            graph.inputs += (unique,)
        self.body(proto, graph, names, outer)
        return graph


def _fixed_dims(inputs: Iterable[Any], shapes: Mapping[str, int], where: str) -> dict[str, int]:
    """Return the numbers in `shapes` by the name of the dim, or by `INPUT:AXIS` where it has none.

    `inputs` are `ValueInfoProto`s. The keys of `shapes` are names, `INPUT:AXIS` or `INPUT.AXIS`. Raises `UserError` for
    a dim that no input has, one that the model fixes to another number, and one that gets two numbers."""
    meant: dict[str, str] = {}
    numbers: dict[str, int] = {}
    free: dict[str, str] = {}
    for value in inputs:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            place = f"{value.name}:{axis}"
            name = place if dim.dim_param in _NAMELESS else dim.dim_param
            for alias in (place, f"{value.name}.{axis}"):
                meant[alias] = name
            if dim.HasField("dim_value"):
                numbers[place] = dim.dim_value
            else:
                free.setdefault(name, place)
    meant |= {name: name for name in free}  # a name that looks like a position is a name
    found: dict[str, int] = {}
    for given, number in shapes.items():
        if given not in meant:
            known = [name if name == place else f"{name} ({place})" for name, place in free.items()]
            hint = f"Free dimensions: {', '.join(known)}" if known else "All dimensions of the inputs are fixed."
            raise UserError(f"no input has a dimension {given!r}", where=where, hint=hint)
        name = meant[given]
        if numbers.setdefault(name, number) != number:
            what = "two numbers are given for" if name in found else "the model itself fixes"
            raise UserError(f"{what} dimension {given}: {numbers[name]} and {number}", where=where)
        if name in free:
            found[name] = number
    return found
