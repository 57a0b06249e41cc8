"""What must not outlive this process: temporary files and directories, and children.

All of them go where they were made, on errors and interrupts too. A process that has to end hard, since a library does
not come back after Ctrl-C, has no such chance: it calls `remove_all` first.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

_paths: dict[Path, None] = {}
_children: dict[int, subprocess.Popen[bytes]] = {}


@contextlib.contextmanager
def directory(purpose: str) -> Iterator[Path]:
    """A new directory among the system's temporary ones, there while the block runs. Raises OSError."""
    with _kept(Path(tempfile.mkdtemp(prefix=f"rewrite-{purpose}-"))) as path:
        yield path


@contextlib.contextmanager
def directory_beside(path: Path) -> Iterator[Path]:
    """A new directory on the same disk as `path`, hidden beside it, there while the block runs. Raises OSError."""
    with _kept(Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))) as place:
        yield place


@contextlib.contextmanager
def file(contents: bytes, purpose: str) -> Iterator[Path]:
    """A path under which this process reads `contents` while the block runs. Raises OSError.

    Where the system can (Linux), they stay in memory and no other process has a name for them."""
    number = _memory(purpose)
    if number is None:
        with directory(purpose) as place:
            path = place / "contents"
            path.write_bytes(contents)
            yield path
        return
    with open(number, "wb") as memory:
        memory.write(contents)
        memory.flush()
        yield Path(f"/proc/self/fd/{number}")


def _memory(purpose: str) -> int | None:
    """A descriptor of a new file in memory, if there are such here, and /proc to open it by a path."""
    if not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.memfd_create(f"rewrite-{purpose}")
    except (AttributeError, OSError):  # another system; or one of old, or forbidden by a sandbox
        return None


@contextlib.contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """A file open for writing that takes the place of `path` when the block ends without an error.

    Until then, and after an error, `path` is what it was. If `private`, only its owner may read it. Raises OSError."""
    mode = 0o600 if private else 0o666
    with directory_beside(path) as place:
        fresh = place / path.name
        with open(fresh, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
        os.replace(fresh, path)


@contextlib.contextmanager
def _kept(path: Path) -> Iterator[Path]:
    _paths[path] = None
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        _paths.pop(path, None)


def start(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Starts a child, to be ended with `end`; `options` are those of `subprocess.Popen`. Raises OSError.

    It leads a process group, so that what it starts (a compiler driver starts several programs) ends with it."""
    child = subprocess.Popen(command, process_group=0, **options)
    _children[child.pid] = child
    return child


def run(command: Sequence[str], *, seconds: float, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Runs a command to its end, catching what it says; `options` are those of `subprocess.Popen`.

    Raises OSError, and `subprocess.TimeoutExpired` when it takes more than `seconds`; it is ended then."""
    child = start(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    try:
        out, err = child.communicate(timeout=seconds)
        return subprocess.CompletedProcess(child.args, child.returncode, out, err)
    finally:
        end(child)


def end(child: subprocess.Popen[bytes]) -> None:
    """Ends a child and what it started, if they still run, and closes the pipes to it."""
    _kill(child)
    child.wait()
    _children.pop(child.pid, None)
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _kill(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)


def remove_all() -> None:
    """Ends all children and removes all temporary files of this process; only its end may follow."""
    for child in list(_children.values()):
        _kill(child)
    for path in list(_paths):
        shutil.rmtree(path, ignore_errors=True)


def die_with_parent() -> None:
    """Makes this child process end when the one that started it does, where the system can (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
