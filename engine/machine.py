"""What the machine can do, as the cost model sees it: arithmetic, bandwidths by level of memory, fixed costs.

`load` gives the profile that `rewrite calibrate` measured on this CPU model, or one shipped with the package. A profile
only ranks alternatives: a wrong figure makes a slower program, never a wrong one.
"""

from __future__ import annotations

import dataclasses
import json
import math
import platform
import re
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .. import transient

FORMAT = 1
"""The version of the stored file; another version is measured anew."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine profile.

    `flops` is the peak f32 rate of one thread in flop/s. `sizes` are the bytes of L1, L2 and L3 that one thread can
    use; `bandwidths` the bytes per second that one thread reads and writes when its data lie in L1, L2, L3 and DRAM.
    `launch` is the cost in seconds of starting a compiled kernel, `dispatch` of one node in an ONNX runtime."""

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
        """How many f32 numbers a vector holds."""
        return {"avx512": 16, "avx2": 8}.get(self.isa, 4)

    def bandwidth(self, nbytes: float) -> float:
        """The bytes per second that one thread reaches on a working set of that many bytes."""
        for size, rate in zip(self.sizes, self.bandwidths, strict=False):
            if nbytes <= size:
                return rate
        return self.bandwidths[3]


_DEFAULTS = {
    "avx512": Machine(isa="avx512", flops=100e9, bandwidths=(200e9, 90e9, 45e9, 18e9)),
    "avx2": Machine(isa="avx2", flops=70e9, bandwidths=(120e9, 60e9, 30e9, 14e9)),
    "neon": Machine(isa="neon", flops=45e9, bandwidths=(90e9, 50e9, 25e9, 14e9)),
    "generic": Machine(),
}


def cpu_name() -> str:
    """The CPU's model name, or the architecture where the system does not tell."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"


def isa_name() -> str:
    """The vector extension that kernels can use here: `avx512`, `avx2`, `neon` or `generic`."""
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return "neon"
    flags = _flags()
    if "avx512f" in flags:
        return "avx512"
    return "avx2" if "avx2" in flags and "fma" in flags else "generic"


def _flags() -> set[str]:
    """The features of the CPU as the system names them; none where it does not tell."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("flags"):
                return set(line.partition(":")[2].split())
    except OSError:
        pass
    return set()


@cache
def rates() -> dict[str, float]:
    """How many times faster than f32 products of narrower numbers are here: `bf16`, and bytes as `int8`.

    Without an instruction for it a product of bf16 takes two of floats and what unpacks the operands, one of bytes two
    of 16-bit integers."""
    flags = _flags()
    wide = "avx512bw" in flags
    bytewise = "avx512_vnni" in flags if wide else "avx_vnni" in flags
    return {
        "bf16": 2.0 if wide and "avx512_bf16" in flags else 0.8,
        "int8": 4.0 if bytewise else 1.2 if "avx2" in flags else 0.4,
    }


def default() -> Machine:
    """The shipped profile for this machine's vector extension, with the cache sizes that the system reports."""
    base = _DEFAULTS[isa_name()]
    return dataclasses.replace(base, cpu=cpu_name(), sizes=_cache_sizes() or base.sizes)


def _cache_sizes() -> tuple[int, int, int] | None:
    """The L1d, L2 and L3 sizes in bytes as Linux reports them, None where it does not."""
    found: dict[int, int] = {}
    try:
        for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
            if (index / "type").read_text().strip() == "Instruction":
                continue
            size = re.fullmatch(r"(\d+)([KMG]?)", (index / "size").read_text().strip())
            if size:
                scale = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[size[2]]
                found[int((index / "level").read_text())] = int(size[1]) * scale
    except (OSError, ValueError):
        return None
    if 1 not in found or 2 not in found:
        return None
    return found[1], found[2], max(found.get(3, found[2]), found[2])


# --- storage ---------------------------------------------------------------------------------------------------------


def profile_path() -> Path:
    """Where this CPU model's profile is kept, in the user's cache directory."""
    import platformdirs

    slug = re.sub(r"[^a-z0-9]+", "-", cpu_name().lower()).strip("-")[:80] or "unknown"
    return Path(platformdirs.user_cache_dir("onnx-rewrite", appauthor=False)) / "machine" / f"{slug}.json"


def load(path: Path | None = None) -> Machine:
    """The measured profile of this CPU model, else the shipped default.

    A file that cannot be read or holds impossible values is told in a warning and not used."""
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
        f"the machine profile {path} cannot be used ({reason}); the shipped one is taken. "
        "`rewrite calibrate` measures it anew.",
        stacklevel=3,
    )
    return default()


def _parse(data: object) -> Machine:
    """The profile in a decoded JSON value; `ValueError` says what is wrong with it."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"not a profile of format {FORMAT}")

    def number(value: object, low: float, high: float, name: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{name} is no number")
        if not low <= value <= high:
            raise ValueError(f"{name} = {value:g} is outside {low:g} .. {high:g}")
        return float(value)

    def numbers(name: str, count: int, low: float, high: float) -> list[float]:
        values = data.get(name)
        if not isinstance(values, list) or len(values) != count:
            raise ValueError(f"{name} is no list of {count} numbers")
        return [number(v, low, high, name) for v in values]

    cpu, isa = data.get("cpu"), data.get("isa")
    if not isinstance(cpu, str) or isa not in _DEFAULTS:
        raise ValueError("cpu or isa is missing")
    l1, l2, l3 = (int(v) for v in numbers("sizes", 3, 1 << 10, 1 << 34))
    b1, b2, b3, b4 = numbers("bandwidths", 4, 1e7, 1e13)
    return Machine(
        cpu=cpu,
        isa=isa,
        flops=number(data.get("flops"), 1e7, 1e14, "flops"),
        sizes=(l1, l2, l3),
        bandwidths=(b1, b2, b3, b4),
        launch=number(data.get("launch"), 1e-9, 1e-2, "launch"),
        dispatch=number(data.get("dispatch"), 1e-9, 1e-2, "dispatch"),
        source="calibrated",
    )


def store(machine: Machine, path: Path | None = None) -> Path:
    """Writes a profile, readable by its owner only, by way of a temporary file; `OSError` if that fails."""
    path = path or profile_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    data = {"format": FORMAT, **dataclasses.asdict(machine)}
    del data["source"]
    with transient.replacing(path, private=True) as file:
        file.write(json.dumps(data, indent=2).encode() + b"\n")
    return path


def calibrate(seconds: float = 10.0) -> Machine:
    """Measures this machine in about that many seconds; see `microbench`. The result is not stored."""
    from .microbench import measure

    return measure(default(), seconds)
