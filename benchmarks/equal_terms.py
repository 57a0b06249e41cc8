"""Equal terms for peers when ours is limited to AVX2: CPUID reports no AVX-512, AMX or AVX-VNNI to this process.

ONNX Runtime and OpenVINO choose kernels by CPUID and have no setting for it. Linux lets CPUID fault on most of Intel's
CPUs and on AMD's since Zen 4, and a handler answers. See `hide_avx512.c`.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

from rewrite.system.compiler import c_compilers
from rewrite.system.hardware import architecture, isa_limit


def begin() -> bool:
    """With `REWRITE_MAX_ISA=avx2`, hide wider extensions from this process; return whether peers are on equal terms.

    Call it before peers are imported. Threads begun later inherit it, programs that are started do not."""
    if isa_limit() != "avx2":
        return isa_limit() == ""
    if architecture() != "x86_64":
        return False
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "hide_avx512.so"
        source = Path(__file__).with_name("hide_avx512.c")
        subprocess.run([*c_compilers()[0], "-O1", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
        return bool(ctypes.CDLL(str(library)).hides_avx512())
