"""Models in memory whose weights are arrays elsewhere. Imports nothing large, since the cache asks for this type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DETACHED = "\0detached"
"""Location of external data that stands for the arrays of a `DetachedModel`; no file has this name."""


@dataclass(frozen=True, slots=True)
class DetachedModel:
    """A model in memory whose large tensors are arrays elsewhere, so that they are neither serialized nor copied.

    Initializers of `model`, a `ModelProto`, with the location `DETACHED` have their contents in `tensors`, by name.
    These arrays are C-contiguous."""

    model: Any
    tensors: Mapping[str, NDArray[np.generic]]

    @property
    def nbytes(self) -> int:
        """Size of the model in bytes, tensors included."""
        return int(self.model.ByteSize()) + sum(array.nbytes for array in self.tensors.values())

    def whole(self) -> Any:
        """Return a copy of the model that holds its tensors itself."""
        import onnx

        whole = onnx.ModelProto()
        whole.CopyFrom(self.model)
        for tensor in whole.graph.initializer:
            if tensor.name in self.tensors:
                del tensor.external_data[:]
                tensor.ClearField("data_location")
                tensor.raw_data = self.tensors[tensor.name].tobytes()
        return whole

    def checksum(self) -> str:
        """Return a hash of the model and its tensors in hexadecimal."""
        import hashlib

        import numpy as np

        from ...system.file_contents import checksum_of

        digest = hashlib.sha256(self.model.SerializeToString(deterministic=True))
        for name, array in sorted(self.tensors.items()):
            digest.update(f"{name} {checksum_of(array.reshape(-1).view(np.uint8).data)} ".encode())
        return digest.hexdigest()
