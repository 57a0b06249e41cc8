"""The interface of a program: its inputs and outputs, and checks of the arrays that callers pass."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.ir import symbolic
from ...engine.ir.graph import DType, TensorType, ValueType
from ...errors import UserError
from ...system.short_text import clipped
from ..ir.kernel_graph import ModelPlan

Array = NDArray[Any]
_CPU = 1  # DLPack's number of memory that the CPU can read
_DLPACK = {
    4: DType.BF16, 10: DType.F8E4M3FN, 11: DType.F8E4M3FNUZ, 12: DType.F8E5M2, 13: DType.F8E5M2FNUZ,
}  # fmt: skip
"""DLPack's numbers of the element types that NumPy lacks."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a program."""

    name: str
    type: ValueType

    def __repr__(self) -> str:
        return f"<Port {clipped(self.name)}: {clipped(str(self.type))}>"

    @property
    def dtype(self) -> DType | None:
        """The element type; None if unknown or not a tensor."""
        return self.type.dtype if isinstance(self.type, TensorType) else None

    @property
    def shape(self) -> tuple[int | str, ...] | None:
        """The shape, symbolic dims as text; None if unknown or not a tensor."""
        shape = self.type.shape if isinstance(self.type, TensorType) else None
        return None if shape is None else tuple(d if isinstance(d, int) else str(d) for d in shape)


def as_array(value: Any, what: str) -> Array:
    """Return a value as an array, without a copy if it is one or exports its memory by DLPack or the buffer protocol.

    Raises UserError, which names it as `what`, for tensors on other devices and types that NumPy lacks."""
    if isinstance(value, np.ndarray):
        return value
    if not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    device = value.__dlpack_device__()[0] if hasattr(value, "__dlpack_device__") else _CPU
    if device != _CPU:
        raise UserError(f"{what} is not on the CPU", hint="Move it to the CPU first.")
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        found = _from_dlpack(value)
        if found is None:
            raise UserError(f"{what} cannot be read as an array: {error}") from error
        return found


def _from_dlpack(value: Any) -> Array | None:
    """Return a tensor of a type that NumPy lacks, such as bf16, as an array of the type of `ml_dtypes`; else None."""
    from .native import executor as native

    try:
        shared = native.Shared(value.__dlpack__())
    except (BufferError, RuntimeError, TypeError, ValueError):
        return None
    dtype = _DLPACK.get(shared.code)
    return None if dtype is None else np.asarray(shared).view(dtype.numpy)


class InputSpec:
    """Check of one input."""

    def __init__(self, port: Port) -> None:
        self.name = port.name
        self.tensor = port.type if isinstance(port.type, TensorType) else None
        self.dtype = port.dtype.numpy if port.dtype is not None else None
        shape = self.tensor.shape if self.tensor is not None else None
        self.rank = None if shape is None else len(shape)
        self.fixed = [(i, d) for i, d in enumerate(shape or ()) if isinstance(d, int)]
        self.free = [(i, d, symbolic.symbol_name(d)) for i, d in enumerate(shape or ()) if not isinstance(d, int)]

    def sizes(self, value: Any) -> list[int]:
        """Return the extents of an input that may vary; none if its rank is wrong."""
        if not self.free:
            return []
        shape = np.shape(value)
        return [shape[axis] for axis, _, _ in self.free] if len(shape) == self.rank else []

    def check(self, value: Any, extents: dict[str, int]) -> Any:
        """Return the value as an array if the input is a tensor; add the extents that it determines.

        Raises UserError for a wrong dtype, rank or size."""
        if self.tensor is None or (self.dtype is None and self.rank is None):
            return value
        array = as_array(value, f"input {self.name!r}")
        if self.dtype is not None and array.dtype != self.dtype:
            if self.dtype.kind != "O" or array.dtype.kind not in "US":
                raise self._wrong(f"input {self.name!r} has dtype {array.dtype}, the model wants {self.dtype}")
        shape = array.shape
        if self.rank is not None and len(shape) != self.rank:
            raise self._wrong(f"input {self.name!r} has rank {len(shape)}, the model wants {self.rank}")
        for axis, extent in self.fixed:
            if shape[axis] != extent:
                raise self._wrong_dim(axis, shape[axis], f"the model wants {extent}")
        for axis, dim, name in self.free:
            if name is not None:
                if extents.setdefault(name, shape[axis]) != shape[axis]:
                    raise self._wrong_dim(axis, shape[axis], f"but {name} is {extents[name]} by an earlier input")
            elif symbolic.symbols(dim) <= extents.keys():
                if (wanted := symbolic.evaluate(dim, extents)) != shape[axis]:
                    raise self._wrong_dim(axis, shape[axis], f"the model wants {dim} = {wanted}")
        return array

    def _wrong_dim(self, axis: int, extent: int, wanted: str) -> UserError:
        return self._wrong(f"dim {axis} of input {self.name!r} is {extent}, {wanted}")

    def _wrong(self, problem: str) -> UserError:
        return UserError(problem, hint=f"The model declares {self.name}: {self.tensor}.")


class Interface:
    """The inputs and outputs of a program, in the model's order."""

    def __init__(self, plan: ModelPlan) -> None:
        self.inputs, self.outputs = (
            tuple(Port(v, plan.types.get(v, TensorType())) for v in values) for values in (plan.inputs, plan.outputs)
        )
        self.specs = [InputSpec(port) for port in self.inputs]
        self._defaults, self._names, self._output_names = plan.defaults, frozenset(plan.inputs), plan.outputs

    def values(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Return the inputs by position, with defaults for missing ones. Raises UserError for wrong names."""
        if type(inputs) is not dict and not isinstance(inputs, Mapping):
            raise UserError(f"inputs must be a dict by name, not a {type(inputs).__name__}", hint=self._has_inputs())
        if inputs.keys() != self._names:
            inputs = {**{name: constant.array for name, constant in self._defaults.items()}, **inputs}
            for name in inputs:
                if name not in self._names:
                    hint = _did_you_mean(name, [port.name for port in self.inputs])
                    raise UserError(f"the model has no input {name!r}", hint=hint)
            if missing := [repr(port.name) for port in self.inputs if port.name not in inputs]:
                problem = f"no value given for input{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
                raise UserError(problem, hint=self._has_inputs())
        return [inputs[port.name] for port in self.inputs]

    def _has_inputs(self) -> str:
        return "The model's inputs: " + ", ".join(f"{p.name}: {p.type}" for p in self.inputs)

    def select(self, found: dict[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
        """Return the outputs with these names, all if None. Raises UserError for an unknown name."""
        if names is None:
            return found
        self._check_outputs(names)
        return {name: found[name] for name in names}

    def _check_outputs(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._output_names:
                raise UserError(f"the model has no output {name!r}", hint=_did_you_mean(name, self._output_names))

    def targets(self, out: Mapping[str, Any] | Sequence[Any]) -> tuple[Array | None, ...]:
        """Return the arrays in which a caller wants the outputs: one for each output, or None.

        Raises UserError for unknown names, a wrong number of arrays, arrays that are not writable and C-contiguous, and
        arrays that share memory."""
        names = self._output_names
        given: Sequence[Any]
        if type(out) is list or type(out) is tuple:
            given = out
        elif type(out) is dict or isinstance(out, Mapping):
            self._check_outputs(out)
            given = [out.get(name) for name in names]
        else:
            given = list(out)
        if len(given) != len(names):
            raise UserError(
                f"`out` has {len(given)} arrays, but the model has {len(names)} outputs",
                hint="Use None for a fresh array, or a dict with only the outputs that have arrays.",
            )
        arrays: list[Array | None] = []
        for value in given:  # the main cost of `out` for a small model: nothing is computed that only errors need
            array = value
            if value is not None and type(value) is not np.ndarray:
                array = as_array(value, f"the array for output {names[len(arrays)]!r}")
            if array is not None:
                flags = array.flags
                if not (flags.writeable and flags.c_contiguous):
                    wrong = "not C-contiguous" if flags.writeable else "read-only"
                    raise UserError(f"the array for output {names[len(arrays)]!r} is {wrong}")
                for other in arrays:
                    if other is not None and np.may_share_memory(array, other):
                        which = f"the array for output {names[len(arrays)]!r}"
                        raise UserError(f"{which} shares memory with that for another output")
            arrays.append(array)
        return tuple(arrays)


def deliver(name: str, found: Any, array: Array) -> Array:
    """Copy an output to the array given for it. Raises UserError if that has another type or shape."""
    if not isinstance(found, np.ndarray):
        raise UserError(f"output {name!r} is not a tensor and cannot be written to an array")
    if found.dtype != array.dtype or found.shape != array.shape:
        raise UserError(
            f"the array for output {name!r} is {array.dtype}{list(array.shape)}, "
            f"the model's output is {found.dtype}{list(found.shape)}"
        )
    if found is not array:
        array[...] = found
    return array


def _did_you_mean(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f"Did you mean {close[0]!r}?" if close else "It has: " + ", ".join(map(repr, known))
