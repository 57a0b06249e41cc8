"""Rendering of kernels to the text of C modules.

A template `kernels/KIND/NAME.c.j2` is rendered with a kernel's params (each a variable), `name` (the function to
define, and the prefix of every other C name) and `target`. The parameter `real` is the element type of a template that
is generic in it: "f32", the default, or "f64". In C that is the type `real`. The parameter `vector_bits` is the
width of vectors where it is less than the target's. The result defines the kernel

    void NAME(void **bufs, const int64_t *dims, int tid, int nth)

Several kernels of one element type and width make a module.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..ir.kernel import Kernel
from ..ir.target import Target

if TYPE_CHECKING:
    import jinja2

    from .prepared_templates import PreparedTemplates

ABI = 2
"""Version of the interface between kernels and the runtime, part of every kernel's name."""

_KERNELS = Path(__file__).parents[1] / "kernels"
TEMPLATES = {path.name: path for path in sorted(_KERNELS.glob("*/*")) if path.suffix in (".j2", ".h")}
"""Path of each template and header: they lie beside the lowerers that use them, under names unique in `kernels/`."""
PREPARED = _KERNELS / "templates.prepared"
"""The templates as code of Python, which wheels have."""
HEADERS = _KERNELS / "common"
"""Include directory of the headers that all kernels share."""


WRITTEN_OUT = frozenset({"conv", "conv_nhwc", "depthwise_lines_nhwc", "depthwise_pool_nhwc", "gemm", "winograd_nhwc"})
"""Templates whose vectors, tiles and unrolled steps are in the text, for f32: optimizers of loops find little there.

They are most of the text of a convolutional network's kernels. Others, such as copies, are loops that the compiler
vectorizes; attention over AVX2 takes 7 % longer without all optimizers."""


_LOOPS = 4000
"""Weight of the loops of short texts, which the compiler vectorizes: see `Rendered.weight`."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """Kernel as text: the name of its function and the fragment of C that defines it.

    `header` declares its vectors. `lean`: whether it is compiled without optimizers that it does not need, see
    `WRITTEN_OUT`."""

    name: str
    source: str
    header: str = "kernel.h"
    lean: bool = False

    @property
    def weight(self) -> int:
        """Measure of the time to compile it: some 4 µs each, for a character of lean text or half of one of another."""
        return len(self.source) if self.lean else 2 * len(self.source) + _LOOPS

    @property
    def kind(self) -> tuple[str, bool]:
        """What kernels of a module have in common: their vectors, and how they are compiled."""
        return self.header, self.lean


def kernel_name(kernel: Kernel, target: Target) -> str:
    """Return the name of the kernel's function: the template's, and a hash of everything its text depends on."""
    return _name(kernel.template, kernel.canonical, target.machine, target.isa, *target.features)


@lru_cache(maxsize=4096)  # every step of a plan asks, and the texts have a hundred thousand characters
def _name(template: str, *parts: str) -> str:
    digest = hashlib.blake2b(digest_size=10)
    for part in (str(ABI), *parts, *template_texts(template)):
        digest.update(part.encode())
        digest.update(b"\0")
    return f"{template.replace('/', '_')}_{digest.hexdigest()}"


def render_kernel(kernel: Kernel, target: Target) -> Rendered:
    """Render a kernel; `jinja2.TemplateError` for an error in the template, such as an undefined name."""
    name = kernel_name(kernel, target)
    template = _environment().get_template(f"{kernel.template}.c.j2")
    real, bits = kernel.params.get("real", "f32"), kernel.params.get("vector_bits", 0)
    seen = replace(target, element_bytes=8) if real == "f64" else target.with_bits(bits) if bits else target
    header = "kernel_f64.h" if real == "f64" else "kernel_256.h" if bits else "kernel.h"
    text = template.render({"real": real, **kernel.params}, name=name, target=seen)
    return Rendered(name, text.strip() + "\n", header, is_lean(kernel))


def is_lean(kernel: Kernel) -> bool:
    """Whether a kernel is of `WRITTEN_OUT`, with sums and products of f32.

    Others need more registers than there are: with SSE2, products of bf16 would spill more of them."""
    narrow = kernel.params.get("tiles", {}).get("dot", "")
    return kernel.template in WRITTEN_OUT and kernel.params.get("real", "f32") == "f32" and not narrow


def render_module(kernels: Sequence[Rendered]) -> str:
    """Return the text of a C module with these kernels of one kind.

    Its `k_table` has the name and address of each."""
    rows = "".join(f'  {{"{kernel.name}", {kernel.name}}},\n' for kernel in kernels)
    table = f"const k_entry k_table[] = {{\n{rows}}};\nconst int64_t k_count = {len(kernels)};\n"
    return "\n".join([f'#include "{kernels[0].header}"\n', *(kernel.source for kernel in kernels), table])


_COMMON = ("tile.j2", "rows.j2", "elementwise.c.j2", "gemm.c.j2", "copy.c.j2", "normalize_rows.c.j2",
           "normalize.j2", "attention.c.j2", "conv_nhwc.c.j2", "winograd.j2", "winograd_nhwc.c.j2",
           "gather.c.j2", "im2col.j2", "im2col_bf16.j2", "strided.j2", "conv.c.j2",
           "depthwise_pool_nhwc.c.j2", "reduce.j2", "reduce_columns.c.j2")  # fmt: skip
"""Templates that many models need, the most common ones first."""


def load_templates() -> None:
    """Load templates of likely kernels."""
    for name in _COMMON:
        _environment().get_template(name)


def prepare_templates(target: Path = PREPARED) -> None:
    """Translate all templates and write them into the package; wheels are built with it."""
    from .prepared_templates import prepare

    prepare(_environment_with, target)


@cache
def _environment() -> jinja2.Environment:
    from .prepared_templates import PreparedTemplates

    return _environment_with(PreparedTemplates(PREPARED))


def _environment_with(translated: PreparedTemplates) -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(sorted({path.parent for path in TEMPLATES.values()})),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        auto_reload=False,
        extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"],
        bytecode_cache=translated,
    )
    environment.filters["c_float"] = c_float
    return environment


@cache
def template_texts(template: str) -> tuple[str, ...]:
    """Return the texts that a template's output depends on: its own, its includes, and headers."""
    texts: dict[str, str] = {}
    todo = [f"{template}.c.j2", "kernel_f64.h", "kernel_256.h"]
    while todo:
        name = todo.pop()
        if name in TEMPLATES and name not in texts:
            text = texts[name] = TEMPLATES[name].read_text()
            todo += re.findall(r"""{%-?\s*(?:include|import|from|extends)\s*["']([^"']+)["']""", text)
            todo += re.findall(r"""#\s*include\s*"([^"]+)\"""", text)
    return tuple(texts.values())


def c_float(value: float) -> str:
    """Return a number as a C expression, rounded to the kernel's element type; also a template filter."""
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    return f"((real){float(value).hex()})"
