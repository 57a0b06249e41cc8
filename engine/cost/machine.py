"""Machine profile: arithmetic, bandwidths of the memory levels and fixed costs, as the cost model sees them.

`load` returns the profile that `rewrite calibrate` measured on this CPU model, or one shipped with the package. A
profile only ranks alternatives: a wrong figure makes a slower program, never a wrong one.
"""

from __future__ import annotations

import dataclasses
import json
import re
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ...system import hardware, scoped

FORMAT = 1
"""Version of the stored file; files of another version are not used."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine profile.

    `flops` is the peak f32 rate of one thread in flop/s. `sizes` are the bytes of L1, L2 and L3 that one thread can
    use. `bandwidths` are the bytes per second that one thread reads and writes in L1, L2, L3 and DRAM. `launch` is the
    cost in seconds of starting a compiled kernel, `dispatch` of one node in an ONNX runtime."""

    cpu: str = "generic"
    isa: str = "generic"
    flops: float = 40e9
    sizes: tuple[int, int, int] = (32 << 10, 1 << 20, 16 << 20)
    bandwidths: tuple[float, float, float, float] = (100e9, 60e9, 30e9, 12e9)
    launch: float = 1e-6
    dispatch: float = 3e-6
    source: str = "default"

    @property
    def lanes(self) -> int:
        """Number of f32 elements in a vector register."""
        return {"avx512": 16, "avx2": 8}.get(self.isa, 4)

    def bandwidth(self, nbytes: float) -> float:
        """Return the bytes per second that one thread reaches on a working set of this many bytes."""
        levels = zip(self.sizes, self.bandwidths, strict=False)
        return next((rate for size, rate in levels if nbytes <= size), self.bandwidths[3])


def shared_speedup(threads: int) -> float:
    """Return the factor by which threads together read a shared memory level faster than one: a half for each more."""
    return 1 + 0.5 * (threads - 1)


_DEFAULTS = {
    "avx512": Machine(isa="avx512", flops=100e9, bandwidths=(200e9, 90e9, 45e9, 18e9)),
    "avx2": Machine(isa="avx2", flops=70e9, bandwidths=(120e9, 60e9, 30e9, 14e9)),
    "neon": Machine(isa="neon", flops=45e9, bandwidths=(90e9, 50e9, 25e9, 14e9)),
    "generic": Machine(),
}


def isa_name() -> str:
    """Return the vector extension that kernels can use here: `avx512`, `avx2`, `neon` or `generic`."""
    found = hardware.vector_extension()
    return "generic" if found == "portable" else found


@cache
def rates() -> dict[str, float]:
    """Return the speedups over f32 of products of narrower numbers: `bf16`, and bytes as `int8`.

    Kernels that compute on vectors only have those of `bf16 vectors` and `int8 vectors`. Without an instruction for it,
    a product of bf16 takes two of floats and the unpacking of its operands. One of bytes takes two of 16-bit integers.
    Intel's CPUs begin one instruction on pairs of bf16 per cycle and two on floats, so they gain by AMX only. Its tiles
    reach a share of their peak, 16 times that of floats for bf16: operands come from memory, and sums go through it."""
    flags = hardware.cpu_features()
    wide = "avx512bw" in flags
    bytewise = "avx512_vnni" in flags if wide else "avx_vnni" in flags
    pairs = 0.8 if not wide or "avx512_bf16" not in flags else 1.0 if hardware.is_intel() else 2.0
    quads = 4.0 if bytewise else 1.2 if "avx2" in flags else 0.4
    return {
        "bf16": 8.0 if wide and "amx_bf16" in flags else pairs,
        "bf16 vectors": pairs,
        "int8": 12.0 if wide and "amx_int8" in flags else quads,
        "int8 vectors": quads,
    }


def default() -> Machine:
    """Return the shipped profile for this machine's vector extension, with the cache sizes that the system reports."""
    base, caches = _DEFAULTS[isa_name()], hardware.cache_sizes()
    l1, l2 = caches.get(1), caches.get(2)
    sizes = base.sizes if l1 is None or l2 is None else (l1, l2, max(caches.get(3, l2), l2))
    return dataclasses.replace(base, cpu=hardware.cpu_name(), sizes=sizes)


# --- storage ---------------------------------------------------------------------------------------------------------


def profile_path() -> Path:
    """Return the path of this CPU model's profile in the user's cache directory; a limit on extensions has its own."""
    import platformdirs

    name = re.sub(r"[^a-z0-9]+", "-", hardware.cpu_name().lower()).strip("-")[:80] or "unknown"
    slug = "-".join([name, *filter(None, [hardware.isa_limit()])])
    return Path(platformdirs.user_cache_dir("onnx-rewrite", appauthor=False)) / "machine" / f"{slug}.json"


def load(path: Path | None = None) -> Machine:
    """Load the measured profile of this CPU model, else the shipped default.

    A file that cannot be read or holds impossible values is ignored with a warning."""
    path = path or profile_path()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return default()
    except (OSError, UnicodeDecodeError) as error:
        return _refuse(path, str(error))
    try:
        return _parse(json.loads(text))
    except (ValueError, TypeError, KeyError) as error:
        return _refuse(path, str(error))


def _refuse(path: Path, reason: str) -> Machine:
    warnings.warn(
        f"ignoring the machine profile {path} ({reason}) and using the shipped one; "
        "run `rewrite calibrate` to measure it again",
        stacklevel=3,
    )
    return default()


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
    return Machine(cpu, isa, flops, (l1, l2, l3), (b1, b2, b3, b4), launch, dispatch, source="calibrated")


def store(machine: Machine, path: Path | None = None) -> Path:
    """Write a profile atomically, readable by its owner only; raises `OSError` if that fails."""
    path = path or profile_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    data = {"format": FORMAT, **dataclasses.asdict(machine)}
    del data["source"]
    with scoped.replacing(path, private=True) as file:
        file.write(json.dumps(data, indent=2).encode() + b"\n")
    return path
