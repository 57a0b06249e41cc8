"""Writing of bundles (see `bundle`)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import transient
from ..checksum import Hashing, checksum
from ..errors import UserError
from ..version import VERSION
from .build import build
from .cache import Cache
from .kernel_graph import ModelPlan, Target
from .manifest import FORMAT, WEIGHTS, Weights, dump_plan
from .render import ABI, kernel_name

Variant = tuple[Target, ModelPlan]


def save(variants: Sequence[Variant], path: Path | str, *, threads: int, cache_dir: Path | str | None = None) -> Path:
    """Writes a model, planned for one target or several, as a bundle, all or nothing; the path.

    An older bundle there is replaced. Raises UserError if anything else is there, or it can't be written."""
    path = Path(path)
    if path.exists() and not (path.is_dir() and ((path / "manifest.json").is_file() or not any(path.iterdir()))):
        raise UserError("this exists and is no bundle", where=str(path), hint="Choose another place, or remove it.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with transient.directory_beside(path) as temporary:
            fresh, old = temporary / "fresh", temporary / "old"
            fresh.mkdir()
            _write(variants, fresh, threads, Cache(cache_dir))
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


def _write(variants: Sequence[Variant], folder: Path, threads: int, cache: Cache) -> None:
    (folder / "kernels").mkdir()
    weights = Weights()
    described = [_variant(target, plan, folder, weights, cache) for target, plan in variants]
    blob = folder / WEIGHTS
    with open(blob, "wb") as file, Hashing(file) as out:
        weights.write(out)
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "abi": ABI,
        "threads": threads,
        "files": {p.relative_to(folder).as_posix(): out.digest() if p == blob else checksum(p) for p in files},
        "variants": described,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, separators=(",", ":")))


def _variant(target: Target, plan: ModelPlan, folder: Path, weights: Weights, cache: Cache) -> dict[str, Any]:
    """One target's part of the manifest; its kernels are copied into the bundle."""
    modules = []
    if plan.kernels:
        for module, file in build(plan.kernels, target, cache).files.items():
            shutil.copyfile(file, folder / "kernels" / f"{module}.so")
            modules.append(module)
    names = {kernel: kernel_name(kernel, target) for kernel in plan.kernels}
    return {
        "target": {"machine": target.machine, "isa": target.isa, "features": list(target.features)},
        "modules": sorted(modules),
        "kernels": {n: {"template": k.template, "params": k.params, "weight": k.weight} for k, n in names.items()},
        "plan": dump_plan(plan, names, weights),
    }
