"""The C compiler: which one there is, and its flags for a target."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath

from ..errors import UserError
from .kernel_graph import Target

_FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing", "-fPIC", "-shared", "-w", "-g0")
_LEVELS: Mapping[tuple[str, str], str] = {
    ("x86_64", "avx512"): "x86-64-v4",
    ("x86_64", "avx2"): "x86-64-v3",
    ("x86_64", "portable"): "x86-64",
    ("aarch64", "portable"): "armv8-a",
}
_OPTIONS: Mapping[str, str] = {"avx512_bf16": "avx512bf16", "avx512_vnni": "avx512vnni", "avx_vnni": "avxvnni"}


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler: the command, and what it says of itself."""

    command: tuple[str, ...]
    version: str

    def flags(self, target: Target) -> tuple[str, ...]:
        """The flags for kernels of a target. They name its instructions, never those of the machine at hand, so that
        kernels are the same wherever they are compiled."""
        level = _LEVELS.get((target.machine, target.isa))
        if level is None:
            return _FLAGS
        extras = [_OPTIONS[feature] for feature in target.features]
        if self.is_zig:
            cpu = {"armv8-a": "generic"}.get(level, level.replace("-", "_"))
            chosen = ["-mcpu=" + "+".join([cpu, *extras])]
        else:
            chosen = [f"-march={level}", *(f"-m{extra}" for extra in extras)]
        if target.isa == "avx512":
            chosen.append("-mprefer-vector-width=512")
        return (*_FLAGS, *chosen)

    @property
    def is_zig(self) -> bool:
        """Whether this is Zig's driver of clang, which names CPUs in its own way."""
        return any(PurePath(word).stem in ("zig", "ziglang") for word in self.command)

    def key(self, target: Target) -> str:
        """A hash of all that decides what the compiler makes of a source."""
        text = repr((self.version, self.flags(target)))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@cache
def find_compiler() -> Compiler:
    """The C compiler to use: $CC, else cc, gcc, clang, else the clang in the `ziglang` wheel.

    Raises UserError, saying what to do, if there is none."""
    tried = []
    for command in _candidates():
        version = _version(command)
        if version is not None:
            return Compiler(command, version)
        tried.append(shlex.join(command))
    if os.environ.get("CC"):
        raise UserError(f"the C compiler named by $CC does not run: {tried[0]}", hint="Correct CC, or unset it.")
    raise UserError(
        "no C compiler found",
        hint="Install gcc or clang, or `pip install onnx-rewrite[zig]`, which brings one along. "
        "Without a compiler, `rewrite MODEL.onnx --emit onnx` still writes the optimised model.",
    )


def _candidates() -> list[tuple[str, ...]]:
    if os.environ.get("CC"):
        return [tuple(shlex.split(os.environ["CC"]))]
    found: list[tuple[str, ...]] = [(c,) for c in ("cc", "gcc", "clang") if shutil.which(c)]
    from importlib.util import find_spec

    if find_spec("ziglang"):
        found.append((sys.executable, "-m", "ziglang", "cc"))
    return found


def _version(command: tuple[str, ...]) -> str | None:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
