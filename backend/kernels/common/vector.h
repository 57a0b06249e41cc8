/* Vectors for generated kernels: one API on AVX-512, AVX2 with FMA, and any other machine that has GCC vector extensions
 * (gcc, clang). A module computes in one element type: f32, or f64 if it defines V_F64 first (vector_f64.h).
 *
 * With V_256 (kernel_256.h) vectors have 256 bits at most.
 *
 *   real  the element type, float or double
 *   vf  VL elements (16, 8 or 4 floats). + - * / and unary - are the compiler's; a * b + c becomes a fused multiply-add.
 *   vm  a truth value for each lane: a mask register on AVX-512, else all bits of a lane set or clear.
 *
 * min and max: vmin(a, b) and vmax(a, b) give b if either is NaN (the machine's rule), so vmax(zero, x) keeps a NaN of x;
 * vmin_nan and vmax_nan give NaN if either is.
 *
 * Errors of the functions against float64, in units in the last place, over all finite arguments (measured by the tests):
 * vexp 1, vexp2 1.5 (arguments from -125 to 100; below, it is 0), vlog 1, vlog1p 2 (arguments in [0, 1]), verf 1.25, vtanh 2, vsigmoid 2.5,
 * vgelu 2.5 from 0 up and 4 from -1 up; below, where x / 2 * (1 + erf(x / sqrt(2))) in f32 keeps few digits or none, a
 * relative error of 6e-6 down to -6.2 and an absolute one of 1e-13 from there. NaN gives NaN; infinities, signed zeros
 * and denormals are right. vpow, vsin and the rest of that list call the C library for each lane. */
#ifndef REWRITE_VECTOR_H
#define REWRITE_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && defined(__AVX512VL__) && !defined(V_256)
#define V_AVX512 1
#define V_BYTES 64
#elif defined(__AVX2__) && defined(__FMA__)
#define V_AVX2 1
#define V_BYTES 32
#else
#define V_BYTES 16
#if defined(__ARM_NEON) && defined(__aarch64__)
#define V_NEON 1
#endif
#endif

#define V_INLINE static inline __attribute__((always_inline, unused))

#ifdef V_F64
typedef double real;
typedef int64_t v_lane;
#define VL (V_BYTES / 8)
#else
typedef float real;
typedef int32_t v_lane;
#define VL (V_BYTES / 4)
#endif
typedef real vf __attribute__((vector_size(V_BYTES)));
typedef real vf_any __attribute__((vector_size(V_BYTES), aligned(1), may_alias)); /* rows of bytes start anywhere */
typedef v_lane vi __attribute__((vector_size(V_BYTES)));
#ifndef V_AVX512
typedef vi vm;
#endif

/* Elements of a and then of b by their constant numbers. */
#ifdef __clang__
#define V_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define V_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (vi){__VA_ARGS__})
#endif
/* Define <load>_strided, which loads n elements that lie `stride` apart; the other lanes are zero. The stride of an operand
 * that may be broadcast is known at run time only, and mostly 1. */
#define V_APART(load, type, vector)                                        \
  V_INLINE vector load##_strided(const type *p, int64_t stride, int n) {   \
    if (n == VL && stride == 1) return load(p);                            \
    type some[VL] = {0};                                                   \
    for (int i = 0; i < n; i++) some[i] = p[i * stride];                   \
    return load(some);                                                     \
  }

/* Keeps a vector in a register here, and loads what is read later again instead of keeping it: where there are more values
 * than registers, loads are cheaper than spills.
 * V_OPAQUE hides where a vector comes from: gcc loads it again as an operand of each use otherwise, or stores a few zeros
 * by `rep stos`, which is slow to start. */
#ifdef V_NEON
#define V_KEEP(v) __asm__ volatile("" : "+w"(v) : : "memory")
#define V_OPAQUE(v) __asm__("" : "+w"(v))
#elif defined(__SSE2__)
#define V_KEEP(v) __asm__ volatile("" : "+v"(v) : : "memory")
#define V_OPAQUE(v) __asm__("" : "+v"(v))
#else
#define V_KEEP(v) __asm__ volatile("" : : : "memory")
#define V_OPAQUE(v) ((void)(v))
#endif

/* ---- loads, stores, constants ---- */

V_INLINE vf vload(const real *p) { return *(const vf_any *)p; }
V_INLINE void vstore(real *p, vf v) { *(vf_any *)p = v; }

#if VL == 2
#define V_EVEN 0, 2
#define V_ODD 1, 3
#define V_ZIP_LOW 0, 2
#define V_ZIP_HIGH 1, 3
#elif VL == 4
#define V_EVEN 0, 2, 4, 6
#define V_ODD 1, 3, 5, 7
#define V_ZIP_LOW 0, 4, 1, 5
#define V_ZIP_HIGH 2, 6, 3, 7
#elif VL == 8
#define V_EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define V_ODD 1, 3, 5, 7, 9, 11, 13, 15
#define V_ZIP_LOW 0, 8, 1, 9, 2, 10, 3, 11
#define V_ZIP_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#else
#define V_EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define V_ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define V_ZIP_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define V_ZIP_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#endif

/* ---- what each instruction set has in its own way ----
 *
 *   vset1, vmin, vmax, vabs, vsqrt, vfloor, vceil, vround; vlt, vle, veq
 *   vload_n, vstore_n      n in 0 .. VL elements; the other lanes are zero, and nothing behind is touched
 *   vm_first               the first n lanes
 *   vm_load, vm_store      truth values, in memory bytes that are 0 or 1
 *   vsel                   a where m, else b
 *   vhsum, vhmax, vhmin, vhprod   across lanes
 *   v_nearest              nearest integers, ties to even; on x86 the least one for NaN and numbers beyond 32 bits
 *   v_load_bytes, v_load_chars, v_load_halves, v_store_bytes, v_store_halves   narrower integers as words; low parts
 *   v_gather               VL elements that lie apart */
#ifdef V_F64
#include "vector_f64.h"
#elif defined(__SSE2__) && !defined(V_GENERIC)
#include "vector_x86.h"
#else
#include "vector_generic.h"
#endif

#ifndef V_F64

#ifndef V_AVX512 /* lane masks */
V_INLINE vm vlt(vf a, vf b) { return a < b; }
V_INLINE vm vle(vf a, vf b) { return a <= b; }
V_INLINE vm veq(vf a, vf b) { return a == b; }
V_INLINE vm vm_and(vm a, vm b) { return a & b; }
V_INLINE vm vm_or(vm a, vm b) { return a | b; }
V_INLINE vm vm_xor(vm a, vm b) { return a ^ b; }
V_INLINE vm vm_not(vm a) { return ~a; }
V_INLINE vm vm_set1(int x) { return (vm){0} - (x != 0); }
V_INLINE vf vabs(vf a) { return (vf)((vi)a & 0x7fffffff); }
V_INLINE vm vm_load(const uint8_t *p) { return ~(v_load_bytes(p) == 0); }
V_INLINE void vm_store(uint8_t *p, vm m) { v_store_bytes(p, m & 1); }
V_INLINE vm vm_load_n(const uint8_t *p, int n) {
  uint8_t bytes[VL] = {0};
  memcpy(bytes, p, (size_t)n);
  return vm_load(bytes);
}
V_INLINE void vm_store_n(uint8_t *p, vm m, int n) {
  uint8_t bytes[VL];
  vm_store(bytes, m);
  memcpy(p, bytes, (size_t)n);
}
#endif
#if VL == 4 /* no masked loads */
V_INLINE vf vload_n(const float *p, int n) {
  if (n >= 4) return vload(p);
  return n == 3 ? (vf){p[0], p[1], p[2], 0} : n == 2 ? (vf){p[0], p[1], 0, 0} : n == 1 ? (vf){p[0], 0, 0, 0} : (vf){0};
}
V_INLINE void vstore_n(float *p, vf v, int n) {
  if (n >= 4) {
    vstore(p, v);
    return;
  }
  if (n > 0) p[0] = v[0];
  if (n > 1) p[1] = v[1];
  if (n > 2) p[2] = v[2];
}
#ifndef V_NEON
/* Adding and taking away 2^23 rounds; larger numbers and NaN stay. The sign is that of `a`, also of zeros. */
V_INLINE vf vround(vf a) {
  const vf size = vabs(a), whole = size + 8388608.0f - 8388608.0f;
  return vsel(size < 8388608.0f, (vf)((vi)whole | ((vi)a & (int32_t)0x80000000)), a);
}
V_INLINE vf vfloor(vf a) {
  const vf near = vround(a);
  return (vf)((vi)(near - (vf)((vi)vset1(1.0f) & (near > a))) | ((vi)a & (int32_t)0x80000000));
}
V_INLINE vf vceil(vf a) {
  const vf near = vround(a);
  return (vf)((vi)(near + (vf)((vi)vset1(1.0f) & (near < a))) | ((vi)a & (int32_t)0x80000000));
}
#endif
#endif

/* ---- bf16, the upper half of a float, in memory; vectors of it are those floats ---- */

typedef uint16_t v_bf16;

/* x rounded to bf16, to nearest and ties to even, in the upper halves; the lower ones are undefined */
V_INLINE vi v_bits_bf16(vf x) {
  const vi bits = (vi)x, nan = (vi)(x != x);
  return ((bits + 0x7fff + ((bits >> 16) & 1)) & ~nan) | ((bits | 0x00400000) & nan);
}
V_INLINE vf v_round_bf16(vf x) { return (vf)(v_bits_bf16(x) & (int32_t)0xffff0000); }
V_INLINE vf v_load_bf16(const v_bf16 *p) { return (vf)(v_load_halves(p) << 16); }
V_INLINE void v_store_bf16(v_bf16 *p, vf v) { v_store_halves(p, v_bits_bf16(v) >> 16); }
V_INLINE vf v_set1_bf16(v_bf16 x) { return (vf)((vi){0} + ((int32_t)x << 16)); }
#ifdef V_AVX512
V_INLINE vf v_load_bf16_n(const v_bf16 *p, int n) {
  return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vm_first(n), p)), 16);
}
V_INLINE void v_store_bf16_n(v_bf16 *p, vf v, int n) {
  _mm256_mask_storeu_epi16(p, vm_first(n), _mm512_cvtepi32_epi16((__m512i)(v_bits_bf16(v) >> 16)));
}
#else
V_INLINE vf v_load_bf16_n(const v_bf16 *p, int n) {
  v_bf16 halves[VL] = {0};
  memcpy(halves, p, 2 * (size_t)n);
  return v_load_bf16(halves);
}
V_INLINE void v_store_bf16_n(v_bf16 *p, vf v, int n) {
  v_bf16 halves[VL];
  v_store_bf16(halves, v);
  memcpy(p, halves, 2 * (size_t)n);
}
#endif
V_APART(v_load_bf16, v_bf16, vf)

#endif

/* ---- derived operations ---- */

/* n elements that lie `stride` apart; the other lanes are zero */
V_INLINE vf vload_strided(const real *p, int64_t stride, int n) {
  if (n == VL && stride == 1) return vload(p);
  if (n == VL && __builtin_constant_p(stride) && stride == 2) return V_SHUFFLE(vload(p), vload(p + VL), V_EVEN);
  if (n == VL) return v_gather(p, stride);
  real some[VL] = {0};
  for (int i = 0; i < n; i++) some[i] = p[i * stride];
  return vload(some);
}
V_APART(vm_load, uint8_t, vm)

V_INLINE vf vzero(void) { return (vf){0}; }
V_INLINE vf vfma(vf a, vf b, vf c) { return a * b + c; }
V_INLINE vm vnan(vf a) { return vm_not(veq(a, a)); }
V_INLINE vf vmin_nan(vf a, vf b) { return vsel(vnan(a), a, vmin(a, b)); }
V_INLINE vf vmax_nan(vf a, vf b) { return vsel(vnan(a), a, vmax(a, b)); }
V_INLINE vf vsign(vf a) {
  vf one = vset1(1.0f);
  return vsel(vlt(vzero(), a), one, vsel(vlt(a, vzero()), -one, a));
}
/* reductions over all lanes; NaN if one is */
V_INLINE real vhmax_nan(vf a) { return vm_any(vnan(a)) ? __builtin_nanf("") : vhmax(a); }
V_INLINE real vhmin_nan(vf a) { return vm_any(vnan(a)) ? __builtin_nanf("") : vhmin(a); }

/* ---- exp, log, erf, tanh, sigmoid ---- */

#ifndef V_F64
/* a with the sign of b; a must not be negative */
V_INLINE vf v_with_sign(vf a, vf b) { return (vf)((vi)a | ((vi)b & (int32_t)0x80000000)); }

/* Adding it rounds to a whole number n, which the low bits of the sum then hold: shorter than a conversion, and above 9 bits
 * nothing is left of the sum when they are shifted to the exponent. For |n| below 2^22. */
#define V_ROUNDING 12582912.0f

/* p * 2^n for whole n and p near 1, rounded once where the result is denormal; n in -160 .. 160, or in -150 .. 100.
 * v_scale_normal: n in -126 .. 100, and 0 for -126. What is too small to be normal counts for nothing beside the largest
 * term of a softmax, and on Intel's cores arithmetic on it takes over a hundred cycles. n is given as n + V_ROUNDING. */
#ifdef V_AVX512
V_INLINE vf v_scale(vf p, vf sum) { return (vf)_mm512_scalef_ps((__m512)p, (__m512)(sum - V_ROUNDING)); }
V_INLINE vf v_scale_low(vf p, vf sum) { return v_scale(p, sum); }
V_INLINE vf v_scale_normal(vf p, vf sum) {
  const vf n = sum - V_ROUNDING;
  const vm normal = _mm512_cmp_ps_mask((__m512)n, _mm512_set1_ps(-126.0f), _CMP_NLE_UQ); /* or NaN */
  return (vf)_mm512_maskz_scalef_ps(normal, (__m512)p, (__m512)n);
}
#else
V_INLINE vf v_scale(vf p, vf sum) {
  vi whole = (vi)sum - 0x4b400000, half = whole >> 1;
  vf first = (vf)((half + 127) << 23), second = (vf)((whole - half + 127) << 23);
  return p * first * second;
}
V_INLINE vf v_scale_low(vf p, vf sum) { return p * (vf)(((vi)sum + 153) << 23) * 0x1p-26f; }
V_INLINE vf v_scale_normal(vf p, vf sum) { return (p + p) * (vf)(((vi)sum + 126) << 23); }
#endif

/* exp(r) for |r| <= ln(2) / 2. The polynomial of exp(r) - 1 - r is fitted by weighted least squares with Lawson's
 * reweighting, its error is below 2^-27. It is summed in halves (Estrin): cores that look few instructions ahead wait for
 * chains of them, not for their number. */
V_INLINE vf v_exp_near(vf r) {
  vf r2 = r * r, high = 8.369418792e-3f * r + 4.166845605e-2f;
  vf p = (1.381314476e-3f * r2 + high) * r2 + (1.666651517e-1f * r + 4.999999404e-1f);
  return (p * r2 + r) + 1.0f;
}

/* exp(r) for x = n * ln(2) + r, n the whole number nearest to x / ln(2); ln(2) in two parts so that r is exact */
V_INLINE vf v_exp_core(vf x, vf *sum) {
  *sum = x * 1.44269504088896341f + V_ROUNDING;
  vf n = *sum - V_ROUNDING, r = x - n * 0.693359375f;
  return v_exp_near(r - n * -2.12194440e-4f);
}
V_INLINE vf vexp(vf x) {
  vf n, p = v_exp_core(vmax(vset1(-105.0f), vmin(vset1(90.0f), x)), &n);
  return v_scale(p, n);
}
/* the same for x in -100 .. 60 */
V_INLINE vf v_exp_low(vf x) {
  vf n, p = v_exp_core(x, &n);
  return v_scale_low(p, n);
}

/* exp(x) for x <= 60, 0 below -87 */
V_INLINE vf vexp_normal(vf x) {
  vf n, p = v_exp_core(vmax(vset1(-87.4f), x), &n);
  return v_scale_normal(p, n);
}

/* 2^y for y <= 100, 0 below -125.5, y = n + r for whole n; the polynomial in halves (Estrin) */
V_INLINE vf vexp2(vf y) {
  y = vmax(vset1(-126.0f), y);
  vf sum = y + V_ROUNDING, r = y - (sum - V_ROUNDING), r2 = r * r;
  vf p = (5.550361655e-02f * r + 2.402265115e-01f) + (1.339043767e-03f * r + 9.618022773e-03f) * r2;
  p = 1.547183475e-04f * (r2 * r2) + p;
  return v_scale_normal(p * r2 + (0.693147181f * r + 1.0f), sum);
}

/* log(x) = e ln(2) + log(m), x = 2^e m, m in [sqrt(1/2), sqrt(2)) */
V_INLINE vf vlog(vf x) {
  vf one = vset1(1.0f);
#ifdef V_AVX512
  vf e = (vf)_mm512_getexp_ps((__m512)x), m = (vf)_mm512_getmant_ps((__m512)x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero);
#else
  vm tiny = vlt(x, vset1(1.17549435e-38f));
  vi bits = (vi)vsel(tiny, x * 8388608.0f, x);
  vf e = __builtin_convertvector((bits >> 23) - 127, vf) - vsel(tiny, vset1(23.0f), vzero());
  vf m = (vf)((bits & 0x007fffff) | 0x3f800000);
#endif
  vm high = vlt(vset1(1.41421356f), m);
  e = vsel(high, e + 1.0f, e);
  m = vsel(high, m * 0.5f, m) - one;
  vf z = m * m;
  vf p = vset1(7.0376836292e-2f);
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  vf r = p * m * z + e * -2.12194440e-4f;
  r = r - 0.5f * z;
  r = r + m + e * 0.693359375f;
  vf infinity = vset1(__builtin_inff());
  r = vsel(veq(x, infinity), infinity, r);
  r = vsel(veq(x, vzero()), -infinity, r);
  return vsel(vle(vzero(), x), r, vset1(__builtin_nanf("")));
}

/* log(1 + x) for x >= 0: the rounding error of 1 + x is added back */
V_INLINE vf vlog1p(vf x) {
  vf u = 1.0f + x;
  return vlog(u) + (x - (u - 1.0f)) / u;
}

V_INLINE vf verf(vf a) {
  vf t = vabs(a), s = a * a;
  vf large = vset1(-1.72853470e-5f) * t + 3.83197126e-4f, u = vset1(-3.88396438e-3f) * t + 2.42546219e-2f;
  large = large * s + u;
  large = large * t - 1.06777877e-1f;
  large = large * t - 6.34846687e-1f;
  large = large * t - 1.28717512e-1f;
  large = v_with_sign(1.0f - v_exp_low(vmax(vset1(-100.0f), large * t - t)), a);
  vf small = vset1(-5.96761703e-4f);
  small = small * s + 4.99119423e-3f;
  small = small * s - 2.67681349e-2f;
  small = small * s + 1.12819925e-1f;
  small = small * s - 3.76125336e-1f;
  small = small * s + 1.28379166e-1f;
  return vsel(vlt(vset1(0.921875f), t), large, small * a + a);
}

/* x * Phi(x) as max(x, 0) - |x| / 2 * erfc(|x| / sqrt(2)), so that nothing cancels for x < 0. The logarithm of erfc to
 * the base 2 is |x| times a polynomial, fitted on 0 .. 6.2 by weighted least squares with Lawson's reweighting; above, its
 * last term takes the result to 0. Both polynomials are summed in halves (Estrin): what counts is how long a chain is.
 * The product with 0 makes NaN of -inf, as -inf * 0 in the definition. */
V_INLINE vf vgelu(vf x) {
  vf t = vmin(vset1(20.0f), vabs(x)), t2 = t * t, t4 = t2 * t2;
  vf low = (-4.59197377e-1f * t - 1.15110638f) + (7.08085442e-3f * t - 5.25234637e-2f) * t2;
  vf middle = (-2.20190224e-4f * t - 1.17449372e-4f) + (-7.8295869e-6f * t + 5.85865692e-5f) * t2;
  vf high = -1.71517963e-8f * t + 5.61932727e-7f;
  vf y = ((high * t4 + middle) * t4 + low) * t;
  return vmin(x, vzero()) * 0.0f + (vmax(vzero(), x) - 0.5f * t * vexp2(y));
}

/* near zero an odd polynomial, else 1 - 2 / (exp(2 |x|) + 1) */
V_INLINE vf vtanh(vf x) {
  vf t = vabs(x), z = t * t;
  vf p = vset1(-5.70498872745e-3f);
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  vf s = vmin(vset1(10.0f), t), large = 1.0f - 2.0f / (v_exp_low(s + s) + 1.0f);
  return v_with_sign(vsel(vlt(vset1(0.625f), t), large, p * z * t + t), x);
}

/* 1 / (1 + exp(-x)) as t / (t + p) with exp(-x) = p / t and t a power of 2, so that small results keep their bits; the
 * numerator is 2^64 times t, which may be denormal */
V_INLINE vf vsigmoid(vf x) {
  vf n, p = v_exp_core(-vmin(vset1(40.0f), vmax(vset1(-105.0f), x)), &n);
  vf t = (vf)((191 - (vi)n) << 23);
  return t / (t * 0x1p-64f + p) * 0x1p-64f;
}

/* ---- sin, cos, tan and their inverses ----
 *
 * Arguments are reduced by multiples of pi / 2 in three parts (Cody and Waite), whose products with n are exact up to
 * V_TURNS; larger ones go to the C library lane by lane. The polynomials are fitted by weighted least squares with Lawson's
 * reweighting of the relative error: below 2^-25 on the reduced range. */
#define V_TURNS 25000.0f
#define V_FAR(name, function)                               \
  static __attribute__((unused, noinline)) vf name(vf a) {  \
    for (int i = 0; i < VL; i++) a[i] = function(a[i]);     \
    return a;                                               \
  }
V_FAR(v_sin_far, sinf)
V_FAR(v_cos_far, cosf)
V_FAR(v_tan_far, tanf)

V_INLINE vf v_reduced(vf x, vi *turns) {
  vf n = vround(x * 0.636619772f);
  *turns = v_nearest(n);
  vf r = ((x - n * 1.5703125f) - n * 4.83512878e-4f) - n * 3.13916473e-7f;
  return vsel(veq(n, vzero()), x, r);
}
V_INLINE vf v_sin_near(vf r) {
  vf z = r * r, p = vset1(-1.951526621e-4f);
  p = p * z + 8.332160641e-3f;
  p = p * z - 1.666665461e-1f;
  return p * z * r + r;
}
V_INLINE vf v_cos_near(vf r) {
  vf z = r * r, p = vset1(2.443314004e-5f);
  p = p * z - 1.388731611e-3f;
  p = p * z + 4.166664568e-2f;
  return p * z * z + (1.0f - 0.5f * z);
}
V_INLINE vm v_odd(vi n) { return vlt((vf)(n << 31 | 0x3f800000), vzero()); }
V_INLINE vf v_sin_of(vf r, vi turns) {
  vf y = vsel(v_odd(turns), v_cos_near(r), v_sin_near(r));
  return (vf)((vi)y ^ (turns << 30 & (int32_t)0x80000000));
}
static __attribute__((unused, noinline)) vf vsin(vf x) {
  if (vm_any(vlt(vset1(V_TURNS), vabs(x)))) return v_sin_far(x);
  vi turns;
  vf r = v_reduced(x, &turns);
  return vsel(veq(x, vzero()), x, v_sin_of(r, turns)); /* -0 stays -0 */
}
static __attribute__((unused, noinline)) vf vcos(vf x) {
  if (vm_any(vlt(vset1(V_TURNS), vabs(x)))) return v_cos_far(x);
  vi turns;
  vf r = v_reduced(x, &turns);
  return v_sin_of(r, turns + 1);
}
static __attribute__((unused, noinline)) vf vtan(vf x) {
  if (vm_any(vlt(vset1(V_TURNS), vabs(x)))) return v_tan_far(x);
  vi turns;
  vf r = v_reduced(x, &turns), s = v_sin_near(r), c = v_cos_near(r);
  vm odd = v_odd(turns);
  return vsel(veq(x, vzero()), x, vsel(odd, -c, s) / vsel(odd, s, c));
}

/* atan(t) = pi / 4 + atan((t - 1) / (t + 1)) above tan(pi / 8), pi / 2 - atan(1 / t) above tan(3 pi / 8) */
V_INLINE vf vatan(vf x) {
  vf t = vabs(x), one = vset1(1.0f);
  vm middle = vlt(vset1(0.414213562f), t), high = vlt(vset1(2.41421356f), t);
  vf u = vsel(high, -one, vsel(middle, t - 1.0f, t)) / vsel(high, t, vsel(middle, t + 1.0f, one)), z = u * u;
  vf p = vset1(8.053126193e-2f);
  p = p * z - 1.387750716e-1f;
  p = p * z + 1.997769545e-1f;
  p = p * z - 3.333294880e-1f;
  vf base = vsel(high, vset1(1.57079633f), vsel(middle, vset1(0.785398163f), vzero()));
  return v_with_sign(vabs(p * z * u + u + base), x);
}

/* asin(t) = pi / 2 - 2 asin(sqrt((1 - t) / 2)) above 1/2; `half` is that root, or t itself */
V_INLINE vf v_asin_near(vf t, vm high) {
  vf z = vsel(high, 0.5f - 0.5f * t, t * t), half = vsel(high, vsqrt(z), t), p = vset1(4.216722213e-2f);
  p = p * z + 2.417901622e-2f;
  p = p * z + 4.547046849e-2f;
  p = p * z + 7.495296977e-2f;
  p = p * z + 1.666675250e-1f;
  return p * z * half + half;
}
V_INLINE vf vasin(vf x) {
  vf t = vabs(x);
  vm high = vlt(vset1(0.5f), t);
  vf a = v_asin_near(t, high);
  return v_with_sign(vabs(vsel(high, 1.57079633f - 2.0f * a, a)), x);
}
V_INLINE vf vacos(vf x) {
  vf t = vabs(x);
  vm high = vlt(vset1(0.5f), t);
  vf a = v_asin_near(t, high), near = v_with_sign(a, x);
  return vsel(high, vsel(vlt(x, vzero()), 3.14159265f - 2.0f * a, 2.0f * a), 1.57079633f - near);
}
#endif

/* ---- other functions, lane by lane ---- */

#ifdef V_F64
#define V_LIBM(function) function
#else
#define V_LIBM(function) function##f
#endif
#define k_sqrt V_LIBM(sqrt)

#define V_CALL(name, function)                              \
  static __attribute__((unused, noinline)) vf name(vf a) {  \
    for (int i = 0; i < VL; i++) a[i] = function(a[i]);     \
    return a;                                               \
  }
#define V_CALL2(name, function)                                  \
  static __attribute__((unused, noinline)) vf name(vf a, vf b) { \
    for (int i = 0; i < VL; i++) a[i] = function(a[i], b[i]);    \
    return a;                                                    \
  }
#ifdef V_F64
V_CALL(vsin, sin)
V_CALL(vcos, cos)
V_CALL(vtan, tan)
V_CALL(vasin, asin)
V_CALL(vacos, acos)
V_CALL(vatan, atan)
#endif
V_CALL(vsinh, V_LIBM(sinh))
V_CALL(vcosh, V_LIBM(cosh))
V_CALL(vasinh, V_LIBM(asinh))
V_CALL(vacosh, V_LIBM(acosh))
V_CALL(vatanh, V_LIBM(atanh))
V_CALL2(vpow, V_LIBM(pow))
V_CALL2(vfmod, V_LIBM(fmod))

/* base ^ exponent in integers: wraps; a negative exponent gives the truncated fraction */
static __attribute__((unused)) int64_t integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
  uint64_t result = 1, factor = (uint64_t)base;
  for (; exponent; exponent >>= 1, factor *= factor)
    if (exponent & 1) result *= factor;
  return (int64_t)result;
}

#endif
