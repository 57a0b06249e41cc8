"""ONNX Runtime's errors: of its classes too where it is installed, so that `except` clauses written for it catch ours.

Classes are made when they are first used, since importing ONNX Runtime takes longer than starting a cached program."""

from __future__ import annotations

from functools import cache
from typing import Any

from ..errors import UserError
from ..system import installed_onnxruntime

NAMES = (
    "DeviceReset", "EPFail", "EngineError", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf",
    "ModelLoadCanceled", "ModelLoaded", "ModelRequiresCompilation", "NoModel", "NoSuchFile", "NotFound",
    "NotImplemented", "RuntimeException",
)  # fmt: skip


MISSING_INPUT = "MissingInput"
"""Our own: an InvalidArgument that is a ValueError too, as ONNX Runtime raises for missing inputs."""


@cache
def error_class(name: str) -> Any:
    """Return the class of errors of this name: a `UserError`, and ONNX Runtime's own if that is installed."""
    if name == MISSING_INPUT:
        return type(name, (error_class("InvalidArgument"), ValueError), {"__module__": __name__, "__doc__": None})
    bases: list[type[Exception]] = [UserError]
    if installed_onnxruntime.is_installed():
        state = installed_onnxruntime.onnxruntime().capi.onnxruntime_pybind11_state
        if isinstance(theirs := getattr(state, name, None), type):
            bases.append(theirs)
    return type(name, tuple(bases), {"__module__": __name__, "__doc__": f"ONNX Runtime's `{name}`."})


def make(name: str, error: UserError) -> UserError:
    """Return the same error as one of the class `name`."""
    found: UserError = error_class(name)(error.message, where=error.where, hint=error.hint)
    return found


def __getattr__(name: str) -> Any:
    if name in (*NAMES, MISSING_INPUT):
        return error_class(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
