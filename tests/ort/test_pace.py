"""The pace of a group of processes beside requests: when it is stopped, and that it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

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
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def _serve(paced: Pace, clock: list[float], alone: float, beside: float, stopped: float, turns: int) -> float:
    """Serve requests in each period; return the share of the time in which the group worked.

    They take `alone` seconds at rest, `beside` with the group, and `stopped` if it is stopped for each."""
    work = total = 0.0
    paced._group = 1
    for _ in range(turns):
        for _ in range(8):
            with paced.request():
                clock[0] += alone if paced._resting else stopped if paced._stopped else beside
        was_resting = paced._resting
        seconds = paced._turn()
        paced._apply()
        clock[0] += seconds
        work += seconds * (not paced._resting)
        total += seconds
        assert paced._resting != was_resting or not paced._resting
    return work / total


def test_requests_that_are_not_slowed_down_leave_the_group_alone(signals: Signals, clock: list[float]) -> None:
    paced = Pace()
    assert _serve(paced, clock, 0.010, 0.0102, 0.0102, 12) > 0.8
    assert not paced._guarding


def test_nothing_is_stopped_for_short_requests(signals: Signals, clock: list[float]) -> None:
    paced = Pace()
    assert _serve(paced, clock, 0.001, 0.0015, 0.0015, 12) == 1.0
    assert signals.sent == []


def test_long_requests_stop_the_group(signals: Signals, clock: list[float]) -> None:
    paced = Pace()
    share = _serve(paced, clock, 0.030, 0.035, 0.0305, 40)
    assert paced._guarding
    assert share > 0.75  # stopping for each was enough
    paced = Pace()
    assert _serve(paced, clock, 0.030, 0.035, 0.0324, 24) == pytest.approx(pace.AIM / 0.08, abs=0.1)


def test_stops_are_bounded(signals: Signals, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "PATIENCE", 5.0)
    paced = Pace()
    _serve(paced, clock, 0.010, 0.020, 0.020, 30)
    stops = paced._stops
    assert pace.PATIENCE < stops < pace.PATIENCE + pace.CYCLE
    assert not paced._stopped
    _serve(paced, clock, 0.010, 0.020, 0.020, 10)
    assert paced._stops == stops


def test_without_requests_the_group_is_not_stopped(signals: Signals) -> None:
    paced = Pace()
    paced._group = 1
    for _ in range(5):
        paced._turn()
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
    inner = "import sys, time; time.sleep(0.5); print('done', file=sys.stderr)"
    outer = (
        "import sys; from rewrite.system import scoped; scoped.share_group(); "
        "scoped.start([sys.executable, '-c', sys.argv[1]]).wait()"
    )
    child = scoped.start([sys.executable, "-c", outer, inner], stderr=subprocess.PIPE)
    paced = Pace()
    try:
        _until(lambda: len(_states(child.pid)) == 2)
        paced._group, paced._resting = child.pid, True
        paced._apply()
        _until(lambda: _states(child.pid) == ["T", "T"])
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(1.0)
        assert paced.communicate(child) == b"done\n"
        assert child.returncode == 0
        assert not paced._stopped
    finally:
        scoped.end(child)


def test_the_group_goes_on_after_a_request() -> None:
    child = scoped.start([sys.executable, "-c", "import time; time.sleep(0.3)"], stderr=subprocess.PIPE)
    paced = Pace()
    paced._guarding = True
    reader = threading.Thread(target=paced.communicate, args=(child,))
    try:
        reader.start()
        _until(lambda: paced._group is not None)
        for _ in range(3):
            with paced.request():
                _until(lambda: _states(child.pid) == ["T"])
            _until(lambda: "T" not in _states(child.pid))
        reader.join(20)
        assert child.returncode == 0
    finally:
        scoped.end(child)


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
