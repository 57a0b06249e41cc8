"""Pace of a background compile: it is stopped for a part of the time where requests become slower beside it.

Even at the lowest priority it gets slices of the request's core, and compilers evict data from its caches. How much
that slows requests down depends on the model and the machine, so it is measured: the group of processes is stopped
now and then, and requests with and without it are compared. If stopping it for each request is not enough, it works
for the share of the time at which requests take `AIM` longer on average. Short requests lose more to the signals
and the first milliseconds after a rest than to compilers: for them the group is never stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator

AIM = 0.03
"""Mean slowdown of requests that is allowed while a model is compiled."""
CYCLE = 2.0
"""Seconds of one period of work and one of rest."""
LEAST = 0.2
"""Least share of the time in which the group works."""
PATIENCE = 60.0
"""Seconds for which a group is stopped in total. After that it works at its low priority alone, so that it ends."""

_FIRST = 0.5
"""Share of the time until the slowdown is known."""
_AGAIN = 0.9
"""Share where requests are not slowed down: the rest is for measuring again."""
_ENOUGH = 6
"""Requests of each kind that are compared."""
_AFTER = 0.002
"""Seconds from the end of a request to the time when the group goes on."""
_LONG = 0.005
"""Seconds of a request from which on the group is stopped."""


class Pace:
    """Times of requests, and the process group that works beside them. Requests may come from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._group: int | None = None
        self._resting = self._stopped = self._guarding = False
        self._period = self._active = self._requests = 0
        self._alone, self._beside = deque[float](maxlen=64), deque[float](maxlen=64)
        self._since, self._stops = 0.0, 0.0

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Time a request, and stop the group for it if that was found to help."""
        start = time.perf_counter()
        with self._lock:
            self._active += 1
            self._requests += 1
            period = self._period
            self._apply()
        try:
            yield
        finally:
            taken = time.perf_counter() - start
            with self._lock:
                self._active -= 1
                if period == self._period and self._group is not None:
                    (self._alone if self._resting else self._beside).append(taken)
                if self._guarding:
                    self._ended.notify()

    def communicate(self, child: subprocess.Popen[bytes]) -> bytes:
        """Return what a child, which leads a group, wrote to its standard error until its end; pace the group."""
        seconds = CYCLE * _FIRST
        with self._lock:
            self._group = child.pid
        threading.Thread(target=self._resume, name="rewrite.ort pace", daemon=True).start()
        try:
            while True:
                try:
                    return child.communicate(timeout=seconds)[1]
                except subprocess.TimeoutExpired:
                    with self._lock:
                        seconds = self._turn()
                        self._apply()
        finally:
            with self._lock:
                self._resting = self._guarding = False
                self._apply()
                self._group = None
                self._ended.notify()

    def _resume(self) -> None:
        """Let the group go on shortly after each request.

        Within a request, that takes 4 ms on a single core: the processes that wake up preempt it."""
        while True:
            with self._lock:
                self._ended.wait_for(lambda: self._group is None or (self._stopped and not self._wants_stop()))
                if self._group is None:
                    return
            time.sleep(_AFTER)
            with self._lock:
                self._apply()

    def share(self) -> float:
        """Return the share of the time in which the group may work."""
        if min(len(self._alone), len(self._beside)) < _ENOUGH:
            return _FIRST
        slowdown = self._slowdown()
        return _AGAIN if slowdown <= AIM else max(LEAST, AIM / slowdown)

    def _slowdown(self) -> float:
        return statistics.median(self._beside) / statistics.median(self._alone) - 1

    def _turn(self) -> float:
        """Begin the next period; return its seconds."""
        busy = self._requests > 0
        self._period += 1
        self._requests = self._active
        short = not self._resting and bool(self._beside) and statistics.median(self._beside) < _LONG
        if self._resting or not busy or short or self._stops > PATIENCE:
            self._resting = False
            self._guarding &= self._stops <= PATIENCE
            return CYCLE * self.share()
        self._resting = True
        if not self._guarding and self.share() < _FIRST:
            self._guarding = True
            self._beside.clear()
        return CYCLE * (1 - self.share())

    def _wants_stop(self) -> bool:
        return self._resting or (self._guarding and self._active > 0)

    def _apply(self) -> None:
        """Stop the group or let it go on, as the period and the requests want it."""
        wanted = self._wants_stop()
        if self._group is None or wanted == self._stopped:
            return
        self._stopped = wanted
        now = time.monotonic()
        if wanted:
            self._since = now
        else:
            self._stops += now - self._since
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._group, signal.SIGSTOP if wanted else signal.SIGCONT)
