"""The meaning of reductions and of what is made of them: means, softmax, normalisations."""

from __future__ import annotations

from collections.abc import Callable

from . import integers, scalars, types
from .attributes import Attrs
from .elementwise import pointwise
from .integers import Int
from .movement import axes_of
from .path import Infeasible, NotModelled, Path
from .registry import Inputs, given, operator
from .scalars import ONE, Scalar, app, big, number
from .tensors import Leaf, Tensor, arange

FLOAT_ONLY = frozenset(("ReduceLogSum", "ReduceLogSumExp", "ReduceL2"))


def total(
    path: Path, sizes: list[Int], body: Callable[[list[Int]], Scalar], op: str = "Sum", stem: str = "k"
) -> Scalar:
    """An operator over all indices below sizes."""
    variables = arange(path, sizes, stem)
    return big(op, variables, body(variables))


def reduced(op: str, path: Path, sizes: list[Int], element: Callable[[list[Int]], Scalar]) -> Scalar:
    """The value of a reduction over axes of these sizes."""

    def summed(body: Callable[[Scalar], Scalar]) -> Scalar:
        return total(path, sizes, lambda v: body(element(v)))

    match op:
        case "ReduceSum":
            return summed(lambda e: e)
        case "ReduceMean":
            return app("Div", summed(lambda e: e), number(path.normal(integers.product(sizes))))
        case "ReduceMax" | "ReduceMin" | "ReduceProd":
            return total(path, sizes, element, op[6:])
        case "ReduceL1":
            return summed(lambda e: app("Abs", e))
        case "ReduceSumSquare":
            return summed(lambda e: app("Mul", e, e))
        case "ReduceL2":
            return app("Sqrt", summed(lambda e: app("Mul", e, e)))
        case "ReduceLogSum":
            return app("Log", summed(lambda e: e))
        case "ReduceLogSumExp":
            return app("Log", summed(lambda e: app("Exp", e)))
    raise NotModelled(op)


@operator("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
          "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")  # fmt: skip
def reduction(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """Over some axes, or all if none are named."""
    op = path.extra["operator"]
    x = given(inputs, 0)
    types.restrict(path, x.dtype, ("float",) if op in FLOAT_ONLY else types.NUMBERS)
    keep, noop = attrs.option("keepdims", (0, 1)), attrs.option("noop_with_empty_axes", (0, 1))
    listed = inputs[1].values() if len(inputs) > 1 and inputs[1] is not None else []
    axes = sorted(axes_of(path, listed, x.rank))
    if not axes and not noop:
        axes = list(range(x.rank))
    if not axes and x.rank and op not in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd"):
        # versions of the standard differ: the operand itself, or its squares, logarithms, …; elementwise in any case
        return [pointwise(path, f"{op} over no axes", (), [x], x.dtype)]
    shape = [1 if k in axes else d for k, d in enumerate(x.shape)]
    if not keep:
        shape = [d for k, d in enumerate(shape) if k not in axes]

    def at(index: list[Int]) -> Scalar:
        rest = iter([i for k, i in enumerate(index) if k not in axes] if keep else index)
        free = [None if k in axes else next(rest) for k in range(x.rank)]

        def element(variables: list[Int]) -> Scalar:
            found = iter(variables)
            return x.at([next(found) if i is None else i for i in free])

        return reduced(op, path, [x.shape[k] for k in axes], element)

    return [Tensor(path, shape, at, dtype=x.dtype)]


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """The mean or maximum of each image."""
    op = "ReduceMean" if path.extra["operator"] == "GlobalAveragePool" else "ReduceMax"
    x = given(inputs, 0)
    types.restrict(path, x.dtype, ("float",))
    if x.rank < 2:
        raise Infeasible("images have a batch and channels")
    if x.rank == 2:
        raise NotModelled("a global pool of a matrix")
    shape = [*x.shape[:2], *[1] * (x.rank - 2)]
    return [Tensor(path, shape, lambda i: reduced(op, path, x.shape[2:], lambda v: x.at([*i[:2], *v])), dtype=x.dtype)]


@operator("Softmax", "LogSoftmax")
def softmax(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """`e^x / Σ e^x` along an axis; the shift by the maximum is not part of the meaning."""
    x = given(inputs, 0)
    log = path.extra["operator"] == "LogSoftmax"
    types.restrict(path, x.dtype, ("float",))
    axis = attrs.axis("axis", x.rank)

    def at(index: list[Int]) -> Scalar:
        def element(i: Int) -> Scalar:
            return app("Exp", x.at([*index[:axis], i, *index[axis + 1 :]]))

        found = app("Div", element(index[axis]), total(path, [x.shape[axis]], lambda v: element(v[0])))
        return app("Log", found) if log else found

    return [Tensor(path, x.shape, at, dtype=x.dtype)]


def _normalised(path: Path, x: Tensor, axes: list[int], epsilon: Scalar, *, centred: bool, index: list[Int]) -> Scalar:
    """`(x - μ)/√(σ² + ε)` over some axes, or without μ."""
    sizes = [x.shape[k] for k in axes]

    def element(variables: list[Int]) -> Scalar:
        found = list(index)
        for k, v in zip(axes, variables, strict=True):
            found[k] = v
        return x.at(found)

    here = x.at(index)
    if centred:
        mean = reduced("ReduceMean", path, sizes, element)
        here = app("Sub", here, mean)

    def square(v: list[Int]) -> Scalar:
        e = element(v)
        if centred:
            e = app("Sub", e, reduced("ReduceMean", path, sizes, element))
        return app("Mul", e, e)

    return app("Div", here, app("Sqrt", app("Add", reduced("ReduceMean", path, sizes, square), epsilon)))


@operator("LayerNormalization", "RMSNormalization")
def layer_norm(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """Normalised over the last axes, scaled, shifted."""
    centred = path.extra["operator"] == "LayerNormalization"
    x, scale = given(inputs, 0), given(inputs, 1)
    shift = inputs[2] if len(inputs) > 2 else None
    for t in (x, scale, shift):
        if t is not None:
            types.unify(path, x.dtype, t.dtype)
    types.restrict(path, x.dtype, ("float",))
    axis = attrs.axis("axis", x.rank)
    epsilon = attrs.real("epsilon")
    axes = list(range(axis, x.rank))
    for t in (scale, shift):
        if t is None:
            continue
        if t.rank > x.rank:
            raise Infeasible("the scale broadcasts to the operand")
        for d, e in zip(t.shape, x.shape[x.rank - t.rank :], strict=True):
            if not path.decide(integers.eq(d, 1)):
                path.require(integers.eq(d, e), "the scale broadcasts to the operand")

    def at(index: list[Int]) -> Scalar:
        from .tensors import read_broadcast

        found = _normalised(path, x, axes, epsilon, centred=centred, index=index)
        found = app("Mul", found, read_broadcast(path, scale, index))
        return found if shift is None else app("Add", found, read_broadcast(path, shift, index))

    return [Tensor(path, x.shape, at, dtype=x.dtype)]


def _per_channel(path: Path, t: Tensor, channels: Int) -> None:
    if isinstance(t, Leaf) and t.fixed is None:
        t.fixed = 1
    if t.rank != 1:
        raise Infeasible("one number for each channel")
    path.require(integers.eq(t.shape[0], channels), "one number for each channel")


@operator("InstanceNormalization", "GroupNormalization")
def group_norm(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """Normalised over each image, or over each group of channels."""
    x, scale, shift = (given(inputs, k) for k in range(3))
    types.restrict(path, x.dtype, ("float",))
    if x.rank < 3:
        raise Infeasible("images have a batch and channels")
    grouped = path.extra["operator"] == "GroupNormalization"
    for t in (scale, shift):
        types.unify(path, x.dtype, t.dtype)
        _per_channel(path, t, x.shape[1])
    epsilon = attrs.real("epsilon")
    if not grouped:

        def at(index: list[Int]) -> Scalar:
            found = _normalised(path, x, list(range(2, x.rank)), epsilon, centred=True, index=index)
            return app("Add", app("Mul", found, scale.at([index[1]])), shift.at([index[1]]))

        return [Tensor(path, x.shape, at, dtype=x.dtype)]
    groups = attrs.integer("num_groups", 1)
    each, rest = path.divide(x.shape[1], groups)
    path.require(integers.eq(rest), "groups of equal size")

    def inner(index: list[Int]) -> Scalar:
        return x.at([index[0], index[1] * each + index[2], *index[3:]])

    parted = Tensor(path, [x.shape[0], groups, each, *x.shape[2:]], inner, dtype=x.dtype)

    def grouped_at(index: list[Int]) -> Scalar:
        g, c = path.unflatten(index[1], [groups, each])
        place = [index[0], g, c, *index[2:]]
        found = _normalised(path, parted, list(range(2, parted.rank)), epsilon, centred=True, index=place)
        channel = path.normal(index[1])
        return app("Add", app("Mul", found, scale.at([channel])), shift.at([channel]))

    return [Tensor(path, x.shape, grouped_at, dtype=x.dtype)]


@operator("BatchNormalization")
def batch_norm(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """`γ(x - μ)/√(σ² + ε) + β` for each channel, with given statistics."""
    x = given(inputs, 0)
    if attrs.option("training_mode", (0, 1)):
        raise NotModelled("BatchNormalization in training")
    epsilon = attrs.real("epsilon")
    if x.rank < 2:
        if x.rank == 1:
            raise NotModelled("BatchNormalization of a vector")
        raise Infeasible("a batch and channels")
    params = [given(inputs, k) for k in range(1, 5)]
    types.restrict(path, x.dtype, ("float",))
    for t in params:
        types.unify(path, x.dtype, t.dtype)
        _per_channel(path, t, x.shape[1])

    def at(index: list[Int]) -> Scalar:
        gamma, beta, mean, variance = (t.at([index[1]]) for t in params)
        scaled = app(
            "Div", app("Mul", gamma, app("Sub", x.at(index), mean)), app("Sqrt", app("Add", variance, epsilon))
        )
        return app("Add", scaled, beta)

    return [Tensor(path, x.shape, at, dtype=x.dtype)]


__all__ = ["ONE", "reduced", "scalars", "total"]
