"""Work on many items in several processes."""

from __future__ import annotations

import hashlib
import os
import time
from functools import partial

from rewrite.system.process_pool import in_order

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
