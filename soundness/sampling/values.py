"""Values that instances try: contents of tensors, ordinary ones and those at which identities fail, and attributes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.ir.graph import AttrValue, DType
from ...engine.ir.values import OpRef
from ...engine.operators.schemas import attributes_of, normalize_attrs, signature

Array = NDArray[Any]

PLAIN, SPECIAL, LONE, EXTREME, SMALL, ZEROS, WIDE = "plain", "special", "lone", "extreme", "small", "zeros", "wide"
SWAPPED, NEAR, LOW = "swapped", "near", "low"
"""Styles of values.

`plain`: ordinary. `special`: a third are NaN, infinities, zeros and ones. `lone`: a single NaN or infinity in some
inputs, which shows how far it propagates. `extreme`: `special`, with the largest and smallest magnitudes. `small`:
small whole numbers, one of several 0. `zeros`: mostly zeros of either sign. `swapped`: the same, where extrema return
the other one of two zeros. `wide`: a magnitude of its own for each tensor, anywhere in the type's range or where
exponentials overflow.
`near`: multiples of the instance's own constants, and numbers that differ little from these or from each other, so that
they lie on either side of bounds, saturate, and become equal when they are rounded. `low`: a sixth of `plain`, so that
sums of products in f16 are still small enough that `fast` rules have to keep them finite."""

_SPECIAL = np.array((np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0))
_EXTREMES = {
    DType.F64: np.array((1.7e308, -1.7e308, 5e-324, -3e-310, 2.0**53 + 2, 0.5, 1.5, 2.5)),
    DType.F16: np.array((65504.0, -65504.0, 6e-8, -6e-7, 2050.0, 0.5, 1.5, 2.5)),
    DType.F32: np.array((3.4e38, -3.4e38, 1e-45, -1e-41, 16777218.0, 0.5, 1.5, 2.5)),
}
"""Largest and smallest magnitudes; other types have those of single precision."""
_RANGES = {DType.F64: (900, 709.0), DType.F16: (12, 11.0), DType.F32: (105, 88.0)}
"""Binary exponents up to which `wide` goes, and the logarithm of the largest number, from which exponentials overflow;
other types have the range of single precision."""


def trials(numerics: str, *, signed_zero: bool = False) -> tuple[str, ...]:
    """Return the styles on which a numerics class must hold; `signed_zero` says that the sign of zeros may change.

    Some instances are computed on every other one, so `special` and `extreme`, which alone have ends of integer types,
    are not two apart."""
    if numerics == "exact":
        return (PLAIN, SPECIAL, EXTREME, LONE, SMALL, NEAR, *(() if signed_zero else (ZEROS, SWAPPED)))
    return (PLAIN, SPECIAL, LONE, SMALL, NEAR, WIDE, WIDE, WIDE) if numerics == "reassoc" else (PLAIN, LOW, SMALL, NEAR)


_FACTORS = np.array(
    (1.0, 1.0, 0.5, 1.5, 2.0, -1.0, -1.5, 1 + 2.0**-4, 1 - 2.0**-8, 1 + 2.0**-12, 1 - 2.0**-22, 1 + 2.0**-40)
)
"""Factors of the constants that `near` draws around."""
_SIGNS, _MULTIPLES = np.array((-1, 1)), np.array((1, 1, 2, -1))
_NO_ANCHORS = np.array((1.0, 2.0))
_ZEROS = np.array((-0.0, -0.0, 0.0, 1.0))


def choose(rng: np.random.Generator, values: Array, shape: int | tuple[int, ...] | None = None) -> Any:
    """Return random elements of a vector: those of `rng.choice`, whose checks take longer than drawing a few."""
    return values[rng.integers(0, len(values), shape)]


def draw(
    dtype: DType,
    shape: tuple[int, ...],
    rng: np.random.Generator,
    style: str = PLAIN,
    anchors: Sequence[float] = (),
) -> Array:
    """Draw an array of a type in a style; `near` draws around the anchors, if there are any."""
    if dtype is DType.BOOL:
        return np.asarray(rng.random(shape) < 0.5)
    if dtype is DType.STRING:
        return np.asarray(rng.choice(np.array(["a", "b", "ab"], dtype=object), shape), dtype=object)
    if not dtype.is_float:
        return _integers(dtype, shape, rng, style, anchors)
    array = rng.standard_normal(shape) * 1.5
    if style == LOW:
        array /= 6
    if style == SMALL:
        array = rng.integers(-2, 3, shape).astype(np.float64)
        if array.size > 1:
            array.reshape(-1)[int(rng.integers(array.size))] = 0.0
    if style == WIDE:
        exponent, logarithm = _RANGES.get(dtype, _RANGES[DType.F32])
        if rng.random() < 0.25:
            array = choose(rng, _SIGNS) * rng.uniform(0.9, 1.2, shape) * logarithm
        else:
            array *= 2.0 ** rng.uniform(-exponent, exponent)
    if style == NEAR:
        array = choose(rng, np.array(anchors) if anchors else _NO_ANCHORS, shape) * choose(rng, _FACTORS, shape)
    if style in (ZEROS, SWAPPED):
        array = choose(rng, _ZEROS, shape)
    if style == LONE and array.size and rng.random() < 0.6:
        array.reshape(-1)[int(rng.integers(array.size))] = choose(rng, _SPECIAL[:3])
    if style in (SPECIAL, EXTREME) and array.size:
        flat = array.reshape(-1)
        count = max(1, array.size // 3)
        spots = rng.integers(0, array.size, count)
        flat[spots] = choose(rng, _SPECIAL, count)
        if style == EXTREME:
            spots = rng.integers(0, array.size, count)
            flat[spots] = choose(rng, _EXTREMES.get(dtype, _EXTREMES[DType.F32]), count)
    with np.errstate(all="ignore"):
        return np.asarray(array.astype(dtype.numpy))


def _integers(
    dtype: DType, shape: tuple[int, ...], rng: np.random.Generator, style: str, anchors: Sequence[float] = ()
) -> Array:
    if style == NEAR and anchors and dtype.bits >= 8:
        limits = np.iinfo(np.dtype(dtype.numpy.name))
        ends = (limits.max, limits.max) if dtype.bits <= 16 else ()  # where neighbors become equal in coarse floats
        near = choose(rng, np.array((*anchors, *ends)), shape) * choose(rng, _MULTIPLES, shape)
        near = near + rng.integers(-1, 2, shape)
        return np.asarray(np.clip(near, max(limits.min, -(2**62)), min(limits.max, 2**62)).astype(dtype.numpy))
    low, high = (-4, 5) if style == PLAIN else (-2, 3)
    array = rng.integers(low if dtype.value[0] == "i" else 0, high, shape)
    if style not in (SPECIAL, EXTREME) or not array.size or dtype.bits < 8:
        return np.asarray(array.astype(dtype.numpy))
    limits = np.iinfo(np.dtype(dtype.numpy.name))
    if dtype.bits == 8:  # few enough values to cover the whole range
        array = rng.integers(limits.min, limits.max + 1, shape)
    count = max(1, array.size // 3)
    moderate = 7 if dtype.bits == 8 else 300  # products of the limits by themselves wrap around to small numbers
    choices = np.array([limits.max, limits.min, limits.max - 1, limits.max // 2 + 1, 7, moderate], dtype=dtype.numpy)
    found = array.astype(dtype.numpy)
    flat = found.reshape(-1)
    flat[rng.integers(0, array.size, count)] = choose(rng, choices, count)
    if style == EXTREME and flat.size > 2:  # both ends, with a number between them
        flat[0], flat[-1] = limits.max, limits.min
    return found


# --- attributes ---

_MODES = (
    ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    ("constant", "edge", "reflect", "wrap"),
    ("nearest", "linear", "cubic"),
    ("DCR", "CRD"),
    ("none", "tanh"),
    ("none", "add", "mul", "max", "min"),
    ("none", "mean", "sum"),
    ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric", "tf_crop_and_resize"),
    ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    ("forward", "reverse", "bidirectional"),
    ("LEFT", "RIGHT"),
    ("stretch", "not_larger", "not_smaller"),
)
FLAGS = frozenset({
    "allowzero", "ceil_mode", "count_include_pad", "exclusive", "fmod", "is_causal", "keepdims", "largest",
    "noop_with_empty_axes", "reverse", "saturate", "select_last_index", "sorted", "storage_order",
    "transA", "transB", "upper", "exclude_outside", "antialias",
})  # fmt: skip
_DEPENDENT = (
    "training_mode", "output_dtype", "stash_type", "softmax_precision", "qk_matmul_output_mode", "num_outputs",
)  # fmt: skip
"""Attributes that depend on others, so that drawn values would rarely be valid."""
_DTYPES = {
    ("QuantizeLinear", "output_dtype"): (DType.I8, DType.U8, DType.I16),
    ("DequantizeLinear", "output_dtype"): (DType.BF16, DType.F16),
    ("QuantizeLinear", "precision"): (DType.BF16, DType.F16, DType.F32),
}
"""Element types of quantizations worth trying besides the default: a coarse one exposes rules that assume it to be that
of the operands."""
_CAST_TARGETS = (DType.F32, DType.F64, DType.F16, DType.I64, DType.I32, DType.I8, DType.U8, DType.BOOL, DType.BF16)


def modes(value: str) -> list[str]:
    """Return the other words that may stand in place of a mode."""
    return list(dict.fromkeys(word for words in _MODES if value in words for word in words if word != value))


def every_value(op: str, name: str, rank: int) -> tuple[AttrValue, ...] | None:
    """Return all values worth trying of an attribute on a tensor of some rank; None if they are many or none."""
    formal = attributes_of(op).get(name)
    if formal is None:
        return None
    if name in FLAGS:
        return (0, 1)
    if (op, name) in _DTYPES:
        return (0, *(dtype.onnx for dtype in _DTYPES[op, name]))
    if name in _DEPENDENT or name in ("to", "dtype"):
        return None
    if name == "axis":
        return tuple(range(-rank, rank)) if rank else (0,)
    if (
        name == "pads" and rank > 2
    ):  # at one end only, a window covers other elements than with as much at the other end
        n = rank - 2
        return ((1,) * 2 * n, (1,) * n + (0,) * n, (0,) * n + (1,) * n, (1,) + (0,) * (2 * n - 1), (2, 1) * n)
    if name in ("start", "end"):
        return (0, 1, 2, -1)
    if formal.kind == "INT":
        return (1, 2, 3) if name in ("group", "blocksize") else (0, 1, 2)
    if formal.kind == "STRING" and isinstance(formal.default, str):
        return (formal.default, *modes(formal.default)) if modes(formal.default) else None
    return None


def draw_attribute(op: str, name: str, rank: int, rng: np.random.Generator) -> AttrValue | None:
    """Draw a value for an attribute on a tensor of some rank; None if there is nothing to draw."""
    formal = attributes_of(op).get(name)
    if formal is None:
        return None
    spatial = max(rank - 2, 1)
    match name:
        case "group":
            return int(rng.choice([1, 1, 2, 3]))
        case "to" | "dtype":
            return _CAST_TARGETS[int(rng.integers(len(_CAST_TARGETS)))].onnx
        case "start" | "end":
            return int(rng.integers(0, 3))
        case "pads" | "output_padding":
            return tuple(int(v) for v in rng.integers(0, 3, 2 * spatial if name == "pads" else spatial))
        case "strides" | "dilations" | "kernel_shape":
            return tuple(int(v) for v in rng.integers(1, 4 if name == "kernel_shape" else 3, spatial))
        case "perm":
            return tuple(int(v) for v in rng.permutation(rank))
        case "epsilon":
            return float(np.float32(rng.choice([1e-5, 1e-3, 0.5])))
        case "axes" if formal.kind == "INTS":
            size = max(rank, 1)
            return tuple(int(v) for v in sorted(rng.permutation(size)[: int(rng.integers(1, size + 1))]))
    if formal.kind == "FLOAT":
        return float(rng.choice([0.5, 1.0, 2.0, -1.0, 0.0, 0.25]))
    if formal.kind == "STRING" and isinstance(formal.default, str):
        found = modes(formal.default)
        return str(rng.choice(found)) if found and rng.random() < 0.7 else formal.default
    values = every_value(op, name, rank)
    return None if values is None else values[int(rng.integers(len(values)))]


def draw_attributes(
    op: str, rank: int, rng: np.random.Generator, share: float = 0.25, without: Collection[str] = ()
) -> dict[str, AttrValue]:
    """Draw attributes for an operator: all required ones and a share of the others."""
    found: dict[str, AttrValue] = {}
    for name, formal in attributes_of(op).items():
        if name not in without and (formal.required or rng.random() < share):
            value = draw_attribute(op, name, rank, rng)
            if value is not None:
                found[name] = value
    return found


def draw_operator(op: str, rank: int, rng: np.random.Generator) -> OpRef:
    """Return an operator with drawn attributes."""
    return OpRef(op, normalize_attrs(op, draw_attributes(op, rank, rng)))


def operators_of(kind: str, inputs: int, kinds: Mapping[str, str]) -> list[str]:
    """Return the operators of a kind that accept this number of inputs."""
    known = {op: signature(op) for op, own in sorted(kinds.items()) if own == kind}
    return [
        op
        for op, found in known.items()
        if found is not None and not found.deprecated and found.min_inputs <= inputs
        if found.max_inputs is None or inputs <= found.max_inputs
    ]
