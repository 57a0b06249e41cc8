"""What kernels are made for: this machine or a named kind of CPU, and the flags that make a C compiler do so."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..engine.processes import usable_cores
from ..errors import UserError
from .kernel_graph import Target

NAMES = ("native", "avx512", "avx2", "portable")
"""The targets that a user can name, `native` being this machine with all that it can do."""

MAX_THREADS = 256
"""So many threads one run can use: those that the runtime's pool has room for (`POOL_MAX`)."""

_SYSTEM = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class _Isa:
    """An instruction set: the features that a CPU needs for it, and those beyond it that kernels make use of."""

    vector_bytes: int
    needs: frozenset[str]
    extras: tuple[str, ...] = ()


_V3 = frozenset({"avx2", "fma", "f16c", "movbe", "lzcnt", "bmi1", "bmi2"})
_ISAS: Mapping[str, _Isa] = {  # best first
    "avx512": _Isa(
        64, _V3 | {"avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"}, ("avx512_bf16", "avx512_vnni")
    ),
    "avx2": _Isa(32, _V3, ("avx_vnni",)),
    "portable": _Isa(16, frozenset()),  # SSE2 on x86, NEON on aarch64: what every CPU of the architecture has
}


@cache
def detect() -> Target:
    """This machine as a target."""
    return make_target("native")


def make_target(name: str) -> Target:
    """The target that a user names; one that isn't `native` has no features but those that its name stands for.

    Sizes of caches and the number of cores are this machine's: they decide what is fast, not what is right. Raises
    UserError for an unknown name."""
    found = cpu_features()
    if name == "native":
        isa = next(isa for isa, kind in _ISAS.items() if kind.needs <= found)
        features = tuple(f for f in _ISAS[isa].extras if f in found)
    elif name in _ISAS and (name == "portable" or machine() == "x86_64"):
        isa, features = name, ()
    else:
        raise UserError(
            f"there is no target {name!r} on {machine()}",
            hint="Known are " + ", ".join(n for n in NAMES if machine() == "x86_64" or not n.startswith("avx")) + ".",
        )
    sizes = _cache_sizes()
    return Target(
        isa=isa,
        vector_bytes=_ISAS[isa].vector_bytes,
        features=features,
        machine=machine(),
        cores=usable_cores(),
        l1=sizes.get(1, 32 << 10),
        l2=sizes.get(2, 512 << 10),
        l3=sizes.get(3, 8 << 20),
    )


def parse_targets(text: str) -> list[Target]:
    """The targets in a list with commas (`avx2,avx512`), best first. Raises UserError for an unknown name, and if this
    CPU can run none of them."""
    found = sorted({make_target(name.strip()) for name in text.split(",")}, key=rank)
    if not any(map(runs_here, found)):
        raise UserError(
            f"this CPU can run none of the targets: {', '.join(map(describe, found))}",
            hint="Name one more that it can, `native` for instance: a program is tried before it is written.",
        )
    return found


def runs_here(target: Target) -> bool:
    """Whether this CPU has all that kernels of a target use."""
    kind = _ISAS.get(target.isa)
    return kind is not None and target.machine == machine() and kind.needs | set(target.features) <= cpu_features()


def rank(target: Target) -> tuple[int, int]:
    """An order of targets, best first."""
    return (list(_ISAS).index(target.isa), -len(target.features))


def describe(target: Target) -> str:
    """A target for messages: `avx512 with avx512_bf16`."""
    where = f" on {target.machine}" if target.machine != machine() else ""
    return target.isa + (f" with {' and '.join(target.features)}" if target.features else "") + where


def machine() -> str:
    """This computer's architecture: `x86_64`, `aarch64` …"""
    found = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(found, found)


@cache
def cpu_features() -> frozenset[str]:
    """What this CPU can do beyond its architecture's least, as far as kernels care."""
    from .runtime.cpu import features

    return frozenset(features())


def thread_count(threads: int | None) -> int:
    """The threads of one run: as many as this process may use if None. UserError for what is no such number."""
    if threads is None:
        return min(usable_cores(), MAX_THREADS)
    if not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:
        raise UserError(f"a run has 1 to {MAX_THREADS} threads, not {threads!r}")
    return threads


def _cache_sizes() -> dict[int, int]:
    """Bytes of the data cache of each level of the first CPU."""
    sizes: dict[int, int] = {}
    for index in sorted((_SYSTEM / "cpu0/cache").glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            text = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and text[:-1].isdigit():
            sizes[level] = int(text[:-1]) << {"K": 10, "M": 20}.get(text[-1], 0)
    return sizes
