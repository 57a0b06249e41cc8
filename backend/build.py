"""Building: from kernels to addresses of machine code.

Kernels that the cache has are loaded; the missing ones are rendered, spread over a few modules of about equal weight,
translated by Cython in this process and compiled by C compilers running beside it.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import math
import os
import subprocess
import sysconfig
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from types import ModuleType

from .. import transient
from ..errors import RewriteError, UserError
from .cache import Cache
from .compiler import Compiler, find_compiler
from .kernel_graph import Kernel, Target
from .render import TEMPLATES, Rendered, kernel_name, render_kernel, render_module
from .target import cores, runs_here

Progress = Callable[[str, int, int], None]
MODULE_WEIGHT = 6.0  # kernels of this weight are worth a compiler process of their own
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
    """Loads the kernels, compiling those that the cache doesn't have. Those for a CPU that isn't this one are compiled
    only: even loading them could need instructions that it lacks.

    `keep_source` is a directory that the generated `.pyx` of newly compiled kernels are copied to; asking for it
    compiles all of them. Raises UserError if a compiler is needed and there is none, RewriteError if it rejects the
    generated code."""
    library = Library()
    names = {kernel_name(k, target): k for k in dict.fromkeys(kernels)}
    if not names:
        return library
    compiler = compiler or find_compiler()
    room = cache.room(f"{target.machine}-{target.isa}-{compiler.key(target)}")
    runs = runs_here(target)
    missing = dict(names)
    if keep_source is None:
        for module, (path, members) in room.find(names).items():
            if runs:
                try:
                    table = load_module(module, path).table()
                except (ImportError, OSError) as error:
                    room.discard(module, str(error))
                    continue
                members = tuple(table)
                library.addresses.update((name, table[name]) for name in missing if name in table)
            library.files[module] = path
            for name in members:
                missing.pop(name, None)
    if missing:
        rendered = [render_kernel(kernel, target) for kernel in missing.values()]
        built = compile_modules(_chunks(rendered), compiler, target, keep_source=keep_source, progress=progress)
        for module, (data, members) in built.items():
            path = room.store(module, data, members)
            library.files[module] = path
            library.compiled += len(members)
            if runs:
                library.addresses.update(load_module(module, path).table())
    return library


def _chunks(kernels: Sequence[Rendered]) -> list[list[Rendered]]:
    """The kernels, spread over as many modules as are worth compiling side by side: heaviest first to the lightest."""
    total = sum(k.weight for k in kernels)
    count = max(1, min(cores(), len(kernels), round(total / MODULE_WEIGHT)), math.ceil(total / LARGEST_MODULE))
    chunks: list[list[Rendered]] = [[] for _ in range(count)]
    loads = [0.0] * count
    for kernel in sorted(kernels, key=lambda k: (-k.weight, k.name)):
        lightest = loads.index(min(loads))
        chunks[lightest].append(kernel)
        loads[lightest] += kernel.weight
    return [chunk for chunk in chunks if chunk]


def compile_modules(
    chunks: Sequence[Sequence[Rendered]],
    compiler: Compiler,
    target: Target,
    *,
    keep_source: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, tuple[bytes, tuple[str, ...]]]:
    """Compiles one extension module for each chunk: the shared library's bytes and its kernels, by module name."""
    modules: dict[str, tuple[bytes, tuple[str, ...]]] = {}
    running: deque[tuple[str, Path, tuple[str, ...], subprocess.Popen[bytes]]] = deque()
    done, total = 0, sum(map(len, chunks))

    def finish() -> None:
        nonlocal done
        name, library, members, process = running[0]
        _, errors = process.communicate()
        transient.end(process)
        running.popleft()
        if process.returncode:
            raise _failed(compiler, library.with_suffix(".c"), errors.decode(errors="replace"))
        modules[name] = (library.read_bytes(), members)
        done += len(members)
        if progress:
            progress("compile", done, total)

    if progress:
        progress("compile", 0, total)
    with transient.directory("build") as temporary:
        try:
            for chunk in chunks:
                text = render_module(chunk)
                name = module_name(text)
                source = temporary / f"{name}.pyx"
                source.write_text(text)
                if keep_source is not None:
                    keep_source.mkdir(parents=True, exist_ok=True)
                    (keep_source / source.name).write_text(text)
                translated = _cythonize(source)
                while len(running) >= cores():
                    finish()
                members = tuple(k.name for k in chunk)
                running.append((name, source.with_suffix(".so"), members, _compile(translated, compiler, target)))
            while running:
                finish()
        finally:
            for _, _, _, process in running:
                transient.end(process)
    return modules


def _cythonize(source: Path) -> Path:
    """Translates a `.pyx` to C beside it, in this process. Raises RewriteError with Cython's messages."""
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


_LOADED: dict[tuple[str, str], ModuleType] = {}


def load_module(name: str, path: Path) -> ModuleType:
    """Imports a compiled module from a file (once per name in a process: the name is a hash of its source).

    Raises ImportError if it isn't one."""
    key = (name, path.parent.name)
    if key not in _LOADED:
        loader = importlib.machinery.ExtensionFileLoader(name, str(path))
        spec = importlib.util.spec_from_file_location(name, str(path), loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        _LOADED[key] = module
    return _LOADED[key]
