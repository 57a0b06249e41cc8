"""Targets: this machine or a named kind of CPU, with the features that kernels may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from ...errors import UserError
from ...system.hardware import ISAS, architecture, cache_sizes, cpu_features, halves_vectors, is_intel, vector_extension
from ...system.process_pool import usable_cores

NAMES = ("native", "avx512", "avx2", "neon", "portable")
"""Targets that a user can name; `native` is this machine with all its features, `portable` the baseline of its
architecture."""

MAX_THREADS = 256
"""Maximum number of threads of a run: the capacity of the runtime's pool (`POOL_MAX`)."""


@dataclass(frozen=True, slots=True)
class Target:
    """CPU that kernels are compiled for. Cache sizes are in bytes; `l1` and `l2` belong to one core."""

    isa: str  # "avx512", "avx2", "neon" or "portable"
    vector_bytes: int  # 64, 32 or 16
    cores: int = 1
    l1: int = 32 << 10
    l2: int = 512 << 10
    l3: int = 8 << 20
    features: tuple[str, ...] = ()  # beyond those of the ISA: "avx512_vnni", "avx512_bf16" ..
    machine: str = "x86_64"  # the architecture
    element_bytes: int = 4  # size of the floats that the kernel at hand computes with: 4, or 8 for f64
    intel: bool = False  # made by Intel
    halves: bool = False  # an instruction on vectors of 512 bits takes as long as two on 256

    @property
    def lanes(self) -> int:
        """Number of those floats in a vector."""
        return self.vector_bytes // self.element_bytes

    @property
    def is_narrowed(self) -> bool:
        """Whether the kernel at hand has vectors of less than the ISA's width."""
        return self.vector_bytes < _VECTOR_BYTES[self.isa]

    def with_bits(self, bits: int) -> Target:
        """Return this target for kernels with vectors of this width: as many registers, each shorter."""
        return replace(self, vector_bytes=bits // 8)

    @property
    def registers(self) -> int:
        """Number of vector registers."""
        return 32 if self.isa in ("avx512", "neon") else 16


_VECTOR_BYTES: Mapping[str, int] = {"avx512": 64, "avx2": 32, "neon": 16, "portable": 16}
_MACHINES: Mapping[str, str] = {"avx512": "x86_64", "avx2": "x86_64", "neon": "aarch64"}
_EXTRAS: Mapping[str, tuple[str, ...]] = {
    "avx512": ("avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8"),
    "avx2": ("avx_vnni",),
}
"""Features beyond those that a vector extension requires, which kernels use where a CPU has them."""


@cache
def detect() -> Target:
    """Return this machine as a target."""
    return make_target("native")


def make_target(name: str) -> Target:
    """Return a target by the name that a user gives. Named ones have only the features that their name implies.

    Cache sizes, the number of cores and the maker are this machine's: they affect speed, not results. Raises UserError
    for an unknown name."""
    if name not in NAMES:
        raise UserError(f"unknown target {name!r}", hint=f"Known targets: {', '.join(NAMES)}.")
    native, here = name == "native", architecture()
    isa = vector_extension() if native else "neon" if name == "portable" and here == "aarch64" else name
    features = tuple(f for f in _EXTRAS.get(isa, ()) if f in cpu_features()) if native else ()
    caches = {f"l{level}": size for level, size in cache_sizes().items() if 1 <= level <= 3}
    machine = _MACHINES.get(isa, here)
    vectors = _VECTOR_BYTES[isa]
    intel, halves, cores = is_intel(), isa == "avx512" and halves_vectors(), usable_cores()
    return Target(isa, vectors, cores, features=features, machine=machine, intel=intel, halves=halves, **caches)


def parse_targets(text: str) -> list[Target]:
    """Return the targets in a comma-separated list (`avx2,neon`), best first. Raises UserError for an unknown name."""
    return sorted({make_target(name.strip()) for name in text.split(",")}, key=rank)


def costs_of(target: str) -> str:
    """Return the vector extension whose costs decide about a graph for some targets: that of the best one.

    Empty if it is this CPU's widest. Raises UserError for an unknown name."""
    isa = parse_targets(target)[0].isa
    return "" if isa == vector_extension() else isa


def runs_here(target: Target) -> bool:
    """Return whether this CPU has all features that kernels of a target use."""
    needs = ISAS.get(target.isa)
    return needs is not None and target.machine == architecture() and needs | set(target.features) <= cpu_features()


def rank(target: Target) -> tuple[int, int]:
    """Return a sort key of targets, best first."""
    return (list(ISAS).index(target.isa), -len(target.features))


def describe(target: Target) -> str:
    """Return a target for messages: `avx512 with avx512_bf16`."""
    where = f" on {target.machine}" if target.machine != architecture() else ""
    return target.isa + (f" with {' and '.join(target.features)}" if target.features else "") + where


def thread_count(threads: int | None) -> int:
    """Return the number of threads of a run: all cores of this process if None. Raises UserError if out of range."""
    if threads is None:
        return min(usable_cores(), MAX_THREADS)
    if not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:
        raise UserError(f"threads must be 1 to {MAX_THREADS}, not {threads!r}")
    return threads
