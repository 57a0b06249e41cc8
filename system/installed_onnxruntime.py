"""ONNX Runtime where it is installed, also in a process where `rewrite.ort` stands in its place."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

NAME = "onnxruntime"
EXACT = ("session.x64quantprecision", "1")
"""Entry of its session options. Without VNNI it adds two products of bytes in 16 bits, which saturates; with this entry
it takes slower kernels that do not, where the signed bytes are constants."""
_replaced: dict[str, ModuleType] = {}
"""Modules of ours that stand for ONNX Runtime's in `sys.modules`, by name."""
_originals: dict[str, ModuleType] = {}
"""ONNX Runtime's modules of the same names, once they were loaded."""
_lock = threading.RLock()


def is_installed() -> bool:
    """Whether the package can be imported."""
    if NAME in _originals:
        return True
    with _lock:
        hidden = {name: sys.modules.pop(name) for name in _replaced if name in sys.modules}
        try:
            return importlib.util.find_spec(NAME) is not None
        except (ImportError, ValueError):  # a module without a spec
            return False
        finally:
            sys.modules.update(hidden)


def onnxruntime() -> Any:
    """Return the package itself, whatever stands under its name. Raises ImportError if it is not installed."""
    with _lock:
        if not _replaced:
            return importlib.import_module(NAME)
        if NAME not in _originals:
            hidden = {name: sys.modules.pop(name) for name in _replaced if name in sys.modules}
            try:
                importlib.import_module(NAME)
                _originals.update({name: sys.modules[name] for name in hidden if name in sys.modules})
            finally:
                sys.modules.update(hidden)
        return _originals[NAME]


def replace(modules: dict[str, ModuleType]) -> None:
    """Let `modules` stand under their names in `sys.modules`; what stood there stays available to `onnxruntime`."""
    with _lock:
        if NAME in sys.modules and not _replaced:
            _originals.update({name: sys.modules[name] for name in modules if name in sys.modules})
        _replaced.update(modules)
        sys.modules.update(modules)


def restore() -> None:
    """Undo `replace`."""
    with _lock:
        for name in _replaced:
            sys.modules.pop(name, None)
        sys.modules.update(_originals)
        _replaced.clear()
