"""Bundles: a compiled model as a directory that runs without compiling anything.

    MODEL.rewrite/manifest.json     the plan, the kernels, versions, and the checksums of the other files
    MODEL.rewrite/weights.bin       all constants, laid out for kernels, memory-mapped
    MODEL.rewrite/kernels/*.so      compiled kernels
    MODEL.rewrite/kernels/*.pyx,.h  their sources, from which they are rebuilt on another CPU of the same kind

A bundle holds machine code: load only those that you trust. The checksums find damage, not malice.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import transient
from ..errors import UserError
from ..version import VERSION
from .build import compile_source, load_module, module_name
from .cache import Cache
from .kernel_graph import Kernel, Target
from .manifest import Weights, dump_plan, load_plan
from .program import Program
from .render import ABI, TEMPLATES, render_kernel, render_module
from .target import detect, find_compiler

FORMAT = 3
_MAKE = "A bundle is the directory that `rewrite MODEL.onnx` writes."
_AGAIN = "Compile the model again with this version of rewrite on this machine."


def save(program: Program, path: Path | str, *, cache_dir: Path | str | None = None) -> Path:
    """Writes a program as a bundle, all or nothing; the path.

    An older bundle there is replaced. Raises UserError if anything else is there, or it can't be written."""
    path = Path(path)
    if path.exists() and not (path.is_dir() and ((path / "manifest.json").is_file() or not any(path.iterdir()))):
        raise UserError("this exists and is no bundle", where=str(path), hint="Choose another place, or remove it.")
    target = detect()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with transient.directory_beside(path) as temporary:
            fresh, old = temporary / "fresh", temporary / "old"
            fresh.mkdir()
            _write(program, fresh, target, Cache(cache_dir))
            if path.exists():
                os.rename(path, old)
            try:
                os.rename(fresh, path)
            except BaseException:
                if old.exists():
                    os.rename(old, path)
                raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"the bundle cannot be written: {reason}", where=str(path)) from error
    return path


def _write(program: Program, folder: Path, target: Target, cache: Cache) -> None:
    from .build import build

    kernels = program.plan.kernels
    (folder / "kernels").mkdir()
    names = {}
    sources: dict[str, list[str]] = {}
    if kernels:
        library = build(kernels, target, cache)
        for module, file in library.files.items():
            shutil.copyfile(file, folder / "kernels" / f"{module}.so")
        rendered = [render_kernel(kernel, target) for kernel in kernels]
        names = {kernel: r.name for kernel, r in zip(kernels, rendered, strict=True)}
        text = render_module(rendered)
        (folder / "kernels" / f"{module_name(text)}.pyx").write_text(text)
        sources[module_name(text)] = [r.name for r in rendered]
        for header in _headers():
            shutil.copyfile(header, folder / "kernels" / header.name)
    weights = Weights()
    plan = dump_plan(program.plan, names, weights)
    with open(folder / "weights.bin", "wb") as blob:
        weights.write(blob)
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "abi": ABI,
        "target": {"isa": target.isa, "cpu": target.cpu},
        "threads": program.threads,
        "files": {p.relative_to(folder).as_posix(): _checksum(p) for p in files},
        "kernels": {n: {"template": k.template, "params": k.params, "weight": k.weight} for k, n in names.items()},
        "sources": sources,
        "plan": plan,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, separators=(",", ":")))


def _headers() -> list[Path]:
    return sorted(TEMPLATES.glob("*.h"))


def load(path: Path | str, *, threads: int | None = None, cache_dir: Path | str | None = None) -> Program:
    """Loads a bundle. Kernels made for another CPU of the same instruction set are compiled anew from their sources.

    Raises UserError for what isn't a bundle, is damaged, or was made by another version or for another kind of CPU."""
    path = Path(path)
    manifest = _read_manifest(path)
    try:
        for name, checksum in manifest["files"].items():
            if not re.fullmatch(r"[\w.]+(/[\w.]+)?", name) or ".." in name:
                raise UserError("the bundle is damaged: a file's name is wrong", where=str(path), hint=_AGAIN)
            if _checksum(path / name) != checksum:
                raise UserError(f"the bundle is damaged: {name} has changed", where=str(path), hint=_AGAIN)
        target = detect()
        if manifest["target"]["isa"] != target.isa:
            raise UserError(
                f"the bundle was made for a CPU with {manifest['target']['isa']}, this one has {target.isa}",
                where=str(path),
                hint=_AGAIN,
            )
        same = manifest["target"]["cpu"] == target.cpu
        table = _modules(path, manifest) if same else _rebuild(path, manifest, target, Cache(cache_dir))
        size = (path / "weights.bin").stat().st_size
        weights = np.memmap(path / "weights.bin", np.uint8, "r") if size else np.empty(0, np.uint8)
        kernels = {n: Kernel(k["template"], k["params"], k["weight"]) for n, k in manifest["kernels"].items()}
        plan = load_plan(manifest["plan"], kernels, weights)
        addresses = {kernel: table[name] for name, kernel in kernels.items()}
        return Program(plan, addresses, threads=threads or int(manifest["threads"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"the bundle is damaged: its manifest is wrong ({error})", where=str(path), hint=_AGAIN
        ) from error
    except FileNotFoundError as error:
        name = Path(error.filename).name if error.filename else "a file"
        raise UserError(f"the bundle is damaged: {name} is missing", where=str(path), hint=_AGAIN) from error
    except OSError as error:
        raise UserError(f"the bundle cannot be read: {error.strerror or error}", where=str(path)) from error


def is_bundle(path: Path | str) -> bool:
    """Whether this looks like a bundle."""
    return (Path(path) / "manifest.json").is_file()


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
            f"the bundle was made by version {manifest.get('version')} of rewrite, this is {VERSION}",
            where=str(path),
            hint=_AGAIN,
        )
    return manifest  # type: ignore[no-any-return]


def _modules(path: Path, manifest: Mapping[str, Any]) -> dict[str, int]:
    """The addresses of the kernels in the bundle's own libraries."""
    table: dict[str, int] = {}
    for name in manifest["files"]:
        if name.endswith(".so"):
            try:
                table.update(load_module(Path(name).stem, path / name).table())
            except ImportError as error:
                raise UserError(
                    f"the bundle's kernels don't load (made with another Python?): {error}",
                    where=str(path),
                    hint=_AGAIN,
                ) from error
    return table


def _rebuild(path: Path, manifest: Mapping[str, Any], target: Target, cache: Cache) -> dict[str, int]:
    """The addresses of the kernels, compiled for this CPU from the bundle's sources."""
    table: dict[str, int] = {}
    if not manifest["kernels"]:
        return table
    compiler = find_compiler()
    room = cache.room(f"{target.isa}-{target.cpu}-{compiler.key}")
    for module, members in manifest["sources"].items():
        found = room.find(members)
        if module not in found:
            with transient.directory("build") as temporary:
                source = temporary / f"{module}.pyx"
                shutil.copyfile(path / "kernels" / source.name, source)
                found = {module: room.store(module, compile_source(source, compiler, path / "kernels"), members)}
        table.update(load_module(module, found[module]).table())
    return table


def _checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
