"""Profiles: the time of each kernel against the limits of the machine, and a trace of the threads.

The roofline model (Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore
architectures", CACM 2009): a kernel takes at least as long as its arithmetic at the peak rate, and as its traffic at
the bandwidth of the memory that holds its data. Arithmetic is that of the nodes, as the cost model counts it;
algorithms that save multiplications (Winograd's) may exceed the peak. Traffic is each input read once and each output
written once; the level of memory follows from how much else was touched since (`locate`).
"""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.cost import machine as machines
from ...engine.cost.machine import Machine, shared_speedup
from ...engine.cost.operator_cost import PARTIAL, Estimator
from ...engine.ir import symbolic
from ...pages import short_tables
from ...system.short_text import duration, listed, plural
from ..ir.dataflow import kinds_of, reads
from ..ir.kernel import Origin
from ..ir.kernel_graph import Fallback, Item, Loop, Step
from .link import Launch

LEVELS = ("L1", "L2", "L3", "DRAM")
_OWN = LEVELS[:2]  # each core has one of its own
_PAGE = 4096
_MAX_RUNS = 200


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One group of nodes in a run, with the kernels that compute it.

    `seconds` is the median over the runs, from the begin of the first thread to the end of the last. `idle` is the
    share that its threads waited for the slowest, `threads` their number. `flops` and `nbytes` are its arithmetic and
    traffic. `compute` and `memory` are the least seconds that these take on the machine, `level` is where most of the
    second is spent. `native` is false for nodes that Python runs."""

    kernels: tuple[str, ...]
    parameters: tuple[str, ...]
    ops: tuple[str, ...]
    nodes: tuple[str, ...]
    shape: tuple[int, ...] | None
    seconds: float
    idle: float
    threads: int
    flops: float
    nbytes: float
    compute: float
    memory: float
    level: str
    native: bool = True

    def __repr__(self) -> str:
        kernels, ops = listed(self.kernels), listed(self.ops)
        return f"<KernelTime {kernels} ({ops}): {duration(self.seconds)}, {self.efficiency:.0%} of {self.bound}>"

    @property
    def bound(self) -> str:
        """Limiting resource: `compute`, a level of memory, or `launch` if both are negligible."""
        if not self.native:
            return "python"
        if max(self.compute, self.memory) < 0.1 * self.seconds and self.seconds < 5e-6:
            return "launch"
        return "compute" if self.compute >= self.memory else self.level

    @property
    def efficiency(self) -> float:
        """The least time that the machine allows, as a share of the measured time."""
        return max(self.compute, self.memory) / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """Result of `Program.profile`.

    `rows` are in execution order. `seconds` is the median time of a run, from the begin of its first kernel to the end
    of its last; `between` the part in which no kernel ran (launches, Python between stages). `runs` is the number of
    runs, `launches` are those of one that took about that long."""

    rows: tuple[KernelTime, ...]
    seconds: float
    between: float
    runs: int
    threads: int
    machine: Machine
    launches: tuple[Launch, ...]

    def __repr__(self) -> str:
        medians = f"{duration(self.seconds)} per run (median of {self.runs})"
        return f"<Profile: {medians}, {len(self.rows)} groups of nodes, {plural(self.threads, 'thread')}>"

    def _repr_html_(self) -> str:
        slowest = sorted(self.rows, key=lambda row: -row.seconds)
        rows = [
            (listed(r.kernels), listed(r.ops), duration(r.seconds), f"{r.efficiency:.0%}", r.bound) for r in slowest
        ]
        return short_tables.table(repr(self).strip("<>"), ("kernel", "operators", "time", "of limit", "bound"), rows)

    @property
    def total(self) -> float:
        """Total seconds: the seconds of all rows and between them."""
        return sum(row.seconds for row in self.rows) + self.between

    def trace(self) -> dict[str, Any]:
        """Return a run of about the median time as a Chrome trace, one lane per thread.

        JSON object format of the Trace Event Format, for https://ui.perfetto.dev or chrome://tracing."""
        begun = min((first for first, _ in map(_extent, self.launches) if first), default=0.0)
        events: list[dict[str, Any]] = [_meta("process_name", 0, "rewrite")]
        used = max((len(launch.spans) for launch in self.launches), default=0)
        events += [_meta("thread_name", tid, f"thread {tid}") for tid in range(used)]
        for row, launches in zip(self.rows, launch_groups(self.launches), strict=True):
            details = {
                "nodes": list(row.nodes),
                "operators": list(row.ops),
                "shape": None if row.shape is None else list(row.shape),
                "flops": row.flops,
                "bytes": row.nbytes,
                "bound": row.bound,
                "share of the roof": round(row.efficiency, 4),
            }
            for launch in launches:
                kind = {"name": template(launch), "cat": "kernel" if row.native else "python", "ph": "X"}
                for tid, start, end in ran(launch):
                    times = {"ts": (start - begun) * 1e6, "dur": (end - start) * 1e6}
                    events.append({**kind, **times, "pid": 0, "tid": tid, "args": details})
        return {"traceEvents": events, "displayTimeUnit": "ns"}


def profile(
    record: Callable[[], list[Launch]], threads: int, *, seconds: float = 1.0, machine: Machine | None = None
) -> Profile:
    """Measure the steps of runs that `record` makes on some threads, for about `seconds`; see `Program.profile`."""
    machine = machine or machines.load()
    record()  # binds the extents
    first = typical = record()
    groups = launch_groups(first)
    samples: list[tuple[list[float], list[float]]] = [([], []) for _ in groups]  # seconds and waiting of each group
    wholes: list[float] = []
    between: list[float] = []
    shown = math.inf
    end = time.monotonic() + seconds
    while not wholes or (time.monotonic() < end and len(wholes) < _MAX_RUNS):
        last = record()
        for (times, waits), launches in zip(samples, launch_groups(last), strict=True):
            times.append(sum(b - a for a, b in map(_extent, launches)))
            waits.append(sum(map(_waited, launches)))
        spans = [_extent(launch) for launch in last if launch.spans.any()]
        wholes.append(max(b for _, b in spans) - min(a for a, _ in spans) if spans else 0.0)
        between.append(max(0.0, wholes[-1] - sum(times[-1] for times, _ in samples)))
        median = statistics.median(wholes)
        if abs(wholes[-1] - median) <= abs(shown - median):  # one run is kept, as 200 may be large
            typical, shown = last, wholes[-1]
    places = locate(first, machine, threads)
    rows = tuple(
        _row(launches, statistics.median(times), statistics.median(waits), places, machine)
        for launches, (times, waits) in zip(groups, samples, strict=True)
    )
    medians = statistics.median(wholes), statistics.median(between)
    return Profile(rows, *medians, len(wholes), threads, machine, tuple(typical))


def launch_groups(launches: Iterable[Launch]) -> list[list[Launch]]:
    """Group consecutive launches of the same nodes."""
    return [list(found) for _, found in itertools.groupby(launches, lambda launch: _work(launch.item))]


def _work(item: Item) -> object:
    """Return the key that groups consecutive steps of one group of nodes."""
    return item.origins if isinstance(item, Step) and item.origins else id(item)


def _thread_spans(launch: Launch) -> NDArray[np.float64]:
    """Return when each thread that ran a step began and ended it."""
    return launch.spans[launch.spans[:, 1] > 0]


def ran(launch: Launch) -> list[tuple[int, float, float]]:
    """Return the threads that ran a step, each with when it began and ended, in seconds of the monotonic clock."""
    return [(thread, float(begin), float(end)) for thread, (begin, end) in enumerate(launch.spans) if end > 0]


def _extent(launch: Launch) -> tuple[float, float]:
    """Return when the first thread began a step and the last one ended it; zeros if no thread ran it."""
    ran = _thread_spans(launch)
    return (float(ran[:, 0].min()), float(ran[:, 1].max())) if len(ran) else (0.0, 0.0)


def _waited(launch: Launch) -> float:
    """Return the time that threads of a step waited for each other, in seconds of one thread."""
    ran, (begin, end) = _thread_spans(launch), _extent(launch)
    return (end - begin) - float((ran[:, 1] - ran[:, 0]).mean()) if len(ran) else 0.0


def template(launch: Launch) -> str:
    """Return the template of a step's kernel, or what else runs."""
    item = launch.item
    if isinstance(item, Step):
        return item.kernel.template
    if isinstance(item, Loop):
        return f"loop: {item.op}"
    return f"python: {item.node.op if isinstance(item, Fallback) else item.op}"


def _row(
    launches: Sequence[Launch],
    seconds: float,
    waited: float,
    places: Mapping[int, tuple[float, float, str]],
    machine: Machine,
) -> KernelTime:
    """Return the row of a group of nodes."""
    first = launches[0]
    item = first.item
    origins = item.origins if isinstance(item, Step) else (_origin(first),)
    flops = _flops(item, origins, Estimator(first.extents))
    threads = max(1, *(len(_thread_spans(launch)) for launch in launches))
    found = [places.get(id(launch), (0.0, 0.0, "L1")) for launch in launches]
    levels = {name: sum(least for _, least, level in found if level == name) for _, _, name in found}
    return KernelTime(
        kernels=tuple(map(template, launches)),
        parameters=tuple(launch.item.kernel.canonical if isinstance(launch.item, Step) else "" for launch in launches),
        ops=tuple(origin.op for origin in origins),
        nodes=tuple(origin.name for origin in origins) or (item.nodes if isinstance(item, Step) else ()),
        shape=_shape(launches[-1]),
        seconds=seconds,
        idle=waited / seconds if seconds else 0.0,
        threads=threads,
        flops=flops,
        nbytes=sum(size for size, _, _ in found),
        compute=flops / (machine.flops * threads),
        memory=sum(least for _, least, _ in found),
        level=max(levels, key=lambda level: (levels[level], LEVELS.index(level))),
        native=isinstance(item, Step | Loop),
    )


def _flops(item: Item, origins: Sequence[Origin], estimator: Estimator) -> float:
    """Return the arithmetic of a group of nodes; for a loop, that of its body times the iterations, if known."""
    if not isinstance(item, Loop):
        return sum(estimator.work(_plain(o.op), o.attrs, o.inputs, o.outputs).flops for o in origins)
    inner = [i for i in item.body.items if isinstance(i, Step | Loop)]
    steps = [next(found) for _, found in itertools.groupby(inner, _work)]
    one = sum(_flops(i, i.origins if isinstance(i, Step) else (), estimator) for i in steps)
    return one * (estimator.dim(item.iterations) if item.iterations is not None else 1)


def _plain(op: str) -> str:
    """Return the standard operator with the same arithmetic.

    It is `Conv` for `rewrite.ChannelsLastConv`, whose weights have the same order, and `MatMul` for
    `rewrite.MatMulBf16`."""
    domain, _, name = op.rpartition(".")
    plain = name.removeprefix("ChannelsLast").removeprefix("Image").removesuffix("Bf16")
    return plain if domain == "rewrite" and plain != name else op


def _origin(launch: Launch) -> Origin:
    """Return the node of a loop, or of a step that Python runs."""
    item, types = launch.item, launch.plan.types
    assert not isinstance(item, Step)
    node = item.node if isinstance(item, Fallback) else item
    attrs, inputs = ({}, reads(node)) if isinstance(node, Loop) else (node.attrs, node.inputs)
    return Origin(node.op, node.name or node.op, attrs, kinds_of(inputs, types), kinds_of(node.outputs, types))


def _shape(launch: Launch) -> tuple[int, ...] | None:
    """Return the shape of a step's first output."""
    item = launch.item
    outputs = item.node.outputs if isinstance(item, Fallback) else item.outputs
    shape = launch.plan.type(outputs[0]).shape if outputs else None
    with contextlib.suppress(KeyError, ValueError):
        return None if shape is None else tuple(symbolic.evaluate(d, launch.extents) for d in shape)
    return None


# --- location of data ------------------------------------------------------------------------------------------------


def locate(launches: Sequence[Launch], machine: Machine, threads: int) -> dict[int, tuple[float, float, str]]:
    """Return for each launch (by identity) its bytes of traffic, their least seconds, and the level of most of these.

    A buffer is in the smallest cache that holds it and everything touched since its last use: its distance in the sense
    of LRU stacks (Mattson et al. 1970), counting the bytes of every access since, up to all memory of the run. The run
    is assumed to follow another of its kind, so that weights are where that run leaves them."""
    used = [(address, size) for launch in launches for address, size, _ in launch.buffers if size > 0]
    if not used:
        return {}
    bounds = np.unique(np.array([(a // _PAGE, -(-(a + size) // _PAGE)) for a, size in used]))
    sizes = np.diff(bounds) * float(_PAGE)

    def pages(address: int, size: int) -> slice:
        """Return the runs of pages that a buffer touches, at least one."""
        start, stop = np.searchsorted(bounds, [address // _PAGE, -(-(address + size) // _PAGE)])
        return slice(start, max(stop, start + 1))

    touched = np.zeros(len(sizes), bool)
    for address, size in used:
        touched[pages(address, size)] = True
    footprint = float(sizes[touched].sum())
    last = np.full(len(sizes), -np.inf)
    clock = 0.0
    found: dict[int, tuple[float, float, str]] = {}
    for launch in (*launches, *launches):
        traffic = _traffic(launch)
        by_level = dict.fromkeys(LEVELS, 0.0)
        for (address, _, _), nbytes in zip(launch.buffers, traffic, strict=True):
            if nbytes > 0:
                where = pages(address, int(nbytes))
                weights = sizes[where] / sizes[where].sum()
                distances = np.minimum(clock - last[where] + nbytes, max(footprint, nbytes))
                for distance, weight in zip(distances, weights, strict=True):
                    by_level[_level(machine, distance, threads)] += float(nbytes * weight)
        clock += sum(traffic)
        for address, size, _ in launch.buffers:
            if size > 0:
                last[pages(address, size)] = clock
        count = max(1, len(_thread_spans(launch)))
        least = {level: n / _rate(machine, level, count) for level, n in by_level.items()}
        found[id(launch)] = (sum(traffic), sum(least.values()), max(LEVELS, key=lambda level: least[level]))
    return found


def _traffic(launch: Launch) -> list[float]:
    """Return the bytes that a launch reads or writes of each of its buffers."""
    origins = launch.item.origins if isinstance(launch.item, Step) else ()
    partial = any(o.op in PARTIAL or o.op.startswith("Gather") for o in origins)
    most = sum(n for _, n, out in launch.buffers if out) if partial else math.inf  # reads no more than it writes
    return [float(n if out else min(n, most)) for _, n, out in launch.buffers]


def _level(machine: Machine, distance: float, threads: int) -> str:
    """Return the smallest level that holds `distance` bytes; each core has an L1 and L2 of its own."""
    caches = zip(LEVELS, machine.sizes, strict=False)
    held = (level for level, size in caches if distance <= size * (threads if level in _OWN else 1))
    return next(held, LEVELS[-1])


def _rate(machine: Machine, level: str, threads: int) -> float:
    """Return the bytes per second that some threads read from a level."""
    rate = machine.bandwidths[LEVELS.index(level)]
    return rate * (threads if level in _OWN else shared_speedup(threads))


def _meta(name: str, tid: int, value: str) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": 0, "tid": tid, "args": {"name": value}}
