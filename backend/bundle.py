"""Bundles: a compiled model as a directory that runs without compiling anything.

    MODEL.rewrite/manifest.json     for each target a plan and its kernels; versions, and checksums of the other files
    MODEL.rewrite/weights.bin       all constants, laid out for kernels, memory-mapped
    MODEL.rewrite/kernels/*.so      compiled kernels

One bundle may hold the model for several targets (AVX2 and AVX-512, say): the best that the CPU can run is loaded, and
of the file of weights only what that one reads. A bundle holds machine code: load only those that you trust. The
checksums find damage, not malice, and so does the check of what the manifest says of loops, by which the runtime sets
pointers (see `loop_check`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ..checksum import checksum
from ..errors import UserError
from ..version import VERSION
from .kernel_graph import Kernel, Target
from .loop_check import check_loops
from .manifest import FORMAT, WEIGHTS, load_plan
from .modules import load_module
from .program import Program
from .render import ABI
from .target import describe, detect, rank, runs_here, thread_count

_MAKE = "A bundle is the directory that `rewrite MODEL.onnx` writes."
_AGAIN = "Compile the model again with this version of rewrite on this machine."


def load(path: Path | str, *, threads: int | None = None) -> Program:
    """Loads a bundle: the best of its variants that this CPU can run.

    Raises UserError for what isn't a bundle, is damaged, or was made by another version or for other CPUs."""
    path = Path(path)
    if threads is not None:
        threads = thread_count(threads)
    manifest = _read_manifest(path)
    try:
        with ThreadPoolExecutor(2) as pool:  # of weights while the rest is loaded
            _check(path, {n: d for n, d in manifest["files"].items() if n != WEIGHTS})
            weighed = pool.submit(_check, path, {n: d for n, d in manifest["files"].items() if n == WEIGHTS})
            program = _link(path, manifest, threads)
            weighed.result()
        return program
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"the bundle is damaged: its manifest is wrong ({error})", where=str(path), hint=_AGAIN
        ) from error
    except FileNotFoundError as error:
        name = Path(error.filename).name if error.filename else "a file"
        raise UserError(f"the bundle is damaged: {name} is missing", where=str(path), hint=_AGAIN) from error
    except OSError as error:
        raise UserError(f"the bundle cannot be read: {error.strerror or error}", where=str(path)) from error


def _check(path: Path, files: Mapping[str, str]) -> None:
    """Raises UserError for a file that isn't as it was written."""
    for name, digest in files.items():
        if not re.fullmatch(r"[\w.]+(/[\w.]+)?", name) or ".." in name:
            raise UserError("the bundle is damaged: a file's name is wrong", where=str(path), hint=_AGAIN)
        if checksum(path / name) != digest:
            raise UserError(f"the bundle is damaged: {name} has changed", where=str(path), hint=_AGAIN)


def _link(path: Path, manifest: Mapping[str, Any], threads: int | None) -> Program:
    """The program of the best variant, its weights mapped."""
    if WEIGHTS not in manifest["files"]:
        raise KeyError(WEIGHTS)
    target, variant = _choose(path, manifest["variants"])
    table = _modules(path, variant["modules"], manifest["files"])
    size = (path / WEIGHTS).stat().st_size
    weights = np.memmap(path / WEIGHTS, np.uint8, "r") if size else np.empty(0, np.uint8)
    kernels = {n: Kernel(k["template"], k["params"], k["weight"]) for n, k in variant["kernels"].items()}
    plan = load_plan(variant["plan"], kernels, weights)
    check_loops(plan)
    addresses = {kernel: table[name] for name, kernel in kernels.items()}
    return Program(plan, addresses, threads=threads or int(manifest["threads"]), variants=[(target, plan)])


def is_bundle(path: Path | str) -> bool:
    """Whether this looks like a bundle."""
    return (Path(path) / "manifest.json").is_file()


def _choose(path: Path, variants: Iterable[Mapping[str, Any]]) -> tuple[Target, Mapping[str, Any]]:
    """The best variant for this CPU and its target. Raises UserError if it can run none."""
    here = detect()
    found = []
    for variant in variants:
        made = variant["target"]
        target = Target(
            str(made["isa"]),
            here.vector_bytes,
            here.cores,
            here.l1,
            here.l2,
            here.l3,
            tuple(map(str, made["features"])),
            str(made["machine"]),
        )
        found.append((target, variant))
    fitting = [(target, variant) for target, variant in found if runs_here(target)]
    if not fitting:
        wanted = ", ".join(describe(target) for target, _ in found)
        raise UserError(
            f"this CPU can run none of the kernels in the bundle: they are for {wanted}; it has {describe(here)}",
            where=str(path),
            hint="Compile the model again with `--target`, which takes several: --target portable,avx2,avx512.",
        )
    return min(fitting, key=lambda one: rank(one[0]))


def _read_manifest(path: Path) -> Mapping[str, Any]:
    if not path.exists():
        raise UserError("there is no such bundle", where=str(path), hint=_MAKE)
    if not is_bundle(path):
        raise UserError("this is no bundle: it has no manifest.json", where=str(path), hint=_MAKE)
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
        found = (manifest["format"], manifest["abi"])
    except OSError as error:
        raise UserError(f"the bundle cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            "the bundle is damaged: its manifest is no valid JSON of that kind", where=str(path), hint=_AGAIN
        ) from error
    if found != (FORMAT, ABI):
        raise UserError(
            f"the bundle was made by version {manifest.get('version')} of rewrite (format {found[0]}.{found[1]}), "
            f"this is {VERSION} (format {FORMAT}.{ABI})",
            where=str(path),
            hint=_AGAIN,
        )
    return manifest  # type: ignore[no-any-return]


def _modules(path: Path, modules: Iterable[str], files: Mapping[str, str]) -> dict[str, int]:
    """The addresses of the kernels in libraries of the bundle."""
    table: dict[str, int] = {}
    for module in modules:
        name = f"kernels/{module}.so"
        if name not in files:
            raise KeyError(name)
        try:
            table.update(load_module(module, path / name).table())
        except ImportError as error:
            raise UserError(
                f"the bundle's kernels don't load (made with another Python?): {error}", where=str(path), hint=_AGAIN
            ) from error
    return table
