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
from rewrite.benchmarks import harness

TEMPLATES = Path(__file__).parents[3] / "backend" / "kernels" / "common"
STEP = 4093  # a prime: every STEP-th bit pattern is tried

SOURCE = """
#include "low_precision.h"
#include "transpose.h"
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
LOOP(f_sigmoid, vsigmoid) LOOP(f_gelu, vgelu) LOOP(f_exp2, vexp2) LOOP(f_exp_normal, vexp_normal)
LOOP(f_sign, vsign)
LOOP(f_round, vround) LOOP(f_floor, vfloor) LOOP(f_ceil, vceil)
LOOP(f_sqrt, vsqrt) LOOP(f_abs, vabs) LOOP(f_sinh, vsinh)
LOOP(f_sin, vsin) LOOP(f_cos, vcos) LOOP(f_tan, vtan) LOOP(f_asin, vasin) LOOP(f_acos, vacos) LOOP(f_atan, vatan)
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
int f_any(const float *x) { return vm_any(vlt(vload(x), vzero())); }
void f_gather(const float *x, int64_t stride, int n, float *y) { vstore(y, vload_strided(x, stride, n)); }
void f_bytes(const uint8_t *x, float *y) { vstore(y, v_load_u8(x)), vstore(y + VL, v_load_s8((const int8_t *)x)); }
void f_bf16(const float *x, uint16_t *y, float *z) { v_store_bf16(y, vload(x)), vstore(z, v_load_bf16(y)); }
void f_u8(const float *x, uint8_t *y, int zero, int n) { v_quantize_u8_n(y, vload(x), zero, n); }
void f_s8(const float *x, int8_t *y, int zero, int n) { v_quantize_s8_n(y, vload(x), zero, n); }
void f_packed(const float *x, uint8_t *y, int zero, int sign) {
  const vi all = n_packed(vload(x), vload(x + VL), vload(x + 2 * VL), vload(x + 3 * VL), zero, sign);
  n_store_bytes(y, n_ordered(all), 4 * VL);
}
void f_quads(const uint8_t *x, vi *y) {
  n_quads(n_bytes(x), n_bytes(x + 4 * VL), n_bytes(x + 8 * VL), n_bytes(x + 12 * VL), y);
}
void f_dot(const uint8_t *u, const int8_t *s, vi *y) { *y = n_dot_bytes(*y, n_bytes(u), n_bytes((const uint8_t *)s)); }
void f_pairs(const float *x, float *y) { vstore(y, v_row_bf16(vload(x), vload(x + VL))); }
void f_part(const float *x, float *y, int n) { vstore_n(y, vload(x), n); }
void f_part_known(const float *x, float *y, int n) {
  const vf v = vload(x);
#define KNOWN(i) if (i <= VL && n == i) vstore_n(y, v, i);
  KNOWN(0) KNOWN(1) KNOWN(2) KNOWN(3) KNOWN(4) KNOWN(5) KNOWN(6) KNOWN(7) KNOWN(8)
}
#define TURN(type) void f_turn_##type(const type *s, type *t) { k_transpose_##type(s, 17, t, 18); }
TURN(uint8_t) TURN(uint16_t) TURN(uint32_t) TURN(uint64_t)
"""
X86_FLAGS = {
    "avx512": ["-march=native"],
    "avx2": ["-mavx2", "-mfma"],
    "portable": ["-msse2"],
    "generic": ["-DV_GENERIC"],  # without intrinsics
}


def isas() -> list[str]:
    """Return the instruction sets of this machine, keys of `X86_FLAGS`."""
    if platform.machine() != "x86_64":
        return ["portable"]
    cpu = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    return ["generic", "portable", *(name for name, flag in (("avx2", " fma "), ("avx512", "avx512bw")) if flag in cpu)]


def compiled(source: str, isa: str, folder: Path) -> ctypes.CDLL:
    """Compile functions for one instruction set, and load them."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    file, library = folder / "f.c", folder / "f.so"
    file.write_text(source)
    flags = X86_FLAGS[isa] if platform.machine() == "x86_64" else []
    flags = [*flags, "-O2", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi", f"-I{TEMPLATES}", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(file), "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="module", params=isas())
def lib(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Functions for each instruction set."""
    loaded = compiled(SOURCE, request.param, tmp_path_factory.mktemp("vector"))
    for name in ("f_sum", "f_top", "f_product"):
        getattr(loaded, name).restype = ctypes.c_float
    assert loaded.f_lanes() == {"avx512": 16, "avx2": 8}.get(request.param, 4)
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
    special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, -1e30, 1e30], np.float32)
    np.testing.assert_array_equal(_call(lib, "f_gelu", special), [np.inf, np.nan, np.nan, 0, 0, 0, np.float32(1e30)])


def test_exp2(lib: ctypes.CDLL) -> None:
    x = _samples()
    x = np.concatenate([x[x <= 100], np.linspace(-160, 2, 100_001, dtype=np.float32)])
    got = _call(lib, "f_exp2", x)
    assert _ulps(got[x >= -125], np.exp2(x[x >= -125].astype(np.float64))) <= 1.5
    assert not got[x < -125.6].any()
    np.testing.assert_array_equal(_call(lib, "f_exp2", np.array([-np.inf, np.nan, 0], np.float32)), [0, np.nan, 1])


def test_exp_without_denormals(lib: ctypes.CDLL) -> None:
    x = np.concatenate([_samples(), np.linspace(-110, 2, 100_001, dtype=np.float32)])
    x = x[x <= 60]
    got = _call(lib, "f_exp_normal", x)
    assert _ulps(got[x >= -86], np.exp(x[x >= -86].astype(np.float64))) <= 1.0
    assert not got[x < -87.1].any()
    special = np.array([-np.inf, np.nan, 0], np.float32)
    np.testing.assert_array_equal(_call(lib, "f_exp_normal", special), [0, np.nan, 1])


@pytest.mark.parametrize("name", ["f_exp2", "f_exp_normal", "f_gelu"])
def test_no_result_is_denormal(lib: ctypes.CDLL, name: str) -> None:
    """Arithmetic on denormals takes over a hundred cycles on some cores, and -100 is a usual mask of a softmax."""
    x = np.linspace(-160, -1, 1_000_001, dtype=np.float32)
    got = np.abs(_call(lib, name, x))
    assert not ((got > 0) & (got < np.finfo(np.float32).tiny)).any()


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
    np.testing.assert_allclose(_call(lib, "f_sinh", x), np.sinh(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["sin", "cos", "tan", "asin", "acos", "atan"])
def test_trigonometry(lib: ctypes.CDLL, name: str) -> None:
    """Errors are those of rounding, beside zeros of sin and cos far from 0 those of the reduced argument."""
    function = {"asin": np.arcsin, "acos": np.arccos, "atan": np.arctan}.get(name) or getattr(np, name)
    near = np.linspace(-9, 9, 20011).astype(np.float32)
    for x in (_samples(), near, near * np.float32(2500), near / 9):
        with np.errstate(all="ignore"):
            expected = function(x.astype(np.float64))
        got = _call(lib, f"f_{name}", x)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        number = ~np.isnan(expected)
        limit = 1e3 if name == "tan" else np.inf  # where a pole is near, the argument's rounding decides
        number &= np.abs(expected) < limit
        np.testing.assert_allclose(got[number], expected[number], rtol=4e-7 if name != "tan" else 1e-4, atol=2e-9)
        zero = number & (expected == 0)
        np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))


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


def _pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """Return a copy aligned as vectors are."""
    copy = harness.aligned(array.shape, array.dtype)
    copy[...] = array
    return copy


def test_any_lane(lib: ctypes.CDLL) -> None:
    for lane in range(lib.f_lanes()):
        x = np.ones(lib.f_lanes(), np.float32)
        assert not lib.f_any(_pointer(x))
        x[lane] = -1
        assert lib.f_any(_pointer(x))


def test_strided_loads(lib: ctypes.CDLL) -> None:
    lanes = lib.f_lanes()
    x, y = np.arange(300, dtype=np.float32), np.empty(lanes, np.float32)
    for n in range(lanes + 1):
        lib.f_gather(_pointer(x[200:]), ctypes.c_int64(-7), n, _pointer(y))
        np.testing.assert_array_equal(y, [200 - 7 * i if i < n else 0 for i in range(lanes)])


def test_bytes_as_floats(lib: ctypes.CDLL) -> None:
    lanes = lib.f_lanes()
    for first in range(0, 256, lanes):
        x, y = np.arange(first, first + lanes).astype(np.uint8), np.empty(2 * lanes, np.float32)
        lib.f_bytes(_pointer(x), _pointer(y))
        np.testing.assert_array_equal(y, [*x, *x.view(np.int8)])


def test_bf16(lib: ctypes.CDLL) -> None:
    lanes = lib.f_lanes()
    x = np.random.default_rng(1).standard_normal(2 * lanes).astype(np.float32)
    halves, back, words = np.empty(lanes, np.uint16), np.empty(lanes, np.float32), np.empty(lanes, np.uint32)
    lib.f_bf16(_pointer(x), _pointer(halves), _pointer(back))
    np.testing.assert_array_equal(back.view(np.uint32), halves.astype(np.uint32) << 16)
    np.testing.assert_allclose(back, x[:lanes], rtol=2**-8)
    lib.f_pairs(_pointer(x), _pointer(words))
    np.testing.assert_array_equal(words.view(np.uint16)[:lanes], halves)


@pytest.mark.parametrize("zero", [0, 3, 255, -128])
def test_quantization(lib: ctypes.CDLL, zero: int) -> None:
    lanes = lib.f_lanes()
    edges = [0.5, 1.5, -0.5, 1e30, -1e30, np.inf, -np.inf, 254.5, 255.5, 127.5, -128.5, 4e4, -4e4, 3e9, -3e9, 0.0]
    rng = np.random.default_rng(zero + 128)
    x = np.concatenate([edges, rng.uniform(-300, 300, 4 * 16 - len(edges))])[: 4 * lanes].astype(np.float32)
    rounded = np.round(np.clip(x.astype(np.float64), -1e9, 1e9)).astype(np.int64) + zero
    for signed, low in ((0, 0), (1, -128)):
        if not low <= zero <= low + 255:
            continue
        kind: type = np.int8 if signed else np.uint8
        expected = np.clip(rounded, low, low + 255).astype(kind)
        whole = np.empty(4 * lanes, kind)
        lib.f_packed(_pointer(x), _pointer(whole), zero, signed)
        np.testing.assert_array_equal(whole, expected)
        for n in range(lanes + 1):
            some = np.full(lanes + 1, 77, kind)
            (lib.f_s8 if signed else lib.f_u8)(_pointer(x), _pointer(some), zero, n)
            np.testing.assert_array_equal(some, [*expected[:n], *[77] * (lanes + 1 - n)])


def test_products_of_bytes(lib: ctypes.CDLL) -> None:
    lanes = lib.f_lanes()
    rng = np.random.default_rng(2)
    u, s = rng.integers(0, 256, 4 * lanes).astype(np.uint8), rng.integers(-128, 128, 4 * lanes).astype(np.int8)
    u[:4], s[:4] = 255, -128
    sums = aligned(np.full(lanes, 5, np.int32))
    lib.f_dot(_pointer(u), _pointer(s), _pointer(sums))
    np.testing.assert_array_equal(sums, 5 + (u.astype(np.int32) * s).reshape(-1, 4).sum(1))


def test_interleaved_bytes(lib: ctypes.CDLL) -> None:
    lanes = lib.f_lanes()
    x = np.random.default_rng(3).integers(0, 256, 16 * lanes).astype(np.uint8)
    y = aligned(np.empty(16 * lanes, np.uint8))
    lib.f_quads(_pointer(x), _pointer(y))
    by_channel = x.reshape(4, -1).T.reshape(-1, 4, 4, 4)  # [lane of 128 bits][vector][channel][row]
    np.testing.assert_array_equal(y.reshape(4, -1, 4, 4), by_channel.swapaxes(0, 1))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_transposed_blocks(lib: ctypes.CDLL, dtype: type) -> None:
    x, y = np.arange(16 * 17).astype(dtype), np.full(16 * 18, 7, dtype)
    getattr(lib, f"f_turn_{dtype.__name__}_t")(_pointer(x), _pointer(y))
    np.testing.assert_array_equal(y.reshape(16, 18)[:, :16], x.reshape(16, 17)[:, :16].T)
    assert (y.reshape(16, 18)[:, 16:] == 7).all()


@pytest.mark.parametrize("name", ["f_part", "f_part_known"])
def test_parts_of_vectors_are_stored(lib: ctypes.CDLL, name: str) -> None:
    x = np.arange(1, lib.f_lanes() + 1, dtype=np.float32)
    for n in range(min(x.size, 8) + 1):
        y = np.zeros(x.size + 1, np.float32)
        getattr(lib, name)(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), n)
        np.testing.assert_array_equal(y, np.where(np.arange(y.size) < n, np.append(x, 0), 0))


@pytest.mark.skipif("avx2" not in isas(), reason="code of AVX2")
@pytest.mark.parametrize(("header", "real"), [("vector.h", "float"), ("kernel_f64.h", "double")])
def test_no_masked_store_with_avx2(header: str, real: str, tmp_path: Path) -> None:
    """A masked store takes some 18 cycles on AMD's cores before Zen 4."""
    compiler = shutil.which("gcc") or pytest.skip("no gcc")
    (tmp_path / "f.c").write_text(
        f'#include "{header}"\nvoid f({real} *y, vf v, int n) {{ vstore_n(y, v, n), vstore_n(y + 8, v, 3); }}\n'
    )
    command = [compiler, "-O2", "-mavx2", "-mfma", f"-I{TEMPLATES}", "-S", "-o", "-", str(tmp_path / "f.c")]
    code = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "vmaskmov" not in code
    assert "vextractf128" in code
