"""Standing in for `onnxruntime` in this process: `import onnxruntime` gives `rewrite.ort`.

Parts without a counterpart here, such as `onnxruntime.quantization`, are ONNX Runtime's own where it is installed."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from ..system import installed_onnxruntime
from . import errors

_STATE = "capi.onnxruntime_pybind11_state"
_SUBMODULES = ("capi", _STATE, "capi._pybind_state", "capi.onnxruntime_inference_collection")


class _StandIn(ModuleType):
    """A module whose names are those of `rewrite.ort` and of its errors."""

    def __getattr__(self, name: str) -> Any:
        from .. import ort

        if name in errors.NAMES:
            return errors.error_class(name)
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(ort, name)


def capi() -> ModuleType:
    """Return the stand-in for `onnxruntime.capi`."""
    return _modules()["onnxruntime.capi"]


def _modules() -> dict[str, ModuleType]:
    from .. import ort

    root = installed_onnxruntime.NAME
    made = {name: _StandIn(name) for name in (root, *(f"{root}.{part}" for part in _SUBMODULES))}
    for name, module in made.items():
        module.__spec__ = ModuleSpec(name, None, is_package=name in (root, f"{root}.capi"))
        module.__package__ = name
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(made[parent], child, module)
    made[root].__version__ = ort.__version__  # type: ignore[attr-defined]
    made[root].__path__ = []
    made[f"{root}.capi"].__path__ = []
    if installed_onnxruntime.is_installed():
        made[root].__path__ = list(installed_onnxruntime.onnxruntime().__path__)
    return dict(made)


def install() -> None:
    """Let `rewrite.ort` stand in the place of `onnxruntime`, for modules imported from now on."""
    installed_onnxruntime.replace(_modules())


def uninstall() -> None:
    """Undo `install`."""
    installed_onnxruntime.restore()


def run_script(arguments: list[str]) -> None:
    """Run a script, or a module after `-m`, with `onnxruntime` replaced; `arguments` are those of Python.

    Raises FileNotFoundError for a missing script."""
    import runpy

    install()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, "")
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = list(arguments)
    sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
    runpy.run_path(arguments[0], run_name="__main__")
