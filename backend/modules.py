"""Loading of compiled modules. (Apart from `build`: a process that runs bundles does without what compiling takes.)"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

_LOADED: dict[tuple[str, str], ModuleType] = {}


def load_module(name: str, path: Path) -> ModuleType:
    """Imports a compiled module from a file (once per name in a process: the name is a hash of its source).

    Raises ImportError if it isn't one."""
    key = (name, path.parent.name)
    if key not in _LOADED:
        loader = importlib.machinery.ExtensionFileLoader(name, str(path))
        spec = importlib.util.spec_from_file_location(name, str(path), loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        _LOADED[key] = module
    return _LOADED[key]
