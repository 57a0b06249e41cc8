"""Work of an operator: arithmetic, memory traffic, and how kernels can group it.

Figures are estimates that rank alternatives. An addition or a multiplication counts as one flop, a transcendental
function as the dozen or so that its polynomial takes. Symbolic dims are taken at nominal values.

Length: one table of operators, and one function for each family in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TypeVar

from ..ir.graph import AttrValue, DType, OtherType, TensorType, ValueType, graphs_in
from ..ir.names import LOWER_PRECISION
from ..ir.symbolic import Dim, evaluate, symbols
from . import conv_cycles
from .kernel_constants import DEFAULT, KernelConstants

Attrs = Mapping[str, AttrValue]
Types = Sequence[ValueType | None]
V = TypeVar("V")


class Kind(Enum):
    """How an operator can be grouped into kernels."""

    VIEW = "view"
    POINTWISE = "pointwise"
    MOVEMENT = "movement"
    REDUCTION = "reduction"
    COMPLEX = "complex"
    OPAQUE = "opaque"


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one node.

    `flops` counts operations; `efficiency` is the share of the machine's peak that good code reaches on them. `reads`
    are the bytes read from each input, `writes` the bytes written to all outputs."""

    kind: Kind
    flops: float
    efficiency: float
    reads: tuple[float, ...]
    writes: float

    @property
    def bytes(self) -> float:
        """Total memory traffic."""
        return sum(self.reads) + self.writes


@dataclass(frozen=True, slots=True)
class Application:
    """An operator's attributes and the types of its inputs and outputs, None where absent."""

    attrs: Attrs
    inputs: Types
    outputs: Types


def _names(ops: str) -> frozenset[str]:
    return frozenset(ops.split())


def _by_operator(table: Mapping[V, str]) -> dict[str, V]:
    """Invert a table of values → operators; names are separated by blanks."""
    return {op: value for value, ops in table.items() for op in ops.split()}


_CHEAP, _ROOT, _EXP, _POW = 1.0, 4.0, 16.0, 32.0
_POINTWISE = _by_operator(
    {
        _CHEAP: "Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Clip Equal Floor"
        " Greater GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less LessOrEqual Max Mean Min Mul Neg Not"
        " Or PRelu Relu Round Shrink Sign Sub Sum ThresholdedRelu Where Xor DequantizeLinear QuantizeLinear",
        _ROOT: "Div Mod Reciprocal Sqrt Softsign com.microsoft.QLinearAdd"
        " com.microsoft.QLinearMul com.microsoft.QLinearLeakyRelu com.microsoft.QLinearSigmoid"
        " com.microsoft.QLinearWhere com.microsoft.QuantizeLinear com.microsoft.DequantizeLinear",
        _EXP: "Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Exp Log Mish Selu Sigmoid Sin Sinh Softplus"
        " Swish Tan Tanh com.microsoft.FastGelu com.microsoft.QuickGelu",
        _POW: "Erf Gelu Pow com.microsoft.BiasGelu com.microsoft.Gelu",
    }
)
"""Flops per element."""
_VIEWS = _names(
    "Identity Reshape Squeeze Unsqueeze Flatten Shape Size Dropout Optional OptionalGetElement OptionalHasElement"
    " rewrite.Sizes"
)
_COPIED = _names(
    "Concat Slice Split Expand Tile Pad ReverseSequence ScatterElements ScatterND Scatter Trilu ConstantOfShape"
    " Constant Range EyeLike OneHot Compress ConcatFromSequence SplitToSequence SequenceAt SequenceConstruct"
    " SequenceInsert Upsample CenterCropPad TensorScatter"
)
_PERMUTED = _names("Transpose DepthToSpace SpaceToDepth Gather GatherElements GatherND")
"""Operators that touch memory in short runs."""
_MOVEMENT = _COPIED | _PERMUTED
PARTIAL = _names("Slice Gather GatherElements GatherND SequenceAt Compress Trilu OneHot EyeLike Range")
"""Operators that read no more of their first input than they write."""
_NORMS = _by_operator(
    {
        1.0: "CumSum",
        2.0: "BatchNormalization",
        3.0: "Hardmax RotaryEmbedding com.microsoft.RotaryEmbedding",
        4.0: "RMSNormalization LpNormalization com.microsoft.SimplifiedLayerNormalization",
        6.0: "com.microsoft.SkipSimplifiedLayerNormalization",
        7.0: "InstanceNormalization GroupNormalization LayerNormalization MeanVarianceNormalization"
        " rewrite.ChannelsLastGroupNormalization",
        9.0: "com.microsoft.SkipLayerNormalization",
        12.0: "DynamicQuantizeLinear",
        20.0: "Softmax LogSoftmax com.microsoft.QLinearSoftmax",
        60.0: "LRN",
    }
)
"""Flops per element of normalizations and what else passes over whole rows or tensors."""
_L2_BYTES = 32.0
"""Bytes that a core reads per cycle from its second-level cache."""
_LEAST_MOVED = 2.0
"""Bytes that a kernel copies in the time that it moves a smaller element alone."""
UNKNOWN_ELEMENTS = 4096.0
"""Assumed number of elements of a tensor of unknown shape."""


def _normalized_rows(op: str, attrs: Attrs, shape: Sequence[float]) -> float:
    """Return how many rows an operator of `_NORMS` reduces, one after the other: whole channels, groups, or lines."""
    if op in ("BatchNormalization", "LRN", "CumSum", "DynamicQuantizeLinear"):
        return 0.0
    if op == "InstanceNormalization":
        return math.prod(shape[:2])
    if op.endswith("GroupNormalization"):
        groups = attrs.get("num_groups", 1)
        return math.prod(shape[:1]) * (groups if isinstance(groups, int) else 1)
    return math.prod(shape[:-1]) if shape else 0.0


def is_view(op: str) -> bool:
    """Whether an operator gives the elements of its operand another shape."""
    return op in _VIEWS


def is_pointwise(op: str) -> bool:
    """Whether an operator computes each element from those at the same place."""
    return op.partition("@")[0] in _POINTWISE


def moves(op: str) -> bool:
    """Whether an operator only moves elements."""
    return op in _MOVEMENT


def only_moves(op: str) -> bool:
    """Whether every output element is an input element, though perhaps of another type."""
    return op in _VIEWS or op in _MOVEMENT or op in ("Cast", "CastLike")


def _ints(attrs: Attrs, name: str) -> tuple[int, ...]:
    """Return an attribute that is a list of integers; empty where it is absent."""
    found = attrs.get(name)
    return tuple(v for v in found if isinstance(v, int)) if isinstance(found, tuple) else ()


def _is_half(to: AttrValue | None, inputs: Types) -> bool:
    """Whether a Cast rounds to 16-bit floats, or widens them."""
    source = inputs[0].dtype if inputs and isinstance(inputs[0], TensorType) else None
    halves = (DType.F16, DType.BF16)
    return to in [d.onnx for d in halves] or (to == DType.F32.onnx and source in halves)


@dataclass(slots=True)
class Estimator:
    """Estimates work, with symbolic dims taken at `hints[name]` where given and at `nominal` elsewhere.

    `rates` are the speedups over f32 of products of narrower numbers (`machine.rates`), 1 where not given. `lanes` is
    the number of f32 elements in a vector of our kernels, 0 for kernels of which nothing is known; `constants` say how
    fast ours are. `cache` are the bytes of the last cache, `far` the cycles to read an f32 from memory behind it. With
    `exact`, no algorithm that rounds otherwise is used."""

    hints: Mapping[str, int] = field(default_factory=dict)
    nominal: int = 64
    rates: Mapping[str, float] = field(default_factory=dict)
    lanes: int = 0
    constants: KernelConstants = DEFAULT
    exact: bool = False
    cache: float = math.inf
    far: float = 0.0
    _dims: dict[Dim, float] = field(default_factory=dict)

    def rate(self, dtype: str) -> float:
        """Speedup over f32 of products of `bf16` or `int8`, or of those by `vectors`."""
        return self.rates.get(dtype, 1.0)

    def dim(self, dim: Dim) -> float:
        """Return a dim as a number, at least 0, and at least 1 for a symbolic one."""
        if isinstance(dim, int):
            return float(dim)
        if dim not in self._dims:
            try:
                value = evaluate(dim, {name: self.hints.get(name, self.nominal) for name in sorted(symbols(dim))})
            except (ValueError, ArithmeticError):
                value = self.nominal
            self._dims[dim] = float(max(value, 1))
        return self._dims[dim]

    def elements(self, type_: ValueType | None) -> float:
        """Return the number of elements of a value; 0 for an absent one."""
        if type_ is None:
            return 0.0
        if isinstance(type_, OtherType) or type_.shape is None:
            return UNKNOWN_ELEMENTS
        return math.prod(self.dim(d) for d in type_.shape)

    def nbytes(self, type_: ValueType | None) -> float:
        """Return the size of a value in bytes; 0 for an absent one."""
        bits = 32 if not isinstance(type_, TensorType) or type_.dtype is None else type_.dtype.bits
        return self.elements(type_) * bits / 8

    def shape(self, types: Types, index: int) -> list[float] | None:
        """Return the dims of one of some types; None where they are unknown."""
        type_ = types[index] if index < len(types) else None
        if not isinstance(type_, TensorType) or type_.shape is None:
            return None
        return [self.dim(d) for d in type_.shape]

    def work(self, op: str, attrs: Attrs, inputs: Types, outputs: Types) -> Work:
        """Estimate the work of one node; the types of absent inputs and outputs are None."""
        op, k = op.partition("@")[0], self.constants
        reads = tuple(self.nbytes(t) for t in inputs)
        writes = sum(self.nbytes(t) for t in outputs)
        # The type of a sequence does not tell its size: its elements are copied when they go in and when they come out.
        if any(isinstance(t, OtherType) for t in outputs):
            writes = max(writes, sum(reads))
        elif any(isinstance(t, OtherType) for t in inputs):
            reads = tuple(max(r, writes) if isinstance(t, OtherType) else r for r, t in zip(reads, inputs, strict=True))
        size = sum(self.elements(t) for t in outputs)
        first = self.elements(inputs[0]) if inputs else 0.0
        if op in _VIEWS or (op == "Transpose" and self._moves_nothing(attrs, inputs)):
            return Work(Kind.VIEW, 0.0, 1.0, (0.0,) * len(reads), 0.0)
        if op == "Cast" and self.lanes and _is_half(attrs.get("to"), inputs):
            return Work(Kind.POINTWISE, 0.0, 1.0, reads, writes)  # half the bytes make up for rounding and widening
        if op in _POINTWISE:
            return Work(Kind.POINTWISE, _POINTWISE[op] * size, 1 / k.pointwise, reads, writes)
        if op in _MOVEMENT:
            if op in PARTIAL:
                reads = (min(reads[0], writes), *reads[1:]) if reads else reads
            return self._movement(op, Application(attrs, inputs, outputs), reads, writes)
        if op in _NORMS:
            flops = _NORMS[op] * max(size, first)
            rows = _normalized_rows(op, attrs, self.shape(outputs, 0) or ())
            return Work(Kind.REDUCTION, flops, self._row_efficiency(flops, k.normalized, rows), reads, writes)
        if op.startswith(("Reduce", "Arg", "Global")):
            pools = op.startswith("Global")
            numbers, rows = (first, 0.0) if pools else (max(first, size), self._reduced_rows(inputs, outputs))
            efficiency = self._row_efficiency(numbers, k.reduced, rows)
            return Work(Kind.REDUCTION, numbers, efficiency, reads, writes)
        if op in ("If", "Loop", "Scan", "SequenceMap"):
            return self._control(op, attrs, reads, writes)
        arithmetic = _COMPLEX.get(op.removeprefix("com.microsoft."))
        if arithmetic is not None:
            if op in LOWER_PRECISION:  # weights are stored in the precision they are multiplied in
                reads = (reads[0], reads[1] / 2, *reads[2:])
            flops, efficiency = arithmetic(self, Application(attrs, inputs, outputs))
            if op in ("MatMulInteger", "QLinearMatMul", "com.microsoft.DynamicQuantizeLSTM"):
                efficiency *= self.rate("int8") / k.product_quantized
            if op == "Einsum":  # it moves its operands as Transpose does, and more
                reads, writes = tuple(3.0 * r for r in reads), 3.0 * writes
            return Work(Kind.COMPLEX, flops, efficiency, reads, writes)
        return Work(Kind.OPAQUE, 10.0 * (size + sum(self.elements(t) for t in inputs)), 0.1, reads, writes)

    def _movement(self, op: str, a: Application, reads: tuple[float, ...], writes: float) -> Work:
        """Work of movement: elements one by one, or runs of them, which take time to begin."""
        k, run = self.constants, self._run(op, a)
        if op in _PERMUTED and not run:
            # Elements are moved one by one, so that bytes take longer than a share of words.
            least = _LEAST_MOVED * self.elements(a.outputs[0]) if self.lanes else 0.0
            slow = k.permuted * max(1.0, least / max(writes, 1.0))
            return Work(Kind.MOVEMENT, 0.0, 1.0, tuple(slow * r for r in reads), slow * writes)
        runs = sum(self.elements(t) for t in a.outputs) / max(run, 1.0) if self.lanes else 0.0
        efficiency = 1 / (4.0 * self.lanes * k.moved) if runs else 1.0
        return Work(Kind.MOVEMENT, runs, efficiency, tuple(k.copied * r for r in reads), k.copied * writes)

    def _run(self, op: str, a: Application) -> float:
        """Return the number of adjacent elements that movement keeps together; 0 where it moves single elements."""
        given, out = self.shape(a.inputs, 0), self.shape(a.outputs, 0)
        if not given or not out:
            return 0.0 if op in _PERMUTED else UNKNOWN_ELEMENTS
        if op == "Transpose":
            perm = _ints(a.attrs, "perm")
            kept = 0
            while kept < len(perm) and perm[-1 - kept] == len(perm) - 1 - kept:
                kept += 1
            found = math.prod(given[len(given) - kept :]) if kept else 1.0
            return found if found > 1 else 0.0
        if op in _PERMUTED:
            return 0.0
        found = 1.0
        for size, other in zip(reversed(given), reversed(out), strict=False):
            found *= min(size, other)
            if size != other:
                return found
        return found

    def _row_efficiency(self, flops: float, relative: float, rows: float) -> float:
        """Return the efficiency of arithmetic of some relative time on rows, which take time to begin and end."""
        cycles = flops * relative + 4.0 * self.lanes * self.constants.row * rows
        return flops / cycles if flops else 1.0

    def _reduced_rows(self, inputs: Types, outputs: Types) -> float:
        """Return the number of rows that a reduction reads; 0 if it does not reduce the last axis."""
        given, out = self.shape(inputs, 0), self.shape(outputs, 0)
        if not given or out is None or given[-1] <= 1 or (out and out[-1] == given[-1]):
            return 0.0
        return math.prod(out)

    def _moves_nothing(self, attrs: Attrs, inputs: Types) -> bool:
        """Whether a permutation keeps the order of elements in memory: only axes of size 1 move."""
        shape = inputs[0].shape if inputs and isinstance(inputs[0], TensorType) else None
        perm = attrs.get("perm")
        if shape is None or not isinstance(perm, tuple) or len(perm) != len(shape):
            return False
        moved = [p for p in perm if isinstance(p, int) and shape[p] != 1]
        return moved == sorted(moved)

    def _control(self, op: str, attrs: Attrs, reads: tuple[float, ...], writes: float) -> Work:
        """Work of control flow: the larger branch of an If, or the body of a loop a nominal number of times."""
        flops = traffic = 0.0
        for _, body in graphs_in(attrs):
            done, moved = 0.0, 0.0
            for node in body.nodes:
                types = [
                    [body.types.get(v, TensorType()) if v else None for v in values]
                    for values in (node.inputs, node.outputs)
                ]
                part = self.work(node.op, node.attrs, *types)
                if part.flops:  # of empty tensors nothing is computed, at no efficiency
                    done += part.flops / part.efficiency
                moved += part.bytes
            flops, traffic = max(flops, done), max(traffic, moved)
        trips = 1.0 if op == "If" else float(self.nominal)
        return Work(Kind.OPAQUE, trips * flops, 1.0, reads, writes + trips * traffic)


# --- operators with much arithmetic: (flops, efficiency) --------------------------------------------------------------


def _direct_conv(e: Estimator, a: Application, weight: int = 1) -> tuple[float, float]:
    """Direct convolution by an unknown kernel, 2 · |out| · C_in/group · |kernel|; the weights are input `weight`."""
    shape = e.shape(a.inputs, weight)
    size = e.elements(a.outputs[0])
    if shape is None or len(shape) < 3:
        return 2.0 * size * 64, 0.5
    group = a.attrs.get("group", 1)
    few = isinstance(group, int) and group > 1 and shape[1] <= 4
    return 2.0 * size * math.prod(shape[1:]), 0.15 if few else 0.75 if shape[1] >= 8 else 0.4


def _conv(e: Estimator, a: Application, dtype: str = "f32", last: bool = False, weight: int = 1) -> tuple[float, float]:
    """Convolution in NCHW layout, or NHWC if `last`; the weights are input `weight`.

    Inputs are rounded to bf16 when they are gathered, in NHWC layout before."""
    flops, efficiency = _conv_cycles(e, a, dtype, last, weight) if e.lanes else _direct_conv(e, a, weight)
    if dtype == "bf16" and not last:
        rounding = 2.0 * e.elements(a.inputs[0]) / 0.25  # two operations an element
        return flops, flops / (flops / (efficiency * e.rate("bf16 vectors")) + rounding)
    priced = dtype == "int8" and e.lanes  # its cycles depend on the rate
    if priced or dtype != "bf16":
        return flops, efficiency
    grouped = a.attrs.get("group", 1) != 1  # narrow ones fill few columns of a tile
    weights = e.shape(a.inputs, weight)
    if weights and len(weights) > 1 and weights[1] % 2 and e.rate("bf16") <= e.rate("bf16 vectors"):
        return flops, efficiency / 4  # no whole words: tiles have a kernel for it, vectors have none
    return flops, efficiency * e.rate("bf16 vectors" if grouped else "bf16")


def _image_conv(e: Estimator, a: Application) -> tuple[float, float]:
    """Convolution from NCHW to NHWC layout, of which only tiles have a kernel."""
    flops, efficiency = _conv(e, a, "bf16", last=True)
    return flops, efficiency if e.rate("bf16") > e.rate("bf16 vectors") else efficiency / 8


def _conv_cycles(e: Estimator, a: Application, dtype: str, last: bool, weight: int) -> tuple[float, float]:
    """Convolution by our kernels."""
    shape, out = e.shape(a.inputs, weight), e.shape(a.outputs, 0)
    size = e.elements(a.outputs[0])
    if shape is None or len(shape) < 3 or out is None or len(out) != len(shape):
        return 2.0 * size * 64, 0.5
    flops = 2.0 * size * math.prod(shape[1:])
    extents = out[1:-1] if last else out[2:]
    found = a.attrs.get("group", 1)
    groups = float(found) if isinstance(found, int) and found > 0 else 1.0
    strides, dilations = (_ints(a.attrs, name) for name in ("strides", "dilations"))
    spread = dilations[-2:] if last and dtype != "int8" and len(extents) > 1 else ()
    # The long sums of Winograd's algorithm lose precision in bf16. Those of bytes are exact.
    rounded = ("bf16", "f32") if e.exact else ("bf16",)
    c = conv_cycles.Convolution(
        images=out[0],
        pixels=math.prod(extents),
        width=extents[-1],
        groups=groups,
        channels=shape[1],
        filters=shape[0] / groups,
        taps=math.prod(shape[2:]),
        stride=max(strides, default=1),
        unit=all(step == 1 for step in (*strides, *dilations[: len(dilations) - len(spread)])),
        dilated=(int(spread[0]), int(spread[1])) if len(spread) == 2 else (1, 1),
        square=int(shape[-1]) if len(shape) > 3 and shape[-2] == shape[-1] and dtype not in rounded else 0,
        lanes=e.lanes,
        depth=extents[0] if len(shape) == 5 else 0.0,
        slices=shape[2] if len(shape) == 5 else 1.0,
        cache=e.cache,
        far=e.far,
        constants=e.constants,
        read=_share_read(e, a, shape[2:], extents) if last and dtype == "f32" else 1.0,
    )
    if dtype == "int8" and last:
        took = conv_cycles.conv_int8_nhwc(c, e.rate("int8 vectors"), e.rates.get("int8 winograd", 0.0))
    elif dtype == "int8":
        took = conv_cycles.conv_int8_nchw(c, e.rate("int8 vectors"))
    else:
        took = (conv_cycles.conv_nhwc if last else conv_cycles.conv_nchw)(c)
    return flops, flops / (4.0 * e.lanes * took) if took else 1.0


def _share_read(e: Estimator, a: Application, kernel: Sequence[float], outputs: Sequence[float]) -> float:
    """Share of the products of an NHWC convolution that are computed: others read padding only."""
    n, inputs = len(kernel), e.shape(a.inputs, 0)
    strides, dilations, pads = (_ints(a.attrs, name) for name in ("strides", "dilations", "pads"))
    if inputs is None or len(inputs) != n + 2 or (len(strides), len(dilations), len(pads)) != (n, n, 2 * n):
        return 1.0
    sizes = zip(inputs[1:-1], outputs, kernel, strides, dilations, pads[:n], strict=True)
    return conv_cycles.share_read([conv_cycles.Axis(*map(int, axis)) for axis in sizes])


def _conv_transpose(e: Estimator, a: Application, last: bool = False) -> tuple[float, float]:
    """Transposed convolution in NCHW layout, or NHWC if `last`."""
    shape, size = e.shape(a.inputs, 1), e.elements(a.inputs[0])
    flops = 2.0 * size * (64 * 9 if shape is None else math.prod(shape[1:]))
    if shape is None or not e.lanes or not flops:
        return flops, 0.5
    products, filters = flops / (4.0 * e.lanes), shape[1]
    if last:
        took = conv_cycles.conv_transpose_nhwc(products, filters, e.elements(a.outputs[0]), e.lanes, e.constants)
    else:
        took = conv_cycles.conv_transpose_nchw(products, size / shape[0] * math.prod(shape[1:]), e.constants)
    return flops, products / took


def _deform_conv(e: Estimator, a: Application) -> tuple[float, float]:
    return _direct_conv(e, a)[0], 0.1


def _matmul(e: Estimator, a: Application) -> tuple[float, float]:
    """Matrix product, 2 · |out| · K."""
    shape = e.shape(a.inputs, 0)
    depth = float(e.nominal)
    if shape:
        depth = shape[0] if a.attrs.get("transA") and len(shape) > 1 else shape[-1]
    size = e.elements(a.outputs[0])
    flops, out = 2.0 * size * max(depth, 1.0), e.shape(a.outputs, 0)
    if not e.lanes or not out or not size:
        return flops, 0.8
    took = conv_cycles.product(size / out[-1], max(depth, 1.0), out[-1], e.lanes, e.constants)
    other = e.shape(a.inputs, 1)
    if other and len(other) > 2:  # weights are matrices
        took += e.constants.matrix * e.elements(a.inputs[1])
    return flops, flops / (4.0 * e.lanes * took)


def _matmul_bf16(e: Estimator, a: Application) -> tuple[float, float]:
    """Matrix product of bf16, rounded by what computed it."""
    flops, efficiency = _matmul(e, a)
    return flops, efficiency * e.rate("bf16")


def _einsum(e: Estimator, a: Application) -> tuple[float, float]:
    """The full index space, as if nothing were factored out."""
    equation = str(a.attrs.get("equation", "")).replace(" ", "")
    extents: dict[str, float] = {}
    for index, term in enumerate(equation.partition("->")[0].split(",")):
        shape = e.shape(a.inputs, index)
        if shape is None or "." in term or len(shape) != len(term):
            return 2.0 * e.elements(a.outputs[0]) * e.nominal, 0.3
        extents.update(zip(term, shape, strict=True))
    return 2.0 * math.prod(extents.values()), 0.3


def _attention(e: Estimator, a: Application, bf16: bool = False) -> tuple[float, float]:
    """Q·Kᵀ, softmax, ·V: 2 · S · (|Q| + |out|) and the softmax's share, S being the number of keys.

    In `bf16` operands are rounded first, two operations an element, and attention weights as they are computed."""
    query, keys = e.shape(a.inputs, 0), e.shape(a.inputs, 1)
    length = keys[-2] if keys and len(keys) >= 3 else query[-2] if query and len(query) >= 2 else e.nominal
    heads = a.attrs.get("q_num_heads") or a.attrs.get("num_heads") or 1
    rows = UNKNOWN_ELEMENTS / 64
    if query and len(query) == 4:
        rows = math.prod(query[:3])
    elif query and len(query) == 3 and isinstance(heads, int):
        rows = query[0] * query[1] * heads
    products = 2.0 * length * (e.elements(a.inputs[0]) + e.elements(a.outputs[0]))
    softmax = _NORMS["Softmax"] * rows * length
    rounding = 2.0 * sum(e.elements(t) for t in a.inputs[:3]) + rows * length if bf16 else 0.0
    k = e.constants
    laid_out = 4.0 * e.lanes * k.matrix * sum(e.elements(t) for t in a.inputs[1:3])
    took = products * k.attention / (e.rate("bf16") if bf16 else 1.0) + (softmax + rounding) * k.normalized + laid_out
    return products + softmax, (products + softmax) / max(took, 1.0)


def _recurrent(e: Estimator, a: Application) -> tuple[float, float]:
    """Each step multiplies every row by W and R: 2 · T · B · (|W| + |R|)."""
    x = e.shape(a.inputs, 0)
    steps = x[0] * x[1] if x and len(x) == 3 else float(e.nominal)
    weights = sum(e.elements(t) for t in a.inputs[1:3])
    return 2.0 * steps * weights + 3 * _EXP * sum(e.elements(t) for t in a.outputs), 1 / e.constants.recurrent


def _pool(e: Estimator, a: Application, last: bool = False) -> tuple[float, float]:
    """Pool in NCHW layout, or NHWC if `last`."""
    window = math.prod(_ints(a.attrs, "kernel_shape"))
    shape, size = e.shape(a.outputs, 0), e.elements(a.outputs[0])
    if not e.lanes or not size or (last and not shape):
        return float(window) * size, 0.2
    stride, width = (_ints(a.attrs, "strides") or (1,))[-1], shape[-2 if last else -1] if shape else 1.0
    taps = conv_cycles.pool_taps(_ints(a.attrs, "kernel_shape") or (1,), stride, width, e.constants)
    if last and shape:
        took = conv_cycles.pool_nhwc(taps, size, shape[-1], e.lanes, e.constants)
        saved = (4.0 * e.elements(a.inputs[0]) - e.nbytes(a.inputs[0])) / _L2_BYTES
        took = max(took / 2, took - saved)
    else:
        took = conv_cycles.pool_nchw(taps, size, e.lanes, e.constants)
    return window * size, window * size / (4.0 * e.lanes * took)


def _resize(e: Estimator, a: Application) -> tuple[float, float]:
    mode, size = str(a.attrs.get("mode", "nearest")), e.elements(a.outputs[0])
    taps = {"nearest": 1.0, "linear": 8.0}.get(mode, 40.0)
    if not e.lanes or not size:
        return taps * size, 0.1
    took = size * e.constants.picked if mode == "nearest" else taps * size / e.lanes * e.constants.interpolated
    return taps * size, taps * size / (4.0 * e.lanes * took)


_COMPLEX: dict[str, Callable[..., tuple[float, float]]] = _by_operator(
    {
        _conv: "Conv FusedConv",
        partial(_conv, last=True): "rewrite.ChannelsLastConv",
        partial(_conv, dtype="bf16"): "rewrite.ConvBf16",
        partial(_conv, dtype="bf16", last=True): "rewrite.ChannelsLastConvBf16",
        _image_conv: "rewrite.ImageConvBf16",
        partial(_conv, dtype="int8"): "ConvInteger",
        partial(_conv, dtype="int8", weight=3): "QLinearConv",
        partial(_conv, dtype="int8", last=True): "rewrite.ChannelsLastConvInteger",
        partial(_conv, dtype="int8", last=True, weight=3): "rewrite.ChannelsLastQLinearConv",
        _conv_transpose: "ConvTranspose",
        partial(_conv_transpose, last=True): "rewrite.ChannelsLastConvTranspose",
        _deform_conv: "DeformConv",
        _matmul: "MatMul Gemm MatMulInteger QLinearMatMul FusedMatMul FusedGemm MatMulNBits rewrite.MatMulBlockwise",
        _matmul_bf16: "rewrite.MatMulBf16",
        _einsum: "Einsum",
        _attention: "Attention rewrite.ScaledDotProductAttention MultiHeadAttention GroupQueryAttention",
        partial(_attention, bf16=True): "rewrite.AttentionBf16",
        _recurrent: "LSTM GRU RNN DynamicQuantizeLSTM",
        _pool: "AveragePool MaxPool LpPool",
        partial(_pool, last=True): "rewrite.ChannelsLastMaxPool rewrite.ChannelsLastAveragePool",
        _resize: "Resize",
    }
)
