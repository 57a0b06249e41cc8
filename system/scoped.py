"""Resources that must not outlive this process: temporary files and directories, and child processes.

All of them end with the block that created them, on errors and interrupts too. A process that has to exit immediately,
because a library does not return after Ctrl-C, calls `remove_all` first.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

_paths: dict[Path, None] = {}
_children: dict[int, subprocess.Popen[bytes]] = {}
_own_groups = True
_changing = threading.RLock()  # held while a child starts, so that each is known before this process may end


def directory(purpose: str) -> AbstractContextManager[Path]:
    """Yield a new temporary directory, removed when the block ends. Raises OSError."""
    return _removed_at_end(Path(tempfile.mkdtemp(prefix=f"rewrite-{purpose}-")))


def directory_beside(path: Path) -> AbstractContextManager[Path]:
    """Yield a new hidden directory beside `path`, on the same disk, removed when the block ends. Raises OSError."""
    return _removed_at_end(Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent)))


@contextlib.contextmanager
def file(contents: bytes, purpose: str) -> Iterator[Path]:
    """Yield a path from which this process reads `contents` while the block runs. Raises OSError.

    On Linux the file stays in memory, and other processes have no name for it."""
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
    """Return the descriptor of a new file in memory; None where these, or /proc to open them by path, are missing."""
    if not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.memfd_create(f"rewrite-{purpose}")
    except (AttributeError, OSError):  # unknown to this system, or forbidden by a sandbox
        return None


@contextlib.contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """Yield a file open for writing that replaces `path` when the block ends without an error.

    Until then, and after an error, `path` is unchanged. If `private`, only its owner may read it. Raises OSError."""
    mode = 0o600 if private else 0o666
    fresh = path.with_name(f".{path.name}-{os.urandom(4).hex()}")  # a directory for it would take several times as long
    with _removed_at_end(fresh):
        with open(fresh, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
        os.replace(fresh, path)


@contextlib.contextmanager
def _removed_at_end(path: Path) -> Iterator[Path]:
    _paths[path] = None
    try:
        yield path
    finally:
        _remove(path)
        _paths.pop(path, None)


def _remove(path: Path) -> None:
    """Remove a file or a directory, if it is there."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        shutil.rmtree(path, ignore_errors=True)


def start(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a child, to be ended with `end`; `options` are those of `subprocess.Popen`. Raises OSError.

    It leads a process group, so that its own children end with it: a compiler driver starts several programs."""
    with _changing:
        child = subprocess.Popen(command, process_group=0 if _own_groups else None, **options)
        _children[child.pid] = child
    return child


def python(code: str) -> list[str]:
    """Return the command of a child that runs code and finds modules where this process does.

    Without that, Python would look for them in the working directory first, where anybody's files may be."""
    path = [entry for entry in sys.path if isinstance(entry, str)]  # Python ignores others
    return [sys.executable, "-P", "-c", f"import sys; sys.path[:] = {path!r}; {code}"]


def share_group() -> None:
    """Keep later children in the group of this process, so that one signal stops or ends all of them."""
    global _own_groups
    _own_groups = False


def run(command: Sequence[str], *, seconds: float, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end and capture its output; `options` are those of `subprocess.Popen`.

    Raises OSError, and `subprocess.TimeoutExpired` after `seconds`, when the command is ended."""
    child = start(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    try:
        out, err = child.communicate(timeout=seconds)
        return subprocess.CompletedProcess(child.args, child.returncode, out, err)
    finally:
        end(child)


def end(child: subprocess.Popen[bytes]) -> None:
    """End a child and the processes that it started, if they still run, and close the pipes to it."""
    _kill(child)
    child.wait()
    with _changing:
        _children.pop(child.pid, None)
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _kill(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if _own_groups:
                os.killpg(child.pid, signal.SIGKILL)
            else:
                child.kill()


def remove_all() -> None:
    """End all children and remove all temporary files. Only the end of this process may follow.

    A thread whose child is killed here goes no further: it would start the next child, or report the death of this one.
    """
    _changing.acquire(timeout=0.5)  # and keep it
    for child in list(_children.values()):
        _kill(child)
    for path in list(_paths):
        _remove(path)


def die_with_parent() -> None:
    """Make this child process end when its parent does, where the system can (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
