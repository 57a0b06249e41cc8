"""Meaning of the operators that move elements: by a new shape (Transpose, Concat), or by index (Slice, Pad, Gather).

Length: one short meaning for each operator.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

from ..paths.path import NotModeled, Path
from ..paths.tensors import Leaf, Tensor, broadcast, place_of, read_broadcast, select
from ..terms import integers, scalars
from ..terms.integers import Atom, Int, conj, disj, eq, ge, inside
from ..terms.scalars import Scalar
from .semantics_registry import Attrs, Opaque, operator

SLICED = 1
"""Number of axes of a slice that are modeled if a rule leaves their number open. Each axis has about fifty cases of how
start, end and step lie."""


@operator("Identity")
def identity(path: Path, attrs: Attrs, x: Tensor) -> Tensor:
    """Return the tensor itself."""
    return x


@operator("Transpose")
def transpose(path: Path, attrs: Attrs, x: Tensor) -> Tensor:
    """Define `y[o] = x[i]` with `i[perm[k]] = o[k]`."""
    perm = attrs.permutation("perm", x.rank)
    places = [perm.index(k) for k in range(len(perm))]
    return Tensor(path, [x.shape[p] for p in perm], lambda index: x.at([index[p] for p in places]), dtype=x.dtype)


def reshaped(path: Path, x: Tensor, shape: Sequence[Int]) -> Tensor:
    """Return the same elements in row-major order, in another shape."""
    sizes = [path.normal(d) for d in shape]

    def at(index: list[Int]) -> Scalar:
        dims = [path.normal(d) for d in sizes]  # by what is known when the element is read
        return x.at(index) if dims == x.shape else x.at_place(place_of(index, dims))

    values = x._values if x._values is not None and len(shape) <= 1 and x.rank <= 1 else None
    return Tensor(path, sizes, at, dtype=x.dtype, place=x.at_place, values=values)


@operator("Reshape")
def reshape(path: Path, attrs: Attrs, x: Tensor, target: Tensor) -> Tensor:
    """Reshape to the dims of the target, where 0 copies a dim and one -1 is inferred."""
    allowzero = attrs.option("allowzero", (0, 1))
    if isinstance(target, Leaf) and ("contents", target.name) not in path.extra:
        return reshaped(path, x, _resolved(path, x, target, allowzero))
    return reshaped(path, x, target_dims(path, x.shape, target.values(), allowzero))


def target_dims(path: Path, shape: list[Int], target: Sequence[Int], allowzero: int) -> list[Int]:
    """Return the dims that a target of Reshape stands for."""
    dims: list[Int] = []
    inferred: int | None = None
    for i, d in enumerate(target):
        if path.decide(eq(d, -1)):
            path.require(inferred is None, "two dims are open")
            inferred = i
            dims.append(1)
        elif not allowzero and path.decide(eq(d, 0)):
            path.require(i < len(shape), "there is no dim to copy")
            dims.append(shape[i])
        else:
            path.require(ge(d, 0), "dims of a target")
            dims.append(path.normal(d))
    total, rest = (path.normal(integers.product(v)) for v in (shape, dims))
    if inferred is None:
        path.require(eq(rest, total), "the size of a reshaped tensor", typed=True)
    else:
        dims[inferred] = _inferred(path, total, rest)
    return [path.normal(d) for d in dims]


def _inferred(path: Path, total: Int, rest: Int) -> Int:
    """Return the dim of a target that is open, for a tensor of `total` elements and the product of the other dims."""
    exact = integers.exact_quotient(total, rest)
    if exact is not None and path.entails(ge(rest, 1)):
        return exact
    found = path.size(f"({total})/({rest})")
    if not path.right:
        path.assume(eq(found * rest, total))
        return found
    path.require(ge(rest, 1), "the open dim is determined")
    quotient, remainder = path.divide(total, rest)
    path.require(eq(remainder), "the size of a reshaped tensor", typed=True)
    return quotient


def _resolved(path: Path, x: Tensor, target: Leaf, allowzero: int) -> list[Int]:
    """Return symbolic dims for a target with unknown contents: any that have the right product.

    How the target expresses them (by -1, by 0) is chosen if its contents are read."""
    shape = x.shape
    key = ("resolved", target.name)
    if key in path.extra:
        first, zeros, dims = path.extra[key]
        if [path.normal(d) for d in first] == shape and zeros == allowzero:
            return [path.normal(d) for d in dims]
        return target_dims(path, shape, target.values(), allowzero)
    path.require(target.fixed != 0, "a target has rank 1")
    target.fixed = 1
    count = path.concrete(target.shape[0], 0, path.max_rank + 1, f"length of {target.name}", certain=True)
    dims = [path.size(f"{target.name}:{i}") for i in range(count)]
    path.require(eq(integers.product(dims), integers.product(shape)), "the size of a reshaped tensor")
    dims = [path.normal(d) for d in dims]
    path.extra[key] = (shape, allowzero, dims)

    def choose_contents(values: list[Int]) -> None:
        inferred = False
        for i, (value, d) in enumerate(zip(values, dims, strict=True)):
            options = ["itself"] + ["-1"] * (not inferred) + ["0"] * (not allowzero and i < len(shape))
            option = path.choose(options, f"{target.name}[{i}]")
            inferred = inferred or option == "-1"
            if option == "0":
                path.assume(eq(d, shape[i]))
            path.assume(eq(value, {"itself": d, "-1": -1, "0": 0}[option]))
            if option == "itself" and not allowzero:
                path.assume(ge(d, 1))

    path.extra.setdefault(("targets", target.name), []).append(choose_contents)
    return dims


@operator("Flatten")
def flatten(path: Path, attrs: Attrs, x: Tensor) -> Tensor:
    """Merge the axes before `axis` into one, and those from it on into another."""
    axis = attrs.axis("axis", x.rank, end=True)
    return reshaped(path, x, [integers.product(x.shape[:axis]), integers.product(x.shape[axis:])])


def axes_of(path: Path, listed: Sequence[Int], rank: int) -> list[int]:
    """Return axes counted from the front, in the order given; none occurs twice."""
    path.require(len(listed) <= rank, "an axis is named twice")
    out: list[int] = []
    for a in listed:
        path.require(conj(ge(a, -rank), ge(rank - 1, a)), "an axis exists")
        out.append(_axis(path, path.normal(a), rank, out))
    return out


def _axis(path: Path, a: Int, rank: int, taken: Sequence[int]) -> int:
    """Return the axis that a number means, without deciding from which end it counts."""
    if isinstance(a, int):
        path.require(a % rank not in taken, "an axis is named twice")
        return a % rank
    means = {k: disj(eq(a, k), eq(a, k - rank)) for k in range(rank) if k not in taken}
    found = path.choose([k for k, cond in means.items() if not path.entails(integers.negate(cond))], "axis")
    path.assume(means[found], certain=True)
    return found


@operator("Squeeze")
def squeeze(path: Path, attrs: Attrs, x: Tensor, listed: Tensor | None = None) -> Tensor:
    """Remove axes of size 1: those named, or all."""
    if listed is not None:
        axes = axes_of(path, listed.values(), x.rank)
        for a in axes:
            path.require(eq(x.shape[a], 1), "a squeezed axis has size 1")
    else:
        axes = [k for k in range(x.rank) if path.decide(eq(x.shape[k], 1))]
    return reshaped(path, x, [d for k, d in enumerate(x.shape) if k not in axes])


@operator("Unsqueeze")
def unsqueeze(path: Path, attrs: Attrs, x: Tensor, listed: Tensor) -> Tensor:
    """Insert axes of size 1."""
    rank = x.rank + len(listed.values())
    axes = axes_of(path, listed.values(), rank)
    rest = iter(x.shape)
    shape = [1 if k in axes else next(rest) for k in range(rank)]

    def at(index: list[Int]) -> Scalar:
        return x.at([i for k, i in enumerate(index) if k not in axes])

    return Tensor(path, shape, at, dtype=x.dtype, place=x.at_place)


@operator("Expand")
def expand(path: Path, attrs: Attrs, x: Tensor, target: Tensor) -> Tensor:
    """Broadcast to a shape."""
    if path.pointwise:
        return Tensor(path, [], lambda index: x.at([]), dtype=x.dtype)
    dims = target.values()
    for d in dims:
        path.require(ge(d, 0), "dims of a target")
    shape = broadcast(path, [x.shape, dims])
    return Tensor(path, shape, lambda index: read_broadcast(path, x, index), dtype=x.dtype)


@operator("Tile")
def tile(path: Path, attrs: Attrs, x: Tensor, repeats: Tensor) -> Tensor:
    """Repeat along each axis."""
    counts = repeats.values(x.rank)
    path.require(len(counts) == x.rank, "as many repeats as axes")
    for n in counts:
        path.require(ge(n, 0), "repeats")

    def wrapped(index: Int, size: Int, count: Int) -> Int:
        if path.normal(count) == 1:
            return index
        path.require(path.decide(ge(size, 1)), "an empty tensor has no elements")
        return path.divide(path.refine(index, size), size)[1]

    shape = [d * n for d, n in zip(x.shape, counts, strict=True)]
    return Tensor(path, shape, lambda index: x.at(list(map(wrapped, index, x.shape, counts))), dtype=x.dtype)


@operator("Concat")
def concat(path: Path, attrs: Attrs, first: Tensor, *rest: Tensor | None) -> Tensor:
    """Concatenate along an axis."""
    others = [x for x in rest if x is not None]
    parts = [first, *others]
    path.require(len(others) >= len(rest), "an input is absent")
    axis = attrs.axis("axis", first.rank)
    for other in others:
        path.require(other.rank == first.rank, "concatenated tensors have one rank")
        for a, b in (pair for k, pair in enumerate(zip(first.shape, other.shape, strict=True)) if k != axis):
            path.require(eq(a, b), "concatenated tensors agree except along the axis")
    shape = first.shape
    shape[axis] = sum((p.shape[axis] for p in others), shape[axis])

    def at(index: list[Int], left: Sequence[Tensor] = parts, start: Int = 0) -> Scalar:
        def here() -> Scalar:
            return left[0].at([*index[:axis], index[axis] - start, *index[axis + 1 :]])

        if len(left) == 1:
            return here()
        end = path.normal(start + left[0].shape[axis])
        return select(path, ge(end - 1, index[axis]), here, lambda: at(index, left[1:], end))

    known = first.rank == 1 and all(isinstance(p, Leaf) or p._values is not None for p in parts)
    values = (lambda: [v for p in parts for v in p.values()]) if known else None
    return Tensor(path, shape, at, dtype=first.dtype, values=values)


@operator("Split")
def split(path: Path, attrs: Attrs, x: Tensor, listed: Tensor | None = None) -> list[Tensor]:
    """Cut along an axis: into parts of the sizes listed, or into a number of equal ones."""
    axis = attrs.axis("axis", x.rank)
    whole = x.shape[axis]
    if listed is not None:
        sizes = listed.values()
    else:
        if attrs.named.get("num_outputs") is not None:
            number = path.concrete(attrs.integer("num_outputs", 1), 1, 4, "num_outputs", certain=True)
        else:
            number = path.choose((1, 2, 3), "outputs of Split")
        each = path.divide(whole + (number - 1), number)[0]
        sizes = [each] * (number - 1) + [whole - each * (number - 1)]
    for s in sizes:
        path.require(ge(s, 0), "parts have a size")
    path.require(eq(sum(sizes[1:], sizes[0]) if sizes else 0, whole), "parts make up the whole")
    ends = itertools.accumulate(sizes, lambda end, size: path.normal(end + size))
    return [_slab(path, x, axis, start, size) for start, size in zip((0, *ends), sizes, strict=False)]


def _slab(path: Path, x: Tensor, axis: int, start: Int, size: Int) -> Tensor:
    def at(index: list[Int]) -> Scalar:
        return x.at([*index[:axis], index[axis] + start, *index[axis + 1 :]])

    return Tensor(path, [*x.shape[:axis], size, *x.shape[axis + 1 :]], at, dtype=x.dtype)


@operator("DepthToSpace")
def depth_to_space(path: Path, attrs: Attrs, x: Tensor) -> Tensor:
    """Move blocks of channels to pixels."""
    n, mode = attrs.integer("blocksize", 1), attrs.option("mode", ("DCR", "CRD"))
    path.require(x.rank == 4, "four axes")
    b, c, h, w = x.shape
    depth, rest = path.divide(c, n * n)
    path.require(eq(rest), "channels are multiples of blocks")

    def at(index: list[Int]) -> Scalar:
        hi, hn = path.unflatten(index[2], [h, n])
        wi, wn = path.unflatten(index[3], [w, n])
        channel = (hn * n + wn) * depth + index[1] if mode == "DCR" else (index[1] * n + hn) * n + wn
        return x.at([index[0], channel, hi, wi])

    return Tensor(path, [b, depth, h * n, w * n], at, dtype=x.dtype)


@operator("SpaceToDepth")
def space_to_depth(path: Path, attrs: Attrs, x: Tensor) -> Tensor:
    """Move pixels to blocks of channels."""
    n = attrs.integer("blocksize", 1)
    path.require(x.rank == 4, "four axes")
    b, c, h, w = x.shape
    (high, rh), (wide, rw) = path.divide(h, n), path.divide(w, n)
    path.require(conj(eq(rh), eq(rw)), "pixels are multiples of blocks")

    def at(index: list[Int]) -> Scalar:
        hn, wn, channel = path.unflatten(index[1], [n, n, c])
        return x.at([index[0], channel, index[2] * n + hn, index[3] * n + wn])

    return Tensor(path, [b, c * n * n, high, wide], at, dtype=x.dtype)


@operator("Shape")
def shape_(path: Path, attrs: Attrs, x: Tensor) -> Tensor:
    """Return the dims, or a range of them."""
    rank = x.rank

    def bound(name: str, default: int) -> int:
        value = attrs.integer(name) if attrs.named.get(name, attrs.rest) is not None else default
        if path.decide(ge(value, rank)):
            return rank
        if not path.decide(ge(value, -rank)):
            return 0
        found = path.concrete(value, -rank, rank, "bound of Shape", certain=True)
        return found + rank if found < 0 else found

    return listed(path, x.shape[bound("start", 0) : bound("end", rank)])


@operator("Size")
def size_(path: Path, attrs: Attrs, x: Tensor) -> Tensor:
    """Return the number of elements."""
    total = x.size
    return Tensor(path, [], lambda index: scalars.number(path.normal(total)), dtype="i64", values=lambda: [total])


def listed(path: Path, values: Sequence[Int]) -> Tensor:
    """Return an integer vector with these contents."""

    def at(index: list[Int]) -> Scalar:
        if path.has_bound(path.normal(index[0])):  # of a sum, which takes all elements
            found = [scalars.number(path.normal(v)) for v in values] or [scalars.ZERO]  # of nothing, none is read
            chosen = ((eq(index[0], k), v) for k, v in enumerate(found[:-1]))
            return functools.reduce(lambda rest, c: scalars.choice(c[0], c[1], rest), reversed(list(chosen)), found[-1])
        place = path.concrete(index[0], 0, len(values) - 1, "element", certain=True)
        return scalars.number(path.normal(values[place]))

    return Tensor(path, [len(values)], at, dtype="i64", values=lambda: list(values))


@operator("ConstantOfShape")
def constant_of_shape(path: Path, attrs: Attrs, shape: Tensor) -> Tensor:
    """Fill a tensor with one element."""
    value = attrs.named.get("value")
    if isinstance(value, Tensor):
        return Tensor(path, shape.values(), lambda index: value.at([0] * value.rank), dtype=value.dtype)
    if value is not None or attrs.rest is not None:
        raise NotModeled("the value of ConstantOfShape")
    return Tensor(path, shape.values(), lambda index: scalars.ZERO, dtype="f32")


# --- elements by index ---


@operator("Slice")
def slice_(path: Path, attrs: Attrs, x: Tensor, starts: Tensor, ends: Tensor, *rest: Tensor | None) -> Tensor:
    """Take a range by steps along some axes; bounds are clamped, and negative ones count from the end."""
    bounds = _bounds_of(path, starts, ends, *rest)
    shape = x.shape
    first: dict[int, tuple[Int, Int]] = {}
    for a, start, end, step in zip(axes_of(path, bounds[2], x.rank), bounds[0], bounds[1], bounds[3], strict=True):
        shape[a], begin = _span(path, shape[a], start, end, step)
        first[a] = (begin, path.normal(step))

    def at(index: list[Int]) -> Scalar:
        return x.at([first[k][0] + i * first[k][1] if k in first else i for k, i in enumerate(index)])

    def values() -> list[Int]:
        found = x.values()
        begin, step = first.get(0, (0, 1))
        number = path.concrete(shape[0], 0, len(found), "elements", certain=True)
        if not isinstance(begin, int) or not isinstance(step, int):
            raise NotModeled("a part of contents at an unknown place")
        return [found[begin + i * step] for i in range(number)]

    known = x.rank == 1 and x._values is not None
    return Tensor(path, shape, at, dtype=x.dtype, values=values if known else None)


def _bounds_of(path: Path, *inputs: Tensor | None) -> list[list[Int]]:
    """Return starts, ends, axes and steps, as lists of the first length that is known."""
    lists = [t for t in inputs if t is not None]
    for t in lists:
        t.fix_rank(1)
    known = [t for t in lists if not isinstance(t, Leaf) or ("contents", t.name) in path.extra]
    count = len((known or lists)[0].values())
    if isinstance(lists[0], Leaf) and path.mode != "unclamped":
        path.require(count <= SLICED, "slices along several axes are out of bounds")
        if count == SLICED:
            path.bounded.add("slices along one axis")
    absent: list[list[Int]] = [[], [], list(range(count)), [1] * count]
    pairs = itertools.zip_longest(inputs, absent)
    found = [other if t is None else t.values(count) for t, other in pairs]
    path.require(all(len(v) == count for v in found), "as many ends as starts")
    return found


def _span(path: Path, size: Int, start: Int, end: Int, step: Int) -> tuple[Int, Int]:
    """Return the number of elements that a slice takes along one axis, and the index of the first."""
    path.require(integers.negate(eq(step, 0)), "a step is not 0")
    start, end, step, size = (path.normal(v) for v in (start, end, step, size))
    if path.mode == "unclamped" and not (isinstance(start, int) and isinstance(end, int)):
        return _some_span(path, size, start, end, step)
    forward = path.decide(ge(step, 1))
    low, high = (0, size) if forward else (-1, size - 1)
    if not forward and not path.decide(ge(start + size, 0)):
        # too far before the front: implementations start at the first element, or before it and take none
        choices = (0, -1)
        begin: Int = path.once(("too far", start, size), lambda: path.choose(choices, f"start {start} of {size}"))
    else:
        begin = _clamped(path, start, size, 0, high)
    stop = _clamped(path, end, size, low, size if forward else size - 1)
    length = stop - begin if forward else begin - stop
    stride = step if forward else -step
    if not path.decide(ge(length, 1)):
        return 0, 0
    count = length if path.normal(stride) == 1 else path.divide(length + stride - 1, stride)[0]
    return path.normal(count), path.normal(begin)


def _some_span(path: Path, size: Int, start: Int, end: Int, step: Int) -> tuple[Int, Int]:
    """Return both as symbols that depend on the bounds only, without distinguishing cases."""

    def make() -> tuple[Int, Int]:
        name = path.fresh("span")
        count, begin = path.size(f"{name}.count"), path.size(f"{name}.begin")
        path.assume(ge(size, count), certain=True)
        return count, begin

    count, begin = path.once(("span", start, end, step, size), make)
    return path.normal(count), path.normal(begin)


def _clamped(path: Path, value: Int, size: Int, low: Int, high: Int) -> Int:
    if not path.decide(ge(value, 0)):
        value = path.normal(value + size)
        if not path.decide(ge(value, low)):
            return low
    return path.normal(path.minimum(value, high))


@operator("Pad")
def pad(
    path: Path, attrs: Attrs, x: Tensor, widths: Tensor, value: Tensor | None = None, listed: Tensor | None = None
) -> Tensor:
    """Pad with a constant, or with elements of the tensor that are an unknown function of the position."""
    mode = attrs.option("mode", ("constant", "edge", "reflect", "wrap"))
    axes = list(range(x.rank)) if listed is None else axes_of(path, listed.values(), x.rank)
    pads = widths.values(2 * len(axes))
    path.require(len(pads) == 2 * len(axes), "two numbers for each padded axis")
    padded = dict(zip(axes, zip(pads[: len(axes)], pads[len(axes) :], strict=True), strict=True))
    shape = x.shape
    for a, (before, after) in padded.items():
        shape[a] = shape[a] + before + after
        path.require(ge(shape[a]), "a padded size is not negative")
    if value is not None and value.rank and not path.pointwise:
        path.require(eq(value.size, 1), "the padding is a scalar", typed=True)

    def source(k: int, i: Int) -> Int:
        """Return the index along an axis of the element that is repeated at an index of the result."""
        before, after = map(path.normal, padded.get(k, (0, 0)))
        if before == 0 == after:
            return i
        return integers.of_atom(Atom(f"padding by {mode}", "data", (i, x.shape[k], before, after)))

    def at(index: list[Int]) -> Scalar:
        if mode != "constant":
            return x.at([source(k, i) for k, i in enumerate(index)])
        place = [i - padded[k][0] if k in padded else i for k, i in enumerate(index)]
        cut = (k for k, both in padded.items() if any(path.normal(p) != 0 for p in both))
        guard = conj(*(inside(place[k], x.shape[k]) for k in cut))
        around = scalars.ZERO if value is None else value.at([0] * value.rank)
        return select(path, guard, lambda: x.at(place), lambda: around)

    return Tensor(path, shape, at, dtype=x.dtype)


@operator("Gather")
def gather(path: Path, attrs: Attrs, x: Tensor, i: Tensor) -> Tensor:
    """Define `y[.., j.., ..] = x[.., i[j..], ..]`; negative indices count from the end."""
    axis = attrs.axis("axis", x.rank)
    size = x.shape[axis]
    shape = [*x.shape[:axis], *i.shape, *x.shape[axis + 1 :]]
    n = i.rank

    def at(index: list[Int]) -> Scalar:
        place = path.normal(i.integer_at(index[axis : axis + n]))
        if not path.has_bound(place):
            path.assume(conj(ge(place, -size), ge(size - 1, place)))
            place = place if path.decide(ge(place)) else path.normal(place + size)
        elif not path.entails(ge(place)):
            raise NotModeled("an index within a sum")
        return x.at([*index[:axis], place, *index[axis + n :]])

    def values() -> list[Int]:
        found = x.values()
        return [found[path.concrete(v, -len(found), len(found) - 1, "index")] for v in i.values()]

    known = x._values is not None and x.rank == 1
    return Tensor(path, shape, at, dtype=x.dtype, values=values if known else None)


@operator("GatherElements")
def gather_elements(path: Path, attrs: Attrs, x: Tensor, i: Tensor) -> Tensor:
    """Define `y[j] = x[j with i[j] in place of one index]`; negative indices count from the end."""
    axis = attrs.axis("axis", x.rank)
    i.require_rank(x.rank, "as many axes of indices as of elements")
    size = x.shape[axis]
    for k, (d, e) in enumerate(zip(i.shape, x.shape, strict=True)):
        path.require(k == axis or ge(e, d), "indices lie within the elements")

    def at(index: list[Int]) -> Scalar:
        place = path.normal(i.integer_at(index))
        if path.has_bound(place):
            raise NotModeled("an index within a sum")
        path.assume(conj(ge(place, -size), ge(size - 1, place)))
        place = place if path.decide(ge(place)) else path.normal(place + size)
        return x.at([*index[:axis], place, *index[axis + 1 :]])

    return Tensor(path, i.shape, at, dtype=x.dtype)


@operator("EyeLike")
def eye_like(path: Path, attrs: Attrs, x: Tensor) -> Tensor:
    """Define ones on a diagonal of a matrix of zeros."""
    x.require_rank(2, "a matrix")
    shift = attrs.integer("k")
    if attrs.get("dtype", Opaque) is not None:
        raise NotModeled("the type of EyeLike")

    def at(index: list[Int]) -> Scalar:
        return select(path, eq(index[1], index[0] + shift), lambda: scalars.ONE, lambda: scalars.ZERO)

    return Tensor(path, x.shape, at, dtype=x.dtype)
