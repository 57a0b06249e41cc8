"""Hardware of this machine, as the operating system describes it."""

from __future__ import annotations

import contextlib
import platform
import re
from pathlib import Path

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def architecture() -> str:
    """Return this computer's architecture: `x86_64`, `aarch64` …"""
    found = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(found, found)


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
