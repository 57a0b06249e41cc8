"""Machine-readable results: what `--json` writes. The schema is described, and its version kept, in docs/json.md."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import transient
from ..errors import UserError

if TYPE_CHECKING:
    from .measure import Timing

SCHEMA = 1


def write_json(data: Mapping[str, Any], target: Path) -> None:
    """Write `data` as JSON to `target` (by way of a temporary file), or to standard output if it is `-`."""
    text = json.dumps(finite(data), indent=2, ensure_ascii=False) + "\n"
    if str(target) == "-":
        sys.stdout.write(text)
    else:
        write_text(text, target)


def write_text(text: str, target: Path) -> None:
    """Write `text` so that `target` holds either all of it or what it held before; a UserError if it cannot be."""
    try:
        with transient.replacing(target) as file:
            file.write(text.encode())
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", where=str(target)) from None


def finite(value: Any) -> Any:
    """`value` with tuples as lists and, since JSON has no numbers for them, NaN and infinities as null."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def timings_json(measured: Mapping[str, Timing], threads: int) -> dict[str, Any]:
    """Timings by engine, in seconds."""
    engines = {
        name: {"median": timing.median, "p10": timing.low, "p90": timing.high, "runs": timing.runs}
        for name, timing in measured.items()
    }
    return {"threads": threads, "engines": engines}
