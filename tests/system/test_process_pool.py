"""Work on many items in several processes."""

from __future__ import annotations

import gc
import hashlib
import os
import sys
import threading
import time
from functools import partial

import pytest
from rewrite.system.process_pool import collecting_seldom, in_order, yield_cores

DERIVED = partial(hashlib.pbkdf2_hmac, "sha256", b"word", b"salt")
"""Key from a number of iterations: work for a process that needs no module of the tests."""
ITERATIONS = [2_000_000, 2_000_001]


def test_the_processor_time_of_the_processes_counts() -> None:
    began = time.process_time()
    wanted = list(map(DERIVED, ITERATIONS))
    alone, before = time.process_time() - began, os.times().children_user
    assert list(in_order(DERIVED, ITERATIONS, jobs=2)) == wanted
    assert os.times().children_user - before > alone / 4


def test_one_job_works_in_this_process() -> None:
    assert list(in_order(os.getpgid, [0, 0], jobs=1)) == [os.getpgid(0)] * 2


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux alone")
def test_only_the_thread_that_asks_lets_others_go_first() -> None:
    found: list[int] = []

    def work() -> None:
        yield_cores()
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    before = os.getpriority(os.PRIO_PROCESS, 0)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[0] > before
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_the_collector_runs_as_often_as_before_when_the_last_thread_ends() -> None:
    before = gc.get_threshold()
    first, second = collecting_seldom(), collecting_seldom()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)  # the threads overlap
    assert gc.get_threshold()[0] >= 100_000
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before
