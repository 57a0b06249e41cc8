"""The header of intrinsics: it declares what kernels use, and no more than that where gcc would take long."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from rewrite.backend.codegen.render import HEADERS
from rewrite.backend.ir.target import Target
from rewrite.backend.toolchain.compiler import find_compiler
from rewrite.system import scoped
from rewrite.system.hardware import architecture

pytestmark = pytest.mark.skipif(architecture() != "x86_64", reason="for x86-64")
TARGETS = [
    Target("portable", 16),
    Target("avx2", 32),
    Target("avx2", 32, features=("avx_vnni",)),
    Target("avx512", 64),
    Target("avx512", 64, features=("avx512_bf16", "avx512_vnni")),
]
ALL = "".join(
    f'#include "{name}.h"\n' for name in ("kernel", "low_precision", "nibbles", "permute", "transpose", "amx")
)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: "-".join((t.isa, *t.features)))
def test_headers_compile_for_each_vector_extension(target: Target, tmp_path: Path) -> None:
    for name, text in (("f32", ALL), ("f64", '#include "kernel_f64.h"\n'), ("256", '#include "kernel_256.h"\n' + ALL)):
        source = tmp_path / f"{name}.c"
        source.write_text(text)
        flags = [f for f in find_compiler().flags(target) if f != "-w"]
        done = _compile(*flags, "-fsyntax-only", "-Werror=implicit-function-declaration", str(source))
        assert done.returncode == 0, done.stderr.decode()[:2000]


@pytest.mark.skipif("Free Software" not in find_compiler().version, reason="for gcc")
def test_intrinsics_of_avx512_are_declared_only_where_they_are_used(tmp_path: Path) -> None:
    source = tmp_path / "a.c"
    source.write_text('#include "kernel.h"\n')
    for target in TARGETS:
        done = _compile(*find_compiler().flags(target), "-E", "-P", str(source))
        assert done.returncode == 0
        assert (b"_mm512_add_ps" in done.stdout) == (target.isa == "avx512")


def _compile(*options: str) -> subprocess.CompletedProcess[bytes]:
    return scoped.run([*find_compiler().command, *options, f"-I{HEADERS}"], seconds=60)
