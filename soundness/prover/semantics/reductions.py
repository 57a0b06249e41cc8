"""Meaning of reductions and of what is built from them: means, softmax, normalizations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..paths import element_types
from ..paths.path import Infeasible, NotModeled, Path
from ..paths.tensors import Tensor, broadcasts_to, read_broadcast
from ..terms import integers
from ..terms.integers import Int
from ..terms.scalars import Scalar, app, big, number
from .elementwise import pointwise
from .movement import axes_of
from .semantics_registry import REDUCTIONS, Attrs, operator

FLOAT_ONLY = frozenset(("ReduceLogSum", "ReduceLogSumExp", "ReduceL2"))
PLAIN = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd")
"""Reductions that are the identity over no axes."""


def total(path: Path, sizes: Sequence[Int], body: Callable[[list[Int]], Scalar], op: str = "Sum") -> Scalar:
    """Return an operator over all indices below these sizes."""
    variables = [path.index(path.fresh("k"), path.normal(d), summed=True) for d in sizes]
    return big(op, variables, body(variables))


def reduced(op: str, path: Path, sizes: Sequence[Int], element: Callable[[list[Int]], Scalar]) -> Scalar:
    """Return the value of a reduction over axes of these sizes."""

    def term(v: list[Int]) -> Scalar:
        e = element(v)
        match op:
            case "ReduceL1":
                return app("Abs", e)
            case "ReduceSumSquare" | "ReduceL2":
                return e * e
            case "ReduceLogSumExp":
                return app("Exp", e)
        return e

    found = total(path, sizes, term, op[6:] if op in ("ReduceMax", "ReduceMin", "ReduceProd") else "Sum")
    match op:
        case "ReduceMean":
            return found / number(path.normal(integers.product(sizes)))
        case "ReduceL2":
            return app("Sqrt", found)
        case "ReduceLogSum" | "ReduceLogSumExp":
            return app("Log", found)
    return found


@operator(*REDUCTIONS)
def reduction(path: Path, attrs: Attrs, x: Tensor, listed: Tensor | None = None) -> Tensor:
    """Reduce over some axes, or over all if none are named."""
    op = attrs.op
    element_types.restrict(path, x.dtype, ("float",) if op in FLOAT_ONLY else element_types.NUMBERS)
    keep, noop = attrs.option("keepdims", (0, 1)), attrs.option("noop_with_empty_axes", (0, 1))
    axes = sorted(axes_of(path, listed.values() if listed is not None else [], x.rank))
    if not axes and not noop:
        axes = list(range(x.rank))
    if not axes and x.rank and op not in PLAIN:
        # versions of the standard differ (the operand itself, its squares, logarithms, …), but all are elementwise
        return pointwise(path, f"{op} over no axes", (), [x], x.dtype)
    shape = [1 if k in axes else d for k, d in enumerate(x.shape) if keep or k not in axes]

    def at(index: list[Int]) -> Scalar:
        rest = iter([i for k, i in enumerate(index) if k not in axes] if keep else index)
        free = [0 if k in axes else next(rest) for k in range(x.rank)]
        return reduced(op, path, [x.shape[k] for k in axes], lambda v: x.at(_replaced(free, axes, v)))

    return Tensor(path, shape, at, dtype=x.dtype)


def _replaced(index: Sequence[Int], axes: Sequence[int], values: Sequence[Int]) -> list[Int]:
    changed = dict(zip(axes, values, strict=True))
    return [changed.get(k, i) for k, i in enumerate(index)]


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(path: Path, attrs: Attrs, x: Tensor) -> Tensor:
    """Reduce each image to its mean or maximum."""
    op = "ReduceMean" if attrs.op == "GlobalAveragePool" else "ReduceMax"
    element_types.restrict(path, x.dtype, ("float",))
    path.require(x.rank >= 2, "images have a batch and channels")
    if x.rank == 2:
        raise NotModeled("a global pool of a matrix")
    shape = [*x.shape[:2], *[1] * (x.rank - 2)]
    return Tensor(path, shape, lambda i: reduced(op, path, x.shape[2:], lambda v: x.at([*i[:2], *v])), dtype=x.dtype)


@operator("Softmax", "LogSoftmax")
def softmax(path: Path, attrs: Attrs, x: Tensor) -> Tensor:
    """Define `e^x / Σ e^x` along an axis; the shift by the maximum is an implementation detail."""
    element_types.restrict(path, x.dtype, ("float",))
    axis = attrs.axis("axis", x.rank)

    def at(index: list[Int]) -> Scalar:
        def power(v: list[Int]) -> Scalar:
            return app("Exp", x.at(_replaced(index, [axis], v)))

        found = power([index[axis]]) / total(path, [x.shape[axis]], power)
        return app("Log", found) if attrs.op == "LogSoftmax" else found

    return Tensor(path, x.shape, at, dtype=x.dtype)


def _normalized(
    path: Path, x: Tensor, axes: Sequence[int], epsilon: Scalar, index: list[Int], *, centered: bool = True
) -> Scalar:
    """Return `(x - μ)/√(σ² + ε)` over some axes, or `x/√(mean(x²) + ε)` if not `centered`."""
    sizes = [x.shape[k] for k in axes]

    def element(v: list[Int]) -> Scalar:
        return x.at(_replaced(index, axes, v))

    def shifted(e: Scalar) -> Scalar:
        return e - reduced("ReduceMean", path, sizes, element) if centered else e

    def square(v: list[Int]) -> Scalar:
        e = shifted(element(v))
        return e * e

    return shifted(x.at(index)) / app("Sqrt", reduced("ReduceMean", path, sizes, square) + epsilon)


@operator("LayerNormalization", "RMSNormalization")
def layer_norm(path: Path, attrs: Attrs, x: Tensor, scale: Tensor, shift: Tensor | None = None) -> Tensor:
    """Normalize over the last axes, scale and shift."""
    params = [t for t in (scale, shift) if t is not None]
    element_types.unify(path, x.dtype, *(t.dtype for t in params))
    element_types.restrict(path, x.dtype, ("float",))
    axes = range(attrs.axis("axis", x.rank), x.rank)
    epsilon = attrs.real("epsilon")
    for t in params:
        broadcasts_to(path, t, x.shape, "the scale broadcasts to the operand")

    def at(index: list[Int]) -> Scalar:
        found = _normalized(path, x, axes, epsilon, index, centered=attrs.op == "LayerNormalization")
        found = found * read_broadcast(path, scale, index)
        return found if shift is None else found + read_broadcast(path, shift, index)

    return Tensor(path, x.shape, at, dtype=x.dtype)


def _per_channel(path: Path, x: Tensor, *params: Tensor) -> None:
    for t in params:
        element_types.unify(path, x.dtype, t.dtype)
        t.require_rank(1, "one number for each channel")
        path.require(integers.eq(t.shape[0], x.shape[1]), "one number for each channel")


@operator("InstanceNormalization", "GroupNormalization")
def group_norm(path: Path, attrs: Attrs, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Normalize over each image, or over each group of channels."""
    element_types.restrict(path, x.dtype, ("float",))
    path.require(x.rank >= 3, "images have a batch and channels")
    _per_channel(path, x, scale, shift)
    epsilon = attrs.real("epsilon")
    single = attrs.op == "InstanceNormalization"
    groups: Int = 1 if single else attrs.integer("num_groups", 1)
    each, rest = path.divide(x.shape[1], groups)
    path.require(integers.eq(rest), "groups of equal size")

    def inner(index: list[Int]) -> Scalar:
        return x.at([index[0], index[1] * each + index[2], *index[3:]])

    parted = x if single else Tensor(path, [x.shape[0], groups, each, *x.shape[2:]], inner, dtype=x.dtype)

    def at(index: list[Int]) -> Scalar:
        place = index if single else [index[0], *path.unflatten(index[1], [groups, each]), *index[2:]]
        found = _normalized(path, parted, range(2, parted.rank), epsilon, place)
        channel = path.normal(index[1])
        return found * scale.at([channel]) + shift.at([channel])

    return Tensor(path, x.shape, at, dtype=x.dtype)


@operator("BatchNormalization")
def batch_norm(
    path: Path, attrs: Attrs, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor
) -> Tensor:
    """Define `γ(x - μ)/√(σ² + ε) + β` for each channel, with given statistics."""
    if attrs.option("training_mode", (0, 1)):
        raise NotModeled("BatchNormalization in training")
    epsilon = attrs.real("epsilon")
    if x.rank < 2:
        if x.rank == 1:
            raise NotModeled("BatchNormalization of a vector")
        raise Infeasible("a batch and channels")
    element_types.restrict(path, x.dtype, ("float",))
    _per_channel(path, x, gamma, beta, mean, variance)

    def at(index: list[Int]) -> Scalar:
        scale, shift, center, spread = (t.at([index[1]]) for t in (gamma, beta, mean, variance))
        return scale * (x.at(index) - center) / app("Sqrt", spread + epsilon) + shift

    return Tensor(path, x.shape, at, dtype=x.dtype)
