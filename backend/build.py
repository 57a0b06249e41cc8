"""Building: from kernels to addresses of machine code.

Kernels that the cache has are loaded; the missing ones are rendered, spread over a few modules of about equal weight,
translated by Cython in this process and compiled by C compilers running beside it.
"""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sysconfig
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from .. import transient
from ..engine.processes import usable_cores
from ..errors import RewriteError, UserError
from .cache import Cache, Room
from .compiler import Compiler, find_compiler
from .kernel_graph import Kernel, Target
from .modules import load_module
from .render import TEMPLATES, Rendered, kernel_name, render_kernel, render_module
from .target import runs_here

Progress = Callable[[str, int, int], None]
MODULE_WEIGHT = 6.0  # kernels of this weight are worth a compiler process of their own
FIRST_MODULE = 12.0  # so much is compiled while there may be more to come, by as many compilers as there are cores, …
EARLY_MODULE = 60.0  # … and then so much: each module costs a compiler 0.2 s by itself
LARGEST_MODULE = 60.0  # modules beyond this weight are cut, so that compilers stay small


@dataclass
class Library:
    """Kernels: `addresses` by kernel name; `files` are the shared libraries they come from, by module name.

    There are no addresses of kernels for another machine. Modules that are loaded stay so as long as the process."""

    addresses: dict[str, int] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    compiled: int = 0  # how many kernels weren't in the cache

    def address(self, kernel: Kernel, target: Target) -> int:
        """The address of a kernel's function."""
        return self.addresses[kernel_name(kernel, target)]


def build(
    kernels: Sequence[Kernel],
    target: Target,
    cache: Cache,
    *,
    compiler: Compiler | None = None,
    keep_source: Path | None = None,
    progress: Progress | None = None,
) -> Library:
    """Loads the kernels, compiling those that the cache doesn't have; see `Builder`."""
    with Builder(target, cache, compiler=compiler, keep_source=keep_source) as builder:
        for kernel in kernels:
            builder.add(kernel)
        return builder.finish(progress)


class Builder:
    """Loads kernels as they come, and has those that the cache lacks compiled meanwhile. Those for another CPU than
    this one are compiled only: even loading them could need instructions that it lacks.

    `keep_source` is a directory that the generated `.pyx` of newly compiled kernels are copied to; asking for it
    compiles all of them. Its methods raise UserError if a compiler is needed and there is none, RewriteError if it
    rejects the generated code. To be used in a `with` block, which ends compilers that still run."""

    def __init__(
        self, target: Target, cache: Cache, *, compiler: Compiler | None = None, keep_source: Path | None = None
    ) -> None:
        self._target = target
        self._cache = cache
        self._compiler = compiler
        self._keep_source = keep_source
        self._runs = runs_here(target)
        self._stack = ExitStack()
        self._room: Room | None = None
        self._batch: Batch | None = None
        self._seen: set[str] = set()
        self._found: set[str] = set()  # kernels that modules of the cache have
        self._waiting: list[Rendered] = []
        self._total = 0
        self._early = 0  # modules begun before all kernels were known
        self.library = Library()

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, kernel: Kernel) -> None:
        """Notes a kernel; starts a compiler when there is enough for one."""
        name = kernel_name(kernel, self._target)
        if name in self._seen:
            return
        self._seen.add(name)
        if self._keep_source is None and self._cached(name):
            return
        self._total += 1
        self._waiting.append(render_kernel(kernel, self._target))
        enough = FIRST_MODULE if self._early < usable_cores() else EARLY_MODULE
        if sum(k.weight for k in self._waiting) >= enough:
            self._compile([self._waiting])
            self._waiting = []
            self._early += 1

    def finish(self, progress: Progress | None = None) -> Library:
        """Compiles what is left, waits for the compilers, and loads all."""
        if self._total and progress:
            progress("compile", 0, self._total)
        if self._waiting:
            self._compile(_chunks(self._waiting))
        if self._batch is not None:
            for module, data, members in self._batch.results():
                path = self._place().store(module, data, members)
                self.library.files[module] = path
                self.library.compiled += len(members)
                if self._runs:
                    self.library.addresses.update(load_module(module, path).table())
                if progress:
                    progress("compile", self.library.compiled, self._total)
        return self.library

    def _place(self) -> Room:
        if self._room is None:
            self._compiler = self._compiler or find_compiler()
            self._room = self._cache.room(
                f"{self._target.machine}-{self._target.isa}-{self._compiler.key(self._target)}"
            )
        return self._room

    def _cached(self, name: str) -> bool:
        """Whether the cache has a kernel; its module is loaded then."""
        if name not in self._found:
            for module, (path, members) in self._place().find([name]).items():
                if self._runs:
                    try:
                        table = load_module(module, path).table()
                    except (ImportError, OSError) as error:
                        self._place().discard(module, str(error))
                        continue
                    members = tuple(table)
                    self.library.addresses.update(table)
                self.library.files[module] = path
                self._found.update(members)
        return name in self._found

    def _compile(self, chunks: Sequence[Sequence[Rendered]]) -> None:
        self._place()
        assert self._compiler is not None
        if self._batch is None:
            folder = self._stack.enter_context(transient.directory("build"))
            self._batch = self._stack.enter_context(Batch(folder, self._compiler, self._target))
        for chunk in chunks:
            self._batch.start(chunk, self._keep_source)


def _chunks(kernels: Sequence[Rendered]) -> list[list[Rendered]]:
    """The kernels, spread over as many modules as are worth compiling side by side: heaviest first to the lightest."""
    total = sum(k.weight for k in kernels)
    count = max(1, min(usable_cores(), len(kernels), round(total / MODULE_WEIGHT)), math.ceil(total / LARGEST_MODULE))
    chunks: list[list[Rendered]] = [[] for _ in range(count)]
    loads = [0.0] * count
    for kernel in sorted(kernels, key=lambda k: (-k.weight, k.name)):
        lightest = loads.index(min(loads))
        chunks[lightest].append(kernel)
        loads[lightest] += kernel.weight
    return [chunk for chunk in chunks if chunk]


class Batch:
    """Extension modules that are compiled side by side in a directory, as many at a time as there are cores."""

    def __init__(self, folder: Path, compiler: Compiler, target: Target) -> None:
        self._folder = folder
        self._compiler = compiler
        self._target = target
        self._running: deque[tuple[str, Path, tuple[str, ...], subprocess.Popen[bytes]]] = deque()
        self._done: list[tuple[str, bytes, tuple[str, ...]]] = []

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *exception: object) -> None:
        for _name, _path, _members, process in self._running:
            transient.end(process)

    def start(self, kernels: Sequence[Rendered], keep_source: Path | None = None) -> None:
        """Translates a module with these kernels, and starts to compile it."""
        text = render_module(kernels)
        name = module_name(text)
        source = self._folder / f"{name}.pyx"
        source.write_text(text)
        if keep_source is not None:
            keep_source.mkdir(parents=True, exist_ok=True)
            (keep_source / source.name).write_text(text)
        translated = _cythonize(source)
        while len(self._running) >= usable_cores():
            self._done.append(self._next())
        members = tuple(k.name for k in kernels)
        process = _compile(translated, self._compiler, self._target)
        self._running.append((name, source.with_suffix(".so"), members, process))

    def results(self) -> Iterator[tuple[str, bytes, tuple[str, ...]]]:
        """The modules as they are done: name, the shared library's bytes, its kernels."""
        while self._done or self._running:
            yield self._done.pop(0) if self._done else self._next()

    def _next(self) -> tuple[str, bytes, tuple[str, ...]]:
        name, library, members, process = self._running[0]
        _, errors = process.communicate()
        transient.end(process)
        self._running.popleft()
        if process.returncode:
            raise _failed(self._compiler, library.with_suffix(".c"), errors.decode(errors="replace"))
        return name, library.read_bytes(), members


def _cythonize(source: Path) -> Path:
    """Translates a `.pyx` to C beside it, in this process. Raises RewriteError with Cython's messages."""
    with _CYTHON:
        from Cython.Compiler.Errors import CompileError
        from Cython.Compiler.Main import compile_single
        from Cython.Compiler.Options import CompilationOptions, default_options

        options = CompilationOptions(default_options, language_level=3)
        said = StringIO()
        try:
            with redirect_stderr(said), redirect_stdout(said):
                result = compile_single(str(source), options, source.stem)
        except CompileError as error:
            raise RewriteError(f"Cython rejects generated code: {error}\n{said.getvalue()}") from error
    if result.num_errors:
        raise RewriteError(f"Cython rejects generated code:\n{said.getvalue()}")
    return source.with_suffix(".c")


_CYTHON = threading.Lock()  # it keeps state of its own, and is not made for several threads


def warm_up() -> None:
    """Loads Cython and what it reads before its first module. For a thread that has nothing better to do: translating
    the first kernels is faster by that."""
    with _CYTHON, transient.directory("warm") as folder:
        from Cython.Compiler.Main import compile_single
        from Cython.Compiler.Options import CompilationOptions, default_options

        source = folder / "warm.pyx"
        source.write_text(render_module([Rendered("nothing", "cdef void nothing() noexcept nogil:\n    pass\n", 1.0)]))
        compile_single(str(source), CompilationOptions(default_options, language_level=3), source.stem)
    find_compiler()


def module_name(text: str) -> str:
    """The name of the module with this source."""
    return "k" + hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def _compile(source: Path, compiler: Compiler, target: Target) -> subprocess.Popen[bytes]:
    command = [
        *compiler.command,
        *compiler.flags(target),
        f"-I{sysconfig.get_paths()['include']}",
        f"-I{TEMPLATES}",
        "-DCYTHON_CLINE_IN_TRACEBACK=0",
        str(source),
        "-o",
        str(source.with_suffix(".so")),
        "-lm",
    ]
    try:
        return transient.start(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C", "TMPDIR": str(source.parent)},
        )
    except OSError as error:
        raise UserError(f"the C compiler does not run: {error}") from error


def _failed(compiler: Compiler, source: Path, errors: str) -> RewriteError:
    if "Python.h" in errors:
        return UserError(
            "the C headers of Python are missing", hint="Install them (on Debian and Ubuntu: the package python3-dev)."
        )
    if "No space left" in errors:
        return UserError("no space left on the disk for compiling", hint="Free some, or set TMPDIR to another disk.")
    return RewriteError(
        f"the C compiler rejects generated code ({compiler.command[0]}, {source.name}):\n{errors[:4000]}"
    )
