"""Faults at every stage of a compile: `python -m tests.nightly.injected_faults [MODEL.onnx] [--points 10]`.

`rewrite MODEL` runs with an empty cache while its children are killed, it is killed itself or interrupted, memory ends,
or the disk is full, at points that divide the time of an undisturbed run evenly. After each fault the program and the
model must be whole or absent, and a second run with the same cache must give what the undisturbed run gave, byte for
byte. Prints a table of what was injected and what was seen. Ends with an error if anything was not as it must be. It
needs Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import rewrite
from onnx import parser

MODEL = """<ir_version: 8, opset_import: ["": 17]> g (float[1, 3, 64, 64] x) => (float[1, 10] y) {
    s = Constant<value_ints = [16, 3, 3, 3]>() o = Constant<value_ints = [16]>() t = Constant<value_ints = [10, 16]>()
    w = ConstantOfShape<value = float[1] {0.1}>(s) b = ConstantOfShape<value = float[1] {0.5}>(o)
    c = Conv<pads = [1, 1, 1, 1]>(x, w, b) r = Relu(c) p = GlobalAveragePool(r) f = Flatten(p)
    m = ConstantOfShape<value = float[1] {0.2}>(t) q = Gemm<transB = 1>(f, m) y = Softmax(q) }"""
LIMIT = 300  # seconds of a run


@dataclass(frozen=True)
class Seen:
    """What a disturbed run did: its exit code, the seconds until it ended after the fault, and its error."""

    code: int
    seconds: float
    error: str


class Workplace:
    """A model with a place for what is written, and one for the cache."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.model = folder, model

    @property
    def outputs(self) -> Path:
        """Directory of what is written."""
        return self.folder / "out"

    @property
    def cache(self) -> Path:
        """Directory of the cache."""
        return self.folder / "cache"

    def command(self) -> list[str]:
        """Return the command that compiles the model."""
        out = self.outputs
        return [
            sys.executable,
            "-m",
            "rewrite",
            str(self.model),
            "-o",
            str(out / "o.onnx"),
            "--program",
            str(out / "p"),
        ]

    def start(self, memory: int | None = None) -> subprocess.Popen[str]:
        """Start a compile; with a limit of its memory in bytes, which its children have as well."""

        def limit() -> None:
            os.setsid()
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # shells have it ignored in the background
            if memory is not None:
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

        environment = {**os.environ, "REWRITE_CACHE_DIR": str(self.cache), "TMPDIR": str(self.folder / "tmp")}
        return subprocess.Popen(
            self.command(),
            env=environment,
            cwd=self.folder,
            preexec_fn=limit,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def clear(self) -> None:
        """Remove what was written and cached."""
        for name in ("out", "cache", "tmp"):
            for path in (self.folder / name).glob("*"):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            (self.folder / name).mkdir(exist_ok=True)

    def problem(self) -> str:
        """Return what is wrong with the files that were written; nothing if they are whole or absent."""
        try:
            if (path := self.outputs / "o.onnx").exists():
                onnx.checker.check_model(str(path))
            if (self.outputs / "p").exists():
                rewrite.load(self.outputs / "p")
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        left = sorted(path.name for path in self.outputs.iterdir() if path.name not in ("o.onnx", "p"))
        return f"left behind: {', '.join(left)}" if left else ""

    def written(self) -> dict[str, bytes]:
        """Return the files that were written."""
        found = (path for path in sorted(self.outputs.rglob("*")) if path.is_file())
        return {str(path.relative_to(self.outputs)): path.read_bytes() for path in found}


def descendants(process: int) -> list[int]:
    """Return the processes that a process has started, and those that these have."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            stat = (path / "stat").read_text(encoding="ascii", errors="replace")
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(path.name))
    found, left = list[int](), [process]
    while left:
        left += (children := parents.get(left.pop(), []))
        found += children
    return found


def kill_children(process: subprocess.Popen[str]) -> None:
    """Kill all that a command has started."""
    for pid in descendants(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the command, but none of its children."""
    process.kill()


def interrupt(process: subprocess.Popen[str]) -> None:
    """Interrupt the command as Ctrl-C does: it and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)


def disturbed(place: Workplace, fault: Callable[[subprocess.Popen[str]], None], after: float) -> Seen:
    """Run a compile with a fault after some seconds."""
    process = place.start()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(after)
    fault(process)
    begun = time.monotonic()
    return ended(process, begun)


def ended(process: subprocess.Popen[str], begun: float) -> Seen:
    """Wait for a command, and return what was seen."""
    try:
        _, error = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return Seen(-1, LIMIT, "it did not end")
    lines = [line for line in error.splitlines() if line.startswith(("error", "warning", "Traceback"))]
    return Seen(process.returncode, time.monotonic() - begun, "; ".join(dict.fromkeys(lines)))


@contextlib.contextmanager
def disk_of(folder: Path, nbytes: int) -> Iterator[None]:
    """Put a file system of some bytes in the place of a folder."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={nbytes}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


class Table:
    """Rows of what was injected and seen; `wrong` are those that must not be."""

    def __init__(self, place: Workplace) -> None:
        self.place = place
        self.wrong: list[str] = []
        self.expected: dict[str, bytes] = {}
        sys.stdout.write(
            "| fault | at | exit code | after | message | files | second run |\n|---|---|---:|---:|---|---|---|\n"
        )

    def add(self, fault: str, at: str, seen: Seen, *, codes: tuple[int, ...], seconds: float = LIMIT) -> None:
        """Add a row, after a second run with the same cache and an empty place for what is written."""
        problem = self.place.problem()
        shutil.rmtree(self.place.outputs)
        self.place.outputs.mkdir()
        again = ended(self.place.start(), time.monotonic())
        same = again.code == 0 and self.place.written() == self.expected
        files, second = problem or "whole or absent", "the same" if same else f"exit {again.code}, other files"
        message = seen.error.replace(f"{self.place.folder}/", "")
        row = f"| {fault} | {at} | {seen.code} | {seen.seconds:.1f} s | {message} | {files} | {second} |"
        sys.stdout.write(f"{row}\n")
        sys.stdout.flush()
        if problem or not same or seen.code not in codes or seen.seconds > seconds or "Traceback" in seen.error:
            self.wrong.append(row)
        self.place.clear()


def main() -> None:
    """Inject the faults."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("model", nargs="?", type=Path)
    arguments.add_argument("--points", type=int, default=10)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        model = options.model
        if model is None:
            model = Path(name) / "model.onnx"
            onnx.save(parser.parse_model(MODEL), model)
        place = Workplace(Path(name), model.resolve())
        place.clear()
        table, begun = Table(place), time.monotonic()
        whole = ended(place.start(), begun)
        table.expected = place.written()
        place.clear()
        assert whole.code == 0, whole
        moments = [whole.seconds * (i + 0.5) / options.points for i in range(options.points)]
        for at in moments:
            table.add("children killed", f"{at:.1f} s", disturbed(place, kill_children, at), codes=(0, 2))
        for at in moments:
            table.add("killed", f"{at:.1f} s", disturbed(place, kill, at), codes=(-9, 0))
        for at in moments:
            table.add("interrupted", f"{at:.1f} s", disturbed(place, interrupt, at), codes=(130, 0), seconds=1.5)
        for megabytes in (512, 640, 768, 1024, 2048):
            seen = ended(place.start(memory=megabytes << 20), time.monotonic())
            table.add("address space", f"{megabytes} MiB", seen, codes=(0, 2))
        if os.geteuid() == 0:
            for what, folder in (
                ("outputs", place.outputs),
                ("cache", place.cache),
                ("temporary files", place.folder / "tmp"),
            ):
                for kilobytes in (4, 64, 256, 1024):
                    with disk_of(folder, kilobytes << 10):
                        seen = ended(place.start(), time.monotonic())
                        problem = place.problem()
                    table.add(f"full disk of {what}", f"{kilobytes} KiB", seen, codes=(0, 2))
                    if problem:
                        table.wrong.append(f"full disk of {what}: {problem}")
    if table.wrong:
        sys.exit("not as it must be:\n" + "\n".join(table.wrong))


if __name__ == "__main__":
    main()
