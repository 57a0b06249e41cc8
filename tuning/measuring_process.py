"""The child process that runs candidates: one that crashes or hangs takes nothing else with it.

The parent sends pickled requests, the child answers each; both ends are ours. The child is pinned to the cores that are
measured on. Before each timed run it reads a buffer larger than the second-level cache, then the inputs: as in a model,
weights come from further away, and inputs are as near as the kernel before left them.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import RewriteError
from ..system import scoped

_LEAST_SECONDS = 3.0  # that whole models are compared for, unless they take less
_COPIED = 400 << 20  # bytes that all copies of one model may take
Sample = dict[int, list[float]]
"""Seconds of each timed run, by candidate."""


Steps = dict[tuple[str, ...], float]
"""Median seconds of the steps of each group of nodes in a run, by the names of the nodes."""


@contextlib.contextmanager
def measuring_cores(threads: int) -> Iterator[list[int]]:
    """Yield the cores to measure on, as many as threads; this process and its compilers keep to the others, if any."""
    if not hasattr(os, "sched_getaffinity"):
        yield []
        return
    before = os.sched_getaffinity(0)
    cores = sorted(before)
    measured_on = cores[-threads:]
    rest = set(cores) - set(measured_on)
    if rest:
        os.sched_setaffinity(0, rest)
    try:
        yield measured_on
    finally:
        os.sched_setaffinity(0, before)


def places(bundle: Path) -> tuple[range, range]:
    """Return the numbers for the copies of two models of one size, as `MeasuringProcess.compare` takes them.

    Three copies each, fewer of models of more than a hundred MB."""
    nbytes = sum(file.stat().st_size for file in bundle.rglob("*") if file.is_file())
    copies = max(1, min(3, _COPIED // max(1, nbytes)))
    return range(0, 2 * copies, 2), range(1, 2 * copies, 2)


class CandidateDied(RewriteError):
    """The process ended or was killed while it ran a candidate; `reason` is "crash" or "timeout"."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"a candidate ended the measuring process: {reason}")
        self.reason = reason


class MeasuringProcess:
    """The parent's side: starts the child when it is needed, and again after a candidate has ended it."""

    def __init__(self, cores: Sequence[int], evicted: int) -> None:
        """Measure on `cores`; `evicted` bytes are read between runs, 0 to leave caches as they are."""
        self._settings = (tuple(cores), evicted)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> MeasuringProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the child, if there is one."""
        if self._process is not None:
            scoped.end(self._process)
            self._process = None

    @property
    def is_running(self) -> bool:
        """Whether there is a child, which has the candidates loaded so far."""
        return self._process is not None

    def load(self, number: int, bundle: Path, feeds: Mapping[str, Any], seconds: float) -> float:
        """Load a candidate and run it; return the largest difference from the outputs of candidate 0.

        The difference is relative to the largest magnitude of an output. Raises CandidateDied."""
        return float(self._ask(("load", number, bundle, dict(feeds)), seconds))

    def drop(self, number: int) -> None:
        """Forget a candidate."""
        if self.is_running:
            self._ask(("drop", number), 60.0)

    def time(self, numbers: Sequence[int], rounds: int, seconds: float) -> Sample:
        """Run loaded candidates in turn, `rounds` times; return the seconds of each run. Raises CandidateDied."""
        found: Sample = self._ask(("time", tuple(numbers), rounds), seconds)
        return found

    def profile(self, number: int, rounds: int, seconds: float) -> tuple[float, Steps]:
        """Run a loaded model `rounds` times; return the median seconds of a run and of each group of nodes."""
        found: tuple[float, Steps] = self._ask(("profile", number, rounds), seconds)
        return found

    def compare(
        self, first: Sequence[int], second: Sequence[int], rounds: int, seconds: float
    ) -> tuple[float, float, Steps, Steps]:
        """Run the loaded copies of two models in turn; return the seconds of a run of each, and of their groups.

        These are medians over the runs of a copy, then over the copies, whose places in memory are worth a few per
        cent."""
        found: tuple[float, float, Steps, Steps] = self._ask(("compare", tuple(first), tuple(second), rounds), seconds)
        return found

    def _ask(self, request: tuple[Any, ...], seconds: float) -> Any:
        if self._process is None:
            self._process = _start(self._settings)
        process, late = self._process, threading.Event()
        assert process.stdin is not None
        assert process.stdout is not None

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, stop)
        timer.daemon = True
        timer.start()
        try:
            pickle.dump(request, process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
            process.stdin.flush()
            kind, value = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            self.stop()
            raise CandidateDied("timeout" if late.is_set() else "crash") from None
        finally:
            timer.cancel()
        if kind == "error":
            raise RewriteError(f"measuring failed: {value}")
        return value


def _start(settings: object) -> subprocess.Popen[bytes]:
    process = scoped.start(
        scoped.python(f"from {__name__} import main; main()"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        pickle.dump(settings, process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
    return process


# --- the child --------------------------------------------------------------------------------------------------------


def main() -> None:
    """Answer requests from standard input until it ends."""
    import signal

    scoped.die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    cores, evicted = pickle.load(sys.stdin.buffer)
    with contextlib.suppress(AttributeError, OSError):
        os.sched_setaffinity(0, cores)
    candidates = _Candidates(evicted)
    while True:
        try:
            name, *arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            os._exit(0)
        try:
            answer = ("value", getattr(candidates, name)(*arguments))
        except Exception as error:
            answer = ("error", f"{type(error).__name__}: {error}")
        pickle.dump(answer, out, protocol=pickle.HIGHEST_PROTOCOL)
        out.flush()


class _Candidates:
    """The loaded candidates and their inputs. Number 0 is the default schedule, with which others are compared."""

    def __init__(self, evicted: int) -> None:
        import numpy as np

        self._evicting = np.zeros(evicted // 4, np.float32)
        self._programs: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._expected: dict[str, Any] = {}

    def load(self, number: int, bundle: Path, feeds: dict[str, Any]) -> float:
        import numpy as np

        from ..backend.bundle.load_bundle import load

        program = load(bundle)
        found = program.run(feeds)
        if number == 0:
            self._programs.clear()
            self._expected = {name: np.asarray(array, np.float64) for name, array in found.items()}
        self._programs[number] = program, feeds
        worst = 0.0
        for name, wanted in self._expected.items():
            difference = np.abs(np.asarray(found[name], np.float64) - wanted).max(initial=0.0)
            scale = np.abs(wanted).max(initial=0.0)
            relative = float(difference / scale) if difference else 0.0
            worst = max(worst, math.inf if math.isnan(relative) else relative)
        return worst

    def drop(self, number: int) -> None:
        self._programs.pop(number, None)

    def time(self, numbers: tuple[int, ...], rounds: int) -> Sample:
        found: Sample = {number: [] for number in numbers}
        for turn in range(rounds):
            for number in _rotated(numbers, turn):
                program, feeds = self._programs[number]
                self._evicting.sum()
                for array in feeds.values():
                    array.any()
                launches = program.record(feeds)
                found[number].append(sum(_seconds(launch.spans) for launch in launches))
        return found

    def profile(self, number: int, rounds: int) -> tuple[float, Steps]:
        whole, _, steps, _ = self.compare((number,), (number,), rounds)
        return whole, steps

    def compare(
        self, first: tuple[int, ...], second: tuple[int, ...], rounds: int
    ) -> tuple[float, float, Steps, Steps]:
        turns = [(s, n) for pair in itertools.zip_longest(first, second) for s, n in enumerate(pair) if n is not None]
        runs: dict[tuple[int, int], list[tuple[float, Steps]]] = {turn: [] for turn in turns}
        end, done = time.monotonic() + _LEAST_SECONDS, 0
        while done < rounds or (time.monotonic() < end and done < 20 * rounds):
            for (_, number), found in runs.items():
                found.append(self._run(number))
            done += 1
        (before, inside), (after, inside_after) = (
            _medians([_medians(found) for (at, _), found in runs.items() if at == side]) for side in (0, 1)
        )
        return before, after, inside, inside_after

    def _run(self, number: int) -> tuple[float, Steps]:
        """Return the seconds of a run of a model, and of each of its groups in another run."""
        program, feeds = self._programs[number]
        program.run(feeds)
        begun = time.perf_counter()
        program.run(feeds)
        whole = time.perf_counter() - begun
        steps: Steps = {}
        for launch in program.record(feeds):
            names = tuple(origin.name for origin in getattr(launch.item, "origins", ()))
            steps[names] = steps.get(names, 0.0) + _seconds(launch.spans)
        return whole, steps


def _medians(runs: Sequence[tuple[float, Steps]]) -> tuple[float, Steps]:
    import statistics

    names = runs[0][1].keys()
    steps = {group: statistics.median(steps[group] for _, steps in runs if group in steps) for group in names}
    return statistics.median(whole for whole, _ in runs), steps


def _rotated(numbers: Sequence[int], turn: int) -> Iterator[int]:
    """Yield numbers from another one each turn, so that none always follows the same one."""
    for place in range(len(numbers)):
        yield numbers[(turn + place) % len(numbers)]


def _seconds(spans: Any) -> float:
    """Return the seconds from the first begin to the last end of a step's threads."""
    ran = spans[spans[:, 1] > 0]
    return float(ran[:, 1].max() - ran[:, 0].min()) if len(ran) else 0.0
