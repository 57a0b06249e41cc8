"""The meaning of operators that move data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import integers, scalars
from .attributes import Attrs
from .integers import Int, conj, disj, eq, ge, inside
from .path import Infeasible, NotModelled, Path
from .registry import Inputs, given, operator
from .scalars import Scalar
from .tensors import Leaf, Tensor, broadcast, place_of, read_broadcast, select


@operator("Identity")
def identity(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """The tensor itself."""
    return [given(inputs, 0)]


@operator("Transpose")
def transpose(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """`y[o] = x[i]` with `i[perm[k]] = o[k]`."""
    x = given(inputs, 0)
    perm = attrs.permutation("perm", x.rank)

    def at(index: list[Int]) -> Scalar:
        return x.at([index[perm.index(k)] for k in range(len(perm))])

    return [Tensor(path, [x.shape[p] for p in perm], at, dtype=x.dtype)]


def reshaped(path: Path, x: Tensor, shape: Sequence[Int]) -> Tensor:
    """The same elements, row by row, in another shape."""
    dims = [path.normal(d) for d in shape]

    def at(index: list[Int]) -> Scalar:
        if [path.normal(d) for d in dims] == x.shape:
            return x.at(index)
        return x.at_place(place_of(index, [path.normal(d) for d in dims]))

    values = x._values if isinstance(x, Leaf) is False and len(dims) <= 1 and x.rank <= 1 else None
    return Tensor(path, dims, at, dtype=x.dtype, place=x.at_place, values=values)


@operator("Reshape")
def reshape(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """Row by row into the dims of the target, of which 0 copies a dim and one -1 takes what is left."""
    x, target = given(inputs, 0), given(inputs, 1)
    allowzero = attrs.option("allowzero", (0, 1))
    if isinstance(target, Leaf) and ("contents", target.name) not in path.extra:
        return [reshaped(path, x, _resolved(path, x, target, allowzero))]
    return [reshaped(path, x, target_dims(path, x.shape, target.values(), allowzero))]


def target_dims(path: Path, shape: list[Int], target: Sequence[Int], allowzero: int) -> list[Int]:
    """The dims that a target of Reshape stands for."""
    dims: list[Int] = []
    open_: int | None = None
    for i, d in enumerate(target):
        if path.decide(eq(d, -1)):
            if open_ is not None:
                raise Infeasible("two dims are open")
            open_ = i
            dims.append(1)
        elif not allowzero and path.decide(eq(d, 0)):
            if i >= len(shape):
                raise Infeasible("there is no dim to copy")
            dims.append(shape[i])
        else:
            path.require(ge(d, 0), "dims of a target")
            dims.append(path.normal(d))
    total = path.normal(integers.product(shape))
    rest = path.normal(integers.product(dims))
    if open_ is not None:
        found = integers.exact_quotient(total, rest)
        if found is None or not path.entails(ge(rest, 1)):
            name = f"({total})/({rest})"
            found = path.size(name)
            if path.right:
                path.require(ge(rest, 1), "the open dim is determined")
                quotient, remainder = path.divide(total, rest)
                path.require(eq(remainder), "the size of a reshaped tensor", typed=True)
                found = quotient
            else:
                path.assume(eq(found * rest, total))
        dims[open_] = found
    else:
        path.require(eq(rest, total), "the size of a reshaped tensor", typed=True)
    return [path.normal(d) for d in dims]


def _resolved(path: Path, x: Tensor, target: Leaf, allowzero: int) -> list[Int]:
    """The dims of a result whose target is a tensor of which nothing is known: any that have the right product.

    How the target says so (by -1, by 0) is settled if its contents are asked for."""
    shape = x.shape
    key = ("resolved", target.name)
    known = path.extra.get(key)
    if known is not None:
        if [path.normal(d) for d in known[0]] == shape and known[1] == allowzero:
            return [path.normal(d) for d in known[2]]
        target.values()
        return target_dims(path, shape, target.values(), allowzero)
    if target.fixed == 0:
        raise Infeasible("a target has rank 1")
    target.fixed = 1
    count = path.concrete(target.shape[0], 0, path.max_rank + 1, f"length of {target.name}", certain=True)
    dims: list[Int] = [path.size(f"{target.name}:{i}") for i in range(count)]
    path.require(eq(integers.product(dims), integers.product(shape)), "the size of a reshaped tensor")
    dims = [path.normal(d) for d in dims]
    path.extra[key] = (shape, allowzero, dims)

    def told(values: list[Int]) -> None:
        open_ = False
        for i, (value, d) in enumerate(zip(values, dims, strict=True)):
            ways = ["itself"] + ["-1"] * (not open_) + ["0"] * (not allowzero and i < len(shape))
            way = path.choose(ways, f"{target.name}[{i}]")
            open_ = open_ or way == "-1"
            if way == "0":
                path.assume(eq(d, shape[i]))
            path.assume(eq(value, {"itself": d, "-1": -1, "0": 0}[way]))
            if way == "itself" and not allowzero:
                path.assume(ge(d, 1))

    path.extra.setdefault(("targets", target.name), []).append(told)
    return dims


@operator("Flatten")
def flatten(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """The axes before and those from `axis` on, each as one."""
    x = given(inputs, 0)
    axis = attrs.axis("axis", x.rank, end=True)
    shape = x.shape
    return [reshaped(path, x, [integers.product(shape[:axis]), integers.product(shape[axis:])])]


def axes_of(path: Path, listed: Sequence[Int], rank: int) -> list[int]:
    """Axes counted from the front, in the order given; none twice."""
    if len(listed) > rank:
        raise Infeasible("an axis is named twice")
    out: list[int] = []
    for a in listed:
        path.require(conj(ge(a, -rank), ge(rank - 1, a)), "an axis exists")
        out.append(_axis(path, path.normal(a), rank, out))
    return out


def _axis(path: Path, a: Int, rank: int, taken: Sequence[int]) -> int:
    """Which axis a number means; whether it counts from the front or the back stays open."""
    if isinstance(a, int):
        found = a + rank if a < 0 else a
        if found in taken:
            raise Infeasible("an axis is named twice")
        return found
    means = {k: disj(eq(a, k), eq(a, k - rank)) for k in range(rank) if k not in taken}
    found = path.choose([k for k, cond in means.items() if not path.entails(integers.negate(cond))], "axis")
    path.assume(means[found], certain=True)
    return found


@operator("Squeeze")
def squeeze(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """Without axes of size 1: those named, or all."""
    x = given(inputs, 0)
    if len(inputs) > 1 and inputs[1] is not None:
        axes = axes_of(path, inputs[1].values(), x.rank)
        for a in axes:
            path.require(eq(x.shape[a], 1), "a squeezed axis has size 1")
    else:
        axes = [k for k in range(x.rank) if path.decide(eq(x.shape[k], 1))]
    return [reshaped(path, x, [d for k, d in enumerate(x.shape) if k not in axes])]


@operator("Unsqueeze")
def unsqueeze(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """With axes of size 1 put in."""
    x = given(inputs, 0)
    listed = given(inputs, 1).values()
    axes = axes_of(path, listed, x.rank + len(listed))
    rest = iter(x.shape)
    shape = [1 if k in axes else next(rest) for k in range(x.rank + len(axes))]

    def at(index: list[Int]) -> Scalar:
        return x.at([i for k, i in enumerate(index) if k not in axes])

    return [Tensor(path, shape, at, dtype=x.dtype, place=x.at_place)]


@operator("Expand")
def expand(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """Broadcast to a shape."""
    x, target = given(inputs, 0), given(inputs, 1)
    if path.extra.get("pointwise"):
        return [Tensor(path, [], lambda index: x.at([]), dtype=x.dtype)]
    dims = target.values()
    for d in dims:
        path.require(ge(d, 0), "dims of a target")
    shape = broadcast(path, [x.shape, dims])
    return [Tensor(path, shape, lambda index: read_broadcast(path, x, index), dtype=x.dtype)]


@operator("Tile")
def tile(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """Repeated along each axis."""
    x = given(inputs, 0)
    counts = given(inputs, 1).values(x.rank)
    if len(counts) != x.rank:
        raise Infeasible("as many repeats as axes")
    for n in counts:
        path.require(ge(n, 0), "repeats")

    def at(index: list[Int]) -> Scalar:
        return x.at([_wrapped(path, i, d, n) for i, d, n in zip(index, x.shape, counts, strict=True)])

    return [Tensor(path, [d * n for d, n in zip(x.shape, counts, strict=True)], at, dtype=x.dtype)]


def _wrapped(path: Path, index: Int, size: Int, count: Int) -> Int:
    if path.normal(count) == 1:
        return index
    if not path.decide(ge(size, 1)):
        raise Infeasible("an empty tensor has no elements")
    return path.divide(path._refine(index, size), size)[1]


@operator("Concat")
def concat(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """One after the other along an axis."""
    parts = [given(inputs, k) for k in range(len(inputs))]
    if not parts:
        raise Infeasible("nothing to join")
    axis = attrs.axis("axis", parts[0].rank)
    for other in parts[1:]:
        if other.rank != parts[0].rank:
            raise Infeasible("joined tensors have one rank")
        for k, (a, b) in enumerate(zip(parts[0].shape, other.shape, strict=True)):
            if k != axis:
                path.require(eq(a, b), "joined tensors agree but for the axis")
    shape = parts[0].shape
    shape[axis] = sum((p.shape[axis] for p in parts[1:]), shape[axis])

    def at(index: list[Int]) -> Scalar:
        return _part(path, parts, axis, index, 0)

    values = None
    if parts[0].rank == 1 and all(isinstance(p, Leaf) or p._values is not None for p in parts):

        def values() -> list[Int]:
            return [v for p in parts for v in p.values()]

    return [Tensor(path, shape, at, dtype=parts[0].dtype, values=values)]


def _part(path: Path, parts: Sequence[Tensor], axis: int, index: list[Int], start: Int) -> Scalar:
    here = [*index[:axis], index[axis] - start, *index[axis + 1 :]]
    if len(parts) == 1:
        return parts[0].at(here)
    end = path.normal(start + parts[0].shape[axis])
    return select(
        path,
        ge(end - 1, index[axis]),
        lambda: parts[0].at(here),
        lambda: _part(path, parts[1:], axis, index, end),
    )


def split_into(path: Path, attrs: Attrs, inputs: Inputs, count: int | None) -> list[Tensor]:
    """The parts of a Split; `count` is how many outputs are asked for, if that is known."""
    x = given(inputs, 0)
    axis = attrs.axis("axis", x.rank)
    whole = x.shape[axis]
    if len(inputs) > 1 and inputs[1] is not None:
        sizes = inputs[1].values()
        if count is not None and len(sizes) != count and not path.right:
            raise Infeasible("as many sizes as outputs")
    else:
        wanted = attrs.integer("num_outputs", 1) if attrs.named.get("num_outputs") is not None else None
        number = path.concrete(wanted, 1, 4, "num_outputs", certain=True) if wanted is not None else count
        if number is None:
            number = path.choose((1, 2, 3), "outputs of Split")
        each = path.divide(whole + (number - 1), number)[0]
        sizes = [each] * (number - 1) + [whole - each * (number - 1)]
    for s in sizes:
        path.require(ge(s, 0), "parts have a size")
    path.require(eq(sum(sizes[1:], sizes[0]) if sizes else 0, whole), "parts make up the whole")
    out = []
    start: Int = 0
    for size in sizes:
        out.append(_slab(path, x, axis, start, size))
        start = path.normal(start + size)
    return out


def _slab(path: Path, x: Tensor, axis: int, start: Int, size: Int) -> Tensor:
    shape = x.shape
    shape[axis] = size

    def at(index: list[Int]) -> Scalar:
        return x.at([*index[:axis], index[axis] + start, *index[axis + 1 :]])

    return Tensor(path, shape, at, dtype=x.dtype)


SLICED = 1
"""Along so many axes at once a slice is looked at where a rule leaves open along how many: there are some fifty ways in
which start, end and step can lie, for each axis."""


@operator("Slice")
def slice_(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """From start to end by steps, along some axes; bounds are clamped, negative ones count from the end."""
    x = given(inputs, 0)
    starts, ends, listed, steps = _bounds_of(path, inputs)
    axes = axes_of(path, listed, x.rank)
    shape = x.shape
    first: dict[int, tuple[Int, Int]] = {}
    for a, start, end, step in zip(axes, starts, ends, steps, strict=True):
        shape[a], begin = _span(path, shape[a], start, end, step)
        first[a] = (begin, path.normal(step))

    def at(index: list[Int]) -> Scalar:
        return x.at([first[k][0] + i * first[k][1] if k in first else i for k, i in enumerate(index)])

    values = None
    if x.rank == 1 and x._values is not None:
        source = x._values

        def values() -> list[Int]:
            found = source()
            begin, step = first.get(0, (0, 1))
            number = path.concrete(shape[0], 0, len(found), "elements", certain=True)
            if not isinstance(begin, int) or not isinstance(step, int):
                raise NotModelled("a part of contents at an unknown place")
            return [found[begin + i * step] for i in range(number)]

    return [Tensor(path, shape, at, dtype=x.dtype, values=values)]


def _bounds_of(path: Path, inputs: Inputs) -> list[list[Int]]:
    """Starts, ends, axes and steps: lists of one length, that of the first whose length is known."""
    lists = [given(inputs, 1), given(inputs, 2), *(t for t in inputs[3:] if t is not None)]
    for t in lists:
        if isinstance(t, Leaf) and t.fixed is None and t._dims is None:
            t.fixed = 1
    known = [t for t in lists if not isinstance(t, Leaf) or ("contents", t.name) in path.extra]
    count = len((known[0] if known else lists[0]).values())
    if isinstance(lists[0], Leaf) and not path.extra.get("unclamped"):
        if count > SLICED:
            raise Infeasible("a slice along so many axes is not looked at")
        if count == SLICED:
            path.extra.setdefault("bounded", set()).add("slices along one axis")
    axes, steps = ((inputs[k] if len(inputs) > k else None) for k in (3, 4))
    found = [
        lists[0].values(count),
        lists[1].values(count),
        list(range(count)) if axes is None else axes.values(count),
        [1] * count if steps is None else steps.values(count),
    ]
    if any(len(v) != count for v in found):
        raise Infeasible("as many ends as starts")
    return [list(v) for v in found]


def _span(path: Path, size: Int, start: Int, end: Int, step: Int) -> tuple[Int, Int]:
    """How many elements a slice takes along one axis, and which is the first."""
    path.require(integers.negate(eq(step, 0)), "a step is not 0")
    start, end, step, size = (path.normal(v) for v in (start, end, step, size))
    if path.extra.get("unclamped") and not (isinstance(start, int) and isinstance(end, int)):
        return _some_span(path, size, start, end, step)
    forward = path.decide(ge(step, 1))
    low, high = (0, size) if forward else (-1, size - 1)
    if not forward and not path.decide(ge(start + size, 0)):
        # too far before the front: implementations begin at the first element, or before it and take none
        key = ("too far", start, size)
        if key not in path.extra:
            path.extra[key] = path.choose((0, -1), f"start {start} of {size}")
        begin: Int = path.extra[key]
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
    """The same without the cases: two numbers of which no more is said than that they depend on the bounds only."""
    key = ("span", start, end, step, size)
    if key not in path.extra:
        name = path.fresh("span")
        path.extra[key] = path.size(f"{name}.count"), path.size(f"{name}.begin")
        path.assume(ge(size, path.extra[key][0]), certain=True)
    count, begin = path.extra[key]
    return path.normal(count), path.normal(begin)


def _clamped(path: Path, value: Int, size: Int, low: Int, high: Int) -> Int:
    if not path.decide(ge(value, 0)):
        value = path.normal(value + size)
        if not path.decide(ge(value, low)):
            return low
    if path.decide(ge(high, value)):
        return path.normal(value)
    return path.normal(high)


@operator("Pad")
def pad(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """With a constant around; other modes are modelled where nothing is padded."""
    x = given(inputs, 0)
    mode = attrs.option("mode", ("constant", "edge"))
    axes = list(range(x.rank))
    if len(inputs) > 3 and inputs[3] is not None:
        axes = axes_of(path, inputs[3].values(), x.rank)
    n = len(axes)
    pads = given(inputs, 1).values(2 * n)
    if len(pads) != 2 * n:
        raise Infeasible("two numbers for each padded axis")
    before = {a: pads[i] for i, a in enumerate(axes)}
    shape = x.shape
    for i, a in enumerate(axes):
        shape[a] = shape[a] + pads[i] + pads[n + i]
        path.require(ge(shape[a]), "a padded size is not negative")
    if mode != "constant" and any(path.normal(p) != 0 for p in pads):
        raise NotModelled(f"padding of mode {mode}")
    value = inputs[2] if len(inputs) > 2 and inputs[2] is not None else None
    if value is not None and value.rank and not path.extra.get("pointwise"):
        path.require(eq(value.size, 1), "the padding is a scalar", typed=True)

    def at(index: list[Int]) -> Scalar:
        place = [i - before.get(k, 0) for k, i in enumerate(index)]
        guard = conj(*(inside(place[k], x.shape[k]) for k in axes if path.normal(pads[axes.index(k)]) != 0
                       or path.normal(pads[n + axes.index(k)]) != 0))  # fmt: skip
        around = scalars.ZERO if value is None else value.at([0] * value.rank)
        return guarded(path, guard, lambda: x.at(place), around)

    return [Tensor(path, shape, at, dtype=x.dtype)]


def guarded(path: Path, guard: integers.Bool, inner: Callable[[], Scalar], outer: Scalar) -> Scalar:
    """What is inside a guard, else a constant."""
    guard = path.normal_cond(guard)
    parts = guard.args if isinstance(guard, integers.Cond) and guard.op == "and" else (guard,)
    needed = [c for c in parts if not path.entails(c)]
    return select(path, conj(*needed), inner, lambda: outer)


@operator("Gather")
def gather(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """`y[.., j.., ..] = x[.., i[j..], ..]`; negative indices count from the end."""
    x, i = given(inputs, 0), given(inputs, 1)
    axis = attrs.axis("axis", x.rank)
    size = x.shape[axis]
    shape = [*x.shape[:axis], *i.shape, *x.shape[axis + 1 :]]
    n = i.rank

    def at(index: list[Int]) -> Scalar:
        found = i.integer_at(index[axis : axis + n])
        return x.at([*index[:axis], wrapped_index(path, found, size), *index[axis + n :]])

    values = None
    if x._values is not None and not isinstance(x, Leaf) and x.rank == 1:
        source = x._values

        def values() -> list[Int]:
            known = source()
            return [known[path.concrete(v, -len(known), len(known) - 1, "index")] for v in i.values()]

    return [Tensor(path, shape, at, dtype=x.dtype, values=values)]


def wrapped_index(path: Path, found: Int, size: Int) -> Int:
    """An index into an axis, counted from the front. That it is in range is what the operator asks of the graph."""
    found = path.normal(found)
    if path.has_bound(found):
        path.extra["indices in range"] = True
        if path.entails(ge(found)):
            return found
        raise NotModelled("an index within a sum")
    path.assume(conj(ge(found, -size), ge(size - 1, found)))
    return found if path.decide(ge(found)) else path.normal(found + size)


@operator("DepthToSpace")
def depth_to_space(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """Blocks of channels to pixels."""
    x = given(inputs, 0)
    n, mode = attrs.integer("blocksize", 1), attrs.option("mode", ("DCR", "CRD"))
    if x.rank != 4:
        raise Infeasible("four axes")
    b, c, h, w = x.shape
    depth, rest = path.divide(c, n * n)
    path.require(eq(rest), "channels are multiples of blocks")

    def at(index: list[Int]) -> Scalar:
        hi, hn = path.unflatten(index[2], [h, n])
        wi, wn = path.unflatten(index[3], [w, n])
        channel = (hn * n + wn) * depth + index[1] if mode == "DCR" else (index[1] * n + hn) * n + wn
        return x.at([index[0], channel, hi, wi])

    return [Tensor(path, [b, depth, h * n, w * n], at, dtype=x.dtype)]


@operator("SpaceToDepth")
def space_to_depth(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """Pixels to blocks of channels."""
    x = given(inputs, 0)
    n = attrs.integer("blocksize", 1)
    if x.rank != 4:
        raise Infeasible("four axes")
    b, c, h, w = x.shape
    (high, rh), (wide, rw) = path.divide(h, n), path.divide(w, n)
    path.require(conj(eq(rh), eq(rw)), "pixels are multiples of blocks")

    def at(index: list[Int]) -> Scalar:
        hn, wn, channel = path.unflatten(index[1], [n, n, c])
        return x.at([index[0], channel, index[2] * n + hn, index[3] * n + wn])

    return [Tensor(path, [b, c * n * n, high, wide], at, dtype=x.dtype)]


@operator("Shape")
def shape_(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """The dims, or a stretch of them."""
    x = given(inputs, 0)
    rank = x.rank
    start = attrs.integer("start") if attrs.named.get("start", 0) != 0 or attrs.rest is not None else 0
    end = attrs.integer("end") if attrs.named.get("end") is not None or attrs.rest is not None else rank

    def bound(value: Int) -> int:
        if path.decide(ge(value, rank)):
            return rank
        if not path.decide(ge(value, -rank)):
            return 0
        found = path.concrete(value, -rank, rank, "bound of Shape", certain=True)
        return found + rank if found < 0 else found

    dims = x.shape[bound(start) : bound(end)]
    return [listed(path, dims)]


@operator("Size")
def size_(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """The number of elements."""
    total = given(inputs, 0).size
    return [Tensor(path, [], lambda index: scalars.number(path.normal(total)), dtype="i64", values=lambda: [total])]


def listed(path: Path, values: Sequence[Int]) -> Tensor:
    """An integer vector with these contents."""

    def at(index: list[Int]) -> Scalar:
        if not isinstance(index[0], int):
            found = path.concrete(index[0], 0, len(values) - 1, "element", certain=True)
        else:
            found = index[0]
        return scalars.number(path.normal(values[found]))

    return Tensor(path, [len(values)], at, dtype="i64", values=lambda: list(values))


@operator("ConstantOfShape")
def constant_of_shape(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """The same element everywhere."""
    value = attrs.named.get("value")
    if isinstance(value, Tensor):
        return [Tensor(path, given(inputs, 0).values(), lambda index: value.at([0] * value.rank), dtype=value.dtype)]
    if value is not None or attrs.rest is not None:
        raise NotModelled("the value of ConstantOfShape")
    return [Tensor(path, given(inputs, 0).values(), lambda index: scalars.ZERO, dtype="f32")]
