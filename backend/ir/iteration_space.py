"""Iteration spaces: how a loop nest walks the tensors that it touches.

An `Access` is a strided view of a tensor. Transposing, slicing, broadcasting and (where strides allow) reshaping one
gives another without moving data. `collapse` merges the dims of a space that all accesses walk as one, so that kernels
get few, long loops. Extents and strides are `Dim`s. `Extents` writes them as C: known ones as literals, others as
entries of the `dims` that the step passes at run time.

A kernel that can walk strides reads the memory that Transpose, Reshape, Split or Slice would copy (`sources`). If all
readers of such a node do so, its result is unused, and the copy disappears.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...engine.ir.graph import Node
from ...engine.ir.symbolic import Dim, exact_div, minimum, product, same, slice_bound, total
from .lower import Context

RESHAPES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
"""Operators that change nothing but the shape."""
_DEPTH = 8  # maximum number of nodes to look through


@dataclass(frozen=True)
class Access:
    """A tensor seen as `shape`: element (i0, i1, ..) is `offset + sum(i_k * strides[k])` elements in."""

    value: str
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    offset: Dim = 0

    def permuted(self, perm: Sequence[int]) -> Access:
        """Permute dims: dim k of the result is dim `perm[k]`."""
        return replace(self, shape=tuple(self.shape[p] for p in perm), strides=tuple(self.strides[p] for p in perm))

    def sliced(self, axis: int, start: Dim, step: Dim, length: Dim) -> Access:
        """Return the elements `start, start + step, ..` along an axis, `length` of them."""
        shape, strides = list(self.shape), list(self.strides)
        offset = self.offset + start * strides[axis]
        shape[axis], strides[axis] = length, strides[axis] * step
        return replace(self, shape=tuple(shape), strides=tuple(strides), offset=offset)

    def split(self, axis: int, factors: Sequence[Dim]) -> Access:
        """Split one dim into several, whose product must equal it (not checked)."""
        strides = [self.strides[axis] * product(factors[k + 1 :]) for k in range(len(factors))]
        return replace(
            self,
            shape=(*self.shape[:axis], *factors, *self.shape[axis + 1 :]),
            strides=(*self.strides[:axis], *strides, *self.strides[axis + 1 :]),
        )

    def broadcast(self, shape: Sequence[Dim]) -> Access | None:
        """Return the access broadcast to a shape by NumPy's rule; None if it has more dims.

        A dim that may be 1 or the full extent, known only at run time, gets a stride that is 0 in the first case."""
        missing = len(shape) - len(self.shape)
        if missing < 0:
            return None
        strides: list[Dim] = [0] * missing
        for have, want, stride in zip(self.shape, shape[missing:], self.strides, strict=True):
            if isinstance(have, int) and isinstance(want, int) and have not in (1, want):
                return None
            if not isinstance(have, int) and not same(have, want):
                stride = stride * minimum(1, have - 1)
            strides.append(0 if isinstance(have, int) and have == 1 else stride)
        return replace(self, shape=tuple(shape), strides=tuple(strides))

    def reshaped(self, shape: Sequence[Dim]) -> Access | None:
        """Return the access with another shape of equal size; None if strides alone cannot express it."""
        dims = [(d, s) for d, s in zip(self.shape, self.strides, strict=True) if d != 1]
        strides: list[Dim] = []
        k = 0
        rest: Dim = 1  # remainder of the source dim that is being split, and the stride of that remainder
        stride: Dim = 1
        wanted = [d for d in shape if d != 1]
        for n, want in enumerate(wanted):
            if rest == 1:
                if k == len(dims):
                    return None
                rest, stride = dims[k]
                k += 1
            while (quotient := exact_div(rest, want)) is None:
                # merge source dims, which is possible only if they are walked as one
                if k == len(dims) or not same(stride, dims[k][0] * dims[k][1]):
                    return None
                rest, stride = rest * dims[k][0], dims[k][1]
                k += 1
            strides.append(stride * quotient)
            rest = quotient
            if n + 1 == len(wanted) and (k < len(dims) or rest != 1):
                return None
        if not wanted and dims:
            return None
        found = iter(strides)
        return replace(self, shape=tuple(shape), strides=tuple(0 if d == 1 else next(found) for d in shape))


def contiguous(value: str, shape: Sequence[Dim]) -> Access:
    """Return a tensor in row-major order."""
    strides = itertools.accumulate(reversed(shape[1:]), operator.mul, initial=1) if shape else ()
    return Access(value, tuple(shape), tuple(strides)[::-1])


def sources(value: str, ctx: Context, depth: int = _DEPTH) -> Iterator[Access]:
    """Yield accesses to a value of known shape: from the earliest tensor in memory with its elements to the value
    itself."""
    shape = ctx.type(value).shape
    if shape is None:
        return
    node = ctx.maker(value)
    if depth and node is not None and node.inputs and node.inputs[0]:
        for access in sources(node.inputs[0], ctx, depth - 1):
            seen = _moved(access, node, value, ctx)
            if seen is not None:
                yield seen
    if node is None or ctx.in_memory(value):
        yield contiguous(value, shape)


def _moved(access: Access, node: Node, output: str, ctx: Context) -> Access | None:
    """Turn an access to a node's first input into one to its output; None if the node does more than move elements."""
    if node.op in RESHAPES:
        shape = ctx.type(output).shape
        return None if shape is None else access.reshaped(shape)
    if node.op == "Transpose":
        perm = node.attrs.get("perm", tuple(reversed(range(len(access.shape)))))
        return access.permuted(perm)  # type: ignore[arg-type]
    if node.op == "Split":
        return _part(access, node, output, ctx)
    return _slice(access, node, ctx) if node.op == "Slice" else None


def _part(access: Access, node: Node, output: str, ctx: Context) -> Access | None:
    """Return an access to one output of Split, from the lengths of those before it."""
    axis = int(node.attrs.get("axis", 0)) % len(access.shape)  # type: ignore[arg-type]
    shapes = [ctx.type(v).shape if v else None for v in node.outputs[: node.outputs.index(output) + 1]]
    *before, length = [None if shape is None else shape[axis] for shape in shapes]
    return None if length is None or None in before else access.sliced(axis, total(filter(None, before)), 1, length)


def _slice(access: Access, node: Node, ctx: Context) -> Access | None:
    """Return an access to a Slice with steps of 1 and bounds that are dims."""
    found = slice_access(access, node, ctx)
    return None if found is None or any(step != 1 for _, step in found[1]) else found[0]


def slice_access(access: Access, node: Node, ctx: Context) -> tuple[Access, list[tuple[int, int]]] | None:
    """Return the access to a Slice of a tensor that is read as `access`, and the axes with the step along each.

    None if its starts are not known in terms of dims, or its axes and steps not as numbers."""
    shape = ctx.type(node.outputs[0]).shape
    starts = ctx.contents(node.inputs[1])
    axes_input, steps_input = [*node.inputs[3:5], "", ""][:2]
    axes = ctx.ints(axes_input) if axes_input else range(len(starts or ()))
    steps = ctx.ints(steps_input) if steps_input else [1] * len(starts or ())
    if shape is None or starts is None or axes is None or steps is None or 0 in steps:
        return None
    along = [(axis % len(shape), step) for axis, step in zip(axes, steps, strict=True)]
    for start, (axis, step) in zip(starts, along, strict=True):
        extent = access.shape[axis]
        first = slice_bound(start, extent, 0, extent if step > 0 else extent - 1)
        access = access.sliced(axis, first, step, shape[axis])
    return access, along


@dataclass(frozen=True)
class Space:
    """Nested loops, outermost first: extents, a role (a letter) for each, and the strides of each access."""

    extents: tuple[Dim, ...]
    roles: str
    strides: tuple[tuple[Dim, ...], ...]


def collapse(extents: Sequence[Dim], accesses: Sequence[Sequence[Dim]], roles: str = "") -> Space:
    """Drop dims of extent 1 (except those of role R) and merge neighbors of one role that every access walks as one.

    `accesses` are strides, one for each extent. At least one dim remains."""
    roles = roles or "." * len(extents)
    merged: list[int] = []  # the last dim of each merged run
    sizes: list[Dim] = []
    for k, extent in enumerate(extents):
        if extent == 1 and roles[k] != "R":
            continue
        last = merged[-1] if merged and roles[merged[-1]] == roles[k] else None
        if last is not None and all(same(strides[last], strides[k] * extent) for strides in accesses):
            merged[-1], sizes[-1] = k, sizes[-1] * extent
        else:
            merged.append(k)
            sizes.append(extent)
    if not merged:
        return Space((1,), roles[-1:] or ".", tuple((1,) for _ in accesses))
    strides = tuple(tuple(access[k] for k in merged) for access in accesses)
    return Space(tuple(sizes), "".join(roles[k] for k in merged), strides)


@dataclass
class Extents:
    """Writes dims as C expressions; collects those known only at run time as the `dims` of the step."""

    dims: list[Dim] = field(default_factory=list)

    def __call__(self, dim: Dim) -> str:
        """Return a dim as a C expression: an int64_t, or a literal."""
        if isinstance(dim, int):
            return str(dim) if abs(dim) < 2**31 else f"INT64_C({dim})"
        if dim not in self.dims:
            self.dims.append(dim)
        return f"dims[{self.dims.index(dim)}]"

    def all(self, dims: Sequence[Dim]) -> list[str]:
        """Return each dim as a C expression."""
        return [self(d) for d in dims]

    def variable(self, dim: Dim) -> int:
        """Return the position in `dims` of an entry of its own for a dim, which may be known."""
        self.dims.append(dim)
        return len(self.dims) - 1

    def entry(self, dim: Dim) -> str:
        """Return an entry of its own for a dim as a C expression: the text is the same whatever the dim."""
        return f"dims[{self.variable(dim)}]"
