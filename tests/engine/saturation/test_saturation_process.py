"""Limits of the process that saturates."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from rewrite.engine.graph_job import Job
from rewrite.engine.options import Options
from rewrite.engine.saturation import saturation_process
from rewrite.engine.saturation.saturate import Limits

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
