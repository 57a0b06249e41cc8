"""Report of a check, also as JSON and as files, and the budget that a check may spend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ...system import scoped
from ..sampling.values import Array

LAYERS = ("none", "static", "tested", "proved")
"""Names of the layers by number."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Budget of one rule: about `instances` instances and `seconds` seconds of processor time.

    Shrinking a counterexample, at which the search ends, may add `shrink_seconds`. `seed` determines what is drawn."""

    instances: int = 480
    seconds: float = 5.0
    shrink_seconds: float = 3.0
    seed: int = 0
    shrink: bool = True


DEFAULT = Budget()


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Operands on which the two sides of a rule differ.

    `operands` are the rule's variables in the notation of its tests (`x: f32[2, 3], p = [1, 0]`), to be pasted behind
    `test refuses`. `model` and `rewritten` are the left and the right side in ONNX's text format, over the same
    `inputs`. They compute `left` and `right`, and `message` says where these differ. `models` are both sides as
    serialized `ModelProto`s, empty where one cannot be written."""

    operands: str
    model: str
    rewritten: str
    inputs: Mapping[str, Array]
    left: Array
    right: Array
    message: str
    models: tuple[bytes, bytes] = (b"", b"")

    def lines(self) -> list[str]:
        """Return the counterexample as lines of text."""
        found = [f"for   {self.operands}"]
        for name, value in self.inputs.items():
            start = f"with  {name} = "
            found += (start + np.array2string(value, threshold=40, separator=", ", prefix=start)).split("\n")
        for title, text, value in (("the model", self.model, self.left), ("becomes", self.rewritten, self.right)):
            if text:
                result = np.array2string(value, threshold=40, separator=", ", prefix="    ")
                found += [title, *(f"  {line}" for line in text.splitlines()), *f"  = {result}".split("\n")]
        return found


@dataclass(frozen=True, slots=True)
class RuleReport:
    """Result of checking one rule.

    `layer` is the highest layer reached: 0 none, 1 static, 2 tested, 3 proved. Of the `instances`, the rule fired on
    `fired`; `near_misses` are edited instances that it refused. `problems` say why a rule fails (one that never fires
    is vacuous), and `notes` suggest improvements. `proof` is the prover's answer, empty if it was not asked, and
    `assumptions` are those of a proof."""

    name: str
    file: str
    line: int
    numerics: str
    layer: int
    instances: int
    fired: int
    near_misses: int
    seconds: float
    counterexample: Counterexample | None = None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    proof: str = ""
    proved_seconds: float = 0.0
    assumptions: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the rule reached layer 2 without a problem."""
        return self.counterexample is None and not self.problems and self.layer >= 2

    def __str__(self) -> str:
        """Return the report as text."""
        lines = [f"{self.file}:{self.line} {self.name}: {self.verdict}", *self.problems]
        if self.counterexample is not None:
            promise = f"the two sides are not equal as {self.numerics} promises"
            lines += [f"{promise}: {self.counterexample.message}", *self.counterexample.lines()]
        return "\n  ".join(lines)

    @property
    def verdict(self) -> str:
        """One word: `sound`, `unsound`, `vacuous`, `weak` or `failed`."""
        if self.counterexample is not None:
            return "unsound"
        if self.problems:
            return next((v for v in ("vacuous", "weak") if self.problems[0].startswith(v)), "failed")
        return "sound"

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values; arrays are nested lists, and numbers that JSON lacks are strings."""
        found: dict[str, Any] = {
            **{name: getattr(self, name) for name in ("name", "file", "line")},
            "class": self.numerics,
            "verdict": self.verdict,
            "layer": self.layer,
            "layer_name": LAYERS[self.layer],
            **{name: getattr(self, name) for name in ("instances", "fired", "near_misses")},
            "seconds": round(self.seconds, 3),
            "problems": list(self.problems),
            "notes": list(self.notes),
            "proof": self.proof,
            "assumptions": list(self.assumptions),
        }
        if (c := self.counterexample) is not None:
            found["counterexample"] = {
                **{name: getattr(c, name) for name in ("message", "operands", "model", "rewritten")},
                "inputs": {name: _plain(value) for name, value in c.inputs.items()},
                "left": _plain(c.left),
                "right": _plain(c.right),
            }
        return found


def _plain(array: Array) -> Any:
    if array.dtype.kind in "OSU":
        return array.tolist()
    values = array.astype(np.float64) if array.dtype.kind not in "biu" else array

    def convert(item: Any) -> Any:
        if isinstance(item, list):
            return [convert(i) for i in item]
        return item if not isinstance(item, float) or np.isfinite(item) else str(item)

    return convert(values.tolist())


def write_reproducer(folder: Path, report: RuleReport) -> list[Path]:
    """Write `RULE.left.onnx`, `RULE.right.onnx` and `RULE.npz` to a folder; return the paths.

    Raises `UserError` if a file cannot be written."""
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
                with scoped.replacing(path) as out:
                    out.write(model)
                onnx.load(path)
                written.append(path)
        path = folder / f"{report.name}.npz"
        arrays = {f"input_{name}": value for name, value in counterexample.inputs.items()}
        with scoped.replacing(path) as out:
            np.savez(out, left=counterexample.left, right=counterexample.right, **arrays)  # type: ignore[arg-type]
        written.append(path)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", where=str(folder)) from error
    return written
