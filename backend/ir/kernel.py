"""Kernels: compiled functions, described by a template and its parameters, and what all of them may assume."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...engine.ir.graph import ValueType
from ...system.short_text import clipped

ALIGNMENT = 64
"""Every buffer that a kernel gets starts at a multiple of this many bytes."""

SLACK = 64
"""Kernels may read (never write) this many bytes past the end of a buffer."""

SERIAL_WORK = 16_384
"""Kernels with fewer simple operations run on one thread: they take less than a few microseconds."""

LAUNCH_WORK = 8 * SERIAL_WORK
"""Least work between two calls from Python for which other threads are woken up: in a small model, waking them takes
as long as one thread needs for all of it."""

UNKNOWN_WORK = 1 << 62
"""Default work of a step: enough for all threads."""


@dataclass(frozen=True)
class Kernel:
    """One compiled function: a template and the parameters it is rendered with.

    `params` is JSON-serializable. Equal kernels of a model are compiled once, and the cache is keyed by template text
    and params. Constant extents belong in `params`, where known ones make the code faster; others in `Step.dims`."""

    template: str  # "gemm" is gemm.c.j2
    params: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def canonical(self) -> str:
        """Template and params as canonical JSON: equal for equal kernels. Raises TypeError if they are not JSON."""
        return json.dumps([self.template, self.params], sort_keys=True, separators=(",", ":"), allow_nan=True)

    def __repr__(self) -> str:
        return f"<Kernel {clipped(self.canonical, 120)}>"

    def __hash__(self) -> int:
        return hash(self.canonical)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and self.canonical == other.canonical


@dataclass(frozen=True)
class Origin:
    """A node that a step implements, with what its work depends on: operator, attributes, types (None: absent)."""

    op: str
    name: str
    attrs: Mapping[str, Any]
    inputs: tuple[ValueType | None, ...]
    outputs: tuple[ValueType | None, ...]
