"""The pace of a group of processes beside requests: when it is stopped, and that it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from rewrite.ort import pace
from rewrite.ort.pace import Pace
from rewrite.system import scoped


class Signals:
    """Signals that a pace sent, instead of sending them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[str] = []
        monkeypatch.setattr(os, "killpg", lambda group, number: self.sent.append(signal.Signals(number).name))


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> Signals:
    return Signals(monkeypatch)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def _pass(clock: list[float], seconds: Callable[[], float]) -> float:
    taken = seconds()
    clock[0] += taken
    return taken


def _serve(
    paced: Pace, clock: list[float], alone: float, beside: float, stopped: float, requests: int, gap: float = 0.05
) -> tuple[float, float]:
    """Serve requests with gaps between them; return the share of the gaps in which the group worked, and the mean time.

    A request takes `alone` seconds if the group has not worked since the last one, `stopped` if it has and is stopped
    for this one, else `beside`. The clock stands in for the thread that sends signals."""
    if paced._group is None:
        paced._group, paced._worked, paced._turned = 1, True, clock[0]
    worked = total = 0.0
    for _ in range(requests):
        clock[0] += gap
        worked += gap * (not paced._stopped)
        touched = paced._worked or not paced._stopped
        taken = paced.request(
            _pass, clock, lambda touched=touched: alone if not touched else stopped if paced._stopped else beside
        )
        paced._account_for(None)
        paced._turn(clock[0])
        paced._apply()
        total += taken
    return worked / (requests * gap), total / requests


def test_requests_that_are_not_slowed_down_leave_the_group_alone(signals: Signals, clock: list[float]) -> None:
    paced = Pace()
    share, _ = _serve(paced, clock, 0.010, 0.0102, 0.0102, 600)
    assert share > 0.9
    assert not paced._guarding


def test_requests_before_the_group_tell_what_later_ones_cost(signals: Signals, clock: list[float]) -> None:
    paced = Pace()
    for taken in (0.5, 0.011, 0.010, 0.010, 0.010):  # the first one allocates memory
        assert not paced.known.is_set()
        paced.request(_pass, clock, lambda taken=taken: taken)
    assert paced.known.is_set()
    _, mean = _serve(paced, clock, 0.010, 0.012, 0.010, 160)
    assert mean < 0.010 * 1.02


@pytest.mark.parametrize("slowdown", [0.15, 0.4, 0.9])
def test_short_requests_are_slowed_down_by_the_aim_on_average(
    slowdown: float, signals: Signals, clock: list[float]
) -> None:
    paced = Pace()
    share, mean = _serve(paced, clock, 0.001, 0.001 * (1 + slowdown), 0.0012, 2000)
    assert mean < 0.001 * (1 + pace.AIM + 0.01)
    assert share > pace.AIM / slowdown / 2
    assert not paced._guarding
    assert len(signals.sent) < 2000 / 10  # not for each request


def _serve_with_repeats(paced: Pace, clock: list[float], gaps: Iterable[float]) -> tuple[float, float, int]:
    """Serve requests of 1 ms, as `_serve` does, with a thread that settles in the gaps.

    A request takes 1.4 ms if the group worked since the last one, and 0.9 ms after a repetition."""
    paced._group, paced._worked, paced._turned, paced._last = 1, True, clock[0], clock[0]
    worked = total = length = 0.0
    count = repeats = 0
    serving = False

    def run() -> float:
        nonlocal repeats
        if not serving:
            repeats += 1
            return 0.0
        taken = 0.0014 if touched else 0.0009 if repeated else 0.001
        clock[0] += taken
        return taken

    for gap in gaps:
        end = clock[0] + gap
        for at in sorted(at for at in (clock[0] + 0.002, *paced._slot, end) if clock[0] <= at <= end):
            worked += (at - clock[0]) * (not paced._stopped)
            clock[0] = at
            if at < end:
                paced._turn(at)
                paced._settle()
        touched, repeated = paced._worked or not paced._stopped, paced._repeated
        serving = True
        taken = paced.request(run)
        serving = False
        paced._account_for(None)
        total, length, count = total + taken, length + gap, count + 1
    return worked / length, total / count, repeats


def test_the_group_works_between_short_requests_that_come_regularly(signals: Signals, clock: list[float]) -> None:
    paced = Pace()
    _serve(paced, clock, 0.001, 0.0014, 0.0014, 400)  # learns what they cost
    assert paced._fitting
    share, mean, repeats = _serve_with_repeats(paced, clock, [0.05] * 1000)
    assert share > 0.6
    assert mean < 0.001 * (1 + pace.AIM + 0.01)
    assert repeats > 900


def test_requests_at_any_time_are_not_foreseen(signals: Signals, clock: list[float]) -> None:
    paced = Pace()
    gaps = np.random.default_rng(0).exponential(0.05, 1000)
    _serve(paced, clock, 0.001, 0.0014, 0.0014, 400)
    share, mean, _ = _serve_with_repeats(paced, clock, map(float, gaps))
    assert pace.AIM < share < 0.6
    assert mean < 0.001 * (1 + pace.AIM + 0.01)


def test_a_request_that_does_not_come_leaves_the_group_alone(signals: Signals, clock: list[float]) -> None:
    paced = Pace()
    _serve(paced, clock, 0.001, 0.0014, 0.0014, 400)
    _serve_with_repeats(paced, clock, [0.05] * 500)
    assert not paced._resting
    assert paced._slot[0] < clock[0] + 0.05 < paced._slot[1]
    clock[0] += 0.2
    paced._settle()
    assert not paced._stopped


def test_long_requests_stop_the_group(signals: Signals, clock: list[float]) -> None:
    paced = Pace()
    share, mean = _serve(paced, clock, 0.030, 0.035, 0.0305, 600)
    assert paced._guarding
    assert share > 0.75  # stopping for each was enough
    assert mean < 0.030 * (1 + pace.AIM + 0.01)


def test_stops_are_bounded(signals: Signals, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "PATIENCE", 5.0)
    paced = Pace()
    _serve(paced, clock, 0.010, 0.020, 0.020, 400)
    stops = paced._stops
    assert pace.PATIENCE < stops < pace.PATIENCE + 0.5
    assert not paced._stopped
    _serve(paced, clock, 0.010, 0.020, 0.020, 100)
    assert paced._stops == stops


def test_a_rest_ends_when_requests_cease(signals: Signals, clock: list[float]) -> None:
    paced = Pace()
    while not paced._stopped:
        _serve(paced, clock, 0.001, 0.002, 0.002, 1)
    clock[0] += pace.IDLE + 1
    paced._turn(clock[0])
    paced._apply()
    assert not paced._stopped


def test_without_requests_the_group_is_not_stopped(signals: Signals, clock: list[float]) -> None:
    paced = Pace()
    paced._group = 1
    for _ in range(5):
        clock[0] += 1.0
        paced._turn(clock[0])
        paced._apply()
    assert signals.sent == []


def _states(group: int) -> list[str]:
    """Return the states of the processes of a group, as in /proc: T for stopped ones."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, of_group = path.read_text().rpartition(")")[2].split()[:3]
            if int(of_group) == group:
                found.append(state)
    return found


def test_the_whole_group_rests_and_goes_on() -> None:
    """A child and one that it started: both are stopped, and what they wrote is read at the end."""
    inner = "import sys; print('ready', flush=True); sys.stdin.read(); print('done', file=sys.stderr)"
    outer = (
        "import sys; from rewrite.system import scoped; scoped.share_group(); "
        "scoped.start([sys.executable, '-c', sys.argv[1]]).wait()"
    )
    pipe = subprocess.PIPE
    child = scoped.start([sys.executable, "-c", outer, inner], stdin=pipe, stdout=pipe, stderr=pipe)
    paced = Pace()
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"  # both run: a process that is being started cannot be stopped
        paced._group, paced._resting, paced._debt = child.pid, True, 1000.0
        paced._apply()
        _until(lambda: _states(child.pid) == ["T", "T"])
        child.stdin.close()  # the inner one would end now
        child.stdin = None
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(1.0)
        assert paced.communicate(child) == b"done\n"
        assert child.returncode == 0
        assert not paced._stopped
    finally:
        scoped.end(child)


def test_the_group_goes_on_after_a_request() -> None:
    child = scoped.start([sys.executable, "-c", "import time; time.sleep(60)"], stderr=subprocess.PIPE)
    paced = Pace()
    paced._guarding = True
    reader = threading.Thread(target=paced.communicate, args=(child,))
    try:
        reader.start()
        _until(lambda: paced._group is not None)
        for _ in range(3):
            paced.request(_until, lambda: _states(child.pid) == ["T"])
            _until(lambda: "T" not in _states(child.pid))
        child.terminate()
        reader.join(20)
        assert child.returncode == -signal.SIGTERM
    finally:
        scoped.end(child)


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
