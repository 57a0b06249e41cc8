"""`rewrite MODEL` on a model that was compiled before: what was written then is written again, from the cache."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import transient
from ..errors import UserError

if TYPE_CHECKING:
    from ..backend.program import Program
    from ..backend.programs import Kept
    from ..engine.pipeline import Optimized
    from ..engine.report import Report
    from ..engine.verify import Verification


@dataclass(frozen=True, slots=True)
class Before:
    """An earlier run: its program, what it reported, and what it said of the comparison."""

    kept: Kept
    report: Report
    verdict: str

    @property
    def program(self) -> Program:
        """The program, loaded."""
        return self.kept.program

    def write(self, onnx_file: Path, bundle: Path) -> None:
        """Writes both outputs, the program first. Raises `UserError` if that cannot be."""
        from ..backend.programs import Programs

        place = bundle
        try:
            Programs().copy(self.kept, bundle)
            place = onnx_file
            with transient.replacing(onnx_file) as out, self.kept.model.open("rb") as file:
                shutil.copyfileobj(file, out, 1 << 20)
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror or error}", where=str(place)) from None


def find(key: str, *, threads: int, verify: bool) -> Before | None:
    """The run with this key, if it is in the cache, and if outputs are to be compared, was compared then."""
    from ..backend.programs import Programs
    from ..engine.report import Report

    kept = Programs().written(key, threads=threads)
    if kept is None:
        return None
    try:
        report, verdict = Report.from_json(kept.notes["report"]), str(kept.notes["verdict"])
    except (LookupError, TypeError):  # of another version
        return None
    if not verify:
        report.verify = {}
        return Before(kept, report, "not verified")
    return Before(kept, report, f"{verdict}, when it was compiled") if report.verify else None


def keep(key: str | None, result: Optimized, found: Verification | None, outputs: Mapping[str, Path]) -> None:
    """Keeps a run whose outputs are both written, with what there was to tell."""
    from ..api import is_repeatable
    from ..backend.programs import Programs

    if key is None or outputs.keys() != {"onnx", "program"} or not is_repeatable(result.report):
        return
    notes: dict[str, Any] = {"report": result.report.as_json(), "verdict": str(found)}
    Programs().keep(key, outputs["program"], outputs["onnx"], notes)
