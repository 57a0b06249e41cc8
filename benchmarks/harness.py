"""Harness for single kernels: lower a group of nodes, build it, and call its kernels one thread after the other.

It serves tests of lowerers and templates, and measurements of candidates when tuning. Memory planning and the thread
pool are left out. Instead every buffer is guarded, so that a kernel that writes past an end, or leaves part of an
output unwritten, is caught.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rewrite.backend.ir.kernel import ALIGNMENT, SERIAL_WORK, SLACK, Kernel
from rewrite.backend.ir.kernel_graph import Item, Join, Shape, Step, View
from rewrite.backend.ir.lower import Context, Group
from rewrite.backend.ir.schedule import Schedules
from rewrite.backend.ir.target import Target, detect
from rewrite.backend.kernels.registry import lowerer_of
from rewrite.backend.planning.concat_in_place import assign_leading_dimensions
from rewrite.backend.toolchain.builder import build
from rewrite.engine.ir import symbolic
from rewrite.engine.ir.dim_parser import parse
from rewrite.engine.ir.graph import Constant, DType, Graph, Node, TensorType
from rewrite.system.store import Store

Array = NDArray[Any]
_KERNEL = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64), ctypes.c_int, ctypes.c_int
)
_CANARY = 0xA5


def aligned(shape: Sequence[int], dtype: np.dtype[Any] | type, fill: int = 0) -> Array:
    """Return an array aligned as kernels expect, each byte `fill`, with readable slack behind it."""
    dtype = np.dtype(dtype)
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.full(nbytes + ALIGNMENT + SLACK, fill, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    raw[start + nbytes :] = _CANARY
    return raw[start : start + nbytes].view(dtype).reshape(tuple(shape))


def _intact(array: Array) -> bool:
    raw = array.base if array.base is not None else array
    while raw.base is not None:
        raw = raw.base
    start = -raw.ctypes.data % ALIGNMENT
    return bool((raw[start + array.nbytes :] == _CANARY).all())


def call(
    kernel: Kernel,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    *,
    dims: Sequence[int] = (),
    scratch: int = 0,
    threads: int = 1,
    target: Target | None = None,
    store: Store | None = None,
) -> None:
    """Build or load a kernel and call it as thread 0, 1 .. in turn; `outputs` are written in place.

    Arrays are copied to aligned, guarded buffers. AssertionError if the kernel writes behind one of them."""
    target = target or detect()
    library = build([kernel], target, store or Store())
    function = _KERNEL(library.address(kernel, target))
    buffers = []
    for array in (*inputs, *outputs):
        buffer = aligned(array.shape, array.dtype)
        buffer[...] = array
        buffers.append(buffer)
    assert scratch % ALIGNMENT == 0, "scratch is a multiple of 64"
    buffers.append(aligned((scratch * threads,), np.uint8, 0xFF))  # memory of no bytes has an address, too
    pointers = (ctypes.c_void_p * len(buffers))(*(b.ctypes.data for b in buffers))
    extents = (ctypes.c_int64 * max(1, len(dims)))(*dims)
    for tid in range(threads):
        function(pointers, extents, tid, threads)
    for buffer in buffers:
        assert _intact(buffer), f"{kernel.template}: written past the end of a buffer"
    for array, buffer in zip(inputs, buffers, strict=False):
        assert array.tobytes() == buffer.tobytes(), f"{kernel.template}: an input was overwritten"
    for array, buffer in zip(outputs, buffers[len(inputs) :], strict=False):
        array[...] = buffer


def make_graph(
    nodes: Sequence[Node],
    inputs: Mapping[str, Array | TensorType],
    *,
    constants: Mapping[str, Array] | None = None,
    outputs: Sequence[str] | None = None,
    symbolic_shapes: Mapping[str, Sequence[int | str]] | None = None,
    types: Mapping[str, TensorType] | None = None,
) -> Graph:
    """Return a graph of these nodes with inferred types; `outputs` default to the values that no node reads.

    `symbolic_shapes` are shapes of inputs with named dims (`{"x": ("N", 3, "2*H")}`); `types` overrides inference."""
    read = {v for node in nodes for v in node.inputs}
    made = [v for node in nodes for v in node.outputs if v]
    graph = Graph(
        inputs=tuple(inputs),
        outputs=tuple(outputs) if outputs is not None else tuple(v for v in made if v not in read),
        nodes=list(nodes),
        constants={name: Constant(np.asarray(array)) for name, array in (constants or {}).items()},
        opset={"": 23},
    )
    for name, value in inputs.items():
        kind = value if isinstance(value, TensorType) else TensorType(DType.from_numpy(value.dtype), value.shape)
        if symbolic_shapes and name in symbolic_shapes:
            dims = tuple(d if isinstance(d, int) else parse(d) for d in symbolic_shapes[name])
            kind = TensorType(kind.dtype, dims)
        graph.types[name] = kind
    graph.types.update({name: constant.type for name, constant in graph.constants.items()})
    _infer(graph, types or {})
    return graph


def _infer(graph: Graph, known: Mapping[str, TensorType]) -> None:
    graph.types.update(known)
    todo = [node for node in graph.nodes if not all(v in known for v in node.outputs if v)]
    if not todo:
        return
    from rewrite.engine.operators import inference

    counter = iter(range(1 << 30))
    values: dict[str, Any] = {}
    for node in todo:
        inputs = [v or None for v in node.inputs]
        found = inference.infer(
            node.op,
            node.attrs,
            [graph.types.get(v) if v else None for v in inputs],
            [values.get(v) if v else None for v in inputs],
            len(node.outputs),
            constants=[graph.constants.get(v) if v else None for v in inputs],
            fresh=lambda: symbolic.symbol(f"u{next(counter)}"),
        )
        for name, kind, value in zip(node.outputs, found.types, found.values, strict=False):
            if name:
                graph.types[name] = known.get(name, kind)
                if value is not None:
                    values[name] = value


def group_of(graph: Graph) -> Group:
    """Return all nodes of a graph as one group, anchored at the first one that has a lowerer."""
    anchor = next((node for node in graph.nodes if lowerer_of(node.op)), None)
    made = {v for node in graph.nodes for v in node.outputs}
    inputs = dict.fromkeys(v for node in graph.nodes for v in node.inputs if v and v not in made)
    order = [v for node in graph.nodes for v in node.outputs if v in graph.outputs]
    return Group(tuple(graph.nodes), anchor, tuple(inputs), tuple(order))


def lower(
    graph: Graph,
    *,
    threads: int = 1,
    target: Target | None = None,
    reassociate: bool = True,
    schedules: Schedules | None = None,
) -> tuple[list[Item] | None, Context]:
    """Lower the graph's nodes as one group; return the items (None if refused) and the context."""
    group = group_of(graph)
    context = Context(graph, target or detect(), threads, reassociate=reassociate, schedules=schedules)
    lowerer = lowerer_of(group.op)
    found = None if lowerer is None else lowerer(group, context)
    return (None if found is None else assign_leading_dimensions(found, graph.outputs, dict(graph.types))), context


def run(
    graph: Graph,
    feeds: Mapping[str, Array],
    *,
    threads: int = 2,
    target: Target | None = None,
    store: Store | None = None,
    schedules: Schedules | None = None,
) -> dict[str, Array]:
    """Run a graph of one group natively on arrays and return its outputs by name.

    AssertionError if no lowerer accepts it or a kernel misbehaves."""
    target = target or detect()
    items, context = lower(graph, threads=threads, target=target, schedules=schedules)
    assert items is not None, "no lowerer accepts this group"
    bound = _bind(graph, feeds)
    values: dict[str, Array] = {k: np.asarray(v) for k, v in feeds.items()}
    build([item.kernel for item in items if isinstance(item, Step)], target, store or Store())

    def shape_of(value: str) -> tuple[int, ...]:
        shape = context.type(value).shape
        assert shape is not None, value
        return tuple(symbolic.evaluate(d, bound) for d in shape)

    def get(value: str) -> Array:
        if value not in values:
            constant = context.constant(value)
            assert constant is not None, f"a step reads {value!r}, which no step wrote"
            values[value] = constant.array
        return values[value]

    for item in items:
        if isinstance(item, Step):
            work = item.work(bound)
            if not work:
                continue
            outputs = []
            for name in item.outputs:
                dtype = context.type(name).dtype
                assert dtype is not None, name
                outputs.append(aligned(shape_of(name), dtype.numpy, 0xFF))
            values.update(zip(item.outputs, outputs, strict=True))
            call(
                item.kernel,
                [get(v) for v in item.inputs],
                outputs,
                dims=[symbolic.evaluate(d, bound) for d in item.dims],
                scratch=symbolic.evaluate(item.scratch, bound),
                threads=1 if work < SERIAL_WORK else threads,
                target=target,
                store=store,
            )
        elif isinstance(item, Join):
            dtype = context.type(item.output).dtype
            assert dtype is not None, item.output
            whole = np.concatenate([np.ascontiguousarray(get(v)).reshape(-1) for v in item.parts])
            values[item.output] = whole.view(dtype.numpy).reshape(shape_of(item.output))
        elif isinstance(item, View):
            flat = np.ascontiguousarray(get(item.input)).reshape(-1).view(np.uint8)
            start, shape = symbolic.evaluate(item.offset, bound), shape_of(item.output)
            dtype = context.type(item.output).dtype
            assert dtype is not None, item.output
            size = int(np.prod(shape, dtype=np.int64)) * dtype.numpy.itemsize
            values[item.output] = flat[start : start + size].view(dtype.numpy).reshape(shape)
        elif isinstance(item, Shape):
            kind = context.type(item.output)
            assert kind.dtype is not None, item.output
            array = np.array([symbolic.evaluate(d, bound) for d in item.dims], kind.dtype.numpy)
            values[item.output] = array.reshape(shape_of(item.output))
    return {name: values[name] for name in graph.outputs}


def _bind(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, int]:
    """Return the extents of named dims for these inputs."""
    bound: dict[str, int] = {}
    for name, array in feeds.items():
        for dim, extent in zip(graph.type(name).shape or (), array.shape, strict=True):
            symbol = symbolic.symbol_name(dim)
            if symbol is not None:
                bound[symbol] = extent
    return bound
