"""Pace of a background compile: its processes are stopped while requests run, so that few requests become slower.

Even at the lowest priority a compiler gets slices of the request's core, and leaves it with other contents of caches
and branch predictors. How much that slows requests down depends on the model and the machine, so requests that it
touched are compared with others, of which the first come before the group starts. A touched request costs the time by
which it is slower, each request pays `AIM`, and the group rests while costs are not paid. So it works nearly all the
time where another core is free, and a small share of it where every request suffers.

Where short requests suffer and come at regular intervals, the group works within the gaps: it is stopped before the
next request is due, and a run of the last request brings its code and data back into the caches."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import statistics
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

_Request = tuple[float, float, bool, bool]
"""Seconds at the start and the end of a request; whether the group worked beside it; whether it was repeated before."""
_T = TypeVar("_T")

AIM = 0.02
"""Mean slowdown of requests that is allowed while a model is compiled."""
SLICE = 0.2
"""Least seconds of a slice of work, which starts several programs."""
IDLE = 5.0
"""Seconds without requests after which the group goes on in any case."""
PATIENCE = 120.0
"""Seconds for which a group is stopped in total. After that it works at its low priority alone, so that it ends."""

_MOST = 3.0
"""Most that one request costs: the rest is noise of the machine."""
_CREDIT = 0.3
"""Most that requests pay in advance."""
_UNKNOWN = 0.12
"""Slowdown that is assumed where too few requests came before the group started."""
_ENOUGH = 4
"""Requests of each kind that are compared."""
_AFTER = 0.002
"""Seconds from the end of a request to its account, and to the time when the group goes on."""
_LONG = 0.005
"""Seconds of a request from which on the group is stopped for it, too. Shorter ones lose more to the signals."""
_GAPS = 16
"""Latest gaps between requests, of which the shortest tells when the next request is due."""
_REGULAR = 0.5
"""Share of the median gap that the group must be able to use; otherwise requests come too irregularly."""
_EARLY, _EARLIEST = 0.15, 0.004
"""The group is stopped before a request is due: by a share of the gap, and at least by seconds."""


class Pace:
    """Times of requests, and the process group that works beside them. Requests may come from several threads.

    Attributes:
        known: set when it is known how long requests take without the group, before it starts.
    """

    def __init__(self) -> None:
        self.known = threading.Event()
        self._lock = threading.Lock()
        self._group: int | None = None
        self._resting = self._stopped = self._guarding = self._fitting = self._worked = self._repeated = False
        self._running = deque[None]()
        self._ended: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._answers = 0
        self._alone, self._beside = deque[float](maxlen=64), deque[float](maxlen=64)
        self._repeat: tuple[Callable[..., object], tuple[Any, ...]] | None = None
        self._gaps = deque[float](maxlen=_GAPS)
        self._slot = (0.0, 0.0)
        self._base: float | None = None
        self._debt = 0.0
        self._turned = self._last = self._since = self._stops = 0.0

    def request(self, run: Callable[..., _T], *arguments: Any) -> _T:
        """Call `run`, note its time, and stop the group for it if that was found to help.

        It may be called again from another thread, for what that leaves in the caches. After a gap every line of Python
        comes from memory, a tenth of a millisecond in all if the account is kept here: so a thread keeps it."""
        touched, repeated = self._worked or not self._stopped, self._repeated
        self._running.append(None)
        if self._guarding:
            with self._lock:
                self._apply()
        start = time.perf_counter()
        try:
            return run(*arguments)
        finally:
            end = time.perf_counter()
            self._running.pop()
            if self._group is None:
                self._note_before(end - start)
            else:
                self._worked, self._repeated = not self._stopped, False
                if self._fitting:
                    self._repeat = (run, arguments)
                self._ended.put((start, end, touched, repeated))

    def communicate(self, child: subprocess.Popen[bytes]) -> bytes:
        """Return what a child, which leads a group, wrote to its standard error until its end; pace the group."""
        with self._lock:
            self._group = child.pid
            self._worked = True
            self._turned = self._last = time.perf_counter()
        threading.Thread(target=self._keep, name="rewrite.ort pace", daemon=True).start()
        try:
            return child.communicate()[1]
        finally:
            with self._lock:
                self._resting = self._guarding = self._fitting = False
                self._apply()
                self._group = self._repeat = None
            self._ended.put(None)

    def _keep(self) -> None:
        """Stop the group and let it go on, until it ends.

        It goes on shortly after a request: within one, that takes 4 ms on a single core, since the processes that wake
        up preempt it. Requests in the meantime are accounted for together."""
        while True:
            with contextlib.suppress(queue.Empty):
                if (request := self._ended.get(timeout=self._until_slot_turns())) is not None:
                    time.sleep(_AFTER)
                    self._account_for(request)
            with self._lock:
                if self._group is None:
                    return
                self._turn(time.perf_counter())
            self._settle()

    def _account_for(self, request: _Request | None) -> None:
        """Account for a request, and for others that have ended since."""
        with contextlib.suppress(queue.Empty):
            while True:
                if request is not None:
                    with self._lock:
                        self._account(*request)
                request = self._ended.get_nowait()

    def _settle(self) -> None:
        """Stop the group or let it go on. After a stop, bring what short requests need back into the caches."""
        with self._lock:
            self._apply()
            repeat = self._repeat if self._stopped and self._worked and not self._running else None
        if repeat is not None:
            run, arguments = repeat
            with contextlib.suppress(Exception):  # the sender of the request has seen it
                run(*arguments)
            with self._lock:
                self._repeated, self._worked = True, not self._stopped

    def _note_before(self, taken: float) -> None:
        """Note the time of a request before the group starts.

        The first one is left out, which allocates memory."""
        self._answers += 1
        if self._base is None and self._answers > 1:
            self._alone.append(taken)
            if len(self._alone) >= _ENOUGH:
                self._base = statistics.median(self._alone)
                self._alone.clear()
                self.known.set()

    def _account(self, start: float, end: float, touched: bool, repeated: bool) -> None:
        """Note the time of a request, and what it costs or pays."""
        taken, cost = end - start, 0.0
        if start > self._last:
            self._gaps.append(start - self._last)
        if touched or repeated:
            cost = _UNKNOWN if self._base is None else min(taken / self._base - 1, _MOST)
        if touched:
            self._beside.append(taken)
        elif not repeated:
            self._alone.append(taken)
        self._debt = max(-_CREDIT, self._debt + cost - AIM)
        self._last = max(self._last, end)
        self._slot = self._next_slot(self._last)
        self._turn(end)

    def _next_slot(self, now: float) -> tuple[float, float]:
        """Return from when to when the group is to be stopped for the next request; equal if it cannot be foreseen."""
        if not self._fitting or self._base is None or len(self._gaps) < _GAPS:
            return now, now
        shortest, usual = min(self._gaps), statistics.median(self._gaps)
        free = shortest - max(_EARLY * shortest, _EARLIEST) - 2 * self._base
        return (now + free, now + 2 * usual) if free > _REGULAR * usual else (now, now)

    def _until_slot_turns(self) -> float:
        """Return the seconds until the group is to be stopped for the next request, or to go on; at most 1."""
        now = time.perf_counter()
        return min([1.0, *(at - now for at in self._slot if at > now)])

    def _turn(self, now: float) -> None:
        """Begin a rest if requests have become too slow, and end it when that is paid for."""
        stopped = now - self._since if self._stopped else 0.0
        if now - self._last > IDLE or self._stops + stopped > PATIENCE:
            rests = False
        elif self._resting:
            rests = self._debt > 0
        else:
            rests = self._debt > 0 and now - self._turned > SLICE
        if rests != self._resting:
            self._resting, self._turned = rests, now
            self._measure()

    def _measure(self) -> None:
        """Compare requests; from now on stop the group for each if they are long and it slows them down."""
        if len(self._alone) >= _ENOUGH:
            self._base = _mean(self._alone)
        if self._base is None or len(self._beside) < _ENOUGH:
            return
        beside = _mean(self._beside)
        if beside > (1 + AIM) * self._base and self._base > _LONG and not self._guarding:
            self._guarding = True
            self._beside.clear()
        elif beside > (1 + AIM) * self._base and self._base <= _LONG and not self._fitting:
            self._fitting = True
            self._debt = min(self._debt, 0.0)  # of the other way; requests may become faster by this one

    def _wants_stop(self) -> bool:
        if self._resting:
            return True
        waits = self._guarding and bool(self._running)
        if self._fitting:
            due, late = self._slot
            waits = due <= time.perf_counter() < late
        return waits and self._stops < PATIENCE

    def _apply(self) -> None:
        """Stop the group or let it go on."""
        wanted = self._wants_stop()
        if self._group is None or wanted == self._stopped:
            return
        self._stopped, self._worked = wanted, True
        now = time.perf_counter()
        if wanted:
            self._since = now
        else:
            self._stops += now - self._since
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._group, signal.SIGSTOP if wanted else signal.SIGCONT)


def _mean(times: Iterable[float]) -> float:
    """Return the mean without the slowest twentieth, which is noise of the machine."""
    ordered = sorted(times)
    return statistics.fmean(ordered[: max(1, len(ordered) * 19 // 20)])
