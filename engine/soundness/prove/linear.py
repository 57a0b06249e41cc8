"""The meaning of products, convolutions and pools: sums over bounded index ranges, with padding as a guard."""

from __future__ import annotations

from collections.abc import Sequence

from . import integers, scalars, types
from .attributes import Attrs
from .integers import Int, conj, eq, ge, inside
from .movement import guarded
from .path import Infeasible, NotModelled, Path
from .reduce import total
from .registry import Inputs, given, operator
from .scalars import Scalar, app, number
from .tensors import Leaf, Tensor, broadcast, read_broadcast


@operator("MatMul")
def matmul(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """`Σ x[.., i, k] y[.., k, j]`, broadcast over the axes before; vectors are rows and columns."""
    x, y = given(inputs, 0), given(inputs, 1)
    types.unify(path, x.dtype, y.dtype)
    types.restrict(path, x.dtype, types.NUMBERS)
    if not x.rank or not y.rank:
        raise Infeasible("a product of scalars")
    inner = x.shape[-1]
    path.require(eq(inner, y.shape[0 if y.rank == 1 else -2]), "the inner dims of a product agree")
    batch = broadcast(path, [x.shape[:-2], y.shape[:-2]])
    shape = [*batch, *x.shape[-2:-1], *(y.shape[-1:] if y.rank > 1 else [])]
    n = len(batch)

    def at(index: list[Int]) -> Scalar:
        rows = index[n : n + 1] if x.rank > 1 else []
        columns = index[len(index) - 1 :] if y.rank > 1 else []

        def term(v: list[Int]) -> Scalar:
            left = read_broadcast_at(path, x, index[:n], [*rows, v[0]])
            return app("Mul", left, read_broadcast_at(path, y, index[:n], [v[0], *columns]))

        return total(path, [x.shape[-1]], term)

    return [Tensor(path, shape, at, dtype=x.dtype)]


def read_broadcast_at(path: Path, x: Tensor, batch: Sequence[Int], rest: Sequence[Int]) -> Scalar:
    """The element of an operand for an index of the batch and one of the matrix."""
    n = x.rank - len(rest)
    dims = x.shape[:n]
    lead = [0 if path.entails(eq(d, 1)) else i for d, i in zip(dims, list(batch)[len(batch) - n :], strict=True)]
    return x.at([*lead, *rest])


@operator("Gemm")
def gemm(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """`α A B + β C`, with A and B transposed on demand."""
    a, b = given(inputs, 0), given(inputs, 1)
    c = inputs[2] if len(inputs) > 2 else None
    alpha, beta = attrs.real("alpha"), attrs.real("beta")
    across, over = attrs.option("transA", (0, 1)), attrs.option("transB", (0, 1))
    for t in (a, b):
        if isinstance(t, Leaf) and t.fixed is None:
            t.fixed = 2
        if t.rank != 2:
            raise Infeasible("Gemm takes matrices")
    types.unify(path, a.dtype, b.dtype)
    types.restrict(path, a.dtype, types.NUMBERS)
    rows, inner = a.shape[::-1] if across else a.shape
    depth, columns = b.shape[::-1] if over else b.shape
    path.require(eq(inner, depth), "the inner dims of a product agree")
    if c is not None:
        types.unify(path, a.dtype, c.dtype)
        if c.rank > 2:
            raise Infeasible("the third operand of Gemm broadcasts to the result")
        for d, e in zip(c.shape, [rows, columns][2 - c.rank :], strict=True):
            if not path.decide(eq(d, 1)):
                path.require(eq(d, e), "the third operand of Gemm broadcasts to the result", typed=True)

    def at(index: list[Int]) -> Scalar:
        def term(v: list[Int]) -> Scalar:
            left = a.at([v[0], index[0]] if across else [index[0], v[0]])
            right = b.at([index[1], v[0]] if over else [v[0], index[1]])
            return app("Mul", left, right)

        found = total(path, [path.normal(inner)], term)
        found = found if alpha == scalars.ONE else app("Mul", alpha, found)
        if c is None:
            return found
        shift = read_broadcast(path, c, index)
        return app("Add", found, shift if beta == scalars.ONE else app("Mul", beta, shift))

    return [Tensor(path, [rows, columns], at, dtype=a.dtype)]


class Window:
    """The window of a convolution or pool: sizes, strides, dilations and padding of each spatial axis."""

    def __init__(self, path: Path, attrs: Attrs, sizes: list[Int], kernel: list[Int] | None) -> None:
        n = len(sizes)
        self.path = path
        self.sizes = sizes
        named = attrs.ints("kernel_shape", n, 1)
        if kernel is not None:
            for a, b in zip(named or [], kernel, strict=False):
                path.require(eq(a, b), "kernel_shape is that of the weights")
            self.kernel = [path.normal(k) for k in kernel]
        elif named is None:
            raise Infeasible("a pool has a kernel_shape")
        else:
            self.kernel = named
        for k in self.kernel:
            path.require(ge(k, 1), "a window is not empty")
        self.strides = attrs.ints("strides", n, 1) or [1] * n
        self.dilations = attrs.ints("dilations", n, 1) or [1] * n
        beside = path.extra.get(("named beside", attrs.rest), frozenset()) | attrs.named.keys()
        if attrs.rest is not None and not {"pads", "auto_pad"} & beside:
            pads = self._any(attrs.rest)
            self.begin, self.end = pads[:n], pads[n:]
            return
        pads = attrs.ints("pads", 2 * n, 0) or [0] * (2 * n)
        auto = attrs.option("auto_pad", ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"))
        if auto == "VALID":
            pads = [0] * (2 * n)
        elif auto != "NOTSET":
            pads = self._same(auto)
        self.begin, self.end = pads[:n], pads[n:]

    def _any(self, rest: str) -> list[Int]:
        """Padding of any kind: whatever auto_pad says, it depends on the sizes only."""
        key = ("padding", rest, *(tuple(map(str, v)) for v in (self.sizes, self.kernel, self.strides, self.dilations)))
        if key not in self.path.extra:
            name = self.path.fresh(f"{rest}.pads")
            self.path.extra[key] = [self.path.size(f"{name}[{i}]") for i in range(2 * len(self.sizes))]
        return [self.path.normal(p) for p in self.path.extra[key]]

    def _same(self, auto: str) -> list[Int]:
        """The padding that keeps ⌈size / stride⌉."""
        path, before, after = self.path, [], []
        for d, k, s, e in zip(self.sizes, self.kernel, self.strides, self.dilations, strict=True):
            count = path.divide(d + s - 1, s)[0]
            whole = path.maximum(path.normal((count - 1) * s + (k - 1) * e + 1 - d), 0)
            half = path.divide(whole, 2)[0]
            less, more = path.normal(half), path.normal(whole - half)
            before.append(less if auto == "SAME_UPPER" else more)
            after.append(more if auto == "SAME_UPPER" else less)
        return [*before, *after]

    def extents(self) -> list[Int]:
        """The spatial dims of the result."""
        out = []
        for d, k, s, e, p, q in zip(
            self.sizes, self.kernel, self.strides, self.dilations, self.begin, self.end, strict=True
        ):
            span = self.path.normal(d + p + q - (k - 1) * e - 1)
            self.path.require(ge(span), "the window fits", typed=True)
            out.append(self.path.normal(self.path.divide(span, s)[0] + 1))
        return out

    def some_extents(self) -> list[Int]:
        """The spatial dims of a result that is rounded up: some sizes, the same for the same window."""
        parts = (self.sizes, self.kernel, self.strides, self.dilations, self.begin, self.end)
        key = ("rounded up", *(tuple(str(self.path.normal(i)) for i in v) for v in parts))
        if key not in self.path.extra:
            name = self.path.fresh("rounded up")
            self.path.extra[key] = [self.path.size(f"{name}[{i}]") for i in range(len(self.sizes))]
        return [self.path.normal(d) for d in self.path.extra[key]]

    def place(self, index: Sequence[Int], offset: Sequence[Int]) -> list[Int]:
        """Where in the image an element of the window at an index of the result lies."""
        parts = zip(index, self.strides, offset, self.dilations, self.begin, strict=True)
        return [i * s + k * e - p for i, s, k, e, p in parts]

    def guard(self, place: Sequence[Int], sizes: Sequence[Int]) -> integers.Bool:
        """That a place lies in the image."""
        return conj(*(inside(i, d) for i, d in zip(place, sizes, strict=True)))


@operator("Conv")
def conv(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """`Σ x[n, c, o·s + k·d - p] W[m, c, k] + B[m]`, zero outside of the image."""
    x, w = given(inputs, 0), given(inputs, 1)
    bias = inputs[2] if len(inputs) > 2 else None
    types.unify(path, x.dtype, w.dtype)
    types.restrict(path, x.dtype, ("float",))
    for a, b in ((x, w), (w, x)):
        if (
            isinstance(a, Leaf)
            and a.fixed is None
            and a._dims is None
            and (not isinstance(b, Leaf) or b._dims or b.fixed)
        ):
            a.fixed = b.rank
    if x.rank < 3 or w.rank != x.rank:
        raise Infeasible("images and weights have the same spatial axes")
    groups = attrs.integer("group", 1)
    single = groups == 1
    per: Int = w.shape[0]
    if not single:
        known = path.right or (isinstance(w.shape[0], int) and isinstance(groups, int))
        per = path.divide(w.shape[0], groups)[0] if known else path.size(f"channels of a group {w.shape[0]}")
        path.require(eq(w.shape[0], groups * per), "groups of equal size")
    path.require(eq(x.shape[1], groups * w.shape[1]), "as many channels as the weights take")
    window = Window(path, attrs, x.shape[2:], w.shape[2:])
    extents = window.extents()
    if bias is not None:
        types.unify(path, x.dtype, bias.dtype)
        if isinstance(bias, Leaf) and bias.fixed is None:
            bias.fixed = 1
        if bias.rank != 1:
            raise Infeasible("a bias is a vector")
        path.require(eq(bias.shape[0], w.shape[0]), "one bias for each channel")

    def at(index: list[Int]) -> Scalar:
        n, m, *spatial = index
        group: Int = 0 if single else path.unflatten(m, [groups, per])[0]

        def term(v: list[Int]) -> Scalar:
            c, *offset = v
            place = window.place(spatial, offset)
            channel = group * w.shape[1] + c
            guard = window.guard(place, x.shape[2:])
            value = guarded(path, guard, lambda: x.at([n, channel, *place]), scalars.ZERO)
            return app("Mul", value, w.at([path.normal(m), c, *offset]))

        found = total(path, [w.shape[1], *window.kernel], term)
        return found if bias is None else app("Add", found, bias.at([path.normal(m)]))

    return [Tensor(path, [x.shape[0], w.shape[0], *extents], at, dtype=x.dtype)]


@operator("AveragePool", "MaxPool")
def pool(path: Path, attrs: Attrs, inputs: Inputs) -> list[Tensor]:
    """The mean or maximum over a window."""
    x = given(inputs, 0)
    mean = path.extra["operator"] == "AveragePool"
    if x.rank < 3:
        raise Infeasible("images have a batch and channels")
    types.restrict(path, x.dtype, ("float",) if mean else types.NUMBERS)
    ceil = bool(attrs.option("ceil_mode", (0, 1)))
    if ceil and mean:
        raise NotModelled("ceil_mode of AveragePool")
    if not mean:
        attrs.option("storage_order", (0, 1))
    counted = attrs.option("count_include_pad", (0, 1)) if mean else 0
    window = Window(path, attrs, x.shape[2:], None)
    extents = window.some_extents() if ceil else window.extents()

    def at(index: list[Int]) -> Scalar:
        spatial = index[2:]

        def term(v: list[Int]) -> Scalar:
            place = window.place(spatial, v)
            outer = scalars.ZERO if mean else number(float("-inf"))
            return guarded(path, window.guard(place, x.shape[2:]), lambda: x.at([*index[:2], *place]), outer)

        if not mean:
            return total(path, window.kernel, term, "Max")
        found = total(path, window.kernel, term)
        padded = any(path.normal(p) != 0 for p in (*window.begin, *window.end))
        if counted or not padded:
            return app("Div", found, number(path.normal(integers.product(window.kernel))))

        def one(v: list[Int]) -> Scalar:
            guard = window.guard(window.place(spatial, v), x.shape[2:])
            return guarded(path, guard, lambda: scalars.ONE, scalars.ZERO)

        return app("Div", found, total(path, window.kernel, one))

    return [Tensor(path, [*x.shape[:2], *extents], at, dtype=x.dtype)]
