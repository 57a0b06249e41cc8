"""The header of all kernels, precompiled: gcc reads it in a tenth of the time, up to a tenth of a second per module.

    ROOT/headers/KEY/kernel.h.gch     the header, compiled with the flags of kernels
    ROOT/headers/KEY/kernel.h         includes the plain header, for sources that include it again
    ROOT/headers/KEY/checksum         its size and CRC

gcc looks for such a file beside each place where it looks for `kernel.h`, and ignores one made with other flags or by
another gcc. clang takes precompiled headers only by name; it gets none, as it reads the plain header fast enough.
"""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

from ...errors import RewriteError, UserError
from ...system import scoped
from ...system.file_contents import size_and_crc
from ...system.store import Store, content_key
from ..codegen.render import HEADERS
from ..ir.target import Target
from .compiler import Compiler

_NAME = "kernel.h"
_PLAIN = f'#include_next "{_NAME}"\n'
"""gcc takes a precompiled header only before all else; templates that include `kernel.h` again need the plain one."""
_REPAID = 8
"""Number of cached modules from which a header is worth waiting for: making it takes as long as it saves on a few."""
_MAKING = threading.Lock()
"""Held while a header is made, so that a thread that needs it waits for the one that makes it."""


def find_header(store: Store, compiler: Compiler, target: Target, *, ahead: bool = False) -> Path | None:
    """Return the directory that has the precompiled header for a target, after making it if that pays.

    It pays `ahead` of the first module, while a core is idle, and in a store that has some modules. None if it does
    not, the compiler is not gcc, or the header cannot be compiled or stored: modules compile without it as well."""
    if "Free Software Foundation" not in compiler.version:
        return None
    entries = store.namespace("headers")
    texts = [path.read_bytes() for path in sorted(HEADERS.glob("*.h"))]
    key = content_key(compiler.key(target), _PLAIN, *texts)[:32]
    with _MAKING:
        found = entries.use_directory(key, _checked)
        if found is None and (ahead or len(store.namespace("kernels").entries()) >= _REPAID):
            try:
                with entries.replacing_directory(key) as fresh:
                    fresh.mkdir()
                    _compile(compiler, target, fresh)
            except (OSError, RewriteError, UserError):
                return None
            found = entries.path / key
    return found


def _checked(folder: Path) -> Path:
    """Return the directory if the header in it is whole. Raises RewriteError or OSError otherwise."""
    if (folder / "checksum").read_bytes() != repr(size_and_crc(folder / f"{_NAME}.gch")).encode():
        raise RewriteError("its checksum is wrong")
    if (folder / _NAME).read_bytes() != _PLAIN.encode():
        raise RewriteError(f"{_NAME} has changed")
    return folder


def _compile(compiler: Compiler, target: Target, folder: Path) -> None:
    """Write the precompiled header and its checksum. Raises OSError if the compiler fails."""
    output = folder / f"{_NAME}.gch"
    command = [*compiler.command, *compiler.flags(target), "-x", "c-header", str(HEADERS / _NAME), "-o", str(output)]
    process = scoped.start(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        code = process.wait()
    finally:
        scoped.end(process)
    if code:
        raise OSError(f"{compiler.command[0]} ended with {code}")
    (folder / _NAME).write_text(_PLAIN)
    (folder / "checksum").write_text(repr(size_and_crc(output)))
