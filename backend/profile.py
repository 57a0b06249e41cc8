"""Where the time of a program goes: its kernels against the machine's limits, and a trace of its threads.

The roofline model (Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore
architectures", CACM 2009): a kernel takes at least as long as its arithmetic at the peak rate, and at least as long as
its traffic at the bandwidth of the memory that its data lie in. Arithmetic is that of the nodes, counted as the cost
model counts it: algorithms that save multiplications (Winograd's) may pass the peak. Traffic is each input read once
and each output written once; where they lie follows from how much else was touched since (`locate`).
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine import machine as machines
from ..engine import symbolic
from ..engine.graph import TensorType, ValueType
from ..engine.machine import Machine
from ..engine.work import PARTIAL, Estimator
from .kernel_graph import Control, Fallback, Loop, Origin, Step, reads

if TYPE_CHECKING:
    from .program import Launch, Program

LEVELS = ("L1", "L2", "L3", "DRAM")
_PAGE = 4096
_MOST_RUNS = 200


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One group of nodes in a run, with the kernels that compute it.

    `seconds` is the median over the runs from the first thread's begin to the last one's end; `idle` the share of this
    that its threads waited for the slowest; `threads` how many took part. `flops` and `nbytes` are its arithmetic and
    traffic; `compute` and `memory` the least seconds that these take on the machine, `level` where most of the second
    is spent. `native` is false for what Python runs."""

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

    @property
    def bound(self) -> str:
        """What limits it: `compute`, a level of the memory, or `launch` where both are next to nothing."""
        if not self.native:
            return "python"
        if max(self.compute, self.memory) < 0.1 * self.seconds and self.seconds < 5e-6:
            return "launch"
        return "compute" if self.compute >= self.memory else self.level

    @property
    def efficiency(self) -> float:
        """The least time that the machine allows, as a share of the time taken."""
        return max(self.compute, self.memory) / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """What `Program.profile` found.

    `rows` are in the order of the run, `seconds` is the median of a run from the begin of its first kernel to the end
    of its last, `between` of what of it no kernel ran (launches, Python between stages), `runs` how many there were.
    `launches` are those of the last run."""

    rows: tuple[KernelTime, ...]
    seconds: float
    between: float
    runs: int
    threads: int
    machine: Machine
    launches: tuple[Launch, ...]

    @property
    def total(self) -> float:
        """What shares are parts of: the seconds of all rows and those between them."""
        return sum(row.seconds for row in self.rows) + self.between

    def trace(self) -> dict[str, Any]:
        """The last run as a Chrome trace (the JSON object format of the Trace Event Format), one lane per thread.

        For https://ui.perfetto.dev or chrome://tracing."""
        begun = min((first for first, _ in map(_extent, self.launches) if first), default=0.0)
        events: list[dict[str, Any]] = [_meta("process_name", 0, "rewrite")]
        used = max((len(launch.spans) for launch in self.launches), default=0)
        events += [_meta("thread_name", tid, f"thread {tid}") for tid in range(used)]
        for row, launches in zip(self.rows, _groups(self.launches), strict=True):
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
                for tid, (start, end) in enumerate(launch.spans):
                    if end:
                        event = {"name": _kernel(launch), "cat": "kernel" if row.native else "python", "ph": "X"}
                        times = {"ts": (start - begun) * 1e6, "dur": (end - start) * 1e6}
                        events.append({**event, **times, "pid": 0, "tid": tid, "args": details})
        return {"traceEvents": events, "displayTimeUnit": "ns"}


def profile(
    program: Program, inputs: Mapping[str, Any], *, seconds: float = 1.0, machine: Machine | None = None
) -> Profile:
    """Runs a program for about `seconds` and measures its steps; see `Program.profile`."""
    machine = machine or machines.load()
    program.run(inputs)
    first = program.record(inputs)
    groups = list(_groups(first))
    samples: list[list[float]] = [[] for _ in groups]
    idle: list[list[float]] = [[] for _ in groups]
    wholes: list[float] = []
    between: list[float] = []
    end = time.monotonic() + seconds
    last = first
    while not wholes or (time.monotonic() < end and len(wholes) < _MOST_RUNS):
        found = program.record(inputs)
        last, busy = found, 0.0
        for index, launches in enumerate(_groups(found)):
            samples[index].append(sum(b - a for a, b in map(_extent, launches)))
            busy += samples[index][-1]
            idle[index].append(sum(map(_waited, launches)))
        starts = [_extent(launch) for launch in found if launch.spans.any()]
        wholes.append(max(b for _, b in starts) - min(a for a, _ in starts) if starts else 0.0)
        between.append(max(0.0, wholes[-1] - busy))
    places = locate(first, machine, program.threads)
    rows = tuple(
        _row(launches, statistics.median(times), statistics.median(waits), places, machine)
        for launches, times, waits in zip(groups, samples, idle, strict=True)
    )
    times = statistics.median(wholes), statistics.median(between)
    return Profile(rows, *times, len(wholes), program.threads, machine, tuple(last))


def _groups(launches: Iterable[Launch]) -> Iterable[list[Launch]]:
    """The launches, those of one group of nodes together."""
    for _, found in itertools.groupby(launches, lambda launch: _Same(launch.item)):
        yield list(found)


class _Same:
    """Equal for steps in a row that share the work of a group."""

    def __init__(self, item: Step | Fallback | Control | Loop) -> None:
        self.item = item

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same):
            return NotImplemented
        a, b = self.item, other.item
        if isinstance(a, Step) and isinstance(b, Step) and a.origins:
            return a.origins == b.origins
        return a is b

    __hash__ = None  # type: ignore[assignment]


def _extent(launch: Launch) -> tuple[float, float]:
    """When the first thread began a step and the last one ended it; zeros if none ran it."""
    ran = launch.spans[launch.spans[:, 1] > 0]
    return (float(ran[:, 0].min()), float(ran[:, 1].max())) if len(ran) else (0.0, 0.0)


def _waited(launch: Launch) -> float:
    """The share of a step's time that its threads spent waiting for each other, in seconds of one thread."""
    ran = launch.spans[launch.spans[:, 1] > 0]
    if not len(ran):
        return 0.0
    begin, end = _extent(launch)
    return (end - begin) - float((ran[:, 1] - ran[:, 0]).mean())


def _kernel(launch: Launch) -> str:
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
    """The row of a group of nodes."""
    first = launches[0]
    item, native = first.item, isinstance(first.item, Step | Loop)
    origins = item.origins if isinstance(item, Step) else (_origin(first),)
    estimator = Estimator(first.extents)
    flops = _flops(item, origins, estimator)
    threads = max(int((launch.spans[:, 1] > 0).sum()) for launch in launches)
    nbytes = memory = 0.0
    levels: dict[str, float] = {}
    for launch in launches:
        size, least, level = places.get(id(launch), (0.0, 0.0, "L1"))
        nbytes, memory = nbytes + size, memory + least
        levels[level] = levels.get(level, 0.0) + least
    return KernelTime(
        kernels=tuple(_kernel(launch) for launch in launches),
        parameters=tuple(launch.item.kernel.canonical if isinstance(launch.item, Step) else "" for launch in launches),
        ops=tuple(origin.op for origin in origins),
        nodes=tuple(origin.name for origin in origins) or (item.nodes if isinstance(item, Step) else ()),
        shape=_shape(launches[-1]),
        seconds=seconds,
        idle=waited / seconds if seconds else 0.0,
        threads=max(threads, 1),
        flops=flops,
        nbytes=nbytes,
        compute=flops / (machine.flops * max(threads, 1)),
        memory=memory,
        level=max(levels, key=lambda level: (levels[level], LEVELS.index(level))),
        native=native,
    )


def _flops(item: Step | Fallback | Control | Loop, origins: Sequence[Origin], estimator: Estimator) -> float:
    """The arithmetic of a group of nodes; of a loop that of its body for each iteration, if their number is known."""
    if not isinstance(item, Loop):
        return sum(estimator.work(_plain(o.op), o.attrs, o.inputs, o.outputs).flops for o in origins)
    inner = [i for i in item.body.items if isinstance(i, Step | Loop)]
    steps = [next(iter(found)) for _, found in itertools.groupby(inner, _Same)]
    one = sum(_flops(i, i.origins if isinstance(i, Step) else (), estimator) for i in steps)
    return one * (estimator.dim(item.iterations) if item.iterations is not None else 1)


def _plain(op: str) -> str:
    """The standard operator that does the same arithmetic: `Conv` for `rewrite.ChannelsLastConv`, whose weights have
    the same order, `MatMul` for `rewrite.MatMulBf16`."""
    domain, _, name = op.rpartition(".")
    if domain != "rewrite":
        return op
    plain = name.removeprefix("ChannelsLast").removesuffix("Bf16")
    return plain if plain != name else op


def _origin(launch: Launch) -> Origin:
    """The node of a loop, or of a step that Python runs."""
    item = launch.item
    assert not isinstance(item, Step)

    def kinds(values: Sequence[str]) -> tuple[ValueType | None, ...]:
        return tuple(launch.plan.types.get(v, TensorType()) if v else None for v in values)

    if isinstance(item, Loop):
        return Origin(item.op, item.name or item.op, {}, kinds(reads(item)), kinds(item.outputs))
    node = item.node if isinstance(item, Fallback) else item
    return Origin(node.op, node.name or node.op, node.attrs, kinds(node.inputs), kinds(node.outputs))


def _shape(launch: Launch) -> tuple[int, ...] | None:
    """The shape of a step's first output."""
    item = launch.item
    outputs = item.node.outputs if isinstance(item, Fallback) else item.outputs
    shape = launch.plan.type(outputs[0]).shape if outputs else None
    try:
        return None if shape is None else tuple(symbolic.evaluate(d, launch.extents) for d in shape)
    except (KeyError, ValueError):
        return None


# --- where data lie --------------------------------------------------------------------------------------------------


def locate(launches: Sequence[Launch], machine: Machine, threads: int) -> dict[int, tuple[float, float, str]]:
    """For each launch (by identity) its bytes of traffic, the least seconds for it, and the level most of these go to.

    A buffer lies in the smallest cache that holds what was touched since its last use, and itself: its distance in the
    sense of LRU stacks (Mattson et al. 1970), with the bytes of every access since counted, up to all memory that the
    run uses. The run is taken to follow on another of its kind, so that weights are where such a run leaves them."""
    used = [(a, a + n) for launch in launches for a, n, _ in launch.buffers if n > 0]
    if not used:
        return {}
    bounds = np.unique(np.array([(a // _PAGE, -(-b // _PAGE)) for a, b in used]))
    sizes = np.diff(bounds) * float(_PAGE)
    touched = np.zeros(len(sizes), bool)
    for a, b in used:
        touched[np.searchsorted(bounds, a // _PAGE) : np.searchsorted(bounds, -(-b // _PAGE))] = True
    footprint = float(sizes[touched].sum())
    last = np.full(len(sizes), -np.inf)
    clock = 0.0
    found: dict[int, tuple[float, float, str]] = {}
    for launch in (*launches, *launches):
        traffic = _traffic(launch)
        by_level = dict.fromkeys(LEVELS, 0.0)
        for (address, _, _), nbytes in zip(launch.buffers, traffic, strict=True):
            if nbytes <= 0:
                continue
            where = slice(
                int(np.searchsorted(bounds, address // _PAGE)),
                int(np.searchsorted(bounds, -(-(address + int(nbytes)) // _PAGE))),
            )
            where = slice(where.start, max(where.stop, where.start + 1))
            weights = sizes[where] / sizes[where].sum()
            distances = np.minimum(clock - last[where] + nbytes, max(footprint, nbytes))
            for distance, weight in zip(distances, weights, strict=True):
                by_level[LEVELS[_level(machine, distance, threads)]] += float(nbytes * weight)
        clock += sum(traffic)
        for address, nbytes, _ in launch.buffers:
            if nbytes > 0:
                begin, end = np.searchsorted(bounds, [address // _PAGE, -(-(address + nbytes) // _PAGE)])
                last[begin:end] = clock
        count = max(1, int((launch.spans[:, 1] > 0).sum()))
        least = {level: n / _rate(machine, LEVELS.index(level), count) for level, n in by_level.items()}
        found[id(launch)] = (sum(traffic), sum(least.values()), max(LEVELS, key=lambda level: least[level]))
    return found


def _traffic(launch: Launch) -> list[float]:
    """The bytes that a launch reads or writes of each of its buffers."""
    sizes = [float(n) for _, n, _ in launch.buffers]
    origins = launch.item.origins if isinstance(launch.item, Step) else ()
    if any(o.op in PARTIAL or o.op.startswith("Gather") for o in origins):
        written = sum(float(n) for _, n, out in launch.buffers if out)
        return [n if out else min(n, written) for n, (_, _, out) in zip(sizes, launch.buffers, strict=True)]
    return sizes


def _level(machine: Machine, distance: float, threads: int) -> int:
    """The index of the smallest level that holds so many bytes; L1 and L2 are one for each core."""
    for index, size in enumerate(machine.sizes):
        if distance <= size * (threads if index < 2 else 1):
            return index
    return 3


def _rate(machine: Machine, level: int, threads: int) -> float:
    """The bytes per second of a level for some threads; those of the shared ones grow by half for each thread more."""
    return machine.bandwidths[level] * (threads if level < 2 else 1 + 0.5 * (threads - 1))


def _meta(name: str, tid: int, value: str) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": 0, "tid": tid, "args": {"name": value}}
