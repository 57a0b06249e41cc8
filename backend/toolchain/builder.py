"""Building: from kernels to addresses of machine code.

Cached kernels are loaded. Missing ones are rendered, spread over modules, and compiled by C compilers that run beside
this process: one core is left to it as long as it adds kernels. Which kernels share a module depends on the order in
which they are added, never on timing.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import math
import os
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from queue import PriorityQueue

from ...errors import RewriteError, UserError
from ...system import scoped
from ...system.process_pool import usable_cores
from ...system.progress import Progress
from ...system.store import Store
from ..codegen.render import HEADERS, Rendered, kernel_name, render_kernel, render_module
from ..ir.kernel import Kernel
from ..ir.target import Target, runs_here
from .compiler import Compiler, find_compiler
from .kernel_cache import KernelCache, load_module
from .precompiled_header import find_header

LOG = logging.getLogger("rewrite.toolchain")
SMALL_MODULE = 15_000  # weight of kernels that are worth a compiler process of their own, which costs 0.04 s
MODULE = 60_000  # weight of a module that is compiled while more kernels are added
REPEATED = 24  # known kernels in a row, as those of a layer that is repeated: more new ones need not be waited for
LARGEST_MODULE = 200_000  # bound on those of a module, which bounds the memory of a compiler


@dataclass
class Library:
    """Built kernels: `addresses` by kernel name; `files` are their shared objects, by module name.

    Kernels for another CPU have no addresses. Loaded modules stay loaded as long as the process."""

    addresses: dict[str, int] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    compiled: int = 0  # number of kernels that were not in the cache

    def address(self, kernel: Kernel, target: Target) -> int:
        """Return the address of a kernel's function."""
        return self.addresses[kernel_name(kernel, target)]


def build(
    kernels: Sequence[Kernel],
    target: Target,
    store: Store,
    *,
    compiler: Compiler | None = None,
    keep_source: Path | None = None,
    progress: Progress | None = None,
) -> Library:
    """Load kernels, after compiling those that the cache lacks; see `Builder`."""
    with Builder(target, store, compiler=compiler, keep_source=keep_source) as builder:
        return builder.finish(kernels, progress)


class Builder:
    """Loader of kernels that compiles missing ones in the background while others are still being added.

    Kernels for another CPU are compiled but not loaded, which could need instructions that this CPU lacks.
    `keep_source` is a directory for the generated C files; it makes the builder compile all kernels. Methods raise
    UserError if a compiler is needed and missing, RewriteError if it rejects the generated code. The end of a `with`
    block ends compilers that still run."""

    def __init__(
        self, target: Target, store: Store, *, compiler: Compiler | None = None, keep_source: Path | None = None
    ) -> None:
        self._target, self._store, self._given, self._keep_source = target, store, compiler, keep_source
        self._runs = runs_here(target)
        self._stack = ExitStack()
        self._pool = ThreadPoolExecutor(usable_cores())
        self._free = threading.Semaphore(max(1, usable_cores() - 1))  # cores for compilers
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = False
        self._modules: list[Future[_Module]] = []
        self._queue: PriorityQueue[_Source] = PriorityQueue()  # modules that no compiler has yet
        self._seen: set[str] = set()
        self._waiting: list[Rendered] = []
        self._total = 0
        self._repeated = 0
        self.library = Library()

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        for process in list(self._running):
            scoped.end(process)
        self._pool.shutdown(cancel_futures=True)
        self._stack.close()

    @cached_property
    def _compiler(self) -> Compiler:
        return self._given or find_compiler(self._target.machine)

    @cached_property
    def _cache(self) -> KernelCache:
        toolchain = f"{self._target.machine}-{self._target.isa}-{self._compiler.key(self._target)}"
        return KernelCache(self._store, toolchain)

    @cached_property
    def _includes(self) -> list[Path]:
        """Directories of headers in the order in which they are searched."""
        precompiled = find_header(self._store, self._compiler, self._target)
        return [HEADERS] if precompiled is None else [precompiled, HEADERS]

    @cached_property
    def _folder(self) -> Path:
        return self._stack.enter_context(scoped.directory("build"))

    def add(self, kernel: Kernel) -> None:
        """Add a kernel; start a compiler when there is enough work for one, or when layers begin to be repeated."""
        name = kernel_name(kernel, self._target)
        if name in self._seen:
            self._repeated += 1
            if self._repeated == REPEATED:
                for kind in sorted({k.kind for k in self._waiting}):
                    self._start_waiting(kind, SMALL_MODULE)
            return
        self._repeated = 0
        self._seen.add(name)
        if self._keep_source is None and self._cached(name):
            return
        self._total += 1
        self._waiting.append(render_kernel(kernel, self._target))
        self._start_waiting(self._waiting[-1].kind, MODULE if self._modules else SMALL_MODULE)

    def _start_waiting(self, kind: tuple[str, bool], least: int) -> None:
        """Compile the waiting kernels of a kind if their weight is `least` or more."""
        alike = [k for k in self._waiting if k.kind == kind]
        if sum(k.weight for k in alike) >= least:
            self._start(alike)
            self._waiting = [k for k in self._waiting if k not in alike]

    def finish(self, kernels: Sequence[Kernel], progress: Progress | None = None) -> Library:
        """Add the remaining kernels, wait for the compilers, and load all modules."""
        for kernel in kernels:
            self.add(kernel)
        if self._total and progress:
            progress("compile", {"done": 0, "total": self._total})
        for kind in sorted({k.kind for k in self._waiting}):
            for chunk in _chunks([k for k in self._waiting if k.kind == kind]):
                self._start(chunk)
        if usable_cores() > 1:
            self._free.release()
        for future in as_completed(self._modules):
            module = future.result()
            path = self._cache.add(module.name, module.data, module.kernels)
            self.library.files[module.name] = path
            self.library.compiled += len(module.kernels)
            if self._runs:
                self.library.addresses.update(load_module(module.name, path))
            if progress:
                progress("compile", {"done": self.library.compiled, "total": self._total})
        done = self.library.compiled
        by = f" by {self._compiler.command[0]}" if done else ""
        LOG.info("%d kernels compiled for %s%s, %d cached", done, self._target.isa, by, len(self._seen) - done)
        return self.library

    def _cached(self, name: str) -> bool:
        """Return whether the cache has a kernel, after loading its module."""
        if name in self.library.addresses:
            return True
        found = self._cache.find(name)
        if found is None:
            return False
        module, path = found
        if self._runs:
            try:
                self.library.addresses.update(load_module(module, path))
            except OSError as error:
                self._cache.discard(module, str(error))
                return False
        self.library.files[module] = path
        return not self._runs or name in self.library.addresses

    def _start(self, kernels: Sequence[Rendered]) -> None:
        """Have a module with these kernels compiled as soon as a core is free."""
        text = render_module(kernels)
        name = module_name(text)
        source = self._folder / f"{name}.c"
        try:
            source.write_text(text)
        except OSError as error:
            raise _no_place(self._folder, str(error.strerror)) from error
        if self._keep_source is not None:
            self._keep_source.mkdir(parents=True, exist_ok=True)
            (self._keep_source / source.name).write_text(text)
        names, command = tuple(k.name for k in kernels), self._command(source, kernels[0].lean)
        self._queue.put(_Source(-sum(k.weight for k in kernels), name, names, source, command))
        self._modules.append(self._pool.submit(self._compile_heaviest))

    def _command(self, source: Path, lean: bool) -> list[str]:
        flags = (*self._compiler.flags(self._target, lean=lean), *(f"-I{path}" for path in self._includes))
        return [*self._compiler.command, *flags, str(source), "-o", str(source.with_suffix(".so")), "-lm"]

    def _compile_heaviest(self) -> _Module:
        """Compile the heaviest module of those that wait, in a thread of the pool: the last ones to end are short."""
        with self._free:
            module = self._queue.get()
            source = module.path
            process = _start_compiler(module.command, source.parent)
            self._running.add(process)
            try:
                if self._ended:  # while this thread waited for a core
                    scoped.end(process)
                _, errors = process.communicate()
            finally:
                scoped.end(process)
                self._running.discard(process)
        if process.returncode:
            raise _failed(self._compiler, source, process.returncode, errors.decode(errors="replace"))
        return _Module(module.name, module.kernels, source.with_suffix(".so").read_bytes())


@dataclass(frozen=True, order=True)
class _Source:
    """A module to compile: the names and file of its kernels, the compiler's command. The heaviest comes first."""

    lightness: int
    name: str
    kernels: tuple[str, ...]
    path: Path
    command: Sequence[str]


@dataclass(frozen=True)
class _Module:
    """A compiled module: the bytes of its shared object, and the names of its kernels."""

    name: str
    kernels: tuple[str, ...]
    data: bytes


def _chunks(kernels: Sequence[Rendered]) -> list[list[Rendered]]:
    """Spread kernels over as many modules as are worth compiling in parallel: the heaviest to the lightest module."""
    total = sum(k.weight for k in kernels)
    count = max(1, min(usable_cores(), len(kernels), total // SMALL_MODULE), math.ceil(total / LARGEST_MODULE))
    chunks: list[list[Rendered]] = [[] for _ in range(count)]
    loads = [0] * count
    for kernel in sorted(kernels, key=lambda k: (-k.weight, k.name)):
        lightest = loads.index(min(loads))
        chunks[lightest].append(kernel)
        loads[lightest] += kernel.weight
    return [chunk for chunk in chunks if chunk]


def module_name(text: str) -> str:
    """Return the name of the module with this source."""
    return "k" + hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def _start_compiler(command: Sequence[str], temporary: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(temporary)}
    silent, piped = subprocess.DEVNULL, subprocess.PIPE
    try:
        return scoped.start(command, stdin=silent, stdout=silent, stderr=piped, env=environment)
    except OSError as error:
        raise UserError(f"the C compiler does not run: {error}") from error


_NO_MEMORY = ("signal terminated program", "memory exhausted", "out of memory", "Cannot allocate memory", "bad_alloc")
"""What compilers say when there is no memory left, or when the system has ended a part of them for it."""


def _no_place(folder: Path, why: str) -> UserError:
    message = f"the C compiler's files cannot be written: {why}"
    return UserError(message, where=str(folder), hint="Free some space, or set TMPDIR to a directory on another disk.")


def _failed(compiler: Compiler, source: Path, code: int, errors: str) -> RewriteError:
    if "No space left" in errors:
        return _no_place(source.parent, os.strerror(errno.ENOSPC))
    if code < 0 or any(words in errors for words in _NO_MEMORY):
        return UserError(
            f"the C compiler was killed ({compiler.command[0]}), perhaps since no memory was left",
            hint="Free some memory, and run it again.",
        )
    return RewriteError(
        f"the C compiler failed on generated code ({compiler.command[0]}, {source.name}):\n{errors[:4000]}"
    )
