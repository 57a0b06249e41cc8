"""Compiling in the background: a model is answered by ONNX Runtime or NumPy while a child process compiles it.

The child has a low priority, and rests where requests would become slower (`pace`). It leaves the program in the cache,
or in a bundle if the model cannot be cached, and ends with its parent."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine.options import Options
from ..errors import RewriteError, UserError
from ..system import scoped
from .options import LOG
from .pace import Pace

if TYPE_CHECKING:
    from ..backend.runtime.program import Program

NICENESS = 19
"""Lowers the priority of the child: its weight in Linux's scheduler is 15, that of others 1024."""

PATIENCE = 1.0
"""Seconds after which the child starts even if little was asked. First answers should not wait for its start."""


@dataclass(frozen=True, slots=True)
class Job:
    """A model to compile: a file, the bytes of one, or a `ModelProto`; sizes of its free dims; the threads of a run.

    Attributes:
        key: the program's key in the cache, None if it cannot be cached.
        stamp: size and time of the file, as they were when the key was computed; None for other models.
    """

    model: Any
    sizes: dict[str, int]
    threads: int
    key: str | None
    stamp: tuple[int, int] | None

    @classmethod
    def of(cls, model: Any, sizes: dict[str, int], threads: int) -> Job:
        """Return the job for a model as it is now."""
        from ..backend.compile_model import ProgramIdentity

        stamp = _stamp(model)
        identity = ProgramIdentity.of(model, _options(sizes), threads, "native")
        return cls(model, sizes, threads, identity.key() if identity is not None else None, stamp)

    @property
    def options(self) -> Options:
        """The options of the compiler."""
        return _options(self.sizes)

    def is_current(self) -> bool:
        """Whether the file is still the one that the job was made for."""
        return _stamp(self.model) == self.stamp

    def cached(self) -> Program | None:
        """Return the program from the cache; None if the model was not compiled before or cannot be cached."""
        from ..backend.bundle.program_cache import ProgramCache

        return None if self.key is None else ProgramCache().find(self.key, threads=self.threads)

    def compile(self) -> Program:
        """Return the program, from the cache or after compiling. Raises UserError."""
        from ..backend.compile_model import compile_model

        return compile_model(self.model, self.options, threads=self.threads)


def _options(sizes: dict[str, int]) -> Options:
    return Options.of(shapes=sizes)


def _stamp(model: Any) -> tuple[int, int] | None:
    """Return size and time of a model's file; None for other models, and for a file that is gone."""
    if not isinstance(model, Path):
        return None
    try:
        about = model.stat()
    except OSError:
        return None
    return about.st_size, about.st_mtime_ns


class Compilation:
    """A child process that compiles a model (a file or bytes), and the thread that waits for it.

    It begins when the session has `answered` its first requests, or after a second. `deliver` is called with the
    program in that thread; on failure it is not called, and the reason is logged with the name of what answers `first`.
    """

    def __init__(
        self, job: Job, deliver: Callable[[Program], None], answered: threading.Event, pace: Pace, first: str
    ) -> None:
        self._job, self._deliver, self._answered, self._first = job, deliver, answered, first
        self._pace = pace
        self._canceled = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._work, name="rewrite.ort", daemon=True)
        self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the child has ended and its program is in use; return whether that is so."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def cancel(self) -> None:
        """End the child."""
        self._canceled.set()
        self._answered.set()
        if self._child is not None:
            scoped.end(self._child)

    def _work(self) -> None:
        self._answered.wait(PATIENCE)
        if self._canceled.is_set():
            return
        try:
            with ExitStack() as stack:
                folder = stack.enter_context(scoped.directory("background"))
                program = self._compiled(folder)
                if program is not None and not self._canceled.is_set():
                    self._deliver(program)
        except (OSError, ValueError, RewriteError) as error:  # ValueError: `cancel` closed the pipe that was read
            if not self._canceled.is_set():
                LOG.warning("compiling failed, so %s goes on: %s", self._first, error)

    def _compiled(self, folder: Path) -> Program | None:
        """Return the program after the child has ended; None if it was canceled. Raises UserError if it failed."""
        from ..backend.bundle.load_bundle import load

        model = self._job.model
        if isinstance(model, bytes):
            path = folder / "model.onnx"
            path.write_bytes(model)
        else:
            path = model.absolute()
        bundle = folder / "model.rewrite"
        task = json.dumps([str(path), self._job.sizes, self._job.threads, str(bundle), NICENESS])
        command = scoped.python(
            f"import json; from {__name__} import compile_in_child; compile_in_child(*json.loads(sys.argv[1]))"
        )
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        self._child = scoped.start([*command, task], **quiet)
        try:
            if self._canceled.is_set():
                return None
            said = self._pace.communicate(self._child)
        finally:
            scoped.end(self._child)
        if self._canceled.is_set():
            return None
        if self._child.returncode:
            text = said.decode(errors="replace").strip() or f"exit code {self._child.returncode}"
            raise UserError(text[-2000:])
        if not self._job.is_current():
            raise UserError("the model has changed since the session was made", where=str(model))
        program = load(bundle, threads=self._job.threads) if bundle.exists() else self._job.cached()
        if program is None:
            raise UserError("the program is no longer in the cache", hint="`rewrite cache info` shows its limit.")
        return program


def compile_in_child(model: str, sizes: dict[str, int], threads: int, bundle: str, niceness: int) -> None:
    """Compile a model into the cache, or into a bundle if it cannot be cached; print an error and exit with 2 or 3.

    On a busy core this process and its children get a share of the time that `niceness` decides. An idle priority would
    be gentler, but a session that is always busy would never be compiled."""
    import warnings

    scoped.die_with_parent()
    scoped.share_group()
    with contextlib.suppress(OSError):  # forbidden by a container: it competes with everyone
        os.nice(niceness)
    warnings.simplefilter("ignore")  # the parent warns when it loads the program
    try:
        job = Job.of(Path(model), sizes, threads)
        program = job.compile()
        if job.cached() is None:
            program.save(Path(bundle))
    except RewriteError as error:
        print(error, file=sys.stderr)  # noqa: T201  (the parent reads it)
        sys.exit(error.exit_code)
