"""Values of terms for the search: drawn inputs, operators computed by NumPy or `onnx.reference`.

Independent on purpose of `engine/verification/reference_values`, which it judges.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rewrite.engine.egraph.egraph import EGraph
from rewrite.engine.ir import symbolic
from rewrite.engine.ir.graph import Attrs, DType, TensorType, ValueType
from rewrite.engine.ir.names import ABSENT, OWN_DOMAIN
from rewrite.engine.operators.folding import evaluate, quantized, run_reference

Array = NDArray[Any]
_SIZES = ({"N": 3, "M": 2}, {"N": 2, "M": 3}, {"N": 1, "M": 1}, {"N": 2, "M": 1}, {"N": 4, "M": 2})
"""Sizes of symbolic dims in each draw; other names take the sizes of N and M in turn."""
DRAWS = {"exact": (0, 1, 2, 3, 4), "reassoc": (0, 1, 2, 3, 5), "fast": (0, 3)}
"""Draws on which a numerics class is tried: 0 normal numbers, 1 small whole numbers, 2 NaN and infinities among normal
numbers, 3 positive numbers, 4 the ends of the range, 5 large numbers, of which only overflow counts."""
_LARGE = 1e8
"""Magnitude of large numbers; a product of four of them is still finite in single precision."""
_SUMS = frozenset(
    [
        "MatMul",
        "Gemm",
        "Einsum",
        "Conv",
        "ConvTranspose",
        "BatchNormalization",
        "LayerNormalization",
        "InstanceNormalization",
        "Softmax",
        "GroupNormalization",
        "RMSNormalization",
        "LogSoftmax",
        "AveragePool",
        "GlobalAveragePool",
        "LpNormalization",
        "Attention",
        "ReduceSum",
        "ReduceMean",
        "ReduceSumSquare",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceProd",
    ]
)
"""Operators that sum; they are computed in double precision and rounded once, which hides the order of summation."""


_EXPONENTIALS = frozenset(("Exp", "Sinh", "Cosh"))
"""Operators that overflow at moderate magnitudes."""


def draw(type_: TensorType, name: str, number: int) -> Array | None:
    """Return the values of an input in a draw; None for types that are not drawn."""
    if type_.dtype is None or type_.shape is None or type_.dtype is DType.STRING:
        return None
    shape = tuple(_extent(d, number) for d in type_.shape)
    if any(d < 0 for d in shape) or type_.dtype.numpy.kind not in "fiub":
        return None
    rng = np.random.default_rng(zlib.crc32(f"{name}:{type_.dtype}:{number}".encode()))
    dtype = type_.dtype.numpy
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.kind in "iu":
        info = np.iinfo(str(dtype))
        low, high = ((-4, 5), (0, 2), (-100, 100), (1, 5), (0, 1), (-4, 5))[number]
        array = rng.integers(max(low, info.min), high, shape).astype(dtype)
        return _sprinkled(array, (info.min, info.max, info.max - 1, 0), rng) if number == 4 else array
    array = rng.standard_normal(shape)
    if number == 1:
        array = rng.choice(np.array([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]), shape)
    if number == 3:
        array = np.abs(array) + 0.25
    if number == 5 and dtype.itemsize > 2:
        array = array * _LARGE
    array = array.astype(dtype)
    if number == 2:
        return _sprinkled(array, (np.nan, np.inf, -np.inf, -0.0, 0.0), rng)
    if number == 4:
        limits = np.finfo(str(dtype))
        ends = (-0.0, 0.0, float(limits.max), float(limits.min), float(limits.tiny) / 4, np.inf, -np.inf, np.nan, 0.5)
        return _sprinkled(array, ends, rng)
    return array


def _extent(dim: symbolic.Dim, number: int) -> int:
    names = sorted(symbolic.symbols(dim))
    sizes = {n: _SIZES[number % len(_SIZES)].get(n, (3, 2, 4, 5)[(i + number) % 4]) for i, n in enumerate(names)}
    return symbolic.evaluate(dim, sizes)


def _sprinkled(array: Array, numbers: Sequence[float], rng: np.random.Generator) -> Array:
    chosen = rng.choice(np.array(numbers), array.shape).astype(array.dtype)
    return np.asarray(np.where(rng.random(array.shape) < 0.5, chosen, array))


def _leaky_relu(attrs: Attrs, operands: list[Any]) -> list[Any]:
    x = operands[0]
    return [np.where(x >= 0, x, x * np.asarray(attrs["alpha"], x.dtype))]


def _prelu(attrs: Attrs, operands: list[Any]) -> list[Any]:
    x, slope = operands
    return [np.where(x >= 0, x, x * slope)]


def _group_norm(attrs: Attrs, operands: list[Any]) -> list[Any] | None:
    x, scale, bias = (o.astype(np.float64) for o in operands)
    groups = int(attrs.get("num_groups", 0))  # type: ignore[arg-type]
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups or not x.size:
        return None
    if scale.shape != x.shape[1:2] or bias.shape != x.shape[1:2]:
        return None
    rows = x.reshape(x.shape[0], groups, -1)
    far = rows - rows.mean(axis=2, keepdims=True)
    unit = far / np.sqrt((far * far).mean(axis=2, keepdims=True) + float(attrs.get("epsilon", 1e-5)))  # type: ignore[arg-type]
    channels = (1, -1, *(1,) * (x.ndim - 2))
    found = unit.reshape(x.shape) * scale.reshape(channels) + bias.reshape(channels)
    return [found.astype(operands[0].dtype)]


_LOSSES = frozenset(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"))


def _counted(attrs: Attrs, classes: Array) -> Array:
    """Return which targets of a loss are not ignored."""
    ignored = attrs.get("ignore_index")
    return np.ones(classes.shape, bool) if ignored is None else np.asarray(classes != ignored)


def _has_other_classes(attrs: Attrs, operands: list[Any]) -> bool:
    """Whether a loss has a target that is neither one of its classes nor ignored: the standard admits none."""
    scores, classes = operands[0], operands[1].astype(np.int64)
    known = (classes >= 0) & (classes < scores.shape[1]) if scores.ndim > 1 else np.zeros(classes.shape, bool)
    return bool((_counted(attrs, classes) & ~known).any())


def _negative_log_likelihood(attrs: Attrs, operands: list[Any]) -> list[Any] | None:
    scores, classes, weights = (*operands, None)[:3]
    if scores.ndim < 2 or classes.shape != (scores.shape[0], *scores.shape[2:]):
        return None
    counted = _counted(attrs, classes)
    of_each = np.ones(scores.shape[1]) if weights is None else weights.astype(np.float64)
    chosen = np.where(counted, classes, 0).astype(np.int64)
    shares = np.where(counted, of_each[chosen], 0.0)
    picked = np.take_along_axis(scores.astype(np.float64), chosen[:, None], axis=1)[:, 0]
    losses = np.where(counted, -picked, 0.0) * shares
    reduction = attrs.get("reduction", "mean")
    total = losses if reduction == "none" else losses.sum()
    return [np.asarray(total / shares.sum() if reduction == "mean" else total).astype(scores.dtype)]


_OWN: dict[str, Callable[[Attrs, list[Any]], list[Any] | None]] = {
    "LeakyRelu": _leaky_relu, "PRelu": _prelu, "GroupNormalization": _group_norm,
    "NegativeLogLikelihoodLoss": _negative_log_likelihood,
}  # fmt: skip
"""Operators for which `onnx.reference` turns 0 into NaN if the slope is infinite, computes in lower precision, or takes
the mean of all losses, those ignored too if `ignore_index` is -1."""


_MARKS_WITH_NAN = frozenset(("AveragePool", "LpPool", "MaxPool", "Resize"))
"""Operators for which `onnx.reference` marks padding by NaN or infinities, so that operands must be finite."""


def _fits(type_: ValueType, value: Any, number: int) -> bool:
    """Whether a value has the inferred shape, at the sizes that a draw gives to symbols."""
    if not isinstance(type_, TensorType) or not isinstance(value, np.ndarray) or type_.shape is None:
        return True
    if len(type_.shape) != value.ndim:
        return False
    # symbols that inference invents start with an underscore; a draw does not choose their sizes
    chosen = [not any(n.startswith("_") for n in symbolic.symbols(d)) for d in type_.shape]
    sizes = zip(type_.shape, value.shape, chosen, strict=True)
    return all(_extent(d, number) == n for d, n, known in sizes if known)


class Uncomputed(Exception):
    """A term has no value on these inputs, or none that could be computed."""


@dataclass(slots=True)
class Values:
    """Values of an e-graph's terms in one draw.

    Every class is computed by its oldest e-node. With `reference`, `onnx.reference` computes all operators."""

    egraph: EGraph
    number: int
    reference: bool = False
    _memo: dict[int, list[Any] | None] = field(default_factory=dict)

    def of(self, handle: int) -> Array:
        """Return the value of one e-node. Raises `Uncomputed`."""
        found = self._node(handle)
        if found is None or not isinstance(found[0], np.ndarray):
            raise Uncomputed
        return found[0]

    def of_class(self, handle: int) -> Array:
        """Return the value of a class by its oldest e-node. Raises `Uncomputed`."""
        return self.of(self.egraph.find(handle))

    def is_computed(self, handle: int) -> bool:
        """Whether an e-node has a value."""
        return self._node(handle) is not None

    def sums(self, handle: int) -> bool:
        """Whether an operator below an e-node sums, so that the last bits depend on the implementation."""
        seen: set[int] = set()
        open_ = [handle]
        while open_:
            at = open_.pop()
            if at not in seen:
                seen.add(at)
                node = self.egraph.nodes[at]
                if node.op in _SUMS:
                    return True
                open_ += [self.egraph.find(c) for c in node.children]
        return False

    def overflows(self, handle: int) -> bool:
        """Whether an exponential at or below a class is infinite where its operand is finite."""
        seen: set[int] = set()
        open_ = [self.egraph.find(handle)]
        while open_:
            at = open_.pop()
            if at in seen:
                continue
            seen.add(at)
            node = self.egraph.nodes[at]
            below = [self.egraph.find(c) for c in node.children if c != ABSENT]
            if node.op in _EXPONENTIALS:
                operand, found = self._node(below[0]), self._node(at)
                if operand is not None and found is not None:
                    x, y = operand[0].astype(np.float64), found[0].astype(np.float64)
                    if bool((np.isfinite(x) & np.isinf(y)).any()):
                        return True
            open_ += below
        return False

    def _node(self, handle: int) -> list[Any] | None:
        if handle not in self._memo:
            self._memo[handle] = None
            self._memo[handle] = self._compute(handle)
        return self._memo[handle]

    def _compute(self, handle: int) -> list[Any] | None:
        egraph = self.egraph
        node = egraph.nodes[handle]
        if node.op == "Input":
            name = str(node.attrs["name"])
            array = draw(egraph.type(handle), name.partition(".")[2], self.number)
            return None if array is None else [array]
        if node.op == "Const":
            contents = egraph.constants[str(node.attrs["digest"])].contents()
            return None if contents is None else [contents]
        if node.op.startswith(f"{OWN_DOMAIN}."):  # equal to its definition, which is as old or older
            at = egraph.find(handle)
            return None if at == handle else self._node(at)
        operands: list[Any] = []
        for child in node.children:
            if child == ABSENT:
                operands.append(None)
                continue
            values = self._node(egraph.find(child))
            if values is None:
                return None
            operands.append(values if node.op == "Proj" else values[0])
        if node.op == "Proj":
            index = node.attrs["index"]
            assert isinstance(index, int)
            return [operands[0][index]] if index < len(operands[0]) else None
        found = self._apply(node.op, node.attrs, operands, node.outputs)
        if found is None or not all(
            _fits(t, v, self.number) for t, v in zip(egraph.types(handle), found, strict=False)
        ):
            return None  # the reference implementation deviates from the standard here
        return found

    def _apply(self, op: str, attrs: Attrs, operands: list[Any], outputs: int) -> list[Any] | None:
        if op in _LOSSES and _has_other_classes(attrs, operands):
            return None
        if self.reference or any(isinstance(o, list) for o in operands):
            return _by_reference(op, attrs, operands, outputs)
        if op in _MARKS_WITH_NAN and any(
            o is not None and o.dtype.kind == "f" and not np.isfinite(o).all() for o in operands
        ):
            return None
        if op == "QuantizeLinear":
            try:
                whole = quantized(attrs, operands)
            except ValueError:  # an attribute does not name an element type
                return None
            if whole is not None:
                return [whole]
        if op in _OWN:
            try:
                with np.errstate(all="ignore"):
                    return _OWN[op](attrs, operands)
            except ValueError:  # shapes that were unknown before do not fit
                return None
        precision = next((o.dtype for o in operands if o is not None and o.dtype.kind == "f"), None)
        if op not in _SUMS or precision is None or precision == np.float64:
            return evaluate(op, attrs, operands, outputs)
        wide = [o.astype(np.float64) if o is not None and o.dtype.kind == "f" else o for o in operands]
        found = evaluate(op, attrs, wide, outputs)
        with np.errstate(all="ignore"):
            if found is None or any(a is None for a in found):
                return None
            return [a.astype(precision) if a.dtype == np.float64 else a for a in found]


def _by_reference(op: str, attrs: Attrs, operands: list[Any], outputs: int) -> list[Any] | None:
    try:
        with np.errstate(all="ignore"):
            return run_reference(op, attrs, operands, outputs)
    except Exception:  # the reference implementation raises many kinds
        return None
