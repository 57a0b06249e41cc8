"""Hardware of this machine: features of the CPU, its name and its caches."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ..errors import UserError

_V3 = frozenset({"avx2", "fma", "f16c", "movbe", "lzcnt", "bmi1", "bmi2"})
ISAS: Mapping[str, frozenset[str]] = {
    "avx512": _V3 | {"avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"},
    "avx2": _V3,
    "neon": frozenset({"neon"}),
    "portable": frozenset(),  # what the architecture's baseline has: SSE2 on x86
}
"""CPU features that each vector extension requires, the widest extension of an architecture first."""

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def architecture() -> str:
    """Return this computer's architecture: `x86_64`, `aarch64` …"""
    found = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(found, found)


def isa_limit() -> str:
    """Return the widest vector extension to use, from the variable `REWRITE_MAX_ISA`; empty if there is no limit.

    With `avx2` everything works as on a CPU that has AVX2 and nothing more. Raises `UserError` if it names no extension
    of `ISAS`."""
    limit = os.environ.get("REWRITE_MAX_ISA", "")
    if limit and limit not in ISAS:
        raise UserError(f"REWRITE_MAX_ISA is {limit!r}", hint=f"Name one of {', '.join(ISAS)}, or unset it.")
    return limit


@cache
def cpu_features() -> frozenset[str]:
    """Return the features of this CPU that kernels use, by their Linux names; `neon` on 64-bit Arm.

    Raises `UserError` for a wrong limit, see `isa_limit`."""
    from .cpu import features

    found, limit = frozenset(features()), isa_limit()
    # a limit takes extensions away, and the baseline of an architecture is none
    return found & (ISAS[limit] | ISAS["neon"]) if limit in ("avx2", "portable") else found


def saturates_pairs() -> bool:
    """Whether this CPU lacks an instruction for products of four bytes, so that others' kernels add pairs in 16 bits.

    A limit of ours does not bind them."""
    from .cpu import features

    return architecture() == "x86_64" and {"avx_vnni", "avx512_vnni"}.isdisjoint(features())


def vector_extension() -> str:
    """Return the widest extension of `ISAS` that this CPU has."""
    return next(name for name, needs in ISAS.items() if needs <= cpu_features())


def is_intel() -> bool:
    """Return whether Intel made this CPU, as Linux reports it."""
    return cpu_info("vendor_id") == "GenuineIntel"


def halves_vectors() -> bool:
    """Return whether this CPU computes vectors of 512 bits by halves, as AMD's Zen 4 does; Linux reports its family.

    Zen 5 has units of the whole width on most of its cores, and Intel's CPUs join two units for them."""
    return cpu_info("vendor_id") == "AuthenticAMD" and cpu_info("cpu family") == "25"


def cpu_name() -> str:
    """Return the CPU's model name, or the architecture where the system does not report it."""
    return cpu_info("model name") or platform.processor() or platform.machine() or "unknown"


def cpu_info(field: str) -> str:
    """Return the first line of this name in `/proc/cpuinfo`; empty where the system has none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.lower().startswith(field)), "")


def cache_sizes() -> dict[int, int]:
    """Return the bytes of each level of data cache of the first CPU, as Linux reports them; empty where it does not."""
    sizes: dict[int, int] = {}
    for index in sorted(_CACHES.glob("index*")):
        with contextlib.suppress(OSError, ValueError):
            kind, level, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
            if kind != "Instruction" and (parts := re.fullmatch(r"(\d+)([KMG]?)", size)):
                sizes[int(level)] = int(parts[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[parts[2]]
    return sizes
