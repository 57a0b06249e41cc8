"""Tensors of other libraries as inputs and outputs, in their own memory."""

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import rewrite
from onnx import TensorProto, helper
from rewrite.backend.runtime.interface import as_array
from rewrite.errors import UserError

CODES = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13}


class _Tensor(ctypes.Structure):
    """DLPack's managed tensor, version 0."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    )  # fmt: skip


class Exporter:
    """A tensor of another library: an array that only DLPack exports, with the type that NumPy lacks."""

    def __init__(self, array: np.ndarray[Any, Any], *, device: int = 1, plain: bool = False) -> None:
        self.array, self.device, self.deleted = array, device, 0
        self._shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self._strides = (ctypes.c_int64 * array.ndim)(*(step // array.itemsize for step in array.strides))
        self._deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._delete)
        self._managed = _Tensor(
            array.ctypes.data, device, 0, array.ndim, CODES[array.dtype.name], 8 * array.itemsize, 1,
            self._shape, None if plain else self._strides, 0, None, ctypes.cast(self._deleter, ctypes.c_void_p),
        )  # fmt: skip

    def _delete(self, _: int) -> None:
        self.deleted += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **_: Any) -> Any:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self._managed), b"dltensor", None)


@pytest.mark.parametrize("name", CODES)
def test_types_that_numpy_lacks_are_read_in_place(name: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, name))
    source = Exporter(array)
    found = as_array(source, "x")
    assert found.dtype == array.dtype
    assert found.ctypes.data == array.ctypes.data
    np.testing.assert_array_equal(found.astype(np.float32), array.astype(np.float32))
    array[0, 0] = 3
    assert float(found[0, 0]) == 3
    assert not source.deleted
    del found
    assert source.deleted == 1


def test_strides_are_kept() -> None:
    array = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    assert as_array(Exporter(array.T), "x").strides == array.T.strides
    assert as_array(Exporter(array, plain=True), "x").strides == array.strides


def test_tensors_on_other_devices_are_refused() -> None:
    with pytest.raises(UserError, match="'x' is not on the CPU"):
        as_array(Exporter(np.zeros(3, ml_dtypes.bfloat16), device=2), "'x'")


def _doubling() -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(name, TensorProto.BFLOAT16, ["N", 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_a_program_takes_bf16_tensors_and_writes_to_them() -> None:
    program = rewrite.compile(_doubling(), threads=1)
    x, y = (np.full((3, 4), value, ml_dtypes.bfloat16) for value in (1.5, 0))
    found = program.run({"x": Exporter(x)}, out={"y": Exporter(y)})["y"]
    assert found.ctypes.data == y.ctypes.data
    assert (y.astype(np.float32) == 3).all()
