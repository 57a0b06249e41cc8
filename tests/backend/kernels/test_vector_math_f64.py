"""Vector functions on doubles against numbers of 64 bits of mantissa, on each instruction set of this machine."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from .test_vector_math import compiled, isas

Wide = NDArray[np.longdouble]
SOURCE = """
#include "kernel_f64.h"
#define LOOP(name, function) \\
  void name(const double *x, double *y, long n) { \\
    long i = 0; \\
    for (; i + VL <= n; i += VL) vstore(y + i, function(vload(x + i))); \\
    if (i < n) vstore_n(y + i, function(vload_n(x + i, (int)(n - i))), (int)(n - i)); \\
  }
LOOP(f_exp, vexp) LOOP(f_exp2, vexp2) LOOP(f_log, vlog) LOOP(f_log1p, vlog1p) LOOP(f_erf, verf) LOOP(f_tanh, vtanh)
LOOP(f_sigmoid, vsigmoid) LOOP(f_gelu, vgelu) LOOP(f_sign, vsign) LOOP(f_sqrt, vsqrt) LOOP(f_abs, vabs)
LOOP(f_round, vround) LOOP(f_floor, vfloor) LOOP(f_ceil, vceil) LOOP(f_sin, vsin)
void f_max(const double *x, double *y, long n) {
  for (long i = 0; i + VL <= n; i += VL) vstore(y + i, vmax_nan(vload(x + i), vmin_nan(vset1(0.5), vload(x + i))));
}
void f_less(const double *x, uint8_t *y, long n) {
  long i = 0;
  for (; i + VL <= n; i += VL) vm_store(y + i, vlt(vload(x + i), vset1(0.5)));
  if (i < n) vm_store_n(y + i, vlt(vload_n(x + i, (int)(n - i)), vset1(0.5)), (int)(n - i));
}
void f_select(const uint8_t *m, double *y, long n) {
  long i = 0;
  for (; i + VL <= n; i += VL) vstore(y + i, vsel(vm_load(m + i), vset1(2.0), vset1(-1.0)));
  if (i < n) vstore_n(y + i, vsel(vm_load_n(m + i, (int)(n - i)), vset1(2.0), vset1(-1.0)), (int)(n - i));
}
int f_lanes(void) { return VL; }
void f_across(const double *x, double *y) {
  const vf v = vload(x);
  y[0] = vhsum(v), y[1] = vhprod(v), y[2] = vhmax_nan(v), y[3] = vhmin_nan(v);
}
void f_part(const double *x, double *y, int n) { vstore_n(y, vload(x), n); }
void f_part_known(const double *x, double *y, int n) {
  const vf v = vload(x);
#define KNOWN(i) if (i <= VL && n == i) vstore_n(y, v, i);
  KNOWN(0) KNOWN(1) KNOWN(2) KNOWN(3) KNOWN(4)
}
void f_gather(const double *x, double *y, long stride) { vstore(y, vload_strided(x, stride, VL)); }
"""


def _erf(x: Wide) -> Wide:
    return np.array([math.erf(v) for v in x], np.longdouble)


def _gelu(x: Wide) -> Wide:
    return x / 2 * np.array([math.erfc(-float(v) / math.sqrt(2)) for v in x], np.longdouble)


# The reference of erf and gelu is of double precision itself; that of gelu loses digits where erfc decays.
FUNCTIONS: dict[str, tuple[Callable[[Wide], Wide], float, float, float]] = {
    "exp": (np.exp, -740, 709, 1.5),
    "exp2": (np.exp2, -1000, 99, 2),
    "log": (np.log, 0, 1e300, 1.5),
    "log1p": (np.log1p, 0, 1e6, 2),
    "erf": (_erf, -7, 7, 3),
    "tanh": (np.tanh, -25, 25, 3),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -700, 50, 2.5),
    "gelu": (_gelu, -5, 9, 40),
}


@pytest.fixture(scope="module", params=isas())
def lib(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Functions for each instruction set."""
    loaded = compiled(SOURCE, request.param, tmp_path_factory.mktemp("vector"))
    assert loaded.f_lanes() == {"avx512": 8, "avx2": 4}.get(request.param, 2)
    return loaded


def _call(lib: ctypes.CDLL, name: str, x: NDArray[Any], dtype: type = np.float64) -> NDArray[Any]:
    out: NDArray[Any] = np.full(x.size + 1, 77, dtype)
    getattr(lib, name)(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(out.ctypes.data), ctypes.c_long(x.size))
    assert out[-1] == 77, "wrote past the end"
    return out[:-1]


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no wider floats than doubles")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors(lib: ctypes.CDLL, name: str) -> None:
    function, low, high, bound = FUNCTIONS[name]
    rng = np.random.default_rng(5)
    near = rng.uniform(max(low, -1), 1.5, 5001)
    x = np.concatenate([rng.uniform(low, high, 20000), near, np.exp(rng.uniform(-600, 0, 5000))])
    exact = function(x.astype(np.longdouble))
    error = np.abs(_call(lib, f"f_{name}", x) - exact) / np.spacing(np.abs(exact).astype(np.float64))
    assert error.max() <= bound


def test_special_values(lib: ctypes.CDLL) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e300, -1e300, 5e-324])
    expected = {
        "exp": [1, 1, np.inf, 0, np.nan, np.inf, 0, 1],
        "log": [-np.inf, -np.inf, np.inf, np.nan, np.nan, np.log(1e300), np.nan, np.log(5e-324)],
        "erf": [0, -0.0, 1, -1, np.nan, 1, -1, 5e-324],
        "tanh": [0, -0.0, 1, -1, np.nan, 1, -1, 5e-324],
        "sigmoid": [0.5, 0.5, 1, 0, np.nan, 1, 0, 0.5],
        "gelu": [0, 0, np.inf, np.nan, np.nan, 1e300, 0, 0],
        "round": [0, -0.0, np.inf, -np.inf, np.nan, 1e300, -1e300, 0],
        "abs": [0, 0, np.inf, np.inf, np.nan, 1e300, 1e300, 5e-324],
    }
    for name, wanted in expected.items():
        found = _call(lib, f"f_{name}", x)
        np.testing.assert_allclose(found, wanted, rtol=1e-15, atol=5e-324, err_msg=name)
    assert np.signbit(_call(lib, "f_tanh", x)[1])
    assert np.isnan(_call(lib, "f_max", x)[4])


def test_primitives(lib: ctypes.CDLL) -> None:
    rng = np.random.default_rng(6)
    x = np.concatenate([rng.uniform(-9, 9, 1001), [0.5, 1.5, -2.5, 2.5, 1e17, 2.0**52 + 1, -0.4]])
    for name, function in (("round", np.rint), ("floor", np.floor), ("ceil", np.ceil), ("sign", np.sign)):
        np.testing.assert_array_equal(_call(lib, f"f_{name}", x), function(x))
    np.testing.assert_array_equal(_call(lib, "f_sin", x), [math.sin(v) for v in x])
    np.testing.assert_array_equal(_call(lib, "f_less", x, np.uint8), x < 0.5)
    mask = (x < 0.5).astype(np.uint8)
    np.testing.assert_array_equal(_call(lib, "f_select", mask), np.where(x < 0.5, 2.0, -1.0))
    lanes, across = lib.f_lanes(), np.empty(4)
    lib.f_across(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(across.ctypes.data))
    v = x[:lanes]
    np.testing.assert_allclose(across, [v.sum(), v.prod(), v.max(), v.min()], rtol=1e-13)
    some = np.empty(lanes)
    lib.f_gather(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(some.ctypes.data), ctypes.c_long(3))
    np.testing.assert_array_equal(some, x[: 3 * lanes : 3])


@pytest.mark.parametrize("name", ["f_part", "f_part_known"])
def test_parts_of_vectors_are_stored(lib: ctypes.CDLL, name: str) -> None:
    x = np.arange(1, lib.f_lanes() + 1, dtype=np.float64)
    for n in range(min(x.size, 4) + 1):
        y = np.zeros(x.size + 1)
        getattr(lib, name)(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), n)
        np.testing.assert_array_equal(y, np.where(np.arange(y.size) < n, np.append(x, 0), 0))
