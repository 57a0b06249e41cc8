"""Work on many items in several processes of this package, in order, and none left behind; and how many to use."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def usable_cores() -> int:
    """How many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def collect_seldom() -> None:
    """Has the collector of cycles look at new objects by the hundred thousand, for a process that makes millions which
    stay, such as syntax trees and terms, and then ends."""
    gc.set_threshold(100_000, 20, 50)


def in_order(
    function: Callable[[Item], Result], items: Sequence[Item], *, jobs: int, start: Callable[[], None] | None = None
) -> Iterator[Result]:
    """The result of `function` for each item, in their order, computed in `jobs` processes.

    `function`, items and results must be picklable; `start` runs once in each process. With one job or one item all is
    done in this process. An interrupt, or the end of the iteration, ends the processes. Raises what `function` raises,
    and `concurrent.futures.process.BrokenProcessPool` if a process dies."""
    if jobs <= 1 or len(items) <= 1:
        if start is not None:
            start()
        yield from map(function, items)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # not forked: egglog and ONNX Runtime have threads, which a fork would leave half there
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, len(items)), mp_context=context, initializer=_start, initargs=(start,))
    try:
        yield from pool.map(function, items)
    finally:
        children = multiprocessing.active_children()
        pool.shutdown(wait=False, cancel_futures=True)
        for child in children:
            child.kill()


def _start(start: Callable[[], None] | None) -> None:
    from .. import transient

    transient.die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    if start is not None:
        start()
