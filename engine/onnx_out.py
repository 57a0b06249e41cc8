"""Graphs into ONNX models.

A graph is written at the opset that its model had (`Graph.opset`); where a node has no words at that opset, at the
least one that has. Every node carries the rules that made it and the original nodes it stands for in its metadata
(`rewrite.rules`, `rewrite.origins`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import transient
from ..errors import RewriteError, UserError
from .graph import Attrs, Graph, Node, OtherType, TensorType, ValueType
from .operators import (
    ML_DOMAIN,
    OWN_DOMAIN,
    STANDARD_DOMAINS,
    WORKING_ML_OPSET,
    WORKING_OPSET,
    qualified,
    signature,
    split_name,
    versions,
)
from .opsets import NotExpressible, can_express, downgrade, version_at
from .protos import attribute_to_proto, fill_tensor, is_raw, type_to_proto
from .reading import Knowledge
from .shapes import contents_of
from .symbolic import symbols
from .wire import APART_FROM, spliced

LARGE = 1_900_000_000
"""Models of more bytes of constants keep them in a file of their own: a protocol buffer holds 2 GiB."""
_EXTERNAL_FROM = 1024
_ALIGNMENT = 4096


def can_write(op: str, attrs: Attrs, opsets: Mapping[str, int]) -> bool:
    """Whether an operator with these attributes can be written at the opsets, as far as its inputs do not matter."""
    return can_express(op, attrs, opsets)


def write(
    graph: Graph, *, opset: int | None = None, own_operators: bool = False, apart: list[np.ndarray | None] | None = None
) -> Any:
    """The `ModelProto` of a graph, at its own opset or the given one, or the least above it that can say everything.

    Operators of our own are written, in the domain `rewrite`, only if `own_operators` is set; no other software runs
    such a model. With `apart` large initialisers of the main graph stay empty; it is filled with an entry for each
    initialiser, the array for an empty one. Raises `RewriteError` if the graph cannot be written at any opset."""
    opsets = dict(graph.opset) or {"": WORKING_OPSET}
    if opset is not None:
        opsets[""] = opset
    if any(node.domain == ML_DOMAIN for node in _all_nodes(graph)):
        opsets.setdefault(ML_DOMAIN, WORKING_ML_OPSET)
    if any(split_name(node.op)[0] == "" for node in _all_nodes(graph)):
        opsets.setdefault("", WORKING_OPSET)
    if own_operators:
        opsets.setdefault(OWN_DOMAIN, 1)
    while True:
        try:
            writer = _Writer(graph, opsets, own_operators, apart=apart is not None)
            model = writer.model()
            if apart is not None:
                apart[:] = writer.arrays
            return model
        except NotExpressible as obstacle:
            domain = obstacle.node.domain
            if obstacle.needs is None or obstacle.needs <= opsets.get(domain, 0):
                raise RewriteError(
                    f"cannot be written as ONNX at opset {opsets}", where=_label(obstacle.node)
                ) from None
            opsets[domain] = obstacle.needs


def _label(node: Node) -> str:
    return f"node {node.name!r} ({node.op})"


def _all_nodes(graph: Graph) -> list[Node]:
    found = []
    for node in graph.nodes:
        found.append(node)
        for _, body in node.subgraphs():
            found.extend(_all_nodes(body))
    return found


def _all_graphs(graph: Graph) -> list[Graph]:
    return [graph, *(g for node in graph.nodes for _, body in node.subgraphs() for g in _all_graphs(body))]


class _Writer:
    """One attempt to write a graph at given opsets."""

    def __init__(self, graph: Graph, opsets: Mapping[str, int], own_operators: bool, *, apart: bool = False) -> None:
        self.graph = graph
        self.apart = apart
        self.arrays: list[np.ndarray | None] = []
        self.opsets = opsets
        self.own_operators = own_operators
        self.known = Knowledge()
        self.names: set[str] = set()
        for part in _all_graphs(graph):
            self.known.types.update(part.types)
            self.known.constants.update(part.constants)
            self.known.taken.update((*part.inputs, *part.constants, *part.outputs))
            self.known.taken.update(name for node in part.nodes for name in node.outputs)
            for name, constant in part.constants.items():
                self.known.types[name] = constant.type
                found = contents_of(constant)
                if found is not None:
                    self.known.contents[name] = found

    def model(self) -> Any:
        """The model."""
        import onnx

        proto = onnx.ModelProto(producer_name="rewrite", doc_string=self.graph.doc)
        self.body(self.graph, proto.graph)
        imports = [onnx.helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]
        proto.opset_import.extend(imports)
        try:
            least = onnx.helper.find_min_ir_version_for(imports, ignore_unknown=True)
        except ValueError:
            least = onnx.IR_VERSION
        proto.ir_version = max(self.graph.ir_version, 4, least)  # before 4 initialisers had to be inputs
        onnx.helper.set_model_props(proto, dict(self.graph.metadata))
        return proto

    def subgraph(self, graph: Graph) -> Any:
        """The body of a control operator."""
        import onnx

        proto = onnx.GraphProto()
        self.body(graph, proto)
        return proto

    def body(self, graph: Graph, proto: Any) -> None:
        """Fills in a `GraphProto`."""
        main = graph is self.graph
        proto.name = graph.name or "graph"
        work = Graph(graph.inputs, graph.outputs, [], dict(graph.constants), graph.types)
        context = self.known.context(work)
        for node in graph.nodes:
            for part in self.lowered(node, context):
                proto.node.append(self.node(part))
        for name in graph.inputs:
            proto.input.append(_value_info(name, self.known.types.get(name, TensorType()), main))
        for name in graph.outputs:
            proto.output.append(_value_info(name, self.known.types.get(name, TensorType()), main))
        for name, constant in (*work.constants.items(), *graph.defaults.items()):
            tensor = proto.initializer.add()
            is_apart = self.apart and main and is_raw(constant.array) and constant.array.nbytes >= APART_FROM
            fill_tensor(tensor, constant.array, name, empty=is_apart)
            if main:
                self.arrays.append(constant.array if is_apart else None)

    def lowered(self, node: Node, context: Any) -> list[Node]:
        """The node at the target opset; what adapters insert has its types noted on the way."""
        domain = node.domain
        if domain == OWN_DOMAIN and self.own_operators:
            return [node]
        if domain not in self.opsets:
            raise NotExpressible(node, None)
        parts = downgrade(node, self.opsets[domain], context)
        if node.rules or self.opsets.get(domain) != self.graph.opset.get(domain):
            self.check_types(node, domain)
        for part in parts[:-1]:
            self.known.infer(part, context.graph)
        return parts

    def check_types(self, node: Node, domain: str) -> None:
        """Raises `NotExpressible` if the operator, at the target opset, does not take inputs of these types.

        That can be for nodes that rules have made, and at another opset than the model's own."""
        plain = qualified(domain, split_name(node.op)[1])
        version = version_at(plain, self.opsets[domain])
        found = signature(f"{plain}@{version}") if version is not None and domain in STANDARD_DOMAINS else None
        if found is None or not found.inputs:
            return
        for i, name in enumerate(node.inputs[: None if found.inputs[-1].variadic else len(found.inputs)]):
            formal = found.inputs[min(i, len(found.inputs) - 1)]
            what = self.known.types.get(name)
            if isinstance(what, OtherType):
                fits = formal.others
            else:
                fits = what is None or what.dtype is None or not formal.dtypes or what.dtype.value in formal.dtypes
            if name and not fits:
                later = [v for v in versions(plain) if v > (version or 0)]
                raise NotExpressible(node, later[0] if later else None)

    def node(self, node: Node) -> Any:
        """The `NodeProto` of a node that is at the target opset already."""
        import onnx

        domain, name, _ = split_name(node.op)
        op = qualified(domain, name)
        version = version_at(op, self.opsets[domain]) if domain in STANDARD_DOMAINS else None
        found = signature(f"{op}@{version}") if version is not None else None
        formal = found.attributes if found else {}
        proto = onnx.NodeProto(op_type=name, domain=domain, name=self.unique(node.name))
        proto.input.extend(node.inputs)
        proto.output.extend(node.outputs)
        for key, value in sorted(node.attrs.items()):
            attribute = formal.get(key)
            if attribute is not None and not attribute.required and attribute.default == value:
                continue
            kind = attribute.kind if attribute else ""
            proto.attribute.append(attribute_to_proto(key, value, kind, self.subgraph))
        for key, values in (("rewrite.rules", node.rules), ("rewrite.origins", node.origins if node.rules else ())):
            if values:
                proto.metadata_props.add(key=key, value=",".join(values))
        return proto

    def unique(self, name: str) -> str:
        """A node's name, with a number behind if another node has it already."""
        found, n = name, 1
        while found and found in self.names:
            n += 1
            found = f"{name}_{n}"
        self.names.add(found)
        return found


def _value_info(name: str, found: ValueType, main: bool) -> Any:
    import onnx

    info = onnx.ValueInfoProto(name=name)
    if not main and (isinstance(found, OtherType) or found.dtype is None):
        if isinstance(found, OtherType):
            info.type.CopyFrom(type_to_proto(found))
        return info
    proto = type_to_proto(found)
    if isinstance(found, TensorType) and found.shape is not None:
        for d, entry in zip(found.shape, proto.tensor_type.shape.dim, strict=True):
            if any(s.startswith("_") for s in symbols(d)):
                entry.Clear()  # a name of our own says nothing to others
    info.type.CopyFrom(proto)
    return info


def save(model: Any, path: str | Path) -> None:
    """Writes a model to a file, by way of a temporary one, so that there is never half a model.

    Constants of models over 2 GiB go to a file of their own beside it, named like the model with `.data` behind.
    Raises `UserError` if the files cannot be written."""
    path = Path(path)
    try:
        if sum(len(t.raw_data) for t in model.graph.initializer) > LARGE:
            _save_large(model, path)
        else:
            _replace(path, [model.SerializeToString(deterministic=True)])
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", where=str(path)) from None


def pieces(graph: Graph) -> Iterator[memoryview] | None:
    """The bytes that `save` writes of what `write` makes of a graph, piece by piece; large constants are pieces of
    their own, the memory that they lie in where that is contiguous. None for a model whose constants go to a file of
    their own.

    A piece may be overwritten when the next one is asked for. Raises `RewriteError` if the graph cannot be written."""
    if sum(constant.array.nbytes for constant in (*graph.constants.values(), *graph.defaults.values())) > LARGE:
        return None
    arrays: list[np.ndarray | None] = []
    model = write(graph, apart=arrays)
    return spliced(memoryview(model.SerializeToString(deterministic=True)), arrays)


def _replace(path: Path, chunks: Any) -> None:
    with transient.replacing(path) as file:
        for chunk in chunks:
            file.write(chunk)


def _save_large(model: Any, path: Path) -> None:
    import onnx

    light = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            getattr(light, field.name).extend(value) if field.is_repeated else setattr(light, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            target = light.graph
            getattr(target, field.name).extend(value) if field.is_repeated else setattr(target, field.name, value)
    data = path.with_name(path.name + ".data")
    offset = 0
    tensors = []
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) < _EXTERNAL_FROM:
            light.graph.initializer.append(tensor)
            continue
        offset += -offset % _ALIGNMENT
        entry = light.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        entry.data_location = onnx.TensorProto.EXTERNAL
        size = len(tensor.raw_data)
        for key, value in (("location", data.name), ("offset", offset), ("length", size)):
            entry.external_data.add(key=key, value=str(value))
        tensors.append((offset, tensor))
        offset += size

    def chunks() -> Any:
        at = 0
        for start, tensor in tensors:
            yield bytes(start - at)
            yield tensor.raw_data
            at = start + len(tensor.raw_data)

    _replace(data, chunks())
    _replace(path, [light.SerializeToString(deterministic=True)])
