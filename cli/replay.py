"""Replay of an earlier run of `rewrite MODEL`: the same outputs, written from the cache.

It saves the saturation, seconds to minutes, of a model that was compiled before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..system import scoped
from ..system.file_contents import FileState

if TYPE_CHECKING:
    from ..backend.bundle.program_cache import CachedRun
    from ..backend.compile_model import ProgramIdentity
    from ..engine.onnx_io.exporter import Portion
    from ..engine.report import Report


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier run: its cached outputs, report and verdict, and the operators that its program has no kernels for."""

    cached: CachedRun
    report: Report
    verdict: str
    fallbacks: dict[str, int]

    def write(self, original: FileState, onnx_file: Path, bundle: Path) -> None:
        """Write both outputs, the program first. Raises `UserError` if they cannot be written."""
        place = onnx_file
        try:
            with scoped.replacing(onnx_file) as out, ThreadPoolExecutor(1) as pool:
                written = pool.submit(self.cached.write_model, original.path, out)
                place = bundle
                self.cached.copy_bundle(bundle)
                place = onnx_file
                written.result()
                if not original.is_unchanged():
                    raise UserError("the model was changed during the run", where=str(original.path), hint="Try again.")
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror or error}", where=str(place)) from None


def find(key: str, *, verify: bool) -> Earlier | None:
    """Return the cached run with this key, if there is one; with `verify` only if its outputs were compared."""
    from ..backend.bundle.program_cache import ProgramCache
    from ..engine.report import Report

    cached = ProgramCache().find_run(key)
    if cached is None:
        return None
    try:
        report, verdict = Report.from_json(cached.notes["report"]), str(cached.notes["verdict"])
        fallbacks = {str(op): int(count) for op, count in cached.notes["fallbacks"].items()}
    except (LookupError, TypeError, AttributeError):  # of another version
        return None
    if verify and not report.verify:
        return None
    verdict = f"{verdict}, when it was compiled" if verify else "not verified"
    report.verify = report.verify if verify else {}
    return Earlier(cached, report, verdict, fallbacks)


def store(
    key: str, identity: ProgramIdentity, outputs: Mapping[str, Path], portions: Sequence[Portion],
    report: Report, verdict: str, fallbacks: Mapping[str, int],
) -> None:  # fmt: skip
    """Cache a run that wrote both outputs, unless another might end differently or a file it depends on has changed.

    `portions` are those of the written model."""
    from ..backend.bundle.program_cache import ProgramCache

    if not report.is_repeatable or not identity.is_unchanged():  # the key may not be theirs
        return
    notes: dict[str, Any] = {"report": report.as_json(), "verdict": verdict, "fallbacks": fallbacks}
    ProgramCache().add_run(key, outputs["program"], outputs["onnx"], portions, notes)
