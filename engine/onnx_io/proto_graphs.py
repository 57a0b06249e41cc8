"""Views of ONNX protocol buffers that the importer and exporter need: functions inlined, reads, topological order."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import Any

from ...errors import UserError
from ..operators.schemas import qualified, signature
from .descriptions import text


def without(message: Any, field_name: str) -> Any:
    """Return a copy of a message without one field."""
    copy = type(message)()
    for field, value in message.ListFields():
        if field.name != field_name:
            target = getattr(copy, field.name)
            if field.is_repeated:
                target.extend(value)
            elif field.message_type is not None:
                target.CopyFrom(value)
            else:
                setattr(copy, field.name, value)
    return copy


MOST_INLINED = 1_000_000
"""Maximum number of nodes of a model whose functions are inlined, or whose gradients are expanded."""


MADE = "\0"
"""Beginning of the names of values that no model has."""
_SCHEMA_FUNCTIONS = (("ai.onnx.preview", "FlexAttention"),)
"""Operators of the standard that are replaced by the functions which define them: they take graphs of their own."""


def inline_functions(model: Any, where: str) -> Any:
    """Inline a model's functions. The library gets the model without its initializers, which may be large."""
    by_schema = any((node.domain, node.op_type) in _SCHEMA_FUNCTIONS for node in _all_nodes(model))
    if not model.functions and not by_schema:
        return model
    import onnx
    from onnx import inliner

    _check_expansion(model, where)
    light = without(model, "graph")
    graph = light.graph
    graph.name = model.graph.name or "graph"
    for name in ("node", "input", "output", "value_info"):
        getattr(graph, name).extend(getattr(model.graph, name))
    listed = {v.name for v in graph.input}
    for tensor in model.graph.initializer:
        if tensor.name not in listed:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    imports = opset_imports(model)
    used = [item for function in model.functions for item in opset_imports(function).items()]
    differ = any(imports.get(domain, version) != version for domain, version in used)
    try:
        done = inliner.inline_local_functions(light, convert_version=differ) if model.functions else light
        if by_schema:
            done = inliner.inline_selected_functions(done, [*_SCHEMA_FUNCTIONS], inline_schema_functions=True)
    except Exception as error:  # errors from C++ have no common base class
        raise UserError(f"its functions cannot be inlined: {error}", where=where) from None
    result = onnx.ModelProto(ir_version=model.ir_version, doc_string=model.doc_string)
    result.metadata_props.extend(model.metadata_props)
    result.opset_import.extend(done.opset_import)
    result.graph.name = model.graph.name
    result.graph.node.extend(done.graph.node)
    result.graph.value_info.extend(done.graph.value_info)
    for name in ("input", "output", "initializer", "sparse_initializer"):
        getattr(result.graph, name).extend(getattr(model.graph, name))
    return result


def _all_nodes(model: Any) -> Iterator[Any]:
    """Yield the nodes of a model, of its functions, and of the graphs in them."""
    left = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while left:
        yield (node := left.pop())
        for a in node.attribute:
            left += [inner for graph in ([a.g] if a.HasField("g") else a.graphs) for inner in graph.node]


def _check_expansion(model: Any, where: str) -> None:
    """Raise UserError for functions that call themselves, or that are too many nodes once they are inlined: functions
    that each call the next one twice double with every one."""
    functions: dict[tuple[str, str], list[Any]] = {}
    for function in model.functions:
        functions.setdefault((function.domain, function.name), []).append(function)
    sizes: dict[tuple[str, str], int] = {}
    begun: set[tuple[str, str]] = set()

    def inlined(nodes: Any) -> int:
        found = 0
        for node in nodes:
            found += called((node.domain, node.op_type)) + sum(inlined(body.node) for body in bodies_of(node))
        return found

    def called(key: tuple[str, str]) -> int:
        if key not in functions:
            return 1
        if key not in sizes:
            if key in begun:
                raise UserError(f"function {key[1]!r} calls itself", where=where)
            begun.add(key)
            sizes[key] = max(inlined(function.node) for function in functions[key])
        return sizes[key]

    try:
        count = inlined(model.graph.node)
    except RecursionError:
        raise UserError("its functions are nested too deeply", where=where) from None
    if count > MOST_INLINED:
        raise UserError(f"its functions are {count:,} nodes once they are inlined", where=where)


def opset_imports(proto: Any) -> dict[str, int]:
    """Return the opset of each domain that a model or function imports; ONNX's own domain is the empty string."""
    return {("" if o.domain == "ai.onnx" else o.domain): o.version for o in proto.opset_import}


def bodies_of(node: Any) -> Iterator[Any]:
    """Iterate over the `GraphProto`s among the attributes of a node."""
    for attribute in node.attribute:
        if attribute.type in (5, 10):
            yield from (attribute.g, *attribute.graphs)


def count_operators(proto: Any) -> Counter[str]:
    """Count the nodes of a graph and its bodies by operator; `Constant` is only another form of an initializer."""
    found = Counter(qualified(node.domain, node.op_type) for node in proto.node if node.op_type != "Constant")
    return sum((count_operators(g) for node in proto.node for g in bodies_of(node)), found)


_BODY_OPERANDS: dict[str, Callable[[int], int]] = {
    "If": lambda _operands: 0,
    "Loop": lambda operands: max(operands, 2),  # the iteration number and the condition are always there
    "Scan": lambda operands: operands,
    "SequenceMap": lambda operands: operands,
}
"""Number of inputs of a body, from the number of its node's."""


def all_reads(proto: Any) -> set[str]:
    """Return every name that something in a graph, or in its bodies, reads."""
    found = {v.name for v in proto.output}
    for node in proto.node:
        found.update(node.input)
        found.update(*map(all_reads, bodies_of(node)))
    return found


def needed_values(proto: Any) -> set[str]:
    """Return the values of a graph that its outputs depend on."""
    makers = {name: node for node in proto.node for name in node.output if name}
    found: set[str] = set()
    reached = {v.name for v in proto.output}
    while reached:
        found |= reached
        nodes = [makers[name] for name in sorted(reached) if name in makers]
        reached = {name for n in nodes for name in node_reads(n)} - found
    return found


def check_interface(node: Any, op: str, where: str) -> None:
    """Raise `UserError` for a node that does not fit its operator's inputs, outputs or attributes."""
    found = signature(op)
    assert found is not None
    n, least, most = len(node.input), found.min_inputs, found.max_inputs
    if n < least or (most is not None and n > most):
        to = "any number of" if most is None else str(most)
        raise UserError(f"has {n} inputs; {node.op_type} takes {least} to {to}", where=where)
    if len(node.output) < found.min_outputs or (found.max_outputs is not None and len(node.output) > found.max_outputs):
        raise UserError(f"has {len(node.output)} outputs", where=where)
    for name, formal in zip(node.input, found.inputs, strict=False):  # more inputs than these are variadic
        if not name and not formal.optional and not formal.variadic:
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


def body_inputs(node: Any, body: Any, opset: int, ir_version: int, where: str) -> list[Any]:
    """Return the inputs of a body that its node provides; the initializers among the others are constants.

    Those are all inputs with an initializer if the others are as many as the node provides, else the ones past that
    number. Raises `UserError` for a body of a standard operator that does not fit its node's inputs or outputs."""
    defaults = {t.name for t in body.initializer} | {t.values.name for t in body.sparse_initializer}
    own = [value for value in body.input if value.name not in defaults]
    if node.domain not in ("", "ai.onnx") or node.op_type not in _BODY_OPERANDS:
        return own if ir_version < 4 else list(body.input)
    operands = len(node.input) - (node.op_type == "Scan" and opset < 9)  # the first one states lengths
    count, results = _BODY_OPERANDS[node.op_type](operands), len(node.output)
    if node.op_type == "Loop":
        results = 1 + max(results, count - 2)
    if len(own) < count <= len(body.input) and ir_version >= 4:
        own = [value for i, value in enumerate(body.input) if i < count or value.name not in defaults]
    if len(own) != count:
        message = f"its body {body.name!r} has {len(own)} inputs; the node provides {count}"
        raise UserError(message, where=where)
    if len(body.output) < results:
        message = f"its body {body.name!r} has {len(body.output)} outputs; the node needs {results}"
        raise UserError(message, where=where)
    return own


def scan_by_batch(node: Any) -> list[Any]:
    """Return nodes of opset 9 that mean what a Scan of opset 8 means: one over the batch around one over the sequence.

    Its first input must be absent: with lengths, each sequence of the batch ends earlier."""
    import onnx
    from onnx import helper

    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    body, count = attributes["body"], attributes["num_scan_inputs"]
    operands = node.input[1:]
    inputs = [f"{MADE}x{i}" for i in range(len(operands))]
    results = [f"{MADE}y{i}" for i in range(len(body.output))]
    directions = {"scan_input_directions": attributes["directions"]} if attributes.get("directions") else {}
    inner = helper.make_node("Scan", inputs, results, node.name, body=body, num_scan_inputs=count, **directions)
    given, made = ([onnx.ValueInfoProto(name=name) for name in names] for names in (inputs, results))
    by_batch = helper.make_graph([inner], body.name, given, made)
    outputs = [f"{MADE}{name}" for name in node.output]
    outer = helper.make_node("Scan", operands, outputs, node.name, body=by_batch, num_scan_inputs=len(operands))
    named = zip(outputs, node.output, strict=True)
    return [outer, *(helper.make_node("Identity", [value], [name]) for value, name in named if name)]


def is_gradient(node: Any) -> bool:
    """Return whether a node is a Gradient, whose attributes name values of the graph that it is part of."""
    return bool(node.op_type == "Gradient" and node.domain == "ai.onnx.preview.training")


def gradient_of(node: Any) -> tuple[list[str], list[str], list[str]]:
    """Return the values in the attributes xs, zs and y of a Gradient; y is one."""
    strings = {a.name: list(map(text, [a.s] if a.name == "y" else a.strings)) for a in node.attribute}
    return strings.get("xs", []), strings.get("zs", []), strings.get("y", [])


def free_names(graph: Any) -> list[str]:
    """Return the values that a `GraphProto` reads from around it, in order of first use."""
    known = _given(graph) | {name for node in graph.node for name in node.output}
    read = (*(name for node in graph.node for name in node_reads(node)), *(v.name for v in graph.output))
    return list(dict.fromkeys(name for name in read if name not in known))


def _given(graph: Any) -> set[str]:
    """Return the values that a `GraphProto` has without its nodes."""
    sparse = (t.values for t in graph.sparse_initializer)
    return {named.name for named in (*graph.input, *graph.initializer, *sparse)}


def node_reads(node: Any) -> Iterator[str]:
    """Iterate over the values that a `NodeProto` reads, including captured ones, and those that a Gradient names."""
    yield from filter(None, node.input)
    if is_gradient(node):
        yield from chain.from_iterable(gradient_of(node))
    for graph in bodies_of(node):
        yield from free_names(graph)


def describe(node: Any, index: int) -> str:
    """Return a node's name for messages: its own, or else its operator and index."""
    return f"node {node.name!r} ({node.op_type})" if node.name else f"node {index} ({node.op_type})"


def sorted_nodes(graph: Any, around: frozenset[str], where: str) -> list[Any]:
    """Return the nodes of a `GraphProto` in topological order, the given order if it is topological.

    `around` are the values of the graphs around it. Raises `UserError` for a cycle, a value without a producer, or one
    with two."""
    nodes, given = list(graph.node), _given(graph)
    places = [f"{where}: {describe(node, i)}" for i, node in enumerate(nodes)]
    maker: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in maker or name in given:
                other = describe(nodes[maker[name]], maker[name]) if name in maker else "an input or initializer"
                raise UserError(f"the value {name!r} has two producers; the other is {other}", where=places[i])
            maker[name] = i
    available = {*maker, *given, *around}
    needs: dict[int, set[int]] = {}
    for i, node in enumerate(nodes):
        reads = list(node_reads(node))
        for name in reads:
            if name not in available:
                message = f"reads the value {name!r}, which no input, initializer or node provides"
                raise UserError(message, where=places[i])
        needs[i] = {maker[name] for name in reads if name in maker}
    for value in graph.output:
        if value.name not in available:
            raise UserError(f"the output {value.name!r} is not produced by any node", where=where)
    sorter = TopologicalSorter(needs)
    try:
        sorter.prepare()
    except CycleError as error:
        names = " → ".join(describe(nodes[i], i) for i in error.args[1])
        hint = "Remove one of these dependencies."
        raise UserError(f"the graph is cyclic: {names}", where=where, hint=hint) from None
    ready = sorted(sorter.get_ready())
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))  # the least index first: a sorted graph stays as it is
        sorter.done(order[-1])
        for i in sorter.get_ready():
            heapq.heappush(ready, i)
    return [nodes[i] for i in order]
