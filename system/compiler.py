"""Commands of the C compilers on this machine."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from importlib.util import find_spec


def c_compilers() -> list[list[str]]:
    """Return the commands to try, best first: only $CC if set, else cc, gcc, clang, and the clang of `ziglang`."""
    if chosen := os.environ.get("CC"):
        return [shlex.split(chosen)]
    return [*_installed("cc", "gcc", "clang"), *_zig()]


def cross_compilers(machine: str) -> list[list[str]]:
    """Return the commands to try for another architecture, best first.

    They are $CC if set, which may not be meant for it, then what distributions call their cross compiler, then the
    clang of `ziglang`."""
    triple = f"{machine}-linux-gnu"
    chosen = [shlex.split(os.environ["CC"])] if os.environ.get("CC") else []
    return [*chosen, *_installed(f"{triple}-gcc"), *_zig("-target", triple)]


def _installed(*names: str) -> list[list[str]]:
    return [[name] for name in names if shutil.which(name)]


def _zig(*arguments: str) -> list[list[str]]:
    return [[sys.executable, "-P", "-m", "ziglang", "cc", *arguments]] if find_spec("ziglang") else []
