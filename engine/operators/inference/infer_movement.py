"""Inference of operators that move elements: reshape, transpose, concatenate, split, slice, pad, gather."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...ir.graph import DType, TensorType
from ...ir.symbolic import (
    Dim,
    at_least,
    ceildiv,
    certainly_differ,
    exact_div,
    maximum,
    minimum,
    product,
    slice_bound,
    total,
)
from .inference_call import MAX_ELEMENTS, Call, Shape, SymbolicValue, Types, rule, shape_rule, with_dims

_HUGE = 2**31 - 1
"""A slice bound this large means "to the end": no dim of a tensor is larger."""


def _keep_value(call: Call, shape: Sequence[Dim | None]) -> None:
    """Record that the output, of this shape, has the elements of the input in the same order."""
    value, columns = call.value(0), shape[1] if len(shape) == 2 else 0
    if value is not None and len(shape) <= 2 and isinstance(columns, int):
        call.contents[0] = SymbolicValue(value.dims, len(shape), columns)


@rule("Reshape")
def reshape(call: Call) -> Types:
    """The dims in the second input: 0 copies the input's dim (unless `allowzero`), -1 is what remains.

    A symbolic target is assumed to be the size it names. Should it be 0 at run time, `Reshape` would copy a dim
    instead; but then all tensors involved are empty. One that may be negative is what the other targets leave: it is
    that number, 0 or -1, or `Reshape` fails."""
    target, shape = call.dims(1), call.shape()
    if target is None:
        return [TensorType(call.dtype(), call.unknown_dims(call.length(1)))]
    result: list[Dim | None] = []
    for i, d in enumerate(target):
        if d == 0 and not call.integer("allowzero"):
            if shape is not None and i >= len(shape):
                raise call.refuse(f"target dim {i} is 0, but the input has rank {len(shape)}")
            result.append(call.fresh() if shape is None else shape[i])
        elif isinstance(d, int) and d < -1:
            raise call.refuse(f"target dim {d}")
        else:
            result.append(d if d in (shape or ()) or call.is_size(d) else None)
    holes = [i for i, d in enumerate(result) if d is None]
    if target.count(-1) > 1:
        raise call.refuse("several target dims are -1")
    if shape is not None:
        used = [d for d in result if d is not None]
        size, known = product(shape), product(used)
        inferred = len(holes) == 1 and target[holes[0]] == -1
        divides = not (isinstance(size, int) and isinstance(known, int) and known and size % known)
        if (inferred and not divides) or (not holes and certainly_differ(size, known)):
            raise call.refuse(f"{size} elements do not fit [{', '.join(map(str, target))}]")
        if len(holes) == 1 and known != 0:  # a target that may be 0 or -1, too, is what remains
            wanted, left = target[holes[0]], _remaining(shape, used)
            result[holes[0]] = left
            if call.required is not None and not inferred:
                call.required.append(((wanted - left) * wanted * (wanted + 1), f"the target: {wanted} is not {left}"))
        if None not in result:
            found = product(d for d in result if d is not None)
            call.agree(size, found, "numbers of elements")
    _keep_value(call, result)
    return [TensorType(call.dtype(), tuple(call.fresh() if d is None else d for d in result))]


def _remaining(shape: Shape, used: list[Dim]) -> Dim:
    """Return the size that is left when `used` is taken out of `shape`; equal dims cancel without a division."""
    left = list(shape)
    over = []
    for d in used:
        if d in left:
            left.remove(d)
        else:
            over.append(d)
    numerator, denominator = product(left), product(over)
    exact = exact_div(numerator, denominator)
    return numerator // denominator if exact is None else exact


@shape_rule("Flatten", rank=2)
def flatten(call: Call, shape: Shape) -> Shape:
    """Two dims: the axes before `axis`, and the rest."""
    axis = call.integer("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise call.refuse(f"axis {axis} is out of range for rank {len(shape)}")
    axis += len(shape) if axis < 0 else 0
    return (product(shape[:axis]), product(shape[axis:]))


@rule("Transpose")
def transpose(call: Call) -> Types:
    """The dims in the order `perm`, by default reversed."""
    shape, perm = call.shape(), call.int_list("perm")
    if shape is None:
        return [TensorType(call.dtype(), call.unknown_dims(None if perm is None else len(perm)))]
    perm = tuple(reversed(range(len(shape)))) if perm is None else perm
    if sorted(perm) != list(range(len(shape))):
        raise call.refuse(f"perm {list(perm)} for rank {len(shape)}")
    value = call.value(0)
    if value is not None and perm == (1, 0):
        turned = tuple(d for column in zip(*value.rows, strict=True) for d in column)
        call.contents[0] = SymbolicValue(turned, 2, len(value.rows))
    else:
        _keep_value(call, shape)
    return [TensorType(call.dtype(), tuple(shape[p] for p in perm))]


@shape_rule("Squeeze")
def squeeze(call: Call, shape: Shape) -> Shape | None:
    """Without the dims 1 at the axes in the second input, or without all dims 1."""
    axes = call.ints(1)
    if axes is None:
        if call.present(1) or any(not isinstance(d, int) and not certainly_differ(d, 1) for d in shape):
            return None
        remaining = tuple(d for d in shape if d != 1)
    else:
        dropped = call.axes_of(axes, len(shape))
        for axis in dropped:
            call.agree(shape[axis], 1, f"axis {axis}")
        remaining = tuple(d for i, d in enumerate(shape) if i not in dropped)
    _keep_value(call, remaining)
    return remaining


@shape_rule("Unsqueeze")
def unsqueeze(call: Call, shape: Shape) -> Shape | None:
    """With dims 1 inserted at `axes` of the result."""
    axes = call.ints(1)
    if axes is None:
        return None
    rank = len(shape) + len(axes)
    places = call.axes_of(axes, rank)
    if len(set(places)) < len(places):
        raise call.refuse(f"axes {list(axes)} repeat")
    rest = iter(shape)
    result = tuple(1 if i in places else next(rest) for i in range(rank))
    _keep_value(call, result)
    return result


@rule("Concat")
def concat(call: Call) -> Types:
    """The inputs concatenated along `axis`."""
    types = [call.type(i) for i in range(call.n_inputs)]
    values = [call.dims(i) for i in range(call.n_inputs)]
    parts = tuple(d for value in values if value is not None for d in value)
    found = concatenated(call, types)
    if found.shape is not None and len(found.shape) == 1 and None not in values and len(parts) <= MAX_ELEMENTS:
        call.contents[0] = SymbolicValue(parts)
    return [found]


def concatenated(call: Call, types: Sequence[TensorType]) -> TensorType:
    """Return the type of tensors of these types, joined along the attribute `axis`."""
    dtype = next((t.dtype for t in types if t.dtype), None)
    shapes = [t.shape for t in types if t.shape is not None]
    ranks = sorted({*map(len, shapes)})
    if len(ranks) > 1:
        raise call.refuse(f"inputs of ranks {ranks}")
    if not ranks:
        return TensorType(dtype)
    if ranks == [0]:
        raise call.refuse("scalars cannot be joined")
    axis = call.axis(ranks[0])
    result = list(shapes[0])
    for i, dims in enumerate(zip(*shapes, strict=True)):
        if i == axis:
            result[i] = total(dims) if len(shapes) == len(types) else call.fresh()
            continue
        for other in dims[1:]:
            result[i] = call.agree(result[i], other, f"axis {i}")
    return TensorType(dtype, tuple(result))


@rule("Split")
def split(call: Call) -> Types:
    """Pieces along `axis`: of the sizes in the second input, or else equal, the last one smaller if necessary."""
    shape, n = call.shape(), call.n_outputs
    if shape is None:
        return [TensorType(call.dtype())] * n
    axis = call.axis(len(shape))
    sizes: Sequence[Dim] | None = call.dims(1)
    whole = shape[axis]
    if sizes is not None:
        if len(sizes) != n or certainly_differ(total(sizes), whole):
            raise call.refuse(f"{n} pieces of [{', '.join(map(str, sizes))}] of {whole}")
        call.agree(total(sizes), whole, "the pieces together")
    elif call.present(1):
        sizes = [call.fresh() for _ in range(n)]
    else:
        chunk = ceildiv(whole, n)
        sizes = [chunk] * (n - 1) + [call.size_of(whole - chunk * (n - 1))]
    start: Dim = 0
    contents = call.dims(0) if len(shape) == 1 else None
    for i, size in enumerate(sizes):
        if contents is not None and isinstance(start, int) and isinstance(size, int):
            call.contents[i] = SymbolicValue(contents[start : start + size])
        start = start + size
    return [TensorType(call.dtype(), with_dims(shape, axis, call.size_of(size))) for size in sizes]


@shape_rule("Slice")
def slice_(call: Call, shape: Shape) -> Shape | None:
    """From start to end by step along some axes, bounds clamped as in Python."""
    starts, ends, steps = call.dims(1), call.dims(2), call.ints(4)
    axes = call.ints(3)
    if not call.present(3) and (given := ends if starts is None else starts) is not None:
        axes = tuple(range(len(given)))
    if axes is None:
        return call.unknown_dims(len(shape))
    axes = call.axes_of(axes, len(shape))
    steps = steps if call.present(4) else (1,) * len(axes)
    if any(given is not None and len(given) != len(axes) for given in (starts, ends, steps)):
        raise call.refuse("its starts, ends, axes and steps differ in number")
    result = list(shape)
    for i, axis in enumerate(axes):
        length = None
        if starts is not None and ends is not None and steps is not None and steps[i]:
            length = _slice_length(shape[axis], starts[i], ends[i], steps[i], call.is_size)
        result[axis] = call.fresh() if length is None else length
    contents, first, last = call.value(0), call.ints(1), call.ints(2)
    if contents is not None and contents.rank and axes == (0,) and first and last and steps and steps[0]:
        if steps[0] > 0 or first[0] >= -len(contents.rows):  # else see `_slice_length`
            rows = contents.rows[first[0] : last[0] : steps[0]]
            call.contents[0] = replace(contents, dims=tuple(d for row in rows for d in row))
    return tuple(result)


def _slice_length(size: Dim, start: Dim, end: Dim, step: int, is_size: Callable[[Dim], bool]) -> Dim | None:
    """Return the number of elements of a slice; None if the standard and NumPy may clamp its start differently."""
    if step < 0 and start != -1 and not is_size(start) and not at_least(start + size, 0):
        return None  # the start may lie before the beginning; -1 only where there are no elements
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first, last = (_clamp(bound, size, low, high, is_size) for bound in (start, end))
    if step == 1 and first == 0 and (is_size(end) or last == size):
        return last  # no extent is negative
    return maximum(ceildiv(last - first, step) if step > 0 else ceildiv(first - last, -step), 0)


def _clamp(bound: Dim, size: Dim, low: Dim, high: Dim, is_size: Callable[[Dim], bool]) -> Dim:
    if isinstance(bound, int) and abs(bound) >= _HUGE:
        return high if bound > 0 else low
    if bound == low == 0:
        return low  # even if `high`, an extent, is not known to be at least 0
    if is_size(bound):
        # A bound of 0 or more is above `low`, except that `high` itself may be -1 (of an empty dim, backwards).
        return minimum(bound, high)
    return slice_bound(bound, size, low, high)


@rule("Expand")
def expand(call: Call) -> Types:
    """The input broadcast against a shape given as a tensor."""
    target, shape, value = call.dims(1), call.shape(), call.value(0)
    if target is None:
        length = call.length(1)
        rank = None if length is None or shape is None else max(length, len(shape))
        return [TensorType(call.dtype(), call.unknown_dims(rank))]
    result = call.join_shapes(shape, tuple(call.size_of(d) for d in target))
    if value is not None and result is not None and len(result) <= 1 and len(value.dims) == 1 >= value.rank:
        n = result[0] if result else 1
        if isinstance(n, int) and n <= MAX_ELEMENTS:
            call.contents[0] = SymbolicValue(value.dims * n, len(result))
    elif value is not None and result == value.shape:
        call.contents[0] = value
    return [TensorType(call.dtype(), result)]


@rule("Tile")
def tile(call: Call) -> Types:
    """Each dim times its number of repeats."""
    shape, repeats = call.shape(), call.dims(1)
    if shape is None or repeats is None:
        return [TensorType(call.dtype(), call.unknown_dims(call.length(1) if shape is None else len(shape)))]
    if len(repeats) != len(shape):
        raise call.refuse(f"{len(repeats)} repeats for rank {len(shape)}")
    value, times = call.value(0), repeats[0] if repeats else 1
    if value is not None and value.rank <= 1 and isinstance(times, int) and len(value.dims) * times <= MAX_ELEMENTS:
        call.contents[0] = SymbolicValue(value.dims * times, value.rank)
    return [TensorType(call.dtype(), tuple(call.size_of(d * r) for d, r in zip(shape, repeats, strict=True)))]


@shape_rule("Pad")
def pad(call: Call, shape: Shape) -> Shape | None:
    """Each dim grown (or, by a negative pad, shrunk) at both ends."""
    pads = call.dims(1)
    axes = call.ints(3) if call.present(3) else range(len(shape))
    if pads is None or axes is None:
        return call.unknown_dims(len(shape))
    axes = call.axes_of(axes, len(shape))
    if len(pads) != 2 * len(axes):
        raise call.refuse(f"{len(pads)} pads for {len(axes)} axes")
    result = list(shape)
    for i, axis in enumerate(axes):
        result[axis] = call.size_of(shape[axis] + pads[i] + pads[i + len(axes)])
    return tuple(result)


@shape_rule("CenterCropPad")
def center_crop_pad(call: Call, shape: Shape) -> Shape:
    """Some dims replaced by the sizes in the second input."""
    sizes, result = call.dims(1), list(shape)
    for i, axis in enumerate(call.axes_of(call.int_list("axes") or range(len(shape)), len(shape))):
        result[axis] = call.fresh() if sizes is None else call.size_of(sizes[i])
    return tuple(result)


@shape_rule("Gather")
def gather(call: Call, shape: Shape) -> Shape | None:
    """Slices along `axis`, one for each index; the shape of the indices replaces that dim."""
    indices = call.shape(1)
    if indices is None:
        return None
    axis = call.axis(len(shape))
    contents, where, picked = call.value(0), call.value(1), call.ints(1)
    if contents is not None and contents.rank == 1 and where is not None and picked is not None:
        if all(-len(contents.dims) <= i < len(contents.dims) for i in picked):
            call.contents[0] = SymbolicValue(tuple(contents.dims[i] for i in picked), where.rank)
    return with_dims(shape, axis, *indices)


@rule("GatherElements")
def gather_elements(call: Call) -> Types:
    """One element for each index."""
    return [TensorType(call.dtype(), call.shape(1))]


@shape_rule("GatherND")
def gather_nd(call: Call, shape: Shape) -> Shape | None:
    """Slices at index tuples: the batch dims and the tuples' dims, then what a tuple leaves."""
    indices, batch = call.shape(1), call.integer("batch_dims")
    if not indices or not isinstance(indices[-1], int):
        return None
    if batch + indices[-1] > len(shape):
        raise call.refuse(f"tuples of {indices[-1]} indices after {batch} batch dims for rank {len(shape)}")
    return (*indices[:-1], *shape[batch + indices[-1] :])


@shape_rule("DepthToSpace SpaceToDepth", rank=4)
def depth_to_space(call: Call, shape: Shape) -> Shape | None:
    """Blocks of channels become blocks of pixels, or the reverse."""
    if len(shape) != 4:
        return call.unknown_dims(4)
    (n, c, h, w), b = shape, call.integer("blocksize", 1)
    if call.op == "DepthToSpace":
        return (n, c // (b * b), h * b, w * b)
    return (n, c * (b * b), h // b, w // b)


@rule("Compress")
def compress(call: Call) -> Types:
    """The slices that a mask selects: along an axis, or of all elements."""
    shape = call.shape()
    found: Shape | None = None if "axis" in call.attrs else (call.fresh(),)
    if shape is not None and "axis" in call.attrs:
        found = with_dims(shape, call.axis(len(shape)), call.fresh())
    return [TensorType(call.dtype(), found)]


@rule("Unique")
def unique(call: Call) -> Types:
    """The distinct elements or slices, and three index lists."""
    shape, count = call.shape(), call.fresh()
    values: Shape | None = None if "axis" in call.attrs else (count,)
    inverse = call.fresh() if shape is None else product(shape)
    if shape is not None and "axis" in call.attrs:
        at = call.axis(len(shape))
        values, inverse = with_dims(shape, at, count), shape[at]
    index = TensorType(DType.I64, (count,))
    return [TensorType(call.dtype(), values), index, TensorType(DType.I64, (inverse,)), index]


@shape_rule("Col2Im")
def col2im(call: Call, shape: Shape) -> Shape | None:
    """Blocks of columns added up into an image of the size in the second input."""
    image, block = call.dims(1), call.dims(2)
    if len(shape) != 3:
        return None
    if image is None or block is None:
        length = call.length(1)
        dims = None if length is None else call.unknown_dims(length + 1)
        return None if dims is None else (shape[0], *dims)
    return (shape[0], shape[1] // product(block), *(call.size_of(d) for d in image))
