"""Limits of the process that saturates."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

import pytest
from rewrite.engine import graph_job
from rewrite.engine.graph_job import Job
from rewrite.engine.ir.graph import Graph
from rewrite.engine.options import Options
from rewrite.engine.saturation import saturation_process
from rewrite.engine.saturation.saturate import Limits
from rewrite.errors import RewriteError
from rewrite.grammar.library.load import Library

JOB = Job((), {}, Options(), (), Limits(seconds=0.0))


@pytest.mark.skipif(sys.platform == "win32", reason="no such limits there")
def test_the_system_ends_what_computes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saturation_process, "_GRACE", 0.0)
    child = os.fork()
    if child == 0:
        saturation_process.limit(JOB)
        while True:
            pass
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == -signal.SIGXCPU
    error = saturation_process._stopped(JOB, code, late=False, messages="")
    assert isinstance(error, saturation_process.OutOfBounds)
    assert "was killed" in str(error)


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not say what another process has computed")
@pytest.mark.parametrize(("code", "reason"), [
    (-signal.SIGABRT, "it exceeded its memory limit"),
    (-signal.SIGKILL, "perhaps since no memory was left"),
])  # fmt: skip
def test_who_killed_it_is_told_as_far_as_it_is_known(code: int, reason: str) -> None:
    assert reason in str(saturation_process._stopped(JOB, code, late=False, messages=""))


@pytest.mark.parametrize(("work", "killed"), [("while True: pass", False), ("input()", True)])
def test_only_a_child_that_does_not_compute_is_killed(work: str, killed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, one that computes goes on."""
    monkeypatch.setattr(saturation_process, "_STALLED", 1.0)
    late, done = threading.Event(), threading.Event()
    child = subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE)
    watch = threading.Thread(target=saturation_process._watch, args=(child, late, done))
    watch.start()
    try:
        watch.join(8.0)
        assert late.is_set() == killed
        assert watch.is_alive() != killed
        if killed:
            child.wait(20.0)  # the signal is sent before it has ended
        assert (child.poll() is not None) == killed
    finally:
        done.set()
        child.kill()
        child.communicate()
        watch.join(20.0)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        TypeError("Couldn't build proto file into descriptor pool: Error building mini table: Out of memory"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_libraries_say_in_several_ways_that_there_is_no_memory(error: Exception) -> None:
    assert saturation_process.is_out_of_memory(error)
    later = ImportError("a module cannot be loaded")
    later.__cause__ = error
    assert saturation_process.is_out_of_memory(later)
    assert not saturation_process.is_out_of_memory(TypeError("out of range"))


@pytest.mark.parametrize(
    ("code", "messages", "expected"),
    [
        (127, "cannot allocate memory for thread-local data: ABORT\n", saturation_process.OutOfBounds),
        (1, "Fatal Python error\n", RewriteError),
    ],
)
def test_the_c_library_ends_a_process_without_memory(code: int, messages: str, expected: type[RewriteError]) -> None:
    error = saturation_process._stopped(JOB, code, late=False, messages=messages)
    assert type(error) is expected
    assert ("memory limit" in str(error)) == (expected is saturation_process.OutOfBounds)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the system does not tell")
def test_a_process_near_its_limit_is_out_of_memory() -> None:
    assert saturation_process.is_near_limit(1 << 20)
    assert not saturation_process.is_near_limit(1 << 45)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes cannot be asked there")
def test_the_child_prepares_until_its_task_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    done: list[int] = []

    def steps() -> Iterator[None]:
        for number in range(5):
            if number == 2:
                os.write(writing, b"task")
            done.append(number)
            yield

    with os.fdopen(reading) as stdin, os.fdopen(writing):
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(saturation_process, "usable_cores", lambda: 2)
        saturation_process._warm_up(steps)
        assert done == [0, 1, 2]
        done.clear()
        monkeypatch.setattr(saturation_process, "usable_cores", lambda: 1)
        saturation_process._warm_up(steps)
        assert done == []
        saturation_process._warm_up(None)


def test_a_job_of_the_standard_rules_takes_those_that_were_loaded_before(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = graph_job.load_rules()  # and caches them
    monkeypatch.setattr(graph_job, "_ready", [])
    list(graph_job.warm_up())
    asked: list[Options] = []

    def load(files: Sequence[str], *, std: bool) -> Library:
        asked.append(Options(rules=tuple(files), std_rules=std))
        return rules

    monkeypatch.setattr(graph_job, "load_rules", load)
    for options in (Options(), Options(std_rules=False)):
        Job((Graph(opset={"": 21}),), {}, options, (), Limits(seconds=10.0), ())(lambda *_: None)
    assert asked == [Options(std_rules=False)]
