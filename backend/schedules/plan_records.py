"""Records of the plans that were fastest for models on this machine, and their use by every compile.

One JSON object a line: `format`; `key`, a hash of all that decides about a program besides the plan (the model,
options, rules, threads, the machine, this version); `plan`, empty where the cost model's is best; `ratios`, the time of
each plan measured, relative to the cost model's. Neither names nor weights of a model are in it.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...engine.options import PLANS
from ...system.store import Store
from .line_file import LineFile

FORMAT = 1


@dataclass(frozen=True)
class PlanRecord:
    """The fastest plan of a model, and what was measured."""

    key: str
    plan: str
    ratios: Mapping[str, float] = field(default_factory=dict)

    def line(self) -> str:
        """Return the record as a line of the file."""
        data = {"format": FORMAT, "key": self.key, "plan": self.plan, "ratios": dict(self.ratios)}
        return json.dumps(data, sort_keys=True) + "\n"

    @classmethod
    def parse(cls, line: str) -> PlanRecord | None:
        """Read a line; None for another version's. Raises ValueError with what is wrong."""
        data: Any = json.loads(line)
        if not isinstance(data, dict):
            raise ValueError("not an object")
        if data.get("format") != FORMAT:
            return None
        key, plan, ratios = data.get("key"), data.get("plan"), data.get("ratios")
        if not isinstance(key, str) or not key or not (plan == "" or plan in PLANS):
            raise ValueError("key or plan is missing or unknown")
        if not isinstance(ratios, dict) or not all(_is_ratio(ratio) for ratio in ratios.values()):
            raise ValueError("ratios are not numbers")
        return cls(key, str(plan), ratios)


def _is_ratio(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


class PlanFile:
    """The file of records in a store (the user's if None)."""

    def __init__(self, store: Store | None = None) -> None:
        self._file = LineFile("plans.jsonl", store)
        self.path = self._file.path

    def read(self) -> dict[str, PlanRecord]:
        """Return the last record of each key; damaged lines, and a file of others, are skipped with a warning."""
        try:
            text = self._file.read().decode(errors="replace")
        except FileNotFoundError:
            return {}
        except OSError as error:
            warnings.warn(f"the records of plans are not used: {self.path}: {error.strerror}", stacklevel=2)
            return {}
        found: dict[str, PlanRecord] = {}
        for number, line in enumerate(text.splitlines(), 1):
            try:
                record = PlanRecord.parse(line) if line.strip() else None
            except (ValueError, RecursionError) as error:
                warnings.warn(f"a damaged record is skipped: {self.path}, line {number}: {error}", stacklevel=2)
                continue
            if record is not None:
                found[record.key] = record
        return found

    def append(self, record: PlanRecord) -> None:
        """Add a record. Raises UserError if the file cannot be written."""
        self._file.append(record.line())
