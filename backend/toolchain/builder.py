"""Building: from kernels to addresses of machine code.

Cached kernels are loaded. Missing ones are rendered, spread over a few modules of about equal weight, and compiled by C
compilers that run beside this process.
"""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

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

MODULE_WEIGHT = 6.0  # weight of kernels that is worth a compiler process of its own
FIRST_MODULE = 12.0  # weight of a module compiled before all kernels are known, while cores are idle
EARLY_MODULE = 60.0  # the same when all cores compile: each module costs 0.2 s on top of its kernels
LARGEST_MODULE = 60.0  # bound on the weight of a module, which bounds the memory of a compiler


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
        self._running: deque[_Module] = deque()
        self._done: list[tuple[_Module, bytes]] = []
        self._seen: set[str] = set()
        self._waiting: list[Rendered] = []
        self._total = 0
        self._early = 0  # number of modules started before all kernels were known
        self.library = Library()

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, *_: object) -> None:
        for module in self._running:
            scoped.end(module.process)
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
        """Add a kernel; start a compiler when there is enough work for one."""
        name = kernel_name(kernel, self._target)
        if name in self._seen:
            return
        self._seen.add(name)
        if self._keep_source is None and self._cached(name):
            return
        self._total += 1
        self._waiting.append(render_kernel(kernel, self._target))
        enough = FIRST_MODULE if self._early < usable_cores() else EARLY_MODULE
        alike = [k for k in self._waiting if k.real == self._waiting[-1].real]
        if sum(k.weight for k in alike) >= enough:
            self._start(alike)
            self._waiting = [k for k in self._waiting if k not in alike]
            self._early += 1

    def finish(self, kernels: Sequence[Kernel], progress: Progress | None = None) -> Library:
        """Add the remaining kernels, wait for the compilers, and load all modules."""
        for kernel in kernels:
            self.add(kernel)
        if self._total and progress:
            progress("compile", {"done": 0, "total": self._total})
        for real in sorted({k.real for k in self._waiting}):
            for chunk in _chunks([k for k in self._waiting if k.real == real]):
                self._start(chunk)
        while self._done or self._running:
            module, data = self._done.pop(0) if self._done else self._next()
            path = self._cache.add(module.name, data, module.kernels)
            self.library.files[module.name] = path
            self.library.compiled += len(module.kernels)
            if self._runs:
                self.library.addresses.update(load_module(module.name, path))
            if progress:
                progress("compile", {"done": self.library.compiled, "total": self._total})
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
        """Start a compiler on a module with these kernels, at most one per core."""
        text = render_module(kernels)
        name = module_name(text)
        source = self._folder / f"{name}.c"
        source.write_text(text)
        if self._keep_source is not None:
            self._keep_source.mkdir(parents=True, exist_ok=True)
            (self._keep_source / source.name).write_text(text)
        while len(self._running) >= usable_cores():
            self._done.append(self._next())
        process = _compile(source, self._compiler, self._target, self._includes)
        self._running.append(_Module(name, source.with_suffix(".so"), tuple(k.name for k in kernels), process))

    def _next(self) -> tuple[_Module, bytes]:
        """Wait for a compiler; return its module and the bytes of the shared object."""
        module = self._running[0]
        _, errors = module.process.communicate()
        scoped.end(module.process)
        self._running.popleft()
        if module.process.returncode:
            raise _failed(self._compiler, module.file.with_suffix(".c"), errors.decode(errors="replace"))
        return module, module.file.read_bytes()


@dataclass(frozen=True)
class _Module:
    """An extension module that is being compiled."""

    name: str
    file: Path
    kernels: tuple[str, ...]
    process: subprocess.Popen[bytes]


def _chunks(kernels: Sequence[Rendered]) -> list[list[Rendered]]:
    """Spread kernels over as many modules as are worth compiling in parallel: the heaviest to the lightest module."""
    total = sum(k.weight for k in kernels)
    count = max(1, min(usable_cores(), len(kernels), round(total / MODULE_WEIGHT)), math.ceil(total / LARGEST_MODULE))
    chunks: list[list[Rendered]] = [[] for _ in range(count)]
    loads = [0.0] * count
    for kernel in sorted(kernels, key=lambda k: (-k.weight, k.name)):
        lightest = loads.index(min(loads))
        chunks[lightest].append(kernel)
        loads[lightest] += kernel.weight
    return [chunk for chunk in chunks if chunk]


def module_name(text: str) -> str:
    """Return the name of the module with this source."""
    return "k" + hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def _compile(source: Path, compiler: Compiler, target: Target, includes: Sequence[Path]) -> subprocess.Popen[bytes]:
    output = (str(source), "-o", str(source.with_suffix(".so")), "-lm")
    command = [*compiler.command, *compiler.flags(target), *(f"-I{path}" for path in includes), *output]
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(source.parent)}
    silent, piped = subprocess.DEVNULL, subprocess.PIPE
    try:
        return scoped.start(command, stdin=silent, stdout=silent, stderr=piped, env=environment)
    except OSError as error:
        raise UserError(f"the C compiler does not run: {error}") from error


def _failed(compiler: Compiler, source: Path, errors: str) -> RewriteError:
    if "No space left" in errors:
        return UserError("no space left on the disk for compiling", hint="Free some, or set TMPDIR to another disk.")
    return RewriteError(
        f"the C compiler failed on generated code ({compiler.command[0]}, {source.name}):\n{errors[:4000]}"
    )
