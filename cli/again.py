"""`rewrite MODEL` on a model that was compiled before: what was written then is written again, from the cache."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import transient
from ..errors import UserError

if TYPE_CHECKING:
    from ..backend.program import Program
    from ..backend.programs import Kept
    from ..engine.pipeline import Optimized
    from ..engine.portions import Portion
    from ..engine.report import Report
    from ..engine.verify import Verification


@dataclass(frozen=True, slots=True)
class Original:
    """The file of the model, and what told it from others before anything of it was read."""

    path: Path
    stamp: tuple[int, ...]

    @classmethod
    def of(cls, path: Path) -> Original:
        """The file as it is now."""
        return cls(path, _stamp(path))

    def is_unchanged(self) -> bool:
        """Whether nothing was written to the file since."""
        return bool(self.stamp) and _stamp(self.path) == self.stamp


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@dataclass(frozen=True, slots=True)
class Before:
    """An earlier run: what was kept, what it reported, what it said of the comparison, and the operators that its
    program has no kernels for."""

    kept: Kept
    report: Report
    verdict: str
    fallbacks: dict[str, int]

    def write(self, original: Original, onnx_file: Path, bundle: Path) -> None:
        """Writes both outputs, the program first. Raises `UserError` if that cannot be."""
        from ..backend.programs import Programs

        place = onnx_file
        try:
            with transient.replacing(onnx_file) as out, ThreadPoolExecutor(1) as pool:
                written = pool.submit(self.kept.write_model, original.path, out)
                place = bundle
                Programs().copy(self.kept, bundle)
                place = onnx_file
                written.result()
                if not original.is_unchanged():
                    raise UserError("the model was changed meanwhile", where=str(original.path), hint="Try again.")
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror or error}", where=str(place)) from None


def find(key: str, *, verify: bool) -> Before | None:
    """The run with this key, if it is in the cache, and if outputs are to be compared, was compared then."""
    from ..backend.programs import Programs
    from ..engine.report import Report

    kept = Programs().written(key)
    if kept is None:
        return None
    try:
        report, verdict = Report.from_json(kept.notes["report"]), str(kept.notes["verdict"])
        fallbacks = {str(op): int(count) for op, count in kept.notes["fallbacks"].items()}
    except (LookupError, TypeError, AttributeError):  # of another version
        return None
    if not verify:
        report.verify = {}
        verdict = "not verified"
    elif report.verify:
        verdict = f"{verdict}, when it was compiled"
    else:
        return None
    return Before(kept, report, verdict, fallbacks)


def prepare() -> None:
    """Imports what finding a run takes."""
    from ..backend import programs  # noqa: F401
    from ..engine import report  # noqa: F401


def keep(
    key: str | None,
    original: Original,
    result: Optimized,
    program: Program | None,
    found: Verification | None,
    outputs: Mapping[str, Path],
    portions: Sequence[Portion] | None,
) -> None:
    """Keeps a run whose outputs are both written, with what there was to tell; `portions` are those of the model."""
    from ..api import is_repeatable
    from ..backend.programs import Programs

    if (
        key is None
        or portions is None
        or program is None
        or outputs.keys() != {"onnx", "program"}
        or not is_repeatable(result.report)
    ):
        return
    if not original.is_unchanged():
        return  # the key may be that of another model
    notes: dict[str, Any] = {"report": result.report.as_json(), "verdict": str(found)}
    notes["fallbacks"] = program.fallbacks()
    Programs().keep(key, outputs["program"], outputs["onnx"], portions, notes)
