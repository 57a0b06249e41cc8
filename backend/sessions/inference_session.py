"""A stand-in for `onnxruntime.InferenceSession`: the commonly used parts of its interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from ...engine.ir.graph import DType, OtherType
from ...errors import UserError
from ..runtime.program import Port, Program

_NAMES = {
    DType.F32: "float",
    DType.F64: "double",
    DType.F16: "float16",
    DType.BF16: "bfloat16",
    DType.I8: "int8",
    DType.I16: "int16",
    DType.I32: "int32",
    DType.I64: "int64",
    DType.U8: "uint8",
    DType.U16: "uint16",
    DType.U32: "uint32",
    DType.U64: "uint64",
    DType.BOOL: "bool",
    DType.STRING: "string",
}


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output in ONNX Runtime's terms: a `type` such as `tensor(float)`, symbolic dims as names."""

    name: str
    type: str
    shape: list[int | str | None]


class InferenceSession:
    """Optimizes and compiles a model on construction; `run` returns its outputs.

    The model is a path, bytes, a `ModelProto`, or the directory of a bundle. Of the session options only
    `intra_op_num_threads` is used. Providers are ignored: everything runs on the CPU."""

    def __init__(
        self,
        path_or_bytes: str | PathLike[str] | bytes | Any,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **_: Any,
    ) -> None:
        threads = int(getattr(sess_options, "intra_op_num_threads", 0) or 0) or None
        self.program = _compile(path_or_bytes, threads)

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs in order."""
        return [_describe(port) for port in self.program.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs in order."""
        return [_describe(port) for port in self.program.outputs]

    def get_providers(self) -> list[str]:
        """Return the devices on which models run."""
        return ["CPUExecutionProvider"]

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """Return the outputs with these names; all for None or an empty list. Raises UserError for wrong inputs."""
        feeds = {name: value if isinstance(value, list) else np.asarray(value) for name, value in input_feed.items()}
        found = self.program.run(feeds, list(output_names) if output_names else None)
        return list(found.values())


def _compile(model: Any, threads: int | None) -> Program:
    from ...engine.options import Options
    from ..bundle.load_bundle import is_bundle, load
    from ..compile_model import compile_model

    if isinstance(model, str | PathLike):
        path = Path(fspath(model))
        if is_bundle(path):
            return load(path, threads=threads)
        if not path.exists():
            raise UserError("no such file", where=str(path))
        model = path
    return compile_model(model, Options(), threads=threads)


def _describe(port: Port) -> NodeArg:
    if isinstance(port.type, OtherType):
        import onnx

        which = onnx.TypeProto.FromString(port.type.proto).WhichOneof("value") or "unknown"
        return NodeArg(port.name, which.removesuffix("_type"), [])
    name = "unknown" if port.dtype is None else _NAMES.get(port.dtype, port.dtype.value)
    return NodeArg(port.name, f"tensor({name})", list(port.shape or ()))
