"""Writing an optimised model while noting which of its bytes are those of the file that it was made of."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
_AT_ONCE = 8 << 20
"""So many bytes are written at a time: an interrupt waits for them."""


def save_graph(graph: Graph, path: Path) -> list[Portion] | None:
    """Writes a graph to a file; see `writing`."""
    with writing(graph, path) as finish:
        return finish()


@contextmanager
def writing(graph: Graph, path: Path) -> Iterator[Callable[[], list[Portion] | None]]:
    """Within the block another thread writes a graph, the same bytes as `onnx_out.save` writes, to a file that takes
    its place when the function is called that this gives; else there will be none.

    That function gives what the file consists of, if the graph was read with its constants left in the original
    (`onnx_in.read(mapped=True)`) and these are the only mapped ones; None if constants are in a file of their own. It
    raises `RewriteError` if the graph cannot be written, `UserError` if the file cannot."""
    ended = threading.Event()
    with _told(path), transient.directory_beside(path) as place, ThreadPoolExecutor(1) as pool:
        work = pool.submit(_write, graph, place / path.name, ended)

        def finish() -> list[Portion] | None:
            with _told(path):
                portions = work.result()
                if portions is None:
                    save(write(graph), path)
                else:
                    os.replace(place / path.name, path)
                return portions

        try:
            yield finish
        finally:
            ended.set()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Errors of the system within the block as those of writing a file."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", where=str(path)) from None


def _write(graph: Graph, path: Path, ended: threading.Event) -> list[Portion] | None:
    """Writes a graph to a file until it is done or `ended`; its portions, None if they are in several files."""
    found = pieces(graph)
    if found is None:
        return None
    portions: list[Portion] = []
    with open(path, "wb") as file:
        for piece in found:
            for at in range(0, piece.nbytes, _AT_ONCE):
                if ended.is_set():
                    return []
                file.write(piece[at : at + _AT_ONCE])
            _add(portions, _place(piece), piece.nbytes)
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
