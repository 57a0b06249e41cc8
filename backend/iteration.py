"""Iteration spaces: how a loop nest walks the tensors it touches.

An `Access` is a strided way to see a tensor; transposing, slicing, broadcasting and (where strides allow) reshaping one
gives another without moving data. `collapse` merges the dims of a space that all accesses walk as one, so that kernels
see few, long loops. Extents and strides are `Dim`s; `Extents` writes them as C, known ones as literals, others as
entries of the `dims` that the step passes at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..engine.symbolic import Dim, exact_div, minimum, product, same


@dataclass(frozen=True)
class Access:
    """A tensor seen as one of `shape`: its element (i0, i1, ..) lies `offset + sum(i_k * strides[k])` elements in."""

    value: str
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    offset: Dim = 0

    def permuted(self, perm: Sequence[int]) -> Access:
        """Dim k of the result is dim `perm[k]`."""
        return replace(self, shape=tuple(self.shape[p] for p in perm), strides=tuple(self.strides[p] for p in perm))

    def sliced(self, axis: int, start: Dim, step: Dim, length: Dim) -> Access:
        """The elements `start, start + step, ..` along an axis, `length` of them."""
        shape, strides = list(self.shape), list(self.strides)
        offset = self.offset + start * strides[axis]
        shape[axis], strides[axis] = length, strides[axis] * step
        return replace(self, shape=tuple(shape), strides=tuple(strides), offset=offset)

    def split(self, axis: int, factors: Sequence[Dim]) -> Access:
        """One dim as several, whose product it has to be (not checked)."""
        strides = [self.strides[axis] * product(factors[k + 1 :]) for k in range(len(factors))]
        return replace(
            self,
            shape=(*self.shape[:axis], *factors, *self.shape[axis + 1 :]),
            strides=(*self.strides[:axis], *strides, *self.strides[axis + 1 :]),
        )

    def broadcast(self, shape: Sequence[Dim]) -> Access | None:
        """The access broadcast to a shape by NumPy's rule, None if it has more dims.

        A dim that may be 1 or the full extent, which only run time tells, gets a stride that is 0 in the first case."""
        missing = len(shape) - len(self.shape)
        if missing < 0:
            return None
        strides: list[Dim] = [0] * missing
        for have, want, stride in zip(self.shape, shape[missing:], self.strides, strict=True):
            if isinstance(have, int) and have == 1:
                strides.append(0)
            elif same(have, want):
                strides.append(stride)
            elif isinstance(have, int) and isinstance(want, int):
                return None
            else:
                strides.append(stride if isinstance(have, int) else stride * minimum(1, have - 1))
        return replace(self, shape=tuple(shape), strides=tuple(strides))

    def reshaped(self, shape: Sequence[Dim]) -> Access | None:
        """The access with another shape of as many elements, None where strides alone cannot express it."""
        dims = [(d, s) for d, s in zip(self.shape, self.strides, strict=True) if d != 1]
        strides: list[Dim] = []
        k = 0
        rest: Dim = 1  # what is left of the source dim that is being cut up, and the stride of that part as a whole
        stride: Dim = 1
        wanted = [d for d in shape if d != 1]
        for n, want in enumerate(wanted):
            if rest == 1:
                if k == len(dims):
                    return None
                rest, stride = dims[k]
                k += 1
            while (quotient := exact_div(rest, want)) is None:
                # the source dims have to be merged: only if they are walked as one
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
    """A tensor as it lies in memory, row by row."""
    strides: list[Dim] = []
    step: Dim = 1
    for dim in reversed(shape):
        strides.append(step)
        step = step * dim
    return Access(value, tuple(shape), tuple(reversed(strides)))


@dataclass(frozen=True)
class Space:
    """Nested loops, outermost first: extents, for each a role (a letter), and each access's strides."""

    extents: tuple[Dim, ...]
    roles: str
    strides: tuple[tuple[Dim, ...], ...]


def collapse(extents: Sequence[Dim], accesses: Sequence[Sequence[Dim]], roles: str = "") -> Space:
    """Drop the dims of extent 1 (but not those of role R) and merge neighbours of the same role that every access walks
    as one.

    `accesses` are strides, one for each extent. At least one dim is left."""
    roles = roles or "." * len(extents)
    kept = [k for k, extent in enumerate(extents) if extent != 1 or roles[k] == "R"]
    merged: list[int] = []  # the last dim of each merged run
    sizes: list[Dim] = []
    for k in kept:
        if (
            merged
            and roles[merged[-1]] == roles[k]
            and all(same(strides[merged[-1]], strides[k] * extents[k]) for strides in accesses)
        ):
            merged[-1], sizes[-1] = k, sizes[-1] * extents[k]
        else:
            merged.append(k)
            sizes.append(extents[k])
    if not merged:
        return Space((1,), roles[-1:] or ".", tuple((1,) for _ in accesses))
    return Space(
        tuple(sizes),
        "".join(roles[k] for k in merged),
        tuple(tuple(strides[k] for k in merged) for strides in accesses),
    )


@dataclass
class Extents:
    """Writes dims as C expressions, and collects those that only run time knows as the step's `dims`."""

    dims: list[Dim] = field(default_factory=list)

    def __call__(self, dim: Dim) -> str:
        """The C expression (of type int64_t, or a literal) of a dim."""
        if isinstance(dim, int):
            return str(dim) if abs(dim) < 2**31 else f"INT64_C({dim})"
        if dim not in self.dims:
            self.dims.append(dim)
        return f"dims[{self.dims.index(dim)}]"

    def all(self, dims: Sequence[Dim]) -> list[str]:
        """Each dim as a C expression."""
        return [self(d) for d in dims]
