"""With sanitizers, models are optimized in this process, since their memory exceeds the limits of a child, and kernels
are compiled with little optimization, which takes a third of the time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from unittest import mock

import pytest
from rewrite.backend.toolchain import compiler


@pytest.fixture(autouse=True, scope="session")
def _no_child_of_a_sanitized_process() -> Iterator[None]:
    if "ASAN_OPTIONS" not in os.environ:
        yield
        return
    from tests.fuzz.differential import in_process

    with in_process(), mock.patch.object(compiler, "_FLAGS", ("-Og", *compiler._FLAGS[1:])):
        yield
