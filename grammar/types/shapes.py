"""Shape rules of common operators that hold for every instance: ranks, and relations between dims.

Each function constrains the inputs and derives the outputs. An operator without an entry implies nothing, so rules
over it are accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

from ..diagnostics import Label
from .linear import Linear
from .terms import Conflict, Shapes, Tensor, Value, place_count

Rule = Callable[["Application"], None]
RULES: dict[str, Rule] = {}


@dataclass(slots=True)
class Application:
    """An operator with its inputs (None where absent or possibly absent), attributes and outputs.

    `attributes` are values by name, defaults included; a missing name may have any value."""

    op: str
    inputs: list[Tensor | None]
    starred: list[bool]
    attributes: Mapping[str, Value]
    outputs: list[Tensor]
    shapes: Shapes
    origin: Label

    def input(self, index: int) -> Tensor | None:
        """Return an input that is a single tensor."""
        if index < len(self.inputs) and not any(self.starred[: index + 1]):
            return self.inputs[index]
        return None

    @property
    def out(self) -> Tensor:
        """The first output."""
        return self.outputs[0]

    @property
    def is_complete(self) -> bool:
        """Whether all inputs are present, each a single tensor."""
        return not any(self.starred) and None not in self.inputs

    def present(self) -> list[Tensor]:
        """Return the inputs that are present."""
        return [t for t in self.inputs if t is not None]

    def rank(self, tensor: Tensor | None, rank: int | Linear) -> None:
        """Require a rank."""
        if tensor is not None:
            wanted = Linear(rank) if isinstance(rank, int) else rank
            self.shapes.equal_rank(tensor.shape, wanted, self.origin)

    def at_least(self, tensor: Tensor | None, rank: int) -> None:
        """Require a minimum rank."""
        if tensor is not None:
            self.shapes.at_least(tensor.shape, rank, self.origin)

    def at_most(self, tensor: Tensor | None, rank: int) -> None:
        """Require a maximum rank."""
        if tensor is not None:
            self.shapes.at_most(tensor.shape, rank, self.origin)

    def same_rank(self, *tensors: Tensor | None) -> None:
        """Require equal ranks."""
        first, *others = [t for t in tensors if t is not None]
        for other in others:
            self.rank(other, first.rank)

    def same(self, left: Tensor, right: Tensor | None) -> None:
        """Require equal shapes."""
        if right is not None:
            self.shapes.unify(left.shape, right.shape, self.origin)

    def dim(self, tensor: Tensor, place: int) -> Linear:
        """Return a dim, which must exist."""
        return self.shapes.dim(tensor.shape, place, self.origin)

    def equal(self, left: Linear, right: Linear) -> None:
        """Require two dims to be equal."""
        try:
            self.shapes.equal_dim(left, right, self.origin)
        except Conflict as conflict:
            conflict.labels = conflict.labels or self._places(left, right)
            raise

    def same_dim(self, left: Tensor | None, i: int, right: Tensor | None, j: int, factor: int = 1) -> None:
        """Require a dim to be `factor` times another."""
        if left is not None and right is not None:
            self.equal(self.dim(left, i), self.dim(right, j).times(factor))

    def _places(self, *dims: Linear) -> tuple[Label, ...]:
        """Return where the dims were written."""
        resolve = self.shapes.store.resolve
        wanted = [resolve(d) for d in dims]
        shapes = [tensor.shape.end() for tensor in (*self.present(), *self.outputs)]
        written = [(s.dims[p], origin) for s in shapes for p, origin in s.places.items() if p in s.dims]
        return tuple(dict.fromkeys(origin for dim, origin in written if resolve(dim) in wanted))

    def number(self, name: str) -> int | None:
        """Return the number that an attribute holds, if known."""
        value = self.attributes.get(name)
        return value.number.known if value is not None and value.number is not None else None

    def length(self, name: str) -> Linear | None:
        """Return the length of a list attribute."""
        value = self.attributes.get(name)
        return value.length if value is not None else None

    def items(self, name: str) -> list[int] | None:
        """Return the integers of an attribute that is written out."""
        value = self.attributes.get(name)
        return value.known_items() if value is not None else None


def rules(*names: str) -> Callable[[Rule], Rule]:
    """Register a function for operators."""

    def enter(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return enter


def broadcast(app: Application, tensors: list[Tensor], out: Tensor) -> None:
    """Constrain the output to the shape that the inputs broadcast to."""
    bounds = [app.shapes.rank(t.shape) for t in tensors]
    app.at_least(out, max(low for low, _ in bounds))
    high = app.shapes.rank(out.shape)[1]
    if high is not None:
        for tensor in tensors:
            app.at_most(tensor, high)
    highs = [h for _, h in bounds if h is not None]
    if len(highs) == len(bounds):
        app.at_most(out, max(highs))
    if any(app.shapes.known_rank(t.shape) is None for t in tensors):
        return
    found = [app.shapes.dims(t.shape) or [] for t in tensors]
    rank = max(map(len, found))
    app.rank(out, rank)
    for place in range(1, rank + 1):
        column = [app.shapes.store.resolve(dims[-place]) for dims in found if place <= len(dims)]
        wide = [d for d in dict.fromkeys(column) if d.known != 1]
        sizes = [d for d in wide if d.known is not None]
        for other in sizes[1:]:
            app.equal(sizes[0], other)
        result = Linear(1) if not wide else sizes[0] if sizes else wide[0] if len(wide) == 1 else None
        if result is not None:
            app.equal(app.dim(out, -place), result)


UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Cast Ceil Celu Cos Cosh CumSum CumProd DequantizeLinear Elu Erf "
    "Exp Floor Gelu HardSigmoid HardSwish Hardmax Identity IsInf IsNaN LeakyRelu Log LogSoftmax LpNormalization LRN "
    "MeanVarianceNormalization Mish Neg Not QuantizeLinear Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh "
    "Softmax Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu CastLike Trilu ReverseSequence "
    "RMSNormalization Clip Bernoulli EyeLike Dropout LayerNormalization PRelu ScatterElements ScatterND"
)


@rules(*UNARY.split())
def _unary(app: Application) -> None:
    app.same(app.out, app.input(0))


@rules("BatchNormalization", "InstanceNormalization", "GroupNormalization")
def _normalization(app: Application) -> None:
    x = app.input(0)
    app.same(app.out, x)
    is_batch = app.op == "BatchNormalization"
    for i in range(1, 5 if is_batch else 3):
        app.rank(app.input(i), 1)
    app.at_least(x, 1 if is_batch else 2)
    if app.op == "InstanceNormalization":
        app.same_dim(x, 1, app.input(1), 0)


@rules(
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor",
)  # fmt: skip
def _broadcast(app: Application) -> None:
    if app.is_complete and app.inputs:
        broadcast(app, app.present(), app.out)


@rules("MatMul", "MatMulInteger")
def _matmul(app: Application) -> None:
    a, b, out = app.input(0), app.input(1), app.out
    if a is None or b is None:
        return
    app.at_least(a, 1)
    app.at_least(b, 1)
    inner = app.dim(a, -1)
    if app.shapes.known_rank(b.shape) == 1:
        app.equal(inner, app.dim(b, 0))
    if app.shapes.rank(b.shape)[0] < 2:
        return
    app.equal(inner, app.dim(b, -2))
    lows = [app.shapes.rank(t.shape)[0] for t in (a, b)]
    if lows[0] < 2:
        return
    app.at_least(out, max(lows))
    app.same_dim(out, -1, b, -1)
    app.same_dim(out, -2, a, -2)
    ranks = [app.shapes.known_rank(t.shape) for t in (a, b)]
    if ranks[0] is not None and ranks[1] is not None:
        app.rank(out, max(ranks[0], ranks[1]))
    elif ranks[1] == 2:
        app.same_rank(a, out)


@rules("Gemm")
def _gemm(app: Application) -> None:
    a, b, out = app.input(0), app.input(1), app.out
    for tensor in (a, b, out):
        app.rank(tensor, 2)
    app.at_most(app.input(2), 2)
    flip_a, flip_b = app.number("transA"), app.number("transB")
    if flip_a is not None:
        app.same_dim(out, 0, a, 1 if flip_a else 0)
    if flip_b is not None:
        app.same_dim(out, 1, b, 0 if flip_b else 1)
    if flip_a is not None and flip_b is not None:
        app.same_dim(a, 0 if flip_a else 1, b, 1 if flip_b else 0)


@rules("Transpose")
def _transpose(app: Application) -> None:
    x = app.input(0)
    app.same_rank(x, app.out)
    length, perm = app.length("perm"), app.items("perm")
    if length is not None:
        app.rank(x, length)
    if perm is not None and sorted(perm) == list(range(len(perm))):
        for to, place in enumerate(perm):
            app.same_dim(app.out, to, x, place)


@rules("Concat")
def _concat(app: Application) -> None:
    app.same_rank(app.out, *app.inputs)
    axis, rank = app.number("axis"), app.shapes.known_rank(app.out.shape)
    if axis is None:
        return
    for tensor in app.present():
        app.at_least(tensor, place_count(axis))
    if rank is None or not -rank <= axis < rank:
        return
    for place in range(rank):
        if place != axis % rank:
            for tensor in app.present():
                app.same_dim(app.out, place, tensor, place)
        elif app.is_complete:
            total = reduce(Linear.plus, (app.dim(t, place) for t in app.present()), Linear(0))
            app.equal(app.dim(app.out, place), total)


@rules("Conv", "ConvInteger", "ConvTranspose")
def _conv(app: Application) -> None:
    x, w, bias, out = app.input(0), app.input(1), app.input(2), app.out
    app.same_rank(x, w, out)
    app.at_least(out, 3)
    _spatial(app, "output_padding")
    for i, size in enumerate(app.items("kernel_shape") or ()):
        if w is not None:
            app.equal(app.dim(w, 2 + i), Linear(size))
    app.same_dim(out, 0, x, 0)
    if w is None or app.op == "ConvInteger":
        return
    app.rank(bias, 1)
    group = app.number("group")
    if app.op == "Conv":
        app.same_dim(out, 1, w, 0)
        app.same_dim(bias, 0, w, 0)
        if group is not None:
            app.same_dim(x, 1, w, 1, group)
    else:
        app.same_dim(x, 1, w, 0)
        if group is not None:
            app.same_dim(out, 1, w, 1, group)
            app.same_dim(bias, 0, w, 1, group)


def _spatial(app: Application, *more: str) -> None:
    """Require attributes to hold one number per spatial axis of the output, and `pads` two."""
    for name in ("pads", "strides", "dilations", "kernel_shape", *more):
        length = app.length(name)
        if length is None:
            continue
        if name == "pads":
            axes = app.shapes.store.fresh()
            if not app.shapes.store.equate(axes.times(2), length):
                has = app.shapes.describe(length)
                message = f"`{name}` of `{app.op}` needs 2 numbers per spatial axis; this has {has} in total"
                raise Conflict("rank-conflict", message)
            length = axes
        app.rank(app.out, length.plus(Linear(2)))


@rules("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _pool(app: Application) -> None:
    x = app.input(0)
    app.same_rank(x, app.out)
    app.at_least(x, 2)
    _spatial(app)
    for place in (0, 1):
        app.same_dim(app.out, place, x, place)


_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


@rules(*(f"Reduce{n}" for n in _REDUCTIONS), "ArgMax", "ArgMin")
def _reduce(app: Application) -> None:
    x, keep = app.input(0), app.number("keepdims")
    if keep:
        app.same_rank(x, app.out)
    elif keep == 0 and app.op in ("ArgMax", "ArgMin") and x is not None:
        app.rank(app.out, x.rank.plus(Linear(-1)))


@rules("Unsqueeze", "Squeeze")
def _insert_or_remove(app: Application) -> None:
    x, axes = app.input(0), app.input(1)
    if x is None or axes is None:
        return
    few, many = (x, app.out) if app.op == "Unsqueeze" else (app.out, x)
    if app.op == "Unsqueeze":
        app.at_most(axes, 1)
    if app.shapes.known_rank(axes.shape) == 1:
        app.rank(many, few.rank.plus(app.dim(axes, 0)))


@rules("Reshape", "ConstantOfShape")
def _to_shape(app: Application) -> None:
    target = app.input(1 if app.op == "Reshape" else 0)
    app.rank(target, 1)
    if target is not None:
        app.rank(app.out, app.dim(target, 0))


@rules("Expand")
def _expand(app: Application) -> None:
    x = app.input(0)
    app.rank(app.input(1), 1)
    if x is not None:
        app.at_least(app.out, app.shapes.rank(x.shape)[0])


@rules("Slice", "Pad", "Tile", "Split", "Resize", "GatherElements")
def _same_rank(app: Application) -> None:
    for out in app.outputs:
        app.same_rank(app.input(0), out)
    for i in range(1, len(app.inputs)):
        if app.op in ("Slice", "Pad", "Tile") and (app.op, i) != ("Pad", 2):
            app.rank(app.input(i), 1)
    lengths = app.input(1)
    if app.op == "Tile" and lengths is not None:
        app.rank(app.input(0), app.dim(lengths, 0))


@rules("Gather")
def _gather(app: Application) -> None:
    x, indices = app.input(0), app.input(1)
    app.at_least(x, 1)
    if x is not None and indices is not None:
        app.rank(app.out, x.rank.plus(indices.rank).plus(Linear(-1)))


_RANKS = {"Shape": 1, "Size": 0, "Flatten": 2, "NonZero": 2, "Range": 1}


@rules(*_RANKS)
def _fixed_rank(app: Application) -> None:
    app.rank(app.out, _RANKS[app.op])


@rules("DepthToSpace", "SpaceToDepth")
def _blocks(app: Application) -> None:
    app.rank(app.input(0), 4)
    app.rank(app.out, 4)
    app.same_dim(app.out, 0, app.input(0), 0)
