"""From a functional graph of PyTorch to an ONNX model and what surrounds it.

The model computes new tensors. An *epilogue*, a graph that PyTorch runs, makes the outputs from them: views of one
tensor that must share its memory, sizes, inputs that are returned, and axes in the order that eager mode would give."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.utils import _pytree as pytree

from ..engine.ir.detached_model import DETACHED, DetachedModel
from ..frontends.torch_models import missing_operators, random_operators, translator
from .tensors import Array, as_array, dense_order

_ATEN = torch.ops.aten


class Unsupported(Exception):
    """A graph that has no ONNX model; the text says why."""


@dataclass(frozen=True, slots=True)
class Input:
    """An input of the model: the number of the argument, and the order of its axes in memory, if another."""

    name: str
    argument: int
    order: tuple[int, ...] | None
    is_tensor: bool


@dataclass(frozen=True, slots=True)
class Lowered:
    """A graph as a model: its inputs and the names of its outputs, in order, and the epilogue.

    The epilogue takes the model's outputs and the arguments in one list. It is None if the outputs are the model's."""

    model: DetachedModel
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    epilogue: Callable[..., Sequence[Any]] | None


def lower(graph: fx.GraphModule, weights: Mapping[int, torch.Tensor]) -> Lowered | None:
    """Return the model of a graph in which some arguments, by number, are weights; None if it computes nothing.

    Raises `Unsupported` with the reason, and the exporter's errors."""
    _check(graph)
    split = _Split(graph)
    if not split.computed:
        return None
    body = split.body(weights)
    proto = translator().model(body.module, lambda: _exported(body.module))
    initializers = {body.names[number]: as_array(tensor) for number, tensor in weights.items() if number in body.names}
    initializers |= {name: as_array(tensor) for name, tensor in body.constants.items()}
    inputs = [item for item in body.inputs if item.argument not in weights]
    model = _with_weights(proto, {name: np.ascontiguousarray(array) for name, array in initializers.items()})
    return Lowered(model, tuple(inputs), body.outputs, split.epilogue(body.orders))


def _check(graph: fx.GraphModule) -> None:
    """Raise `Unsupported` for random numbers, operators that do not export, and tensors that are not plain ones."""
    if names := random_operators(graph):
        raise Unsupported(f"random numbers ({', '.join(names)}), which ONNX has no seed for")
    for node in graph.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if not isinstance(value, torch.Tensor):
                continue
            if value.device.type != "cpu":
                raise Unsupported(f"tensors on {value.device.type}")
            if value.layout is not torch.strided:
                raise Unsupported(f"sparse tensors ({value.layout})")
            if value.is_complex():
                raise Unsupported(f"complex numbers ({node.target})")
    if names := missing_operators(graph):
        raise Unsupported(f"no ONNX export for {', '.join(names)}")


@dataclass
class _Body:
    """The part of a graph that becomes a model."""

    module: fx.GraphModule
    inputs: list[Input]
    names: dict[int, str]
    constants: dict[str, torch.Tensor]
    outputs: tuple[str, ...]
    orders: list[tuple[int, ...] | None]


class _Split:
    """A graph split in two: `computed` are the nodes whose values the model computes and the epilogue takes."""

    def __init__(self, graph: fx.GraphModule) -> None:
        self.graph = graph
        self.arguments = [node for node in graph.graph.nodes if node.op == "placeholder"]
        (output,) = (node for node in graph.graph.nodes if node.op == "output")
        self.results: list[Any] = list(output.args[0])
        roots: dict[fx.Node, set[fx.Node]] = {}
        for node in self.results:
            if _is_tensor(node):
                roots.setdefault(_root(node), set()).add(node)
        self._shared = {
            root for root, views in roots.items() if len(views) > 1 or any(_order_of(view) is None for view in views)
        }
        """Nodes of which outputs are views that must share its memory, or that have gaps in it."""
        self.computed: list[fx.Node] = []
        self._after: dict[fx.Node, None] = {}
        for node in self.results:
            if isinstance(node, fx.Node):
                self._place(node)

    def _place(self, node: fx.Node) -> None:
        """Decide where a node runs that the epilogue needs, and those that it needs for it."""
        if node.op == "placeholder" or node in self._after or node in self.computed:
            return
        replayed = _is_view(node) and (_root(node) in self._shared or _root(node).op == "placeholder")
        if _is_tensor(node) and not replayed and node.op != "get_attr":
            self.computed.append(node)
            return
        for source in node.all_input_nodes:
            self._place(source)
        self._after[node] = None

    def epilogue(self, orders: Sequence[tuple[int, ...] | None]) -> Callable[..., Sequence[Any]] | None:
        """Return the function from the model's outputs, with axes in these orders, and the arguments to the outputs."""
        if self.results == self.computed and not any(orders):
            return None
        after, at = fx.Graph(), dict[fx.Node, fx.Node]()
        for node in self.computed:
            at[node] = after.placeholder(f"made_{node.name}")
        for node in self.arguments:
            at[node] = after.placeholder(node.name)
        for node, order in zip(self.computed, orders, strict=True):
            if order is not None:
                at[node] = after.call_function(_ATEN.permute.default, (at[node], _inverse(order)))
        for node in self.graph.graph.nodes:
            if node in self._after:
                at[node] = after.node_copy(node, lambda source: at[source])
        after.output(tuple(at[node] if isinstance(node, fx.Node) else node for node in self.results))
        return fx.GraphModule(self.graph, after).forward

    def body(self, weights: Mapping[int, torch.Tensor]) -> _Body:
        """Return the part for the model, in which some arguments are weights."""
        graph, at = fx.Graph(), dict[fx.Node, fx.Node]()
        graph.graph_copy(self.graph.graph, at)
        arguments = [at[node] for node in self.arguments]
        last = arguments[-1] if arguments else None
        constants = _lift_constants(self.graph, graph, last)
        orders: list[tuple[int, ...] | None] = [None] * len(arguments)
        with graph.inserting_before(next((n for n in graph.nodes if n.op != "placeholder"), None)):
            for number, node in enumerate(arguments):
                if _is_tensor(node) and number not in weights:
                    orders[number] = _turn_input(graph, node)
            _drop_sizes(graph, arguments)
        results, turned = [], []
        for node in self.computed:
            found, order = _turned_output(graph, at[node])
            results.append(found)
            turned.append(order)
        end = graph.output(tuple(results))
        end.meta["val"] = tuple(node.meta["val"] for node in results)
        graph.eliminate_dead_code()
        for node in [node for node in graph.nodes if node.op == "placeholder" and not node.users]:
            graph.erase_node(node)
            constants.pop(node.name, None)
        left = set(graph.nodes)
        names = {number: node.name for number, node in enumerate(arguments) if node in left}
        inputs = [Input(name, i, orders[i], _is_tensor(arguments[i])) for i, name in names.items()]
        module = fx.GraphModule(self.graph, graph)
        return _Body(module, inputs, names, constants, tuple(node.name for node in results), turned)


def _is_tensor(node: Any) -> bool:
    return isinstance(node, fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def _parent(node: fx.Node) -> fx.Node | None:
    """Return the node of which a node is a view; None if it is none."""
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        source = node.args[0]
        return source if isinstance(source, fx.Node) and _parent(source) is not None else None
    schema = getattr(node.target, "_schema", None)
    if schema is None or not any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns):
        return None
    source = node.args[0] if node.args else None
    return source if isinstance(source, fx.Node) else None


def _is_view(node: fx.Node) -> bool:
    return _parent(node) is not None


def _root(node: fx.Node) -> fx.Node:
    """Return the node of whose memory a node is a view, itself if of none."""
    while (parent := _parent(node)) is not None:
        node = parent
    return node


def _inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def _order_of(node: fx.Node) -> tuple[int, ...] | None:
    value = node.meta["val"]
    return dense_order(tuple(value.shape), value.stride())


def _turn_input(graph: fx.Graph, node: fx.Node) -> tuple[int, ...] | None:
    """Give an input of the model the order of axes that it has in memory; return that if it is another."""
    order, value = _order_of(node), node.meta["val"]
    if order is None or list(order) == sorted(order):
        return None
    users = list(node.users)
    back = graph.call_function(_ATEN.permute.default, (node, _inverse(order)))
    back.meta["val"], node.meta["val"] = value, value.permute(order)
    for user in users:
        user.replace_input_with(node, back)
    return order


def _turned_output(graph: fx.Graph, node: fx.Node) -> tuple[fx.Node, tuple[int, ...] | None]:
    """Return a node that has the contents of an output in the order of memory that eager mode gives, and this order.

    Views that the caller takes of an output need its strides."""
    order, value = _order_of(node), node.meta["val"]
    if order is None:
        raise Unsupported(f"an output with gaps or overlaps in memory ({node.target})")
    plain = list(order) == sorted(order)
    if plain and node.op != "placeholder":
        return node, None
    turned = graph.call_function(_ATEN.permute.default, (node, list(order)))
    turned.meta["val"] = value.permute(order)
    return turned, None if plain else order


def _drop_sizes(graph: fx.Graph, arguments: Sequence[fx.Node]) -> None:
    """Read sizes from the shapes of tensors instead of arguments, so that the compiler sees where they come from."""
    for node in arguments:
        size = node.meta["val"]
        if not isinstance(size, torch.SymInt):
            continue
        tensors = [tensor for tensor in arguments if _is_tensor(tensor)]
        places = ((t, axis) for t in tensors for axis, s in enumerate(t.meta["val"].shape) if _same(s, size))
        tensor, axis = next(places, (None, 0))
        if tensor is not None:
            read = graph.call_function(_ATEN.sym_size.int, (tensor, axis))
            read.meta["val"] = size
            node.replace_all_uses_with(read)


def _same(a: Any, b: torch.SymInt) -> bool:
    return isinstance(a, torch.SymInt) and bool(a.node.expr == b.node.expr)


def _lift_constants(source: fx.GraphModule, graph: fx.Graph, last: fx.Node | None) -> dict[str, torch.Tensor]:
    """Make inputs of the tensors that a graph holds; return them by name."""
    found: dict[str, torch.Tensor] = {}
    for node in [node for node in graph.nodes if node.op == "get_attr"]:
        value: Any = source
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor):
            continue  # the body of a condition or a loop
        with graph.inserting_after(last) if last is not None else graph.inserting_before(next(iter(graph.nodes))):
            last = graph.placeholder(f"constant_{len(found)}")
        mode = torch._guards.detect_fake_mode([n.meta.get("val") for n in graph.nodes])
        last.meta["val"] = mode.from_tensor(value, static_shapes=True) if mode is not None else value
        node.replace_all_uses_with(last)
        graph.erase_node(node)
        found[last.name] = value
    return found


def _exported(module: fx.GraphModule) -> torch.export.ExportedProgram:
    """Return a graph as an exported program, which is what the exporter takes."""
    from torch.export import graph_signature as signature
    from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature

    def argument(node: fx.Node) -> Any:
        return signature.TensorArgument(node.name) if _is_tensor(node) else signature.SymIntArgument(node.name)

    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    (end,) = (node for node in module.graph.nodes if node.op == "output")
    outputs: Any = end.args[0]
    ins = [signature.InputSpec(signature.InputKind.USER_INPUT, argument(node), None) for node in inputs]
    outs = [signature.OutputSpec(signature.OutputKind.USER_OUTPUT, argument(node), None) for node in outputs]
    _, in_spec = pytree.tree_flatten((tuple(inputs), {}))
    _, out_spec = pytree.tree_flatten(tuple(outputs))
    calls = [ModuleCallEntry("", ModuleCallSignature([], [], in_spec, out_spec))]
    about = signature.ExportGraphSignature(ins, outs)
    return torch.export.ExportedProgram(module, module.graph, about, {}, {}, calls, constants={})


def _with_weights(model: DetachedModel, weights: Mapping[str, Array]) -> DetachedModel:
    """Return a model with inputs replaced by initializers, whose contents stay where they are."""
    import onnx

    proto = model.model
    kept = [port for port in proto.graph.input if port.name not in weights]
    for port in proto.graph.input:
        if port.name in weights:
            tensor = proto.graph.initializer.add(name=port.name, data_type=port.type.tensor_type.elem_type)
            tensor.dims.extend(weights[port.name].shape)
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value=DETACHED)
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    return DetachedModel(proto, {**model.tensors, **weights})
