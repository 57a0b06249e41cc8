"""The interface of a program: its inputs and outputs, and the arrays that callers give for them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine import symbolic
from ..engine.graph import Constant, DType, TensorType, ValueType
from ..errors import UserError

Array = NDArray[Any]
_CPU = 1  # the number that DLPack gives to memory that the CPU can read


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a program."""

    name: str
    type: ValueType

    @property
    def dtype(self) -> DType | None:
        """Its element type, None if unknown or no tensor."""
        return self.type.dtype if isinstance(self.type, TensorType) else None

    @property
    def shape(self) -> tuple[int | str, ...] | None:
        """Its shape, symbolic dims as text; None if unknown or no tensor."""
        shape = self.type.shape if isinstance(self.type, TensorType) else None
        return None if shape is None else tuple(d if isinstance(d, int) else str(d) for d in shape)


def as_array(value: Any, what: str) -> Array:
    """A value as an array, without a copy where it is one, or exports its memory by DLPack or the buffer protocol.

    Raises UserError, naming `what` it is, for tensors on other devices and what NumPy has no type for."""
    if isinstance(value, np.ndarray):
        return value
    if not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    device = value.__dlpack_device__()[0] if hasattr(value, "__dlpack_device__") else _CPU
    if device != _CPU:
        raise UserError(f"{what} is on another device than the CPU", hint="Move it to the CPU first.")
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"{what} cannot be read as an array: {error}") from error


class InputSpec:
    """The check of one input."""

    def __init__(self, port: Port) -> None:
        self.name = port.name
        self.tensor = port.type if isinstance(port.type, TensorType) else None
        self.dtype = port.dtype.numpy if port.dtype is not None else None
        shape = self.tensor.shape if self.tensor is not None else None
        self.rank = None if shape is None else len(shape)
        self.fixed = [] if shape is None else [(i, d) for i, d in enumerate(shape) if isinstance(d, int)]
        self.free = [] if shape is None else [(i, d, symbolic.symbol_name(d)) for i, d in enumerate(shape)
                                              if not isinstance(d, int)]  # fmt: skip

    def sizes(self, value: Any) -> list[int]:
        """The extents of an input that may vary, none if its rank is wrong."""
        if not self.free:
            return []
        shape = np.shape(value)
        return [shape[axis] for axis, _, _ in self.free] if len(shape) == self.rank else []

    def check(self, value: Any, extents: dict[str, int]) -> Any:
        """The value as an array if the input is a tensor; adds the extents it tells.

        Raises UserError for a wrong dtype, rank or size."""
        if self.tensor is None or (self.dtype is None and self.rank is None):
            return value
        array = as_array(value, f"input {self.name!r}")
        if (
            self.dtype is not None
            and array.dtype != self.dtype
            and not (self.dtype.kind == "O" and array.dtype.kind in "US")
        ):
            raise UserError(
                f"input {self.name!r} has dtype {array.dtype}, the model wants {self.dtype}", hint=self._want()
            )
        shape = array.shape
        if self.rank is not None and len(shape) != self.rank:
            raise UserError(
                f"input {self.name!r} has rank {len(shape)}, the model wants {self.rank}", hint=self._want()
            )
        for axis, extent in self.fixed:
            if shape[axis] != extent:
                raise UserError(
                    f"dim {axis} of input {self.name!r} is {shape[axis]}, the model wants {extent}", hint=self._want()
                )
        for axis, dim, name in self.free:
            if name is not None:
                if extents.setdefault(name, shape[axis]) != shape[axis]:
                    raise UserError(
                        f"dim {axis} of input {self.name!r} is {shape[axis]}, but {name} is {extents[name]} by an "
                        "earlier input",
                        hint=self._want(),
                    )
            elif symbolic.symbols(dim) <= extents.keys() and symbolic.evaluate(dim, extents) != shape[axis]:
                raise UserError(
                    f"dim {axis} of input {self.name!r} is {shape[axis]}, the model wants {dim} = "
                    f"{symbolic.evaluate(dim, extents)}",
                    hint=self._want(),
                )
        return array

    def _want(self) -> str:
        return f"The model declares {self.name}: {self.tensor}."


class Interface:
    """The inputs and outputs of a program, in the model's order."""

    def __init__(
        self,
        inputs: Sequence[str],
        outputs: Sequence[str],
        types: Mapping[str, ValueType],
        defaults: Mapping[str, Constant],
    ) -> None:
        self.inputs = tuple(Port(v, types.get(v, TensorType())) for v in inputs)
        self.outputs = tuple(Port(v, types.get(v, TensorType())) for v in outputs)
        self.specs = [InputSpec(port) for port in self.inputs]
        self._defaults = defaults
        self._names = frozenset(inputs)
        self._output_names = tuple(outputs)

    def values(self, inputs: Mapping[str, Any]) -> list[Any]:
        """The inputs by position, with the model's own for those not given that have one. UserError for wrong names."""
        if type(inputs) is not dict and not isinstance(inputs, Mapping):
            raise UserError(
                f"inputs are given by name, in a dict, not as {type(inputs).__name__}",
                hint="The model's inputs: " + ", ".join(f"{p.name}: {p.type}" for p in self.inputs),
            )
        if inputs.keys() != self._names:
            inputs = {**{name: constant.array for name, constant in self._defaults.items()}, **inputs}
            if inputs.keys() != self._names:
                self._wrong_names(inputs)
        return [inputs[port.name] for port in self.inputs]

    def _wrong_names(self, inputs: Mapping[str, Any]) -> None:
        for name in inputs:
            if name not in self._names:
                raise UserError(
                    f"the model has no input {name!r}", hint=_did_you_mean(name, [p.name for p in self.inputs])
                )
        missing = [port.name for port in self.inputs if port.name not in inputs]
        raise UserError(
            f"no value given for input{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}",
            hint="The model's inputs: " + ", ".join(f"{p.name}: {p.type}" for p in self.inputs),
        )

    def select(self, found: dict[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
        """The outputs with these names (all if None). UserError for an unknown one."""
        if names is None:
            return found
        for name in names:
            if name not in found:
                raise UserError(f"the model has no output {name!r}", hint=_did_you_mean(name, list(found)))
        return {name: found[name] for name in names}

    def targets(self, out: Mapping[str, Any] | Sequence[Any]) -> tuple[Array | None, ...]:
        """The arrays that a caller wants outputs in, one for each output or None.

        Raises UserError for unknown names, another number of arrays than of outputs, what isn't a writable C-contiguous
        array, and for arrays that share memory."""
        names = self._output_names
        given: Sequence[Any]
        if type(out) is list or type(out) is tuple:
            given = out
        elif type(out) is dict or isinstance(out, Mapping):
            for name in out:
                if name not in names:
                    raise UserError(f"the model has no output {name!r}", hint=_did_you_mean(name, list(names)))
            given = [out.get(name) for name in names]
        else:
            given = list(out)
        if len(given) != len(names):
            raise UserError(
                f"`out` has {len(given)} arrays, the model {len(names)} outputs",
                hint="None stands for a fresh array; a dict has those outputs only that are wanted in given ones.",
            )
        arrays: list[Array | None] = []
        for value in given:  # this is most of what `out` costs a small model: nothing is made that errors alone need
            array = value if value is None or type(value) is np.ndarray else self._target(value, len(arrays))
            if array is not None:
                flags = array.flags
                if not (flags.writeable and flags.c_contiguous):
                    wrong = "not C-contiguous" if flags.writeable else "read-only"
                    raise UserError(f"the array for output {names[len(arrays)]!r} is {wrong}")
                for other in arrays:
                    if other is not None and np.may_share_memory(array, other):
                        raise UserError(
                            f"the array for output {names[len(arrays)]!r} shares memory with that for another output"
                        )
            arrays.append(array)
        return tuple(arrays)

    def _target(self, value: Any, number: int) -> Array:
        return as_array(value, f"the array for output {self._output_names[number]!r}")


def deliver(name: str, found: Any, array: Array) -> Array:
    """Copies an output into the array that the caller wants it in. UserError if that has another type or shape."""
    if not isinstance(found, np.ndarray):
        raise UserError(f"output {name!r} is no tensor: it cannot be written to an array")
    if found.dtype != array.dtype or found.shape != array.shape:
        raise UserError(
            f"the array for output {name!r} is {array.dtype}{list(array.shape)}, "
            f"the model gives {found.dtype}{list(found.shape)}"
        )
    if found is not array:
        array[...] = found
    return array


def _did_you_mean(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f"Did you mean {close[0]!r}?" if close else "It has: " + ", ".join(map(repr, known))
