"""Attributes of ONNX operators as instances try them: by kind, by name, and what names of modes there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..graph import AttrValue, DType
from ..operators import normalise_attrs, signature

_MODES = (
    ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    ("constant", "edge", "reflect", "wrap"),
    ("nearest", "linear", "cubic"),
    ("DCR", "CRD"),
    ("none", "tanh"),
    ("none", "add", "mul", "max", "min"),
    ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric", "tf_crop_and_resize"),
    ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    ("forward", "reverse", "bidirectional"),
    ("LEFT", "RIGHT"),
    ("stretch", "not_larger", "not_smaller"),
)
FLAGS = frozenset(
    (
        "allowzero", "ceil_mode", "count_include_pad", "exclusive", "fmod", "is_causal", "keepdims", "largest",
        "noop_with_empty_axes", "reverse", "saturate", "select_last_index", "sorted", "storage_order",
        "transA", "transB", "upper", "exclude_outside", "antialias",
    )
)  # fmt: skip
_LEFT_ALONE = frozenset(
    ("training_mode", "output_dtype", "stash_type", "softmax_precision", "qk_matmul_output_mode", "body",
     "num_outputs")
)  # fmt: skip
"""Attributes that have to fit to others, so that drawn ones would seldom be valid."""
CAST_TARGETS = (DType.F32, DType.F64, DType.F16, DType.I64, DType.I32, DType.I8, DType.U8, DType.BOOL, DType.BF16)


def other_mode(value: str, rng: np.random.Generator) -> str | None:
    """Another word where this one may stand; None if none is known."""
    found = [word for modes in _MODES if value in modes for word in modes if word != value]
    return None if not found else str(rng.choice(np.array(found)))


def few_values(op: str, name: str) -> tuple[int, ...] | None:
    """All values worth trying of an attribute that names an element type which a quantisation computes in or gives out;
    None for other attributes. A coarse one shows who takes for granted that it is that of the operands."""
    if name == "precision":
        return (0, DType.BF16.onnx, DType.F16.onnx, DType.F32.onnx)
    if name == "output_dtype" and op == "DequantizeLinear":
        return (0, DType.BF16.onnx, DType.F16.onnx)
    if name == "output_dtype" and op == "QuantizeLinear":
        return (0, DType.I8.onnx, DType.U8.onnx, DType.I16.onnx)
    return None


def every_value(op: str, name: str, rank: int) -> tuple[AttrValue, ...] | None:
    """All values worth trying of an attribute of an operator on a tensor of some rank, where they are few; None for
    others, and for attributes that are left alone."""
    known = signature(op)
    formal = known.attributes.get(name) if known is not None else None
    if formal is None:
        return None
    if name in FLAGS:
        return (0, 1)
    if (few := few_values(op, name)) is not None:
        return few
    if name in _LEFT_ALONE or name in ("to", "dtype"):
        return None
    if name == "axis":
        return tuple(range(-rank, rank)) if rank else (0,)
    if name in ("start", "end"):
        return (0, 1, 2, -1)
    if formal.kind == "INT":
        return (1, 2, 3) if name in ("group", "blocksize") else (0, 1, 2)
    if formal.kind == "STRING" and isinstance(formal.default, str):
        return tuple(dict.fromkeys(word for modes in _MODES if formal.default in modes for word in modes)) or None
    return None


def draw_attribute(op: str, name: str, rank: int, rng: np.random.Generator) -> AttrValue | None:
    """A value for an attribute of an operator on a tensor of some rank; None if there is nothing to draw."""
    known = signature(op)
    formal = known.attributes.get(name) if known is not None else None
    if formal is None:
        return None
    spatial = max(rank - 2, 1)
    if name in FLAGS:
        return int(rng.integers(2))
    if (few := few_values(op, name)) is not None:
        return int(rng.choice(few))
    if name in _LEFT_ALONE:
        return None
    if name == "axis":
        return int(rng.integers(-rank, rank)) if rank else 0
    if name == "group":
        return int(rng.choice([1, 1, 2, 3]))
    if name in ("to", "dtype"):
        return CAST_TARGETS[int(rng.integers(len(CAST_TARGETS)))].onnx
    if name in ("pads", "output_padding"):
        return tuple(int(v) for v in rng.integers(0, 3, 2 * spatial if name == "pads" else spatial))
    if name in ("strides", "dilations"):
        return tuple(int(v) for v in rng.integers(1, 3, spatial))
    if name == "kernel_shape":
        return tuple(int(v) for v in rng.integers(1, 4, spatial))
    if name == "perm":
        return tuple(int(v) for v in rng.permutation(rank))
    if name == "epsilon":
        return float(np.float32(rng.choice([1e-5, 1e-3, 0.5])))
    if name == "blocksize":
        return int(rng.choice([1, 2, 3]))
    if formal.kind == "INT":
        return int(rng.integers(0, 3))
    if formal.kind == "FLOAT":
        return float(rng.choice([0.5, 1.0, 2.0, -1.0, 0.0, 0.25]))
    if formal.kind == "STRING" and isinstance(formal.default, str):
        return other_mode(formal.default, rng) if rng.random() < 0.7 else formal.default
    if formal.kind == "INTS" and name == "axes":
        return tuple(int(v) for v in sorted(rng.permutation(max(rank, 1))[: int(rng.integers(1, max(rank, 1) + 1))]))
    return None


def draw_attributes(op: str, rank: int, rng: np.random.Generator) -> dict[str, AttrValue]:
    """Attributes for an operator: all that it needs, of the others a few."""
    known = signature(op)
    found: dict[str, AttrValue] = {}
    for name, formal in (known.attributes if known is not None else {}).items():
        if formal.required or rng.random() < 0.25:
            value = draw_attribute(op, name, rank, rng)
            if value is not None:
                found[name] = value
    return normalise_attrs(op, found)


def operators_of(kind: str, inputs: int, kinds: Mapping[str, str]) -> list[str]:
    """The operators of a kind that take so many inputs."""
    found = []
    for op, own in sorted(kinds.items()):
        known = signature(op) if own == kind else None
        if known is not None and not known.deprecated and known.min_inputs <= inputs:
            if known.max_inputs is None or inputs <= known.max_inputs:
                found.append(op)
    return found


def change_number(value: float | int, ranks: Sequence[int], pool: Sequence[float], rng: np.random.Generator) -> Any:
    """Another number in place of an attribute's."""
    if isinstance(value, int):
        choices = [value + 1, value - 1, 0, 1, -1, 2, *(value - r for r in ranks), *(value + r for r in ranks)]
        choices += [int(p) for p in pool if p == int(p) and abs(p) < 100]
        return int(rng.choice([c for c in choices if c != value]))
    choices_f = [0.0, 1.0, -1.0, 2 * value, -value, 0.5, 1e-3, *(p for p in pool if np.isfinite(p))]
    return float(np.float32(rng.choice([c for c in choices_f if c != value] or [1.5])))


def change_list(value: list[Any], ranks: Sequence[int], pool: Sequence[float], rng: np.random.Generator) -> list[Any]:
    """Another list in place of an attribute's or of an integer tensor's contents."""
    found = list(value)
    kind = rng.integers(9)
    if not found or (kind == 0 and len(found) < 8):
        return [*found, int(rng.integers(0, 3))]
    if kind == 1 and len(found) > 1:
        del found[int(rng.integers(len(found)))]
    elif kind in (2, 3) and len(found) > 1:
        found = [found[int(i)] for i in rng.permutation(len(found))]
    elif kind == 8 and len(found) > 1 and all(type(v) is int for v in found):
        one, other = (int(i) for i in rng.permutation(len(found))[:2])
        found[one], found[other] = found[one] + 1, found[other] - 1  # what adds up to the same
    elif kind == 4 and all(isinstance(v, int) for v in found):
        found = [int(v) for v in rng.integers(0, 3, len(found))]
    elif kind == 5 and all(isinstance(v, int) for v in found):
        rank = int(rng.choice(list(ranks) or [2]))
        found = [v - rank if v >= 0 else v + rank for v in found]
    else:
        at = int(rng.integers(len(found)))
        if isinstance(found[at], bool) or not isinstance(found[at], int | float):
            return found
        found[at] = change_number(found[at], ranks, pool, rng)
    return found
