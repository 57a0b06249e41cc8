"""The one place that decides what a model is."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import UserError

_ACCEPTED = (
    "A model is a path, the bytes of an ONNX file, an onnx.ModelProto, an onnx_ir.Model, a torch.nn.Module with "
    "example inputs in `args`, a torch.export.ExportedProgram or a torch.onnx.ONNXProgram."
)


def as_source(
    model: Any,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> Any:
    """Return a model as the importer takes it: a `Path`, bytes, a `ModelProto` or a `DetachedModel`.

    `args`, `kwargs` and `dynamic_shapes` are for an `nn.Module` only. Raises `UserError` for anything else, and for a
    module that cannot be exported."""
    if _is(model, "torch.jit", "ScriptModule") or _is(model, "torch.jit", "ScriptFunction"):
        hint = "TorchScript is not supported: pass the torch.nn.Module itself, with example inputs in `args`."
        raise UserError(f"{_what(model)} is not a model", hint=hint)
    if _is(model, "torch.nn", "Module"):
        from .torch_models import from_module

        return from_module(model, args, kwargs, dynamic_shapes)
    if args is not None or kwargs is not None or dynamic_shapes is not None:
        raise UserError(
            f"`args`, `kwargs` and `dynamic_shapes` are for a torch.nn.Module, not for {_what(model)}",
            hint="The inputs of other models are known already. `shapes` fixes their free sizes.",
        )
    if isinstance(model, str | PathLike):
        return Path(model)
    if isinstance(model, bytes | bytearray | memoryview):
        return bytes(model)
    if _is(model, "onnx", "ModelProto"):
        return model
    if _is(model, "torch.export", "ExportedProgram"):
        from .torch_models import from_exported_program

        return from_exported_program(model)
    if _is(model, "torch.onnx", "ONNXProgram"):
        model = model.model
    if _is(model, "onnx_ir", "Model"):
        from .ir_models import detached

        return detached(model)
    is_function = callable(model) and not isinstance(model, type)
    hint = (
        "Only a torch.nn.Module can be exported: make the function the `forward` of one." if is_function else _ACCEPTED
    )
    raise UserError(f"{_what(model)} is not a model", hint=hint)


def _is(value: Any, module: str, name: str) -> bool:
    """Whether a value is of a class of a library. One that was not imported has made no values, and is not imported."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def _what(value: Any) -> str:
    kind = type(value)
    return f"a {kind.__name__}" if kind.__module__ == "builtins" else f"a {kind.__module__}.{kind.__qualname__}"
