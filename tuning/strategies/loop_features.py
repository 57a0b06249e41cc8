"""Features of the loop nest that a schedule renders: what a learned model of its time sees.

They are read off the parameters that the templates are rendered with, the same for every template, and completed by
ratios that trees cannot form by themselves: how full the registers are, how much work remainders of tiles add, and
which part of a cache the buffers take. So a model that learned from some kernels knows something about others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...backend.ir.kernel_graph import Step
from ...backend.ir.target import Target

Features = Mapping[str, float]
_DIM = re.compile(r"dims\[(\d+)\]")
_IGNORED = ("epilogue",)  # its lines of code; it is the same for all schedules of a kernel


def loop_features(steps: Sequence[Step], target: Target) -> Features:
    """Return the features of the steps of a kernel, by name; those that are absent count as missing."""
    found: dict[str, float] = {}
    for step in steps:
        numbers = dict(_numbers(step.kernel.params, step.dims))
        prefix = "" if step is steps[-1] else "before."  # copies and packings that the schedule asks for
        for name, value in numbers.items():
            found.setdefault(f"{prefix}{name}", value)
        if not prefix:
            found[f"template={step.kernel.template}"] = 1.0
            bits = int(numbers.get("vector_bits", 8 * target.vector_bytes))
            found.update(_ratios(numbers, target.with_bits(bits)))
    found["steps"] = float(len(steps))
    return {name: round(value, 4) for name, value in found.items()}


def _numbers(params: Mapping[str, Any], dims: Sequence[Any]) -> Iterator[tuple[str, float]]:
    """Yield the numbers in nested parameters, by path; short texts by their value, as 1."""

    def walk(path: str, value: Any) -> Iterator[tuple[str, float]]:
        if isinstance(value, Mapping):
            for name, part in value.items():
                if name not in _IGNORED:
                    yield from walk(f"{path}.{name}" if path else name, part)
        elif isinstance(value, list | tuple):
            for number, part in enumerate(value):
                yield from walk(f"{path}.{number}", part)
        elif isinstance(value, str):
            if (known := _known(value, dims)) is not None:
                yield path, known
            elif value.isidentifier():
                yield f"{path}={value}", 1.0
        elif isinstance(value, bool | int | float):
            yield path, float(value)

    yield from walk("", params)


def _known(text: str, dims: Sequence[Any]) -> float | None:
    """Return the value of an extent in C, if it is a number or one of the step's dims."""
    if match := _DIM.fullmatch(text):
        dim = dims[int(match[1])]
        return float(dim) if isinstance(dim, int) else None
    return float(text) if text.lstrip("-").isdigit() else None


def _ratios(numbers: Mapping[str, float], target: Target) -> Iterator[tuple[str, float]]:
    rows, vectors = (
        numbers.get("tiles.mr", numbers.get("tile_rows")),
        numbers.get("tiles.nv", numbers.get("tile_vectors")),
    )
    m, n = numbers.get("m", numbers.get("queries", 0.0)), numbers.get("n", numbers.get("keys", 0.0))  # or of attention
    if rows and vectors:
        yield "registers", (rows * vectors + min(rows, vectors)) / target.registers
        yield "products a load", rows * vectors / (rows + vectors)
        width = vectors * target.lanes
        pixels = numbers.get("pixels") or _product(numbers, "g.out.") or numbers.get("oh", 0) * numbers.get("ow", 0)
        for name, extent in (("m", m), ("n", n), ("pixels", pixels)):
            if extent:
                yield f"{name} rows wasted", math.ceil(extent / rows) * rows / extent
                yield f"{name} columns wasted", math.ceil(extent / width) * width / extent
        depths = (numbers.get(name) for name in ("kc", "k", "depth", "c", "g.channels"))
        depth = next(filter(None, depths), 0.0)
        yield "panel of L1", depth * width * target.element_bytes / target.l1
        yield "panel of L2", depth * width * target.element_bytes / target.l2
        if group := numbers.get("group"):
            yield "group of L2", group * rows * depth * target.element_bytes / target.l2
    for name in ("scratch", "reserved"):
        if name in numbers:
            yield f"{name} of L1", numbers[name] / target.l1
            yield f"{name} of L2", numbers[name] / target.l2


def _product(numbers: Mapping[str, float], prefix: str) -> float:
    found = [value for name, value in numbers.items() if name.startswith(prefix)]
    return math.prod(found) if found else 0.0
