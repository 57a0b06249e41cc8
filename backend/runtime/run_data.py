"""A profiled run as plain JSON values: kernels, their times on each thread, the arena (fields: docs/json.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..ir.kernel_graph import Fallback, Item, Join, ModelPlan, Shape, Step, View
from ..memory.arena import PlacedBuffer
from .profile import Profile, launch_groups, ran, template

_KEYS = {
    "kernels": "kernels", "operators": "ops", "nodes": "nodes", "shape": "shape", "seconds": "seconds", "idle": "idle",
    "threads": "threads", "flops": "flops", "bytes": "nbytes", "least_compute": "compute", "least_memory": "memory",
    "level": "level", "bound": "bound", "native": "native",
}  # fmt: skip
"""Keys of a kernel in docs/json.md, and the fields that they show."""


def profile_data(profile: Profile) -> dict[str, Any]:
    """Return the times and limits of all kernels, and the limits of the machine."""
    machine = profile.machine
    return {
        "threads": profile.threads,
        "runs": profile.runs,
        "seconds": profile.seconds,
        "between": profile.between,
        "machine": {
            "flops": machine.flops,
            "sizes": machine.sizes,
            "bandwidths": machine.bandwidths,
            "source": machine.source,
        },
        "kernels": [{key: getattr(row, name) for key, name in _KEYS.items()} for row in profile.rows],
    }


def timeline(profile: Profile) -> list[dict[str, Any]]:
    """Return when each thread ran each launch of the profile's one run, in seconds from its begin.

    `kernel` is the number of the row in the profile."""
    spans = [
        (number, template(launch), *span)
        for number, launches in enumerate(launch_groups(profile.launches))
        for launch in launches
        for span in ran(launch)
    ]
    first = min((begin for *_, begin, _ in spans), default=0.0)
    return [
        {"kernel": number, "template": name, "thread": thread, "start": begin - first, "seconds": end - begin}
        for number, name, thread, begin, end in spans
    ]


def memory_data(plan: ModelPlan, buffers: Sequence[PlacedBuffer], size: int, bound: int) -> dict[str, Any]:
    """Return the arena of a plan: its size and lower bound, and each buffer with its offset and the steps that use it.

    `steps` names the items of the plan, `weights` is the size of the constants."""
    return {
        "size": size,
        "bound": bound,
        "weights": sum(constant.nbytes for constant in plan.constants.values()),
        "steps": list(map(_step, plan.items)),
        "buffers": list(map(asdict, buffers)),
    }


def _step(item: Item) -> str:
    """Return what an item of a plan does, with its first node."""
    if isinstance(item, Fallback):
        return f"python: {item.node.op} {item.node.name}"
    kind = item.kernel.template if isinstance(item, Step) else type(item).__name__.lower()
    names = item.nodes if isinstance(item, Step | View | Join | Shape) else (item.name,)
    return f"{kind} {names[0]}" if names else kind
