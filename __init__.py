"""A declarative graph compiler for ONNX models.

    result  = rewrite.optimize("model.onnx")              # .model .report .explain(node)
    program = rewrite.compile("model.onnx", threads=2)    # native code
    outputs = program.run({"x": array})
    program = rewrite.load("model.rewrite/")              # a bundle written earlier
    session = rewrite.ort.InferenceSession("model.onnx")  # `rewrite.ort` stands in for `onnxruntime`

Names are imported when they are first used (PEP 562), so that `import rewrite` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import VERSION

if TYPE_CHECKING:
    from . import errors, ort, testing
    from .api import compile, load, optimize, sign, tune
    from .backend.sessions import onnx_backend
    from .ort.session import InferenceSession

__version__ = VERSION
__all__ = [
    "InferenceSession", "__version__", "compile", "errors", "load", "onnx_backend", "optimize", "ort", "sign",
    "testing", "tune",
]  # fmt: skip

# Public name -> the module that has it, or that it is.
_EXPORTS = {
    "InferenceSession": ".ort.session",
    "compile": ".api",
    "errors": ".errors",
    "load": ".api",
    "onnx_backend": ".backend.sessions.onnx_backend",
    "optimize": ".api",
    "ort": ".ort",
    "sign": ".api",
    "testing": ".testing",
    "tune": ".api",
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .errors import naming_packages

    with naming_packages(f"rewrite.{name}"):
        module = import_module(_EXPORTS[name], __name__)
    value = globals()[name] = getattr(module, name, module)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
