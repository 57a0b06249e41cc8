"""Equal terms for peers when ours is limited to AVX2: CPUID reports no AVX-512, AMX or AVX-VNNI to this process.

ONNX Runtime and OpenVINO choose kernels by CPUID and have no setting for it. Linux lets CPUID fault on CPUs with the
flag `cpuid_fault`, and a handler answers. See `hide_avx512.c`.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

from rewrite.system.compiler import c_compilers
from rewrite.system.cpu import features
from rewrite.system.hardware import isa_limit

_WIDER = frozenset({"avx512f", "avx_vnni"})


def begin() -> bool:
    """Hide extensions wider than `REWRITE_MAX_ISA` from this process; return whether peers are on equal terms then.

    Only a limit of `avx2` hides something. Call it before peers are imported. Threads begun later inherit it, programs
    that are started do not."""
    if isa_limit() == "portable":
        return False
    if isa_limit() != "avx2" or _WIDER.isdisjoint(features()):
        return True
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "hide_avx512.so"
        source = Path(__file__).with_name("hide_avx512.c")
        subprocess.run([*c_compilers()[0], "-O1", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
        return bool(ctypes.CDLL(str(library)).hides_avx512())
