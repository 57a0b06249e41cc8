/* 16-bit floats in memory: f16 (binary16 of IEEE 754) and bf16 (the upper half of a float). Vectors and scalars of them are
 * floats; loads widen, which is exact, and stores round to nearest, ties to even. NaN stays NaN. */
#ifndef REWRITE_HALF_H
#define REWRITE_HALF_H

#include "vector.h"

typedef uint16_t v_f16;

#ifdef V_AVX512
V_INLINE vf v_load_f16(const v_f16 *p) { return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
V_INLINE __m256i v_to_f16(vf x) { return _mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
V_INLINE void v_store_f16(v_f16 *p, vf v) { _mm256_storeu_si256((__m256i *)p, v_to_f16(v)); }
V_INLINE vf v_round_f16(vf x) { return (vf)_mm512_cvtph_ps(v_to_f16(x)); }
#elif defined(V_AVX2) && defined(__F16C__)
V_INLINE vf v_load_f16(const v_f16 *p) { return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
V_INLINE __m128i v_to_f16(vf x) { return _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
V_INLINE void v_store_f16(v_f16 *p, vf v) { _mm_storeu_si128((__m128i *)p, v_to_f16(v)); }
V_INLINE vf v_round_f16(vf x) { return (vf)_mm256_cvtph_ps(v_to_f16(x)); }
#else
/* The exponent is moved by a multiplication, which also normalizes denormals; that of infinity and NaN is set. */
V_INLINE vf v_from_f16(vi bits) {
  const vi magnitude = (bits & 0x7fff) << 13, special = (vi)(magnitude >= 0x0f800000);
  const vf scaled = (vf)magnitude * 0x1p112f;
  return (vf)((vi)scaled | (special & 0x7f800000) | ((bits & 0x8000) << 16));
}
/* Normal numbers are rounded by an addition to their bits, denormals by one to the number that ends in their last bit. */
V_INLINE vi v_to_f16(vf x) {
  const vi bits = (vi)x, magnitude = bits & 0x7fffffff;
  const vi normal = (magnitude - (112 << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  const vi small = (vi)((vf)magnitude + 0.5f) - 0x3f000000;
  const vi nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  const vi is_small = (vi)(magnitude < (113 << 23)), is_huge = (vi)(magnitude >= (143 << 23));
  const vi is_nan = (vi)(magnitude > 0x7f800000);
  const vi finite = (is_small & small) | (~is_small & normal);
  const vi found = (is_nan & nan) | (~is_nan & is_huge & 0x7c00) | (~is_huge & finite);
  return found | ((bits >> 16) & 0x8000);
}
V_INLINE vf v_load_f16(const v_f16 *p) { return v_from_f16(v_load_halves(p)); }
V_INLINE void v_store_f16(v_f16 *p, vf v) { v_store_halves(p, v_to_f16(v)); }
V_INLINE vf v_round_f16(vf x) { return v_from_f16(v_to_f16(x)); }
#endif

#ifdef V_AVX512
V_INLINE vf v_load_f16_n(const v_f16 *p, int n) {
  return (vf)_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vm_first(n), p));
}
V_INLINE void v_store_f16_n(v_f16 *p, vf v, int n) { _mm256_mask_storeu_epi16(p, vm_first(n), v_to_f16(v)); }
#else
V_INLINE vf v_load_f16_n(const v_f16 *p, int n) {
  v_f16 halves[VL] = {0};
  memcpy(halves, p, 2 * (size_t)n);
  return v_load_f16(halves);
}
V_INLINE void v_store_f16_n(v_f16 *p, vf v, int n) {
  v_f16 halves[VL];
  v_store_f16(halves, v);
  memcpy(p, halves, 2 * (size_t)n);
}
#endif
V_APART(v_load_f16, v_f16, vf)

/* ---- scalars ---- */

#if defined(__F16C__)
V_INLINE float k_from_f16(v_f16 h) { return _cvtsh_ss(h); }
V_INLINE v_f16 k_to_f16(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
#else
V_INLINE float k_from_f16(v_f16 h) {
  const vi bits = {h};
  return v_from_f16(bits)[0];
}
V_INLINE v_f16 k_to_f16(float x) {
  const vf v = {x};
  return (v_f16)v_to_f16(v)[0];
}
#endif
V_INLINE vf v_set1_f16(v_f16 x) { return vset1(k_from_f16(x)); }
V_INLINE float k_from_bf16(v_bf16 h) {
  const uint32_t bits = (uint32_t)h << 16;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
V_INLINE v_bf16 k_to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return (v_bf16)(x != x ? (bits >> 16) | 0x40 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
V_INLINE float k_round_f16(float x) { return k_from_f16(k_to_f16(x)); }
V_INLINE float k_round_bf16(float x) { return k_from_bf16(k_to_bf16(x)); }
/* x rounded to odd: rounding that to fewer bits is rounding x (Boldo and Melquiond, "When double rounding is odd", 2005) */
V_INLINE float k_to_odd(double x) {
  float near = (float)x;
  if (near == x || x != x) return near;
  uint32_t bits;
  memcpy(&bits, &near, 4);
  bits -= fabs((double)near) > fabs(x);
  bits |= 1;
  memcpy(&near, &bits, 4);
  return near;
}

#endif
