"""Meaning of matrix products, convolutions and pools: sums over bounded index ranges, with padding as a guard."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..paths import element_types
from ..paths.path import Infeasible, NotModeled, Path
from ..paths.tensors import Tensor, broadcast, broadcasts_to, read_broadcast, select
from ..terms import integers
from ..terms.integers import Int, conj, eq, ge, inside, split_multiples
from ..terms.scalars import ONE, ZERO, Scalar, number
from .reductions import total
from .semantics_registry import Attrs, operator


@operator("MatMul")
def matmul(path: Path, attrs: Attrs, x: Tensor, y: Tensor) -> Tensor:
    """Define `Σ x[.., i, k] y[.., k, j]`, broadcast over the leading axes; vectors are rows and columns."""
    element_types.unify(path, x.dtype, y.dtype)
    element_types.restrict(path, x.dtype, element_types.NUMBERS)
    path.require(x.rank > 0 and y.rank > 0, "a product of scalars")
    path.require(eq(x.shape[-1], y.shape[0 if y.rank == 1 else -2]), "the inner dims of a product agree")
    batch = broadcast(path, [x.shape[:-2], y.shape[:-2]])
    shape = [*batch, *x.shape[-2:-1], *(y.shape[-1:] if y.rank > 1 else [])]
    n = len(batch)

    def at(index: list[Int]) -> Scalar:
        rows = index[n : n + 1] if x.rank > 1 else []
        columns = index[len(index) - 1 :] if y.rank > 1 else []

        def term(v: list[Int]) -> Scalar:
            left = read_broadcast(path, x, [*index[:n], *rows, *v])
            return left * read_broadcast(path, y, [*index[:n], *v, *columns])

        return total(path, [x.shape[-1]], term)

    return Tensor(path, shape, at, dtype=x.dtype)


@operator("Gemm")
def gemm(path: Path, attrs: Attrs, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """Define `α A B + β C`, with A and B transposed on request."""
    alpha, beta = attrs.real("alpha"), attrs.real("beta")
    across, over = attrs.option("transA", (0, 1)), attrs.option("transB", (0, 1))
    for t in (a, b):
        t.require_rank(2, "Gemm takes matrices")
    element_types.unify(path, a.dtype, b.dtype)
    element_types.restrict(path, a.dtype, element_types.NUMBERS)
    rows, inner = a.shape[::-1] if across else a.shape
    depth, columns = b.shape[::-1] if over else b.shape
    path.require(eq(inner, depth), "the inner dims of a product agree")
    if c is not None:
        element_types.unify(path, a.dtype, c.dtype)
        broadcasts_to(path, c, [rows, columns], "the third operand of Gemm broadcasts to the result", typed=True)

    def at(index: list[Int]) -> Scalar:
        row, column = index

        def term(v: list[Int]) -> Scalar:
            return a.at([*v, row] if across else [row, *v]) * b.at([column, *v] if over else [*v, column])

        found = total(path, [inner], term)
        found = found if alpha == ONE else alpha * found
        if c is None:
            return found
        shift = read_broadcast(path, c, index)
        return found + (shift if beta == ONE else beta * shift)

    return Tensor(path, [rows, columns], at, dtype=a.dtype)


def _not_empty(path: Path, *dims: Int) -> None:
    """State that the convolution of a pattern has channels and images; runtimes refuse others."""
    if not path.right:
        path.assumed.add("a convolution has channels and images that are not empty")
        path.require(conj(*(ge(d, 1) for d in dims)), "a convolution has channels and images")


class Window:
    """Window of a convolution or pool: sizes, strides, dilations and padding of each spatial axis."""

    def __init__(self, path: Path, attrs: Attrs, sizes: list[Int], kernel: list[Int] | None) -> None:
        n = len(sizes)
        self.path = path
        self.sizes = sizes
        named = attrs.ints("kernel_shape", n, 1)
        if kernel is not None:
            for a, b in zip(named or [], kernel, strict=False):
                path.require(eq(a, b), "kernel_shape is that of the weights")
            named = [path.normal(k) for k in kernel]
        if named is None:
            raise Infeasible("a pool has a kernel_shape")
        self.kernel = named
        for k in self.kernel:
            path.require(ge(k, 1), "a window is not empty")
        self.strides = attrs.ints("strides", n, 1) or [1] * n
        self.dilations = attrs.ints("dilations", n, 1) or [1] * n
        self.axes = [sizes, self.kernel, self.strides, self.dilations]
        pads = self._pads(attrs)
        self.begin, self.end = pads[:n], pads[n:]
        self.axes += [self.begin, self.end]

    def _pads(self, attrs: Attrs) -> list[Int]:
        """Return the padding before each axis, then that after each."""
        n = len(self.sizes)
        if (source := attrs.source("pads", "auto_pad")) is not None:
            return self.symbolic(f"{source}.pads", 2 * n)  # whatever auto_pad is, it depends on the sizes only
        pads = attrs.ints("pads", 2 * n, 0) or [0] * (2 * n)
        auto = attrs.option("auto_pad", ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"))
        if auto in ("NOTSET", "VALID"):
            return pads if auto == "NOTSET" else [0] * (2 * n)
        return self._same(auto)

    def symbolic(self, stem: str, count: int) -> list[Int]:
        """Return symbolic sizes, the same for the same window."""
        name = self.named(stem)
        return [self.path.size(f"{name}[{i}]") for i in range(count)]

    def named(self, stem: str) -> str:
        """Return a name that is the same for the same window."""
        key = (stem, *(tuple(str(self.path.normal(i)) for i in v) for v in self.axes))
        return self.path.once(key, lambda: self.path.fresh(stem))

    def _same(self, auto: str) -> list[Int]:
        """Return the padding for a result of size ⌈size / stride⌉."""
        path, before, after = self.path, [], []
        for d, k, s, e in zip(*self.axes, strict=True):
            count = path.divide(d + s - 1, s)[0]
            whole = path.maximum(path.normal((count - 1) * s + (k - 1) * e + 1 - d), 0)
            half = path.divide(whole, 2)[0]
            less, more = path.normal(half), path.normal(whole - half)
            before.append(less if auto == "SAME_UPPER" else more)
            after.append(more if auto == "SAME_UPPER" else less)
        return [*before, *after]

    def extents(self) -> list[Int]:
        """Return the spatial dims of the result."""
        out = []
        for d, k, s, e, p, q in zip(*self.axes, strict=True):
            span = self.path.normal(d + p + q - (k - 1) * e - 1)
            self.path.require(ge(span), "the window fits", typed=True)
            out.append(self.path.normal(self.path.divide(span, s)[0] + 1))
        return out

    def read(
        self, index: Sequence[Int], offset: Sequence[Int], image: Callable[[list[Int]], Scalar], outer: Scalar = ZERO
    ) -> Scalar:
        """Return the element of the image for an offset in the window at an index of the result; else `outer`."""
        parts = zip(index, self.strides, offset, self.dilations, self.begin, strict=True)
        place = [i * s + k * e - p for i, s, k, e, p in parts]
        return select(self.path, conj(*map(inside, place, self.sizes)), lambda: image(place), lambda: outer)


def _unify_images(path: Path, x: Tensor, w: Tensor) -> None:
    """Require that images and weights are floats of one type and rank."""
    element_types.unify(path, x.dtype, w.dtype)
    element_types.restrict(path, x.dtype, ("float",))
    for a, b in ((x, w), (w, x)):
        if b.fixed is not None:
            a.fix_rank(b.fixed)
    path.require(x.rank >= 3 and w.rank == x.rank, "images and weights have the same spatial axes")


@operator("Conv")
def conv(path: Path, attrs: Attrs, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    """Define `Σ x[n, c, o·s + k·d - p] W[m, c, k] + B[m]`, with zeros outside the image."""
    _unify_images(path, x, w)
    _not_empty(path, *x.shape[2:], *w.shape[1:])
    groups = attrs.integer("group", 1)
    single = groups == 1
    per: Int = w.shape[0]
    if not single:
        known = path.right or (isinstance(w.shape[0], int) and isinstance(groups, int))
        whole = path.normal(w.shape[0])
        known = known or split_multiples(whole, groups)[1] == 0  # another convolution has divided them before
        per = path.divide(whole, groups)[0] if known else path.size(f"{whole} channels in {groups} groups")
        path.require(eq(whole, groups * per), "groups of equal size")
        path.extra.setdefault("exact quotients", []).append((whole, groups, per))
    path.require(eq(x.shape[1], groups * w.shape[1]), "as many channels as the weights take")
    window = Window(path, attrs, x.shape[2:], w.shape[2:])
    extents = window.extents()
    if bias is not None:
        element_types.unify(path, x.dtype, bias.dtype)
        bias.require_rank(1, "a bias is a vector")
        path.require(eq(bias.shape[0], w.shape[0]), "one bias for each channel")

    def at(index: list[Int]) -> Scalar:
        n, m, *spatial = index
        group: Int = 0 if single else path.unflatten(m, [groups, per])[0]

        def term(v: list[Int]) -> Scalar:
            c, *offset = v
            channel = group * w.shape[1] + c
            value = window.read(spatial, offset, lambda place: x.at([n, channel, *place]))
            return value * w.at([path.normal(m), c, *offset])

        found = total(path, [w.shape[1], *window.kernel], term)
        return found if bias is None else found + bias.at([path.normal(m)])

    return Tensor(path, [x.shape[0], w.shape[0], *extents], at, dtype=x.dtype)


@operator("ConvTranspose")
def conv_transpose(path: Path, attrs: Attrs, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    """Define `Σ x[n, c, i] W[c, m, k] + B[m]` over all `i` and `k` with `i·s + k·d - p = o`, and `c` of the group."""
    _unify_images(path, x, w)
    n = x.rank - 2
    groups = attrs.integer("group", 1)
    single = groups == 1
    path.require(eq(x.shape[1], w.shape[0]), "as many channels as the weights take")
    taken = x.shape[1] if single else path.divide_exactly(x.shape[1], groups, "groups of equal size")
    made = w.shape[1]
    _not_empty(path, *x.shape[1:], *w.shape[1:])
    sizes, kernel = x.shape[2:], w.shape[2:]
    strides = attrs.ints("strides", n, 1) or [1] * n
    dilations = attrs.ints("dilations", n, 1) or [1] * n
    extents, begin = _unfolded(path, attrs, [sizes, kernel, strides, dilations])
    if bias is not None:
        element_types.unify(path, x.dtype, bias.dtype)
        bias.require_rank(1, "a bias is a vector")
        path.require(eq(bias.shape[0], groups * made), "one bias for each channel")

    def at(index: list[Int]) -> Scalar:
        batch, m, *spatial = index
        group, within = (0, path.normal(m)) if single else path.unflatten(m, [groups, made])

        def term(v: list[Int]) -> Scalar:
            c, place, offset = v[0], v[1 : n + 1], v[n + 1 :]
            parts = zip(spatial, place, strides, offset, dilations, begin, strict=True)
            meets = conj(*(eq(i * s + k * d - p, o) for o, i, s, k, d, p in parts))
            channel = path.normal(group * taken + c)
            value = x.at([batch, channel, *place]) * w.at([channel, within, *offset])
            return select(path, meets, lambda: value, lambda: ZERO)

        found = total(path, [taken, *sizes, *kernel], term)
        return found if bias is None else found + bias.at([path.normal(m)])

    return Tensor(path, [x.shape[0], path.normal(groups * made), *extents], at, dtype=x.dtype)


def _unfolded(path: Path, attrs: Attrs, axes: list[list[Int]]) -> tuple[list[Int], list[Int]]:
    """Return the spatial dims of a ConvTranspose, and the padding before each axis.

    They are symbols where a rule leaves open what determines them: a function of `axes` and of the open attributes."""
    n = len(axes[0])
    if (source := attrs.source("pads", "auto_pad", "output_padding", "output_shape")) is not None:
        key = (f"{source}.unfolded", *(tuple(str(path.normal(i)) for i in v) for v in axes))
        found = path.once(key, lambda: [path.size(path.fresh(f"{source}.unfolded")) for _ in range(2 * n)])
        return [path.normal(i) for i in found[:n]], [path.normal(i) for i in found[n:]]
    if attrs.is_variable("output_shape") or attrs.named.get("output_shape") is not None:
        raise NotModeled("the output_shape of ConvTranspose")
    if attrs.option("auto_pad", ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")) != "NOTSET":
        raise NotModeled("auto_pad of ConvTranspose")
    pads = attrs.ints("pads", 2 * n, 0) or [0] * (2 * n)
    more = attrs.ints("output_padding", n, 0) or [0] * n
    parts = zip(*axes, pads[:n], pads[n:], more, strict=True)
    extents = [(i - 1) * s + m + (k - 1) * d + 1 - p - q for i, k, s, d, p, q, m in parts]
    for extent in extents:
        path.require(ge(extent), "the result has a size", typed=True)
    return [path.normal(i) for i in extents], pads[:n]


@operator("AveragePool", "MaxPool")
def pool(path: Path, attrs: Attrs, x: Tensor) -> Tensor:
    """Define the mean or maximum over a window."""
    mean = attrs.op == "AveragePool"
    path.require(x.rank >= 3, "images have a batch and channels")
    element_types.restrict(path, x.dtype, ("float",) if mean else element_types.NUMBERS)
    ceil = bool(attrs.option("ceil_mode", (0, 1)))
    if not mean:
        attrs.option("storage_order", (0, 1))
    counted = attrs.option("count_include_pad", (0, 1)) if mean else 0
    window = Window(path, attrs, x.shape[2:], None)
    extents = window.symbolic("rounded up", x.rank - 2) if ceil else window.extents()

    def at(index: list[Int]) -> Scalar:
        def term(v: list[Int]) -> Scalar:
            outer = ZERO if mean else number(float("-inf"))
            return window.read(index[2:], v, lambda place: x.at([*index[:2], *place]), outer)

        def one(v: list[Int]) -> Scalar:
            return window.read(index[2:], v, lambda place: ONE)

        found = total(path, window.kernel, term, "Sum" if mean else "Max")
        if not mean:
            return found
        if ceil:  # whatever elements count where windows reach beyond the padding, they depend on the window only
            return found / Scalar("read", (window.named(f"counted {counted}"), *map(path.normal, index[2:])))
        if counted or all(path.normal(p) == 0 for p in (*window.begin, *window.end)):
            return found / number(path.normal(integers.product(window.kernel)))
        return found / total(path, window.kernel, one)

    return Tensor(path, [*x.shape[:2], *extents], at, dtype=x.dtype)
