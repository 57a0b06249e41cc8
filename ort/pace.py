"""Pace of a background compile: its processes are stopped while requests run, so that few requests become slower.

Even at the lowest priority a compiler gets slices of the request's core, and leaves it with other contents of caches
and branch predictors. How much that slows requests down depends on the model and the machine, so requests that it
touched are compared with others. A touched request costs the time by which it is slower, each request pays `AIM`, and
the group rests while costs are not paid. So it works nearly all the time where another core is free, and a small share
of it where every request suffers.

Where short requests suffer and come at regular intervals, the group works within the gaps: it is stopped before the
next request is due, and a run of the last request brings its code and data back into the caches."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

AIM = 0.03
"""Mean slowdown of requests that is allowed while a model is compiled."""
SLICE = 0.2
"""Least seconds of a slice of work, which starts several programs."""
IDLE = 5.0
"""Seconds without requests after which the group goes on in any case."""
PATIENCE = 120.0
"""Seconds for which a group is stopped in total. After that it works at its low priority alone, so that it ends."""

_MOST = 1.0
"""Most that one request costs: the rest is noise of the machine."""
_CREDIT = 0.3
"""Most that requests pay in advance."""
_UNKNOWN = 0.12
"""Slowdown that is assumed until it is known."""
_ENOUGH = 6
"""Requests of each kind that are compared."""
_AFTER = 0.002
"""Seconds from the end of a request to the time when the group goes on."""
_LONG = 0.005
"""Seconds of a request from which on the group is stopped for it, too. Shorter ones lose more to the signals."""
_GAPS = 16
"""Latest gaps between requests, of which the shortest tells when the next request is due."""
_REGULAR = 0.5
"""Share of the median gap that the group must be able to use; otherwise requests come too irregularly."""
_EARLY, _EARLIEST = 0.15, 0.004
"""The group is stopped before a request is due: by a share of the gap, and at least by seconds."""


class Pace:
    """Times of requests, and the process group that works beside them. Requests may come from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._group: int | None = None
        self._resting = self._stopped = self._guarding = self._fitting = self._worked = self._repeated = False
        self._active = 0
        self._alone, self._beside = deque[float](maxlen=64), deque[float](maxlen=64)
        self._repeat: Callable[[], object] | None = None
        self._gaps = deque[float](maxlen=_GAPS)
        self._slot = (0.0, 0.0)
        self._base: float | None = None
        self._debt = 0.0
        self._turned = self._last = self._since = self._stops = 0.0

    @contextlib.contextmanager
    def request(self, repeat: Callable[[], object] | None = None) -> Iterator[None]:
        """Time a request, and stop the group for it if that was found to help.

        `repeat` runs it again, for what that leaves in the caches; it is called from another thread."""
        with self._lock:
            self._active += 1
            touched = self._worked or not self._stopped
            if self._group is not None and self._active == 1:
                self._gaps.append(time.perf_counter() - self._last)
            if self._guarding:
                self._apply()
        start = time.perf_counter()
        try:
            yield
        finally:
            end = time.perf_counter()
            with self._lock:
                self._active -= 1
                if self._group is not None:
                    self._repeat = repeat if self._fitting else None
                    self._account(end - start, touched, end)
                    if self._fitting or self._wants_stop() != self._stopped:
                        self._changed.notify()

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
                self._changed.notify()

    def _keep(self) -> None:
        """Stop the group and let it go on, until it ends.

        It goes on shortly after a request: within one, that takes 4 ms on a single core, since the processes that wake
        up preempt it."""
        while True:
            with self._lock:
                if self._group is not None and self._wants_stop() == self._stopped:
                    self._changed.wait(self._until_slot_turns())
                if self._group is None:
                    return
                self._turn(time.perf_counter())
                goes_on = self._stopped and not self._wants_stop()
            if goes_on:
                time.sleep(_AFTER)
            self._settle()

    def _settle(self) -> None:
        """Stop the group or let it go on. After a stop, bring what short requests need back into the caches."""
        with self._lock:
            self._apply()
            repeat = self._repeat if self._stopped and self._worked and not self._active else None
        if repeat is not None:
            with contextlib.suppress(Exception):  # the sender of the request has seen it
                repeat()
            with self._lock:
                self._repeated, self._worked = True, not self._stopped

    def _account(self, taken: float, touched: bool, now: float) -> None:
        """Note the time of a request, and what it costs or pays."""
        cost = 0.0
        if touched or self._repeated:
            cost = _UNKNOWN if self._base is None else min(taken / self._base - 1, _MOST)
        if touched:
            self._beside.append(taken)
        elif not self._repeated:
            self._alone.append(taken)
        self._debt = max(-_CREDIT, self._debt + cost - AIM)
        self._worked, self._repeated = not self._stopped, False
        self._last = now
        self._slot = self._next_slot(now)
        self._turn(now)

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
        if min(len(self._alone), len(self._beside)) < _ENOUGH:
            return
        self._base, beside = _mean(self._alone), _mean(self._beside)
        if beside > (1 + AIM) * self._base and self._base > _LONG and not self._guarding:
            self._guarding = True
            self._beside.clear()
        elif beside > (1 + AIM) * self._base and self._base <= _LONG:
            self._fitting = True

    def _wants_stop(self) -> bool:
        if self._resting:
            return True
        waits = self._guarding and self._active > 0
        if self._fitting:
            due, late = self._slot
            waits = due <= time.perf_counter() < late
        return waits and self._stops < PATIENCE

    def _apply(self) -> None:
        """Stop the group or let it go on."""
        wanted = self._wants_stop()
        if self._group is None or wanted == self._stopped:
            return
        self._stopped = wanted
        now = time.perf_counter()
        if wanted:
            self._since = now
        else:
            self._worked = True
            self._stops += now - self._since
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._group, signal.SIGSTOP if wanted else signal.SIGCONT)


def _mean(times: Iterable[float]) -> float:
    """Return the mean without the slowest twentieth, which is noise of the machine."""
    ordered = sorted(times)
    return statistics.fmean(ordered[: max(1, len(ordered) * 19 // 20)])
