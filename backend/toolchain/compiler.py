"""The C compiler: finding one, and its flags for a target."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath

from ...errors import UserError
from ...system.compiler import c_compilers, cross_compilers
from ...system.hardware import architecture
from ..ir.target import Target

_FLAGS = (
    *("-O3", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing"),
    "-fwrapv",  # integers of a model wrap around, which C leaves undefined for signed ones
    *("-fPIC", "-shared", "-w", "-g0"),
)
_LEAN = (
    "-O1",
    "-fexpensive-optimizations",  # makes multiply-adds of vectors
    "-fpeel-loops",  # unrolls short loops over vectors in registers
    "-fgcse",  # Winograd's transforms take 2 % longer without
    *("-fno-tree-pta", "-fno-ipa-pure-const", "-fno-ipa-reference"),
    *("-fno-tree-dominator-opts", "-fno-thread-jumps", "-fno-tree-dse", "-fno-dse", "-fno-dce"),
    *("-fno-tree-slsr", "-fno-tree-reassoc", "-fno-tree-sink", "-fno-ssa-phiopt", "-fno-tree-cselim"),
    *("-fno-tree-phiprop", "-fno-tree-bit-ccp", "-fno-ssa-backprop", "-fno-tree-builtin-call-dce"),
)
"""Options that replace -O3 for gcc where a text leaves little to optimize: it takes 0.55 times as long."""
_LEVELS: Mapping[tuple[str, str], str] = {
    ("x86_64", "avx512"): "x86-64-v4",
    ("x86_64", "avx2"): "x86-64-v3",
    ("x86_64", "portable"): "x86-64",
    ("aarch64", "neon"): "armv8-a",
}
_OPTIONS: Mapping[str, str] = {
    "avx512_bf16": "avx512bf16",
    "avx512_vnni": "avx512vnni",
    "avx_vnni": "avxvnni",
    "amx_bf16": "amx-bf16",
    "amx_int8": "amx-int8",
}
_IN_ASSEMBLER = ("amx_bf16", "amx_int8")
"""Features whose instructions are written out in assembler: gcc needs no option for them, and gcc 10 has none."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler: its command and version text."""

    command: tuple[str, ...]
    version: str

    def flags(self, target: Target, *, lean: bool = False) -> tuple[str, ...]:
        """Return the flags for kernels of a target; `lean`: for those whose vectors are written out.

        They name its instructions, never those of this machine, so that kernels are the same wherever they are
        compiled. Lean ones differ where kernels were measured with them: for gcc and x86-64."""
        level = _LEVELS.get((target.machine, target.isa))
        if level is None:
            return _FLAGS
        named = (f for f in target.features if self.is_clang or f not in _IN_ASSEMBLER)
        extras = [_OPTIONS[feature] for feature in named]
        if self.is_zig:
            cpu = {"armv8-a": "generic"}.get(level, level.replace("-", "_"))
            chosen = ["-mcpu=" + "+".join([cpu, *extras]).replace("amx-", "amx_")]
        else:
            chosen = [f"-march={level}", *(f"-m{extra}" for extra in extras)]
        if target.isa == "avx512":
            chosen.append("-mprefer-vector-width=512")
        if target.machine == "aarch64" and not self.is_zig:
            # gcc would load all elements of a step first, and spill sums: more are alive than there are registers
            chosen.append("-fno-schedule-insns")
        if lean and target.machine == "x86_64" and self.is_gcc:
            chosen += _LEAN
        return (*_FLAGS, *chosen)

    @property
    def is_gcc(self) -> bool:
        """Whether this is gcc, whatever its command: its version text names who publishes it."""
        return "Free Software Foundation" in self.version

    @property
    def is_clang(self) -> bool:
        """Whether this is clang, by itself or as Zig's."""
        return self.is_zig or "clang" in self.version

    @property
    def is_zig(self) -> bool:
        """Whether this is Zig's driver of clang, which has its own names of CPUs."""
        return any(PurePath(word).stem in ("zig", "ziglang") for word in self.command)

    def key(self, target: Target) -> str:
        """Return a hash of everything that affects the machine code of a source."""
        text = repr((self.version, self.flags(target), self.flags(target, lean=True)))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@cache
def find_compiler(machine: str = "") -> Compiler:
    """Return the C compiler for an architecture; for this one if it is empty.

    For this one it is $CC, else cc, gcc, clang, else the clang of the `ziglang` wheel; for another $CC if that makes
    its code, else the distribution's cross compiler (`aarch64-linux-gnu-gcc`), else the clang of the `ziglang` wheel.
    Raises UserError if there is none."""
    foreign = machine not in ("", architecture())
    commands = cross_compilers(machine) if foreign else c_compilers()
    for command in commands:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            if not foreign or _ask(command, "-dumpmachine").startswith(f"{machine}-"):
                return Compiler(tuple(command), _ask(command, "--version"))
    if foreign:
        raise UserError(
            f"no C compiler for {machine} found",
            hint=f"Install gcc-{machine.replace('_', '-')}-linux-gnu, or `pip install onnx-rewrite[zig]`, whose "
            "compiler makes code for every architecture, or name one by CC.",
        )
    if os.environ.get("CC"):
        problem = f"the C compiler named by $CC does not run: {shlex.join(commands[0])}"
        raise UserError(problem, hint="Correct CC, or unset it.")
    raise UserError(
        "no C compiler found",
        hint="Install gcc or clang, or `pip install onnx-rewrite[zig]`, which includes one. "
        "Without a compiler, `rewrite MODEL.onnx --emit onnx` still writes the optimized model.",
    )


def _ask(command: Sequence[str], option: str) -> str:
    """Return what a compiler prints for an option."""
    done = subprocess.run([*command, option], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()
