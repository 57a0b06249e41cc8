"""Targets: this machine or a named kind of CPU, with the features that kernels may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ...errors import UserError
from ...system.hardware import architecture, cache_sizes
from ...system.process_pool import usable_cores

NAMES = ("native", "avx512", "avx2", "portable")
"""Targets that a user can name; `native` is this machine with all its features."""

MAX_THREADS = 256
"""Maximum number of threads of a run: the capacity of the runtime's pool (`POOL_MAX`)."""


@dataclass(frozen=True, slots=True)
class Target:
    """CPU that kernels are compiled for. Cache sizes are in bytes; `l1` and `l2` belong to one core."""

    isa: str  # "avx512", "avx2" or "portable"
    vector_bytes: int  # 64, 32 or 16
    cores: int = 1
    l1: int = 32 << 10
    l2: int = 512 << 10
    l3: int = 8 << 20
    features: tuple[str, ...] = ()  # beyond those of the ISA: "avx512_vnni", "avx512_bf16" ..
    machine: str = "x86_64"  # the architecture

    @property
    def lanes(self) -> int:
        """Number of f32 in a vector."""
        return self.vector_bytes // 4

    @property
    def registers(self) -> int:
        """Number of vector registers."""
        return 32 if self.isa == "avx512" or self.machine == "aarch64" else 16


@dataclass(frozen=True, slots=True)
class _Isa:
    """Instruction set: the CPU features that it requires, and optional ones that kernels use."""

    vector_bytes: int
    needs: frozenset[str]
    extras: tuple[str, ...] = ()


_V3 = frozenset({"avx2", "fma", "f16c", "movbe", "lzcnt", "bmi1", "bmi2"})
_ISAS: Mapping[str, _Isa] = {  # best first
    "avx512": _Isa(
        64, _V3 | {"avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"}, ("avx512_bf16", "avx512_vnni")
    ),
    "avx2": _Isa(32, _V3, ("avx_vnni",)),
    "portable": _Isa(16, frozenset()),  # SSE2 on x86, NEON on aarch64: the baseline of the architecture
}


@cache
def detect() -> Target:
    """Return this machine as a target."""
    return make_target("native")


def make_target(name: str) -> Target:
    """Return a target by the name that a user gives. Named ones have only the features that their name implies.

    Cache sizes and the number of cores are this machine's: they affect speed, not results. Raises UserError for an
    unknown name."""
    found, here = cpu_features(), architecture()
    known = [n for n in NAMES if here == "x86_64" or not n.startswith("avx")]
    if name not in known:
        raise UserError(f"unknown target {name!r} for {here}", hint=f"Known targets: {', '.join(known)}.")
    native = name == "native"
    isa = next(isa for isa, kind in _ISAS.items() if kind.needs <= found) if native else name
    features = tuple(f for f in _ISAS[isa].extras if f in found) if native else ()
    caches = {f"l{level}": size for level, size in cache_sizes().items() if 1 <= level <= 3}
    return Target(isa, _ISAS[isa].vector_bytes, usable_cores(), features=features, machine=here, **caches)


def parse_targets(text: str) -> list[Target]:
    """Return the targets in a comma-separated list (`avx2,avx512`), best first.

    Raises UserError for an unknown name, or if this CPU can run none of them."""
    found = sorted({make_target(name.strip()) for name in text.split(",")}, key=rank)
    if not any(map(runs_here, found)):
        raise UserError(
            f"this CPU can run none of the targets: {', '.join(map(describe, found))}",
            hint="Add `native`: the program is run once before it is written.",
        )
    return found


def runs_here(target: Target) -> bool:
    """Return whether this CPU has all features that kernels of a target use."""
    kind = _ISAS.get(target.isa)
    return kind is not None and target.machine == architecture() and kind.needs | set(target.features) <= cpu_features()


def rank(target: Target) -> tuple[int, int]:
    """Return a sort key of targets, best first."""
    return (list(_ISAS).index(target.isa), -len(target.features))


def describe(target: Target) -> str:
    """Return a target for messages: `avx512 with avx512_bf16`."""
    where = f" on {target.machine}" if target.machine != architecture() else ""
    return target.isa + (f" with {' and '.join(target.features)}" if target.features else "") + where


@cache
def cpu_features() -> frozenset[str]:
    """Return the features of this CPU beyond the baseline of its architecture, as far as kernels use them."""
    from ..runtime.native.cpu import features

    return frozenset(features())


def thread_count(threads: int | None) -> int:
    """Return the number of threads of a run: all cores of this process if None. Raises UserError if out of range."""
    if threads is None:
        return min(usable_cores(), MAX_THREADS)
    if not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:
        raise UserError(f"threads must be 1 to {MAX_THREADS}, not {threads!r}")
    return threads
