"""Descriptions of models in ONNX's protocol buffers: read when a model is imported, written when it is exported."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..ir.description import Description, Note
from ..ir.graph import Node

_NAMES = 32
"""Rules and original nodes that the metadata of a node names: a size computed from others may stand for hundreds."""


def read_description(model: Any) -> Description:
    """Return the description in a `ModelProto`.

    Nodes that share their name have none: the name would not say which of them a node of the result stands for."""
    graph = model.graph
    counts = Counter(node.name for node in graph.node)
    values = {value.name: found for value in (*graph.input, *graph.output) if (found := _note(value))}
    nodes = {node.name: found for node in graph.node if node.name and counts[node.name] == 1 and (found := _note(node))}
    return Description(
        text(model.producer_name), text(model.producer_version), text(model.domain), model.model_version,
        _note(model), _note(graph), values, nodes,
        {v.name: _read_shape(v.type.tensor_type.shape) for v in graph.output if v.type.tensor_type.HasField("shape")},
    )  # fmt: skip


def describe_model(proto: Any, about: Description) -> None:
    """Write the description of the file and its main graph; a model without a producer gets ours."""
    proto.producer_name = about.producer or "rewrite"
    for field in ("producer_version", "domain", "model_version"):
        if value := getattr(about, field):
            setattr(proto, field, value)
    annotate(proto, about.model)
    annotate(proto.graph, about.graph)
    for value in (*proto.graph.input, *proto.graph.output):
        annotate(value, about.values.get(value.name, Note()))
    for value in proto.graph.output:
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            _write_shape(value.type.tensor_type, about.shapes.get(value.name))


def describe_node(proto: Any, node: Node, about: Description) -> None:
    """Write the description of a node: the rules that made it, or what the model says of it if none did."""
    if not node.rules:
        if len(node.origins) == 1:
            annotate(proto, about.nodes.get(node.origins[0], Note()))
        return
    for key, values in (("rewrite.rules", node.rules), ("rewrite.origins", node.origins)):
        left_out = len(values) - _NAMES
        if values:
            shown = [*values[:_NAMES], *([f"and {left_out} more"] if left_out > 0 else ())]
            proto.metadata_props.add(key=key, value=",".join(shown))


def annotate(proto: Any, note: Note) -> None:
    """Set the doc string and metadata of a protocol buffer that has both fields."""
    if note.doc:
        proto.doc_string = note.doc
    for key, value in note.metadata.items():
        proto.metadata_props.add(key=key, value=value)


def text(value: str | bytes) -> str:
    """Decode a text; libraries return bytes where it is not UTF-8."""
    return value if isinstance(value, str) else value.decode(errors="replace")


def _note(proto: Any) -> Note:
    return Note(text(proto.doc_string), {text(entry.key): text(entry.value) for entry in proto.metadata_props})


def _read_shape(shape: Any) -> tuple[int | str, ...]:
    return tuple(dim.dim_value if dim.HasField("dim_value") else text(dim.dim_param) for dim in shape.dim)


def _write_shape(kind: Any, shape: tuple[int | str, ...] | None) -> None:
    if shape is None:
        return
    kind.shape.SetInParent()
    for size in shape:
        entry = kind.shape.dim.add()
        if isinstance(size, int):
            entry.dim_value = size
        elif size:
            entry.dim_param = size
