"""The C library from Python, by ctypes: for tests that compare it with the Python runtime."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rewrite.engine.ir.graph import DType

Array = NDArray[Any]


class Error(ctypes.Structure):
    _fields_ = (("status", ctypes.c_int), ("message", ctypes.c_char * 1024))


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("rank", ctypes.c_int),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
    )


class Port(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("element_size", ctypes.c_size_t),
        ("rank", ctypes.c_int),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("dim_names", ctypes.POINTER(ctypes.c_char_p)),
        ("optional", ctypes.c_int),
    )

    @property
    def shape(self) -> tuple[int | str, ...]:
        return tuple(d if d >= 0 else self.dim_names[i].decode() for i, d in enumerate(self.dims[: self.rank]))


class CError(Exception):
    def __init__(self, error: Error) -> None:
        self.status, self.message = error.status, error.message.decode()
        super().__init__(f"{self.status}: {self.message}")


class CProgram:
    """A bundle, opened by the library in it, with one context."""

    def __init__(self, bundle: Path, threads: int = 0, library: Path | None = None) -> None:
        self.library = ctypes.CDLL(str(library or bundle / "lib" / "librewrite.so"))
        for name in ("input", "output"):
            getattr(self.library, f"rewrite_{name}").restype = ctypes.POINTER(Port)
            getattr(self.library, f"rewrite_{name}_count").restype = ctypes.c_size_t
        self.program, self.context = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("rewrite_open", str(bundle).encode(), ctypes.byref(self.program))
        self.inputs, self.outputs = self._ports("input"), self._ports("output")
        self.call("rewrite_context_new", self.program, threads, ctypes.byref(self.context))

    def _ports(self, kind: str) -> list[Port]:
        count = getattr(self.library, f"rewrite_{kind}_count")(self.program)
        port = getattr(self.library, f"rewrite_{kind}")
        return [port(self.program, ctypes.c_size_t(i)).contents for i in range(count)]

    def call(self, name: str, *arguments: Any) -> None:
        error = Error()
        if getattr(self.library, name)(*arguments, ctypes.byref(error)):
            raise CError(error)

    def output_shapes(self, inputs: Sequence[Array | None]) -> list[tuple[int, ...]]:
        given, keep = tensors(inputs)
        found = []
        for number, port in enumerate(self.outputs):
            dims = (ctypes.c_int64 * max(1, port.rank))()
            count = ctypes.c_size_t(len(inputs))
            self.call("rewrite_output_dims", self.context, given, count, ctypes.c_size_t(number), dims)
            found.append(tuple(dims[: port.rank]))
        del keep
        return found

    def run(self, feeds: Mapping[str, Array], out: Mapping[str, Array] | None = None) -> dict[str, Array]:
        inputs = [feeds.get(port.name.decode()) for port in self.inputs]
        given = dict(out or {})
        shapes = self.output_shapes(inputs)
        outputs = [
            given[name] if (name := port.name.decode()) in given else np.empty(shape, DType.from_onnx(port.type).numpy)
            for port, shape in zip(self.outputs, shapes, strict=True)
        ]
        (ins, keep), (outs, keep_out) = tensors(inputs), tensors(outputs)
        sizes = ctypes.c_size_t(len(inputs)), ctypes.c_size_t(len(outputs))
        self.call("rewrite_run", self.context, ins, sizes[0], outs, sizes[1])
        del keep, keep_out
        return {port.name.decode(): array for port, array in zip(self.outputs, outputs, strict=True)}

    def close(self) -> None:
        self.library.rewrite_close(self.program)
        self.library.rewrite_context_free(self.context)


def tensors(arrays: Sequence[Array | None]) -> tuple[Any, list[Any]]:
    dims = [(ctypes.c_int64 * max(1, array.ndim))(*array.shape) if array is not None else None for array in arrays]
    found = (Tensor * max(1, len(arrays)))()
    for tensor, array, shape in zip(found, arrays, dims, strict=False):
        if array is not None:
            assert array.flags.c_contiguous
            tensor.data, tensor.size, tensor.rank, tensor.dims = array.ctypes.data, array.nbytes, array.ndim, shape
    return found, dims
