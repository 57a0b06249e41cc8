"""A counterexample as files: both models, and the inputs and outputs on which they differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ... import transient
from ...errors import UserError
from .report import RuleReport


def write_reproducer(folder: Path, report: RuleReport) -> list[Path]:
    """Writes `RULE.left.onnx`, `RULE.right.onnx` and `RULE.npz` into a folder; what was written.

    Raises `UserError` if that is not possible."""
    import onnx

    counterexample = report.counterexample
    if counterexample is None or not counterexample.models:
        return []
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for side, model in zip(("left", "right"), counterexample.models, strict=True):
            if model:
                path = folder / f"{report.name}.{side}.onnx"
                with transient.replacing(path) as out:
                    out.write(model)
                onnx.load(path)
                written.append(path)
        path = folder / f"{report.name}.npz"
        arrays = {f"input_{name}": value for name, value in counterexample.inputs.items()}
        with transient.replacing(path) as out:
            np.savez(out, left=counterexample.left, right=counterexample.right, **arrays)  # type: ignore[arg-type]
        written.append(path)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", where=str(folder)) from error
    return written
