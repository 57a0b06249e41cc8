"""Values of e-nodes, computed by NumPy and ONNX's reference implementation, independently of the compiler.

Bodies of control flow are run. Operators that rule files define are computed by their definition, or by the function
that the caller names (`reference_functions`). A class is
computed from its oldest node, which is the model's own, and every other node of it from the same inputs. So one pass
over an e-graph checks every equality in it against the original.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...grammar.syntax import ast
from ..egraph.analysis import ENode
from ..egraph.egraph import EGraph
from ..ir.graph import AttrValue, Constant, DType, TensorType, ValueType, content_text
from ..ir.names import ABSENT, CAPTURES, LEAVES, OWN_DOMAIN, SIZES
from ..ir.symbolic import evaluate, symbol_name, symbols
from ..ir.values import TensorRef, Unprovable, Value
from ..operators import control_flow, folding
from ..operators.folding import Array
from ..operators.folding.float64_kernels import FLOAT64_KERNELS
from ..operators.folding.fold_by_reference import reference_deviates
from ..operators.inference import IllTyped, fresh_dims
from ..operators.schemas import find_schema
from ..rewriting.build_nodes import bind_parameters, evaluate_definition
from ..rewriting.evaluate import Evaluator
from .reference_functions import call_reference, find_reference

_LIMIT = 1 << 22
_OWN = f"{OWN_DOMAIN}."
_BF16 = DType.BF16.numpy
_REFERENCE_LIMIT = 20_000
_REFUSALS = (ArithmeticError, LookupError, TypeError, ValueError)
"""Exceptions of operands and attributes that an operator does not accept."""


class Undefined(Exception):
    """The operator has no value on these operands, or none that can be computed here.

    `certain` says that the standard defines no value, rather than that no implementation is at hand."""

    def __init__(self, op: str, *, certain: bool) -> None:
        super().__init__(op)
        self.op = op
        self.certain = certain

    def again(self) -> Undefined:
        """Return the same error without the frames that it came through, which it would keep alive."""
        return Undefined(self.op, certain=self.certain)


@dataclass(frozen=True, slots=True)
class Computed:
    """Outputs of a class.

    `peak` is the largest finite magnitude among the intermediate floats, and `finite` says that none of them was NaN or
    infinite. Integers are exact, and many are bounds or sizes: they count once they become floats. `lost` is the
    largest magnitude that a sum canceled; errors below its rounding are allowed."""

    arrays: tuple[Any, ...]
    peak: float = 0.0
    finite: bool = True
    lost: float = 0.0

    @classmethod
    def after(cls, parts: Sequence[Computed], arrays: Sequence[Any], lost: float = 0.0) -> Computed:
        """Return outputs that were computed from others, with a further magnitude that was lost."""
        peak, finite = 0.0, True
        for part in parts:
            peak, lost, finite = max(peak, part.peak), max(lost, part.lost), finite and part.finite
        for array in arrays:
            if not isinstance(array, np.ndarray) or not array.size or (kind := array.dtype.kind) not in "fV":
                continue
            numbers = np.abs(array if kind == "f" else array.astype(np.float64))
            greatest = float(_greatest(numbers, axis=None))
            if not math.isfinite(greatest):
                ordinary = numbers[np.isfinite(numbers)]
                finite, greatest = False, float(ordinary.max(initial=0.0))
            peak = max(peak, greatest)
        return cls(tuple(arrays), peak, finite, lost)


_greatest = np.maximum.reduce
"""`np.max` without its checks, which take longer than the maximum of a small array."""


@dataclass(slots=True)
class Shared:
    """What does not depend on inputs, for all `Values` of one e-graph, which must not change in between.

    `definitions` are e-graphs of the definitions of declared operators, with their outputs, by node and types of
    operands. `constants` are values of nodes over constants only, and `varying` says which nodes are not. `large` says
    which nodes have more elements than are computed. `meanings` are definitions by their operator and operands, which
    other e-graphs may share too. `places` has an input and an axis whose extent is a symbol's, by the symbol."""

    definitions: dict[tuple[Any, ...], tuple[EGraph, list[int]]] = field(default_factory=dict)
    constants: dict[int, Computed | Undefined] = field(default_factory=dict)
    varying: dict[int, bool] = field(default_factory=dict)
    large: dict[int, bool] = field(default_factory=dict)
    meanings: dict[tuple[Any, ...], tuple[EGraph, list[int]]] = field(default_factory=dict)
    places: dict[str | None, tuple[str, int]] = field(default_factory=dict)


class Values:
    """Values of the classes of an e-graph for one choice of inputs: by name, constants too large for it by digest.

    `declared` are the operators that rule files define. `shared` is what other choices of inputs share. Without
    `magnitudes`, those that bound rounding errors are left out; comparing bits does not need them. Without `losses`,
    only those that sums canceled are; finding an overflow does not need these."""

    def __init__(
        self,
        egraph: EGraph,
        inputs: Mapping[str, Array],
        declared: Mapping[str, ast.Op],
        shared: Shared | None = None,
        *,
        magnitudes: bool = True,
        losses: bool = True,
    ) -> None:
        self.egraph = egraph
        self.inputs = inputs
        self.declared = declared
        self._magnitudes, self._losses = magnitudes, magnitudes and losses
        self._after = Computed.after if magnitudes else _without_magnitudes
        self._shared = Shared() if shared is None else shared
        self._memo: dict[int, Computed | Undefined] = {}

    def of_class(self, handle: int) -> Computed:
        """Return the value of a class. Raises `Undefined`."""
        return self.of_node(self.egraph.find(handle))

    def of_node(self, handle: int) -> Computed:
        """Return the value of one node from the values of its inputs' classes. Raises `Undefined`."""
        found = self._memo.get(handle)
        if found is None:
            varies = self._varies(handle)
            found = None if varies else self._shared.constants.get(handle)
            if found is None:
                try:
                    found = self._compute(handle)
                except Undefined as undefined:
                    found = undefined.again()
                if not varies:
                    self._shared.constants[handle] = found
            self._memo[handle] = found
        if isinstance(found, Undefined):
            raise found.again()
        return found

    def _varies(self, handle: int) -> bool:
        """Whether a node reads inputs; constants that are too large for the e-graph are among these."""
        varying = self._shared.varying
        if handle not in varying:
            node = self.egraph.nodes[handle]
            if node.op == "Const":
                varying[handle] = self.egraph.constants[str(node.attrs["digest"])].contents() is None
            else:
                below = (self._varies(self.egraph.find(child)) for child in node.children if child != ABSENT)
                varying[handle] = node.op in LEAVES or node.op == SIZES or any(below)
        return varying[handle]

    def _compute(self, handle: int) -> Computed:
        node = self.egraph.nodes[handle]
        if node.op == "Input" and (name := str(node.attrs["name"])) in self.inputs:
            return self._after((), [self.inputs[name]])
        if node.op == "Const":
            info = self.egraph.constants[str(node.attrs["digest"])]
            contents = info.contents()
            contents = self.inputs.get(info.digest) if contents is None else contents
            if contents is not None:
                return self._after((), [contents])
        if node.op == "Proj":
            whole, index = self.of_class(node.children[0]), node.attrs["index"]
            assert isinstance(index, int)
            if index < len(whole.arrays):
                return replace(whole, arrays=(whole.arrays[index],))
        if node.op == SIZES:
            return self._after((), [self._sizes(handle)])
        if node.op in LEAVES or node.op == "Proj" or node.serial or self._is_large(handle):
            raise Undefined(node.op, certain=False)
        types = self.egraph.types(handle)
        below = [None if child == ABSENT else self.of_class(child) for child in node.children]
        parts = [part for part in below if part is not None]
        arrays = [None if part is None else part.arrays[0] for part in below]
        function = find_reference(node.op)
        if function is not None and not any(isinstance(a, list) for a in arrays):
            outputs = call_reference(function, node.op, node.attrs, arrays, types)
            if outputs is None:
                raise Undefined(node.op, certain=False)
            return self._after(parts, outputs)
        own = self.declared.get(node.op.removeprefix(_OWN))
        if own is not None or node.op.startswith(_OWN):
            return self._defined(handle, own, arrays, parts)
        found = (
            _with_bodies(node, arrays) if CAPTURES in node.attrs else apply(node.op, node.attrs, arrays, node.outputs)
        )
        typed = [_as_typed(a, t) for a, t in zip(found, types, strict=False)]
        lost = 0.0
        if not self._wants_losses(handle):
            pass
        elif node.op in ("Add", "Sub", "Sum"):
            lost = _canceled(arrays, typed[0])
        elif node.op in _SUMS and any(part.peak > _LARGE for part in parts):
            lost = _canceled([_magnitude(node, arrays)], typed[0])
        elif node.op in ("Mul", "Div", "Sqrt") and any(part.lost for part in parts):
            lost = _amplified(node.op, [*arrays, *typed[:1]], [part.lost for part in parts])
        return self._after(parts, typed, lost)

    def _sizes(self, handle: int) -> Array:
        """Return the integers of a node that are known from the sizes of inputs."""
        contents, (type_,) = self.egraph.value(handle), self.egraph.types(handle)
        assert contents is not None
        assert contents.whole is not None
        known = {name: self._extent(name) for dim in contents.whole for name in symbols(dim)}
        sizes: Array = np.array([evaluate(dim, known) for dim in contents.whole], np.int64)
        return np.asarray(_as_typed(sizes if contents.shape else sizes[0], type_))

    def _extent(self, symbol: str) -> int:
        """Return the extent that a symbol stands for, by an input that has it."""
        places = self._shared.places
        if not places:
            for handle, node in enumerate(self.egraph.nodes):
                name, (type_, *_) = str(node.attrs.get("name")), self.egraph.types(handle)
                if node.op == "Input" and name in self.inputs and isinstance(type_, TensorType):
                    for axis, dim in enumerate(type_.shape or ()):
                        places.setdefault(symbol_name(dim), (name, axis))
        if symbol not in places:
            raise Undefined(SIZES, certain=False)
        name, axis = places[symbol]
        return int(self.inputs[name].shape[axis])

    def _wants_losses(self, handle: int) -> bool:
        """Whether to find what the sums of a node cancel; of constants always, because others share them."""
        return self._losses or (self._magnitudes and not self._varies(handle))

    def _is_large(self, handle: int) -> bool:
        """Whether a node has too many elements to be computed."""
        large = self._shared.large
        if handle not in large:
            large[handle] = any(_elements(t) > _LIMIT for t in self.egraph.types(handle))
        return large[handle]

    def _defined(self, handle: int, op: ast.Op | None, arrays: Sequence[Any], parts: Sequence[Computed]) -> Computed:
        """Return the outputs of a declared operator by its definition on operands of these types."""
        node = self.egraph.nodes[handle]
        if op is None or op.definition is None or any(isinstance(a, list) for a in arrays):
            raise Undefined(node.op, certain=False)
        key = (handle, *(None if a is None else (a.dtype, a.shape) for a in arrays))
        if key not in self._shared.definitions:
            described = [self._operand(child, array) for child, array in zip(node.children, arrays, strict=True)]
            meaning = (node.op, node.outputs, content_text(node.attrs), *described)
            if meaning not in self._shared.meanings:
                self._shared.meanings[meaning] = self._definition(node, op, described)
            self._shared.definitions[key] = self._shared.meanings[meaning]
        egraph, outputs = self._shared.definitions[key]
        operands = {f"i{i}": a for i, a in enumerate(arrays) if a is not None}
        losses = self._wants_losses(handle)
        inner = Values(egraph, operands, self.declared, magnitudes=self._magnitudes, losses=losses)
        found = [inner.of_class(output) for output in outputs]
        return self._after([*parts, *found], [c.arrays[0] for c in found])

    def _operand(self, child: int, array: Array | None) -> Constant | TensorType | None:
        """Return what the definition of an operator may depend on: the contents of a constant, else a type."""
        if array is None or self.egraph.is_const(child):
            return None if array is None else Constant(array)
        return TensorType(DType.from_numpy(array.dtype), array.shape)

    def _definition(
        self, node: ENode, op: ast.Op, operands: Sequence[Constant | TensorType | None]
    ) -> tuple[EGraph, list[int]]:
        egraph = EGraph.scratch(fresh_dims("_d"))
        evaluator = Evaluator(egraph, self.declared)
        inputs: list[Value] = []
        for i, operand in enumerate(operands):
            if operand is None:
                inputs.append(None)
            elif isinstance(operand, Constant):
                inputs.append(TensorRef(egraph.add_constant(operand)))
            else:
                inputs.append(TensorRef(egraph.add_input(f"i{i}", operand)))
        try:
            meanings = evaluate_definition(evaluator, op, bind_parameters(evaluator, op, inputs, node.attrs))
        except (Unprovable, IllTyped) as error:
            raise Undefined(node.op, certain=False) from error
        outputs = [m.handle for m in meanings[: node.outputs] if isinstance(m, TensorRef)]
        if len(outputs) < node.outputs:
            raise Undefined(node.op, certain=False)
        return egraph, outputs


def _without_magnitudes(parts: Sequence[Computed], arrays: Sequence[Any], lost: float = 0.0) -> Computed:
    """Return outputs alone, in place of `Computed.after`."""
    return Computed(tuple(arrays))


def _elements(type_: ValueType) -> float:
    """Return the product of the known dims of a tensor."""
    dims = type_.shape if isinstance(type_, TensorType) else None
    return math.prod(float(d) for d in dims or () if isinstance(d, int))


def _with_bodies(node: ENode, arrays: Sequence[Any]) -> list[Any]:
    given, captured = node.split(arrays)
    around = {name: array for name, array in captured.items() if array is not None}
    try:
        return control_flow.run(node.op, node.attrs, given, around, apply)
    except (Unprovable, *_REFUSALS) as error:  # the bodies do not accept these operands
        raise Undefined(node.op, certain=False) from error


def _as_typed(array: Any, type_: ValueType) -> Any:
    """Return an integer array in its inferred element type, because the reference implementation sums in wider ones."""
    dtype = getattr(type_, "dtype", None)
    if isinstance(array, np.ndarray) and dtype is not None and dtype.is_integer and array.dtype.kind in "iu":
        return array.astype(dtype.numpy)
    return array


_SUMS = frozenset({"MatMul", "Gemm", "Conv", "ReduceSum", "ReduceMean", "Einsum"})
_LARGE = 1e6


def _magnitude(node: ENode, arrays: Sequence[Any]) -> Array:
    """Return the sums of the magnitudes of an operator's terms.

    The rounding error is a fraction of these, however small the sum is (Higham, "Accuracy and Stability of Numerical
    Algorithms", section 4.2). They are infinite where finite operands may overflow in one order and not in another;
    operands that are infinite already count as 0."""
    sizes = [_finite_size(a) if _is_float(a) else a for a in arrays]
    return np.asarray(apply(node.op, node.attrs, sizes, node.outputs)[0])


def _finite_size(array: Array) -> Array:
    sizes = np.abs(array.astype(np.float64))
    return np.where(np.isfinite(sizes), sizes, 0.0)


def _is_float(array: Any) -> bool:
    return isinstance(array, np.ndarray) and (array.dtype.kind == "f" or array.dtype == _BF16)


_CANCELED = 1e-3
"""A sum that is smaller than a term by this factor has lost digits of that term."""


def _canceled(terms: Sequence[Any], total: Any) -> float:
    """Return the largest magnitude of a sum's terms where they cancel; infinite if it is unknown."""
    if not _is_float(total):
        return 0.0
    found = 0.0
    with np.errstate(all="ignore"):
        result = np.abs(total.astype(np.float64))
        for term in terms:
            size = np.abs(np.asarray(term).astype(np.float64))
            canceled = result < _CANCELED * size  # a sum with an infinite term is not smaller than it
            if canceled.any():
                found = max(found, float(np.broadcast_to(size, result.shape)[canceled].max()))
    return found


def _amplified(op: str, arrays: Sequence[Any], lost: Sequence[float]) -> float:
    """Return what became of magnitudes that the operands of a product, quotient or root lost.

    `arrays` are the operands and the result. The deviations of nearly equal numbers have few digits left; a
    normalization divides them by their small spread."""
    if not all(map(_is_float, arrays)):
        return 0.0
    with np.errstate(all="ignore"):
        one, two = (np.abs(array.astype(np.float64)) for array in arrays[:2])
        derivatives = {"Mul": (two, one), "Div": (1 / two, one / two**2), "Sqrt": (0.5 / two,)}[op]
        factors = [float(f[np.isfinite(f)].max(initial=0.0)) for f in derivatives]
    return max(f * magnitude if magnitude else 0.0 for f, magnitude in zip(factors, lost, strict=True))


_PARTIAL = frozenset({"Div", "Mod", "Pow", "Cast", "CastLike", "Gather", "GatherElements", "Reshape", "Split", "Tile"})
"""Operators that have no value on some operands; NumPy computes them on all others."""
_LOSSES = frozenset({"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"})
_ELEMENTWISE = frozenset({"Div", "Mod", "Pow"})
_MOVING = frozenset({"Gather", "GatherElements", "Reshape", "Split", "Tile"})
"""Operators that move the elements of their first input without looking at them."""
_ORDINARY = frozenset(map(np.dtype, (
    "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
)))  # fmt: skip
"""Element types that NumPy itself has."""
_ORDINARY_CODES = frozenset(DType.from_numpy(dtype).onnx for dtype in _ORDINARY)


def _is_endless(start: Array, limit: Array, delta: Array) -> bool:
    """Return whether a Range has more integers than can be counted: the reference would wrap around and have none."""
    if start.dtype.kind not in "iu" or not delta.any():
        return False
    return (int(limit.item()) - int(start.item())) // int(delta.item()) >= 1 << 62


def apply(op: str, attrs: Mapping[str, AttrValue], arrays: Sequence[Any], outputs: int) -> list[Any]:
    """Return the outputs of an operator. Raises `Undefined`.

    An optional is its value, as in ONNX Runtime; the reference makes a list of it."""
    if op == "Optional" and arrays and arrays[0] is not None:
        return [arrays[0]]
    if op in _LOSSES and _lacks_classes(attrs, arrays):
        raise Undefined(op, certain=True)
    if op in _LOSSES and reference_deviates(op, attrs, [a is not None for a in arrays], outputs):
        raise Undefined(op, certain=False)
    if op == "PRelu" and _enlarges(*arrays):
        raise Undefined(op, certain=True)
    if op == "Range" and _is_endless(*arrays):
        raise Undefined(op, certain=False)
    with np.errstate(all="ignore"):
        try:
            if op == "QuantizeLinear" and (whole := folding.quantized(attrs, arrays)) is not None:
                return [whole]
            if op == "Einsum" and len(arrays) > 2 and all(a.dtype.kind == "f" and a.size for a in arrays):
                return [_sum_of_products(attrs, arrays)]
            kernel = FLOAT64_KERNELS.get(op)
            found = None if kernel is None else kernel(attrs, arrays)
        except _REFUSALS as error:
            raise Undefined(op, certain=False) from error
        if found is not None and len(found) >= outputs and all(a is not None for a in found[:outputs]):
            return found[:outputs]
        if folding.by_numpy(op):
            computed = folding.evaluate(op, attrs, arrays, outputs, limit=_LIMIT)
            if computed is not None:
                return list(computed)
            moved = 1 if op in _MOVING else 0  # the type of the elements that are moved does not matter
            empty = op in _ELEMENTWISE and any(a.size == 0 for a in arrays)  # nothing is divided
            dtypes = [getattr(a, "dtype", None) for a in arrays[moved:] if a is not None]
            if op == "Cast" and attrs.get("to") not in _ORDINARY_CODES:
                dtypes.append(None)
            if op in _PARTIAL and not empty and all(dtype in _ORDINARY for dtype in dtypes):
                raise Undefined(op, certain=True)
        return _reference(op, attrs, arrays, outputs)


def _lacks_classes(attrs: Mapping[str, AttrValue], arrays: Sequence[Any]) -> bool:
    """Whether a loss is asked for a class that the scores do not have, and that is not to be ignored."""
    scores, classes = np.asarray(arrays[0]), np.asarray(arrays[1])
    known = (classes >= 0) & (classes < scores.shape[1]) if scores.ndim > 1 else np.zeros(classes.shape, bool)
    return not bool((known | (classes == attrs.get("ignore_index"))).all())


def _sum_of_products(attrs: Mapping[str, AttrValue], arrays: Sequence[Array]) -> Array:
    """Return an Einsum of several operands in one sum. Implementations multiply pairs, each in another order, so that a
    rule may not promise the bits of one of them. Over nothing they agree that 0 times NaN is NaN."""
    return np.asarray(np.einsum(str(attrs["equation"]).replace(" ", ""), *arrays, optimize=False))


def _enlarges(x: Array, slope: Array) -> bool:
    """Whether a slope is larger than what it is for, which NumPy accepts: of a free size that is seen here only."""
    sizes = zip(reversed(slope.shape), reversed(x.shape), strict=False)
    return slope.ndim > x.ndim or any(size not in (1, whole) for size, whole in sizes)


_EVALUATORS: OrderedDict[tuple[Any, ...], Any] = OrderedDict()


def _reference(op: str, attrs: Mapping[str, AttrValue], arrays: Sequence[Any], outputs: int) -> list[Any]:
    """Compute an operator by `onnx.reference`. Evaluators of single nodes are cached: building one is most of the
    work."""
    if find_schema(op) is None or sum(a.size for a in arrays if isinstance(a, np.ndarray)) > _REFERENCE_LIMIT:
        raise Undefined(op, certain=False)
    arrays = folding.by_rows(op, arrays)
    types = [(a.dtype, a.ndim) if isinstance(a, np.ndarray) else a is None for a in arrays]
    key = (op, outputs, content_text(sorted(attrs.items())), *types)
    try:
        if key not in _EVALUATORS:
            _EVALUATORS[key] = folding.reference_evaluator(op, attrs, arrays, outputs)
            if len(_EVALUATORS) > 2000:
                _EVALUATORS.popitem(last=False)
        found = _EVALUATORS[key].run(None, {f"i{i}": a for i, a in enumerate(arrays) if a is not None})
    except Exception as error:  # the reference implementation raises many kinds
        raise Undefined(op, certain=False) from error
    return [a if isinstance(a, list) else np.asarray(a) for a in found]
