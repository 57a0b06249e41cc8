"""How much work an operator is: arithmetic, memory traffic, and of what kind.

Figures are estimates for ranking alternatives. A flop is an addition or a multiplication; transcendental functions
count as the dozen or so that a polynomial takes. Dims that are not numbers are taken at nominal values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from . import windows
from .graph import AttrValue, DType, Graph, OtherType, TensorType, ValueType
from .operators import LOWER_PRECISION
from .symbolic import Dim, evaluate, symbols

Attrs = Mapping[str, AttrValue]


def _names(text: str) -> list[str]:
    """Words, as a list."""
    return text.split()


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
    """The work of one node.

    `flops` counts operations, `efficiency` is the share of the machine's peak that good code reaches on them. `reads`
    are the bytes read from each input, `writes` the bytes written to all outputs."""

    kind: Kind
    flops: float
    efficiency: float
    reads: tuple[float, ...]
    writes: float

    @property
    def bytes(self) -> float:
        """All memory traffic."""
        return sum(self.reads) + self.writes


_VIEWS = frozenset(
    _names(
        """
        Identity Reshape Squeeze Unsqueeze Flatten Shape Size Dropout Optional OptionalGetElement
        OptionalHasElement
"""
    )
)
_CHEAP, _ROOT, _EXP, _POW = 1.0, 4.0, 16.0, 30.0
_POINTWISE = {
    **dict.fromkeys(
        _names(
            """
        Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Clip
        Equal Floor Greater GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less
        LessOrEqual Max Mean Min Mul Neg Not Or PRelu Relu Round Shrink Sign Sub Sum ThresholdedRelu
        Where Xor DequantizeLinear QuantizeLinear
"""
        ),
        _CHEAP,
    ),
    **dict.fromkeys(_names("Div Mod Reciprocal Sqrt Softsign DynamicQuantizeLinear"), _ROOT),
    **dict.fromkeys(
        _names(
            """
        Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Exp Gelu Log Mish Selu Sigmoid Sin
        Sinh Softplus Swish Tan Tanh com.microsoft.Gelu com.microsoft.FastGelu
        com.microsoft.BiasGelu com.microsoft.QuickGelu
"""
        ),
        _EXP,
    ),
    "Pow": _POW,
}
_MOVEMENT = frozenset(
    _names(
        """
        Concat Transpose Slice Split Gather GatherElements GatherND Expand Tile Pad DepthToSpace
        SpaceToDepth ReverseSequence ScatterElements ScatterND Scatter Trilu ConstantOfShape
        Constant Range EyeLike OneHot Compress ConcatFromSequence SplitToSequence SequenceAt
        SequenceConstruct SequenceInsert Upsample CenterCropPad TensorScatter
"""
    )
)
PARTIAL = frozenset(
    _names(
        """
        Slice Gather GatherElements GatherND SequenceAt Compress Trilu OneHot EyeLike Range
"""
    )
)
"""Operators that read no more of their first input than they write."""
_NORMS = {
    "BatchNormalization": 2.0,
    "InstanceNormalization": 7.0,
    "GroupNormalization": 7.0,
    "LayerNormalization": 7.0,
    "RMSNormalization": 4.0,
    "LpNormalization": 4.0,
    "MeanVarianceNormalization": 7.0,
    "LRN": 20.0,
    "Softmax": 20.0,
    "LogSoftmax": 20.0,
    "Hardmax": 3.0,
    "CumSum": 1.0,
    "com.microsoft.SkipLayerNormalization": 9.0,
    "com.microsoft.SkipSimplifiedLayerNormalization": 6.0,
    "SimplifiedLayerNormalization": 4.0,
    "RotaryEmbedding": 3.0,
    "com.microsoft.RotaryEmbedding": 3.0,
}
UNKNOWN_ELEMENTS = 4096.0
"""The size that a tensor of unknown shape is taken to have."""


def moves(op: str) -> bool:
    """Whether all that an operator does is to put elements elsewhere."""
    return op in _MOVEMENT


def only_moves(op: str) -> bool:
    """Whether an operator gives elements of its inputs as they are, but perhaps in another type."""
    return op in _VIEWS or op in _MOVEMENT or op in ("Cast", "CastLike")


def _ints(attrs: Attrs, name: str) -> tuple[int, ...]:
    """An attribute that is a list of integers; none where it is absent."""
    found = attrs.get(name)
    return tuple(v for v in found if isinstance(v, int)) if isinstance(found, tuple) else ()


class Estimator:
    """Estimates work, with symbolic dims taken at `hints[name]` where given and at `nominal` elsewhere.

    `rates` are how many times faster than f32 the machine multiplies narrower numbers (`bf16`, `int8`), 1 where not
    given; `lanes` is how many f32 numbers a vector of our kernels holds, 0 for kernels of which nothing is known."""

    def __init__(
        self,
        hints: Mapping[str, int] | None = None,
        nominal: int = 64,
        rates: Mapping[str, float] | None = None,
        lanes: int = 0,
    ) -> None:
        self._lanes = lanes
        self._hints = dict(hints or {})
        self._rates = dict(rates or {})
        self._nominal = nominal
        self._dims: dict[Dim, float] = {}

    def dim(self, dim: Dim) -> float:
        """A dim as a number, at least 0."""
        if isinstance(dim, int):
            return float(dim)
        found = self._dims.get(dim)
        if found is None:
            try:
                value = evaluate(dim, {name: self._hints.get(name, self._nominal) for name in sorted(symbols(dim))})
            except (ValueError, ArithmeticError):
                value = self._nominal
            found = self._dims[dim] = float(max(value, 0))
        return found

    def elements(self, type_: ValueType | None) -> float:
        """The number of elements of a value; 0 of an absent one."""
        if type_ is None:
            return 0.0
        if isinstance(type_, OtherType) or type_.shape is None:
            return UNKNOWN_ELEMENTS
        return math.prod(self.dim(d) for d in type_.shape)

    def nbytes(self, type_: ValueType | None) -> float:
        """The size of a value in bytes; 0 of an absent one."""
        bits = 32 if not isinstance(type_, TensorType) or type_.dtype is None else type_.dtype.bits
        return self.elements(type_) * bits / 8

    def _shape(self, types: Sequence[ValueType | None], index: int) -> list[float] | None:
        type_ = types[index] if index < len(types) else None
        if not isinstance(type_, TensorType) or type_.shape is None:
            return None
        return [self.dim(d) for d in type_.shape]

    def work(
        self, op: str, attrs: Attrs, inputs: Sequence[ValueType | None], outputs: Sequence[ValueType | None]
    ) -> Work:
        """The work of one node; absent inputs and outputs are None."""
        op = op.partition("@")[0]
        reads = tuple(self.nbytes(t) for t in inputs)
        writes = sum(self.nbytes(t) for t in outputs)
        # a sequence does not tell its size: what goes into it is copied, and what comes out of it
        if any(isinstance(t, OtherType) for t in outputs):
            writes = max(writes, sum(reads))
        elif any(isinstance(t, OtherType) for t in inputs):
            reads = tuple(max(r, writes) if isinstance(t, OtherType) else r for r, t in zip(reads, inputs, strict=True))
        size = sum(self.elements(t) for t in outputs)
        first = self.elements(inputs[0]) if inputs else 0.0
        if op in _VIEWS or (op == "Transpose" and self._moves_nothing(attrs, inputs)):
            return Work(Kind.VIEW, 0.0, 1.0, (0.0,) * len(reads), 0.0)
        if op == "Cast" and self._lanes and attrs.get("to") == DType.BF16.onnx:
            return Work(Kind.POINTWISE, 0.0, 1.0, reads, writes)  # storing half of the bytes saves what rounding takes
        if op in _POINTWISE:
            return Work(Kind.POINTWISE, _POINTWISE[op] * size, 0.25, reads, writes)
        if op in _MOVEMENT:
            if op in PARTIAL:
                reads = (min(reads[0], writes), *reads[1:]) if reads else reads
            # a transposition or gather touches memory in short runs
            slow = 2.0 if op in ("Transpose", "DepthToSpace", "SpaceToDepth") or op.startswith("Gather") else 1.0
            return Work(Kind.MOVEMENT, 0.0, 1.0, tuple(slow * r for r in reads), slow * writes)
        if op in _NORMS:
            return Work(Kind.REDUCTION, _NORMS[op] * max(size, first), 0.25, reads, writes)
        if op.startswith(("Reduce", "Arg")):
            return Work(Kind.REDUCTION, max(first, size), 0.25, reads, writes)
        if op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
            return Work(Kind.REDUCTION, first, 0.25, reads, writes)
        if op in ("If", "Loop", "Scan", "SequenceMap"):
            return self._control(attrs, inputs, reads, writes, op)
        known = _COMPLEX.get(op.removeprefix("com.microsoft."))
        if known is not None:
            if op in LOWER_PRECISION:  # weights are stored as they are multiplied
                reads = (reads[0], reads[1] / 2, *reads[2:])
            flops, efficiency = known(self, attrs, inputs, outputs)
            if op in _OF_BYTES:
                efficiency *= self._rates.get("int8", 1.0)
            return Work(Kind.COMPLEX, flops, efficiency, reads, writes)
        return Work(Kind.OPAQUE, 10.0 * (size + sum(self.elements(t) for t in inputs)), 0.1, reads, writes)

    def _moves_nothing(self, attrs: Attrs, inputs: Sequence[ValueType | None]) -> bool:
        """Whether a permutation leaves the order of elements as it is: only axes of size 1 go elsewhere."""
        shape = inputs[0].shape if inputs and isinstance(inputs[0], TensorType) else None
        perm = attrs.get("perm")
        if shape is None or not isinstance(perm, tuple) or len(perm) != len(shape):
            return False
        moved = [p for p in perm if isinstance(p, int) and shape[p] != 1]
        return moved == sorted(moved)

    def _control(
        self, attrs: Attrs, inputs: Sequence[ValueType | None], reads: tuple[float, ...], writes: float, op: str
    ) -> Work:
        """The work of control flow: one branch of an If, the body of a loop a nominal number of times."""
        flops = traffic = 0.0
        for value in attrs.values():
            for body in value if isinstance(value, tuple) else (value,):
                if not isinstance(body, Graph):
                    continue
                done, moved = 0.0, 0.0
                for node in body.nodes:
                    part = self.work(
                        node.op,
                        node.attrs,
                        [body.types.get(v, TensorType()) if v else None for v in node.inputs],
                        [body.types.get(v, TensorType()) if v else None for v in node.outputs],
                    )
                    done, moved = done + part.flops / part.efficiency, moved + part.bytes
                flops, traffic = max(flops, done), max(traffic, moved)
        trips = 1.0 if op == "If" else float(self._nominal)
        return Work(Kind.OPAQUE, trips * flops, 1.0, reads, writes + trips * traffic)

    # --- operators with much arithmetic: (flops, efficiency) ---------------------------------------------------------

    def _conv(
        self, attrs: Attrs, inputs: Sequence[ValueType | None], outputs: Sequence[ValueType | None], weight: int = 1
    ) -> tuple[float, float]:
        """Direct convolution, 2 · |out| · C_in/group · |kernel|."""
        shape = self._shape(inputs, weight)
        size = self.elements(outputs[0])
        if shape is None or len(shape) < 3:
            return 2.0 * size * 64, 0.5
        depth = math.prod(shape[1:])
        group = attrs.get("group", 1)
        if isinstance(group, int) and group > 1 and shape[1] <= 4:
            return 2.0 * size * depth, 0.15
        return 2.0 * size * depth, 0.75 if shape[1] >= 8 else 0.4

    def _channels_first_conv(
        self, attrs: Attrs, inputs: Sequence[ValueType | None], outputs: Sequence[ValueType | None]
    ) -> tuple[float, float]:
        return self._convolution(attrs, inputs, outputs, windows.channels_first, 2)

    def _channels_last_conv(
        self, attrs: Attrs, inputs: Sequence[ValueType | None], outputs: Sequence[ValueType | None]
    ) -> tuple[float, float]:
        return self._convolution(attrs, inputs, outputs, windows.channels_last, 1)

    def _convolution(
        self,
        attrs: Attrs,
        inputs: Sequence[ValueType | None],
        outputs: Sequence[ValueType | None],
        cycles: Callable[[windows.Convolution], float],
        spatial: int,
        weight: int = 1,
    ) -> tuple[float, float]:
        """A convolution by our kernels, if it is they that are judged; the spatial dims of its result begin at this
        place, the weights are that input."""
        if not self._lanes:
            return self._conv(attrs, inputs, outputs, weight)
        shape, out = self._shape(inputs, weight), self._shape(outputs, 0)
        size = self.elements(outputs[0])
        if shape is None or len(shape) < 3 or out is None or len(out) != len(shape):
            return 2.0 * size * 64, 0.5
        flops = 2.0 * size * math.prod(shape[1:])
        extents = out[spatial : spatial + len(shape) - 2]
        found = attrs.get("group", 1)
        groups = float(found) if isinstance(found, int) and found > 0 else 1.0
        strides, dilations = (_ints(attrs, name) for name in ("strides", "dilations"))
        took = cycles(
            windows.Convolution(
                images=out[0],
                pixels=math.prod(extents),
                width=extents[-1],
                groups=groups,
                channels=shape[1],
                filters=shape[0] / groups,
                taps=math.prod(shape[2:]),
                stride=max(strides, default=1),
                unit=all(step == 1 for step in (*strides, *dilations)),
                square=int(shape[2]) if len(shape) == 4 and shape[2] == shape[3] else 0,
                lanes=self._lanes,
            )
        )
        return flops, flops / (4.0 * self._lanes * took) if took else 1.0

    def _conv_transpose(
        self, attrs: Attrs, inputs: Sequence[ValueType | None], outputs: Sequence[ValueType | None]
    ) -> tuple[float, float]:
        shape = self._shape(inputs, 1)
        return 2.0 * self.elements(inputs[0]) * (64 * 9 if shape is None else math.prod(shape[1:])), 0.5

    def _matmul(
        self, attrs: Attrs, inputs: Sequence[ValueType | None], outputs: Sequence[ValueType | None]
    ) -> tuple[float, float]:
        """Matrix products, 2 · |out| · K."""
        shape = self._shape(inputs, 0)
        depth = float(self._nominal)
        if shape:
            depth = shape[0] if attrs.get("transA") and len(shape) > 1 else shape[-1]
        return 2.0 * self.elements(outputs[0]) * max(depth, 1.0), 0.8

    def _conv_bf16(
        self, attrs: Attrs, inputs: Sequence[ValueType | None], outputs: Sequence[ValueType | None]
    ) -> tuple[float, float]:
        """A convolution of operands that are rounded first, the inputs as they are gathered."""
        flops, efficiency = self._convolution(attrs, inputs, outputs, windows.direct_first, 2)
        efficiency *= self._rates.get("bf16", 1.0)
        rounding = 2.0 * self.elements(inputs[0]) / 0.25
        return flops, flops / (flops / efficiency + rounding)

    def _channels_last_conv_bf16(
        self, attrs: Attrs, inputs: Sequence[ValueType | None], outputs: Sequence[ValueType | None]
    ) -> tuple[float, float]:
        """A convolution of what has been rounded before."""
        flops, efficiency = self._convolution(attrs, inputs, outputs, windows.direct_last, 1)
        return flops, efficiency * self._rates.get("bf16", 1.0)

    def _matmul_bf16(
        self, attrs: Attrs, inputs: Sequence[ValueType | None], outputs: Sequence[ValueType | None]
    ) -> tuple[float, float]:
        """Matrix products of operands that are rounded first: a pass over the left one, two operations an element."""
        flops, efficiency = self._matmul(attrs, inputs, outputs)
        efficiency *= self._rates.get("bf16", 1.0)
        rounding = 2.0 * self.elements(inputs[0]) / 0.25
        return flops, flops / (flops / efficiency + rounding)

    def _einsum(
        self, attrs: Attrs, inputs: Sequence[ValueType | None], outputs: Sequence[ValueType | None]
    ) -> tuple[float, float]:
        """The full index space, as if nothing were factored out."""
        equation = str(attrs.get("equation", "")).replace(" ", "")
        extents: dict[str, float] = {}
        for index, term in enumerate(equation.partition("->")[0].split(",")):
            shape = self._shape(inputs, index)
            if shape is None or "." in term or len(shape) != len(term):
                return 2.0 * self.elements(outputs[0]) * self._nominal, 0.3
            extents.update(zip(term, shape, strict=True))
        return 2.0 * math.prod(extents.values()), 0.3

    def _attention(
        self,
        attrs: Attrs,
        inputs: Sequence[ValueType | None],
        outputs: Sequence[ValueType | None],
        bf16: bool = False,
    ) -> tuple[float, float]:
        """Q·Kᵀ, softmax, ·V: 2 · S · (|Q| + |out|) and the softmax's share, S being the keys' length.

        In `bf16` operands are rounded first, two operations an element, weights as they are computed."""
        query, keys = self._shape(inputs, 0), self._shape(inputs, 1)
        length = keys[-2] if keys and len(keys) >= 3 else query[-2] if query and len(query) >= 2 else self._nominal
        heads = attrs.get("q_num_heads") or attrs.get("num_heads") or 1
        rows = UNKNOWN_ELEMENTS / 64
        if query and len(query) == 4:
            rows = math.prod(query[:3])
        elif query and len(query) == 3 and isinstance(heads, int):
            rows = query[0] * query[1] * heads
        products = 2.0 * length * (self.elements(inputs[0]) + self.elements(outputs[0]))
        softmax = _NORMS["Softmax"] * rows * length
        rounding = 0.0
        if bf16:
            rounding = 2.0 * sum(self.elements(t) for t in inputs[:3]) + rows * length
        took = products / (0.8 * (self._rates.get("bf16", 1.0) if bf16 else 1.0)) + (softmax + rounding) / 0.25
        return products + softmax, (products + softmax) / max(took, 1.0)

    def _recurrent(
        self, attrs: Attrs, inputs: Sequence[ValueType | None], outputs: Sequence[ValueType | None]
    ) -> tuple[float, float]:
        """A step multiplies every row by W and R: 2 · T · B · (|W| + |R|)."""
        x = self._shape(inputs, 0)
        steps = x[0] * x[1] if x and len(x) == 3 else float(self._nominal)
        weights = sum(self.elements(t) for t in inputs[1:3])
        return 2.0 * steps * weights + 3 * _EXP * sum(self.elements(t) for t in outputs), 0.3

    def _pool(
        self, attrs: Attrs, inputs: Sequence[ValueType | None], outputs: Sequence[ValueType | None]
    ) -> tuple[float, float]:
        kernel = attrs.get("kernel_shape")
        window = math.prod(k for k in kernel if isinstance(k, int)) if isinstance(kernel, tuple) else 9
        size = self.elements(outputs[0])
        if self._lanes and size:
            took = windows.pool_first(window, size, self._lanes)
            return window * size, window * size / (4.0 * self._lanes * took)
        return float(window) * size, 0.2

    def _channels_last_pool(
        self, attrs: Attrs, inputs: Sequence[ValueType | None], outputs: Sequence[ValueType | None]
    ) -> tuple[float, float]:
        kernel, shape, size = _ints(attrs, "kernel_shape"), self._shape(outputs, 0), self.elements(outputs[0])
        if not self._lanes or not shape or not size:
            return float(math.prod(kernel)) * size, 0.2
        took = windows.pool_last(math.prod(kernel), size, shape[-1], self._lanes)
        return math.prod(kernel) * size, math.prod(kernel) * size / (4.0 * self._lanes * took)

    def _resize(
        self, attrs: Attrs, inputs: Sequence[ValueType | None], outputs: Sequence[ValueType | None]
    ) -> tuple[float, float]:
        taps = {"nearest": 1.0, "linear": 8.0}.get(str(attrs.get("mode", "nearest")), 40.0)
        return taps * self.elements(outputs[0]), 0.1

    def _conv_of_bytes(
        self,
        attrs: Attrs,
        inputs: Sequence[ValueType | None],
        outputs: Sequence[ValueType | None],
        last: bool = False,
        weight: int = 1,
    ) -> tuple[float, float]:
        """A convolution of bytes, its channels first or last."""
        rate = self._rates.get("int8", 1.0)
        if not self._lanes:
            flops, efficiency = self._conv(attrs, inputs, outputs, weight)
            return flops, efficiency * rate
        cycles = partial(windows.bytes_last if last else windows.bytes_first, rate=rate)
        return self._convolution(attrs, inputs, outputs, cycles, 1 if last else 2, weight)

    def _deform_conv(
        self, attrs: Attrs, inputs: Sequence[ValueType | None], outputs: Sequence[ValueType | None]
    ) -> tuple[float, float]:
        flops, _ = self._conv(attrs, inputs, outputs)
        return flops, 0.1


_OF_BYTES = frozenset(_names("MatMulInteger QLinearMatMul"))
_Rule = Callable[[Estimator, Attrs, Sequence[ValueType | None], Sequence[ValueType | None]], tuple[float, float]]
_COMPLEX: dict[str, _Rule] = {
    **dict.fromkeys(("Conv", "FusedConv"), Estimator._channels_first_conv),
    "ConvInteger": Estimator._conv_of_bytes,
    "QLinearConv": partial(Estimator._conv_of_bytes, weight=3),
    "rewrite.ChannelsLastConvInteger": partial(Estimator._conv_of_bytes, last=True),
    "rewrite.ChannelsLastQLinearConv": partial(Estimator._conv_of_bytes, last=True, weight=3),
    "rewrite.ChannelsLastConv": Estimator._channels_last_conv,
    **dict.fromkeys(("rewrite.ChannelsLastMaxPool", "rewrite.ChannelsLastAveragePool"), Estimator._channels_last_pool),
    "ConvTranspose": Estimator._conv_transpose,
    "DeformConv": Estimator._deform_conv,
    **dict.fromkeys(
        ("MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "FusedMatMul", "FusedGemm"), Estimator._matmul
    ),
    "rewrite.MatMulBf16": Estimator._matmul_bf16,
    "rewrite.ConvBf16": Estimator._conv_bf16,
    "rewrite.ChannelsLastConvBf16": Estimator._channels_last_conv_bf16,
    "Einsum": Estimator._einsum,
    **dict.fromkeys(
        ("Attention", "rewrite.ScaledDotProductAttention", "MultiHeadAttention", "GroupQueryAttention"),
        Estimator._attention,
    ),
    "rewrite.AttentionBf16": partial(Estimator._attention, bf16=True),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), Estimator._recurrent),
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool"), Estimator._pool),
    "Resize": Estimator._resize,
}
