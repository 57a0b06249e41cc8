"""Rendering: from kernels to the text of Cython modules.

A template `templates/NAME.pyx.j2` is rendered with a kernel's params (each a variable of its own), `name` (the
function to define, and the prefix for every other C name), and `target`. What it gives defines the kernel

    cdef void NAME(void** bufs, const int64_t* dims, int tid, int nth) noexcept nogil

or declares a C function with that signature from a verbatim block. Several kernels make a module.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from .kernel_graph import Kernel, Target

if TYPE_CHECKING:
    import jinja2

ABI = 1
"""The version of the interface between kernels and the runtime: part of every kernel's name."""

TEMPLATES = Path(__file__).parent / "templates"

_HEADER = '''\
# cython: language_level=3, binding=False, always_allow_keywords=False, auto_pickle=False
# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, emit_code_comments=False
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    #include "kernel.h"
    """

'''


@dataclass(frozen=True, slots=True)
class Rendered:
    """A kernel as text: the name of its function and the fragment of Cython that defines it."""

    name: str
    source: str
    weight: float


def kernel_name(kernel: Kernel, target: Target) -> str:
    """The name of the kernel's function: the template's, and a hash of all that its text depends on."""
    digest = hashlib.blake2b(digest_size=10)
    for part in (str(ABI), kernel.canonical, target.machine, target.isa, *target.features, *_closure(kernel.template)):
        digest.update(part.encode())
        digest.update(b"\0")
    return f"{kernel.template.replace('/', '_')}_{digest.hexdigest()}"


def render_kernel(kernel: Kernel, target: Target) -> Rendered:
    """The kernel's text. Raises `jinja2.TemplateError` for an error in the template, such as an undefined name."""
    name = kernel_name(kernel, target)
    template = _environment().get_template(f"{kernel.template}.pyx.j2")
    text = template.render(kernel.params, name=name, target=target)
    return Rendered(name, text.strip() + "\n", kernel.weight)


def render_module(kernels: Sequence[Rendered]) -> str:
    """The text of a Cython module with these kernels, whose `table()` gives the address of each by name."""
    rows = "".join(f'        "{k.name}": <size_t> <void*> {k.name},\n' for k in kernels)
    table = f"\n\ndef table():\n    return {{\n{rows}    }}\n"
    return _HEADER + "\n\n".join(k.source for k in kernels) + table


_COMMON = ("tile.j2", "rows.j2", "elementwise.pyx.j2", "gemm.pyx.j2", "copy.pyx.j2", "normalize_rows.pyx.j2",
           "normalize.j2", "attention.pyx.j2", "conv_last.pyx.j2", "winograd.j2", "winograd_last.pyx.j2",
           "gather.pyx.j2", "im2col.j2", "pairs.j2", "strided.j2", "conv.pyx.j2", "slide_last.pyx.j2")  # fmt: skip
"""The templates that many models need, first those that nearly all do."""


def warm_up(is_late: Callable[[], bool]) -> None:
    """Compiles templates for kernels to come, one after the other, until it `is_late`."""
    for name in _COMMON:
        if is_late():
            return
        _environment().get_template(name)


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"],
    )
    environment.filters["c_float"] = c_float
    return environment


@cache
def _closure(template: str) -> tuple[str, ...]:
    """The texts that a template's output depends on: its own, those it includes, and headers."""
    texts: list[str] = []
    todo, seen = [f"{template}.pyx.j2", "kernel.h"], set[str]()
    while todo:
        name = todo.pop()
        if name in seen or not (TEMPLATES / name).is_file():
            continue
        seen.add(name)
        text = (TEMPLATES / name).read_text()
        texts.append(text)
        todo += re.findall(r"""{%-?\s*(?:include|import|from|extends)\s*["']([^"']+)["']""", text)
        todo += re.findall(r"""#\s*include\s*"([^"]+)\"""", text)
    return tuple(texts)


def c_float(value: float) -> str:
    """A float as an exact C literal of type float (hexadecimal; `INFINITY` and `NAN` for those). Also a filter."""
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    import numpy as np

    return f"({float(np.float32(value)).hex()}f)"
