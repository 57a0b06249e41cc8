"""Operators without a native kernel: one node by the reference implementation that comes with `onnx`, or by what is
here where that is simple and the result's size hangs on data."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..engine.graph import Node
from ..engine.operators import WORKING_OPSET, find_schema, signature, split_name
from ..engine.protos import attribute_to_proto
from ..errors import RewriteError, UserError
from .kernel_graph import HOST_OPERATORS


class FallbackWarning(UserWarning):
    """Some operators run by their slow reference implementation."""


def warn_of_fallbacks(found: Mapping[str, int]) -> None:
    """One warning that names the operators without a kernel, if there are any; `found` are their numbers of nodes."""
    if found:
        names = ", ".join(f"{op} ×{n}" if n > 1 else op for op, n in sorted(found.items()))
        text = f"no native kernel for {names}: run by the reference implementation"
        warnings.warn(text, FallbackWarning, stacklevel=3)


class Runner:
    """A node that is run, many times perhaps. It is made ready when it first is: the reference implementation takes
    half a second and 27 MB, and a branch may never be taken."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @cached_property
    def _evaluator(self) -> Any:
        """The reference implementation; None for what is here. Raises UserError if none is known."""
        return None if self.node.op in _OPTIONALS or self.node.op in HOST_OPERATORS else _evaluator(self.node)

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The outputs (those that have names) on values for the inputs that are there, in order.

        Values are arrays, lists (sequences) or None (empty optionals). Raises UserError for an operator that no
        implementation is known of, and RewriteError with the node's name if the implementation fails: most often the
        operator is not defined on these operands."""
        present = [v for v in self.node.inputs if v]
        where = f"node {self.node.name or self.node.outputs[0]} ({self.node.op})"
        if self.node.op == "Range":
            return [number_range(*(np.asarray(v).reshape(()) for v in values), where=where)]
        if self._evaluator is None:
            return [_optional(self.node.op, values[0] if values else None, where)]
        feeds = dict(zip(present, values, strict=True))
        with np.errstate(all="ignore"):
            try:
                found = self._evaluator.run(None, feeds)
            except Exception as error:
                raise RewriteError(f"the operator failed: {error}", where=where) from error
        return [np.asarray(v) if isinstance(v, np.generic | int | float | bool) else v for v in found]


def computable(node: Node) -> bool:
    """Whether an implementation is known."""
    if node.op in _OPTIONALS or node.op in HOST_OPERATORS:
        return True
    try:
        _evaluator(node)
    except UserError:
        return False
    return True


_OPTIONALS = frozenset({"Optional", "OptionalGetElement", "OptionalHasElement"})


def _optional(op: str, value: Any, where: str) -> Any:
    """The operators on optionals: in a run, an optional is its value, or None if it is empty."""
    if op == "OptionalHasElement":
        return np.array(value is not None)
    if op == "OptionalGetElement" and value is None:
        raise RewriteError("the optional is empty", where=where)
    return value


def number_range(first: Any, last: Any, step: Any, *, where: str = "") -> Any:
    """Range, whose length only its operands tell: arrays of one number, of one dtype; first + i * step in that dtype.

    The length is ⌈(last - first) / step⌉: exact for integers; for floats the difference is one of the dtype, the
    quotient of double precision, as in ONNX Runtime. Raises RewriteError for a step of 0 and for what isn't finite."""
    a, b, d = first.item(), last.item(), step.item()
    if not d or not np.isfinite([a, b, d]).all():
        raise RewriteError(f"there is no Range from {a} to {b} by {d}", where=where)
    count = -((a - b) // d) if isinstance(a, int) else math.ceil(float(last - first) / d)
    dtype = first.dtype
    found = np.arange(max(0, count), dtype=dtype)
    found *= step
    found += first
    return found


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
        formal = known.attributes.get(key) if known is not None else None
        if (
            formal is None or formal.default is None or formal.default != value
        ):  # new attributes aren't known everywhere
            proto.attribute.append(attribute_to_proto(key, value, formal.kind if formal is not None else ""))
    return proto
