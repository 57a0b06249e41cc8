"""Operators without a native kernel: one node by the reference implementation that comes with `onnx`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..engine.graph import Node
from ..engine.operators import WORKING_OPSET, find_schema, signature, split_name
from ..engine.protos import attribute_to_proto
from ..errors import RewriteError, UserError


class Runner:
    """A node made ready to be run many times.

    Raises UserError for an operator that no implementation is known of."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._inputs = [v for v in dict.fromkeys(node.inputs) if v]
        self._wanted = [v for v in node.outputs if v]
        self._evaluator = _evaluator(node)

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The outputs (those that have names) on values for the inputs that are there, in order.

        Values are arrays, lists (sequences) or None (empty optionals). Raises RewriteError with the node's name if the
        implementation fails: most often the operator is not defined on these operands."""
        present = [v for v in self.node.inputs if v]
        feeds = dict(zip(present, values, strict=True))
        with np.errstate(all="ignore"):
            try:
                found = self._evaluator.run(None, feeds)
            except Exception as error:
                where = f"node {self.node.name or self.node.outputs[0]} ({self.node.op})"
                raise RewriteError(f"the operator failed: {error}", where=where) from error
        return [np.asarray(v) if isinstance(v, np.generic | int | float | bool) else v for v in found]


def opset_of(node: Node) -> dict[str, int]:
    """The opset that a node's operator is meant at, by domain."""
    domain, _, version = split_name(node.op)
    if version is None and domain:
        schema = find_schema(node.op)
        version = schema.since_version if schema is not None else 1
    return {"": WORKING_OPSET, domain: version or WORKING_OPSET}


def _evaluator(node: Node) -> Any:
    import onnx
    from onnx.reference import ReferenceEvaluator

    imports = opset_of(node)
    names = [v for v in dict.fromkeys(node.inputs) if v]
    graph = onnx.helper.make_graph(
        [node_proto(node)],
        "node",
        [onnx.ValueInfoProto(name=n) for n in names],
        [onnx.ValueInfoProto(name=n) for n in node.outputs if n],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(d, v) for d, v in imports.items()])
    try:
        return ReferenceEvaluator(model)
    except Exception as error:
        raise UserError(
            f"there is no kernel and no reference implementation of operator {node.op}: {error}",
            where=f"node {node.name or node.outputs[0]}",
        ) from error


def node_proto(node: Node) -> Any:
    """The node as an ONNX `NodeProto` (without graphs among its attributes)."""
    import onnx

    domain, name, _ = split_name(node.op)
    proto = onnx.helper.make_node(name, list(node.inputs), list(node.outputs), name=node.name, domain=domain)
    known = signature(node.op)
    for key, value in node.attrs.items():
        if any(True for _ in node.subgraphs()):
            raise UserError(f"{node.op} holds a graph, which only If, Loop and Scan can", where=f"node {node.name}")
        kind = known.attributes[key].kind if known is not None and key in known.attributes else ""
        proto.attribute.append(attribute_to_proto(key, value, kind))
    return proto
