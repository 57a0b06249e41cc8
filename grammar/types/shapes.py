"""Shapes of common operators, as far as they can be said for every instance: ranks, and dims in relation to others.

Each function adds what must hold of the inputs and what follows for the outputs. An operator without an entry says
nothing, so a rule over it is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..diagnostics import Label
from .linear import Linear
from .terms import Conflict, Origin, Shapes, Tensor
from .values import Value

Rule = Callable[["Application"], None]
RULES: dict[str, Rule] = {}


@dataclass(slots=True)
class Application:
    """An operator with its inputs (None where absent or not known to be there), attributes and outputs.

    `attributes` are the values by name, defaults among them; a name that is missing may have any value."""

    op: str
    inputs: list[Tensor | None]
    starred: list[bool]
    attributes: Mapping[str, Value]
    outputs: list[Tensor]
    shapes: Shapes
    origin: Origin

    def input(self, index: int) -> Tensor | None:
        """An input that is one tensor."""
        if index < len(self.inputs) and not any(self.starred[: index + 1]):
            return self.inputs[index]
        return None

    @property
    def out(self) -> Tensor:
        """The first output."""
        return self.outputs[0]

    def present(self) -> list[Tensor]:
        """The inputs that are there."""
        return [t for t in self.inputs if t is not None]

    def rank(self, tensor: Tensor | None, rank: int | Linear) -> None:
        """The rank of a tensor must be this."""
        if tensor is not None:
            wanted = Linear(rank) if isinstance(rank, int) else rank
            self.shapes.equal_rank(tensor.shape, wanted, self.origin)

    def at_least(self, tensor: Tensor | None, rank: int) -> None:
        """The rank of a tensor must be this or more."""
        if tensor is not None:
            self.shapes.at_least(tensor.shape, rank, self.origin)

    def same_rank(self, *tensors: Tensor | None) -> None:
        """The tensors have one rank."""
        found = [t for t in tensors if t is not None]
        for other in found[1:]:
            self.shapes.equal_rank(other.shape, found[0].shape.end().rank, self.origin)

    def same(self, *tensors: Tensor | None) -> None:
        """The tensors have one shape."""
        found = [t for t in tensors if t is not None]
        for other in found[1:]:
            self.shapes.unify(found[0].shape, other.shape, self.origin)

    def dim(self, tensor: Tensor, place: int) -> Linear:
        """A dim that must exist."""
        return self.shapes.dim(tensor.shape, place, self.origin)

    def equal(self, left: Linear, right: Linear) -> None:
        """Two dims must be equal."""
        try:
            self.shapes.equal_dim(left, right, self.origin)
        except Conflict as conflict:
            conflict.labels = conflict.labels or self._places(left, right)
            raise

    def _places(self, *dims: Linear) -> tuple[Label, ...]:
        """Where the dims were written."""
        store = self.shapes.store
        wanted = [store.resolve(d) for d in dims]
        found: dict[Label, None] = {}
        for tensor in (*self.present(), *self.outputs):
            shape = tensor.shape.end()
            for place, origin in shape.places.items():
                dim = shape.dims.get(place)
                if dim is not None and store.resolve(dim) in wanted:
                    found[Label(origin.span, origin.text)] = None
        return tuple(found)

    def number(self, name: str) -> int | None:
        """The number that an attribute is, if known."""
        value = self.attributes.get(name)
        return value.number.known if value is not None and value.number is not None else None

    def length(self, name: str) -> Linear | None:
        """The length of a list that an attribute is."""
        value = self.attributes.get(name)
        return value.length if value is not None else None

    def items(self, name: str) -> list[int] | None:
        """The integers of an attribute that is written out."""
        value = self.attributes.get(name)
        return value.known_items() if value is not None else None


def rules(*names: str) -> Callable[[Rule], Rule]:
    """Enter a function for operators."""

    def enter(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return enter


def broadcast(app: Application, tensors: list[Tensor], out: Tensor) -> None:
    """The output has the shape that the inputs broadcast to."""
    bounds = [app.shapes.rank(t.shape) for t in tensors]
    app.at_least(out, max(low for low, _ in bounds))
    high = app.shapes.rank(out.shape)[1]
    if high is not None:
        for tensor in tensors:
            app.shapes.at_most(tensor.shape, high, app.origin)
    highs = [h for _, h in bounds]
    if all(h is not None for h in highs):
        app.shapes.at_most(out.shape, max(h for h in highs if h is not None), app.origin)
    widest = [t for t in tensors if app.shapes.known_rank(t.shape) is not None]
    if len(widest) < len(tensors):
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
    "GroupNormalization InstanceNormalization RMSNormalization Clip Bernoulli EyeLike"
)


@rules(*UNARY.split(), "Dropout", "LayerNormalization", "BatchNormalization", "ScatterElements", "ScatterND")
def _unary(app: Application) -> None:
    app.same(app.out, app.input(0))
    per_channel = {"BatchNormalization": 4, "InstanceNormalization": 2, "GroupNormalization": 2}.get(app.op, 0)
    for i in range(1, per_channel + 1):
        app.rank(app.input(i), 1)
    x, scale = app.input(0), app.input(1)
    if per_channel:
        app.at_least(x, 2 if app.op != "BatchNormalization" else 1)
    if app.op == "InstanceNormalization" and x is not None and scale is not None:
        app.equal(app.dim(x, 1), app.dim(scale, 0))


@rules(
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor",
)  # fmt: skip
def _broadcast(app: Application) -> None:
    if not any(app.starred) and len(app.present()) == len(app.inputs) > 0:
        broadcast(app, app.present(), app.out)


@rules("PRelu")
def _prelu(app: Application) -> None:
    app.same(app.out, app.input(0))


@rules("MatMul", "MatMulInteger")
def _matmul(app: Application) -> None:
    a, b = app.input(0), app.input(1)
    if a is None or b is None:
        return
    app.at_least(a, 1)
    app.at_least(b, 1)
    inner = app.dim(a, -1)
    if app.shapes.rank(b.shape)[0] >= 2:
        app.equal(inner, app.dim(b, -2))
        if app.shapes.rank(a.shape)[0] >= 2:
            low = max(app.shapes.rank(a.shape)[0], app.shapes.rank(b.shape)[0])
            app.at_least(app.out, low)
            app.equal(app.dim(app.out, -1), app.dim(b, -1))
            app.equal(app.dim(app.out, -2), app.dim(a, -2))
            ranks = [app.shapes.known_rank(t.shape) for t in (a, b)]
            if ranks[0] is not None and ranks[1] is not None:
                app.rank(app.out, max(ranks[0], ranks[1]))
            elif ranks[1] == 2:
                app.same_rank(a, app.out)
    elif app.shapes.known_rank(b.shape) == 1:
        app.equal(inner, app.dim(b, 0))


@rules("Gemm")
def _gemm(app: Application) -> None:
    a, b, out = app.input(0), app.input(1), app.out
    app.rank(a, 2)
    app.rank(b, 2)
    app.rank(out, 2)
    if app.input(2) is not None:
        app.shapes.at_most(app.inputs[2].shape, 2, app.origin)  # type: ignore[union-attr]
    flip = app.number("transA"), app.number("transB")
    if a is not None and flip[0] is not None:
        app.equal(app.dim(out, 0), app.dim(a, 1 if flip[0] else 0))
    if b is not None and flip[1] is not None:
        app.equal(app.dim(out, 1), app.dim(b, 0 if flip[1] else 1))
    if a is not None and b is not None and None not in flip:
        app.equal(app.dim(a, 0 if flip[0] else 1), app.dim(b, 1 if flip[1] else 0))


@rules("Transpose")
def _transpose(app: Application) -> None:
    x = app.input(0)
    app.same_rank(x, app.out)
    length = app.length("perm")
    if length is not None:
        app.rank(x, length)
    perm = app.items("perm")
    if perm is not None and x is not None and sorted(perm) == list(range(len(perm))):
        for to, place in enumerate(perm):
            app.equal(app.dim(app.out, to), app.dim(x, place))


@rules("Concat")
def _concat(app: Application) -> None:
    app.same_rank(app.out, *app.inputs)
    axis = app.number("axis")
    rank = app.shapes.known_rank(app.out.shape)
    for tensor in app.inputs:
        if axis is not None and tensor is not None:
            app.at_least(tensor, axis + 1 if axis >= 0 else -axis)
    if rank is None or axis is None or not -rank <= axis < rank:
        return
    for place in range(rank):
        if place != axis % rank:
            for tensor in app.present():
                app.equal(app.dim(app.out, place), app.dim(tensor, place))
        elif not any(app.starred) and len(app.present()) == len(app.inputs):
            total = Linear(0)
            for tensor in app.present():
                total = total.plus(app.dim(tensor, place))
            app.equal(app.dim(app.out, place), total)


@rules("Conv", "ConvInteger", "ConvTranspose")
def _conv(app: Application) -> None:
    x, w, bias, out = app.input(0), app.input(1), app.input(2), app.out
    app.same_rank(x, w, out)
    app.at_least(out, 3)
    for name, factor in (("pads", 2), ("strides", 1), ("dilations", 1), ("kernel_shape", 1), ("output_padding", 1)):
        length = app.length(name)
        if length is not None:
            app.rank(out, _divided(app, name, length, factor).plus(Linear(2)))
    kernel = app.items("kernel_shape")
    if kernel is not None and w is not None:
        for i, size in enumerate(kernel):
            app.equal(app.dim(w, 2 + i), Linear(size))
    if x is not None:
        app.equal(app.dim(out, 0), app.dim(x, 0))
    if w is None or app.op == "ConvInteger":
        return
    app.rank(bias, 1)
    group = app.number("group")
    if app.op == "Conv":
        app.equal(app.dim(out, 1), app.dim(w, 0))
        if bias is not None:
            app.equal(app.dim(bias, 0), app.dim(w, 0))
        if x is not None and group is not None:
            app.equal(app.dim(x, 1), app.dim(w, 1).times(group))
    else:
        if x is not None:
            app.equal(app.dim(x, 1), app.dim(w, 0))
        if group is not None:
            app.equal(app.dim(out, 1), app.dim(w, 1).times(group))
            if bias is not None:
                app.equal(app.dim(bias, 0), app.dim(w, 1).times(group))


def _divided(app: Application, name: str, length: Linear, factor: int) -> Linear:
    """`length / factor`, which must be whole."""
    if factor == 1:
        return length
    part = app.shapes.store.fresh()
    if not app.shapes.store.equate(part.times(factor), length):
        has = app.shapes.describe(length)
        message = f"`{name}` of `{app.op}` has {factor} numbers for each spatial axis; this has {has} in all"
        raise Conflict("rank-conflict", message)
    return part


@rules("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _pool(app: Application) -> None:
    x = app.input(0)
    app.same_rank(x, app.out)
    app.at_least(x, 2)
    for name, factor in (("pads", 2), ("strides", 1), ("dilations", 1), ("kernel_shape", 1)):
        length = app.length(name)
        if length is not None:
            app.rank(app.out, _divided(app, name, length, factor).plus(Linear(2)))
    if x is not None:
        for place in (0, 1):
            app.equal(app.dim(app.out, place), app.dim(x, place))


_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


@rules(*(f"Reduce{n}" for n in _REDUCTIONS), "ArgMax", "ArgMin")
def _reduce(app: Application) -> None:
    x, keep = app.input(0), app.number("keepdims")
    if keep:
        app.same_rank(x, app.out)
    elif keep == 0 and app.op in ("ArgMax", "ArgMin") and x is not None:
        app.rank(app.out, x.shape.end().rank.plus(Linear(-1)))


@rules("Unsqueeze")
def _unsqueeze(app: Application) -> None:
    x, axes = app.input(0), app.input(1)
    if x is None or axes is None:
        return
    app.shapes.at_most(axes.shape, 1, app.origin)
    if app.shapes.known_rank(axes.shape) == 1:
        app.rank(app.out, x.shape.end().rank.plus(app.dim(axes, 0)))


@rules("Squeeze")
def _squeeze(app: Application) -> None:
    x, axes = app.input(0), app.input(1)
    if x is not None and axes is not None and app.shapes.known_rank(axes.shape) == 1:
        app.rank(x, app.out.shape.end().rank.plus(app.dim(axes, 0)))


@rules("Reshape", "ConstantOfShape")
def _to_shape(app: Application) -> None:
    target = app.input(1 if app.op == "Reshape" else 0)
    app.rank(target, 1)
    if target is not None:
        app.rank(app.out, app.dim(target, 0))


@rules("Expand")
def _expand(app: Application) -> None:
    x, target = app.input(0), app.input(1)
    app.rank(target, 1)
    for tensor in (x,):
        if tensor is not None:
            app.at_least(app.out, app.shapes.rank(tensor.shape)[0])


@rules("Slice", "Pad", "Tile", "Split", "Resize", "GatherElements")
def _same_rank(app: Application) -> None:
    for out in app.outputs:
        app.same_rank(app.input(0), out)
    if app.op in ("Slice", "Pad", "Tile"):
        for i in range(1, len(app.inputs)):
            if (app.op, i) != ("Pad", 2):
                app.rank(app.input(i), 1)
    x, lengths = app.input(0), app.input(1)
    if app.op == "Tile" and x is not None and lengths is not None:
        app.rank(x, app.dim(lengths, 0))


@rules("Gather")
def _gather(app: Application) -> None:
    x, indices = app.input(0), app.input(1)
    app.at_least(x, 1)
    if x is not None and indices is not None:
        total = x.shape.end().rank.plus(indices.shape.end().rank)
        app.rank(app.out, total.plus(Linear(-1)))


@rules("Shape")
def _shape(app: Application) -> None:
    app.rank(app.out, 1)


@rules("Size")
def _size(app: Application) -> None:
    app.rank(app.out, 0)


@rules("Flatten", "NonZero")
def _flatten(app: Application) -> None:
    app.rank(app.out, 2)


@rules("Range")
def _range(app: Application) -> None:
    app.rank(app.out, 1)


@rules("DepthToSpace", "SpaceToDepth")
def _blocks(app: Application) -> None:
    x = app.input(0)
    app.rank(x, 4)
    app.rank(app.out, 4)
    if x is not None:
        app.equal(app.dim(app.out, 0), app.dim(x, 0))
