"""Meaning of elementwise operators: an operator on scalars, with broadcasting."""

from __future__ import annotations

from functools import cache

from ....engine.ir.graph import DType
from ....engine.operators.schemas import signature
from ..paths import element_types
from ..paths.path import NotModeled, Path
from ..paths.tensors import Tensor, broadcast, read_broadcast
from ..terms.integers import Bool, Int, conj, eq
from ..terms.scalars import ZERO, Scalar, app
from .semantics_registry import Attrs, operator

_FLOAT = (
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor",
    "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Reciprocal", "Round", "Selu", "Shrink", "Sigmoid", "Sin",
    "Sinh", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu", "IsNaN", "IsInf", "Gelu",
)  # fmt: skip
_NUMBER = ("Abs", "Relu", "Sign", "Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Sum", "Mean",
           "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "PRelu")  # fmt: skip
_ALLOWED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_FLOAT, ("float",)),
    **dict.fromkeys(_NUMBER, element_types.NUMBERS),
    "Neg": ("float", "int"),
    **dict.fromkeys(("And", "Or", "Xor", "Not"), ("bool",)),
    **dict.fromkeys(("BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"), ("int", "uint")),
    "Equal": (*element_types.NUMBERS, "bool"),
}
"""Kinds of the operands of each operator that acts on scalars."""
TO_TRUTH = frozenset(("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "IsNaN", "IsInf"))
ALL = (*_ALLOWED, "Clip", "Where", "Cast", "CastLike", "Dropout")


def pointwise(path: Path, op: str, attrs: tuple[object, ...], inputs: list[Tensor], dtype: str) -> Tensor:
    """Return an operator on scalars, applied to tensors that broadcast."""
    if path.pointwise:
        return Tensor(path, [], lambda index: app(op, *(x.at([]) for x in inputs), attrs=attrs), dtype=dtype)
    shape = broadcast(path, [x.shape for x in inputs])

    def at(index: list[Int]) -> Scalar:
        return app(op, *(read_broadcast(path, x, index) for x in inputs), attrs=attrs)

    def place(where: Int) -> Scalar:
        return app(op, *(x.at_place(where) if x.rank else x.at([]) for x in inputs), attrs=attrs)

    found = Tensor(path, shape, at, dtype=dtype)
    ranked = [x for x in inputs if x.rank]
    if ranked and all(x.shape == found.shape for x in ranked):
        found._place = place
    return found


def _attributes(attrs: Attrs) -> tuple[object, ...]:
    match attrs.op:
        case "Mod":
            return (("fmod", attrs.option("fmod", (0, 1))),)
        case "LeakyRelu" | "Elu" | "Celu" | "ThresholdedRelu" | "Swish":
            return (("alpha", attrs.real("alpha")),)
        case "Gelu":
            return (("approximate", attrs.option("approximate", ("none", "tanh"))),)
        case "IsInf":
            if 0 in (attrs.option("detect_negative", (0, 1)), attrs.option("detect_positive", (0, 1))):
                raise NotModeled("IsInf of one sign")
            return ()
        case "HardSigmoid":
            return (("alpha", attrs.real("alpha")), ("beta", attrs.real("beta")))
    return attrs.key()


@cache
def _refuses_others(op: str) -> bool:
    """Whether the standard gives an operator no meaning on types that are not modeled, such as floats of 8 bits."""
    found = signature(op)
    return found is not None and element_types.KINDS.keys() >= set(map(str, found.inputs[0].dtypes))


@operator(*_ALLOWED)
def elementwise(path: Path, attrs: Attrs, first: Tensor, *others: Tensor | None) -> Tensor:
    """Define operators that act on scalars by their name."""
    op, dtype = attrs.op, first.dtype
    present = [first, *(x for x in others if x is not None)]
    if op != "Pow":
        element_types.unify(path, *(x.dtype for x in present))
    element_types.restrict(path, dtype, _ALLOWED[op])
    if not path.right and _refuses_others(op):
        path.extra["modeled", dtype] = True
    if op == "PRelu" and not path.pointwise:
        shape = first.shape
        found = pointwise(path, op, (), present, dtype)
        path.require(same_shape(shape, found.shape), "PRelu broadcasts its slope only", typed=True)
        return found
    return pointwise(path, op, _attributes(attrs), present, "bool" if op in TO_TRUTH else dtype)


def same_shape(a: list[Int], b: list[Int]) -> Bool:
    """Return the condition that two shapes are equal."""
    return len(a) == len(b) and conj(*map(eq, a, b))


@operator("Clip")
def clip(path: Path, attrs: Attrs, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """Define `min(max(x, low), high)` with scalar bounds."""
    element_types.restrict(path, x.dtype, element_types.NUMBERS)
    for bound, op in ((low, "Max"), (high, "Min")):
        if bound is not None:
            element_types.unify(path, x.dtype, bound.dtype)
            if not path.pointwise:
                bound.require_rank(0, "a bound of Clip is a scalar")
            x = pointwise(path, op, (), [x, bound], x.dtype)
    return x


@operator("Where")
def where(path: Path, attrs: Attrs, p: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Choose by truth values."""
    element_types.restrict(path, p.dtype, ("bool",))
    element_types.unify(path, x.dtype, y.dtype)
    return pointwise(path, "Where", (), [p, x, y], x.dtype)


@operator("Cast")
def cast(path: Path, attrs: Attrs, x: Tensor) -> Tensor:
    """Convert the element type; the identity if it is the same."""
    to = attrs.get("to", lambda name: f"dtype {name}")
    if not isinstance(to, str):
        raise NotModeled(f"a cast to {to}")
    if element_types.root(path, to) == element_types.root(path, x.dtype):
        return x
    if attrs.is_variable("to") or to in set(DType):
        path.extra["cast", to] = x.dtype
    return pointwise(path, "Cast", (("to", to),), [x], to)


def check_casts(path: Path) -> None:
    """Raise `NotModeled` for casts to a type that may have 8 or 4 bits, once conditions are known.

    Such types have ranges and zeros of their own, and a cast to them may saturate or not. Arithmetic of the left side
    excludes them."""
    modeled = {element_types.root(path, k[1]) for k in path.extra if isinstance(k, tuple) and k[0] == "modeled"}
    for key, source in path.extra.items():
        if isinstance(key, tuple) and key[0] == "cast":
            to = element_types.root(path, key[1])
            known = to in element_types.KINDS or to in modeled
            if not known and to != element_types.root(path, source):
                raise NotModeled("a cast to a type that is not known to have 16 bits or more")


@operator("CastLike")
def cast_like(path: Path, attrs: Attrs, x: Tensor, like: Tensor) -> Tensor:
    """Cast to the type of another tensor, whose shape does not matter."""
    return cast(path, Attrs(path, "Cast", {"to": like.dtype}, None, {}), x)


@operator("Dropout")
def dropout(path: Path, attrs: Attrs, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None) -> Tensor:
    """Define the identity, if the mode is known to be inference or the ratio to be 0."""
    if training is not None:
        known = [path.extra.get(("value of", getattr(t, "name", ""))) for t in (ratio, training)]
        if ZERO not in known:
            raise NotModeled("Dropout in training")
    return x
