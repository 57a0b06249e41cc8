"""Writing of bundles (see `load_bundle`)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...system import scoped
from ...system.file_contents import size_and_crc
from ...system.store import Store
from ...version import VERSION
from ..codegen.render import ABI, kernel_name
from ..ir.kernel_graph import ModelPlan
from ..ir.target import Target
from ..toolchain.builder import build
from .manifest import FORMAT, WEIGHTS, Weights, dump_plan, sealed

Variant = tuple[Target, ModelPlan]


def save(variants: Sequence[Variant], path: Path | str, *, threads: int, cache_dir: Path | str | None = None) -> Path:
    """Write a model, planned for one target or several, as a bundle, all or nothing; return the path.

    Replaces an older bundle. Raises UserError if anything else is there, or the bundle cannot be written."""
    path = Path(path)
    if path.exists() and not (path.is_dir() and ((path / "manifest.json").is_file() or not any(path.iterdir()))):
        raise UserError("exists and is not a bundle", where=str(path), hint="Choose another path, or remove it.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with scoped.directory_beside(path) as temporary:
            fresh, old = temporary / "fresh", temporary / "old"
            fresh.mkdir()
            _write(variants, fresh, threads, Store(cache_dir))
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


def _write(variants: Sequence[Variant], folder: Path, threads: int, store: Store) -> None:
    (folder / "kernels").mkdir()
    weights = Weights()
    described = [_variant(target, plan, folder, weights, store) for target, plan in variants]
    with open(folder / WEIGHTS, "wb") as file:
        weights.write(file)
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "abi": ABI,
        "threads": threads,
        "files": {p.relative_to(folder).as_posix(): size_and_crc(p) for p in files},
        "variants": described,
    }
    (folder / "manifest.json").write_bytes(sealed(manifest))


def _variant(target: Target, plan: ModelPlan, folder: Path, weights: Weights, store: Store) -> dict[str, Any]:
    """Return the manifest entry of one target, after copying its kernels into the bundle."""
    files = build(plan.kernels, target, store).files if plan.kernels else {}
    for module, file in files.items():
        shutil.copyfile(file, folder / "kernels" / f"{module}.so")
    names = {kernel: kernel_name(kernel, target) for kernel in plan.kernels}
    return {
        "target": {"machine": target.machine, "isa": target.isa, "features": list(target.features)},
        "modules": sorted(files),
        "kernels": {n: {"template": k.template, "params": k.params} for k, n in names.items()},
        "plan": dump_plan(plan, names, weights),
    }
