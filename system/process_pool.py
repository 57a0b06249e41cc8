"""Work on many items in several processes of this package, in order, and the number of processes to use."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_LOW = 5  # nice value: a third of the share of others where all cores are busy
_lock = threading.Lock()
_before: list[tuple[int, int, int]] = []  # thresholds as they were, once for each thread that asks for others


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def yield_cores() -> None:
    """Let others have the cores first from now on: this thread, and processes that it starts; on Linux alone."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOW)


def collect_seldom() -> None:
    """Run the cycle collector only every hundred thousand new objects.

    For a process that creates millions of long-lived objects, such as syntax trees and terms, and then ends."""
    gc.set_threshold(100_000, 20, 50)


@contextlib.contextmanager
def collecting_seldom() -> Iterator[None]:
    """Run the cycle collector seldom while a block or a decorated function runs, in whatever threads."""
    with _lock:
        _before.append(_before[-1] if _before else gc.get_threshold())
        collect_seldom()
    try:
        yield
    finally:
        with _lock:
            thresholds = _before.pop()
            if not _before:
                gc.set_threshold(*thresholds)


def in_order(
    function: Callable[[Item], Result], items: Sequence[Item], *, jobs: int, start: Callable[[], None] | None = None
) -> Iterator[Result]:
    """Yield the result of `function` for each item, in order, computed in `jobs` processes.

    `function`, items and results must be picklable; `start` runs once in each process. With one job or one item, this
    process does all the work. An interrupt, or the end of the iteration, ends the processes. Raises what `function`
    raises, and `concurrent.futures.process.BrokenProcessPool` if a process dies."""
    if jobs <= 1 or len(items) <= 1:
        if start is not None:
            start()
        yield from map(function, items)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # not forked: a fork would lose the threads of egglog and ONNX Runtime
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, len(items)), mp_context=context, initializer=_start, initargs=(start,))
    try:
        yield from pool.map(function, items)
    finally:
        children = multiprocessing.active_children()
        pool.shutdown(wait=False, cancel_futures=True)
        for child in children:
            child.kill()
        for child in children:
            child.join(1)  # their processor time counts once they are waited for


def _start(start: Callable[[], None] | None) -> None:
    from . import scoped

    scoped.die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interrupts
    if start is not None:
        start()
