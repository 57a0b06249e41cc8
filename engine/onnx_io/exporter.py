"""Export of graphs to ONNX models.

A graph is written at the opset of its model (`Graph.opset`), or at the least one above it that can express all nodes.
The metadata of every node names the rules that made it and the original nodes it stands for, the first 32 of each
(`rewrite.rules`, `rewrite.origins`). Descriptions of the model and its parts are kept, and the type of every value is
stated (`value_info`), so that viewers show shapes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import RewriteError, UserError
from ...system import scoped
from ...system.mapped_memory import MappedArrays, mapping_of
from ..ir.bodies import all_bodies
from ..ir.detached_model import DETACHED, DetachedModel
from ..ir.graph import Graph, Node, OtherType, TensorType, ValueType
from ..ir.names import OWN_DOMAIN, UNQUALIFIED, unique_name
from ..ir.protos import EmptyDefault, attribute_to_proto, fill_tensor, is_raw, set_location, type_to_proto
from ..ir.symbolic import symbols
from ..operators import schemas
from .descriptions import describe_model, describe_node
from .model_values import ModelValues
from .opsets import NotExpressible, downgrade, version_at
from .proto_graphs import without
from .protobuf_wire import LARGE_FROM, spliced

LARGE = 1_900_000_000
"""Constants of more bytes than this go to a file of their own: a protocol buffer holds at most 2 GiB."""
_ALIGNMENT = 4096
Portion = tuple[int, int]
"""Offset of a byte range in the original file (-1: not from there), and its length."""
_MIN_RANGE = 1 << 16
"""Minimum length of a range in bytes; shorter ones are not recorded."""
_CHUNK = 8 << 20
"""Bytes per write; an interrupt waits for one."""


def write(
    graph: Graph,
    *,
    opset: int | None = None,
    own_operators: bool = False,
    detached_arrays: list[np.ndarray | None] | None = None,
) -> Any:
    """Convert a graph to a `ModelProto`, at its own opset or the given one, or the least above it that can express it.

    Operators of the domain `rewrite` are written only if `own_operators` is set; no other software runs such a model.
    With `detached_arrays`, large initializers of the main graph stay empty. The list is filled with an entry for each
    initializer: the array of an empty one, else None. Raises `RewriteError` if the graph cannot be written at any
    opset."""
    opsets = dict(graph.opset) or {"": schemas.WORKING_OPSET}
    if opset is not None:
        opsets[""] = opset
    used = {node.domain for part in (graph, *all_bodies(graph)) for node in part.nodes}
    for domain, working in (("", schemas.WORKING_OPSET), (schemas.ML_DOMAIN, schemas.WORKING_ML_OPSET)):
        if domain in used:
            opsets.setdefault(domain, working)
    if own_operators:
        opsets.setdefault(OWN_DOMAIN, 1)
    while True:
        try:
            writer = _Writer(graph, opsets, own_operators, detach=detached_arrays is not None)
            model = writer.model()
            if detached_arrays is not None:
                detached_arrays[:] = writer.arrays
            return model
        except NotExpressible as obstacle:
            node = obstacle.node
            if obstacle.needs is None or obstacle.needs <= opsets.get(node.domain, 0):
                where = f"node {node.name!r} ({node.op})"
                raise RewriteError(f"cannot be written as ONNX at opset {opsets}", where=where) from None
            opsets[node.domain] = obstacle.needs


class _Writer:
    """One attempt to write a graph at given opsets."""

    def __init__(self, graph: Graph, opsets: Mapping[str, int], own_operators: bool, *, detach: bool = False) -> None:
        self.graph = graph
        self.detach = detach
        self.arrays: list[np.ndarray | None] = []
        self.opsets = opsets
        self.own_operators = own_operators
        self.known = ModelValues()
        self.names: set[str] = set()
        for part in (graph, *all_bodies(graph)):
            self.known.types.update(part.types)
            self.known.taken.update((*part.inputs, *part.constants, *part.outputs))
            self.known.taken.update(name for node in part.nodes for name in node.outputs)
            for name, constant in part.constants.items():
                self.known.note_constant(name, constant)

    def model(self) -> Any:
        import onnx

        proto = onnx.ModelProto()
        self.body(self.graph, proto.graph)
        describe_model(proto, self.graph.about)
        imports = [onnx.helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]
        proto.opset_import.extend(imports)
        try:
            least = onnx.helper.find_min_ir_version_for(imports, ignore_unknown=True)
        except ValueError:
            least = onnx.IR_VERSION
        proto.ir_version = max(self.graph.ir_version, 4, least)  # before 4, initializers had to be inputs
        return proto

    def body(self, graph: Graph, proto: Any = None) -> Any:
        """Fill in a `GraphProto`, a new one for the body of a control operator, and return it."""
        import onnx

        proto = onnx.GraphProto() if proto is None else proto
        main = graph is self.graph
        proto.name = graph.name or "graph"
        work = Graph(graph.inputs, graph.outputs, [], dict(graph.constants), graph.types)
        for node in graph.nodes:
            for part in self.lowered(node, work):
                proto.node.append(self.node(part))
        ports = {*graph.inputs, *graph.outputs}
        inner = (name for node in proto.node for name in node.output if name and name not in ports)
        known = [name for name in inner if _is_known(self.known.types.get(name))]
        for names, infos in ((graph.inputs, proto.input), (graph.outputs, proto.output), (known, proto.value_info)):
            infos.extend(_value_info(name, self.known.types.get(name, TensorType()), main) for name in names)
        for name, constant in (*work.constants.items(), *graph.defaults.items()):
            tensor = proto.initializer.add()
            detached = self.detach and main and is_raw(constant.array) and constant.array.nbytes >= LARGE_FROM
            fill_tensor(tensor, constant.array, name, empty=detached)
            if main:
                self.arrays.append(constant.array if detached else None)
        return proto

    def lowered(self, node: Node, graph: Graph) -> list[Node]:
        """Return the node at the target opset; types of the nodes that adapters insert are recorded."""
        domain = node.domain
        if domain == OWN_DOMAIN and self.own_operators:
            return [node]
        if domain not in self.opsets:
            raise NotExpressible(node, None)
        parts = downgrade(node, self.opsets[domain], self.known, graph)
        if node.rules or self.opsets.get(domain) != self.graph.opset.get(domain):
            self.check_types(node)
        for part in parts[:-1]:
            self.known.add_node(part)
        return parts

    def check_types(self, node: Node) -> None:
        """Raise `NotExpressible` if the operator, at the target opset, does not accept inputs of these types.

        That happens to nodes that rules have made, and at another opset than the model's own."""
        found = self.interface(node.op)
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
                later = (v for v in schemas.versions(node.op) if v > found.since_version)
                raise NotExpressible(node, next(later, None))

    def interface(self, op: str) -> schemas.Signature | None:
        """Return the interface of a standard operator at the target opset; None for any other."""
        domain, name, _ = schemas.split_name(op)
        version = version_at(op, self.opsets[domain]) if domain in schemas.STANDARD_DOMAINS else None
        return None if version is None else schemas.signature(schemas.qualified(domain, name, version))

    def node(self, node: Node) -> Any:
        """Convert a node that is at the target opset already."""
        import onnx

        domain, name, _ = schemas.split_name(node.op)
        found = self.interface(node.op)
        formal = found.attributes if found else {}
        label = unique_name(node.name, self.names) if node.name else ""
        proto = onnx.NodeProto(op_type=name, domain="" if UNQUALIFIED.get(name) == node.op else domain, name=label)
        proto.input.extend(node.inputs)
        proto.output.extend(node.outputs)
        for key, value in sorted(node.attrs.items()):
            attribute = formal.get(key)
            default = attribute is not None and not attribute.required and attribute.default == value
            if default or isinstance(value, EmptyDefault):
                continue
            kind = attribute.kind if attribute else ""
            proto.attribute.append(attribute_to_proto(key, value, kind, self.body))
        describe_node(proto, node, self.graph.about)
        return proto


def _is_known(found: ValueType | None) -> bool:
    """Whether a value's type is worth stating: for a tensor, at least its element type."""
    return isinstance(found, OtherType) or (found is not None and found.dtype is not None)


def _value_info(name: str, found: ValueType, main: bool) -> Any:
    import onnx

    info = onnx.ValueInfoProto(name=name)
    if main or isinstance(found, OtherType) or found.dtype is not None:
        info.type.CopyFrom(type_to_proto(found))
        shape = found.shape if isinstance(found, TensorType) else None
        for d, entry in zip(shape or (), info.type.tensor_type.shape.dim, strict=True):
            if any(s.startswith("_") for s in symbols(d)):
                entry.Clear()  # other tools do not know this name
    return info


def save(model: Any, path: str | Path) -> None:
    """Write a model to a file atomically.

    Constants of models over 2 GiB go to a file beside it, named like the model with `.data` appended. Raises
    `UserError` if the files cannot be written."""
    path = Path(path)
    with reporting_errors(path):
        if sum(len(t.raw_data) for t in model.graph.initializer) <= LARGE:
            _replace(path, [model.SerializeToString(deterministic=True)])
            return
        light, arrays = _detach(model)
        data = list(_placed(light, arrays, f"{path.name}.data"))
        _replace(path.with_name(f"{path.name}.data"), _chunks(data))
        _replace(path, [light.SerializeToString(deterministic=True)])


@contextmanager
def reporting_errors(path: Path) -> Iterator[None]:
    """Report errors of the system within the block as `UserError`s of writing the file."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", where=str(path)) from None


def _files(graph: Graph, name: str) -> Iterator[tuple[str, Iterator[memoryview]]]:
    """Iterate over the files that `save` writes for a graph called `name`: their names and bytes.

    Large constants are pieces of their own, in place where they are contiguous. A piece is valid until the next one is
    requested. Raises `RewriteError` if the graph cannot be written."""
    arrays: list[np.ndarray | None] = []
    model = write(graph, detached_arrays=arrays)
    if sum(constant.array.nbytes for constant in (*graph.constants.values(), *graph.defaults.values())) <= LARGE:
        yield name, spliced(memoryview(model.SerializeToString(deterministic=True)), arrays)
    else:
        yield f"{name}.data", _chunks(list(_placed(model, arrays, f"{name}.data")))
        yield name, iter([memoryview(model.SerializeToString(deterministic=True))])


def _replace(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    with scoped.replacing(path) as file:
        for chunk in chunks:
            file.write(chunk)


def detached(graph: Graph) -> DetachedModel:
    """Return a graph as a model whose large initializers stay the arrays that they are.

    Raises `RewriteError` if the graph cannot be written."""
    arrays: list[np.ndarray | None] = []
    model = write(graph, detached_arrays=arrays)
    tensors: dict[str, np.ndarray] = {}
    for tensor, array in zip(model.graph.initializer, arrays, strict=True):
        if array is not None:
            tensors[tensor.name] = np.ascontiguousarray(array)
            set_location(tensor, DETACHED)
    return DetachedModel(model, tensors)


def _detach(model: Any) -> tuple[Any, list[np.ndarray | None]]:
    """Return a model without the bytes of its large initializers, and these bytes, as `write` does."""
    light = without(model, "graph")
    light.graph.CopyFrom(without(model.graph, "initializer"))
    arrays: list[np.ndarray | None] = []
    for tensor in model.graph.initializer:
        is_large = len(tensor.raw_data) >= LARGE_FROM
        arrays.append(np.frombuffer(tensor.raw_data, np.uint8) if is_large else None)
        light.graph.initializer.append(without(tensor, "raw_data") if is_large else tensor)
    return light, arrays


def _placed(model: Any, arrays: Iterable[np.ndarray | None], name: str) -> Iterator[tuple[int, np.ndarray]]:
    """Place the arrays of a model without them in a data file; return the offset of each in it."""
    offset = 0
    for tensor, array in zip(model.graph.initializer, arrays, strict=True):
        if array is not None:
            offset += -offset % _ALIGNMENT
            set_location(tensor, name, offset=offset, length=array.nbytes)
            yield offset, array
            offset += array.nbytes


def _chunks(placed: Iterable[tuple[int, np.ndarray]]) -> Iterator[memoryview]:
    """Iterate over the bytes of a data file."""
    at = 0
    for start, array in placed:
        yield memoryview(bytes(start - at))
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        at = start + array.nbytes


@contextmanager
def writing(graph: Graph, path: Path) -> Iterator[Callable[[], list[Portion] | None]]:
    """Write a graph in another thread, with the same bytes as `save`.

    The yielded function publishes the file; otherwise it is discarded. The function
    returns the portions of the file, if the graph was imported with its constants left in the original
    (`importer.read(mapped=True)`) and these are the only mapped ones; None if constants go to a file of their own. It
    raises `RewriteError` if the graph cannot be written, `UserError` if the file cannot."""
    canceled = threading.Event()
    with reporting_errors(path), scoped.directory_beside(path) as place, ThreadPoolExecutor(1) as pool:
        work = pool.submit(_write, graph, place, path.name, canceled)

        def finish() -> list[Portion] | None:
            with reporting_errors(path):
                files = work.result()
                for name in files:
                    os.replace(place / name, path.with_name(name))
                return files[path.name] if len(files) == 1 else None

        try:
            yield finish
        finally:
            canceled.set()


def _write(graph: Graph, folder: Path, name: str, canceled: threading.Event) -> dict[str, list[Portion]]:
    """Write the files of a graph until they are complete or `canceled`; return the portions of each, the model's
    last."""
    weights = MappedArrays(constant.array for constant in graph.constants.values())
    written: dict[str, list[Portion]] = {}
    for file_name, found in _files(graph, name):
        portions = written[file_name] = []
        with open(folder / file_name, "wb") as file:
            for piece in found:
                for at in range(0, piece.nbytes, _CHUNK):
                    if canceled.is_set():
                        return {}
                    file.write(piece[at : at + _CHUNK])
                    weights.note(_CHUNK)
                _add(portions, _offset(piece), piece.nbytes)
    return written


def _add(portions: list[Portion], start: int, size: int) -> None:
    """Append a range, merged with the last one if it continues that."""
    before, length = portions[-1] if portions else (0, 0)
    if portions and (start < 0) == (before < 0) and (start < 0 or before + length == start):
        portions[-1] = (before, length + size)
    else:
        portions.append((start, size))


def _offset(piece: memoryview) -> int:
    """Return the offset of bytes in the file that they are mapped from; -1 if they are not mapped, or few."""
    owner = mapping_of(piece)
    if owner is None or piece.nbytes < _MIN_RANGE:
        return -1
    whole, part = (np.frombuffer(data, np.uint8) for data in (owner, piece))
    return int(part.__array_interface__["data"][0] - whole.__array_interface__["data"][0])
