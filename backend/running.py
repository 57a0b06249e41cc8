"""One run in progress: what it knows of extents, and where its values are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine import symbolic
from ..engine.graph import DType, TensorType
from ..errors import RewriteError
from .arrays import aligned, is_readable
from .kernel_graph import Control, Fallback, Loop, ModelPlan, Step
from .link import Link
from .storage import SCRATCH, Layout, shape_value


@dataclass(frozen=True, slots=True)
class Launch:
    """One step of a recorded run: of a kernel, a loop, or of a node that Python runs.

    `spans` [threads, 2] says when each thread began and ended it, in seconds of the monotonic clock (zeros: it took no
    part); `buffers` what a kernel reads and then writes, each as (address, bytes, whether it is written); `extents` the
    sizes of the run."""

    item: Step | Fallback | Control | Loop
    spans: NDArray[np.float64]
    buffers: tuple[tuple[int, int, bool], ...]
    extents: Mapping[str, int]
    plan: ModelPlan


class Run:
    """One run in progress: extents, values that live in Python, and the frame."""

    __slots__ = ("arrays", "extents", "frame", "layouts", "link", "record")

    def __init__(self, link: Link, frame: Any) -> None:
        self.link = link
        self.frame = frame
        self.extents: dict[str, int] = {}
        self.arrays: dict[str, Any] = {}  # inputs, results of fallbacks, outputs made in place
        self.layouts: list[Layout] = []
        self.record: list[Launch] | None = None

    def take(self, name: str, array: Any) -> None:
        """Notes an input, and points the frame at it where kernels read it."""
        self.arrays[name] = array
        base = self.link.storage.base.get(name)
        if base is not None:
            if is_readable(array):
                self.frame.set(base, array.__array_interface__["data"][0])
            elif array.nbytes:
                array = np.ascontiguousarray(array)
                self.frame.copy_in(base, array.__array_interface__["data"][0], array.nbytes)

    def get(self, value: str) -> Any:
        """A value as an array (of memory that the run may use again: to be copied if kept) or other object."""
        if value in self.arrays:
            return self.arrays[value]
        link = self.link
        constant = link.plan.constants.get(value)
        if constant is not None:
            return constant.array
        at = link.storage.locate(value)
        if at.root in link.numbers:
            whole = shape_value(link.plan, link.numbers[at.root], self.extents)
        elif at.root in self.arrays or at.root in link.plan.constants:
            whole = self.get(at.root)
        else:
            whole = None
        kind = link.plan.type(value)
        if whole is not None and at.root == value:
            return whole
        assert kind.dtype is not None
        assert kind.shape is not None
        shape = tuple(symbolic.evaluate(d, self.extents) for d in kind.shape)
        offset = symbolic.evaluate(at.offset, self.extents)
        dtype = kind.dtype.numpy
        if whole is not None:
            flat = np.ascontiguousarray(whole).reshape(-1).view(np.uint8)
            return (
                flat[offset : offset + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize].view(dtype).reshape(shape)
            )
        holder = link.storage.holder(at.root)
        if holder in self.arrays:  # an output array that is being made
            whole = self.arrays[holder]
            return np.ndarray(shape, dtype, whole.reshape(-1).view(np.uint8), offset)
        stage = link.storage.base[at.root] - SCRATCH - 1
        address = self.layouts[stage].offset[holder] + offset
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if not size:
            return np.empty(shape, dtype)
        return np.frombuffer(self.frame.memory(link.storage.base[at.root], address, size), dtype).reshape(shape)

    def put(self, value: str, found: Any, *, own: bool = False) -> None:
        """Notes a value made in Python, checks it against its type and learns the extents it tells.

        The run keeps an array as it is if it is its `own`: nobody else has it. Raises RewriteError if it isn't what was
        inferred."""
        kind = self.link.plan.types.get(value)
        if isinstance(found, np.ndarray) and isinstance(kind, TensorType):
            if kind.dtype is not None and kind.dtype is not DType.STRING and found.dtype != kind.dtype.numpy:
                found = found.astype(kind.dtype.numpy)  # some reference implementations compute in another precision
            if kind.shape is not None:
                self._learn(value, kind.shape, found.shape)
            base = self.link.storage.base.get(value)
            if not own or (base is not None and not is_readable(found)):
                fresh = aligned(found.shape, found.dtype) if found.dtype.kind != "O" else np.empty(found.shape, object)
                fresh[...] = found
                found = fresh
            if base is not None:
                self.frame.set(base, found.__array_interface__["data"][0])
        elif isinstance(found, list):
            found = [np.array(v) if isinstance(v, np.ndarray) else v for v in found]
        self.arrays[value] = found

    def fill(self, value: str, found: Any) -> None:
        """Copies an array made in Python into the buffer that steps make this value in on other conditions.

        Raises RewriteError if it isn't what was inferred."""
        import ctypes

        target = self.get(value)
        if not isinstance(found, np.ndarray) or found.dtype != target.dtype or found.shape != target.shape:
            raise RewriteError(f"value {value} is not the {target.dtype}{list(target.shape)} that was inferred")
        found = np.ascontiguousarray(found)
        to, source = target.__array_interface__["data"][0], found.__array_interface__["data"][0]
        ctypes.memmove(to, source, found.nbytes)

    def grown(self, item: Loop, iterations: int) -> None:
        """Notes the tensors that a loop has made in memory of the frame, and learns the extents that these tell.

        Raises RewriteError if they are not what was inferred."""
        for value in item.made:
            if not value:
                continue
            kind = self.link.plan.type(value)
            assert kind.dtype is not None
            assert kind.shape is not None
            base, dtype = self.link.base(value), kind.dtype.numpy
            shape = (iterations, *(symbolic.evaluate(d, self.extents) for d in kind.shape[1:]))
            self._learn(value, kind.shape, shape)
            size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            self.frame.reserve(base, size)
            array = np.frombuffer(self.frame.memory(base, 0, size), dtype).reshape(shape)
            if value in self.link.plan.outputs:  # the memory serves the next run
                fresh = aligned(shape, dtype)
                fresh[...] = array
                array = fresh
            self.arrays[value] = array

    def _learn(self, value: str, shape: Sequence[symbolic.Dim], actual: Sequence[int]) -> None:
        if len(shape) != len(actual):
            raise RewriteError(f"value {value} has rank {len(actual)}, inferred was {len(shape)}")
        for dim, extent in zip(shape, actual, strict=True):
            if dim == extent:
                continue
            name = symbolic.symbol_name(dim)
            if name is not None and name not in self.extents:
                self.extents[name] = extent
            elif symbolic.symbols(dim) <= self.extents.keys() and symbolic.evaluate(dim, self.extents) != extent:
                raise RewriteError(f"value {value} has shape {tuple(actual)}, inferred was {tuple(map(str, shape))}")
