"""A stand-in for `onnxruntime`: its names, on programs that `rewrite` compiles.

    import rewrite.ort as onnxruntime

In: models and options as ONNX Runtime takes them. Out: its results, errors and descriptions. `python -m rewrite.ort
script.py` runs a script with the package replaced; `docs/onnxruntime.md` lists every name of the interface."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import errors
    from .metadata import ModelMetadata, NodeArg
    from .options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions
    from .session import InferenceSession
    from .values import IOBinding, OrtDevice, OrtValue

__version__ = "1.32.0"
"""Version of ONNX Runtime whose interface this is."""

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtDevice",
    "OrtValue",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "capi",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "errors",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
]  # fmt: skip

_EXPORTS = {
    "ExecutionMode": ".options",
    "ExecutionOrder": ".options",
    "GraphOptimizationLevel": ".options",
    "IOBinding": ".values",
    "InferenceSession": ".session",
    "ModelMetadata": ".metadata",
    "NodeArg": ".metadata",
    "OrtDevice": ".values",
    "OrtValue": ".values",
    "RunOptions": ".options",
    "SessionOptions": ".options",
}


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        value = getattr(import_module(_EXPORTS[name], __name__), name)
    elif name == "SessionIOBinding":
        value = import_module(".values", __name__).IOBinding
    elif name == "errors":
        value = import_module(".errors", __name__)
    elif name == "capi":
        value = import_module(".replacement", __name__).capi()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def get_available_providers() -> list[str]:
    """Return the devices on which models can run."""
    return ["CPUExecutionProvider"]


def get_all_providers() -> list[str]:
    """Return the devices on which models can run."""
    return get_available_providers()


def get_device() -> str:
    """Return `CPU`."""
    return "CPU"


def get_version_string() -> str:
    """Return the version of ONNX Runtime whose interface this is."""
    return __version__


def get_build_info() -> str:
    """Return the name and version of this package."""
    from ..version import VERSION

    return f"rewrite {VERSION}"


def set_default_logger_severity(severity: int) -> None:
    """Set the level of the logger `rewrite.ort`: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal."""
    from .options import set_severity

    set_severity(severity)


def set_default_logger_verbosity(level: int) -> None:
    """Do nothing: there are no levels below verbose."""


def set_seed(seed: int) -> None:
    """Do nothing: random operators are seeded by their own attributes only."""
    from .options import note_once

    note_once("set_seed has no effect: random operators are seeded by their own attributes")


def set_global_thread_pool_sizes(intra_op: int, inter_op: int) -> None:
    """Do nothing: each session has its own number of threads."""
    from .options import note_once

    note_once("set_global_thread_pool_sizes has no effect: set intra_op_num_threads of each session")


def enable_telemetry_events() -> None:
    """Do nothing: nothing is reported to anyone."""


def disable_telemetry_events() -> None:
    """Do nothing: nothing is reported to anyone."""
