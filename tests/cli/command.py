"""The command line in a separate process, as a person or a script runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

MAIN = "from rewrite.cli.app import main; main()"


def environment(**changes: str) -> dict[str, str]:
    """The environment for a command: no colors, wide lines; with `changes`."""
    return {**os.environ, "NO_COLOR": "1", "COLUMNS": "200", "TERM": "dumb", **changes}


def rewrite(
    *arguments: str, cwd: Path, before: str = "", env: Mapping[str, str] | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run `rewrite ARGUMENTS` in `cwd`, after the Python code `before`."""
    return subprocess.run(
        [sys.executable, "-P", "-c", f"{before}\n{MAIN}", *arguments],
        cwd=cwd,
        env=environment(**(env or {})),
        capture_output=True,
        text=True,
        timeout=timeout,
    )


class Running:
    """A command that runs; what it starts carries a mark, so that leftovers are found."""

    def __init__(self, *arguments: str, cwd: Path, temporary: Path, before: str = "", **env: str) -> None:
        self.mark = uuid.uuid4().hex
        self.child = subprocess.Popen(
            [sys.executable, "-P", "-c", f"{before}\n{MAIN}", *arguments],
            cwd=cwd,
            env=environment(REWRITE_TEST_MARK=self.mark, TMPDIR=str(temporary), **env),
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # else ignored in the background
        )

    def wait_for(self, text: str) -> None:
        """Wait until standard error has a line that begins so."""
        assert self.child.stderr is not None
        seen = []
        for line in self.child.stderr:
            seen.append(line)
            if line.startswith(text):
                return
        raise AssertionError(f"ended with {self.child.wait()} before {text!r}: {''.join(seen)}")

    def interrupt(self, number: int = signal.SIGINT) -> tuple[int, float, str]:
        """Interrupt the command; return the exit code, the seconds it took, and the rest of standard error."""
        start = time.monotonic()
        self.child.send_signal(number)
        _, errors = self.child.communicate(timeout=30)
        return self.child.returncode, time.monotonic() - start, errors

    def left(self) -> list[str]:
        """Return the command lines of processes that it started and that still run."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
        return [line for line in found if line]
