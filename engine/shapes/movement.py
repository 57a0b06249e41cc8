"""Operators that rearrange elements: reshaping, transposing, joining, splitting, slicing, padding, gathering."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import DType, TensorType
from ..symbolic import Dim, at_least, ceildiv, certainly_differ, exact_div, maximum, minimum, product, total
from .core import (
    MAX_ELEMENTS,
    Call,
    Shape,
    SymbolicValue,
    Types,
    agree,
    axes_of,
    axis_of,
    join_shapes,
    refuse,
    rule,
    size_of,
)

_HUGE = 2**31 - 1
"""A slice bound this large means "to the end": no dim of a tensor is larger."""


def _keep_value(call: Call, rank: int) -> None:
    """Notes that the output has the contents of the input, at this rank."""
    value = call.value(0)
    if value is not None and rank <= 1:
        call.contents[0] = SymbolicValue(value.dims, rank)


@rule("Reshape")
def reshape(call: Call) -> Types:
    """The dims that the second input says: 0 copies the input's dim (unless `allowzero`), -1 is what remains.

    A symbolic target is taken to be the size it names. Should it be 0 at run time, `Reshape` would copy a dim instead;
    all tensors involved are empty then."""
    target, shape = call.dims(1), call.shape()
    if target is None:
        length = call.shape(1)
        rank = length[0] if length and isinstance(length[0], int) else None
        return [TensorType(call.dtype(), call.unknown_dims(rank))]
    result: list[Dim | None] = []
    for i, d in enumerate(target):
        if d == 0 and not call.integer("allowzero"):
            if shape is None:
                result.append(call.fresh())
            elif i >= len(shape):
                raise refuse(call, f"target dim {i} is 0, but the input has rank {len(shape)}")
            else:
                result.append(shape[i])
        elif isinstance(d, int) and d < -1:
            raise refuse(call, f"target dim {d}")
        elif d == -1 or not at_least(d, 0):
            result.append(None)
        else:
            result.append(d)
    holes = [i for i, d in enumerate(result) if d is None]
    if list(target).count(-1) > 1:
        raise refuse(call, "several target dims are -1")
    known = product(d for d in result if d is not None)
    size = None if shape is None else product(shape)
    if len(holes) == 1 and size is not None and target[holes[0]] == -1:
        if isinstance(size, int) and isinstance(known, int) and known and size % known:
            raise refuse(call, f"{size} elements do not fit [{', '.join(map(str, target))}]")
        if known != 0:
            result[holes[0]] = _remaining(shape or (), [d for d in result if d is not None])
    elif not holes and size is not None and certainly_differ(size, known):
        raise refuse(call, f"{size} elements do not fit [{', '.join(map(str, target))}]")
    found = tuple(call.fresh() if d is None else d for d in result)
    if len(found) <= 1:
        _keep_value(call, len(found))
    return [TensorType(call.dtype(), found)]


def _remaining(shape: Shape, used: list[Dim]) -> Dim:
    """The size that is left when `used` is taken out of `shape`; equal dims cancel without a division."""
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


@rule("Flatten")
def flatten(call: Call) -> Types:
    """Two dims: the axes before `axis`, and the rest."""
    shape = call.shape()
    if shape is None:
        return [TensorType(call.dtype(), call.unknown_dims(2))]
    axis = call.integer("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise refuse(call, f"axis {axis} is out of range for rank {len(shape)}")
    axis += len(shape) if axis < 0 else 0
    return [TensorType(call.dtype(), (product(shape[:axis]), product(shape[axis:])))]


@rule("Transpose")
def transpose(call: Call) -> Types:
    """The dims in the order `perm`, by default reversed."""
    shape, perm = call.shape(), call.int_list("perm")
    if shape is None:
        return [TensorType(call.dtype(), call.unknown_dims(None if perm is None else len(perm)))]
    if perm is None:
        perm = tuple(reversed(range(len(shape))))
    if sorted(perm) != list(range(len(shape))):
        raise refuse(call, f"perm {list(perm)} for rank {len(shape)}")
    _keep_value(call, len(shape))
    return [TensorType(call.dtype(), tuple(shape[p] for p in perm))]


@rule("Squeeze")
def squeeze(call: Call) -> Types:
    """Without the dims 1 named by the second input, or without all dims 1."""
    shape, axes = call.shape(), call.ints(1)
    if shape is None or (call.present(1) and axes is None):
        return [TensorType(call.dtype())]
    if axes is None:
        if any(not isinstance(d, int) and not certainly_differ(d, 1) for d in shape):
            return [TensorType(call.dtype())]
        kept = tuple(d for d in shape if d != 1)
    else:
        dropped = axes_of(call, axes, len(shape))
        for axis in dropped:
            agree(call, shape[axis], 1, f"axis {axis}")
        kept = tuple(d for i, d in enumerate(shape) if i not in dropped)
    _keep_value(call, len(kept))
    return [TensorType(call.dtype(), kept)]


@rule("Unsqueeze")
def unsqueeze(call: Call) -> Types:
    """With dims 1 put in so that they stand at `axes` of the result."""
    shape, axes = call.shape(), call.ints(1)
    if shape is None or axes is None:
        return [TensorType(call.dtype())]
    rank = len(shape) + len(axes)
    places = axes_of(call, axes, rank)
    if len(set(places)) < len(places):
        raise refuse(call, f"axes {list(axes)} repeat")
    rest = iter(shape)
    _keep_value(call, rank)
    return [TensorType(call.dtype(), tuple(1 if i in places else next(rest) for i in range(rank)))]


@rule("Concat")
def concat(call: Call) -> Types:
    """The inputs one after the other along `axis`."""
    dtype = next((t.dtype for t in map(call.type, range(call.n_inputs)) if t.dtype), None)
    shapes = [call.shape(i) for i in range(call.n_inputs)]
    ranks = {len(s) for s in shapes if s is not None}
    if len(ranks) > 1:
        raise refuse(call, f"inputs of ranks {sorted(ranks)}")
    if not ranks:
        return [TensorType(dtype)]
    rank = ranks.pop()
    if rank == 0:
        raise refuse(call, "scalars cannot be joined")
    axis = axis_of(call, call.integer("axis"), rank)
    _concat_contents(call, rank)
    result: list[Dim] = []
    for i in range(rank):
        known = [s[i] for s in shapes if s is not None]
        if i == axis:
            result.append(total(known) if len(known) == len(shapes) else call.fresh())
        else:
            dim = known[0]
            for other in known[1:]:
                dim = agree(call, dim, other, f"axis {i}")
            result.append(dim)
    return [TensorType(dtype, tuple(result))]


def _concat_contents(call: Call, rank: int) -> None:
    values = [call.dims(i) for i in range(call.n_inputs)]
    parts = [d for value in values if value is not None for d in value]
    if rank == 1 and all(v is not None for v in values) and len(parts) <= MAX_ELEMENTS:
        call.contents[0] = SymbolicValue(tuple(parts))


@rule("Split")
def split(call: Call) -> Types:
    """Pieces along `axis`: of the sizes in the second input, or else equal, the last one smaller if need be."""
    shape, n = call.shape(), call.n_outputs
    if shape is None:
        return [TensorType(call.dtype())] * n
    axis = axis_of(call, call.integer("axis"), len(shape))
    sizes: Sequence[Dim] | None = call.dims(1)
    whole = shape[axis]
    if sizes is not None:
        if len(sizes) != n or certainly_differ(total(sizes), whole):
            raise refuse(call, f"{n} pieces of [{', '.join(map(str, sizes))}] of {whole}")
    elif call.present(1):
        sizes = [call.fresh() for _ in range(n)]
    else:
        chunk = ceildiv(whole, n)
        sizes = [chunk] * (n - 1) + [size_of(call, whole - chunk * (n - 1))]
    pieces: list[TensorType] = []
    start: Dim = 0
    contents = call.dims(0)
    for i, size in enumerate(sizes):
        pieces.append(TensorType(call.dtype(), (*shape[:axis], size_of(call, size), *shape[axis + 1 :])))
        if contents is not None and isinstance(start, int) and isinstance(size, int):
            call.contents[i] = SymbolicValue(contents[start : start + size])
        start = start + size
    return pieces


@rule("Slice")
def slice_(call: Call) -> Types:
    """From start to end by step along some axes, bounds clamped as in Python."""
    shape = call.shape()
    if shape is None:
        return [TensorType(call.dtype())]
    starts, ends = call.dims(1), call.dims(2)
    count = len(starts) if starts is not None else len(ends) if ends is not None else None
    axes = call.ints(3) if call.present(3) else tuple(range(count)) if count is not None else None
    steps = call.ints(4) if call.present(4) else None
    if axes is None:
        return [TensorType(call.dtype(), call.unknown_dims(len(shape)))]
    axes = axes_of(call, axes, len(shape))
    if any(given is not None and len(given) != len(axes) for given in (starts, ends, steps)):
        raise refuse(call, "its starts, ends, axes and steps differ in number")
    result = list(shape)
    for i, axis in enumerate(axes):
        step = 1 if not call.present(4) else steps[i] if steps is not None else None
        length = None
        if starts is not None and ends is not None and step:
            length = _slice_length(shape[axis], starts[i], ends[i], step)
        result[axis] = call.fresh() if length is None else length
    _slice_contents(call, axes)
    return [TensorType(call.dtype(), tuple(result))]


def _slice_length(size: Dim, start: Dim, end: Dim, step: int) -> Dim | None:
    """The number of elements of a slice; None if a bound's sign is not known."""
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first, last = _clamp(start, size, low, high), _clamp(end, size, low, high)
    if first is None or last is None:
        return None
    if step < 0 and not at_least(start, 0) and not at_least(start + size, 0):
        return None  # the standard and NumPy clamp a start before the beginning differently here
    return maximum(ceildiv(last - first, step) if step > 0 else ceildiv(first - last, -step), 0)


def _clamp(bound: Dim, size: Dim, low: Dim, high: Dim) -> Dim | None:
    if isinstance(bound, int) and bound >= _HUGE:
        return high
    if isinstance(bound, int) and bound <= -_HUGE:
        return low
    if at_least(bound, 0):
        # A bound of 0 or more lies above `low`, except that `high` itself may be -1 (of an empty dim, backwards).
        return minimum(bound, high)
    if at_least(-1, bound):
        return maximum(minimum(bound + size, high), low)
    return None


def _slice_contents(call: Call, axes: tuple[int, ...]) -> None:
    contents, starts, ends = call.value(0), call.ints(1), call.ints(2)
    steps = call.ints(4) if call.present(4) else (1,)
    if contents is None or contents.rank != 1 or not (starts and ends and steps) or axes != (0,):
        return
    size, step = len(contents.dims), steps[0]
    length = _slice_length(size, starts[0], ends[0], step) if step else None
    if isinstance(length, int):
        low, high = (0, size) if step > 0 else (-1, size - 1)
        first = _clamp(starts[0], size, low, high)
        assert isinstance(first, int)
        call.contents[0] = SymbolicValue(tuple(contents.dims[first + k * step] for k in range(length)))


@rule("Expand")
def expand(call: Call) -> Types:
    """The input broadcast against a shape given as a tensor."""
    target = call.dims(1)
    if target is None:
        length, shape = call.shape(1), call.shape()
        if length and isinstance(length[0], int) and shape is not None:
            return [TensorType(call.dtype(), call.unknown_dims(max(length[0], len(shape))))]
        return [TensorType(call.dtype())]
    sizes = tuple(size_of(call, d) for d in target)
    result = join_shapes(call, call.shape(), sizes)
    value = call.value(0)
    if value is not None and result is not None and len(result) <= 1 and len(value.dims) == 1:
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
        length = call.shape(1)
        rank = len(shape) if shape is not None else length[0] if length and isinstance(length[0], int) else None
        return [TensorType(call.dtype(), call.unknown_dims(rank))]
    if len(repeats) != len(shape):
        raise refuse(call, f"{len(repeats)} repeats for rank {len(shape)}")
    value, times = call.value(0), repeats[0] if repeats else 1
    if value is not None and isinstance(times, int) and len(value.dims) * times <= MAX_ELEMENTS:
        call.contents[0] = SymbolicValue(value.dims * times, value.rank)
    return [TensorType(call.dtype(), tuple(size_of(call, d * r) for d, r in zip(shape, repeats, strict=True)))]


@rule("Pad")
def pad(call: Call) -> Types:
    """Each dim grown (or, by a negative pad, shrunk) at both ends."""
    shape, pads = call.shape(), call.dims(1)
    if shape is None:
        return [TensorType(call.dtype())]
    axes = call.ints(3) if call.present(3) else tuple(range(len(shape)))
    if pads is None or axes is None:
        return [TensorType(call.dtype(), call.unknown_dims(len(shape)))]
    axes = axes_of(call, axes, len(shape))
    if len(pads) != 2 * len(axes):
        raise refuse(call, f"{len(pads)} pads for {len(axes)} axes")
    result = list(shape)
    for i, axis in enumerate(axes):
        result[axis] = size_of(call, shape[axis] + pads[i] + pads[i + len(axes)])
    return [TensorType(call.dtype(), tuple(result))]


@rule("CenterCropPad")
def center_crop_pad(call: Call) -> Types:
    """Some dims replaced by the sizes in the second input."""
    shape, sizes = call.shape(), call.dims(1)
    if shape is None:
        return [TensorType(call.dtype())]
    axes = axes_of(call, call.int_list("axes") or range(len(shape)), len(shape))
    result = list(shape)
    for i, axis in enumerate(axes):
        result[axis] = call.fresh() if sizes is None else size_of(call, sizes[i])
    return [TensorType(call.dtype(), tuple(result))]


@rule("Gather")
def gather(call: Call) -> Types:
    """Slices along `axis`, one for each index; the shape of the indices takes the place of that dim."""
    shape, indices = call.shape(0), call.shape(1)
    if shape is None or indices is None:
        return [TensorType(call.dtype())]
    axis = axis_of(call, call.integer("axis"), len(shape))
    contents, where = call.value(0), call.value(1)
    if contents is not None and contents.rank == 1 and where is not None:
        picked: list[Dim] = []
        for d in where.dims:
            if not isinstance(d, int) or not -len(contents.dims) <= d < len(contents.dims):
                break
            picked.append(contents.dims[d])
        else:
            call.contents[0] = SymbolicValue(tuple(picked), where.rank)
    return [TensorType(call.dtype(), (*shape[:axis], *indices, *shape[axis + 1 :]))]


@rule("GatherElements")
def gather_elements(call: Call) -> Types:
    """One element for each index."""
    return [TensorType(call.dtype(), call.shape(1))]


@rule("GatherND")
def gather_nd(call: Call) -> Types:
    """Slices at index tuples: the batch dims and the tuples' dims, then what a tuple leaves."""
    shape, indices, batch = call.shape(0), call.shape(1), call.integer("batch_dims")
    if shape is None or not indices or not isinstance(indices[-1], int):
        return [TensorType(call.dtype())]
    if batch + indices[-1] > len(shape):
        raise refuse(call, f"tuples of {indices[-1]} indices after {batch} batch dims for rank {len(shape)}")
    return [TensorType(call.dtype(), (*indices[:-1], *shape[batch + indices[-1] :]))]


@rule("DepthToSpace")
def depth_to_space(call: Call) -> Types:
    """Blocks of channels become blocks of pixels."""
    shape, b = call.shape(), call.integer("blocksize", 1)
    if shape is None or len(shape) != 4:
        return [TensorType(call.dtype(), call.unknown_dims(4))]
    n, c, h, w = shape
    return [TensorType(call.dtype(), (n, c // (b * b), h * b, w * b))]


@rule("SpaceToDepth")
def space_to_depth(call: Call) -> Types:
    """Blocks of pixels become channels."""
    shape, b = call.shape(), call.integer("blocksize", 1)
    if shape is None or len(shape) != 4:
        return [TensorType(call.dtype(), call.unknown_dims(4))]
    n, c, h, w = shape
    return [TensorType(call.dtype(), (n, c * (b * b), h // b, w // b))]


@rule("Compress")
def compress(call: Call) -> Types:
    """The slices that a mask picks: along an axis, or of all elements."""
    shape, axis = call.shape(), call.attr("axis")
    if not isinstance(axis, int):
        return [TensorType(call.dtype(), (call.fresh(),))]
    if shape is None:
        return [TensorType(call.dtype())]
    axis = axis_of(call, axis, len(shape))
    return [TensorType(call.dtype(), (*shape[:axis], call.fresh(), *shape[axis + 1 :]))]


@rule("Unique")
def unique(call: Call) -> Types:
    """The different elements or slices, and three index lists."""
    shape, axis = call.shape(), call.attr("axis")
    count = call.fresh()
    if not isinstance(axis, int):
        values: Shape | None = (count,)
        inverse: Dim = call.fresh() if shape is None else product(shape)
    else:
        at = None if shape is None else axis_of(call, axis, len(shape))
        values = None if shape is None or at is None else (*shape[:at], count, *shape[at + 1 :])
        inverse = call.fresh() if shape is None or at is None else shape[at]
    index = TensorType(DType.I64, (count,))
    return [TensorType(call.dtype(), values), index, TensorType(DType.I64, (inverse,)), index]


@rule("Col2Im")
def col2im(call: Call) -> Types:
    """Blocks of columns added up into an image of the size in the second input."""
    shape, image, block = call.shape(), call.dims(1), call.dims(2)
    sizes = call.shape(1)
    if shape is None or len(shape) != 3:
        return [TensorType(call.dtype())]
    if image is None or block is None:
        rank = sizes[0] if sizes and isinstance(sizes[0], int) else None
        dims = call.unknown_dims(None if rank is None else rank + 1)
        return [TensorType(call.dtype(), None if dims is None else (shape[0], *dims))]
    return [TensorType(call.dtype(), (shape[0], shape[1] // product(block), *(size_of(call, d) for d in image)))]
