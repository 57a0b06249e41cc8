"""ONNX models into graphs.

Functions are inlined, every operator is taken to the working opset (`opsets`), defaults of attributes are filled in,
`Constant` nodes become constants, `Identity` nodes go, an `If` whose condition is known becomes the branch that it
takes, types and symbolic shapes are inferred.

What a model leaves open is decided as ONNX Runtime does: an initialiser that is listed among the inputs is a
default that callers may override (`Graph.defaults`), except before IR version 4, when every initialiser had to be
listed and none was meant to be overridden: there they are constants. A value's declared type (`value_info`) is believed
only where inference leaves it open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from ..errors import UserError
from .fixed_dims import NAMELESS, fixed_dims
from .graph import Constant, Graph, Node, OtherType, TensorType, ValueType
from .model_file import Files, constant_from_proto, load, sparse_constant
from .operators import (
    STANDARD_DOMAINS,
    Declared,
    declaring,
    find_declared,
    normalise_attrs,
    qualified,
    signature,
    suggestions,
)
from .opsets import upgrade, version_at
from .protos import attribute_from_proto, type_from_proto
from .reading import Knowledge, rename_values
from .sorting import describe, sorted_nodes
from .symbolic import Dim, symbol


def read(
    source: Any,
    *,
    shapes: Mapping[str, int] | None = None,
    declared: Callable[[Mapping[str, int]], Mapping[str, Declared]] | None = None,
    mapped: bool = False,
) -> Graph:
    """Reads a model: a path, the bytes of a file, or a `ModelProto`.

    `shapes` gives numbers to symbolic dims, by name (`N`) or by input and axis (`x:0` or `x.0`; a dim that has a name
    gets the number wherever the name stands).
    `declared` gives the operators of other domains that are known for a model of given opsets. If `mapped`, large
    constants are read where they are in the file, which then must not be cut as long as the graph is in use.
    Raises `UserError` for what is no valid model, and for a node of the main graph whose operands have sizes that do
    not fit, naming the node; in a body such a node is left alone, for it may stand in a branch that is never taken."""
    model, files, where = load(source, mapped=mapped)
    opset = _opsets(model, where)
    if not model.graph.output:
        raise UserError("the graph has no outputs", where=where)
    model = _inlined(model, where)
    with declaring(declared(opset) if declared is not None else {}):
        reader = _Reader(files, where, opset, dict(shapes or {}), model.ir_version)
        graph = reader.main(model)
        if reader.inlined and reader.known.refused:
            # what no shapes fit is let pass where they are out of sight, and refused when branches are in place
            reader = _Reader(files, where, opset, dict(shapes or {}), model.ir_version, inline=False)
            graph = reader.main(model)
        if reader.known.refused:
            reader = _Reader(files, where, opset, dict(shapes or {}), model.ir_version, inline=False, believe=False)
            reader.main(model)
            reader.tell_misfit(model.graph)
    return replace(
        graph,
        opset=opset,
        metadata={_prose(p.key): _prose(p.value) for p in model.metadata_props},
        doc=_prose(model.doc_string),
        ir_version=model.ir_version,
    )


def _prose(text: str | bytes) -> str:
    """A description; libraries give bytes for what is no UTF-8."""
    return text if isinstance(text, str) else text.decode(errors="replace")


def _opsets(model: Any, where: str) -> dict[str, int]:
    from onnx import defs

    found = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}
    if not found:
        found = {"": 1}
    newest = defs.onnx_opset_version()
    if found.get("", 1) > newest:
        raise UserError(
            f"opset {found['']} is newer than the installed onnx package knows ({newest})",
            where=where,
            hint="Upgrade the package onnx.",
        )
    if found.get("", 1) < 1:
        raise UserError(f"opset {found['']} does not exist", where=where)
    return found


def _inlined(model: Any, where: str) -> Any:
    """The model without functions of its own. Initialisers are set aside meanwhile: they may be large."""
    if not model.functions:
        return model
    import onnx
    from onnx import inliner

    light = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name not in ("graph",):
            getattr(light, field.name).extend(value) if field.is_repeated else setattr(light, field.name, value)
    graph = light.graph
    for name in ("node", "input", "output", "value_info"):
        getattr(graph, name).extend(getattr(model.graph, name))
    graph.name = model.graph.name or "graph"
    listed = {v.name for v in graph.input}
    for tensor in model.graph.initializer:
        if tensor.name not in listed:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    imports = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}
    differ = any(
        imports.get("" if o.domain == "ai.onnx" else o.domain, o.version) != o.version
        for f in model.functions
        for o in f.opset_import
    )
    try:
        done = inliner.inline_local_functions(light, convert_version=differ)
    except Exception as error:  # the library raises whatever its C++ side throws
        raise UserError(f"its functions cannot be inlined: {error}", where=where) from None
    result = onnx.ModelProto()
    result.ir_version = model.ir_version
    result.doc_string = model.doc_string
    result.metadata_props.extend(model.metadata_props)
    result.opset_import.extend(done.opset_import)
    result.graph.name = model.graph.name
    result.graph.node.extend(done.graph.node)
    result.graph.value_info.extend(done.graph.value_info)
    for name in ("input", "output", "initializer", "sparse_initializer"):
        getattr(result.graph, name).extend(getattr(model.graph, name))
    return result


_RESULT = "\0"
"""Stands for a result of a branch that is read in place; no value of a model has that name."""


class _Reader:
    """One reading of one model; knows all values of all graphs in it, whose names are made unique."""

    def __init__(
        self,
        files: Files,
        where: str,
        opset: dict[str, int],
        shapes: dict[str, int],
        ir_version: int,
        *,
        inline: bool = True,
        believe: bool = True,
    ) -> None:
        self.files = files
        self.where = where
        self.opset = opset
        self.shapes = shapes
        self.ir_version = ir_version
        self.known = Knowledge()
        self.used: frozenset[str] = frozenset()
        self.dims: dict[str, Dim] = {}
        self.count = 0
        self.graph = Graph()
        self.may_inline = inline
        self.believe = believe
        self.misfits: list[tuple[str, UserError]] = []
        self.inlining = self.inlined = 0

    def claim(self, name: str, graph: Graph) -> str:
        """The name in the result of a value that the model calls so: its own in the main graph, else a unique one."""
        return name if graph is self.graph and not self.inlining else self.known.new_value(name)

    def main(self, model: Any) -> Graph:
        """The main graph."""
        proto = model.graph
        self.used = frozenset(_all_reads(proto))
        self.known.taken.update(v.name for v in (*proto.input, *proto.output))
        self.known.taken.update(t.name for t in proto.initializer)
        self.known.taken.update(name for node in proto.node for name in node.output)
        defaults: dict[str, Constant] = {}
        graph = self.graph = Graph(name=proto.name or "graph", opset=self.opset)
        names: dict[str, str] = {}
        listed = {v.name for v in proto.input}
        for name, constant in self.initialisers(proto):
            if name in listed and self.ir_version >= 4:
                defaults[name] = constant
            else:
                self.define(graph, names, name, constant)
        ports = [value for value in proto.input if value.name not in names]
        self.shapes = fixed_dims(ports, self.shapes, self.where)
        for value in proto.input:
            if value.name not in names:
                if not value.name:
                    raise UserError("an input has no name", where=self.where)
                names[value.name] = value.name
                found = type_from_proto(value.type, self.dim, self.known.fresh)
                self.known.types[value.name] = self.numbered(value.name, found)
                graph.inputs += (value.name,)
        self.body(proto, graph, names, {})
        graph.defaults = defaults
        graph.written = _count_nodes(proto)
        return graph

    def dim(self, name: str) -> Dim:
        """The dim that a name in an input's type stands for. Names that look like ours give way.

        Equal names mean equal sizes, except of the signs that exporters write for "any": `?`, `None`, `-1`."""
        if name in NAMELESS:
            return cast("Dim", self.known.fresh())
        if name not in self.dims:
            mine = name
            while mine.startswith("_") or (mine != name and mine in self.dims):
                mine = f"dim{mine}"
            self.dims[name] = self.shapes[name] if name in self.shapes else symbol(mine)
        return self.dims[name]

    def numbered(self, name: str, found: ValueType) -> ValueType:
        """The type of an input with those dims that `shapes` gives by number."""
        if isinstance(found, OtherType) or found.shape is None:
            return found
        shape = tuple(self.shapes.get(f"{name}:{i}", d) for i, d in enumerate(found.shape))
        return TensorType(found.dtype, shape)

    def initialisers(self, proto: Any) -> list[tuple[str, Constant]]:
        """Name and contents of all initialisers of a graph."""
        found = [(t.name, constant_from_proto(t, self.files, self.where)) for t in proto.initializer]
        for sparse in proto.sparse_initializer:
            found.append((sparse.values.name, sparse_constant(sparse, self.files, self.where)))
        return found

    def define(self, graph: Graph, names: dict[str, str], name: str, constant: Constant) -> None:
        """Adds a constant of the model to a graph."""
        names[name] = mine = self.claim(name, graph)
        self.known.add(graph, mine, constant)

    def body(self, proto: Any, graph: Graph, names: dict[str, str], outer: Mapping[str, str]) -> None:
        """Reads the nodes and outputs of a graph whose inputs and initialisers are there already."""
        scope = {**outer, **names}
        declared = {v.name: v.type for v in (*proto.value_info, *proto.output) if self.believe}
        outputs = {v.name for v in proto.output}
        renamed: dict[str, str] = {}
        nodes = sorted_nodes(proto, frozenset(outer), self.where)
        self.check(nodes)
        for node in nodes:
            self.node(node, graph, scope, outputs, declared, renamed)
        graph.outputs = tuple(renamed.get(scope[v.name], scope[v.name]) for v in proto.output)
        if renamed:
            rename_values(graph, renamed, self.known)
        graph.types.update(
            {
                name: self.known.types[name]
                for name in (*graph.inputs, *graph.constants, *(o for n in graph.nodes for o in n.outputs if o))
            }
        )

    def check(self, nodes: list[Any]) -> None:
        """Refuses operators that do not exist, and nodes that do not fit their operator's interface."""
        for i, node in enumerate(nodes):
            domain = "" if node.domain == "ai.onnx" else node.domain
            op = qualified(domain, node.op_type)
            where = f"{self.where}: {describe(node, i)}"
            if domain not in self.opset:
                raise UserError(f"the model does not say which version of the domain {domain!r} it uses", where=where)
            if domain not in STANDARD_DOMAINS:
                if find_declared(op) is not None:
                    _check_interface(node, op, where)
                continue
            version = version_at(op, self.opset[domain])
            if version is None:
                self.unknown(op, domain, where)
            _check_interface(node, f"{op}@{version}", where)

    def unknown(self, op: str, domain: str, where: str) -> None:
        """Refuses an operator that is not there at the model's opset."""
        opset = self.opset[domain]
        later = signature(op)
        if later is not None:
            raise UserError(f"{op} does not exist at opset {opset}, only from {later.since_version} on", where=where)
        similar = suggestions(op)
        raise UserError(
            f"unknown operator {op} (opset {opset})",
            where=where,
            hint=f"Did you mean {' or '.join(similar)}?" if similar else "",
        )

    def node(
        self,
        proto: Any,
        graph: Graph,
        scope: dict[str, str],
        outputs: set[str],
        declared: Mapping[str, Any],
        renamed: dict[str, str],
    ) -> None:
        """Reads one node."""
        op = qualified(proto.domain, proto.op_type)
        self.count += 1
        where = f"{self.where}: {describe(proto, self.count)}"
        if op == "Constant":
            name = proto.output[0]
            scope[name] = self.claim(name, graph)
            self.known.add(graph, scope[name], self.constant(proto, where))
            return
        inputs = [scope[name] if name else "" for name in proto.input]
        if op == "Identity" and self.drop_identity(proto, graph, scope, outputs, declared, renamed):
            return
        if op == "If" and self.may_inline and (way := self.known.small(inputs[0])) is not None and way.size == 1:
            self.inline(proto, graph, scope, outputs, declared, renamed, bool(way))
            return
        attrs = self.attributes(proto, scope, inputs, where)
        if find_declared(op) is not None:
            attrs = normalise_attrs(op, attrs)
        results = []
        for name in proto.output:
            if name:
                scope[name] = self.claim(name, graph)
            results.append(scope[name] if name else "")
        optional = _optional_outputs(op, proto)
        for i, name in enumerate(proto.output):
            if name and name not in self.used and i in optional:
                results[i] = ""
        while results and not results[-1]:
            results.pop()
        while inputs and not inputs[-1]:
            inputs.pop()
        label = proto.name or f"{proto.op_type}_{self.count - 1}"
        node = Node(op, tuple(inputs), tuple(results), attrs, label, (), (label,))
        version = self.opset.get(node.domain, 1)
        final = {scope[name]: declared[name] for name in proto.output if name in declared}
        refused = len(self.known.refused)
        for made_node in upgrade(node, version, self.known.context(graph)):
            graph.nodes.append(self.known.infer(made_node, graph, final))
        reason = next(filter(None, self.known.refused[refused:]), None)
        if reason is not None and graph is self.graph and not self.inlining:
            operands = [f"{name} is {self.known.types.get(scope[name], TensorType())}" for name in proto.input if name]
            error = UserError(f"its operands do not fit: {reason}", where=where, hint=f"Here {', '.join(operands)}.")
            self.misfits.append((next(filter(None, proto.output), ""), error))

    def tell_misfit(self, proto: Any) -> None:
        """Raises the error for the first node of the main graph whose operands do not fit, if an output needs it."""
        needed = _needed(proto)
        for name, error in self.misfits:
            if name in needed:
                raise error

    def drop_identity(
        self,
        proto: Any,
        graph: Graph,
        scope: dict[str, str],
        outputs: set[str],
        declared: Mapping[str, Any],
        renamed: dict[str, str],
    ) -> bool:
        """Makes the output of an Identity node another name of its input, where outputs of the graph permit."""
        name, source = proto.output[0], scope[proto.input[0]]
        if name not in outputs:
            scope[name] = source
            return True
        mine = {o for node in graph.nodes for o in node.outputs}
        taken = {scope.get(o) for o in outputs}
        if source not in mine or source in taken or source in renamed:
            return False
        scope[name] = self.claim(name, graph)
        renamed[source] = scope[name]
        if name in declared:
            self.known.types[source] = self.known.refined(self.known.types.get(source, TensorType()), declared[name])
        self.known.alias(scope[name], source)
        return True

    def inline(
        self,
        proto: Any,
        graph: Graph,
        scope: dict[str, str],
        outputs: set[str],
        declared: Mapping[str, Any],
        renamed: dict[str, str],
        way: bool,
    ) -> None:
        """Reads the branch that an If takes in the place of the If."""
        from onnx import helper

        (branch,) = (a.g for a in proto.attribute if a.name == ("then_branch" if way else "else_branch"))
        names: dict[str, str] = {}
        self.inlining += 1
        self.inlined += 1
        for name, constant in self.initialisers(branch):
            self.define(graph, names, name, constant)
        inner = {**scope, **names}
        stated = {v.name: v.type for v in (*branch.value_info, *branch.output)}
        nodes = sorted_nodes(branch, frozenset(scope), self.where)
        self.check(nodes)
        for node in nodes:
            self.node(node, graph, inner, set(), stated, renamed)
        self.inlining -= 1
        for name, result in zip(proto.output, branch.output, strict=False):
            if name:
                scope[_RESULT] = inner[result.name]
                identity = helper.make_node("Identity", [_RESULT], [name], name=f"{proto.name}_{name}")
                self.node(identity, graph, scope, outputs, declared, renamed)
                del scope[_RESULT]

    def constant(self, proto: Any, where: str) -> Constant:
        """The contents of a `Constant` node."""
        import numpy as np

        for attribute in proto.attribute:
            match attribute.name:
                case "value":
                    return constant_from_proto(attribute.t, self.files, where)
                case "sparse_value":
                    return sparse_constant(attribute.sparse_tensor, self.files, where)
                case "value_float":
                    return Constant(np.array(attribute.f, np.float32))
                case "value_floats":
                    return Constant(np.array(attribute.floats, np.float32))
                case "value_int":
                    return Constant(np.array(attribute.i, np.int64))
                case "value_ints":
                    return Constant(np.array(attribute.ints, np.int64))
                case "value_string":
                    return Constant(np.array(attribute.s.decode(errors="replace"), object))
                case "value_strings":
                    return Constant(np.array([s.decode(errors="replace") for s in attribute.strings], object))
        raise UserError("a Constant without value", where=where)

    def attributes(self, proto: Any, scope: Mapping[str, str], inputs: list[str], where: str) -> dict[str, Any]:
        """The attributes of a node, with its subgraphs."""

        def graph(body: Any) -> Graph:
            return self.subgraph(proto, body, scope, inputs)

        def tensor(found: Any) -> Constant:
            return constant_from_proto(found, self.files, where)

        try:
            return {a.name: attribute_from_proto(a, graph, tensor) for a in proto.attribute}
        except ValueError as error:
            raise UserError(str(error), where=where) from None

    def subgraph(self, node: Any, proto: Any, outer: Mapping[str, str], inputs: list[str]) -> Graph:
        """A body of an If, Loop or Scan (or of a custom operator), as far as its inputs' types are known."""
        graph = Graph(name=proto.name or "body", opset=self.opset)
        names: dict[str, str] = {}
        listed = {v.name for v in proto.input}
        for name, constant in self.initialisers(proto):
            if name not in listed or self.ir_version < 4:
                self.define(graph, names, name, constant)
        local: dict[str, Dim] = {}

        def dim(name: str) -> Dim:
            return local.setdefault(name, self.known.fresh())

        for i, value in enumerate(proto.input):
            if value.name in names:
                continue
            names[value.name] = mine = self.claim(value.name, graph)
            given = type_from_proto(value.type, dim, self.known.fresh)
            old = node.op_type == "Scan" and self.opset.get("", 1) < 9  # it has a batch dim
            self.known.types[mine] = given if old else self.known.body_input(node, i, given, inputs)
            graph.inputs += (mine,)
        self.body(proto, graph, names, outer)
        return graph


def _count_nodes(proto: Any) -> int:
    """The nodes of a graph and of the graphs inside it; `Constant` is but another way to write an initialiser."""
    bodies = (g for node in proto.node for a in node.attribute if a.type in (5, 10) for g in (a.g, *a.graphs))
    here = sum(1 for node in proto.node if node.op_type != "Constant")
    return here + sum(_count_nodes(g) for g in bodies)


def _all_reads(proto: Any) -> set[str]:
    """Every name that something in a graph, or in the graphs inside it, reads."""
    found = {v.name for v in proto.output}
    for node in proto.node:
        found.update(node.input)
        for attribute in node.attribute:
            if attribute.type in (5, 10):
                for graph in (attribute.g, *attribute.graphs):
                    found |= _all_reads(graph)
    return found


def _needed(proto: Any) -> set[str]:
    """The values of a graph that its outputs depend on."""
    makers = {name: node for node in proto.node for name in node.output if name}
    found: set[str] = set()
    reached = {v.name for v in proto.output}
    while reached:
        found |= reached
        nodes = [makers[name] for name in sorted(reached) if name in makers]
        bodies = (g for n in nodes for a in n.attribute if a.type in (5, 10) for g in (a.g, *a.graphs))
        reached = {name for n in nodes for name in n.input}.union(*map(_all_reads, bodies)) - found
    return found


def _optional_outputs(op: str, proto: Any) -> set[int]:
    """The outputs that may go unnamed if nothing reads them."""
    found = signature(op)
    if found is None:
        return set()
    return {i for i, p in enumerate(found.outputs) if p.optional} | (
        set(range(1, len(proto.output))) if op == "BatchNormalization" else set()
    )


def _check_interface(node: Any, op: str, where: str) -> None:
    found = signature(op)
    assert found is not None
    n = len(node.input)
    if n < found.min_inputs or (found.max_inputs is not None and n > found.max_inputs):
        most = "any number of" if found.max_inputs is None else str(found.max_inputs)
        raise UserError(f"has {n} inputs; {node.op_type} takes {found.min_inputs} to {most}", where=where)
    if len(node.output) < found.min_outputs or (found.max_outputs is not None and len(node.output) > found.max_outputs):
        raise UserError(f"has {len(node.output)} outputs", where=where)
    for i, name in enumerate(node.input):
        formal = found.inputs[min(i, len(found.inputs) - 1)] if found.inputs else None
        if not name and formal is not None and not formal.optional and not formal.variadic:
            raise UserError(f"its input {formal.name!r} is missing", where=where)
    given = set()
    for attribute in node.attribute:
        given.add(attribute.name)
        formal_attribute = found.attributes.get(attribute.name)
        if formal_attribute is None:
            raise UserError(f"{node.op_type} has no attribute {attribute.name!r}", where=where)
        kinds = attribute.AttributeType
        if attribute.type and formal_attribute.kind and kinds.Name(attribute.type) != formal_attribute.kind:
            raise UserError(f"its attribute {attribute.name!r} is not of the kind {formal_attribute.kind}", where=where)
    for name, formal_attribute in found.attributes.items():
        if formal_attribute.required and name not in given:
            raise UserError(f"its attribute {name!r} is missing", where=where)
