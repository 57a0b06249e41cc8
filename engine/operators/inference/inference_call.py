"""Interface of inference rules: the call, and the registry of rules by operator.

A rule is a function from a `Call` (an operator with what is known of its inputs) to the types of the outputs. It may
record the contents of small integer outputs in `Call.contents`. Everything a rule says must hold for every run that
does not fail; what it does not know stays unknown. A call that fails for all inputs raises `IllTyped`. What has to hold
of sizes that are not known yet is recorded in `Call.required`, for callers that ask for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations, zip_longest

import numpy as np

from ...ir.graph import Attrs, Constant, DType, TensorType, ValueType
from ...ir.symbolic import Dim, at_least, broadcast, certainly_differ, growth, maximum, minimum

MAX_ELEMENTS = 64
"""Maximum number of elements of an integer tensor whose contents are followed."""

Shape = tuple[Dim, ...]


class IllTyped(Exception):
    """An operator applied to inputs on which it fails whatever their contents, such as Concat of different ranks."""


class Misfit(IllTyped):
    """Sizes that differ where they must be equal, or are too small: no implementation can compute the operator."""


@dataclass(frozen=True, slots=True)
class SymbolicValue:
    """Known contents of a small tensor of numbers or booleans: one of rank 0, a list, or a matrix with `columns`.

    Elements are dims; they may be negative. Arithmetic is that of integers: values are assumed not to overflow, which
    sizes of tensors do not. `sizes` are elements that are sums and products of sizes of tensors, so not negative.

    Exporters also compute sizes in floats, such as half an image, rounded up. Elements are then dims divided by `over`.
    Dims below 2^24 are exact in f32, and their quotient, once rounded to f32, has the floor and the ceiling of the
    exact one. So contents are followed only if dims stay below 2^24 while sizes are below 2^20 (`fits_f32`), and a
    quotient by another number than a power of two is only rounded to an integer."""

    dims: tuple[Dim, ...]
    rank: int = 1
    columns: int = 0
    sizes: frozenset[Dim] = field(default=frozenset(), compare=False)
    over: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return ((), (len(self.dims),), (len(self.dims) // max(1, self.columns), self.columns))[self.rank]

    @property
    def whole(self) -> tuple[Dim, ...] | None:
        """The elements of a number or a list; None if they may have fractions, or for a matrix."""
        return self.dims if self.rank <= 1 and self.over == 1 else None

    @property
    def is_exact(self) -> bool:
        """Whether floats represent the elements: `over` is a power of two."""
        return self.over & (self.over - 1) == 0

    @property
    def rows(self) -> tuple[tuple[Dim, ...], ...]:
        """Rows of a matrix; of a list, its elements one by one."""
        width = self.columns if self.rank == 2 else 1
        return tuple(self.dims[i : i + width] for i in range(0, len(self.dims), max(1, width)))


Required = tuple[Dim, str]
"""A dim that is 0 wherever an operator does not fail, and what it says of the operands."""


@dataclass(frozen=True, slots=True)
class Inference:
    """Types of all outputs, known contents of each, and the error if the operator fails on all such inputs.

    `required` is what sizes have to meet that are not known yet, if that was asked for."""

    types: tuple[ValueType, ...]
    values: tuple[SymbolicValue | None, ...]
    error: IllTyped | None = None
    required: tuple[Required, ...] = ()


@dataclass(slots=True)
class Call:
    """An operator applied to inputs, with what is known of them; absent inputs have the type None."""

    op: str
    attrs: Attrs
    types: Sequence[ValueType | None]
    values: Sequence[SymbolicValue | None]
    constants: Sequence[Constant | None]
    n_outputs: int
    fresh: Callable[[], Dim]
    contents: dict[int, SymbolicValue | None] = field(default_factory=dict)
    required: list[Required] | None = None

    @property
    def n_inputs(self) -> int:
        """Number of inputs, including absent ones."""
        return len(self.types)

    def present(self, i: int) -> bool:
        """Whether input i is present."""
        return i < len(self.types) and self.types[i] is not None

    def type(self, i: int = 0) -> TensorType:
        """Return the type of input i; all unknown if it is absent or not a tensor."""
        found = self.types[i] if i < len(self.types) else None
        return found if isinstance(found, TensorType) else TensorType()

    def dtype(self, i: int = 0) -> DType | None:
        """Return the element type of input i."""
        return self.type(i).dtype

    def shape(self, i: int = 0) -> Shape | None:
        """Return the shape of input i."""
        return self.type(i).shape

    def rank(self, i: int = 0) -> int | None:
        """Return the rank of input i."""
        return self.type(i).rank

    def length(self, i: int) -> int | None:
        """Return the number of elements of input i, a list; None if it is not known."""
        shape = self.shape(i)
        return shape[0] if shape and isinstance(shape[0], int) else None

    def value(self, i: int) -> SymbolicValue | None:
        """Return the known contents of input i if they are integers, or None."""
        found = self.fraction(i)
        return found if found is not None and found.over == 1 else None

    def fraction(self, i: int) -> SymbolicValue | None:
        """Return the known contents of input i, which may have fractions, or None."""
        return self.values[i] if i < len(self.values) else None

    def numbers(self, i: int) -> SymbolicValue | None:
        """Return the contents of input i; those of a constant of floats if they are multiples of 2^-10 below 2^13."""
        array = self.array(i)
        if array is None or array.ndim > 1 or array.size > MAX_ELEMENTS or array.dtype.kind != "f":
            return self.fraction(i)
        ratios = [Fraction(float(v)) for v in array.reshape(-1) if np.isfinite(v)]
        over = max((r.denominator for r in ratios), default=1)  # a power of two
        numbers = tuple(int(r * over) for r in ratios)
        fit = len(ratios) == array.size and over <= 2**10 and all(abs(n) < 2**24 for n in numbers)
        return SymbolicValue(numbers, array.ndim, over=over) if fit else None

    def dims(self, i: int) -> Shape | None:
        """Return the known contents of input i, a number or a list, as a tuple; or None."""
        found = self.value(i)
        return None if found is None else found.whole

    def is_size(self, d: Dim) -> bool:
        """Whether an element of an input's contents is certainly not negative."""
        return at_least(d, 0) or any(value is not None and d in value.sizes for value in self.values)

    def with_sizes(self, value: SymbolicValue) -> SymbolicValue:
        """Return contents of an output with the sizes among them that inputs have."""
        known = frozenset[Dim]().union(value.sizes, *(found.sizes for found in self.values if found is not None))
        return replace(value, sizes=known.intersection(value.dims)) if known else value

    def ints(self, i: int) -> tuple[int, ...] | None:
        """Return the contents of input i, if they are all known numbers."""
        found = self.dims(i)
        numbers = tuple(d for d in found or () if isinstance(d, int))
        return None if found is None or len(numbers) < len(found) else numbers

    def array(self, i: int) -> np.ndarray | None:
        """Return the elements of input i, if it is a constant."""
        found = self.constants[i] if i < len(self.constants) else None
        return None if found is None else found.array

    def number(self, i: int) -> float | None:
        """Return input i, if it is a constant of one element."""
        found = self.array(i)
        return None if found is None or found.size != 1 else float(found.reshape(-1)[0])

    def integer(self, name: str, default: int = 0) -> int:
        """Return an integer attribute."""
        found = self.attrs.get(name, default)
        return found if isinstance(found, int) else default

    def text(self, name: str, default: str = "") -> str:
        """Return a string attribute."""
        found = self.attrs.get(name, default)
        return found if isinstance(found, str) else default

    def int_list(self, name: str) -> tuple[int, ...] | None:
        """Return an attribute that is a list of integers; None if absent."""
        found = self.attrs.get(name)
        return tuple(v for v in found if isinstance(v, int)) if isinstance(found, tuple) else None

    def axis(self, rank: int, default: int = 0) -> int:
        """Return the attribute `axis`, made non-negative; refuses one out of range for this rank."""
        return self.axis_of(self.integer("axis", default), rank)

    def unknown_dims(self, rank: int | None) -> Shape | None:
        """Return a shape of this rank with unknown dims.

        A rank that no tensor can have gives None: it may come from the numbers of a damaged model."""
        return None if rank is None or rank > MAX_ELEMENTS else tuple(self.fresh() for _ in range(rank))

    def refuse(self, reason: str) -> IllTyped:
        """Return the exception for a call that always fails."""
        return IllTyped(f"{self.op}: {reason}")

    def axis_of(self, axis: int, rank: int) -> int:
        """Return an axis attribute, made non-negative; refuses one out of range."""
        if not -rank <= axis < rank:
            raise self.refuse(f"axis {axis} is out of range for rank {rank}")
        return axis % rank

    def axes_of(self, axes: Iterable[int], rank: int) -> tuple[int, ...]:
        """Return several axes, made non-negative, in their order."""
        return tuple(self.axis_of(axis, rank) for axis in axes)

    def join_shapes(self, *shapes: Shape | None) -> Shape | None:
        """Return the broadcast shape; None if one shape is unknown, refused if they cannot be broadcast together."""
        known = [shape for shape in shapes if shape is not None]
        if len(known) < len(shapes):
            return None
        joined = broadcast(*known)
        if joined is None:
            raise Misfit(f"{self.op}: cannot broadcast " + " with ".join(f"[{', '.join(map(str, s))}]" for s in known))
        if self.required is not None:
            for column in zip_longest(*map(reversed, known), fillvalue=1):
                for a, b in combinations([d for d in dict.fromkeys(column) if d != 1], 2):
                    reason = f"{a} and {b} cannot be broadcast together"
                    self.required.append(((a - b) * (a - 1) * (b - 1), reason))
        return joined

    def agree(self, a: Dim, b: Dim, what: str) -> Dim:
        """Return the common size of two dims that must be equal, a number if one is; refuses provably unequal ones."""
        if certainly_differ(a, b):
            raise Misfit(f"{self.op}: {what}: {a} is not {b}")
        if self.required is not None and a != b:
            self.required.append((a - b, f"{what}: {a} is not {b}"))
        return b if isinstance(b, int) and not isinstance(a, int) else a

    def fit(self, part: Dim, whole: Dim, what: str) -> None:
        """Demand that a dim is 1 or equal to another, as broadcasting needs; refuses one that provably is neither."""
        if certainly_differ(part, 1) and certainly_differ(part, whole):
            raise Misfit(f"{self.op}: {what}: {part} is neither 1 nor {whole}")
        if self.required is not None and part not in (1, whole):
            self.required.append(((part - whole) * (part - 1), f"{what}: {part} is neither 1 nor {whole}"))

    def limit(self, part: Dim, whole: Dim, what: str) -> None:
        """Demand that a dim is not above another; refuses one that provably is."""
        if at_least(part - whole, 1):
            raise Misfit(f"{self.op}: {what}: {part} is more than {whole}")
        if self.required is not None and not at_least(whole - part, 0):
            self.required.append((maximum(part - whole, 0), f"{what}: {part} is more than {whole}"))

    def size_of(self, d: Dim) -> Dim:
        """Return a dim as the size of an output; refuses one that is certainly negative.

        Should it be negative at run time the operator fails, so the dim is valid wherever there is an output."""
        if at_least(-1, d):
            raise self.refuse(f"a dim of the output would be {d}")
        if self.required is not None and not at_least(d, 0):
            self.required.append((minimum(d, 0), f"a dim of the output, {d}, would be negative"))
        return d

    def given_size(self, i: int) -> Dim:
        """Return the number in input i as the size of an output; unknown if the number is."""
        found = self.dims(i)
        return self.size_of(found[0]) if found else self.fresh()

    def dtype_attr(self, name: str, default: DType | None = None) -> DType | None:
        """Return an attribute that names an element type by its ONNX number; the default if absent or zero."""
        with suppress(ValueError):
            return DType.from_onnx(self.integer(name)) if self.integer(name) else default
        return default


Types = Sequence[ValueType]
Rule = Callable[[Call], Types]
ShapeRule = Callable[[Call, Shape], Shape | None]
RULES: dict[str, Rule] = {}
"""Inference rule of each operator at the working opset."""


CHECKS: dict[str, Callable[[Call], None]] = {}
"""What the sizes of the operands of an operator have to meet besides what its rule asks for."""


def check(ops: str) -> Callable[[Callable[[Call], None]], Callable[[Call], None]]:
    """Register the decorated function as the check of these operators, separated by blanks."""

    def register(function: Callable[[Call], None]) -> Callable[[Call], None]:
        assert not CHECKS.keys() & ops.split(), ops
        CHECKS.update(dict.fromkeys(ops.split(), function))
        return function

    return register


def rule(ops: str) -> Callable[[Rule], Rule]:
    """Register the decorated function as the inference rule of these operators, separated by blanks."""

    def register(function: Rule) -> Rule:
        assert not RULES.keys() & ops.split(), ops
        RULES.update(dict.fromkeys(ops.split(), function))
        return function

    return register


def shape_rule(ops: str, rank: int | None = None) -> Callable[[ShapeRule], ShapeRule]:
    """Register a function from the first input's shape to that of the only output, of the same element type.

    If the input's shape is unknown, so is the output's, except that it has this `rank`."""

    def register(function: ShapeRule) -> ShapeRule:
        @rule(ops)
        def infer(call: Call) -> Types:
            shape = call.shape()
            return [TensorType(call.dtype(), call.unknown_dims(rank) if shape is None else function(call, shape))]

        return function

    return register


def with_dims(shape: Shape, axis: int, *dims: Dim) -> Shape:
    """Return a shape with other dims in place of that of an axis."""
    return (*shape[:axis], *dims, *shape[axis + 1 :])


def countable(dtype: DType | None) -> bool:
    """Whether tensors of this element type hold integers or booleans."""
    return dtype is not None and (dtype.is_integer or dtype is DType.BOOL)


def followed(value: SymbolicValue, dtype: DType | None) -> bool:
    """Whether these contents of a tensor of this element type are followed."""
    if len(value.dims) > MAX_ELEMENTS:
        return False
    if dtype is not None and dtype.is_integer:  # in 8 bits -(-128) overflows
        low, high = integer_range(dtype)
        return all(low <= d < high for d in value.dims if isinstance(d, int))
    return countable(dtype) or (dtype in (DType.F32, DType.F64) and all(map(fits_f32, value.dims)))


def integer_range(dtype: DType) -> tuple[int, int]:
    """Return the least number of an integer type, and the first one past its range."""
    signed = dtype.value[0] == "i"
    return (-(1 << dtype.bits - 1) if signed else 0), 1 << (dtype.bits - signed)


def fits_f32(d: Dim) -> bool:
    """Whether f32 holds a dim exactly for all sizes below 2^20."""
    return abs(d) < 1 << 24 if isinstance(d, int) else growth(d) <= 16
