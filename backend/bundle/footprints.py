"""Footprints of kernels: the bytes that a step touches of each buffer, from the kernel's parameters and its `dims`.

Parameters are C expressions in the entries of `dims`, which templates write into their loops. Here they are evaluated
with the numbers of a run. The kernels known are those that are generic in their sizes, whose loops follow `dims`:
pointwise programs, normalizations, reductions, copies, products of matrices and the packing for these.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..ir.kernel import Kernel

Params = Mapping[str, Any]
Footprint = tuple[int, int, int]
"""Number of a buffer, and the bytes of it that a step touches: the first, and the one after the last."""

_SIZES = {
    "uint8_t": 1, "int8_t": 1, "v_u8": 1, "v_s8": 1, "v_f16": 2, "v_bf16": 2, "uint16_t": 2, "int16_t": 2, "float": 4,
    "int32_t": 4, "uint32_t": 4, "double": 8, "int64_t": 8, "uint64_t": 8,
}  # fmt: skip
_CASTS = re.compile(r"\(int64_t\)|INT64_C")
_OPERATIONS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


@lru_cache(maxsize=4096)
def _parsed(text: str) -> ast.expr:
    """Return a C expression of sums, products and entries of `dims` as a syntax tree. Raises ValueError for others."""
    try:
        return ast.parse(_CASTS.sub("", text), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"not an extent: {text[:40]!r}") from None


def _value(tree: ast.expr, dims: Sequence[int]) -> int:
    match tree:
        case ast.Constant(value=int(number)):
            return number
        case ast.Subscript(value=ast.Name(id="dims"), slice=ast.Constant(value=int(k))) if 0 <= k < len(dims):
            return dims[k]
        case ast.Name(id=name) if re.fullmatch(r"n\d+", name) and int(name[1:]) < len(dims):
            return dims[int(name[1:])]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, dims)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            return _OPERATIONS[type(op)](_value(left, dims), _value(right, dims))
    raise ValueError(f"not an extent: {ast.unparse(tree)[:40]!r}")


@dataclass(frozen=True, slots=True)
class _Problem:
    """A kernel's parameters, with the dims of a step, and the bytes of an element."""

    params: Params
    dims: Sequence[int]
    element: int

    def number(self, text: str | int) -> int:
        """Return the value of a parameter."""
        return text if isinstance(text, int) else _value(_parsed(text), self.dims)

    def numbers(self, *texts: Sequence[str | int]) -> list[int]:
        """Return the values of lists of parameters, one after the other."""
        return [self.number(text) for part in texts for text in part]

    def size(self, c: str) -> int:
        """Return the bytes of a C type."""
        return self.element if c == "real" else _SIZES[c]

    def span(self, buffer: int, c: str, offset: int, loops: Sequence[tuple[int, int]]) -> Footprint:
        """Return the footprint of loops with an extent and a stride in elements each."""
        ends = [(extent - 1) * stride for extent, stride in loops]
        size = self.size(c)
        first, last = offset + sum(min(0, end) for end in ends), offset + sum(max(0, end) for end in ends)
        return buffer, size * first, size * (last + 1)

    def operand(self, buffer: int, one: Params, extents: Sequence[int], inner: int | None = None) -> Footprint:
        """Return the footprint of a strided operand: outer loops, and `inner` iterations along the row."""
        loops = list(zip(extents, self.numbers(one["strides"]), strict=False))
        if inner is not None:
            loops.append((inner, self.number(one["inner"])))
        return self.span(buffer, one["c"], self.number(one["offset"]), loops)


def footprints(kernel: Kernel, dims: Sequence[int]) -> list[Footprint] | None:
    """Return the footprints of a step; None if the kernel is not one of those known.

    Raises ValueError or another error of wrong data if parameters and dims do not fit together."""
    found = _KNOWN.get(kernel.template)
    if found is None:
        return None
    element = 8 if kernel.params.get("real") == "f64" else 4
    return list(found(_Problem(kernel.params, dims, element)))


def _elementwise(at: _Problem) -> Iterator[Footprint]:
    *outer, inner = at.numbers(at.params["extents"])
    if min((*outer, inner)) < 0:
        raise ValueError("an extent is negative")
    if inner and all(outer):
        for k, one in enumerate((*at.params["reads"], *at.params["writes"])):
            yield at.operand(k, one, outer, inner)


def _rows(at: _Problem, *, whole: bool, count: bool) -> Iterator[Footprint]:
    """Yield the footprints of a kernel with loops over rows and along them.

    Results and late operands have an element for each position of a row if `whole`, else one for each row; `count` says
    that a row is one lane of columns side by side."""
    params = at.params
    outer, middle, inner = at.numbers(params["outer"]), at.numbers(params["middle"]), at.number(params["inner"])
    if min((*outer, *middle, inner)) < 0:
        raise ValueError("an extent is negative")
    if not all(outer) or (count and not inner):
        return
    reads, later, writes = params["reads"], params["later"], params["writes"]
    if inner and all(middle):
        for k, one in enumerate(reads):
            yield at.operand(k, one, (*outer, *middle), inner)
    elif whole:
        return
    for k, one in enumerate((*later, *writes), len(reads)):
        yield at.operand(k, one, (*outer, *middle) if whole else outer, inner if whole or count else None)


def _copy(at: _Problem) -> Iterator[Footprint]:
    for part in at.params["parts"]:
        *outer, inner = at.numbers(part["extents"])
        if min((*outer, inner)) < 0:
            raise ValueError("an extent is negative")
        if inner and all(outer):
            for buffer, side in ((part["source"], "read"), (at.params["sources"] + part["target"], "write")):
                yield at.operand(buffer, {**part[side], "c": at.params["c"]}, outer, inner)


def _panels(n: int, k: int, nr: int, last: int) -> int:
    """Return the elements of a matrix in panels of `nr` columns, whose last has `last` if it is not whole."""
    whole, rest = divmod(n, nr)
    return k * (whole * nr + (last if rest else 0))


def _gemm(at: _Problem) -> Iterator[Footprint]:
    params, tiles = at.params, at.params["tiles"]
    m, n, k = at.numbers((params["m"], params["n"], params["k"]))
    batch = [at.numbers((d["extent"], d["a"], d["b"])) for d in params["batch"]]
    extents = [extent for extent, _, _ in batch]
    if min((m, n, k, *extents)) < 0:
        raise ValueError("an extent is negative")
    images = math.prod(extents)
    if not m or not n or not images:
        return
    epilogue, c_row = params["epilogue"]["operands"], at.number(params.get("c_row", params["n"]))
    for number, operand in enumerate(epilogue, 2):
        b, row = at.numbers((operand["b"], operand["m"]))
        yield at.span(number, operand.get("type", "real"), 0, [(images, b), (m, row), (n, operand["n"])])
    yield at.span(2 + len(epilogue), tiles.get("out", "real"), 0, [(images * m, c_row), (n, 1)])
    if not k:
        return
    if "a_bytes" in tiles:
        yield 0, 0, (m - 1) * at.number(tiles["a_bytes"]) + 1
    else:
        walks = [(m, at.number(tiles["a_row"])), (k, at.number(tiles["a_k"]))]
        yield at.span(0, "real", 0, [*((extent, a) for extent, a, _ in batch), *walks])
    walks = [(extent, b) for extent, _, b in batch]
    if params["packed"]:
        nr = at.number(tiles["b_k"])
        last = at.number(tiles["tail_k"]) if tiles.get("tail") else nr
        walks.append((_panels(n, k, nr, last), 1))
    else:
        walks += [(k, at.number(tiles["b_k"])), (n, 1)]
    yield at.span(1, tiles.get("stored", "real"), 0, walks)


def _pack(at: _Problem) -> Iterator[Footprint]:
    params = at.params
    n, k, images, stride, row, column = at.numbers(
        [params[key] for key in ("n", "k", "images", "image_stride", "b_row", "b_column")]
    )
    if min(n, k, images) < 0:
        raise ValueError("an extent is negative")
    if n and k and images:
        nr = at.number(params["nr"])
        yield at.span(0, "real", 0, [(images, stride), (k, row), (n, column)])
        yield at.span(1, "real", 0, [(images * _panels(n, k, nr, nr), 1)])


_KNOWN: Mapping[str, Callable[[_Problem], Iterator[Footprint]]] = {
    "elementwise": _elementwise,
    "normalize_rows": lambda at: _rows(at, whole=True, count=False),
    "reduce_rows": lambda at: _rows(at, whole=False, count=False),
    "reduce_columns": lambda at: _rows(at, whole=False, count=True),
    "copy": _copy,
    "gemm": _gemm,
    "pack": _pack,
}
