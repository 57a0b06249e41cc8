"""Bundles for C: what a program in C needs to run a bundle, written into its directory.

    MODEL.rewrite/include/rewrite.h    the interface
    MODEL.rewrite/lib/librewrite.so    the library, for the architecture of the bundle
    MODEL.rewrite/plan.bin             the plan of each target (see `c_plan`)

`cc main.c -I MODEL.rewrite/include -L MODEL.rewrite/lib -lrewrite` links a program with it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.ir.graph import Constant
from ...errors import RewriteError, UserError
from ...system import scoped
from ..ir.arrays import address
from ..ir.kernel import Kernel
from ..ir.target import Target, detect
from ..toolchain.compiler import find_compiler
from .c_plan import NAME, Variant, refusal, write_plan
from .load_bundle import read_manifest
from .loop_validation import check_loops
from .manifest import WEIGHTS, load_plan

SOURCES = Path(__file__).parents[1] / "runtime" / "c_library"
FLAGS = ("-std=gnu11", "-O3", "-g0", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")


def add_c(bundle: Path) -> str:
    """Write what C needs into a bundle; return why C cannot run it, empty if it can.

    The library then refuses to open it with the same reason. Raises UserError if it is not a bundle or cannot be
    written to, if its targets are of several architectures, and without a C compiler for theirs."""
    manifest = read_manifest(bundle)
    variants, weights = _variants(bundle, manifest)
    machines = sorted({variant.target.machine for variant in variants})
    if len(machines) != 1:
        hint = "Make a bundle for each with --target."
        raise UserError(
            f"a bundle for C has one architecture, not {' and '.join(machines)}", where=str(bundle), hint=hint
        )
    files = {name: (size, crc) for name, (size, crc) in manifest["files"].items()}
    plan = write_plan(variants, files, weights, int(manifest["threads"]))
    try:
        for folder in ("include", "lib"):
            (bundle / folder).mkdir(exist_ok=True)
        with scoped.replacing(bundle / "include" / "rewrite.h") as file:
            file.write((SOURCES / "rewrite.h").read_bytes())
        with scoped.replacing(bundle / "lib" / "librewrite.so") as file:
            file.write(build_library(machines[0]))
        with scoped.replacing(bundle / NAME) as file:
            file.write(plan)
    except OSError as error:
        raise UserError(f"the bundle cannot be written: {error.strerror or error}", where=str(bundle)) from error
    return next(filter(None, (refusal(variant.plan) for variant in variants)), "")


def _variants(bundle: Path, manifest: Mapping[str, Any]) -> tuple[list[Variant], _Mapped]:
    size = (bundle / WEIGHTS).stat().st_size
    weights = np.memmap(bundle / WEIGHTS, np.uint8, "r") if size else np.empty(0, np.uint8)
    found = []
    for entry in manifest["variants"]:
        made = entry["target"]
        target = replace(detect(), machine=made["machine"], isa=made["isa"], features=tuple(made["features"]))
        kernels = {name: Kernel(k["template"], k["params"]) for name, k in entry["kernels"].items()}
        plan = load_plan(entry["plan"], kernels, weights)
        check_loops(plan)
        found.append(Variant(target, plan, {kernel: name for name, kernel in kernels.items()}, entry["modules"]))
    return found, _Mapped(weights)


class _Mapped:
    """The weights of a bundle that was written: where each constant is in their file."""

    def __init__(self, weights: NDArray[np.uint8]) -> None:
        self._start, self._size = address(weights), weights.nbytes

    def offset(self, constant: Constant) -> int:
        """Return the offset of a constant in the file."""
        found = address(constant.array) - self._start
        assert 0 <= found <= self._size
        return found


@cache
def build_library(machine: str) -> bytes:
    """Return the shared library for an architecture, compiled for its baseline.

    Raises UserError without a C compiler for it, RewriteError if that rejects the source."""
    compiler = find_compiler(machine)
    target = Target("portable" if machine != "aarch64" else "neon", 16, 1, machine=machine)
    level = [flag for flag in compiler.flags(target) if flag.startswith(("-march", "-mcpu"))]
    with scoped.directory("library") as folder:
        output = folder / "librewrite.so"
        command = [*compiler.command, *FLAGS, *level, "-o", str(output), str(SOURCES / "rewrite.c"), "-ldl"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise RewriteError(f"the C compiler rejects the library: {done.stderr.strip()[:2000]}")
        return output.read_bytes()
