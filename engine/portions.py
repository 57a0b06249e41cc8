"""Writing an optimised model while noting which of its bytes are those of the file that it was made of."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np

from .. import transient
from ..errors import UserError
from .graph import Graph
from .onnx_out import pieces, save, write

Portion = tuple[int, int]
"""Where a stretch of bytes begins in the original (-1: it is not from there), and its length."""
_LEAST = 1 << 16
"""Shorter stretches are not worth a place in the list."""


def save_graph(graph: Graph, path: Path) -> list[Portion] | None:
    """Writes a graph to a file, the same bytes as `onnx_out.save` writes; what the file consists of, if the graph was
    read with its constants left in the original (`onnx_in.read(mapped=True)`) and these are the only mapped ones. None
    if constants are in a file of their own.

    Raises `RewriteError` if the graph cannot be written, `UserError` if the file cannot."""
    found = pieces(graph)
    if found is None:
        save(write(graph), path)
        return None
    portions: list[Portion] = []
    try:
        with transient.replacing(path) as file:
            for piece in found:
                file.write(piece)
                _add(portions, _place(piece), piece.nbytes)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", where=str(path)) from None
    return portions


def _add(portions: list[Portion], start: int, size: int) -> None:
    """Adds a stretch, to the last one if it goes on."""
    if portions and (start < 0) == (portions[-1][0] < 0):
        before, length = portions[-1]
        if start < 0 or before + length == start:
            portions[-1] = (before, length + size)
            return
    portions.append((start, size))


def _place(piece: memoryview) -> int:
    """Where bytes are in the file that they are mapped from, -1 if they aren't, or are few."""
    owner: Any = piece.obj
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if not isinstance(owner, mmap.mmap) or piece.nbytes < _LEAST:
        return -1
    whole, part = (np.frombuffer(data, np.uint8) for data in (owner, piece))
    return int(part.__array_interface__["data"][0] - whole.__array_interface__["data"][0])
