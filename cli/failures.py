"""How a run of the command line ends: exit codes, messages, a report of internal errors.

0 done; 1 a check, test or verification failed; 2 bad input or usage; 3 internal error; 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from ..errors import RewriteError, naming_packages
from ..system.scoped import remove_all, replacing
from .console import err, say

INTERNAL_ERROR = 3
INTERRUPTED = 130
TERMINATED = 143
_terminated = threading.Event()
_WATCH = 0.1
"""Seconds between two looks at a mapped model's time stamp."""
REPORT_TO = "the issue tracker of the project (see README)"

# Errors of the operating system about a file or a disk are the user's to solve, not faults of the program.
_USER_ERRNOS = {
    errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.EMFILE, errno.ENAMETOOLONG,
    errno.ENOENT, errno.ENOMEM, errno.ENOSPC, errno.ENOTDIR, errno.ENOTEMPTY, errno.EPERM, errno.EROFS, errno.ETXTBSY,
}  # fmt: skip
_NO_THREAD = "can't start new thread"
"""Message of Python's RuntimeError where the system has no memory for the stack of a thread."""


def run_app(app: Callable[..., Any], arguments: Sequence[str]) -> int:
    """Run the Typer application `app` and return the exit code. No exception escapes."""
    _exit_after_interrupt()
    warnings.showwarning = _warn
    try:
        with naming_packages("this"):
            code = app(args=list(arguments), prog_name="rewrite", standalone_mode=False)
        if code == INTERRUPTED:  # Typer's result after a KeyboardInterrupt
            _leave()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        _leave()
    except RewriteError as error:
        print_error(str(error))
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output has ended.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno not in _USER_ERRNOS:
            return report_crash(error, arguments)
        name = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        print_error(f"{name}{error.strerror}")
        return 2
    except Exception as error:
        if isinstance(error, MemoryError) or str(error) == _NO_THREAD:
            print_error("there is not enough memory\nFree some, or raise the limit of this process (ulimit -v).")
            return 2
        # Typer's errors about arguments have different base classes in its versions, but the same attributes.
        if callable(show := getattr(error, "show", None)) and getattr(error, "exit_code", None) == 2:
            show()
            return 2
        if type(error).__name__ == "Abort":
            _leave()
        return report_crash(error, arguments)


def _leave() -> NoReturn:
    """End the process now: the interpreter would spend seconds freeing its memory."""
    remove_all()
    os._exit(TERMINATED if _terminated.is_set() else INTERRUPTED)


def print_error(message: str) -> None:
    """Print an error message on standard error, with the word `error` in red if the terminal has colors."""
    if not message.startswith("error"):  # diagnostics of rule files begin with it and a code
        err().print("[bold red]error:[/] ", end="")
    say(message.removesuffix("\n"), err())


def _warn(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Show our own warnings; those of libraries mean nothing to users of the command."""
    if category.__module__.partition(".")[0] == __name__.partition(".")[0] or category is UserWarning:
        err().print("[bold yellow]warning:[/] ", end="")
        say(str(message), err())


def report_crash(error: BaseException, arguments: Sequence[str]) -> int:
    """Write a reproducer to the current directory, say where to send it, and return the exit code."""
    import tempfile
    import traceback

    last = text = _reproducer(arguments, "".join(traceback.format_exception(error)))
    name = f"rewrite-crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    for folder in (Path.cwd(), Path(tempfile.gettempdir())):
        with contextlib.suppress(OSError):
            with replacing(folder / name) as file:
                file.write(text.encode())
            last = f"Please report it to {REPORT_TO} with this file: {folder / name}"
            break
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    fault = "This is a fault in rewrite, not in your model. The input and all outputs are unchanged."
    print_error(f"internal error: {what}\n{fault}\n{last}")
    return INTERNAL_ERROR


def _reproducer(arguments: Sequence[str], trace: str) -> str:
    """Return the command, the relevant versions and the stack as text."""
    import platform
    import shlex
    from importlib import metadata

    lines = [f"command: rewrite {shlex.join(arguments)}", f"python: {sys.version}", f"platform: {platform.platform()}"]
    for package in ("onnx-rewrite", "onnx", "numpy", "egglog", "lark", "onnxruntime"):
        try:
            lines.append(f"{package}: {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{package}: not installed")
    return "\n".join([*lines, "", trace])


@contextlib.contextmanager
def exit_if_model_changes(model: Path) -> Iterator[None]:
    """End the process with an error as soon as another program writes to the model while the block runs.

    The model is mapped into memory: reading what was cut from its file would be SIGBUS, which cannot be handled."""

    def stamp() -> tuple[int, ...]:
        found = os.stat(model)
        return found.st_ino, found.st_size, found.st_mtime_ns

    before, done = stamp(), threading.Event()

    def watch() -> None:
        while not done.wait(_WATCH):
            with contextlib.suppress(OSError):
                now = stamp()
                if now != before and now[0] == before[0]:  # a file that was replaced stays mapped
                    remove_all()
                    text = f"\nerror: {model}: another program is writing to the model\nTry again when it is done.\n"
                    os.write(2, text.encode(errors="replace"))
                    os._exit(2)

    thread = threading.Thread(target=watch, name="model-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _exit_after_interrupt(grace: float = 0.8) -> None:
    """Make Ctrl-C and SIGTERM end the process within a second.

    Python raises KeyboardInterrupt only between two of its own instructions, and a call of a library can take long. If
    the process still runs after `grace` seconds, a thread ends it. Outputs are written under a temporary name and
    renamed, so none is ever incomplete; temporary files are removed.
    """
    if threading.current_thread() is not threading.main_thread() or os.name != "posix":
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def watch() -> None:
        while number := os.read(reader, 1):
            if number[0] in (signal.SIGINT, signal.SIGTERM):
                time.sleep(grace)
                remove_all()
                os.write(2, b"\n")
                os._exit(INTERRUPTED if number[0] == signal.SIGINT else TERMINATED)

    def terminate(number: int, frame: FrameType | None) -> None:
        _terminated.set()
        raise KeyboardInterrupt  # handled like Ctrl-C

    signal.signal(signal.SIGTERM, terminate)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=watch, name="interrupt-watch", daemon=True).start()
