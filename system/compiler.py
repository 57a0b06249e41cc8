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
    zig = [[sys.executable, "-m", "ziglang", "cc"]] if find_spec("ziglang") else []
    return [*([c] for c in ("cc", "gcc", "clang") if shutil.which(c)), *zig]
