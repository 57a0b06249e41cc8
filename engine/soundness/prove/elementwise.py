"""The meaning of elementwise operators: an operator on scalars, under broadcasting."""

from __future__ import annotations

from . import types
from .attributes import Attrs
from .integers import Bool, Int, conj, eq
from .path import Infeasible, NotModelled, Path
from .registry import Inputs, given, operator
from .scalars import ZERO, Scalar, app
from .tensors import Leaf, Tensor, broadcast, read_broadcast

_FLOAT = (
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor",
    "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Reciprocal", "Round", "Selu", "Shrink", "Sigmoid", "Sin",
    "Sinh", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu", "IsNaN", "IsInf", "Gelu",
)  # fmt: skip
_SIGNED = ("Neg",)
_NUMBER = ("Abs", "Relu", "Sign", "Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Sum", "Mean",
           "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Clip", "PRelu")  # fmt: skip
_TRUTH = ("And", "Or", "Xor", "Not")
_BITS = ("BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")
TO_TRUTH = frozenset(("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "IsNaN", "IsInf"))
ALL = (*_FLOAT, *_SIGNED, *_NUMBER, *_TRUTH, *_BITS, "Equal", "Where", "Cast", "CastLike", "Dropout")


def pointwise(path: Path, op: str, attrs: tuple[object, ...], inputs: list[Tensor], dtype: str) -> Tensor:
    """An operator on scalars, applied to tensors that broadcast together."""
    if path.extra.get("pointwise"):
        return Tensor(path, [], lambda index: app(op, *(x.at([]) for x in inputs), attrs=attrs), dtype=dtype)
    shape = broadcast(path, [x.shape for x in inputs])

    def at(index: list[Int]) -> Scalar:
        return app(op, *(read_broadcast(path, x, index) for x in inputs), attrs=attrs)

    found = Tensor(path, shape, at, dtype=dtype)
    ranked = [x for x in inputs if x.rank]
    plain = all(x.shape == found.shape for x in ranked)

    def place(where: Int) -> Scalar:
        operands = (x.at_place(where) if x.rank else x.at([]) for x in inputs)
        return app(op, *operands, attrs=attrs)

    if plain and ranked:
        found._place = place
    return found


def _attributes(path: Path, op: str, attrs: Attrs) -> tuple[object, ...]:
    match op:
        case "Mod":
            return (("fmod", attrs.option("fmod", (0, 1))),)
        case "LeakyRelu" | "Elu" | "Celu" | "ThresholdedRelu" | "Swish":
            return (("alpha", attrs.real("alpha")),)
        case "HardSigmoid":
            return (("alpha", attrs.real("alpha")), ("beta", attrs.real("beta")))
    return attrs.key()


@operator(*_FLOAT, *_SIGNED, *_NUMBER, *_TRUTH, *_BITS, "Equal")
def elementwise(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """An operator on scalars by its name."""
    op = path.extra["operator"]
    present = [x for x in inputs if x is not None]
    if op == "Clip":
        return [_clip(path, inputs)]
    first = given(inputs, 0).dtype
    for x in present[1:]:
        if op not in ("Pow",):
            types.unify(path, first, x.dtype)
    if op in _FLOAT:
        types.restrict(path, first, ("float",))
    elif op in _SIGNED:
        types.restrict(path, first, ("float", "int"))
    elif op in _NUMBER:
        types.restrict(path, first, types.NUMBERS)
    elif op in _TRUTH:
        types.restrict(path, first, ("bool",))
    elif op in _BITS:
        types.restrict(path, first, ("int", "uint"))
    if op == "PRelu" and not path.extra.get("pointwise"):
        shape = given(inputs, 0).shape
        found = pointwise(path, op, (), present, first)
        path.require(same_shape(shape, found.shape), "PRelu broadcasts its slope only", typed=True)
        return [found]
    return [pointwise(path, op, _attributes(path, op, attrs), present, "bool" if op in TO_TRUTH else first)]


def same_shape(a: list[Int], b: list[Int]) -> Bool:
    """That two shapes are equal."""
    return len(a) == len(b) and conj(*(eq(x, y) for x, y in zip(a, b, strict=True)))


def _clip(path: Path, inputs: Inputs) -> Tensor:
    """`min(max(x, low), high)`; bounds are scalars."""
    x = given(inputs, 0)
    types.restrict(path, x.dtype, types.NUMBERS)
    for bound, op in zip(inputs[1:], ("Max", "Min"), strict=False):
        if bound is None:
            continue
        types.unify(path, x.dtype, bound.dtype)
        if not path.extra.get("pointwise"):
            if isinstance(bound, Leaf) and bound.fixed is None:
                bound.fixed = 0
            if bound.rank:
                raise Infeasible("a bound of Clip is a scalar")
        x = pointwise(path, op, (), [x, bound], x.dtype)
    return x


@operator("Where")
def where(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """A choice by truth values."""
    p, x, y = (given(inputs, k) for k in range(3))
    types.restrict(path, p.dtype, ("bool",))
    types.unify(path, x.dtype, y.dtype)
    return [pointwise(path, "Where", (), [p, x, y], x.dtype)]


@operator("Cast")
def cast(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """Another element type; nothing if it is the same."""
    x = given(inputs, 0)
    to = attrs._get("to", lambda name: f"dtype {name}")
    if not isinstance(to, str):
        raise NotModelled(f"a cast to {to}")
    if types.root(path, to) == types.root(path, x.dtype):
        return [x]
    return [pointwise(path, "Cast", (("to", to),), [x], to)]


@operator("CastLike")
def cast_like(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """Cast to the type of another tensor, whose shape means nothing."""
    return cast(path, Attrs(path, {"to": given(inputs, 1).dtype}, None, {}), inputs[:1])


@operator("Dropout")
def dropout(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """Nothing, in inference or at ratio 0: what is known of one of the two has to be that it is false, or 0."""
    x = given(inputs, 0)
    if len(inputs) > 2 and inputs[2] is not None:
        known = [path.extra.get(("value of", getattr(t, "name", ""))) for t in inputs[1:3] if t is not None]
        if ZERO not in known:
            raise NotModelled("Dropout in training")
    return [x]
