"""Edits of operands: types, constants, numbers, open attributes, optional inputs, class heads, lists, sharing.

Length: one short edit for each thing that an operand may be.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ...engine.ir.graph import DType
from ...engine.ir.values import OpRef, RestRef
from ...engine.operators.schemas import attributes_of, normalize_attrs
from ...grammar.syntax import ast
from .edit import Edit, Editing, data, extents, is_list, places_of_constants, places_of_tensors, whole
from .instance import Instance, Slot, Tensor, Term, cast, filled, retype, static
from .subject import literal_value
from .values import EXTREME, PLAIN, SMALL, SPECIAL, draw_attribute, draw_operator, every_value, modes, operators_of

_FLOATS = (DType.F32, DType.F64, DType.F16, DType.BF16)
_TINY = (DType.F8E4M3FN, DType.F8E8M0)
"""Types that a conversion may name: they lack infinities, or zeros and signs, and a cast to them may not saturate."""
_INTEGERS = (DType.I64, DType.I32, DType.I8, DType.U8, DType.I16, DType.U32)
_LARGEST = 256
"""Maximum number of elements of a constant that is different in one place."""
_FAR = 99.0
"""Integer beyond all extents: a step of this length leaves one element, from which shapes do not tell sides apart."""
_LONGEST = 7
"""Maximum extent of a constant that takes the place of an input."""
_WRAPPERS = ("Relu", "Abs", "Neg", "Sigmoid", "Tanh", "Exp", "Sqrt", "Floor", "Sign", "Reciprocal", "Softplus",
             "Identity")  # fmt: skip
_MOST_MEMBERS = 5

# --- element types ---


def _tensors_of_one_dtype(editing: Editing, instance: Instance) -> list[Any]:
    dtypes = sorted({t.dtype for _, t in instance.tensors})
    return [[one for one in instance.tensors if one[1].dtype is dtype] for dtype in dtypes]


def _single_tensors(editing: Editing, instance: Instance) -> list[Any]:
    return [(one,) for one in places_of_tensors(editing, instance)]


def _other_dtypes(old: DType) -> list[DType]:
    """Return other element types; the related ones come twice, to be sampled more often."""
    near = _FLOATS if old.is_float else _INTEGERS
    far = (*_INTEGERS, DType.BOOL) if old.is_float else (*_FLOATS, DType.BOOL)
    return [d for d in (*dict.fromkeys((*near, *far)), *near, *near) if d is not old]


def _dtypes(editing: Editing, instance: Instance, *tensors: tuple[Slot, Tensor]) -> Iterator[Instance]:
    """Change the element type of all tensors of one type."""
    for new in _other_dtypes(tensors[0][1].dtype):
        yield instance.replace_tensors({slot: _retyped(editing, slot, t, new) for slot, t in tensors})


def _retyped(editing: Editing, slot: Slot, tensor: Tensor, dtype: DType) -> Tensor:
    """Return the tensor with another element type; the value of a literal is rounded again."""
    number = literal_value(editing.subject.literals.get(slot[0]))
    if number is not None and tensor.array is not None:
        return filled(tensor.array.shape, number, dtype)
    return retype(tensor, dtype)


def _type(editing: Editing, instance: Instance, slot: Slot, tensor: Tensor) -> Iterator[Instance]:
    """Give an input the element type and shape of another operand, of a dim or of a list of dims: one may then stand
    for the other, or for the result, where it should not."""
    types = [*((t.dtype, t.shape) for _, t in instance.tensors), (DType.I64, ()), (DType.I64, (1,))]
    for dtype, shape in dict.fromkeys(types):
        if dtype is not tensor.dtype:
            yield instance.replace_tensors({slot: Tensor(dtype, shape)})


# --- constants ---


def _short(tensor: Tensor) -> tuple[int, ...] | None:
    """Return the shape that a constant in place of a tensor has; None if it would be large or is not known."""
    shape = static(tensor.shape)
    return shape if shape is not None and max(shape, default=0) <= _LONGEST else None


def _constness(editing: Editing, instance: Instance, slot: Slot, tensor: Tensor) -> Iterator[Instance]:
    """Exchange a constant for an input, or an input for a constant."""
    if tensor.is_const:
        yield instance.replace_tensors({slot: Tensor(tensor.dtype, tensor.shape)})
    elif (shape := _short(tensor)) is not None:
        yield instance.replace_tensors({slot: editing.drawn(tensor.dtype, shape)})


def _small_constant(editing: Editing, instance: Instance, slot: Slot, tensor: Tensor) -> Iterator[Instance]:
    """Replace an input by a constant of small numbers, or of one element."""
    for shape in dict.fromkeys(((), (1,), (1,) * len(tensor.shape), static(tensor.shape))):
        if shape is not None and not tensor.is_const:
            yield instance.replace_tensors({slot: editing.drawn(tensor.dtype, shape, SMALL)})


def _fill(editing: Editing, instance: Instance, slot: Slot, tensor: Tensor) -> Iterator[Instance]:
    """Fill a constant operand with one of the rule's own numbers, as a condition may require; keep the other constants,
    or draw them again."""
    shape, numerics = _short(tensor), editing.subject.rule.numerics
    if shape is None:
        return
    numbers = [*dict.fromkeys((*editing.subject.numbers, 0.0, 1.0))][:6]
    numbers += [] if numerics == "fast" else [np.inf, -np.inf]
    numbers += [-0.0, *_limits(tensor.dtype)] if numerics == "exact" else []
    scalar = tensor.is_const and tensor.dtype.is_integer and not shape
    numbers += [_FAR] if scalar else []
    for number in numbers if tensor.dtype.is_float else [n for n in numbers if np.isfinite(n)]:
        with np.errstate(all="ignore"):
            array = np.full(shape, number).astype(tensor.dtype.numpy)  # -1 is the largest of unsigned integers, too
        changed = instance.replace_tensors({slot: Tensor.of(array)})
        yield changed
        if scalar and number == _FAR and any(static(t.shape) is None for _, t in instance.tensors):
            sizes = {s: tuple(d if isinstance(d, int) else 3 for d in t.shape) for s, t in data(instance)}
            yield editing.resized(changed, sizes)
        others = [(s, t.dtype, t.array.shape) for s, t in instance.tensors if t.array is not None and s != slot]
        yield changed.replace_tensors({other: editing.drawn(dtype, size) for other, dtype, size in others})


def _limits(dtype: DType) -> list[float]:
    """Return the largest finite number of a float type that NumPy has."""
    return [float(np.finfo(np.dtype(dtype.numpy.name)).max)] if dtype in (DType.F16, DType.F32, DType.F64) else []


def _one_element(editing: Editing, instance: Instance, slot: Slot, tensor: Tensor) -> Iterator[Instance]:
    """Change one element of a constant, in its own shape or in that of another operand: a condition on all elements
    then holds for the others only."""
    if tensor.array is None or not tensor.array.size or tensor.array.dtype.kind not in "iuf":
        return
    if is_list(tensor) and tensor.array.size > 1:  # one number in a list may be data
        return
    shapes = [s for _, t in instance.tensors if not is_list(t) and (s := static(t.shape)) is not None]
    for shape in dict.fromkeys([tensor.array.shape, *shapes]):
        base = np.resize(tensor.array, shape)
        if not 1 < base.size <= _LARGEST:
            continue
        last = base.reshape(-1)[-1].item()  # exact: an integer near the end of its type stays within it
        numbers = [last - 2 if last > 100 else last + 2]
        if tensor.dtype.is_float and last == 0:
            numbers.append(-0.0)
        if tensor.dtype.is_float and editing.subject.rule.numerics != "fast":
            numbers += [-np.inf, np.inf, np.nan]
        for number in numbers:
            array = base.copy()
            with np.errstate(all="ignore"):
                array.reshape(-1)[-1] = number
            yield instance.replace_tensors({slot: Tensor.of(array)})


def _contents(editing: Editing, instance: Instance, slot: Slot, tensor: Tensor) -> Iterator[Instance]:
    """Give a constant other contents: drawn, permuted, negated, or taken from another constant."""
    array, rng = tensor.array, editing.rng
    assert array is not None
    if not array.size:
        return

    def changed(contents: np.ndarray[Any, Any]) -> Instance:
        return instance.replace_tensors({slot: Tensor.of(cast(contents, array.dtype))})

    for style in (PLAIN, {"exact": EXTREME, "reassoc": SPECIAL}.get(editing.subject.rule.numerics, SMALL)):
        yield instance.replace_tensors({slot: editing.drawn(tensor.dtype, array.shape, style)})
    for _ in range(3):
        yield changed(np.full(array.shape, _number(editing, tensor.dtype)))
    for factor in (1, 2, -1):
        others = [t.array for _, t in instance.tensors if t.array is not None and t.array.size]
        yield changed(np.resize(editing.pick(others).astype(np.float64), array.shape) * factor)
    yield changed(rng.permutation(array.reshape(-1)).reshape(array.shape))
    yield changed(~array if array.dtype.kind == "b" else -array.astype(np.float64))
    if tensor.dtype.is_float:
        yield changed(np.abs(array.astype(np.float64)) + 0.25)
    for _ in range(2):
        found = array.copy()
        number = cast(np.asarray(_number(editing, tensor.dtype)), array.dtype)
        found.reshape(-1)[int(rng.integers(array.size))] = number
        yield changed(found)


def _number(editing: Editing, dtype: DType) -> float:
    """Return a number of the rule, or one at which identities fail."""
    numerics = editing.subject.rule.numerics
    if editing.subject.numbers and editing.rng.random() < 0.5:
        return float(editing.pick(editing.subject.numbers))
    general = [0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 1e-3]
    if dtype.is_float and numerics != "fast":
        general += [np.nan, np.inf, -np.inf, -0.0, 0.5 + 2.0**-20]
    if dtype in (DType.F32, DType.F64) and numerics != "fast":
        limits = np.finfo(np.dtype(dtype.numpy.name))
        general += [float(limits.max), float(limits.min), 1e30, *([1e-42] if numerics == "exact" else [])]
    elif dtype.is_integer:
        whole_limits = np.iinfo(np.dtype(dtype.numpy.name))
        general += [5.0, -2.0, float(whole_limits.max), float(whole_limits.min)]
    return float(editing.pick(general))


def _one_number(editing: Editing, instance: Instance) -> Iterator[Instance]:
    """Set all integer constants to the same small number: conditions on divisors, powers and logarithms hold for few
    numbers. Or all floats to the same infinity: a minimum is infinite only where all operands are."""
    arrays = [(slot, t.array, t.dtype) for slot, t in instance.tensors if t.array is not None]
    found = [(slot, array) for slot, array, dtype in arrays if dtype.is_integer]
    for number in range(1, 13) if found else ():
        yield instance.replace_tensors({slot: Tensor.of(np.full_like(array, number)) for slot, array in found})
    floats = [(slot, array) for slot, array, dtype in arrays if dtype.is_float]
    for infinity in (np.inf, -np.inf) if len(floats) > 1 and editing.subject.rule.numerics != "fast" else ():
        yield instance.replace_tensors({slot: Tensor.of(np.full_like(array, infinity)) for slot, array in floats})


# --- numbers in lists and attributes ---


def _places_of_numbers(editing: Editing, instance: Instance) -> list[Any]:
    return [(name,) for name, value in instance.operands.items() if _has_numbers(value)]


def _has_numbers(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(v, int | float) for v in value)
    return is_list(value) if isinstance(value, Tensor) else isinstance(value, int | float | str)


def _numbers(editing: Editing, instance: Instance, name: str) -> Iterator[Instance]:
    """Change an attribute, or a list of numbers that is an attribute or a constant."""
    value = instance.operands[name]
    ranks = sorted({len(t.shape) for _, t in instance.tensors})
    changed: Iterable[Any]
    match value:
        case Tensor(array=np.ndarray() as array):
            wide = (np.array(v, dtype=object).clip(-(2**63), 2**63 - 1) for v in _lists(array.tolist(), ranks, editing))
            changed = (Tensor.of(items.astype(np.int64).astype(array.dtype)) for items in wide)
        case list():
            if all(type(v) is int for v in value):
                changed = _lists(value, ranks, editing)
            else:
                changed = (
                    [*value[:at], number, *value[at + 1 :]]
                    for at, item in enumerate(value)
                    for number in _scalars(item, [], editing)
                )
        case DType():
            changed = (*_other_dtypes(value), *_TINY)
        case str():
            changed = modes(value)
        case bool():
            changed = [not value]
        case _:
            changed = _scalars(value, ranks, editing)
    for new in changed:
        if new != value:
            yield instance.replace(**{name: new})


def _scalars(value: Any, ranks: list[int], editing: Editing) -> Iterator[Any]:
    if isinstance(value, int):
        yield from (value + 1, value - 1, 0, 1, -1, 2, -2, 3, -3, -4, 9)  # a step of 9 leaves one element
        yield from (value + sign * rank for rank in ranks for sign in (1, -1))
        yield from (int(n) for n in editing.subject.numbers if n == int(n) and abs(n) < 100)
    else:
        yield from (2.0 * value, -value, 0.0, 1.0, -1.0, 0.5, 1e-3)
        yield from (float(np.float32(n)) for n in editing.subject.numbers)


def _lists(items: list[int], ranks: list[int], editing: Editing) -> Iterator[list[int]]:
    """Lists with one element changed, two exchanged, one larger for another that is smaller; longer, shorter, reversed,
    all larger; counted from the other end."""
    for at, value in enumerate(items):
        for number in (value + 1, value + 2, value - 1):
            yield [*items[:at], number, *items[at + 1 :]]
    for at in range(len(items) - 1):
        yield [*items[:at], items[at + 1], items[at], *items[at + 2 :]]
    for at, value in enumerate(items):  # as many in total, in more parts or in fewer
        if value > 0:
            yield [*items[:at], value - 1, 1, *items[at + 1 :]]
            yield [*items[:at], value - 1, *items[at + 1 :], 1]
        if at:
            yield [*items[: at - 1], items[at - 1] + value, *items[at + 1 :]]
    half = len(items) // 2
    for one, other in itertools.permutations(range(len(items)), 2):
        if len(items) <= 6 or abs(one - other) in (1, half):  # neighbors, or begin and end of one axis
            found = list(items)
            found[one], found[other] = found[one] + 1, found[other] - 1
            yield found
    yield [*items, items[-1] + 1 if items else 0]
    yield from (items[:-1], items[1:], items[::-1])
    for more in (1, 2, 8):  # large steps leave one element, from which shapes no longer tell the sides apart
        yield [v + more for v in items]
    for rank in ranks:
        yield [v - rank if v >= 0 else v + rank for v in items]
    yield [int(v) for v in editing.rng.integers(0, 3, len(items))]
    yield [items[int(i)] for i in editing.rng.permutation(len(items))]


def _highest_rank(instance: Instance) -> int:
    return max((len(t.shape) for _, t in instance.tensors), default=2)


# --- attributes that the pattern leaves open ---


def _places_of_rests(editing: Editing, instance: Instance) -> list[Any]:
    return [(name, op) for name, ops in sorted(editing.subject.rests.items()) for op in dict.fromkeys(ops)]


def _rest(editing: Editing, instance: Instance, name: str, op: str) -> Iterator[Instance]:
    """Set an attribute that the pattern leaves open; or padding together with steps or gaps, because these compensate
    for each other in the shape of the result."""
    before = instance.operands.get(name)
    attrs = before.attrs if isinstance(before, RestRef) else {}
    attributes, rank = sorted(attributes_of(op)), _highest_rank(instance)
    for attribute in attributes:
        drawn = [draw_attribute(op, attribute, rank, editing.rng) for _ in range(3)]
        for value in every_value(op, attribute, rank) or drawn:
            if value is not None:
                changed = instance.replace(**{name: RestRef({**attrs, attribute: value})})
                yield changed
                if attribute == "pads":
                    yield _larger_image(editing, changed)
    for other in ("strides", "dilations"):
        if rank > 2 and {"pads", other} <= set(attributes):
            together = {"pads": (1,) * (2 * (rank - 2)), other: (2,) * (rank - 2)}
            yield instance.replace(**{name: RestRef({**attrs, **together})})


def _coarse(editing: Editing, instance: Instance, name: str, op: str) -> Iterator[Instance]:
    """Let a result have a coarse type and fill a constant: different numbers may then become equal, or vanish."""
    before = instance.operands.get(name)
    attrs = before.attrs if isinstance(before, RestRef) else {}
    for dtype in every_value(op, "output_dtype", 0) or () if "output_dtype" in attributes_of(op) else ():
        changed = instance.replace(**{name: RestRef({**attrs, "output_dtype": dtype})})
        for slot, tensor in places_of_constants(editing, changed):
            if tensor.dtype.is_float:
                yield from _fill(editing, changed, slot, tensor)


def _larger_image(editing: Editing, instance: Instance) -> Instance:
    """Return the instance with one more place along each axis of an image: where steps leave some out, padding does not
    always make the result larger."""
    found = [(s, t) for s, t in data(instance) if len(t.shape) > 2][:1]
    sizes = {s: (*t.shape[:2], *(d + 1 if isinstance(d, int) else d for d in t.shape[2:])) for s, t in found}
    return editing.resized(instance, sizes)


# --- optional inputs ---


def _places_of_optional(editing: Editing, instance: Instance) -> list[Any]:
    return [(name,) for name in sorted(editing.subject.optional)]


def _optional(editing: Editing, instance: Instance, name: str) -> Iterator[Instance]:
    """Leave out an optional input, or replace it by another operand."""
    if instance.operands.get(name) is not None:
        yield instance.without(name)
        return
    for value in [v for v in instance.operands.values() if isinstance(v, Tensor)]:
        yield instance.replace(**{name: value})


def _given_optional(editing: Editing, instance: Instance, name: str) -> Iterator[Instance]:
    """Add an absent optional input, as a drawn constant or as an input."""
    found = [t for _, t in instance.tensors]
    if not found or instance.operands.get(name) is not None:
        return
    dims = [d for t in found for d in t.shape if isinstance(d, int)] or [1]
    for _ in range(8):
        like = editing.pick(found)
        rank = editing.pick([0, 1, 1, 1, 2, len(like.shape)])
        shape = tuple(int(editing.pick(dims)) for _ in range(rank))
        dtype = editing.pick([like.dtype, like.dtype, DType.I64])
        yield instance.replace(**{name: editing.drawn(dtype, shape, SMALL if dtype is DType.I64 else PLAIN)})
    yield instance.replace(**{name: Tensor(dtype, shape)})


def _optional_of_each_shape(editing: Editing, instance: Instance, name: str) -> Iterator[Instance]:
    """Add an absent optional input: a constant scalar, or a vector along an axis of the data."""
    found = [t for _, t in data(instance)]
    if found and instance.operands.get(name) is None:
        dtype = next((t.dtype for t in found if t.dtype.is_float), found[0].dtype)
        for shape in ((), *((d,) for d in extents(data(instance)) if 0 < d <= _LONGEST)):
            yield instance.replace(**{name: editing.drawn(dtype, shape)})


# --- operators and alternatives ---


def _places_of_heads(editing: Editing, instance: Instance) -> list[Any]:
    return [(name,) for name in sorted(editing.subject.heads)]


def _head(editing: Editing, instance: Instance, name: str) -> Iterator[Instance]:
    """Choose another operator of its class, or other attributes, for a class head."""
    kind, inputs = editing.subject.heads[name]
    rank, before = _highest_rank(instance), instance.operands.get(name)
    ops = operators_of(kind, inputs, editing.subject.library.kinds)
    for op in ops:
        yield instance.replace(**{name: draw_operator(op, rank, editing.rng)})
    if isinstance(before, OpRef) and before.attrs:
        for _ in range(1 + len(ops) // 2):
            drawn = draw_operator(before.op, rank, editing.rng)
            yield instance.replace(**{name: OpRef(before.op, {**before.attrs, **drawn.attrs})})


def _quotient(editing: Editing, instance: Instance, name: str) -> Iterator[Instance]:
    """Let a class head divide integers. Constants are not 0, but for one element of one of them: the model need not
    divide by it, and then the other side must not either."""
    kind, inputs = editing.subject.heads[name]
    floats = {slot: t for slot, t in instance.tensors if t.dtype.is_float}
    whole = {
        s: Tensor(DType.I64, t.shape) if t.array is None else Tensor.of(np.full(t.array.shape, 3))
        for s, t in floats.items()
    }
    for op in ("Div", "Mod") if kind == "elementwise" and inputs == 2 else ():
        divided = instance.replace(**{name: OpRef(op, normalize_attrs(op, {}))}).replace_tensors(whole)
        yield divided
        for slot, tensor in whole.items():
            if tensor.array is not None and tensor.array.size > 1:
                array = tensor.array.copy()
                array.reshape(-1)[array.size // 2] = 0
                yield divided.replace_tensors({slot: Tensor.of(array)})


def _product_of_zeros(editing: Editing, instance: Instance, name: str) -> Iterator[Instance]:
    """Let a class head multiply constants that have zeros of both signs: a product is the one operation of two operands
    that shows the sign of a zero beside any other number."""
    kind, inputs = editing.subject.heads[name]
    zeros = {}
    for slot, tensor in instance.tensors:
        if tensor.array is not None and tensor.array.size > 1 and tensor.dtype.is_float:
            array = tensor.array.copy()
            array.reshape(-1)[:2] = (-0.0, 0.0)
            zeros[slot] = Tensor.of(array)
    if kind == "elementwise" and inputs == 2 and zeros and editing.subject.rule.numerics == "exact":
        yield instance.replace(**{name: OpRef("Mul", normalize_attrs("Mul", {}))}).replace_tensors(zeros)


def _alternative(editing: Editing, instance: Instance) -> Iterator[Instance]:
    count = editing.subject.alternatives
    for form in range(count) if instance.form < count else ():
        yield Instance(form, instance.operands, instance.steps + 1)


# --- lists of tensors ---


def _places_of_tensor_lists(editing: Editing, instance: Instance) -> list[Any]:
    return [(n,) for n, v in instance.operands.items() if _is_tensor_list(v)]


def _is_tensor_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(v is None or isinstance(v, Tensor | Term) for v in value)


def _members(editing: Editing, instance: Instance, name: str) -> Iterator[Instance]:
    """Remove a member of a list of tensors, or of all lists of its length; add one, or reorder them."""
    size = len(instance.operands[name])
    related = [n for n, v in instance.operands.items() if _is_tensor_list(v) and len(v) == size]
    every = list(range(size))
    orders = [[i for i in every if i != at] for at in every] if size > 1 else []
    orders += [[*every, at] for at in every] if size < _MOST_MEMBERS else []
    orders.append([int(i) for i in editing.rng.permutation(size)])
    for chosen in (related, [name]):
        for order in orders:
            yield instance.replace(**{n: [instance.operands[n][i] for i in order] for n in chosen})


# --- shared and computed operands ---


def _places_of_variables(editing: Editing, instance: Instance) -> list[Any]:
    return [(n,) for n, v in instance.operands.items() if isinstance(v, Tensor | Term) and not n.startswith("_")]


def _alias(editing: Editing, instance: Instance, name: str) -> Iterator[Instance]:
    """Let two variables share one tensor."""
    if isinstance(instance.operands[name], Term):
        return
    for one, value in instance.operands.items():
        if one != name and isinstance(value, Tensor) and not one.startswith("_"):
            yield _last(instance, {name: Term(ast.Name(span=editing.subject.rule.span, id=one))})


def _wrap(editing: Editing, instance: Instance, name: str) -> Iterator[Instance]:
    """Compute a tensor by an operator whose range the engine knows."""
    value, span = instance.operands[name], editing.subject.rule.span
    match value:
        case Term(expr=ast.Call(args=(_,), attributes=()) as call):
            for op in _WRAPPERS:
                yield instance.replace(**{name: Term(ast.Call(span=span, head=op, args=call.args))})
        case Tensor():
            inner = f"{name}_in"
            for op in _WRAPPERS:
                call = ast.Call(span=span, head=op, args=(ast.Name(span=span, id=inner),))
                yield _last(instance, {inner: value, name: Term(call)})


def _last(instance: Instance, operands: dict[str, Any]) -> Instance:
    """Return the instance with some operands behind all others, which they may read."""
    others = {name: value for name, value in instance.operands.items() if name not in operands}
    return Instance(instance.form, {**others, **operands}, instance.steps + 1)


DTYPES = Edit(_tensors_of_one_dtype, _dtypes, weight=3)
VALUE_EDITS = (
    Edit(places_of_tensors, _constness, weight=2, enumerated="all"),
    Edit(_places_of_numbers, _numbers, weight=1, enumerated="all", per_place=3),
    Edit(places_of_constants, _one_element, weight=1, enumerated="all"),
    Edit(places_of_tensors, _fill, weight=2, enumerated="all"),
    Edit(whole, _one_number, weight=1, enumerated="all"),
    Edit(places_of_tensors, _type, weight=1, enumerated="all"),
    DTYPES,
    Edit(_single_tensors, _dtypes, weight=1),
    Edit(places_of_tensors, _small_constant, weight=1),
    Edit(places_of_constants, _contents, weight=2, per_place=3),
)
STRUCTURE_EDITS = (
    Edit(_places_of_rests, _rest, weight=3, enumerated="all"),
    Edit(_places_of_rests, _coarse, weight=1, enumerated="all"),
    Edit(_places_of_optional, _optional, weight=1, enumerated="all"),
    Edit(_places_of_optional, _optional_of_each_shape, weight=1, enumerated="all"),
    Edit(_places_of_optional, _given_optional, weight=1),
    Edit(_places_of_heads, _head, weight=3),
    Edit(_places_of_heads, _quotient, weight=1, enumerated="all"),
    Edit(_places_of_heads, _product_of_zeros, weight=1, enumerated="all"),
    Edit(_places_of_tensor_lists, _members, weight=2),
    Edit(_places_of_variables, _alias, weight=1),
    Edit(_places_of_variables, _wrap, weight=2),
    Edit(whole, _alternative, weight=1),
)
