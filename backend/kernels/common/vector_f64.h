/* Vectors of f64 for modules of f64 kernels: the API of vector.h with VL = 8, 4 or 2 doubles and vi lanes of 64 bits. Kernels of
 * 16-bit floats and of integers have no f64 form, nor have the functions that they use.
 *
 * Errors in units in the last place: vexp 1.5, vexp2 2, vlog 1.5, vlog1p 2, verf 2, vtanh 3, vsigmoid 2.5; vgelu has a relative
 * error of 2e-13 down to where the result is denormal (measured by the tests). */
#ifndef REWRITE_VECTOR_F64_H
#define REWRITE_VECTOR_F64_H

#if defined(__SSE2__) && !defined(V_GENERIC)
#include "intrinsics.h"
#if defined(V_AVX512)
#define V_X(op) _mm512_##op
typedef __m512d v_reg;
typedef __m512i v_int;
#elif defined(V_AVX2)
#define V_X(op) _mm256_##op
typedef __m256d v_reg;
typedef __m256i v_int;
#else
#define V_X(op) _mm_##op
typedef __m128d v_reg;
typedef __m128i v_int;
#endif
V_INLINE vf vset1(double x) { return (vf)V_X(set1_pd)(x); }
V_INLINE vf vmin(vf a, vf b) { return (vf)V_X(min_pd)((v_reg)a, (v_reg)b); }
V_INLINE vf vmax(vf a, vf b) { return (vf)V_X(max_pd)((v_reg)a, (v_reg)b); }
V_INLINE vf vsqrt(vf a) { return (vf)V_X(sqrt_pd)((v_reg)a); }
#else
V_INLINE vf vset1(double x) { return (vf){x, x}; }
V_INLINE vf vmin(vf a, vf b) { return (vf)(((a < b) & (vi)a) | (~(a < b) & (vi)b)); }
V_INLINE vf vmax(vf a, vf b) { return (vf)(((a > b) & (vi)a) | (~(a > b) & (vi)b)); }
V_INLINE vf vsqrt(vf a) { return (vf){__builtin_sqrt(a[0]), __builtin_sqrt(a[1])}; }
#endif

/* nearest integers of numbers below 2^51, by way of the last bits of 1.5 * 2^52 + a */
V_INLINE vi v_nearest(vf a) { return (vi)(a + 0x1.8p52) - (vi)(vset1(0x1.8p52)); }

#if defined(V_AVX512)

typedef __mmask8 vm;
V_INLINE vm vm_first(int n) { return (vm)((1u << n) - 1); }
V_INLINE vf vload_n(const double *p, int n) { return (vf)_mm512_maskz_loadu_pd(vm_first(n), p); }
V_INLINE void vstore_n(double *p, vf v, int n) { _mm512_mask_storeu_pd(p, vm_first(n), (__m512d)v); }
#define V_MASKED 1
V_INLINE vf v_load_masked(const double *p, vm m) { return (vf)_mm512_maskz_loadu_pd(m, p); }
V_INLINE vf vfloor(vf a) { return (vf)_mm512_roundscale_pd((__m512d)a, 1 | _MM_FROUND_NO_EXC); }
V_INLINE vf vceil(vf a) { return (vf)_mm512_roundscale_pd((__m512d)a, 2 | _MM_FROUND_NO_EXC); }
V_INLINE vf vround(vf a) { return (vf)_mm512_roundscale_pd((__m512d)a, 0 | _MM_FROUND_NO_EXC); }
V_INLINE vm vlt(vf a, vf b) { return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_LT_OQ); }
V_INLINE vm vle(vf a, vf b) { return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_LE_OQ); }
V_INLINE vm veq(vf a, vf b) { return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_EQ_OQ); }
V_INLINE vm vm_not(vm a) { return (vm)~a; }
V_INLINE vm vm_set1(int x) { return x ? 0xff : 0; }
V_INLINE int vm_any(vm a) { return a != 0; }
V_INLINE vf vsel(vm m, vf a, vf b) { return (vf)_mm512_mask_blend_pd(m, (__m512d)b, (__m512d)a); }
V_INLINE vm vm_load(const uint8_t *p) {
  const __m128i bytes = _mm_loadl_epi64((const __m128i *)p);
  return (vm)_mm_test_epi8_mask(bytes, bytes);
}
V_INLINE vm vm_load_n(const uint8_t *p, int n) {
  const __m128i bytes = _mm_maskz_loadu_epi8(vm_first(n), p);
  return (vm)_mm_test_epi8_mask(bytes, bytes);
}
V_INLINE void vm_store(uint8_t *p, vm m) { _mm_storel_epi64((__m128i *)p, _mm_maskz_set1_epi8(m, 1)); }
V_INLINE void vm_store_n(uint8_t *p, vm m, int n) {
  _mm_mask_storeu_epi8(p, vm_first(n), _mm_maskz_set1_epi8(m, 1));
}
V_INLINE double vhsum(vf a) { return _mm512_reduce_add_pd((__m512d)a); }
V_INLINE double vhmax(vf a) { return _mm512_reduce_max_pd((__m512d)a); }
V_INLINE double vhmin(vf a) { return _mm512_reduce_min_pd((__m512d)a); }
V_INLINE double vhprod(vf a) { return _mm512_reduce_mul_pd((__m512d)a); }
V_INLINE vf v_gather(const double *p, int64_t s) {
  return (vf)_mm512_setr_pd(p[0], p[s], p[2 * s], p[3 * s], p[4 * s], p[5 * s], p[6 * s], p[7 * s]);
}
V_INLINE vf v_scale(vf p, vf n) { return (vf)_mm512_scalef_pd((__m512d)p, (__m512d)n); }

#else

V_INLINE vm vlt(vf a, vf b) { return a < b; }
V_INLINE vm vle(vf a, vf b) { return a <= b; }
V_INLINE vm veq(vf a, vf b) { return a == b; }
V_INLINE vm vm_not(vm a) { return ~a; }
V_INLINE vm vm_set1(int x) { return (vm){0} - (x != 0); }
#ifndef V_AVX2
V_INLINE vf vsel(vm m, vf a, vf b) { return (vf)((m & (vi)a) | (~m & (vi)b)); }
#else
V_INLINE vf vsel(vm m, vf a, vf b) { return (vf)_mm256_blendv_pd((__m256d)b, (__m256d)a, (__m256d)m); }
#endif
/* p * 2^n for n in -1100 .. 1100: twice by half of it, so that no factor is infinite or denormal */
V_INLINE vf v_scale(vf p, vf n) {
  const vi whole = v_nearest(n), half = whole >> 1;
  return p * (vf)((half + 1023) << 52) * (vf)((whole - half + 1023) << 52);
}
#if defined(V_AVX2)
V_INLINE vm vm_first(int n) {
  return (vm)_mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
}
V_INLINE int vm_any(vm a) { return !_mm256_testz_si256((__m256i)a, (__m256i)a); }
V_INLINE vf vload_n(const double *p, int n) { return (vf)_mm256_maskload_pd(p, (__m256i)vm_first(n)); }
/* in pieces, as in vector_x86.h */
V_INLINE void vstore_n(double *p, vf v, int n) {
  if (__builtin_constant_p(n)) {
    __m128d part = _mm256_castpd256_pd128((__m256d)v);
    if (n & 4) _mm256_storeu_pd(p, (__m256d)v);
    if (n & 2) _mm_storeu_pd(p, part), p += 2, part = _mm256_extractf128_pd((__m256d)v, 1);
    if (n & 1) _mm_store_sd(p, part);
    return;
  }
  __asm__ volatile(
      "testb $4, %b[n]\n\tjnz 5f\n\t"
      "testb $2, %b[n]\n\tjz 3f\n\t"
      "vmovupd %x[v], (%[p])\n\tvextractf128 $1, %t[v], %x[v]\n\taddq $16, %[p]\n"
      "3:\ttestb $1, %b[n]\n\tjz 4f\n\t"
      "vmovsd %x[v], (%[p])\n\tjmp 4f\n"
      "5:\tvmovupd %t[v], (%[p])\n"
      "4:"
      : [p] "+r"(p), [v] "+x"(v)
      : [n] "q"(n)
      : "memory", "cc");
}
#define V_MASKED 1
V_INLINE vf v_load_masked(const double *p, vm m) { return (vf)_mm256_maskload_pd(p, (__m256i)m); }
V_INLINE vf vfloor(vf a) { return (vf)_mm256_floor_pd((__m256d)a); }
V_INLINE vf vceil(vf a) { return (vf)_mm256_ceil_pd((__m256d)a); }
V_INLINE vf vround(vf a) { return (vf)_mm256_round_pd((__m256d)a, 0 | _MM_FROUND_NO_EXC); }
V_INLINE vm vm_load(const uint8_t *p) { return (vm){0} - (vm){p[0] != 0, p[1] != 0, p[2] != 0, p[3] != 0}; }
V_INLINE vf v_gather(const double *p, int64_t s) { return (vf)_mm256_setr_pd(p[0], p[s], p[2 * s], p[3 * s]); }
#define V_ACROSS(name, op)                                              \
  V_INLINE double name(vf a) {                                          \
    a = op(a, V_SHUFFLE(a, a, 2, 3, 0, 1));                             \
    return op(a, V_SHUFFLE(a, a, 1, 0, 3, 2))[0];                       \
  }
#else
V_INLINE vm vm_first(int n) { return (vm){0, 1} < n; }
V_INLINE int vm_any(vm a) { return (a[0] | a[1]) != 0; }
V_INLINE vf vload_n(const double *p, int n) { return n >= 2 ? vload(p) : n == 1 ? (vf){p[0], 0} : (vf){0}; }
V_INLINE void vstore_n(double *p, vf v, int n) {
  if (n >= 2) vstore(p, v);
  else if (n == 1) p[0] = v[0];
}
/* Adding and taking away 2^52 rounds; larger numbers and NaN stay. The sign is that of `a`, also of zeros. */
V_INLINE vf vround(vf a) {
  const vi sign = (vi)a & INT64_MIN;
  const vf size = (vf)((vi)a & INT64_MAX), whole = size + 0x1p52 - 0x1p52;
  return vsel(size < 0x1p52, (vf)((vi)whole | sign), a);
}
V_INLINE vf vfloor(vf a) {
  const vf near = vround(a);
  return (vf)((vi)(near - (vf)((vi)vset1(1) & (near > a))) | ((vi)a & INT64_MIN));
}
V_INLINE vf vceil(vf a) {
  const vf near = vround(a);
  return (vf)((vi)(near + (vf)((vi)vset1(1) & (near < a))) | ((vi)a & INT64_MIN));
}
V_INLINE vm vm_load(const uint8_t *p) { return (vm){0} - (vm){p[0] != 0, p[1] != 0}; }
V_INLINE vf v_gather(const double *p, int64_t s) { return (vf){p[0], p[s]}; }
#define V_ACROSS(name, op) \
  V_INLINE double name(vf a) { return op(a, V_SHUFFLE(a, a, 1, 0))[0]; }
#endif
#define V_PLUS(a, b) ((a) + (b))
#define V_TIMES(a, b) ((a) * (b))
V_ACROSS(vhsum, V_PLUS)
V_ACROSS(vhprod, V_TIMES)
V_ACROSS(vhmax, vmax)
V_ACROSS(vhmin, vmin)
V_INLINE void vm_store(uint8_t *p, vm m) {
  for (int i = 0; i < VL; i++) p[i] = m[i] != 0;
}
V_INLINE vm vm_load_n(const uint8_t *p, int n) {
  uint8_t bytes[VL] = {0};
  memcpy(bytes, p, (size_t)n);
  return vm_load(bytes);
}
V_INLINE void vm_store_n(uint8_t *p, vm m, int n) {
  for (int i = 0; i < n; i++) p[i] = m[i] != 0;
}
#endif

V_INLINE vm vm_and(vm a, vm b) { return a & b; }
V_INLINE vm vm_or(vm a, vm b) { return a | b; }
V_INLINE vm vm_xor(vm a, vm b) { return a ^ b; }
V_INLINE vf vabs(vf a) { return (vf)((vi)a & INT64_MAX); }
V_INLINE vf v_with_sign(vf a, vf b) { return (vf)((vi)a | ((vi)b & INT64_MIN)); }

/* ---- exp, log, erf, tanh, sigmoid ---- */

/* exp(r) - 1 for |r| <= ln(2) / 2: Taylor's series, whose remainder is below 1e-17 */
V_INLINE vf v_expm1_core(vf r) {
  vf p = vset1(1.0 / 6227020800);
  p = p * r + 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  return p * (r * r) + r;
}
/* exp(r) - 1 for x = n * ln(2) + r, n the whole number nearest to x / ln(2); ln(2) in two parts so that r is exact */
V_INLINE vf v_reduced(vf x, vf *n) {
  *n = vround(x * 1.4426950408889634);
  vf r = x - *n * 6.93147180369123816490e-01;
  return v_expm1_core(r - *n * 1.90821492927058770002e-10);
}
V_INLINE vf vexp(vf x) {
  vf n, p = v_reduced(vmax(vset1(-750.0), vmin(vset1(710.0), x)), &n);
  return v_scale(p + 1.0, n);
}
V_INLINE vf v_exp_low(vf x) { return vexp(x); }
V_INLINE vf vexp_normal(vf x) { return vexp(x); } /* its denormals are those of differences beyond 700 */
V_INLINE vf vexp2(vf y) {
  y = vmax(vset1(-1080.0), y);
  vf n = vround(y);
  return v_scale(v_expm1_core((y - n) * 0.6931471805599453) + 1.0, n);
}

/* log(x) = e ln(2) + log(1 + f), 1 + f in [sqrt(1/2), sqrt(2)); log(1 + f) from the odd series of s = f / (2 + f), by the minimax
 * polynomial of FreeBSD's e_log.c */
V_INLINE vf vlog(vf x) {
  const vm tiny = vlt(x, vset1(0x1p-1022));
  const vi bits = (vi)vsel(tiny, x * 0x1p54, x);
  vf e = (vf)(((bits >> 52) & 0x7ff) | (vi)vset1(0x1p52)) - 0x1p52 - vsel(tiny, vset1(1077.0), vset1(1023.0));
  vf m = (vf)((bits & INT64_C(0x000fffffffffffff)) | INT64_C(0x3ff0000000000000));
  const vm high = vlt(vset1(1.4142135623730951), m);
  e = vsel(high, e + 1.0, e);
  const vf f = vsel(high, m * 0.5, m) - 1.0, s = f / (f + 2.0), z = s * s;
  vf p = vset1(1.479819860511658591e-01);
  p = p * z + 1.531383769920937332e-01;
  p = p * z + 1.818357216161805012e-01;
  p = p * z + 2.222219843214978396e-01;
  p = p * z + 2.857142874366239149e-01;
  p = p * z + 3.999999999940941908e-01;
  p = p * z + 6.666666666666735130e-01;
  const vf half = 0.5 * f * f;
  vf r = e * 6.93147180369123816490e-01 - ((half - (s * (half + p * z) + e * 1.90821492927058770002e-10)) - f);
  const vf infinity = vset1(__builtin_inf());
  r = vsel(veq(x, infinity), infinity, r);
  r = vsel(veq(x, (vf){0}), -infinity, r);
  return vsel(vle((vf){0}, x), r, vset1(__builtin_nan("")));
}

/* log(1 + x) for x >= 0: the rounding error of 1 + x is added back */
V_INLINE vf vlog1p(vf x) {
  const vf u = x + 1.0;
  return vsel(veq(u, vset1(__builtin_inf())), u, vlog(u) + (x - (u - 1.0)) / u);
}

/* exp(t^2) erfc(t) for t >= 0: 1 / (1 + 2 t) times a polynomial of (t - 3) / (t + 3), fitted at Chebyshev nodes (Shepherd and
 * Laframboise, "Chebyshev Approximation of (1 + 2x) exp(x^2) erfc x in 0 <= x < infinity", 1981) */
V_INLINE vf v_erfcx(vf t) {
  static const double c[] = {
      -3.451497487664328e-11, 8.393734858690877e-10,  1.2019719440135793e-09, -8.217595058711455e-09,
      -1.3906145791730994e-08, 4.1064013667940355e-08, 1.0277997488271058e-07, -1.4047654315428462e-07,
      -6.175617678992323e-07, 3.5576086684080595e-07, 3.473024167841533e-06,  -7.308281468783614e-07,
      -2.0100843094844725e-05, 4.949196649968345e-06, 0.0001250994355712812,  -0.00010515971958448065,
      -0.0007798322884823084, 0.0018886903449991718,  0.0025293918180474668,  -0.02377051491717134,
      0.06830802734384515,    -0.11927366341538638,   0.12964515870276475,    -0.0475622943534492,
      -0.1356211061245812,    1.2530080582697296};
  const vf u = (t - 3.0) / (t + 3.0);
  vf p = vset1(c[0]);
  _Pragma("GCC unroll 32") for (int i = 1; i < 26; i++) p = p * u + c[i];
  return p / (t + t + 1.0);
}
V_INLINE vf verf(vf a) {
  const vf t = vabs(a), z = a * a;
  vf p = vset1(2.0 / 479001600 / 25);
  p = p * -z + 2.0 / 39916800 / 23;
  p = p * -z + 2.0 / 3628800 / 21;
  p = p * -z + 2.0 / 362880 / 19;
  p = p * -z + 2.0 / 40320 / 17;
  p = p * -z + 2.0 / 5040 / 15;
  p = p * -z + 2.0 / 720 / 13;
  p = p * -z + 2.0 / 120 / 11;
  p = p * -z + 2.0 / 24 / 9;
  p = p * -z + 2.0 / 6 / 7;
  p = p * -z + 2.0 / 2 / 5;
  p = p * -z + 2.0 / 3;
  p = p * -z + 2.0;
  const vf s = vmin(vset1(6.5), t), large = v_with_sign(1.0 - vexp(s * -s) * v_erfcx(s), a);
  return vsel(vlt(t, vset1(0.5)), p * a * 0.5641895835477563, vsel(vm_not(veq(a, a)), a, large));
}

/* x * Phi(x) as max(x, 0) - |x| / 2 * erfc(|x| / sqrt(2)), so that nothing cancels for x < 0; NaN for -inf, as by
 * -inf * 0 in the definition */
V_INLINE vf vgelu(vf x) {
  const vf t = vmin(vset1(60.0), vabs(x)), s = t * 0.70710678118654752440;
  return vmin(x, (vf){0}) * 0.0 + (vmax((vf){0}, x) - 0.5 * t * vexp(t * t * -0.5) * v_erfcx(s));
}

/* expm1(2 |x|) / (expm1(2 |x|) + 2) */
V_INLINE vf vtanh(vf x) {
  const vf t = vmin(vset1(20.0), vabs(x));
  vf n, p = v_reduced(t + t, &n);
  const vf power = v_scale(vset1(1.0), n), e = power * p + (power - 1.0);
  return vsel(vm_not(veq(x, x)), x, v_with_sign(e / (e + 2.0), x));
}

/* exp(-|x|) / (1 + exp(-|x|)) for x < 0, 1 / (1 + exp(-|x|)) from 0 up: nothing overflows, small results keep their bits */
V_INLINE vf vsigmoid(vf x) {
  const vf t = vexp(-vabs(x));
  return vsel(vlt(x, (vf){0}), t, vset1(1.0)) / (t + 1.0);
}

#endif
