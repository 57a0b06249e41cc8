"""Tensors as ONNX Runtime's interface passes them: `OrtValue`, `OrtDevice`, and the bindings of inputs and outputs.

All memory is the CPU's. An `OrtValue` shares the memory of the array that it was made of."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.ir.graph import DType
from ..errors import UserError
from ..system.short_text import listed, plural
from . import errors
from .metadata import ELEMENT_NAMES

Array = NDArray[Any]


def _dtype(element: Any) -> np.dtype[Any]:
    """Return the NumPy type of an element type: a NumPy type or the number of one of ONNX."""
    return DType.from_onnx(element).numpy if isinstance(element, int) else np.dtype(element)


def _element(array: Array) -> DType:
    return DType.STRING if array.dtype.kind in "US" else DType.from_numpy(array.dtype)


def _type_name(array: Array) -> str:
    """Return the type of a tensor in ONNX Runtime's terms."""
    element = _element(array)
    return f"tensor({ELEMENT_NAMES.get(element, element.value)})"


def _require_cpu(device_type: str) -> None:
    if str(device_type).lower() not in ("cpu", "default"):
        problem = f"no device {device_type!r}"
        raise errors.make("InvalidArgument", UserError(problem, hint="Everything runs on the CPU: device_type='cpu'."))


class OrtDevice:
    """A device: the CPU."""

    def __init__(self, device_type: str = "cpu", device_id: int = 0) -> None:
        _require_cpu(device_type)
        self._id = device_id

    def __repr__(self) -> str:
        return f"<OrtDevice cpu:{self._id}>"

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """Return a device by name. Raises InvalidArgument for any but `cpu`."""
        return OrtDevice(ort_device_name, device_id)

    def device_id(self) -> int:
        """Return the device's number."""
        return self._id

    def device_type(self) -> str:
        """Return `cpu`."""
        return "cpu"


class OrtValue:
    """A tensor, or a sequence of tensors."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __repr__(self) -> str:
        if not self.has_value():
            return "<OrtValue: empty>"
        size = plural(len(self._value), "tensor") if self.is_tensor_sequence() else self.shape()
        return f"<OrtValue {self.data_type()}{' of ' if isinstance(size, str) else ''}{size}>"

    @staticmethod
    def ortvalue_from_numpy(
        numpy_obj: Array, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Return a tensor that shares the memory of a C-contiguous array; of others it has a copy."""
        _require_cpu(device_type)
        return OrtValue(np.ascontiguousarray(numpy_obj).reshape(np.shape(numpy_obj)))

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: Array, /, onnx_element_type: int) -> OrtValue:
        """Return a tensor of an ONNX element type whose bits are those of an array with elements of the same size."""
        dtype = _dtype(onnx_element_type)
        if dtype.itemsize != data.dtype.itemsize:
            problem = f"elements of {data.dtype} do not have the size of {dtype}"
            raise errors.make("InvalidArgument", UserError(problem))
        return OrtValue(np.ascontiguousarray(data).view(dtype))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1,
        memory_info: Any = None,
    ) -> OrtValue:  # fmt: skip
        """Return a tensor of zeros."""
        _require_cpu(device_type)
        return OrtValue(np.zeros(tuple(shape), _dtype(element_type)))

    @staticmethod
    def from_dlpack(data: Any, /) -> OrtValue:
        """Return a tensor that shares the memory of one of another library."""
        return OrtValue(np.from_dlpack(data))

    def numpy(self) -> Array:
        """Return the tensor as an array of the same memory."""
        if not isinstance(self._value, np.ndarray):
            raise errors.make("InvalidArgument", UserError("the value is not a tensor"))
        return self._value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found = self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)
        return found.copy() if copy else found

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.numpy().__dlpack_device__()

    def update_inplace(self, data: Array) -> None:
        """Copy an array of the same type and shape into the tensor's memory."""
        mine = self.numpy()
        if data.dtype != mine.dtype or data.shape != mine.shape:
            raise errors.make(
                "InvalidArgument",
                UserError(f"the array is {data.dtype}{list(data.shape)}, the tensor {mine.dtype}{list(mine.shape)}"),
            )
        mine[...] = data

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return int(self.numpy().ctypes.data)

    def shape(self) -> list[int]:
        """Return the shape."""
        return list(self.numpy().shape)

    def element_type(self) -> int:
        """Return the number of the element type in ONNX."""
        return _element(self.numpy()).onnx

    def data_type(self) -> str:
        """Return the type in ONNX Runtime's terms, such as `tensor(float)`."""
        if self.is_tensor_sequence():
            return f"seq({_type_name(np.asarray(self._value[0])) if self._value else 'tensor(float)'})"
        return _type_name(self.numpy())

    def tensor_size_in_bytes(self) -> int:
        """Return the number of bytes of the elements."""
        return self.numpy().nbytes

    def device_name(self) -> str:
        """Return `cpu`."""
        return "cpu"

    def has_value(self) -> bool:
        """Whether the value is not an empty optional."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether the value is a tensor."""
        return isinstance(self._value, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        """Whether the value is a sequence of tensors."""
        return isinstance(self._value, list)

    def is_sparse_tensor(self) -> bool:
        """Return False: sparse tensors are not supported."""
        return False


def unwrapped(value: Any) -> Any:
    """Return the array or list in an `OrtValue`, ours or ONNX Runtime's; other values as they are."""
    if isinstance(value, OrtValue):
        return value._value
    return value.numpy() if type(value).__name__ == "OrtValue" else value


class IOBinding:
    """Inputs and outputs bound to memory, for `InferenceSession.run_with_iobinding`."""

    def __init__(self, session: Any) -> None:
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, Array | None] = {}
        """Arrays for outputs by name, in the order of binding; None for a fresh one."""
        self._found: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<IOBinding {listed(self.inputs) or 'nothing'} → {listed(self.outputs) or 'nothing'}>"

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        """Bind an input to an array."""
        self.inputs[name] = arr_on_cpu

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind an input to memory at an address, which must stay valid until it is bound again."""
        _require_cpu(device_type)
        self.inputs[name] = _at(buffer_ptr, element_type, shape)

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        """Bind an input to an `OrtValue`."""
        self.inputs[name] = unwrapped(ortvalue)

    def bind_output(
        self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None,
        shape: Sequence[int] | None = None, buffer_ptr: int | None = None,
    ) -> None:  # fmt: skip
        """Bind an output to memory at an address, or to memory that each run allocates."""
        _require_cpu(device_type)
        array = None
        if buffer_ptr:
            if element_type is None or shape is None:
                problem = f"the memory for output {name!r} has no element type or no shape"
                raise errors.make("InvalidArgument", UserError(problem, hint="Give both with the address."))
            array = _at(buffer_ptr, element_type, shape)
        self.outputs[name] = array

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        """Bind an output to the memory of an `OrtValue`."""
        self.outputs[name] = unwrapped(ortvalue)

    def clear_binding_inputs(self) -> None:
        """Unbind all inputs."""
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Unbind all outputs."""
        self.outputs.clear()
        self._found.clear()

    def synchronize_inputs(self) -> None:
        """Do nothing: there is one memory."""

    def synchronize_outputs(self) -> None:
        """Do nothing: there is one memory."""

    def deliver(self, found: dict[str, Any]) -> None:
        """Take the outputs of a run."""
        self._found = found

    def get_outputs(self) -> list[OrtValue]:
        """Return the bound outputs of the last run, in the order of binding."""
        return [OrtValue(value) for value in self._found.values()]

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """Return the same as `get_outputs`."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Return copies of the bound outputs of the last run."""
        return [v.copy() if isinstance(v, np.ndarray) else v for v in self._found.values()]


def _at(address: int, element_type: Any, shape: Sequence[int]) -> Array:
    """Return the array of memory at an address."""
    dtype = _dtype(element_type)
    size = math.prod(shape) * dtype.itemsize
    buffer = memoryview((ctypes.c_char * size).from_address(address) if size else b"")
    return np.frombuffer(buffer, dtype).reshape(tuple(shape))
