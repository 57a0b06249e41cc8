"""The bounds of the process that saturates."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from rewrite.engine import worker
from rewrite.engine.saturate import Limits

JOB = worker.Job((), {}, (), True, "default", (), Limits(seconds=0.0), {})


def test_rules_are_read_until_the_job_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    standard, parsed = worker.standard_files(), []

    def parse(path: Path) -> None:
        parsed.append(path)
        if len(parsed) == 3:
            os.write(theirs, b"a job")

    monkeypatch.setattr(worker, "prepare", parse)
    ours, theirs = os.pipe()
    saved = os.dup(0)
    try:
        os.dup2(ours, 0)
        worker._read_rules_meanwhile()
    finally:
        os.dup2(saved, 0)
        for file in (ours, theirs, saved):
            os.close(file)
    assert parsed == standard[:-4:-1]


@pytest.mark.skipif(sys.platform == "win32", reason="no such limits there")
def test_the_system_ends_what_computes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_GRACE", 0.0)
    child = os.fork()
    if child == 0:
        worker.limit(JOB)
        while True:
            pass
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == -signal.SIGXCPU
    error = worker._stopped(JOB, code, late=False, said="")
    assert isinstance(error, worker.OutOfBounds)
    assert "stopped hard" in str(error)
