"""Changes to one instance, each kind at every place, where `perturb` changes by chance.

What a wrong rule gets wrong often shows at one place only: an axis of one operand, one element of a list of strides, a
constant that varies along another axis than it should, a sum over nothing. So the first instances on which a rule fires
are changed at all of them in turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from ..graph import DType
from ..operators import signature
from ..symbolic import Dim, symbol
from ..values import RestRef
from . import values
from .attributes import draw_attribute, every_value, other_mode
from .instance import Instance
from .operand import Tensor
from .perturb import Slot, literal_value, numbers_of, resize, tensors
from .run import Subject

_RANK = 5
"""The highest rank of a constant that is given another shape."""
_MOST_EXTENTS = 5
"""How many extents may be told apart where all ways to choose them are tried."""


def swept(subject: Subject, instance: Instance, rng: np.random.Generator, most: int) -> list[Instance]:
    """Instances one change away: those with other numbers all, and up to `most` of those with other shapes, of which
    there are many more where operands are many; about as many of each kind."""
    known = {instance.key()}

    def fresh(way: Iterator[Instance]) -> list[Instance]:
        found = {key: one for one in way if (key := one.key()) not in known}
        known.update(found)
        return list(found.values())

    numbers = (
        _extents(instance, rng, (0,)), _extents(instance, rng, (2, 1, 3, 5)), _alike(instance, rng),
        _numbers(instance, rng), _left_open(subject, instance, rng), _literals(subject, instance),
        _in_one_place(subject, instance, rng), _filled(subject, instance, rng), _one_or_two(instance, rng),
        _larger(instance), _one_shape(instance, rng), _one_number(instance), _one_type(instance),
    )  # fmt: skip
    chosen = [one for way in numbers for one in fresh(way)]
    shapes = (
        _dims(instance, rng), _directions(instance, rng), _ranks(instance, rng), _turned(instance, rng),
        _square_ranks(instance, rng),
    )  # fmt: skip
    kinds = [fresh(way) for way in shapes]
    for number, found in enumerate(sorted(kinds, key=len)):  # what a small kind leaves over goes to the larger ones
        share = min(len(found), most // (len(kinds) - number))
        most -= share
        first = share // 2  # the simplest come first
        rest = found[first:]
        chosen += [*found[:first], *(rest[i * len(rest) // (share - first)] for i in range(share - first))]
    return chosen


def _put(instance: Instance, slot: Slot, tensor: Tensor, what: str) -> Instance:
    name, index = slot
    value: Any = tensor
    if index is not None:
        value = list(instance.operands[name])
        value[index] = tensor
    return instance.replace(what, **{name: value})


def _data(instance: Instance) -> list[tuple[Slot, Tensor]]:
    """The tensors that are no lists of axes or shapes."""
    return [
        (slot, t)
        for slot, t in tensors(instance)
        if t.array is None or not t.dtype.is_integer or t.array.ndim != 1 or t.array.size > 8
    ]


def _extents(instance: Instance, rng: np.random.Generator, extents: tuple[int, ...]) -> Iterator[Instance]:
    """An extent is another wherever it stands; 0 makes sums over nothing."""
    found = _data(instance)
    for new in extents:
        for old in sorted({d for _, t in found for d in t.shape if isinstance(d, int)} - {new}):
            changed = instance
            for slot, tensor in found:
                if old in tensor.shape:
                    shape = tuple(new if d == old else d for d in tensor.shape)
                    changed = _put(changed, slot, resize(tensor, shape, rng), f"extent {old} becomes {new}")
            yield changed
            if new == 0:
                yield from _around_nothing(changed, rng)


def _one_or_two(instance: Instance, rng: np.random.Generator) -> Iterator[Instance]:
    """Every extent is 1 or 2 wherever it stands, so that shapes agree that have no reason to."""
    found = _data(instance)
    extents = sorted({d for _, t in found for d in t.shape if isinstance(d, int)})
    if len(extents) > _MOST_EXTENTS:
        return
    for chosen in itertools.product((2, 1), repeat=len(extents)):
        sizes = dict(zip(extents, chosen, strict=True))
        changed = instance
        for slot, tensor in found:
            shape = tuple(sizes[d] if isinstance(d, int) else d for d in tensor.shape)
            changed = _put(changed, slot, resize(tensor, shape, rng), f"extents are {sizes}")
        yield changed


def _one_shape(instance: Instance, rng: np.random.Generator) -> Iterator[Instance]:
    """All operands have the same shape, whatever their ranks were: the types of any two agree."""
    found = _data(instance)
    for shape in dict.fromkeys([(1,), (), (2,), *(t.shape for _, t in found)]):
        if all(isinstance(d, int) and d <= 7 for d in shape):
            changed = instance
            for slot, tensor in found:
                changed = _put(changed, slot, resize(tensor, shape, rng), f"all have shape {list(shape)}")
            yield changed


def _one_type(instance: Instance) -> Iterator[Instance]:
    """An operand has the type of another, element type and shape, or that of a dim or a list of dims: one may stand for
    the other, or for the result, where it should not."""
    found = tensors(instance)
    dims: list[tuple[DType, tuple[Dim, ...]]] = [(DType.I64, ()), (DType.I64, (1,))]
    for slot, tensor in found:
        types = dict.fromkeys((*((t.dtype, t.shape) for _, t in found), *dims))
        for dtype, shape in (one for one in types if one[0] is not tensor.dtype):
            yield _put(instance, slot, Tensor(dtype, shape), f"{slot[0]} is {dtype}{list(shape)}")


def _around_nothing(instance: Instance, rng: np.random.Generator) -> Iterator[Instance]:
    """Constants beside a sum over nothing are not finite; or an operand has an axis more; or an extent is not known, so
    that nobody sees that a part of the expression is empty."""
    special = instance
    for slot, tensor in _data(instance):
        if tensor.array is not None and tensor.array.size and tensor.dtype.is_float:
            array = values.draw(tensor.dtype, tensor.array.shape, rng, values.PLAIN)
            array.reshape(-1)[:: max(array.size - 1, 1)] = np.inf
            special = _put(special, slot, Tensor.of(array), f"{slot[0]} is infinite in places")
    if special is not instance:
        yield special
    for slot, tensor in _data(instance):
        shape = (1, *tensor.shape)
        if len(shape) <= _RANK:
            yield _put(instance, slot, resize(tensor, shape, rng), f"{slot[0]} has shape {list(shape)}")
    unknown = [(slot, t) for slot, t in _data(instance) if t.array is None]
    for old in sorted({d for _, t in unknown for d in t.shape if isinstance(d, int) and d}):
        changed = instance
        for slot, tensor in unknown:
            if old in tensor.shape:
                open_ = tuple(symbol("N") if d == old else d for d in tensor.shape)
                changed = _put(changed, slot, resize(tensor, open_, rng), f"extent {old} is not known")
        yield changed


def _dims(instance: Instance, rng: np.random.Generator) -> Iterator[Instance]:
    """One dim of one tensor is another; so are those that were equal at the same place of the others."""
    found = _data(instance)
    for new in (1, 2, 3, 0):
        for slot, tensor in found:
            for axis, old in enumerate(tensor.shape):
                if old == new or not isinstance(old, int):
                    continue
                shape = (*tensor.shape[:axis], new, *tensor.shape[axis + 1 :])
                what = f"dim {axis} of {slot[0]} becomes {new}"
                yield _put(instance, slot, resize(tensor, shape, rng), what)
                if new == 0:
                    continue
                together = instance
                for other_slot, other in found:
                    at = axis - len(tensor.shape) + len(other.shape)
                    if at >= 0 and other.shape[at] == old:
                        wide = (*other.shape[:at], new, *other.shape[at + 1 :])
                        together = _put(together, other_slot, resize(other, wide, rng), f"{what}, and the like")
                yield together


def _directions(instance: Instance, rng: np.random.Generator) -> Iterator[Instance]:
    """A constant varies along another axis than it did, with values that all differ; or has one more axis."""
    found = _data(instance)
    sizes = sorted({d for _, t in found for d in t.shape if isinstance(d, int) and 1 < d <= 7})
    highest = min(max((len(t.shape) for _, t in found), default=1), _RANK)
    for slot, tensor in found:
        if tensor.array is None:
            continue
        own = [d for d in tensor.array.shape if d > 1]
        long = own if len(own) == 1 else sizes if not own else []
        shapes = [(1,) * i + (n,) + (1,) * (r - 1 - i) for n in long for r in range(1, highest + 1) for i in range(r)]
        if own:
            shapes += [tensor.array.shape[::-1], (*tensor.array.shape, 1), (1, *tensor.array.shape)]
        for _, other in found:
            if len(own) <= 1 and all(isinstance(d, int) for d in other.shape):
                shapes.append(tuple(int(d) for d in other.shape if isinstance(d, int)))
        for shape in dict.fromkeys(shapes):
            if shape != tensor.array.shape and len(shape) <= _RANK and np.prod(shape) <= 256:
                changed = Tensor.of(_distinct(tensor, shape, rng))
                yield _put(instance, slot, changed, f"{slot[0]} has shape {list(shape)}")
        if tensor.dtype.is_float and tensor.array.size > 1:
            changed = Tensor.of(_distinct(tensor, tensor.array.shape, rng))
            yield _put(instance, slot, changed, f"{slot[0]} has other values")


def _turned(instance: Instance, rng: np.random.Generator) -> Iterator[Instance]:
    """A constant varies along another axis, where all axes are equally long."""
    for alike in itertools.islice(_alike(instance, rng), 2):
        yield from _directions(alike, rng)


def _in_one_place(subject: Subject, instance: Instance, rng: np.random.Generator) -> Iterator[Instance]:
    """A constant is another number in one place, in its own shape or in that of another operand: what is asked of all
    its elements holds for the others only."""
    found = _data(instance)
    for slot, tensor in found:
        if tensor.array is None or not tensor.array.size or tensor.array.dtype.kind not in "iuf":
            continue
        shapes = [tensor.array.shape, *(t.shape for _, t in found if all(isinstance(d, int) for d in t.shape))]
        for shape in dict.fromkeys(shapes):
            base = np.resize(tensor.array, tuple(int(d) for d in shape if isinstance(d, int)))
            if not 1 < base.size <= 256:
                continue
            last = float(base.reshape(-1)[-1])
            others = [last - 2 if last > 100 else last + 2]
            if tensor.dtype.is_float and last == 0:
                others.append(-0.0)
            if tensor.dtype.is_float and subject.rule.numerics != "fast":
                others += [-np.inf, np.inf, np.nan]
            for number in others:
                array = base.copy()
                with np.errstate(all="ignore"):
                    array.reshape(-1)[-1] = number
                yield _put(instance, slot, Tensor.of(array), f"{slot[0]} is {number:g} in one place")


def _filled(subject: Subject, instance: Instance, rng: np.random.Generator) -> Iterator[Instance]:
    """An operand is a constant of one of the rule's own numbers, as a condition may ask; the other constants are as
    they were, or are not."""
    numbers = [*dict.fromkeys((*numbers_of(subject.rule), 0.0, 1.0))][:6]
    if subject.rule.numerics != "fast":
        numbers += [np.inf, -np.inf]
    if subject.rule.numerics == "exact":
        numbers.append(-0.0)
    found = sorted(tensors(instance), key=lambda one: not one[1].is_const)  # conditions are about constants
    for slot, tensor in found:
        if all(isinstance(d, int) and d <= 7 for d in tensor.shape):
            shape = tuple(int(d) for d in tensor.shape if isinstance(d, int))
            for number in numbers if tensor.dtype.is_float else [n for n in numbers if np.isfinite(n)]:
                with np.errstate(all="ignore"):
                    array = np.full(shape, number).astype(tensor.dtype.numpy)
                filled = _put(instance, slot, Tensor.of(array), f"{slot[0]} is a constant, {number:g}")
                yield filled
                for other_slot, other in found:
                    if other.array is not None and other_slot != slot:
                        drawn = Tensor.of(values.draw(other.dtype, other.array.shape, rng, values.PLAIN))
                        filled = _put(filled, other_slot, drawn, f"{other_slot[0]} has other values")
                yield filled


def _one_number(instance: Instance) -> Iterator[Instance]:
    """All constants that are integers are the same number, each small one in turn: what conditions say of divisors,
    powers and logarithms holds for few of them."""
    found = [(slot, t.array) for slot, t in tensors(instance) if t.array is not None and t.dtype.is_integer]
    for number in range(1, 13) if found else ():
        changed = instance
        for slot, array in found:
            changed = _put(changed, slot, Tensor.of(np.full_like(array, number)), f"integers are {number}")
        yield changed


def _ranks(instance: Instance, rng: np.random.Generator) -> Iterator[Instance]:
    """A tensor has another rank: an axis less or more, or what is left of another's shape with an axis of 1 in it. The
    simplest changes of all tensors come first, those of constants before others: conditions are about these."""
    found = sorted(_data(instance), key=lambda one: not one[1].is_const)
    every: list[list[tuple[Slot, Tensor, tuple[Dim, ...]]]] = []
    for slot, tensor in found:
        shape = tensor.shape
        shapes = [(1, *shape), shape[1:], (2, *shape), (*shape, 1), shape[:-1], (), (1,), shape[2:]]
        for other in dict.fromkeys(t.shape for _, t in found):
            for start in range(len(other)):
                rest = other[start:]
                shapes += [rest, *((*rest[:i], 1, *rest[i + 1 :]) for i in range(len(rest)))]
                shapes += [(1,) * i + (rest[i],) + (1,) * (len(rest) - 1 - i) for i in range(len(rest))]
        every.append([(slot, tensor, new) for new in dict.fromkeys(shapes) if new != shape])
    for row in itertools.zip_longest(*every):
        for slot, tensor, new in (one for one in row if one is not None):
            plain = all(isinstance(d, int) for d in new)
            if len(new) <= _RANK and (plain or not tensor.is_const):
                yield _put(instance, slot, resize(tensor, new, rng), f"{slot[0]} has shape {list(new)}")


def _square_ranks(instance: Instance, rng: np.random.Generator) -> Iterator[Instance]:
    """A tensor has another rank where all axes are equally long, so that a vector fits wherever a matrix did."""
    for alike in itertools.islice(_alike(instance, rng), 2):
        yield from _ranks(alike, rng)


def _literals(subject: Subject, instance: Instance) -> Iterator[Instance]:
    """A literal of the pattern stands for a constant that has axes."""
    found = [t for _, t in tensors(instance)]
    dtype = next((t.dtype for t in found if t.dtype.is_float), found[0].dtype if found else None)
    for name, expr in subject.pattern.literals.items():
        number = literal_value(expr)
        if number is None or dtype is None:
            continue
        for shape in dict.fromkeys([(1,), (1, 1, 1), *(t.shape for t in found), *((2, *t.shape) for t in found)]):
            if all(isinstance(d, int) for d in shape) and len(shape) <= _RANK:
                with np.errstate(all="ignore"):
                    array = np.full(tuple(int(d) for d in shape if isinstance(d, int)), number).astype(dtype.numpy)
                yield instance.replace(f"the literal {number:g} has shape {list(shape)}", **{name: Tensor.of(array)})


def _distinct(tensor: Tensor, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Contents of a shape, those of the tensor if they differ among each other already."""
    assert tensor.array is not None
    flat = tensor.array.reshape(-1)
    if tensor.dtype.is_float and np.unique(flat[: int(np.prod(shape))].astype(np.float64)).size < np.prod(shape):
        return np.abs(values.draw(tensor.dtype, shape, rng, values.PLAIN)) + tensor.array.dtype.type(0.25)
    return np.resize(tensor.array, shape)


def _numbers(instance: Instance, rng: np.random.Generator) -> Iterator[Instance]:
    """An attribute, or one element of a list of them or of a constant that is such a list, is another."""
    for name, value in instance.operands.items():
        if isinstance(value, Tensor):
            if value.array is None or value.array.ndim != 1 or not value.dtype.is_integer or value.array.size > 8:
                continue
            for changed in _lists([int(v) for v in value.array]) if value.array.size else ():
                with np.errstate(all="ignore"):
                    array = np.array(changed, dtype=np.int64).astype(value.array.dtype)
                yield instance.replace(f"other contents of {name}", **{name: Tensor.of(array)})
        elif isinstance(value, list) and value and all(type(v) is int for v in value):
            for changed in _lists(value):
                yield instance.replace(f"another {name}", **{name: changed})
        elif type(value) is int:
            for number in (value + 1, value - 1, 0, 1, -1, 2, -2, 3, -3, -4):
                yield instance.replace(f"another {name}", **{name: number})
        elif isinstance(value, float):
            for factor in (2.0, -1.0, 0.0):
                yield instance.replace(f"another {name}", **{name: value * factor})
        elif type(value) is str and (word := other_mode(value, rng)) is not None:
            yield instance.replace(f"another {name}", **{name: word})


def _larger(instance: Instance) -> Iterator[Instance]:
    """All numbers of one list that is a constant are larger: steps, for one, that leave almost nothing, or one element,
    out of which the two sides would tell themselves apart by their shape."""
    for name, value in instance.operands.items():
        if not isinstance(value, Tensor) or value.array is None or not value.array.size:
            continue
        if value.array.ndim == 1 and value.dtype.is_integer and value.array.size <= 8:
            for more in (2, 8):
                with np.errstate(all="ignore"):
                    array = (value.array.astype(np.int64) + more).astype(value.array.dtype)
                yield instance.replace(f"larger numbers in {name}", **{name: Tensor.of(array)})


def _lists(items: list[int]) -> Iterator[list[int]]:
    """A list with one element changed, two exchanged, one larger for another that is smaller; longer; turned around."""
    for at, value in enumerate(items):
        for number in (value + 1, value + 2, value - 1):
            yield [*items[:at], number, *items[at + 1 :]]
    for at in range(len(items) - 1):
        yield [*items[:at], items[at + 1], items[at], *items[at + 2 :]]
    half = len(items) // 2
    for one, other in itertools.permutations(range(len(items)), 2):
        if len(items) <= 6 or abs(one - other) in (1, half):  # such as of two neighbours, of begin and end of an axis
            found = list(items)
            found[one], found[other] = found[one] + 1, found[other] - 1
            yield found
    yield [*items, items[-1] + 1]
    yield items[:-1]
    yield items[1:]
    yield [v + 1 for v in items]
    yield items[::-1]


def _left_open(subject: Subject, instance: Instance, rng: np.random.Generator) -> Iterator[Instance]:
    """An attribute that the pattern leaves open is set, each in turn; an optional input is left out."""
    rank = max((len(t.shape) for _, t in tensors(instance)), default=2)
    for name, ops in sorted(subject.pattern.rests.items()):
        before = instance.operands.get(name)
        attrs = dict(before.attrs) if isinstance(before, RestRef) else {}
        for op in dict.fromkeys(ops):
            known = signature(op)
            for attribute in sorted(known.attributes) if known is not None else ():
                few = every_value(op, attribute, rank)
                for value in few or [draw_attribute(op, attribute, rank, rng) for _ in range(3)]:
                    if value is not None:
                        what = f"{attribute} of {op} is {value!r}"
                        yield instance.replace(what, **{name: RestRef({**attrs, attribute: value})})
            for together in _windows(known.attributes if known is not None else (), rank - 2):
                yield instance.replace(f"windows of {op} are {together}", **{name: RestRef({**attrs, **together})})
    for name in sorted(subject.pattern.optional):
        if instance.operands.get(name) is not None:
            operands = {k: v for k, v in instance.operands.items() if k != name}
            yield Instance(instance.way, operands, f"{name} is absent", instance.steps + 1)
            continue
        for other in dict.fromkeys(name for (name, index), _ in tensors(instance) if index is None):
            yield instance.replace(f"{name} is as {other}", **{name: instance.operands[other]})


def _windows(attributes: Collection[str], axes: int) -> Iterator[dict[str, Any]]:
    """Padding along with steps or gaps, which make up for each other: a side that forgets both has the same shape."""
    for other in ("strides", "dilations"):
        if axes > 0 and "pads" in attributes and other in attributes:
            yield {"pads": (1,) * (2 * axes), other: (2,) * axes}


def _alike(instance: Instance, rng: np.random.Generator) -> Iterator[Instance]:
    """All extents but those of 1 are the same, or all, so that types no longer tell axes apart; an operand is a
    constant, or no longer one."""
    found = _data(instance)
    for new, every in ((2, False), (3, False), (2, True), (1, True)):
        for chosen in (found, *([one] for one in found)):
            changed = instance
            for slot, tensor in chosen:
                shape = tuple(new if every or d != 1 else 1 for d in tensor.shape)
                changed = _put(changed, slot, resize(tensor, shape, rng), f"all extents are {new}")
            yield changed
    for slot, tensor in found:
        if tensor.array is not None:
            yield _put(instance, slot, Tensor(tensor.dtype, tensor.shape), f"{slot[0]} is no constant")
        elif all(isinstance(d, int) and d <= 7 for d in tensor.shape):
            shape = tuple(int(d) for d in tensor.shape if isinstance(d, int))
            array = values.draw(tensor.dtype, shape, rng, values.PLAIN)
            yield _put(instance, slot, Tensor.of(array), f"{slot[0]} is a constant")
