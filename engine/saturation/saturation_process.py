"""Work of the child process that saturates, within hard limits of time and memory.

egglog cannot be interrupted while it runs, and a rule set may grow the e-graph without bound. So the work is done where
it can be killed. `run` is the parent's side; `main` is the child's: it reads a pickled `Task` from standard input and
writes pickled messages to standard output. Both ends are ours: nothing from outside is unpickled.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, Self

from ...errors import RewriteError, UserError
from ...system import scoped
from ...system.process_pool import collect_seldom, usable_cores
from ...system.progress import Progress, ignore
from ..egraph import matcher
from .child_process import Child, start
from .saturate import Limits

_GRACE = 10.0
"""Seconds beyond the time limit, for the last iteration and extraction …"""
_GRACE_PER_NODE = 0.004
"""… and for each node of the model: a large one on a busy machine must not be lost after all the work."""
_STALLED = 60.0
"""Seconds of a period; after two in a row without any computing the child waits for what does not come."""
_NO_MEMORY = 12
"""Exit code of a child in which Python runs out of memory; egglog aborts then, and the system may kill it."""


class Task(Protocol):
    """Work for the child: a callable that can be pickled, with its limits."""

    @property
    def limits(self) -> Limits:
        """Seconds of computing and e-nodes."""

    @property
    def memory(self) -> int:
        """Bytes that the child may use."""

    @property
    def size(self) -> int:
        """Nodes of the model."""

    def within(self, limits: Limits) -> Self:
        """Return the same work with other limits."""

    def __call__(self, progress: Progress) -> Any:
        """Do the work."""


class OutOfBounds(UserError):
    """The child was killed at a hard limit before it had a result. `bound` is the limit: `time` or `memory`."""

    def __init__(self, message: str, *, bound: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.bound = bound


def run(task: Task, progress: Progress = ignore, child: Child | None = None) -> Any:
    """Do a task in a child process: the given one, or a new one.

    Raises `OutOfBounds` if the child had to be killed, and whatever the task raised. An interrupt kills the child."""
    if child is None:
        with start(type(task).__module__) as child:
            return run(task, progress, child)
    process = child.process
    late, done = threading.Event(), threading.Event()
    threading.Thread(target=_watch, args=(process, late, done), daemon=True).start()
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(task, process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
            process.stdin.close()
        while True:
            try:
                kind, value = pickle.load(process.stdout)
            except (EOFError, pickle.UnpicklingError):
                code = process.wait()
                raise _stopped(task, code, late.is_set(), child.messages.read_text(errors="replace")) from None
            if kind == "result":
                return value
            if kind == "error":
                raise value
            progress(*value)
    finally:
        done.set()


def _watch(process: subprocess.Popen[bytes], late: threading.Event, done: threading.Event) -> None:
    """Kill a child that does not compute, and set `late`. The system ends one that computes too long (`limit`).

    A bound by the clock would make the result depend on what else the machine does. One period may be that of a user
    who stopped both processes."""
    before, idle = -1.0, 0
    while not done.wait(_STALLED):
        computed = _computed(process.pid)
        idle = idle + 1 if computed <= before else 0
        before = computed
        if idle == 2:
            late.set()
            process.kill()
            return


def _computed(pid: int) -> float:
    """Return the seconds that a process has computed; those of the clock where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.monotonic()


def _grace(task: Task) -> float:
    return _GRACE + _GRACE_PER_NODE * task.size


def _stopped(task: Task, code: int, late: bool, messages: str) -> RewriteError:
    hint = "Some rules keep generating new terms for this model: disable them"
    if late or code == -signal.SIGXCPU:
        end = f"{_grace(task):.0f} s after its time limit of {task.limits.seconds:g} s"
        message = f"saturation was killed: it did not finish within {end}"
        return OutOfBounds(message, bound="time", hint=f"{hint}, or lower --node-limit.")
    if code in (_NO_MEMORY, -signal.SIGABRT, -signal.SIGKILL) or _names_memory(messages):
        megabytes = task.memory >> 20
        message = f"saturation was killed: it exceeded its memory limit of {megabytes} MiB"
        if code == -signal.SIGKILL and not _names_memory(messages):  # by the system, or by hand: that limit aborts it
            message = f"saturation was killed, perhaps since no memory was left; its limit is {megabytes} MiB"
        return OutOfBounds(message, bound="memory", hint=f"{hint}, lower --node-limit or raise --memory-limit.")
    last = messages.strip().splitlines()[-1:] or [f"exit code {code}"]
    return RewriteError(f"the saturation process failed: {last[0]}")


def limit(task: Task) -> None:
    """Bound the memory and the computing time of this process.

    The system then ends it (SIGXCPU) even inside a single call of egglog."""
    import resource

    spent = math.ceil(time.process_time() + task.limits.seconds + _grace(task))
    for what, bounds in ((resource.RLIMIT_DATA, (task.memory,) * 2), (resource.RLIMIT_CPU, (spent, spent + 2))):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, bounds)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error, or one before it, says that there was no memory.

    Libraries in C have errors of their own for that: protobuf raises a TypeError that ends with "Out of memory"."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    before = error.__cause__ or error.__context__
    return _names_memory(str(error)) or (before is not None and is_out_of_memory(before))


def is_near_limit(memory: int) -> bool:
    """Return whether this process uses nine tenths of the bytes it may, as far as the system tells (Linux).

    There any error may be one of a library in C that misses a failed allocation, such as a SystemError."""
    with contextlib.suppress(OSError, StopIteration, ValueError):
        status = Path("/proc/self/status").read_text()
        used = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmData:"))
        return used >= 0.9 * memory
    return False


def _names_memory(text: str) -> bool:
    """Whether a library, the C library's own end of the process included, writes that there is no memory."""
    return any(phrase in text.lower() for phrase in ("out of memory", "cannot allocate memory"))


def _warm_up(steps: Callable[[], Iterator[None]] | None) -> None:
    """Run the steps of a module that its tasks would do first, until the task arrives; none on a single core."""
    if steps is not None and usable_cores() > 1:
        with contextlib.suppress(OSError):  # Windows cannot ask a pipe
            for _ in steps():
                if select.select([sys.stdin], [], [], 0)[0]:
                    return


def main(module: str) -> None:
    """Run the child: one task from standard input, messages to standard output."""
    scoped.die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    collect_seldom()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not get between the messages
    matcher.bindings()  # before the task arrives
    if module:
        _warm_up(getattr(import_module(module), "warm_up", None))
    task: Task = pickle.load(sys.stdin.buffer)
    limit(task)

    def send(kind: str, value: Any) -> None:
        pickle.dump((kind, value), out, protocol=pickle.HIGHEST_PROTOCOL)
        out.flush()

    try:
        send("result", task(lambda stage, facts: send("progress", (stage, dict(facts)))))
    except Exception as error:
        if is_out_of_memory(error) or (not isinstance(error, RewriteError) and is_near_limit(task.memory)):
            os._exit(_NO_MEMORY)
        try:
            send("error", error)
        except Exception:  # it cannot be pickled
            send("error", RewriteError(f"{type(error).__name__}: {error}"))
    os._exit(0)
