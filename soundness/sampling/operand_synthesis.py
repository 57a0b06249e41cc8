"""Operand synthesis: a type, or the contents of a constant, for one input of an operator given its other inputs.

This module knows what the schemas do not state, such as that a bias has one element per filter. Shape inference decides
afterwards whether an operand fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...engine.ir.graph import DType, TensorType
from ...engine.operators.schemas import signature
from .edit import MAX_DIMS

Shape = tuple[int, ...]
_PREFERRED = (
    *(DType.F32,) * 3, DType.F64, DType.I64, DType.I32, DType.BOOL, DType.U8, DType.I8, DType.F16,
)  # fmt: skip


@dataclass(frozen=True)
class Site:
    """Input of an operator that needs an operand. `types` are those of the other inputs, as far as they are known."""

    op: str
    index: int
    types: Sequence[TensorType | None]
    attrs: Mapping[str, Any]
    rng: np.random.Generator
    rank: int
    dims: Shape

    def shape(self, index: int) -> Shape | None:
        """Return the shape of another input if all its dims are known."""
        if index >= len(self.types) or (type_ := self.types[index]) is None or type_.shape is None:
            return None
        return tuple(d for d in type_.shape if isinstance(d, int)) if type_.is_static else None

    def known(self) -> Shape | None:
        """Return the first shape that is known."""
        return next((s for i in range(len(self.types)) if (s := self.shape(i)) is not None), None)

    def pick(self, options: Sequence[Any]) -> Any:
        """Return one of several options."""
        return options[int(self.rng.integers(len(options)))]

    def dim(self) -> int:
        """Draw one of the extents in use."""
        return int(self.pick(self.dims))

    def some(self, rank: int) -> Shape:
        """Draw a shape of extents in use."""
        return tuple(self.dim() for _ in range(rank))

    def size(self, *sizes: int) -> int:
        """Draw one of some sizes."""
        return int(self.rng.choice(sizes))

    def attr(self, name: str, default: int) -> int:
        """Return an integer attribute."""
        value = self.attrs.get(name, default)
        return value if isinstance(value, int) else default

    def axis(self, rank: int, default: int = 0) -> int:
        """Return the attribute `axis`, counted from the front."""
        return self.attr("axis", default) % rank if rank else 0


def dtype_for(site: Site) -> DType:
    """Draw an element type that the schema allows beside the other inputs."""
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
        return DType.I64 if site.rng.random() < 0.9 else site.pick(allowed)
    return site.pick(allowed)  # type: ignore[no-any-return]


def shape_for(site: Site) -> Shape:
    """Draw a shape that fits the other inputs."""
    rule = _SHAPES.get(site.op)
    if rule is not None and (found := rule(site)) is not None:
        return found
    known = site.known()
    return site.some(site.rank) if known is None else _broadcast(site, known)


def _broadcast(site: Site, known: Shape) -> Shape:
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
    """Draw the contents of an input that is a shape, axes or bounds; None for an input of data."""
    key, x = (site.op, site.index), site.shape(0)
    rule = _axes if site.op.startswith("Reduce") and site.index == 1 else _CONTENTS.get(key)
    if key in _WITHOUT_DATA:
        found = _WITHOUT_DATA[key](site)
    else:
        found = None if rule is None or x is None else rule(site, x)
    return None if found is None else np.asarray(found, dtype=np.int64)


# --- shapes by operator ---


def _matmul(site: Site) -> Shape | None:
    a, b = site.shape(0), site.shape(1)
    if site.index == 0:
        inner = site.dim() if b is None else b[-2] if len(b) > 1 else b[0] if b else None
        return None if inner is None else (*site.some(site.rank - 1 if site.rank else 1), inner)
    if not a:
        return (site.dim(), site.dim())
    if site.rng.random() < 0.15:
        return (a[-1],)
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
    return site.pick([(columns,), (rows, columns), (1, columns), (rows, 1), (1,), ()])  # type: ignore[no-any-return]


def _conv(site: Site) -> Shape | None:
    x, w = site.shape(0), site.shape(1)
    group = max(site.attr("group", 1), 1)
    transposed = site.op == "ConvTranspose"
    if len(set(site.dims)) == 1 and group == 1 and site.index < 2 and 0 < site.dims[0] < 4:
        known = w if site.index == 0 else x
        return (site.dims[0],) * (site.size(3, 4, 4) if known is None else len(known))
    if site.index == 0:
        spatial = (len(w) - 2) if w is not None else site.size(1, 2, 2)
        channels = site.dim() * group if w is None else w[0] if transposed else w[1] * group
        return (site.size(1, 2), channels, *(int(site.rng.integers(4, 7)) for _ in range(spatial)))
    if x is None or len(x) < 3:
        return None
    if site.index == 1:
        sizes = site.attrs.get("kernel_shape")
        kernel = sizes if isinstance(sizes, tuple) else tuple(int(v) for v in site.rng.integers(1, 4, len(x) - 2))
        if transposed:
            return (x[1], max(site.dim(), 1), *kernel)
        return (max(site.dim(), 1) * group, max(x[1] // group, 1), *kernel)
    return None if w is None else ((w[1] * group,) if transposed else (w[0],))


def _image(site: Site) -> Shape | None:
    if site.index:
        return None
    spatial = site.size(1, 2, 2)
    return (site.size(1, 2), max(site.dim(), 1), *(int(site.rng.integers(3, 7)) for _ in range(spatial)))


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


def _scale(site: Site) -> Shape | None:
    x = site.shape(0)
    if site.index == 1 and x and site.rng.random() < 0.4:
        return (x[site.axis(len(x), 1)],)
    return (None, (), site.shape(1) or ())[min(site.index, 2)]


_NOT_SCALAR = ("Softmax", "LogSoftmax", "Split", "Slice", "TopK", "ArgMax", "ArgMin", "CumSum")
"""Operators whose first input has an axis."""
_SHAPES: dict[str, Callable[[Site], Shape | None]] = {
    "MatMul": _matmul, "Gemm": _gemm, "Conv": _conv, "ConvTranspose": _conv, "Concat": _concat,
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _layer_norm),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization", "GroupNormalization"), _per_channel),
    **dict.fromkeys(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "DepthToSpace", "SpaceToDepth"),
                    _image),
    **dict.fromkeys(_NOT_SCALAR, lambda site: None if site.index else site.some(max(site.rank, 1))),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _scale),
    "Gather": lambda site: site.some(int(site.rng.integers(0, 3)) if site.index else max(site.rank, 1)),
    "Clip": lambda site: () if site.index else None,
}  # fmt: skip


# --- contents by operator, given the shape of its first input ---


def _axes(site: Site, x: Shape) -> list[int] | None:
    if not x:
        return None
    count = int(site.rng.integers(1, len(x) + 1))
    found = [int(a) for a in site.rng.permutation(len(x))[:count]]
    found = sorted(found) if site.rng.random() < 0.7 else found
    return [a - len(x) if site.rng.random() < 0.25 else a for a in found]


def _target(site: Site, x: Shape) -> Any:
    options: list[list[int]] = [list(x), [math.prod(x)], [-1], [*x[::-1]], [1, *x], [*x, 1], [d for d in x if d != 1]]
    if len(x) > 1:
        options += [[x[0] * x[1], *x[2:]], [x[0], -1], [0, -1], [*x[:-2], x[-2] * x[-1]]]
    if x and len(x) < MAX_DIMS and site.rng.random() < 0.4:
        at = int(site.rng.integers(len(x)))
        options = [[*x[:at], *site.pick(factors(x[at])), *x[at + 1 :]], [*site.pick(factors(math.prod(x)))]]
    return site.pick(options)


def factors(size: int) -> list[tuple[int, int]]:
    """Return the pairs of numbers above 1 whose product is `size`; those with 1 if there are none."""
    found = [(k, size // k) for k in range(2, min(size, 64)) if size % k == 0]
    return found or [(1, size), (size, 1)]


def _expanded(site: Site, x: Shape) -> list[int]:
    grown = [d if d != 1 or site.rng.random() < 0.3 else site.dim() for d in x]
    return [site.dim(), *grown] if site.rng.random() < 0.4 else grown


def _sizes(site: Site, x: Shape) -> list[int] | None:
    if not x:
        return None
    size = x[site.axis(len(x))]
    first = int(site.rng.integers(0, size + 1))
    return [first, size - first]


def _bounds(site: Site, x: Shape) -> list[int] | None:
    if not x:
        return None
    axis = int(site.rng.integers(len(x)))
    size = max(x[axis], 1)
    if site.rng.random() < 0.6:
        low, step = int(site.rng.integers(0, size)), site.size(1, 1, 1, 2)
        high = int(site.rng.integers(low, size + 2))
    else:  # each is drawn alone: from the end, behind it, and so that steps of -1 leave something
        low, high = (int(v) for v in site.rng.integers((-size, -2 * size), size + 2))
        step = site.size(1, -1, -1, -2, 3)
    return [(low, high, axis - len(x) if site.rng.random() < 0.2 else axis, step)[site.index - 1]]


def _squeezed(site: Site, x: Shape) -> list[int]:
    return [i for i, d in enumerate(x) if d == 1][: int(site.rng.integers(1, 3))] or [0]


def _rows(site: Site, x: Shape) -> Any:
    if not x:
        return None
    size = max(x[site.axis(len(x))], 1)
    count, kind = int(site.rng.integers(1, 4)), int(site.rng.integers(5))
    if kind == 4:  # a matrix of indices has an axis of its own more, on which other axes depend
        return site.rng.integers(-size, size, (count, count))
    if kind == 0:
        return int(site.rng.integers(-size, size))
    return list(range(size)) if kind == 1 else site.rng.integers(-size if kind == 2 else 0, size, count)


_CONTENTS: dict[tuple[str, int], Callable[[Site, Shape], Any]] = {
    ("Reshape", 1): _target, ("Expand", 1): _expanded, ("Split", 1): _sizes, ("Squeeze", 1): _squeezed,
    ("Gather", 1): _rows, **{("Slice", index): _bounds for index in (1, 2, 3, 4)},
    ("Unsqueeze", 1): lambda site, x: [int(site.rng.integers(-len(x) - 1, len(x) + 1))],
    ("Tile", 1): lambda site, x: site.rng.integers(1, 3, len(x)),
    ("Pad", 1): lambda site, x: site.rng.choice([0, 0, 1, 2], 2 * len(x)),
}  # fmt: skip
_WITHOUT_DATA: dict[tuple[str, int], Callable[[Site], Any]] = {
    ("ConstantOfShape", 0): lambda site: site.some(site.rank),
    ("TopK", 1): lambda site: [1], ("CumSum", 1): lambda site: 0,
    ("Trilu", 1): lambda site: int(site.rng.integers(-1, 2)),
}  # fmt: skip
"""Contents that do not depend on the first input."""
