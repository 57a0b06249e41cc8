"""Options of one optimization: admitted rules, numerics, and limits of time and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..system.short_text import clipped

NUMERICS = ("exact", "reassoc", "fast")
"""Classes of rules, each wider than the one before: same bits, other rounding, finite values assumed."""
PRECISIONS = ("f32", "bf16", "int8")
"""Precisions of products; each but the first is the name of the ruleset that lowers products to it."""
PLANS = ("channels-last", "channels-first", "few-moves", "many-moves", "few-elementwise")
"""Names of `extraction.plans.PLANS`, which take longer to import."""
_NOT_IN_KEY = ("rules", "why_not", "near_misses", "mapped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Validated options of one optimization, as `api.optimize` documents them. Time is that of computing.

    `cost` says what the cost model predicts, `threads` what it assumes, `isa` for kernels of which vector extension
    (this CPU's widest if empty), `plan` which graph is chosen for them (`extraction.plans`). With `near_misses`,
    results show where rules that changed nothing came closest to it. The constructor raises `UserError` for values that
    make no sense."""

    rules: Sequence[Path] = ()
    std_rules: bool = True
    numerics: str = "reassoc"
    precision: str = "f32"
    shapes: Mapping[str, int] = field(default_factory=dict)
    schedule: str = "standard"
    disabled: Sequence[str] = ()
    time_limit: float = 20.0
    node_limit: int = 200_000
    memory_limit: int = 4096
    cost: str = "latency"
    threads: int = 1
    isa: str = ""
    plan: str = ""
    why_not: str | None = None
    near_misses: bool = False
    mapped: bool = False

    @classmethod
    def of(cls, **given: Any) -> Options:
        """Return options in which None stands for the default."""
        return cls(**{name: value for name, value in given.items() if value is not None})

    def __post_init__(self) -> None:
        if isinstance(self.rules, str | bytes | PathLike):
            hint = f"Write rules=[{str(self.rules)!r}]."
            raise UserError(f"`rules` is a list of files, not {self.rules!r}", hint=hint)
        for what, value, known in (("numerics", self.numerics, NUMERICS), ("precision", self.precision, PRECISIONS)):
            if value not in known:
                raise UserError(f"unknown {what} {value!r}", hint=f"Choose one of {', '.join(known)}.")
        if self.plan and self.plan not in PLANS:
            raise UserError(f"unknown plan {self.plan!r}", hint=f"Choose one of {', '.join(PLANS)}.")
        for name, size in self.shapes.items():
            if not hasattr(size, "__index__") or size < 0:
                raise UserError(f"the size of {name!r} must be a non-negative integer, not {size!r}")
        object.__setattr__(self, "rules", tuple(map(Path, self.rules)))
        object.__setattr__(self, "disabled", tuple(self.disabled))
        object.__setattr__(self, "shapes", dict(self.shapes))

    def __repr__(self) -> str:
        """Return the options that differ from their defaults."""
        default = Options()
        changed = {name: value for name in self.__slots__ if (value := getattr(self, name)) != getattr(default, name)}
        return f"<Options {clipped(', '.join(f'{k}={v!r}' for k, v in changed.items()), 300) or 'by default'}>"

    def key(self) -> dict[str, Any]:
        """Return the settings that decide the result, for cache keys; the texts of rule files are not included."""
        values = {name: getattr(self, name) for name in self.__slots__ if name not in _NOT_IN_KEY}
        return {**values, "shapes": sorted(self.shapes.items())}
