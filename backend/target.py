"""Detection of the machine and of a C compiler."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..errors import UserError
from .kernel_graph import Target

_CPU = Path("/sys/devices/system/cpu")
_AVX512 = {"avx512f", "avx512dq", "avx512bw", "avx512vl"}
_AVX2 = {"avx2", "fma"}


@cache
def detect() -> Target:
    """This machine as a target."""
    flags, model = _cpu_info()
    if flags >= _AVX512:
        isa, width = "avx512", 64
    elif flags >= _AVX2:
        isa, width = "avx2", 32
    else:
        isa, width = "portable", 16
    sizes = _cache_sizes()
    cpu = hashlib.blake2b(repr((platform.machine(), model, sorted(flags))).encode(), digest_size=8).hexdigest()
    return Target(
        isa=isa,
        vector_bytes=width,
        cores=cores(),
        l1=sizes.get(1, 32 << 10),
        l2=sizes.get(2, 512 << 10),
        l3=sizes.get(3, 8 << 20),
        cpu=cpu,
    )


def cores() -> int:
    """How many CPUs this process may use."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:
        return os.cpu_count() or 1


def _cpu_info() -> tuple[frozenset[str], str]:
    """The CPU's features and the name of its model, as the kernel tells them; both empty where it doesn't."""
    flags: frozenset[str] = frozenset()
    model = platform.processor()
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return flags, model
    fields = [(key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in text.splitlines())]
    for key, value in fields:
        if key in ("flags", "Features") and not flags:
            flags = frozenset(value.split())
    names = {"vendor_id", "cpu family", "model", "model name", "stepping", "CPU part"}
    return flags, "/".join(dict.fromkeys(value for key, value in fields if key in names))


def _cache_sizes() -> dict[int, int]:
    """Bytes of the data cache of each level of the first CPU."""
    sizes: dict[int, int] = {}
    for index in sorted((_CPU / "cpu0/cache").glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            text = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and text[:-1].isdigit():
            sizes[level] = int(text[:-1]) << {"K": 10, "M": 20}.get(text[-1], 0)
    return sizes


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler: the command, what it says of itself, and the flags for kernels."""

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]

    @property
    def key(self) -> str:
        """A hash of version and flags."""
        return hashlib.blake2b(repr((self.version, self.flags)).encode(), digest_size=8).hexdigest()


_FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing", "-fPIC", "-shared", "-w", "-g0")


@cache
def find_compiler() -> Compiler:
    """The C compiler to use: $CC, else cc, gcc, clang, else the clang in the `ziglang` wheel.

    Raises UserError, saying what to do, if there is none."""
    tried = []
    for command in _candidates():
        version = _version(command)
        if version is None:
            tried.append(shlex.join(command))
            continue
        native = ("-march=native", "-mprefer-vector-width=512") if platform.machine() == "x86_64" else ("-mcpu=native",)
        return Compiler(command, version, (*_FLAGS, *native))
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
