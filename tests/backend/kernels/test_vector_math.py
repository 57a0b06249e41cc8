"""Vector functions against float64, over samples of all 2^32 floats, on each instruction set of this machine."""

from __future__ import annotations

import ctypes
import math
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

TEMPLATES = Path(__file__).parents[3] / "backend" / "kernels" / "common"
STEP = 4093  # a prime: every STEP-th bit pattern is tried

SOURCE = """
#include "vector.h"
#define LOOP(name, function) \\
  void name(const float *x, float *y, long n) { \\
    long i = 0; \\
    for (; i + VL <= n; i += VL) vstore(y + i, function(vload(x + i))); \\
    if (i < n) vstore_n(y + i, function(vload_n(x + i, (int)(n - i))), (int)(n - i)); \\
  }
#define LOOP2(name, function) \\
  void name(const float *x, const float *z, float *y, long n) { \\
    for (long i = 0; i < n; i += VL) vstore_n(y + i, function(vload_n(x + i, n - i < VL ? (int)(n - i) : VL), \\
      vload_n(z + i, n - i < VL ? (int)(n - i) : VL)), n - i < VL ? (int)(n - i) : VL); \\
  }
LOOP(f_exp, vexp) LOOP(f_log, vlog) LOOP(f_log1p, vlog1p) LOOP(f_erf, verf) LOOP(f_tanh, vtanh)
LOOP(f_sigmoid, vsigmoid) LOOP(f_gelu, vgelu) LOOP(f_exp2, vexp2) LOOP(f_sign, vsign)
LOOP(f_round, vround) LOOP(f_floor, vfloor) LOOP(f_ceil, vceil)
LOOP(f_sqrt, vsqrt) LOOP(f_abs, vabs) LOOP(f_sin, vsin)
LOOP2(f_min, vmin) LOOP2(f_max, vmax) LOOP2(f_min_nan, vmin_nan) LOOP2(f_max_nan, vmax_nan)
void f_less(const float *x, const float *z, uint8_t *y, long n) {
  long i = 0;
  for (; i + VL <= n; i += VL) vm_store(y + i, vlt(vload(x + i), vload(z + i)));
  if (i < n) vm_store_n(y + i, vlt(vload_n(x + i, (int)(n - i)), vload_n(z + i, (int)(n - i))), (int)(n - i));
}
void f_select(const uint8_t *m, const float *x, float *y, long n) {
  long i = 0;
  for (; i + VL <= n; i += VL) vstore(y + i, vsel(vm_load(m + i), vload(x + i), vset1(-1.0f)));
  int k = (int)(n - i);
  if (k) vstore_n(y + i, vsel(vm_and(vm_load_n(m + i, k), vm_set1(1)), vload_n(x + i, k), vset1(-1.0f)), k);
}
float f_sum(const float *x) { return vhsum(vload(x)); }
float f_top(const float *x) { return vhmax(vload(x)) - vhmin(vload(x)); }
float f_product(const float *x) { return vhprod(vload(x)); }
int f_lanes(void) { return VL; }
"""
X86_FLAGS = {"avx512": ["-march=native"], "avx2": ["-mavx2", "-mfma"], "portable": ["-msse2"]}


def _targets() -> list[str]:
    if platform.machine() != "x86_64":
        return ["portable"]
    cpu = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    return ["portable", *(name for name, flag in (("avx2", " fma "), ("avx512", "avx512bw")) if flag in cpu)]


@pytest.fixture(scope="module", params=_targets())
def lib(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Compile the functions for one instruction set."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("vector")
    source, library = folder / "f.c", folder / "f.so"
    source.write_text(SOURCE)
    flags = X86_FLAGS[request.param] if platform.machine() == "x86_64" else []
    flags += ["-O2", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi", f"-I{TEMPLATES}", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(source), "-o", str(library), "-lm"], check=True)
    loaded = ctypes.CDLL(str(library))
    for name in ("f_sum", "f_top", "f_product"):
        getattr(loaded, name).restype = ctypes.c_float
    assert loaded.f_lanes() == {"avx512": 16, "avx2": 8, "portable": 4}[request.param]
    return loaded


def _call(lib: ctypes.CDLL, name: str, *arrays: NDArray[Any], dtype: type = np.float32) -> NDArray[Any]:
    out: NDArray[Any] = np.full(arrays[0].size + 1, 77, dtype)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, out)]
    getattr(lib, name)(*pointers, ctypes.c_long(arrays[0].size))
    assert out[-1] == 77, "wrote past the end"
    return out[:-1]


def _samples() -> NDArray[np.float32]:
    bits = np.arange(0, 2**32, STEP, dtype=np.uint64).astype(np.uint32)
    edges = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 88.72283, 88.7229, -103.9, -103.98])
    return np.concatenate([bits.view(np.float32), edges.astype(np.float32)])


def _erf64(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.fromiter(map(math.erf, x.tolist()), np.float64, x.size)


def _sigmoid64(x: NDArray[np.float64]) -> NDArray[np.float64]:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


FUNCTIONS: dict[str, tuple[Callable[[NDArray[np.float64]], NDArray[np.float64]], float]] = {
    "exp": (np.exp, 1.0),
    "log": (np.log, 1.0),
    "erf": (_erf64, 1.25),
    "tanh": (np.tanh, 2.0),
    "sigmoid": (_sigmoid64, 2.5),
}


def _ulps(got: NDArray[np.float32], exact: NDArray[np.float64]) -> float:
    """Return the largest error in units in the last place; NaN and infinite results must be equal."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = exact.astype(np.float32)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    finite = np.isfinite(rounded) & np.isfinite(got)
    assert np.array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(rounded[~np.isnan(got)])), "a sign differs"
    top = np.abs(rounded) == np.finfo(np.float32).max
    assert (same | finite | top | np.isinf(rounded) & (np.abs(got) == np.finfo(np.float32).max)).all()
    error = np.abs(got[finite].astype(np.float64) - exact[finite]) / np.spacing(np.abs(rounded[finite])).astype(float)
    return float(error.max())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_error_bound(lib: ctypes.CDLL, name: str) -> None:
    exact, bound = FUNCTIONS[name]
    x = _samples()
    with np.errstate(all="ignore"):
        assert _ulps(_call(lib, f"f_{name}", x), exact(x.astype(np.float64))) <= bound


def test_gelu(lib: ctypes.CDLL) -> None:
    x = np.concatenate([_samples(), np.linspace(-8, 8, 400_001, dtype=np.float32)])
    x = x[np.isfinite(x)]
    wide = x.astype(np.float64)
    exact = wide / 2 * np.fromiter((math.erfc(v) for v in (-wide * math.sqrt(0.5)).tolist()), np.float64, x.size)
    got = _call(lib, "f_gelu", x)
    error, size = np.abs(got - exact), np.abs(exact)
    ulps = error / np.spacing(size.astype(np.float32))
    assert ulps[x >= 0].max() <= 2.5
    assert ulps[(x < 0) & (x >= -1)].max() <= 4.0
    middle = (x < -1) & (x >= -6.2)
    assert (error[middle] / size[middle]).max() <= 6e-6
    assert error[x < -6.2].max() <= 1e-13
    special = np.array([np.inf, np.nan, 0.0, -0.0, -1e30, 1e30], np.float32)
    np.testing.assert_array_equal(_call(lib, "f_gelu", special), [np.inf, np.nan, 0, 0, 0, np.float32(1e30)])


def test_exp2(lib: ctypes.CDLL) -> None:
    x = _samples()
    x = x[x <= 100]
    got = _call(lib, "f_exp2", x)
    assert _ulps(got, np.exp2(np.maximum(x, np.float32(-200)).astype(np.float64))) <= 1.5
    np.testing.assert_array_equal(_call(lib, "f_exp2", np.array([-np.inf, np.nan, 0], np.float32)), [0, np.nan, 1])


def test_log1p(lib: ctypes.CDLL) -> None:
    x = np.concatenate([np.linspace(0, 1, 100_001), np.geomspace(1e-44, 1, 100_001)]).astype(np.float32)
    assert _ulps(_call(lib, "f_log1p", x), np.log1p(x.astype(np.float64))) <= 2.0


@pytest.mark.parametrize("name", ["sign", "floor", "ceil", "sqrt", "abs"])
def test_exact_functions(lib: ctypes.CDLL, name: str) -> None:
    x = _samples()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(_call(lib, f"f_{name}", x), getattr(np, name)(x))


def test_round_goes_to_even(lib: ctypes.CDLL) -> None:
    x = _samples()
    np.testing.assert_array_equal(_call(lib, "f_round", x), np.round(x))
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32)
    np.testing.assert_array_equal(_call(lib, "f_round", halves), [0, 2, 2, 0, -2])


def test_lane_by_lane_function(lib: ctypes.CDLL) -> None:
    x = np.linspace(-10, 10, 1003).astype(np.float32)
    np.testing.assert_allclose(_call(lib, "f_sin", x), np.sin(x), rtol=1e-5, atol=1e-6)


def test_min_and_max_of_nan(lib: ctypes.CDLL) -> None:
    special = np.array([np.nan, 1.0, -2.0, np.inf, -np.inf], np.float32)
    a, b = (g.reshape(-1).copy() for g in np.meshgrid(special, special))
    np.testing.assert_array_equal(_call(lib, "f_min_nan", a, b), np.minimum(a, b))
    np.testing.assert_array_equal(_call(lib, "f_max_nan", a, b), np.maximum(a, b))
    either = np.isnan(a) | np.isnan(b)
    np.testing.assert_array_equal(_call(lib, "f_min", a, b), np.where(either, b, np.minimum(a, b)))
    np.testing.assert_array_equal(_call(lib, "f_max", a, b), np.where(either, b, np.maximum(a, b)))


@pytest.mark.parametrize("n", range(1, 35))
def test_masks_and_tails(lib: ctypes.CDLL, n: int) -> None:
    rng = np.random.default_rng(n)
    x, z = rng.standard_normal((2, n)).astype(np.float32)
    less = _call(lib, "f_less", x.copy(), z.copy(), dtype=np.uint8)
    np.testing.assert_array_equal(less, (x < z).astype(np.uint8))
    np.testing.assert_array_equal(_call(lib, "f_select", less.copy(), x.copy()), np.where(less, x, np.float32(-1)))


def test_across_lanes(lib: ctypes.CDLL) -> None:
    x = np.random.default_rng(0).uniform(0.5, 1.5, lib.f_lanes()).astype(np.float32)
    pointer = ctypes.c_void_p(x.ctypes.data)
    assert lib.f_sum(pointer) == pytest.approx(float(x.sum()), rel=1e-6)
    assert lib.f_top(pointer) == pytest.approx(float(x.max() - x.min()), rel=1e-6)
    assert lib.f_product(pointer) == pytest.approx(float(x.prod()), rel=1e-6)
