"""Machine profile: arithmetic, bandwidths of the memory levels and fixed costs, as the cost model sees them.

`load` returns the profile that `rewrite calibrate` measured on this CPU model, or one shipped with the package. A
profile only ranks alternatives: a wrong figure makes a slower program, never a wrong one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import warnings
from dataclasses import astuple, dataclass, field
from functools import cache
from pathlib import Path

from ...system import hardware, ownership, scoped
from ...system.store import default_root
from .kernel_constants import AVX2, DEFAULT, LEAST, MOST, NAMES, KernelConstants

FORMAT = 3
"""Version of the stored file; files of another version are not used."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine profile.

    `flops` is the peak f32 rate of one thread in flop/s. `sizes` are the bytes of L1, L2 and L3 that one thread can
    use. `bandwidths` are the bytes per second that one thread reads and writes in L1, L2, L3 and DRAM. `launch` is the
    cost in seconds of starting a compiled kernel, `dispatch` of one node in an ONNX runtime. `constants` say what
    kernels take of these."""

    cpu: str = "generic"
    isa: str = "generic"
    flops: float = 40e9
    sizes: tuple[int, int, int] = (32 << 10, 1 << 20, 16 << 20)
    bandwidths: tuple[float, float, float, float] = (100e9, 60e9, 30e9, 12e9)
    launch: float = 1e-6
    dispatch: float = 3e-6
    constants: KernelConstants = field(default=DEFAULT, repr=False)
    source: str = "default"

    @property
    def lanes(self) -> int:
        """Number of f32 elements in a vector register."""
        return {"avx512": 16, "avx2": 8}.get(self.isa, 4)

    def bandwidth(self, nbytes: float) -> float:
        """Return the bytes per second that one thread reaches on a working set of this many bytes."""
        levels = zip(self.sizes, self.bandwidths, strict=False)
        return next((rate for size, rate in levels if nbytes <= size), self.bandwidths[3])

    def seconds_per_byte(self, nbytes: float) -> float:
        """Return the seconds that a kernel takes for each of these bytes, which the kernels before it left in caches.

        A level begins to overflow at a quarter of its size, since other data are in it too, and serves nothing of twice
        its size."""
        k = self.constants
        times = [f / rate for f, rate in zip((k.l1, k.l2, k.l3, k.dram), self.bandwidths, strict=True)]
        found = times[0]
        for size, inner, outer in zip(self.sizes, times, times[1:], strict=False):
            found += (outer - inner) * min(1.0, max(0.0, math.log2(max(nbytes, 1.0) / size) + 2.0) / 3.0)
        return found

    def weight_seconds(self, nbytes: float) -> float:
        """Return the seconds that a kernel takes for each of these bytes of weights, which other kernels evicted."""
        return self.constants.weights / self.bandwidths[2 if nbytes <= self.sizes[2] else 3]

    def digest(self) -> str:
        """Return a key of the profile: equal profiles choose equal graphs."""
        return hashlib.blake2b(repr(astuple(self)).encode(), digest_size=8).hexdigest()


def shared_speedup(threads: int) -> float:
    """Return the factor by which threads together read a shared memory level faster than one: a half for each more."""
    return 1 + 0.5 * (threads - 1)


_DEFAULTS = {
    "avx512": Machine(isa="avx512", flops=100e9, bandwidths=(200e9, 90e9, 45e9, 18e9)),
    "avx2": Machine(isa="avx2", flops=70e9, bandwidths=(120e9, 60e9, 30e9, 14e9), constants=AVX2),
    "neon": Machine(isa="neon", flops=45e9, bandwidths=(90e9, 50e9, 25e9, 14e9)),
    "generic": Machine(),
}


def isa_name(isa: str = "") -> str:
    """Return the vector extension of kernels: `avx512`, `avx2`, `neon` or `generic`; this CPU's widest by default."""
    found = isa or hardware.vector_extension()
    return "generic" if found == "portable" else found


@cache
def rates(isa: str = "") -> dict[str, float]:
    """Return the speedups over f32 of products of narrower numbers: `bf16`, and bytes as `int8`.

    Kernels for another extension than this CPU's widest have none of its other features. Those that compute on vectors
    only have the speedups of `bf16 vectors` and `int8 vectors`. Without an instruction for it, a product of bf16 takes
    two of floats and the unpacking of its operands. One of bytes takes two of 16-bit integers: with AVX2 they are
    unpacked once for all columns, with AVX-512 for each product. Intel's CPUs begin one instruction on pairs of bf16
    per cycle and two on floats, so they gain by AMX only. Its tiles reach a share of their peak, 16 times that of
    floats for bf16: operands come from memory, and sums go through it.

    `int8 winograd` is the speedup of products within Winograd's algorithm, which has a kernel for bytes where they
    become 16-bit integers with AVX2; 0 elsewhere."""
    flags = hardware.cpu_features()
    if isa and isa_name(isa) != isa_name():
        flags = hardware.ISAS.get(isa, frozenset())
    wide = "avx512bw" in flags
    bytewise = "avx512_vnni" in flags if wide else "avx_vnni" in flags
    pairs = 0.8 if not wide or "avx512_bf16" not in flags else 1.0 if hardware.is_intel() else 2.0
    quads = 4.0 if bytewise else 1.2 if wide else 1.6 if "avx2" in flags else 0.4
    return {
        "bf16": 8.0 if wide and "amx_bf16" in flags else pairs,
        "bf16 vectors": pairs,
        "int8": 12.0 if wide and "amx_int8" in flags else quads,
        "int8 vectors": quads,
        "int8 winograd": 1.8 if "avx2" in flags and not wide and not bytewise else 0.0,
    }


def default(isa: str = "") -> Machine:
    """Return the shipped profile for a vector extension, with the cache sizes that the system reports."""
    base, caches = _DEFAULTS[isa_name(isa)], hardware.cache_sizes()
    l1, l2 = caches.get(1), caches.get(2)
    sizes = base.sizes if l1 is None or l2 is None else (l1, l2, max(caches.get(3, l2), l2))
    return dataclasses.replace(base, cpu=hardware.cpu_name(), sizes=sizes)


# --- storage ---------------------------------------------------------------------------------------------------------


def profile_path(isa: str = "") -> Path:
    """Return the path of this CPU model's profile for kernels of a vector extension, in the user's cache directory."""
    name = re.sub(r"[^a-z0-9]+", "-", hardware.cpu_name().lower()).strip("-")[:80] or "unknown"
    return default_root() / "machine" / f"{name}-{isa or hardware.vector_extension()}.json"


def load(path: Path | None = None, isa: str = "") -> Machine:
    """Load the measured profile of this CPU model, else the shipped default; for its widest extension by default.

    A file that cannot be read, that another user could have written, or that holds impossible values is ignored with a
    warning."""
    path = path or profile_path(isa)
    try:
        text = ownership.read(path).decode()
    except FileNotFoundError:
        return default(isa)
    except (OSError, UnicodeDecodeError) as error:
        return _refuse(path, getattr(error, "strerror", None) or str(error), isa)
    try:
        found = _parse(json.loads(text))
    except (ValueError, TypeError, KeyError) as error:
        return _refuse(path, str(error), isa)
    return found


def _refuse(path: Path, reason: str, isa: str) -> Machine:
    warnings.warn(
        f"ignoring the machine profile {path} ({reason}) and using the shipped one; "
        "run `rewrite calibrate` to measure it again",
        stacklevel=3,
    )
    return default(isa)


def _parse(data: object) -> Machine:
    """Validate a decoded profile; the message of the `ValueError` says what is wrong with it."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"not a profile of format {FORMAT}")

    def numbers(name: str, count: int, low: float, high: float) -> list[float]:
        values = data.get(name)
        values = values if isinstance(values, list) else [values]
        if len(values) != count or any(isinstance(v, bool) or not isinstance(v, int | float) for v in values):
            raise ValueError(f"{name} is not {count} numbers" if count > 1 else f"{name} is not a number")
        if not all(low <= v <= high for v in values):
            raise ValueError(f"{name} = {values} is outside {low:g} .. {high:g}")
        return [float(v) for v in values]

    cpu, isa = data.get("cpu"), data.get("isa")
    if not isinstance(cpu, str) or isa not in _DEFAULTS:
        raise ValueError("cpu or isa is missing")
    l1, l2, l3 = (int(v) for v in numbers("sizes", 3, 1 << 10, 1 << 34))
    b1, b2, b3, b4 = numbers("bandwidths", 4, 1e7, 1e13)
    (flops,) = numbers("flops", 1, 1e7, 1e14)
    (launch,), (dispatch,) = (numbers(name, 1, 1e-9, 1e-2) for name in ("launch", "dispatch"))
    given = data.get("constants")
    if not isinstance(given, dict) or set(given) != set(NAMES):
        raise ValueError("constants are missing or unknown")
    constants = KernelConstants(**{name: _bounded(f"constants.{name}", given[name]) for name in NAMES})
    return Machine(cpu, isa, flops, (l1, l2, l3), (b1, b2, b3, b4), launch, dispatch, constants, source="calibrated")


def _bounded(name: str, value: object) -> float:
    """Return a constant. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST <= value <= MOST:
        raise ValueError(f"{name} = {value!r} is not a number within {LEAST:g} .. {MOST:g}")
    return float(value)


def store(machine: Machine, path: Path | None = None) -> Path:
    """Write a profile atomically, readable by its owner only; raises `OSError` if that fails."""
    path = path or profile_path()
    ownership.prepare(path.parent)
    data = {"format": FORMAT, **dataclasses.asdict(machine)}
    del data["source"]
    with scoped.replacing(path, private=True) as file:
        file.write(json.dumps(data, indent=2).encode() + b"\n")
    return path
