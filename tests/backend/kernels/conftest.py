"""With sanitizers, models are optimized in this process: their memory exceeds the limits of a child."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _no_child_of_a_sanitized_process() -> Iterator[None]:
    if "ASAN_OPTIONS" not in os.environ:
        yield
        return
    from tests.fuzz.differential import in_process

    with in_process():
        yield
