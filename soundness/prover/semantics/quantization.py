"""Meaning of quantizations: unknown functions of an element, its scale and its zero point."""

from __future__ import annotations

from collections.abc import Callable

from ..paths import element_types
from ..paths.path import Infeasible, Path
from ..paths.tensors import Tensor
from ..terms.integers import Int, conj, eq
from ..terms.scalars import ZERO, Scalar, app
from .semantics_registry import Attrs, Opaque, operator

_NAMED = ("precision", "saturate", "output_dtype")
"""Attributes that take part in the function, whatever they mean."""


@operator("QuantizeLinear", "DequantizeLinear")
def quantization(path: Path, attrs: Attrs, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """Apply the function to each element, with the scale of the tensor, of its channel or of its block."""
    if zero is not None:
        zero.fix_rank(scale.rank)
        path.assumed.add("a scale and its zero point have one shape")
        path.require(zero.rank == scale.rank, "a scale and its zero point have one shape")
        path.require(conj(*map(eq, zero.shape, scale.shape)), "a scale and its zero point have one shape")
    named = {name: attrs.get(name, Opaque) for name in _NAMED if name in attrs.defaults}
    dtype = _result(path, attrs.op, named["output_dtype"], scale, zero)
    place = _places(path, attrs, x, scale)
    key = (("to", dtype), *((name, str(value)) for name, value in sorted(named.items())))

    def at(index: list[Int]) -> Scalar:
        own = place(index)
        return app(attrs.op, x.at(index), scale.at(own), ZERO if zero is None else zero.at(own), attrs=key)

    return Tensor(path, x.shape, at, dtype=dtype)


def _result(path: Path, op: str, wanted: object, scale: Tensor, zero: Tensor | None) -> str:
    """Return the element type of the result; one that is not stated is a type variable."""
    if op == "DequantizeLinear":
        if wanted == 0:
            return scale.dtype
        found = f"dtype of {wanted} for {element_types.root(path, scale.dtype)}"
        element_types.restrict(path, found, ("float",))
        return found
    found = f"dtype of {wanted}" if zero is None else zero.dtype
    element_types.restrict(path, found, element_types.NUMBERS)
    return found


def _places(path: Path, attrs: Attrs, x: Tensor, scale: Tensor) -> Callable[[list[Int]], list[Int]]:
    """Return where the scale of an element is."""
    if scale.rank == 0:
        return lambda index: []
    if path.decide(eq(attrs.integer("block_size", 0), 0)):
        if scale.rank > 1:
            raise Infeasible("a scale for each tensor, channel or block")
        if path.decide(eq(scale.shape[0], 1)):  # runtimes accept one scale in a vector for any number of channels
            return lambda index: [0]
        axis = attrs.axis("axis", x.rank)
        path.require(eq(scale.shape[0], x.shape[axis]), "a scale for each channel")
        return lambda index: [index[axis]]
    block = attrs.integer("block_size", 0)
    path.require(scale.rank == x.rank, "a scale for each block")
    axis = attrs.axis("axis", x.rank)
    whole = path.divide(x.shape[axis] + block - 1, block)[0]
    wanted = [whole if k == axis else d for k, d in enumerate(x.shape)]
    path.require(conj(*map(eq, scale.shape, wanted)), "a scale for each block")
    return lambda index: [path.divide(i, block)[0] if k == axis else i for k, i in enumerate(index)]
