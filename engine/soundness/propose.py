"""Operands that operators take: a type, or the contents of a constant, for one input given the others.

What the schemas do not say (that a bias has as many elements as there are filters) is here; shape inference says
afterwards whether it fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph import DType, TensorType
from ..operators import signature
from .operand import Tensor

Shape = tuple[int, ...]
_PREFERRED = (
    DType.F32,
    DType.F32,
    DType.F32,
    DType.F64,
    DType.I64,
    DType.I32,
    DType.BOOL,
    DType.U8,
    DType.I8,
    DType.F16,
)


@dataclass(frozen=True)
class Site:
    """One input of an operator that is to be filled: the types of the others as far as they are known."""

    op: str
    index: int
    types: Sequence[TensorType | None]
    attrs: Mapping[str, Any]
    rng: np.random.Generator
    rank: int
    dims: Shape

    def shape(self, index: int) -> Shape | None:
        """The shape of another input, if known as numbers."""
        if index >= len(self.types) or (type_ := self.types[index]) is None or type_.shape is None:
            return None
        return tuple(d for d in type_.shape if isinstance(d, int)) if type_.is_static else None

    def known(self) -> Shape | None:
        """The shape of the first input of which it is known."""
        return next((s for i in range(len(self.types)) if (s := self.shape(i)) is not None), None)

    def dim(self) -> int:
        """One of the extents in use."""
        return int(self.dims[int(self.rng.integers(len(self.dims)))])

    def some(self, rank: int) -> Shape:
        """A shape of extents in use."""
        return tuple(self.dim() for _ in range(rank))

    def attr(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self.attrs.get(name, default)
        return value if isinstance(value, int) else default

    def axis(self, rank: int, default: int = 0) -> int:
        """The attribute `axis` counted from the front."""
        return self.attr("axis", default) % rank if rank else 0


def dtype_for(site: Site) -> DType:
    """An element type that the schema allows at an input beside the others."""
    found = signature(site.op)
    if found is None or not found.inputs:
        known = next((t.dtype for t in site.types if t is not None and t.dtype is not None), None)
        return known or DType.F32
    formal = found.inputs[min(site.index, len(found.inputs) - 1)]
    for i, type_ in enumerate(site.types):
        other = found.inputs[min(i, len(found.inputs) - 1)]
        if type_ is not None and type_.dtype is not None and other.type == formal.type and formal.homogeneous:
            return type_.dtype
    allowed = [d for d in _PREFERRED if str(d) in formal.dtypes]
    if not allowed:
        return DType(sorted(formal.dtypes)[0]) if formal.dtypes else DType.F32
    if DType.I64 in allowed and not any(d.is_float for d in allowed):
        return DType.I64 if site.rng.random() < 0.9 else allowed[int(site.rng.integers(len(allowed)))]
    return allowed[int(site.rng.integers(len(allowed)))]


def shape_for(site: Site) -> Shape:
    """A shape for an input beside the others."""
    rule = _SHAPES.get(site.op)
    if rule is not None and (found := rule(site)) is not None:
        return found
    known = site.known()
    return site.some(site.rank) if known is None else _broadcast(site, known)


def _broadcast(site: Site, known: Shape) -> Shape:
    """A shape that broadcasts with a known one."""
    kind = int(site.rng.integers(6))
    if kind <= 1:
        return known
    if kind == 2:
        return tuple(d if site.rng.random() < 0.5 else 1 for d in known)
    if kind == 3:
        return known[int(site.rng.integers(len(known) + 1)) :]
    if kind == 4:
        return ()
    return (1,) if site.rng.random() < 0.6 else (site.dim(), *known)[:5]


def contents_for(site: Site) -> np.ndarray[Any, Any] | None:
    """Contents for an input that says how: a shape, axes, bounds; None for an input of data."""
    rule = _CONTENTS.get((site.op, site.index))
    if rule is None and site.op.startswith("Reduce") and site.index == 1:
        rule = _axes
    found = None if rule is None else rule(site)
    return None if found is None else np.asarray(found, dtype=np.int64)


def constant(array: np.ndarray[Any, Any]) -> Tensor:
    """A constant operand."""
    return Tensor.of(array)


# --- shapes by operator ---


def _matmul(site: Site) -> Shape | None:
    a, b = site.shape(0), site.shape(1)
    if site.index == 0:
        inner = site.dim() if b is None else b[-2] if len(b) > 1 else b[0] if b else None
        return None if inner is None else (*site.some(max(site.rank - 1, 1)), inner)
    if not a:
        return (site.dim(), site.dim())
    batch = a[:-2] if site.rng.random() < 0.4 else ()
    return (*batch, a[-1], site.dim())


def _gemm(site: Site) -> Shape | None:
    a, b = site.shape(0), site.shape(1)
    left, right = bool(site.attr("transA", 0)), bool(site.attr("transB", 0))
    if site.index == 0:
        inner = None if not b else b[1] if right else b[0]
        outer, inner = site.dim(), site.dim() if inner is None else inner
        return (inner, outer) if left else (outer, inner)
    if a is None or len(a) != 2:
        return None
    inner, rows = (a[0], a[1]) if left else (a[1], a[0])
    if site.index == 1:
        return (site.dim(), inner) if right else (inner, site.dim())
    if b is None or len(b) != 2:
        return None
    columns = b[0] if right else b[1]
    options: list[Shape] = [(columns,), (rows, columns), (1, columns), (rows, 1), (1,), ()]
    return options[int(site.rng.integers(len(options)))]


def _conv(site: Site) -> Shape | None:
    x, w = site.shape(0), site.shape(1)
    group = max(site.attr("group", 1), 1)
    transposed = site.op == "ConvTranspose"
    if len(set(site.dims)) == 1 and group == 1 and site.index < 2 and 0 < site.dims[0] < 4:
        known = w if site.index == 0 else x
        return (site.dims[0],) * (int(site.rng.choice([3, 4, 4])) if known is None else len(known))
    if site.index == 0:
        spatial = (len(w) - 2) if w is not None else int(site.rng.choice([1, 2, 2]))
        channels = site.dim() * group if w is None else w[0] if transposed else w[1] * group
        return (int(site.rng.choice([1, 2])), channels, *(int(site.rng.integers(4, 7)) for _ in range(spatial)))
    if x is None or len(x) < 3:
        return None
    if site.index == 1:
        sizes = site.attrs.get("kernel_shape")
        kernel = (
            tuple(sizes) if isinstance(sizes, tuple) else tuple(int(v) for v in site.rng.integers(1, 4, len(x) - 2))
        )
        if transposed:
            return (x[1], max(site.dim(), 1), *kernel)
        return (max(site.dim(), 1) * group, max(x[1] // group, 1), *kernel)
    return None if w is None else ((w[1] * group,) if transposed else (w[0],))


def _image(site: Site) -> Shape | None:
    if site.index:
        return None
    spatial = int(site.rng.choice([1, 2, 2]))
    return (int(site.rng.choice([1, 2])), max(site.dim(), 1), *(int(site.rng.integers(3, 7)) for _ in range(spatial)))


def _per_channel(site: Site) -> Shape | None:
    if site.index == 0:
        return (site.dim(), max(site.dim(), 1), *site.some(int(site.rng.integers(1, 3))))
    x = site.shape(0)
    return None if x is None or len(x) < 2 else (x[1],)


def _layer_norm(site: Site) -> Shape | None:
    x = site.shape(0)
    if site.index == 0:
        return site.some(max(site.rank, 1))
    return None if x is None else x[site.axis(len(x), -1) :]


def _concat(site: Site) -> Shape | None:
    known = site.known()
    if not known:
        return site.some(max(site.rank, 1))
    axis = site.axis(len(known))
    return (*known[:axis], site.dim(), *known[axis + 1 :])


def _at_least_one(site: Site) -> Shape | None:
    return site.some(max(site.rank, 1)) if site.index == 0 else None


def _indices(site: Site) -> Shape | None:
    return site.some(max(site.rank, 1)) if site.index == 0 else site.some(int(site.rng.integers(0, 3)))


def _scalars(site: Site) -> Shape | None:
    return None if site.index == 0 else ()


def _quantised(site: Site) -> Shape | None:
    return None if site.index == 0 else (site.shape(1) or ()) if site.index == 2 else ()


_SHAPES: dict[str, Callable[[Site], Shape | None]] = {
    "MatMul": _matmul, "Gemm": _gemm, "Conv": _conv, "ConvTranspose": _conv, "MaxPool": _image, "AveragePool": _image,
    "GlobalAveragePool": _image, "GlobalMaxPool": _image, "BatchNormalization": _per_channel,
    "InstanceNormalization": _per_channel, "GroupNormalization": _per_channel, "LayerNormalization": _layer_norm,
    "RMSNormalization": _layer_norm, "Concat": _concat, "Softmax": _at_least_one, "LogSoftmax": _at_least_one,
    "Gather": _indices, "Split": _at_least_one, "Slice": _at_least_one, "Clip": _scalars, "TopK": _at_least_one,
    "QuantizeLinear": _quantised, "DequantizeLinear": _quantised, "ArgMax": _at_least_one, "ArgMin": _at_least_one,
    "CumSum": _at_least_one, "DepthToSpace": _image, "SpaceToDepth": _image,
}  # fmt: skip


# --- contents by operator ---


def _axes(site: Site) -> list[int] | None:
    x = site.shape(0)
    if not x:
        return None
    count = int(site.rng.integers(1, len(x) + 1))
    found = [int(a) for a in site.rng.permutation(len(x))[:count]]
    return [
        a - len(x) if site.rng.random() < 0.25 else a for a in (sorted(found) if site.rng.random() < 0.7 else found)
    ]


def _target(site: Site) -> list[int] | None:
    x = site.shape(0)
    if x is None:
        return None
    total = math.prod(x)
    options: list[list[int]] = [list(x), [total], [-1], list(x[::-1]), [1, *x], [*x, 1], [d for d in x if d != 1]]
    if len(x) > 1:
        options += [[x[0] * x[1], *x[2:]], [x[0], -1], [0, -1], [*x[:-2], x[-2] * x[-1]]]
    return options[int(site.rng.integers(len(options)))]


def _expanded(site: Site) -> list[int] | None:
    x = site.shape(0)
    if x is None:
        return None
    grown = [d if d != 1 or site.rng.random() < 0.3 else site.dim() for d in x]
    return [site.dim(), *grown] if site.rng.random() < 0.4 else grown


def _sizes(site: Site) -> list[int] | None:
    x = site.shape(0)
    if not x:
        return None
    size = x[site.axis(len(x))]
    first = int(site.rng.integers(0, size + 1))
    return [first, size - first]


def _bounds(site: Site) -> list[int] | None:
    x = site.shape(0)
    if not x:
        return None
    axis = int(site.rng.integers(len(x)))
    low = int(site.rng.integers(0, max(x[0], 1)))
    return {
        1: [low], 2: [int(site.rng.integers(low, x[0] + 2))], 3: [axis], 4: [int(site.rng.choice([1, 1, 1, 2, -1]))],
    }[site.index]  # fmt: skip


def _squeezed(site: Site) -> list[int] | None:
    x = site.shape(0)
    return None if x is None else [i for i, d in enumerate(x) if d == 1][: int(site.rng.integers(1, 3))] or [0]


def _unsqueezed(site: Site) -> list[int] | None:
    x = site.shape(0)
    return None if x is None else [int(site.rng.integers(-len(x) - 1, len(x) + 1))]


def _repeats(site: Site) -> list[int] | None:
    x = site.shape(0)
    return None if x is None else [int(v) for v in site.rng.integers(1, 3, len(x))]


def _padding(site: Site) -> list[int] | None:
    x = site.shape(0)
    return None if x is None else [int(v) for v in site.rng.choice([0, 0, 1, 2], 2 * len(x))]


def _rows(site: Site) -> Any:
    x = site.shape(0)
    if not x:
        return None
    size = max(x[site.axis(len(x))], 1)
    count = int(site.rng.integers(1, 4))
    kind = int(site.rng.integers(4))
    if kind == 0:
        return int(site.rng.integers(-size, size))
    if kind == 1:
        return list(range(size))
    return [int(v) for v in site.rng.integers(-size if kind == 2 else 0, size, count)]


_CONTENTS: dict[tuple[str, int], Callable[[Site], Any]] = {
    ("Reshape", 1): _target, ("Expand", 1): _expanded, ("Split", 1): _sizes, ("Squeeze", 1): _squeezed,
    ("Unsqueeze", 1): _unsqueezed, ("Tile", 1): _repeats, ("Pad", 1): _padding, ("Gather", 1): _rows,
    ("Slice", 1): _bounds, ("Slice", 2): _bounds, ("Slice", 3): _bounds, ("Slice", 4): _bounds,
    ("ConstantOfShape", 0): lambda site: list(site.some(site.rank)),
    ("TopK", 1): lambda site: [1], ("CumSum", 1): lambda site: 0,
    ("Trilu", 1): lambda site: int(site.rng.integers(-1, 2)),
}  # fmt: skip
