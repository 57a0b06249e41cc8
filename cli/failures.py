"""What a run of the command line ends with: exit codes, messages for people, a reproducer for our own mistakes.

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

from ..errors import RewriteError
from ..transient import remove_all, replacing

INTERNAL_ERROR = 3
INTERRUPTED = 130
TERMINATED = 143
_terminated = threading.Event()
_WRITTEN = getattr(signal, "SIGIO", 0)
"""The signal that tells of programs that want to write to what this one has a lease of."""
_leased: list[Path] = []
REPORT_TO = "the issue tracker of the project (see README)"

# What the operating system says about a file or a disk is the user's business, not a mistake in the program.
_USER_ERRNOS = {
    errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.EMFILE, errno.ENAMETOOLONG,
    errno.ENOENT, errno.ENOSPC, errno.ENOTDIR, errno.ENOTEMPTY, errno.EPERM, errno.EROFS, errno.ETXTBSY,
}  # fmt: skip


def guarded(app: Callable[..., Any], arguments: Sequence[str]) -> int:
    """Run the Typer application `app` and return the exit code; no exception leaves it."""
    _leave_soon_after_interrupt()
    warnings.showwarning = _warn
    try:
        code = app(args=list(arguments), prog_name="rewrite", standalone_mode=False)
        if code == INTERRUPTED:  # what Typer makes of a KeyboardInterrupt
            _leave()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        _leave()
    except RewriteError as error:
        complain(str(error))
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output has gone; nothing is left to say, and nobody to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno not in _USER_ERRNOS:
            return crashed(error, arguments)
        name = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        complain(f"{name}{error.strerror}")
        return 2
    except Exception as error:
        if _is_usage_error(error):
            error.show()  # type: ignore[attr-defined]
            return 2
        if type(error).__name__ == "Abort":
            _leave()
        return crashed(error, arguments)


def _leave() -> NoReturn:
    """End the process now: the interpreter's own end, with all its memory to free, can take seconds."""
    remove_all()
    os._exit(TERMINATED if _terminated.is_set() else INTERRUPTED)


def complain(message: str) -> None:
    """Print an error for people on standard error, the word `error` in red where the terminal has colours."""
    from .console import err

    head, _, rest = message.partition("\n")
    console = err()
    if not head.startswith("error"):  # the diagnostics of rule files say it themselves, with a code
        console.print("[bold red]error:[/] ", end="")
    console.print(head, markup=False, highlight=False, soft_wrap=True)
    if rest:
        console.print(rest, markup=False, highlight=False, soft_wrap=True)


def _warn(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Show our own warnings as one line; those of libraries are not for the people who run the command."""
    if category.__module__.partition(".")[0] == __name__.partition(".")[0] or category is UserWarning:
        from .console import err

        err().print("[bold yellow]warning:[/] ", end="")
        err().print(str(message), markup=False, highlight=False, soft_wrap=True)


def crashed(error: BaseException, arguments: Sequence[str]) -> int:
    """Write a reproducer next to the user's work, say where to send it, and return the exit code for it."""
    import tempfile
    import traceback

    text = _reproducer(arguments, "".join(traceback.format_exception(error)))
    name = f"rewrite-crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    where: Path | None = None
    for folder in (Path.cwd(), Path(tempfile.gettempdir())):
        try:
            with replacing(folder / name) as file:
                file.write(text.encode())
            where = folder / name
            break
        except OSError:
            continue
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    complain(
        f"internal error: {what}\n"
        "This is a mistake in rewrite, not in your model. The input and all outputs are untouched.\n"
        + (f"Please report it to {REPORT_TO} with this file: {where}" if where else text)
    )
    return INTERNAL_ERROR


def _reproducer(arguments: Sequence[str], trace: str) -> str:
    """The command, the versions that matter and the stack, as text."""
    import platform
    import shlex
    from importlib import metadata

    lines = [f"command: rewrite {shlex.join(arguments)}", f"python: {sys.version}", f"platform: {platform.platform()}"]
    for package in ("onnx-rewrite", "onnx", "numpy", "egglog", "Cython", "lark", "onnxruntime"):
        try:
            lines.append(f"{package}: {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{package}: not installed")
    return "\n".join([*lines, "", trace])


def _is_usage_error(error: Exception) -> bool:
    """Whether Typer raised it about the arguments (its base class has moved between versions; its shape has not)."""
    return callable(getattr(error, "show", None)) and getattr(error, "exit_code", None) == 2


@contextlib.contextmanager
def ending_before_writes(model: Path) -> Iterator[None]:
    """While the block runs, and the system can tell (Linux, on disks of this machine), another program that opens the
    model for writing waits until this process has ended with an error, which it does at once.

    Reading what is mapped of a file that was cut would be SIGBUS, which nothing can be made of."""
    try:
        import fcntl

        file = os.open(model, os.O_RDONLY | os.O_CLOEXEC)
    except (ImportError, OSError):
        yield
        return
    try:
        # no leases here, it is open for writing already, or this is not the main thread
        with contextlib.suppress(AttributeError, OSError, ValueError):
            signal.signal(_WRITTEN, lambda number, frame: None)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            _leased.append(model)
        yield
    finally:
        _leased.clear()
        os.close(file)


def _leave_to_writer(model: Path) -> NoReturn:
    """End the process, whatever it does, since its model is about to change."""
    remove_all()
    text = f"\nerror: {model}: another program is writing to the model\nTry again when it is done.\n"
    os.write(2, text.encode(errors="replace"))
    os._exit(2)


def _leave_soon_after_interrupt(grace: float = 0.8) -> None:
    """Make Ctrl-C and SIGTERM end the process within a second.

    Python raises KeyboardInterrupt only between two of its own instructions, which can be long in coming inside a
    library; if the process is still there after `grace` seconds, a watching thread ends it. Files are written to a
    temporary name and renamed, so nothing half-written takes an output's place; what is temporary is removed.
    """
    if threading.current_thread() is not threading.main_thread() or os.name != "posix":
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def watch() -> None:
        while number := os.read(reader, 1):
            for model in _leased if number[0] == _WRITTEN else ():
                _leave_to_writer(model)
            if number[0] in (signal.SIGINT, signal.SIGTERM):
                time.sleep(grace)
                remove_all()
                os.write(2, b"\n")
                os._exit(INTERRUPTED if number[0] == signal.SIGINT else TERMINATED)

    def terminate(number: int, frame: FrameType | None) -> None:
        _terminated.set()
        raise KeyboardInterrupt  # the same way out as after Ctrl-C

    signal.signal(signal.SIGTERM, terminate)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=watch, name="interrupt-watch", daemon=True).start()
