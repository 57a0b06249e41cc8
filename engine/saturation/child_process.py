"""Start of the child process that saturates; `saturation_process` says what it does.

It imports none of the engine, so that the child can start before this process has imported that.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...system import scoped

TASK = f"{__package__.rpartition('.')[0]}.graph_job"
"""Module of the task that optimizes the graphs of a model."""


@dataclass(frozen=True, slots=True)
class Child:
    """A child process that waits for its task, and the file with its standard error."""

    process: subprocess.Popen[bytes]
    messages: Path


@contextlib.contextmanager
def start(module: str = TASK) -> Iterator[Child]:
    """Start a child for one `saturation_process.run`; it ends with the block. Raises OSError.

    The child imports egglog and `module`, that of the task, while this process reads the model."""
    with scoped.directory("saturate") as folder, (folder / "messages").open("wb") as messages:
        process = scoped.start(
            scoped.python(f"from {__package__}.saturation_process import main; main({module!r})"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=messages, env={**os.environ, "TMPDIR": str(folder)},
        )  # fmt: skip
        try:
            yield Child(process, folder / "messages")
        finally:
            scoped.end(process)
