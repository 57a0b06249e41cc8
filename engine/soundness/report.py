"""What a check has to say of a rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LAYERS = ("none", "static", "tested", "proved")
"""What the numbers of `RuleReport.layer` mean."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much is spent on a rule: at most `instances` instances and about `seconds` seconds of computing, to which
    shrinking a counterexample may add `shrink_seconds`; what else the machine does plays no part. `seed` decides what
    is drawn. `stop` ends at the first counterexample."""

    instances: int = 480
    seconds: float = 7.0
    shrink_seconds: float = 3.0
    seed: int = 0
    stop: bool = True
    shrink: bool = True


DEFAULT = Budget()


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Operands on which the two sides of a rule differ.

    `operands` are the rule's variables in the notation of its tests (`x: f32[2, 3], p = [1, 0]`), so that they can be
    pasted behind `test refuses`. `model` is the left side in ONNX's text format and `rewritten` the right side, both
    over the same `inputs`; `left` and `right` are what they compute, `message` where these differ. `models` are both as
    serialised `ModelProto`s, empty where one cannot be written."""

    operands: str
    model: str
    rewritten: str
    inputs: Mapping[str, Array]
    left: Array
    right: Array
    message: str
    models: tuple[bytes, bytes] = (b"", b"")

    def lines(self) -> list[str]:
        """The counterexample in lines, for people."""
        found = [f"for   {self.operands}"]
        for name, value in self.inputs.items():
            start = f"with  {name} = "
            found += (start + np.array2string(value, threshold=40, separator=", ", prefix=start)).split("\n")
        for title, text, value in (
            ("the model", self.model, self.left),
            ("becomes", self.rewritten, self.right),
        ):
            if text:
                result = np.array2string(value, threshold=40, separator=", ", prefix="    ")
                found += [title, *(f"  {line}" for line in text.splitlines()), *f"  = {result}".split("\n")]
        return found


@dataclass(frozen=True, slots=True)
class RuleReport:
    """The outcome of checking one rule.

    `layer` is the highest layer reached: 0 none, 1 static, 2 tested, 3 proved. `instances` were drawn, the rule fired
    on `fired` of them; `near_misses` of them were made from one that fires by a single change. `problems` say why a
    rule fails (a rule that never fires is vacuous); `notes` are worth knowing. `proof` is what the prover says, empty
    if it was not asked."""

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

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against the rule and it reached layer 2."""
        return self.counterexample is None and not self.problems and self.layer >= 2

    def __str__(self) -> str:
        """What there is to say of the rule, for people."""
        lines = [f"{self.file}:{self.line} {self.name}: {self.verdict}", *self.problems]
        if self.counterexample is not None:
            promise = f"the two sides are not equal as {self.numerics} promises"
            lines += [f"{promise}: {self.counterexample.message}", *self.counterexample.lines()]
        return "\n  ".join(lines)

    @property
    def verdict(self) -> str:
        """One word: `sound`, `unsound`, or what else stands against the rule."""
        if self.counterexample is not None:
            return "unsound"
        if self.problems:
            return "vacuous" if not self.fired else "failed"
        return "sound"

    def as_json(self) -> dict[str, Any]:
        """The report for machines; arrays as nested lists, what JSON has no number for as strings."""
        found: dict[str, Any] = {
            "name": self.name,
            "file": self.file,
            "line": self.line,
            "class": self.numerics,
            "verdict": self.verdict,
            "layer": self.layer,
            "layer_name": LAYERS[self.layer],
            "instances": self.instances,
            "fired": self.fired,
            "near_misses": self.near_misses,
            "seconds": round(self.seconds, 3),
            "problems": list(self.problems),
            "notes": list(self.notes),
            "proof": self.proof,
        }
        if self.counterexample is not None:
            c = self.counterexample
            found["counterexample"] = {
                "message": c.message,
                "operands": c.operands,
                "model": c.model,
                "rewritten": c.rewritten,
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
