"""Meaning of reductions and of what is built from them: means, softmax, normalizations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..paths import element_types
from ..paths.path import Infeasible, NotModeled, Path
from ..paths.tensors import Tensor, broadcasts_to, read_broadcast, select
from ..terms import integers
from ..terms.integers import Int, ge
from ..terms.scalars import ZERO, Scalar, app, big, number
from .movement import axes_of
from .semantics_registry import REDUCTIONS, Attrs, operator

FLOAT_ONLY = frozenset(("ReduceLogSum", "ReduceLogSumExp", "ReduceL2"))
PLAIN = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd")
"""Reductions that are the identity over no axes; the others square, take logarithms, …"""


def total(path: Path, sizes: Sequence[Int], body: Callable[[list[Int]], Scalar], op: str = "Sum") -> Scalar:
    """Return an operator over all indices below these sizes."""
    if op == "Sum" and any(path.normal(d) == 0 for d in sizes):
        return ZERO  # a sum starts at 0
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

    if op == "ReduceMean" and any(path.normal(d) == 0 for d in sizes):
        raise NotModeled("a mean of nothing")
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
        path.assumed.add(f"{op} over no axes still maps each element")  # as the standard explains it
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
    return _per_image(path, op, x)


def _per_image(path: Path, op: str, x: Tensor) -> Tensor:
    """Return the value of a reduction for each image."""
    path.require(x.rank >= 2, "images have a batch and channels")
    if x.rank == 2:
        raise NotModeled("a global pool of a matrix")
    shape = [*x.shape[:2], *[1] * (x.rank - 2)]
    return Tensor(path, shape, lambda i: reduced(op, path, x.shape[2:], lambda v: x.at([*i[:2], *v])), dtype=x.dtype)


@operator("GlobalLpPool")
def global_norm_pool(path: Path, attrs: Attrs, x: Tensor) -> Tensor:
    """Reduce each image to its norm: a sum of magnitudes, or a length."""
    power = attrs.integer("p", 1)
    if power not in (1, 2):
        raise NotModeled("a norm by other powers than 1 and 2")
    element_types.restrict(path, x.dtype, ("float",))
    return _per_image(path, "ReduceL1" if power == 1 else "ReduceL2", x)


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
    each = path.divide_exactly(x.shape[1], groups, "groups of equal size")

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


@operator("CumSum")
def cumulated(path: Path, attrs: Attrs, x: Tensor, along: Tensor) -> Tensor:
    """Add the elements up to each place of an axis, or from it on."""
    element_types.restrict(path, x.dtype, element_types.NUMBERS)
    listed = along.values()
    path.require(len(listed) == 1, "one axis")
    (axis,) = axes_of(path, listed, x.rank)
    strict, backwards = attrs.option("exclusive", (0, 1)), attrs.option("reverse", (0, 1))

    def at(index: list[Int]) -> Scalar:
        def term(v: list[Int]) -> Scalar:
            low, high = (index[axis], v[0]) if backwards else (v[0], index[axis])
            counts = ge(high - strict, low)
            return select(path, counts, lambda: x.at(_replaced(index, [axis], v)), lambda: ZERO)

        return total(path, [x.shape[axis]], term)

    return Tensor(path, x.shape, at, dtype=x.dtype)


def _index_of_extreme(path: Path, op: str, size: Int, element: Callable[[list[Int]], Scalar]) -> Scalar:
    """Return the index of an extreme along an axis; how ties and NaN are treated is part of the name `op`."""
    found = total(path, [size], element, op)
    return app("index of", found, attrs=(("to", "i64"),)) if found.op == "big" else ZERO


@operator("ArgMax", "ArgMin")
def index_of_extreme(path: Path, attrs: Attrs, x: Tensor) -> Tensor:
    """Return the index of the greatest or least element along an axis: of the first, or of the last."""
    element_types.restrict(path, x.dtype, element_types.NUMBERS)
    axis = attrs.axis("axis", x.rank)
    path.require(ge(x.shape[axis], 1), "an extreme of nothing", typed=True)
    keep, last = attrs.option("keepdims", (0, 1)), attrs.option("select_last_index", (0, 1))
    shape = [1 if k == axis else d for k, d in enumerate(x.shape) if keep or k != axis]
    op = f"{'Last' if last else 'First'}{attrs.op[3:]}"

    def at(index: list[Int]) -> Scalar:
        place = index if keep else [*index[:axis], 0, *index[axis:]]
        return _index_of_extreme(path, op, x.shape[axis], lambda v: x.at(_replaced(place, [axis], v)))

    return Tensor(path, shape, at, dtype="i64")


@operator("TopK")
def top(path: Path, attrs: Attrs, x: Tensor, count: Tensor) -> list[Tensor]:
    """Define the greatest or least element along an axis and its index, if one is taken."""
    element_types.restrict(path, x.dtype, element_types.NUMBERS)
    if [path.normal(v) for v in count.values()] != [1]:
        raise NotModeled("more than one element of TopK")
    axis = attrs.axis("axis", x.rank)
    path.require(ge(x.shape[axis], 1), "an extreme of nothing", typed=True)
    op = "Max" if attrs.option("largest", (0, 1)) else "Min"
    shape = [1 if k == axis else d for k, d in enumerate(x.shape)]

    def along(index: list[Int]) -> Callable[[list[Int]], Scalar]:
        return lambda v: x.at(_replaced(index, [axis], v))

    def value(index: list[Int]) -> Scalar:
        return total(path, [x.shape[axis]], along(index), op)

    def place(index: list[Int]) -> Scalar:
        return _index_of_extreme(path, f"First{op}", x.shape[axis], along(index))

    return [Tensor(path, shape, value, dtype=x.dtype), Tensor(path, shape, place, dtype="i64")]
