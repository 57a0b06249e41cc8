"""Plans as JSON, for bundles: everything but the weights, which `Weights` collects into one file."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checksum import Hashing
from ..engine import symbolic
from ..engine.graph import Constant, DType, Graph, Node, OtherType, TensorType, ValueType
from ..engine.symbolic import Dim
from ..errors import UserError
from .arrays import Contents
from .kernel_graph import (
    ALIGNMENT,
    SLACK,
    Along,
    Control,
    Fallback,
    Guard,
    Guarded,
    Item,
    Join,
    Kernel,
    Loop,
    ModelPlan,
    Origin,
    Shape,
    Step,
    Version,
    View,
)

Json = Any
FORMAT = 8
"""The version of bundles: what another version has written is not read."""
WEIGHTS = "weights.bin"


class Weights:
    """The constants of a bundle: each distinct one once, at a multiple of the alignment, with slack behind it."""

    def __init__(self) -> None:
        self._known = Contents()
        self._offsets: dict[str, int] = {}
        self._arrays: list[NDArray[Any]] = []
        self.size = 0

    def add(self, constant: Constant) -> Json:
        """Notes a constant; what stands for it in the manifest."""
        array = constant.array
        if array.dtype.kind == "O":
            return {"strings": [v if isinstance(v, str) else str(v) for v in array.ravel()], "shape": list(array.shape)}
        name = self._known.name(array, fresh := str(len(self._arrays)))
        if name == fresh:
            self._offsets[name] = self.size
            self._arrays.append(array)
            self.size += -(-(array.nbytes + SLACK) // ALIGNMENT) * ALIGNMENT
        dtype = DType.from_numpy(array.dtype).value
        return {"dtype": dtype, "shape": list(array.shape), "offset": self._offsets[name]}

    def write(self, file: Hashing) -> None:
        """Writes all of them in order."""
        for array in self._arrays:
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            file.write(data.data)
            file.write(bytes(-(-(data.nbytes + SLACK) // ALIGNMENT) * ALIGNMENT - data.nbytes))


def read_constant(data: Json, weights: NDArray[np.uint8]) -> Constant:
    """A constant out of the mapped weights."""
    shape = tuple(data["shape"])
    if "strings" in data:
        array = np.empty(len(data["strings"]), object)
        array[:] = data["strings"]
        return Constant(array.reshape(shape))
    dtype = DType(data["dtype"]).numpy
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    start = int(data["offset"])
    if start % ALIGNMENT or start < 0 or start + size > len(weights):
        raise ValueError("a weight lies outside the file")
    array = np.ndarray(shape, dtype, weights, start)
    array.flags.writeable = False
    return Constant(array)


def dump_plan(plan: ModelPlan, kernels: Mapping[Kernel, str], weights: Weights) -> Json:
    """A plan as JSON-able data. Raises UserError for one that has no such form."""
    return {
        "name": plan.name,
        "inputs": list(plan.inputs),
        "outputs": list(plan.outputs),
        "symbols": list(plan.symbols),
        "types": {name: _dump_type(kind) for name, kind in plan.types.items()},
        "constants": {name: weights.add(constant) for name, constant in plan.constants.items()},
        "defaults": {name: weights.add(constant) for name, constant in plan.defaults.items()},
        "items": [_dump_item(item, kernels, weights) for item in plan.items],
        "versions": [
            {
                "guards": [[_dump_dim(g.left), _dump_dim(g.right), g.equal] for g in version.guards],
                "plan": dump_plan(version.plan, kernels, weights),
                "fails": version.fails,
            }
            for version in plan.versions
        ],
        "fails": plan.fails,
    }


def load_plan(data: Json, kernels: Mapping[str, Kernel], weights: NDArray[np.uint8]) -> ModelPlan:
    """The plan that `dump_plan` gave. Raises KeyError, TypeError or ValueError for anything else."""
    return ModelPlan(
        name=data["name"],
        inputs=tuple(data["inputs"]),
        outputs=tuple(data["outputs"]),
        items=tuple(_load_item(item, kernels, weights) for item in data["items"]),
        constants={name: read_constant(constant, weights) for name, constant in data["constants"].items()},
        defaults={name: read_constant(constant, weights) for name, constant in data["defaults"].items()},
        types={name: _load_type(kind) for name, kind in data["types"].items()},
        symbols=tuple(data["symbols"]),
        versions=tuple(
            Version(
                tuple(Guard(_load_dim(a), _load_dim(b), bool(equal)) for a, b, equal in version["guards"]),
                load_plan(version["plan"], kernels, weights),
                bool(version["fails"]),
            )
            for version in data["versions"]
        ),
        fails=bool(data["fails"]),
    )


def _dump_dim(dim: Dim) -> Json:
    return dim if isinstance(dim, int) else str(dim)


def _load_dim(data: Json) -> Dim:
    return data if isinstance(data, int) else symbolic.parse(data)


def _dump_type(kind: ValueType) -> Json:
    if isinstance(kind, OtherType):
        return {"proto": base64.b64encode(kind.proto).decode()}
    shape = None if kind.shape is None else [_dump_dim(d) for d in kind.shape]
    return {"dtype": kind.dtype and kind.dtype.value, "shape": shape}


def _load_type(data: Json) -> ValueType:
    if "proto" in data:
        return OtherType(base64.b64decode(data["proto"]))
    shape = None if data["shape"] is None else tuple(_load_dim(d) for d in data["shape"])
    return TensorType(data["dtype"] and DType(data["dtype"]), shape)


def _dump_item(item: Item, kernels: Mapping[Kernel, str], weights: Weights) -> Json:
    match item:
        case Step():
            return {
                "step": kernels[item.kernel],
                "inputs": list(item.inputs),
                "outputs": list(item.outputs),
                "dims": [_dump_dim(d) for d in item.dims],
                "scratch": _dump_dim(item.scratch),
                "in_place": [list(pair) for pair in item.in_place],
                "threads": _dump_dim(item.threads),
                "only": [[_dump_dim(low), _dump_dim(high)] for low, high in item.only],
                "nodes": list(item.nodes),
                "origins": [_dump_origin(origin, weights) for origin in item.origins],
                "when": [list(guard) for guard in item.when],
            }
        case View():
            return {
                "view": item.input,
                "output": item.output,
                "offset": _dump_dim(item.offset),
                "nodes": list(item.nodes),
            }
        case Join():
            return {
                "join": list(item.parts),
                "offsets": [_dump_dim(d) for d in item.offsets],
                "output": item.output,
                "nodes": list(item.nodes),
            }
        case Shape():
            return {"shape": [_dump_dim(d) for d in item.dims], "output": item.output, "nodes": list(item.nodes)}
        case Fallback(node):
            attrs = {key: _dump_attr(value, weights, node.op) for key, value in node.attrs.items()}
            return {
                "fallback": node.op,
                "inputs": list(node.inputs),
                "outputs": list(node.outputs),
                "attrs": attrs,
                "name": node.name,
            }
        case Loop():
            return {
                "loop": item.op,
                "body": dump_plan(item.body, kernels, weights),
                "states": list(item.states),
                "scanned": list(item.scanned),
                "captures": list(item.captures),
                "outputs": list(item.outputs),
                "scans": [[along.axis, along.reverse] for along in item.scans],
                "makes": [[along.axis, along.reverse] for along in item.makes],
                "iterations": None if item.iterations is None else _dump_dim(item.iterations),
                "count": item.count,
                "going": item.going,
                "ends": item.ends,
                "name": item.name,
                "when": [list(guard) for guard in item.when],
            }
        case Control():
            return {
                "control": item.op,
                "inputs": list(item.inputs),
                "outputs": list(item.outputs),
                "attrs": {key: _dump_attr(value, weights, item.op) for key, value in item.attrs.items()},
                "bodies": [dump_plan(body, kernels, weights) for body in item.bodies],
                "captures": [list(values) for values in item.captures],
                "name": item.name,
                "when": [list(guard) for guard in item.when],
            }


def _load_item(data: Json, kernels: Mapping[str, Kernel], weights: NDArray[np.uint8]) -> Item:
    if "step" in data:
        return Step(
            kernel=kernels[data["step"]],
            inputs=tuple(data["inputs"]),
            outputs=tuple(data["outputs"]),
            dims=tuple(_load_dim(d) for d in data["dims"]),
            scratch=_load_dim(data["scratch"]),
            in_place=tuple((int(a), int(b)) for a, b in data["in_place"]),
            threads=_load_dim(data["threads"]),
            only=tuple((_load_dim(low), _load_dim(high)) for low, high in data["only"]),
            nodes=tuple(data["nodes"]),
            origins=tuple(_load_origin(origin, weights) for origin in data["origins"]),
            when=_load_guards(data["when"]),
        )
    if "view" in data:
        return View(data["view"], data["output"], _load_dim(data["offset"]), tuple(data["nodes"]))
    if "join" in data:
        offsets = tuple(_load_dim(d) for d in data["offsets"])
        return Join(tuple(data["join"]), offsets, data["output"], tuple(data["nodes"]))
    if "shape" in data:
        return Shape(data["output"], tuple(_load_dim(d) for d in data["shape"]), tuple(data["nodes"]))
    if "loop" in data:
        return Loop(
            op=data["loop"],
            body=load_plan(data["body"], kernels, weights),
            states=tuple(data["states"]),
            scanned=tuple(data["scanned"]),
            captures=tuple(data["captures"]),
            outputs=tuple(data["outputs"]),
            scans=tuple(Along(int(axis), bool(reverse)) for axis, reverse in data["scans"]),
            makes=tuple(Along(int(axis), bool(reverse)) for axis, reverse in data["makes"]),
            iterations=None if data["iterations"] is None else _load_dim(data["iterations"]),
            count=data["count"],
            going=data["going"],
            ends=bool(data["ends"]),
            name=data["name"],
            when=_load_guards(data["when"]),
        )
    attrs = {key: _load_attr(value, weights) for key, value in data["attrs"].items()}
    inputs, outputs = tuple(data["inputs"]), tuple(data["outputs"])
    if "fallback" in data:
        return Fallback(Node(data["fallback"], inputs, outputs, attrs, data["name"]))
    bodies = tuple(load_plan(body, kernels, weights) for body in data["bodies"])
    captures = tuple(tuple(values) for values in data["captures"])
    return Control(data["control"], inputs, outputs, attrs, bodies, captures, data["name"], _load_guards(data["when"]))


def _load_guards(data: Json) -> Guarded:
    return tuple((str(value), bool(wanted)) for value, wanted in data)


def _dump_origin(origin: Origin, weights: Weights) -> Json:
    return {
        "op": origin.op,
        "name": origin.name,
        "attrs": {key: _dump_attr(value, weights, origin.op) for key, value in origin.attrs.items()},
        "inputs": [kind and _dump_type(kind) for kind in origin.inputs],
        "outputs": [kind and _dump_type(kind) for kind in origin.outputs],
    }


def _load_origin(data: Json, weights: NDArray[np.uint8]) -> Origin:
    return Origin(
        data["op"],
        data["name"],
        {key: _load_attr(value, weights) for key, value in data["attrs"].items()},
        tuple(kind and _load_type(kind) for kind in data["inputs"]),
        tuple(kind and _load_type(kind) for kind in data["outputs"]),
    )


def _dump_attr(value: Any, weights: Weights, op: str) -> Json:
    if isinstance(value, Constant):
        return {"tensor": weights.add(value)}
    if isinstance(value, OtherType):
        return {"type": _dump_type(value)}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, tuple) and not any(isinstance(v, Graph) for v in value):
        return {"list": [_dump_attr(v, weights, op) for v in value]}
    if isinstance(value, str | int | float):
        return value
    raise UserError(f"{op} has an attribute that a bundle cannot hold")


def _load_attr(data: Json, weights: NDArray[np.uint8]) -> Any:
    if not isinstance(data, dict):
        return data
    if "tensor" in data:
        return read_constant(data["tensor"], weights)
    if "type" in data:
        return _load_type(data["type"])
    if "bytes" in data:
        return base64.b64decode(data["bytes"])
    return tuple(_load_attr(v, weights) for v in data["list"])
