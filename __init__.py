"""A declarative graph compiler for ONNX models.

    result  = rewrite.optimize("model.onnx")              # .model .report .explain(node)
    program = rewrite.compile("model.onnx", threads=2)    # native code
    outputs = program.run({"x": array})
    program = rewrite.load("model.rewrite/")              # a bundle written earlier
    session = rewrite.InferenceSession("model.onnx")      # drop-in for the class of the same name in onnxruntime

Names are imported when they are first used (PEP 562), so that `import rewrite` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import VERSION

if TYPE_CHECKING:
    from . import testing
    from .api import compile, load, optimize
    from .backend import onnx_backend
    from .backend.session import InferenceSession

__version__ = VERSION
__all__ = ["InferenceSession", "__version__", "compile", "load", "onnx_backend", "optimize", "testing"]

# Public name -> (module that has it, attribute; "" is the module itself).
_EXPORTS = {
    "InferenceSession": (".backend.session", "InferenceSession"),
    "compile": (".api", "compile"),
    "load": (".api", "load"),
    "onnx_backend": (".backend.onnx_backend", ""),
    "optimize": (".api", "optimize"),
    "testing": (".testing", ""),
}


def __getattr__(name: str) -> Any:
    try:
        module, attribute = _EXPORTS[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    found = import_module(module, __name__)
    value = getattr(found, attribute) if attribute else found
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
