"""Bundles: a compiled model as a directory that runs without compiling anything.

    MODEL.rewrite/manifest.json     a plan and its kernels for each target; versions, and checksums of all files
    MODEL.rewrite/weights.bin       all constants, laid out for kernels, memory-mapped
    MODEL.rewrite/kernels/*.so      compiled kernels
    MODEL.rewrite/signature.json    who made it, if it was signed (see `signature`)

A bundle may hold the model for several targets, such as AVX2 and AVX-512. The best one for this CPU is loaded, and only
the weights that it reads. A bundle holds machine code: load only those that you trust. Checksums detect damage, not
malice; so does the validation of loops and steps, from whose description the runtime sets pointers (see
`loop_validation` and `step_validation`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError, naming_packages
from ...system.file_contents import size_and_crc
from ...version import VERSION
from ..codegen.render import ABI
from ..ir.kernel import Kernel
from ..ir.kernel_graph import ModelPlan
from ..ir.target import MAX_THREADS, Target, describe, detect, rank, runs_here, thread_count
from ..memory.buffer_assignment import Storage, assign_buffers
from ..runtime.link import Check
from ..runtime.program import Program
from ..toolchain.kernel_cache import load_module
from . import signature
from .loop_validation import check_loops
from .manifest import FORMAT, WEIGHTS, is_intact, load_plan
from .step_validation import check_run, check_steps

_MAKE = "A bundle is the directory that `rewrite MODEL.onnx` writes."
_LARGE = 64 << 20
"""Size of weights in bytes from which loading does not wait until they are checked."""
_AGAIN = "Compile the model again with this version of rewrite on this machine."
_WRONG = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What reading wrong data raises."""


def load(
    path: Path | str,
    *,
    threads: int | None = None,
    trusted: Sequence[Path] = (),
    complete: bool = False,
    cached: bool = False,
) -> Program:
    """Load a bundle: the best of its variants that this CPU can run.

    Large weights are checked by another thread, for which the first run of the program waits; it raises the error. If
    `complete`, they are checked before this returns.

    The numbers of each run are checked as well, unless the bundle is `cached`: one that this user's programs wrote.

    With `trusted`, files of public keys, only a bundle that one of them signed is loaded. Raises UserError if it is not
    a bundle, is damaged, was made by another version or for other CPUs, or is not signed so."""
    path = Path(path)
    if threads is not None:
        threads = thread_count(threads)
    manifest = read_manifest(path)
    try:
        pool = ThreadPoolExecutor(1)  # checks weights while the rest loads
        try:
            files = dict(manifest["files"])
            if trusted:
                signature.check(path, trusted, ("manifest.json", *files))
            weights = {WEIGHTS: files.pop(WEIGHTS)}
            _check(path, files)
            weighed = pool.submit(_check, path, weights)
            program = _link(path, manifest, threads, cached)
            if complete or weights[WEIGHTS][0] < _LARGE:
                weighed.result()
            else:
                program.wait_for(weighed)
        finally:
            pool.shutdown(wait=False)
        return program
    except _WRONG as error:
        raise _damaged(path, f"its manifest is wrong ({error})") from error
    except FileNotFoundError as error:
        name = Path(error.filename).name if error.filename else "a file"
        raise _damaged(path, f"{name} is missing") from error
    except OSError as error:
        raise UserError(f"the bundle cannot be read: {error.strerror or error}", where=str(path)) from error


def _damaged(path: Path, problem: str) -> UserError:
    return UserError(f"the bundle is damaged: {problem}", where=str(path), hint=_AGAIN)


def _check(path: Path, files: Mapping[str, Sequence[int]]) -> None:
    """Raise UserError for a file that has changed since it was written."""
    for name, wanted in files.items():
        if not re.fullmatch(r"[\w.]+(/[\w.]+)?", name) or ".." in name:
            raise _damaged(path, "a file's name is wrong")
        if list(size_and_crc(path / name)) != wanted:
            raise _damaged(path, f"{name} has changed")


def _link(path: Path, manifest: Mapping[str, Any], threads: int | None, cached: bool) -> Program:
    """Return the program of the best variant, with its weights mapped."""
    target, variant = _choose(path, manifest["variants"])
    table = _modules(path, variant["modules"], manifest["files"])
    size = (path / WEIGHTS).stat().st_size
    weights = np.memmap(path / WEIGHTS, np.uint8, "r") if size else np.empty(0, np.uint8)
    kernels = {n: Kernel(k["template"], k["params"]) for n, k in variant["kernels"].items()}
    plan = load_plan(variant["plan"], kernels, weights)
    check_loops(plan)
    check_steps(plan)
    addresses = {kernel: table[name] for name, kernel in kernels.items()}
    stated = manifest["threads"]
    if not isinstance(stated, int) or not 1 <= stated <= MAX_THREADS:
        raise ValueError(f"{stated!r} threads")
    check = None if cached else _run_check(path)
    return Program(
        plan,
        assign_buffers(plan),
        addresses,
        threads=threads or stated,
        variants=[(target, plan)],
        save=_save,
        check=check,
    )


def _run_check(path: Path) -> Check:
    """Return the check of the numbers of each run, with errors that name the bundle."""

    def checked(storage: Storage, number: int, extents: Mapping[str, int], fits: bool) -> None:
        try:
            check_run(storage, number, extents, fits)
        except _WRONG as error:
            raise _damaged(path, f"its manifest is wrong ({error})") from error

    return checked


def _save(variants: Sequence[tuple[Target, ModelPlan]], path: Path | str, *, threads: int) -> Path:
    """Write a bundle. Imported here: a process that only runs bundles does without the C compiler's driver."""
    with naming_packages("saving a program"):
        from .save_bundle import save

    return save(variants, path, threads=threads)


def is_bundle(path: Path | str) -> bool:
    """Return whether a path looks like a bundle."""
    return (Path(path) / "manifest.json").is_file()


def _choose(path: Path, variants: Iterable[Mapping[str, Any]]) -> tuple[Target, Mapping[str, Any]]:
    """Return the best variant for this CPU, and its target. Raises UserError if it can run none."""
    here = detect()
    found = []
    for variant in variants:
        made = variant["target"]
        isa, features, machine = str(made["isa"]), tuple(map(str, made["features"])), str(made["machine"])
        found.append((replace(here, isa=isa, features=features, machine=machine), variant))
    fitting = [(target, variant) for target, variant in found if runs_here(target)]
    if not fitting:
        wanted = ", ".join(describe(target) for target, _ in found)
        raise UserError(
            f"this CPU ({describe(here)}) cannot run the bundle's kernels, which are for {wanted}",
            where=str(path),
            hint="Compile the model again with `--target`, which takes several: --target portable,avx2,avx512.",
        )
    return min(fitting, key=lambda one: rank(one[0]))


def read_manifest(path: Path) -> Mapping[str, Any]:
    """Return the manifest of a bundle of this version. Raises UserError for anything else."""
    if not is_bundle(path):
        problem = "this is not a bundle: it has no manifest.json" if path.exists() else "there is no such bundle"
        raise UserError(problem, where=str(path), hint=_MAKE)
    try:
        text = (path / "manifest.json").read_bytes()
        manifest: Mapping[str, Any] = json.loads(text)
        found = (manifest["format"], manifest["abi"])
    except OSError as error:
        raise UserError(f"the bundle cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, "its manifest is not valid JSON") from error
    if found != (FORMAT, ABI):
        raise UserError(
            f"the bundle was made by version {manifest.get('version')} of rewrite (format {found[0]}.{found[1]}), "
            f"this is {VERSION} (format {FORMAT}.{ABI})",
            where=str(path),
            hint=_AGAIN,
        )
    if not is_intact(text):
        raise _damaged(path, "its manifest has changed")
    return manifest


def _modules(path: Path, modules: Iterable[str], files: Mapping[str, str]) -> dict[str, int]:
    """Return the addresses of the kernels in the shared objects of the bundle."""
    table: dict[str, int] = {}
    for module in modules:
        name = f"kernels/{module}.so"
        if name not in files:
            raise KeyError(name)
        try:
            table.update(load_module(module, path / name))
        except OSError as error:
            raise UserError(f"the bundle's kernels cannot be loaded: {error}", where=str(path), hint=_AGAIN) from error
    return table
