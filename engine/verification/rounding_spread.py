"""Spread of a model's results under rounding, by Monte Carlo arithmetic: what a right implementation may return.

Every computed float of the original is multiplied by 1 plus a random error of a few units in the last place, and the
model is run several times (Parker, "Monte Carlo Arithmetic", UCLA 1997; Vignes, "A stochastic arithmetic for reliable
scientific computation", 1993). Numbers that differ from run to run are those that rounding alone decides: the index of
the larger of two equal scores, a sum that recurrent layers amplify. Only where another implementation disagrees is this
looked at, so it costs nothing where all agree.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...errors import RewriteError
from ..cost.operator_cost import only_moves
from ..ir.graph import AttrValue, Constant, DType, Graph, Node, TensorType, ValueType
from ..ir.names import unique_name
from ..operators.reference_runtime import Runner, Unavailable, onnx_runtime

RUNS = 16
"""Runs of the original: a choice that falls either way is seen to do so in all but 1 of 2¹⁵ cases."""
LEAST = 6
"""Runs that are needed to say anything."""

_ERROR = {DType.F64: 2.0**-51, DType.F32: 2.0**-22, DType.F16: 2.0**-9, DType.BF16: 2.0**-6}
"""Largest relative error that is drawn, by element type: four times that of one rounding."""
_LARGEST = {DType.F64: float(np.finfo(np.float64).max), DType.F32: float(np.finfo(np.float32).max)}
_SUMS = frozenset({
    "MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose", "DeformConv", "Attention", "ReduceSum", "ReduceMean",
    "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "GlobalAveragePool", "AveragePool", "CumSum", "Sum", "Mean",
    "LayerNormalization", "InstanceNormalization", "GroupNormalization", "MeanVarianceNormalization",
    "RMSNormalization", "LpNormalization", "LSTM", "GRU", "RNN", "Resize", "DFT", "STFT", "Det", "GridSample",
})  # fmt: skip
"""Operators whose error is a fraction of their largest terms, not of each result: terms may cancel."""
_QUANTIZED = frozenset({"QLinearConv", "QLinearMatMul", "com.microsoft.QGemm"})
_STEPS = {DType.U8: (0.0, 255.0), DType.I8: (-128.0, 127.0)}
_INSIDE = frozenset({
    "DynamicQuantizeLinear", "com.microsoft.DynamicQuantizeLSTM", "com.microsoft.DynamicQuantizeMatMul",
})  # fmt: skip
"""Operators that round to bytes what rounding before, or in the steps of a recurrence, has changed a little."""
_ROUNDINGS = 4.0
"""Errors that those of an operand of such an operator stand for."""
_STEP = 0.505
"""Bound of a random number that is rounded to a step of the grid: 1 % of the bytes move by one."""
_EXACT = frozenset({
    "Abs", "Neg", "Relu", "Sign", "Floor", "Ceil", "Round", "Max", "Min", "Clip", "Where", "MaxPool", "GlobalMaxPool",
    "ReduceMax", "ReduceMin", "TopK", "OneHot", "Hardmax", "Trilu", "EyeLike", "ConstantOfShape", "Range",
    "MaxUnpool", "Compress", "NonZero", "Dropout",
})  # fmt: skip
"""Operators that choose among their operands, or round nothing."""


@dataclass(slots=True)
class Spread:
    """Results of the original with random rounding errors, for one set of inputs: `samples` by output."""

    samples: dict[str, list[np.ndarray[Any, Any]]] = field(default_factory=dict)

    def reconciled(self, output: str, reference: Any, found: Any, allowed: float) -> tuple[Any, int]:
        """Return a result with the reference's values where rounding explains the difference, and their number.

        That is where a float is no farther from the samples' range than this range is wide, and where an integer, which
        may be an index, is within it. Where some samples are infinite and others are not, the range has no end on that
        side. `allowed` is the scaled error that is allowed anyway. Arrays of other shapes or types are returned as they
        are."""
        arrays = [reference, found, *self.samples.get(output, [])]
        if len(arrays) == 2 or not all(isinstance(a, np.ndarray) for a in arrays):
            return found, 0
        if len({(a.dtype, a.shape) for a in arrays}) > 1 or reference.dtype.kind not in "biufV":
            return found, 0
        x, y, *rest = (a.astype(np.float64) for a in arrays)
        stack = np.stack([x, *rest])
        finite = np.isfinite(stack)
        low, high = np.where(finite, stack, np.inf).min(0), np.where(finite, stack, -np.inf).max(0)
        tolerance = allowed * float(np.abs(x[finite[0]]).max(initial=0.0))
        with np.errstate(invalid="ignore"):
            margin = (high - low) + tolerance if reference.dtype.kind in "fV" else 0.0
            up, down = ((stack == bound).any(0) & finite.any(0) for bound in (np.inf, -np.inf))
            near = np.isfinite(y) & ((low - margin <= y) | down) & ((y <= high + margin) | up)
            odd = (np.isnan(y) & np.isnan(stack).any(0)) | (np.isinf(y) & (stack == y).any(0))
            agrees = (np.abs(x - y) <= tolerance) | (x == y) | (np.isnan(x) & np.isnan(y))
        explained = (near | odd) & ~agrees
        return np.where(explained, reference, found), int(explained.sum())


class Sampler:
    """A graph with random errors, in ONNX Runtime. Where that is missing or refuses the graph, no samples are drawn."""

    def __init__(self, graph: Graph) -> None:
        from ..onnx_io.exporter import write  # imports onnx, which is not needed while all agree

        self._oracle: Runner | None = None
        with contextlib.suppress(Unavailable, RewriteError):
            self._oracle = onnx_runtime(write(with_errors(graph)))

    def sample(self, feeds: Mapping[str, Any], seconds: float) -> Spread:
        """Run the graph `RUNS` times, or fewer in a limit of time. ONNX Runtime's generators go on from run to run."""
        spread = Spread()
        if self._oracle is None:
            return spread
        end = time.perf_counter() + seconds
        for run in range(RUNS):
            if run >= LEAST and time.perf_counter() > end:
                break
            try:
                outputs = self._oracle.run(feeds)
            except Unavailable:
                return Spread()
            for name, value in outputs.items():
                spread.samples.setdefault(name, []).append(value)
        return spread


def with_errors(graph: Graph) -> Graph:
    """Return a graph whose computed floats have random errors; bodies of control flow stay as they are.

    What is computed from sizes alone stays, too: a size that is off by one would make the model fail."""
    inserter = _Inserter(replace(graph, nodes=[], constants=dict(graph.constants), types=dict(graph.types)))
    data = set(graph.inputs)
    for node in graph.nodes:
        if node.op in ("Shape", "Size") or data.isdisjoint(node.reads()):
            inserter.graph.nodes.append(node)
            continue
        data.update(filter(None, node.outputs))
        if node.op in _INSIDE:
            node = replace(node, inputs=tuple(map(inserter.with_errors, node.inputs)))
        rounding = _ERROR if _rounds(node, graph) else _STEPS if _quantizes(node.op) else ()
        inserter.append(node, [v for v in node.outputs if graph.type(v).dtype in rounding])
    return inserter.graph


def _quantizes(op: str) -> bool:
    """Whether an operator computes bytes from bytes and rounds once. The standard leaves open how it gets there."""
    return op in _QUANTIZED or op.startswith("com.microsoft.QLinear")


def _rounds(node: Node, graph: Graph) -> bool:
    """Whether a node computes floats, or converts them to a type of fewer digits."""
    if node.op in _EXACT or _quantizes(node.op):
        return False
    if not only_moves(node.op):
        return True
    source, to = graph.type(node.inputs[0]).dtype, graph.type(node.outputs[0]).dtype
    return source in _ERROR and to in _ERROR and _ERROR[source] < _ERROR[to]


class _Inserter:
    """A graph that grows by nodes, with errors behind them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._used = {*graph.types, *graph.constants, *graph.inputs}

    def append(self, node: Node, rounded: Sequence[str]) -> None:
        """Append a node, and add errors to the outputs named in `rounded`."""
        raw = {value: self._value(self.graph.type(value)) for value in rounded}
        self.graph.nodes.append(replace(node, outputs=tuple(raw.get(v, v) for v in node.outputs)))
        for value, before in raw.items():
            if self.graph.type(value).dtype in _STEPS:
                self._add_step(before, value)
            else:
                self._add_error(before, value, sums=node.op in _SUMS)

    def with_errors(self, value: str) -> str:
        """Return an operand with `_ROUNDINGS` times the errors of its type, if it has floats."""
        constant = self.graph.constants.get(value)
        kind = self.graph.types.get(value) if constant is None else constant.type
        if not value or not isinstance(kind, TensorType) or kind.dtype not in _ERROR:
            return value
        self.graph.types.setdefault(value, kind)
        found = self._value(kind)
        self._add_error(value, found, sums=False, times=_ROUNDINGS)
        return found

    def _add_step(self, raw: str, out: str) -> None:
        """Append `out`, which is `raw` with some of its bytes one step higher or lower."""
        dtype, shape = self.graph.type(raw).dtype, self.graph.type(raw).shape
        assert dtype is not None
        like = TensorType(DType.F32, shape)
        numbers = self._node("Cast", [raw], like, to=DType.F32.onnx)
        step = self._node("Round", [self._random(numbers, _STEP, like)], like)
        low, high = (self._constant(bound, DType.F32) for bound in _STEPS[dtype])
        moved = self._node("Clip", [self._node("Add", [numbers, step], like), low, high], like)
        self.graph.nodes.append(Node("Cast", (moved,), (out,), {"to": dtype.onnx}))

    def _add_error(self, raw: str, out: str, *, sums: bool, times: float = 1.0) -> None:
        """Append `out = raw + random · size`; the size is that of each number, or of the largest one of sums."""
        dtype, shape = self.graph.type(raw).dtype, self.graph.type(raw).shape
        assert dtype is not None
        wide = DType.F64 if dtype is DType.F64 else DType.F32
        like = TensorType(wide, shape)
        numbers = raw if dtype is wide else self._node("Cast", [raw], like, to=wide.onnx)
        size = self._node("Abs", [numbers], like)
        largest = self._constant(_LARGEST[wide], wide)
        finite = self._node("LessOrEqual", [size, largest], TensorType(DType.BOOL, shape))
        size = self._node("Where", [finite, size, self._constant(0.0, wide)], like)
        if sums:
            size = self._node("ReduceMax", [size], TensorType(wide, ()), keepdims=0)
        error = self._node("Mul", [self._random(numbers, times * _ERROR[dtype], like), size], like)
        if dtype is wide:
            self.graph.nodes.append(Node("Add", (numbers, error), (out,)))
        else:
            total = self._node("Add", [numbers, error], like)
            self.graph.nodes.append(Node("Cast", (total,), (out,), {"to": dtype.onnx}))

    def _random(self, value: str, bound: float, like: TensorType) -> str:
        seed = float(len(self.graph.nodes))
        return self._node("RandomUniformLike", [value], like, low=-bound, high=bound, seed=seed)

    def _value(self, type_: ValueType) -> str:
        name = unique_name(f"rounded_{len(self.graph.nodes)}", self._used)  # a number of its own makes that fast
        self.graph.types[name] = type_
        return name

    def _node(self, op: str, inputs: Sequence[str], type_: TensorType, **attrs: AttrValue) -> str:
        value = self._value(type_)
        self.graph.nodes.append(Node(op, tuple(inputs), (value,), attrs))
        return value

    def _constant(self, number: float, dtype: DType) -> str:
        value = self._value(TensorType(dtype, ()))
        self.graph.constants[value] = Constant(np.array(number, dtype.numpy))
        return value
