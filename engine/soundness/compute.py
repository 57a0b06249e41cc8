"""The values of e-nodes, by NumPy and the reference implementation, independent of what the compiler makes of them.

Bodies are run, and operators that rule files define are computed by their definition.

Each class is computed from its oldest node, which is the model's own; every other node of the class from the same
inputs. So one pass over an e-graph holds every equality in it against the original.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...grammar import ast
from .. import control, fold
from ..declared import bind
from ..egraph import ABSENT, CAPTURES, EGraph, ENode
from ..evaluate import Evaluator
from ..fold.windows import WINDOWS
from ..graph import AttrValue, Constant, DType, TensorType, ValueType
from ..operators import OWN_DOMAIN, WORKING_OPSET, find_schema, signature, split_name
from ..shapes import IllTyped, fresh_dims
from ..values import TensorRef, Unprovable, Value

Array = NDArray[Any]
_LIMIT = 1 << 22
_BF16 = DType.BF16.numpy
_REFERENCE_LIMIT = 20_000


class Undefined(Exception):
    """The operator has no value on these operands, or none that can be computed here."""

    def __init__(self, op: str, *, certain: bool) -> None:
        super().__init__(op)
        self.op = op
        self.certain = certain
        """Whether it is the standard that gives no value, and not just that nothing here computes the operator."""


@dataclass(frozen=True, slots=True)
class Computed:
    """The outputs of a class. `peak` is the largest finite magnitude on the way to it, `finite` whether nothing on the
    way was NaN or infinite, `lost` the largest magnitude that a sum on the way cancelled: what is below the rounding of
    that is anyone's."""

    arrays: tuple[Any, ...]
    peak: float
    finite: bool = True
    lost: float = 0.0


Meanings = dict[tuple[Any, ...], tuple[EGraph, list[int]]]
"""By node and the types of its operands: an e-graph of a declared operator's definition, and its outputs there."""


class Values:
    """The values of the classes of an e-graph for one choice of its inputs.

    `declared` are the operators that rule files define, by their names there. What their definitions come to is kept
    in `meanings`, for other choices of inputs."""

    def __init__(
        self,
        egraph: EGraph,
        inputs: Mapping[str, Array],
        declared: Mapping[str, ast.Op] | None = None,
        meanings: Meanings | None = None,
    ) -> None:
        self.egraph = egraph
        self.inputs = inputs
        self.declared = declared or {}
        self._meanings = meanings if meanings is not None else {}
        self._memo: dict[int, Computed | Undefined] = {}

    def of_class(self, handle: int) -> Computed:
        """The value of a class. Raises `Undefined`."""
        handle = self.egraph.find(handle)
        found = self._memo.get(handle)
        if found is None:
            try:
                found = self.of_node(handle)
            except Undefined as undefined:
                found = undefined
            self._memo[handle] = found
        if isinstance(found, Undefined):
            raise found
        return found

    def of_node(self, handle: int) -> Computed:
        """The value of one node, from the values of its inputs' classes. Raises `Undefined`."""
        node = self.egraph.nodes[handle]
        if node.op == "Input":
            name = str(node.attrs["name"])
            if name not in self.inputs:
                raise Undefined("Input", certain=False)
            return _computed([self.inputs[name]], 0.0)
        if node.op == "Const":
            contents = self.egraph.constants[str(node.attrs["digest"])].contents()
            if contents is None:
                raise Undefined("Const", certain=False)
            return _computed([np.asarray(contents)], 0.0)
        if node.op == "Proj":
            whole = self.of_class(node.children[0])
            index = node.attrs["index"]
            assert isinstance(index, int)
            if index >= len(whole.arrays):
                raise Undefined("Proj", certain=False)
            return Computed((whole.arrays[index],), whole.peak, whole.finite, whole.lost)
        if node.serial:
            raise Undefined(node.op, certain=False)
        if any(_elements(t) > _LIMIT for t in self.egraph.types(handle)):
            raise Undefined(node.op, certain=False)
        peak, finite, lost = 0.0, True, 0.0
        arrays: list[Any] = []
        for child in node.children:
            if child == ABSENT:
                arrays.append(None)
                continue
            below = self.of_class(child)
            peak, finite, lost = max(peak, below.peak), finite and below.finite, max(lost, below.lost)
            arrays.append(below.arrays[0])
        own = self.declared.get(node.op.removeprefix(f"{OWN_DOMAIN}."))
        if own is not None or node.op.startswith(f"{OWN_DOMAIN}."):
            return self._defined(handle, own, arrays)
        if CAPTURES in node.attrs:
            found = _with_bodies(node, arrays)
        else:
            found = apply(node.op, node.attrs, arrays, node.outputs)
        types = self.egraph.types(handle)
        typed = [_as_typed(a, t) for a, t in zip(found, types, strict=False)]
        if node.op in ("Add", "Sub", "Sum"):
            lost = max(lost, _cancelled(arrays, typed[0]))
        elif node.op in _SUMS and peak > _LARGE:
            lost = max(lost, _cancelled([_magnitude(node, arrays)], typed[0]))
        return _computed(typed, peak, finite=finite, lost=lost)

    def _defined(self, handle: int, op: ast.Op | None, arrays: Sequence[Any]) -> Computed:
        """The outputs of a declared operator, by its definition on operands of these types."""
        node = self.egraph.nodes[handle]
        if op is None or op.definition is None or any(isinstance(a, list) for a in arrays):
            raise Undefined(node.op, certain=False)
        key = (handle, *(None if a is None else (a.dtype, a.shape) for a in arrays))
        meant = self._meanings.get(key)
        if meant is None:
            meant = self._meanings[key] = self._meaning(node, op, arrays)
        egraph, outputs = meant
        inner = Values(egraph, {f"i{i}": a for i, a in enumerate(arrays) if a is not None}, self.declared, {})
        found = [inner.of_class(output) for output in outputs]
        return Computed(
            tuple(c.arrays[0] for c in found), max(c.peak for c in found), all(c.finite for c in found),
            max(c.lost for c in found),
        )  # fmt: skip

    def _meaning(self, node: ENode, op: ast.Op, arrays: Sequence[Any]) -> tuple[EGraph, list[int]]:
        egraph = EGraph.scratch(fresh_dims("_d"))
        evaluator = Evaluator(egraph)
        evaluator.declared = self.declared
        inputs: list[Value] = []
        for i, (child, array) in enumerate(zip(node.children, arrays, strict=True)):
            if array is None:
                inputs.append(None)
            elif self.egraph.is_const(child):
                inputs.append(TensorRef(egraph.add_constant(Constant(array))))
            else:
                type_ = TensorType(DType.from_numpy(array.dtype), array.shape)
                inputs.append(TensorRef(egraph.add_input(f"i{i}", type_)))
        try:
            meanings = evaluator.meanings(op, bind(op, inputs, node.attrs, evaluator))[: node.outputs]
        except (Unprovable, IllTyped) as error:
            raise Undefined(node.op, certain=False) from error
        outputs = [m.handle for m in meanings if isinstance(m, TensorRef)]
        if len(outputs) < node.outputs:
            raise Undefined(node.op, certain=False)
        return egraph, outputs


def _elements(type_: ValueType) -> float:
    """How many elements a tensor has, of those dims that are known."""
    dims = type_.shape if isinstance(type_, TensorType) else None
    return math.prod(float(d) for d in dims or () if isinstance(d, int))


def _with_bodies(node: ENode, arrays: Sequence[Any]) -> list[Any]:
    """The outputs of an If, Loop or Scan."""
    captured = node.attrs[CAPTURES]
    assert isinstance(captured, tuple)
    inner = len(arrays) - len(captured)
    around = {str(name): array for name, array in zip(captured, arrays[inner:], strict=True) if array is not None}
    try:
        return control.run(node.op, node.attrs, arrays[:inner], around, apply)
    except Unprovable as error:
        raise Undefined(node.op, certain=False) from error
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # operands that its bodies do not take
        raise Undefined(node.op, certain=False) from error


def _as_typed(array: Any, type_: ValueType) -> Any:
    """An array of integers in the element type that it has by inference: the reference sums in wider ones."""
    dtype = getattr(type_, "dtype", None)
    if isinstance(array, np.ndarray) and dtype is not None and dtype.is_integer and array.dtype.kind in "iu":
        return array.astype(dtype.numpy)
    return array


_SUMS = frozenset({"MatMul", "Gemm", "Conv", "ReduceSum", "ReduceMean", "Einsum"})
_LARGE = 1e6


def _magnitude(node: ENode, arrays: Sequence[Any]) -> Array:
    """The sums of the magnitudes of what an operator adds up: rounding is off by a part of these, however small the sum
    (Higham, "Accuracy and Stability of Numerical Algorithms", section 4.2). They are infinite where finite operands
    overflow in one order and need not in another; what is infinite already counts as nothing."""
    sizes = [_finite_size(a) if _is_float(a) else a for a in arrays]
    return np.asarray(apply(node.op, node.attrs, sizes, node.outputs)[0])


def _finite_size(array: Array) -> Array:
    sizes = np.abs(array.astype(np.float64))
    return np.where(np.isfinite(sizes), sizes, 0.0)


def _is_float(array: Any) -> bool:
    return isinstance(array, np.ndarray) and (array.dtype.kind == "f" or array.dtype == _BF16)


_CANCELLED = 1e-3
"""A sum that is smaller than a term by this factor has lost digits of it."""


def _cancelled(terms: Sequence[Any], total: Any) -> float:
    """The largest magnitude that terms of a sum have where they cancel: infinite where that cannot be told."""
    if not _is_float(total):
        return 0.0
    found = 0.0
    with np.errstate(all="ignore"):
        result = np.abs(total.astype(np.float64))
        for term in terms:
            size = np.broadcast_to(np.abs(np.asarray(term).astype(np.float64)), result.shape)
            gone = size[result < _CANCELLED * size]  # a sum with a term that is infinite is no smaller
            found = max(found, float(gone.max(initial=0.0)))
    return found


def _computed(arrays: Sequence[Any], peak: float, *, finite: bool = True, lost: float = 0.0) -> Computed:
    for array in arrays:
        if isinstance(array, np.ndarray) and array.size and array.dtype.kind in "fiuV":
            numbers = np.abs(array.astype(np.float64))
            ordinary = numbers[np.isfinite(numbers)]
            finite = finite and ordinary.size == numbers.size
            if ordinary.size:
                peak = max(peak, float(ordinary.max()))
    return Computed(tuple(arrays), peak, finite, lost)


_PARTIAL = frozenset({"Div", "Mod", "Pow", "Cast", "CastLike", "Gather", "GatherElements", "Reshape", "Split", "Tile"})
"""Operators without a value on some operands; NumPy computes them on all others."""


_MOVING = frozenset({"Gather", "GatherElements", "Reshape", "Split", "Tile"})
"""Those that move their first input's elements, whatever they are."""


def apply(op: str, attrs: Mapping[str, AttrValue], arrays: Sequence[Any], outputs: int) -> list[Any]:
    """The outputs of an operator. Raises `Undefined`."""
    with np.errstate(all="ignore"):
        if op == "QuantizeLinear":
            try:
                whole = fold.quantized(attrs, arrays)
            except ValueError as error:  # an attribute that names no element type
                raise Undefined(op, certain=False) from error
            if whole is not None:
                return [whole]
        kernel = WINDOWS.get(op)
        if kernel is not None:
            try:
                found = kernel(attrs, arrays)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                raise Undefined(op, certain=False) from error
            if found is not None and len(found) >= outputs and all(a is not None for a in found[:outputs]):
                return found[:outputs]
        if fold.by_numpy(op):
            computed = fold.evaluate(op, attrs, arrays, outputs, limit=_LIMIT)
            if computed is not None:
                return list(computed)
            moved = 1 if op in _MOVING else 0  # the type of what is only moved plays no part
            if op in _PARTIAL and all(_ordinary(a) for a in arrays[moved:] if a is not None):
                raise Undefined(op, certain=True)
        return _reference(op, attrs, arrays, outputs)


def _ordinary(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.name in {
        "float16", "float32", "float64", "int8", "int16", "int32", "int64",
        "uint8", "uint16", "uint32", "uint64", "bool",
    }  # fmt: skip


_EVALUATORS: OrderedDict[tuple[Any, ...], Any] = OrderedDict()


def _reference(op: str, attrs: Mapping[str, AttrValue], arrays: Sequence[Any], outputs: int) -> list[Any]:
    """An operator by `onnx.reference`. The evaluators of single nodes are kept: making one is most of the work."""
    if find_schema(op) is None or sum(a.size for a in arrays if isinstance(a, np.ndarray)) > _REFERENCE_LIMIT:
        raise Undefined(op, certain=False)
    key = (
        op, outputs, repr(sorted(attrs.items())),
        *(None if a is None else (a.dtype.str, a.dtype.name, a.ndim) if isinstance(a, np.ndarray) else "s"
          for a in arrays),
    )  # fmt: skip
    evaluator = _EVALUATORS.get(key)
    try:
        if evaluator is None:
            evaluator = _EVALUATORS[key] = _evaluator(op, attrs, arrays, outputs)
            if len(_EVALUATORS) > 2000:
                _EVALUATORS.popitem(last=False)
        found = evaluator.run(None, {f"i{i}": a for i, a in enumerate(arrays) if a is not None})
    except Exception as error:  # whatever the reference implementation trips over
        raise Undefined(op, certain=False) from error
    return [a if isinstance(a, list) else np.asarray(a) for a in found]


def _evaluator(op: str, attrs: Mapping[str, AttrValue], arrays: Sequence[Any], outputs: int) -> Any:
    import onnx
    from onnx.reference import ReferenceEvaluator

    domain, name, version = split_name(op)
    names = ["" if a is None else f"i{i}" for i, a in enumerate(arrays)]
    outs = [f"o{i}" for i in range(outputs)]
    node = onnx.helper.make_node(name, names, outs, domain=domain)
    known = signature(op)
    formals = known.attributes if known is not None else {}
    for key, value in attrs.items():
        # a default is left out: the implementation may not know an attribute that came with a newer opset
        if not key.startswith("$") and (key not in formals or formals[key].default != value):
            node.attribute.append(fold.attribute(key, value))
    inputs = []
    for n, a in zip(names, arrays, strict=True):
        if isinstance(a, list):
            inputs.append(onnx.ValueInfoProto(name=n))
        elif a is not None:
            kind = onnx.helper.np_dtype_to_tensor_dtype(a.dtype)
            inputs.append(onnx.helper.make_tensor_value_info(n, kind, [None] * a.ndim))
    graph = onnx.helper.make_graph([node], "one", inputs, [onnx.ValueInfoProto(name=n) for n in outs])
    schema = find_schema(op)
    assert schema is not None
    current = WORKING_OPSET if not domain else schema.since_version
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(domain, version or current)])
    return ReferenceEvaluator(model)
