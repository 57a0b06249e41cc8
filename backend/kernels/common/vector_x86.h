/* Primitives of vector.h on x86-64: AVX-512, AVX2, and SSE2, the baseline.
 *
 * Nothing is written lane by lane: gcc 12 makes chains of inserts and extracts of such loops, even of a broadcast. */
#ifndef REWRITE_VECTOR_X86_H
#define REWRITE_VECTOR_X86_H

#include "intrinsics.h"

#if defined(V_AVX512)
#define V_X(op) _mm512_##op
typedef __m512 v_reg;
typedef __m512i v_int;
#elif defined(V_AVX2)
#define V_X(op) _mm256_##op
typedef __m256 v_reg;
typedef __m256i v_int;
#else
#define V_X(op) _mm_##op
typedef __m128 v_reg;
typedef __m128i v_int;
#endif

V_INLINE vf vset1(float x) { return (vf)V_X(set1_ps)(x); }
V_INLINE vf vmin(vf a, vf b) { return (vf)V_X(min_ps)((v_reg)a, (v_reg)b); }
V_INLINE vf vmax(vf a, vf b) { return (vf)V_X(max_ps)((v_reg)a, (v_reg)b); }
V_INLINE vf vsqrt(vf a) { return (vf)V_X(sqrt_ps)((v_reg)a); }
V_INLINE vi v_nearest(vf a) { return (vi)V_X(cvtps_epi32)((v_reg)a); }

/* four lanes reduced, half by half */
#define V_ACROSS(name, op)                                    \
  V_INLINE float name##4(__m128 h) {                          \
    h = op(h, _mm_movehl_ps(h, h));                           \
    return _mm_cvtss_f32(op(h, _mm_shuffle_ps(h, h, 1)));     \
  }
V_ACROSS(v_sum, _mm_add_ps)
V_ACROSS(v_top, _mm_max_ps)
V_ACROSS(v_low, _mm_min_ps)
V_ACROSS(v_product, _mm_mul_ps)

#if defined(V_AVX512)

typedef __mmask16 vm;
V_INLINE vm vm_first(int n) { return (vm)((1u << n) - 1); }
V_INLINE vf vload_n(const float *p, int n) { return (vf)_mm512_maskz_loadu_ps(vm_first(n), p); }
V_INLINE void vstore_n(float *p, vf v, int n) { _mm512_mask_storeu_ps(p, vm_first(n), (__m512)v); }
#define V_MASKED 1 /* lanes of a mask are loaded, the others are zero and not touched */
V_INLINE vf v_load_masked(const float *p, vm m) { return (vf)_mm512_maskz_loadu_ps(m, p); }
V_INLINE vf vabs(vf a) { return (vf)_mm512_abs_ps((__m512)a); }
V_INLINE vf vfloor(vf a) { return (vf)_mm512_roundscale_ps((__m512)a, 1 | _MM_FROUND_NO_EXC); }
V_INLINE vf vceil(vf a) { return (vf)_mm512_roundscale_ps((__m512)a, 2 | _MM_FROUND_NO_EXC); }
V_INLINE vf vround(vf a) { return (vf)_mm512_roundscale_ps((__m512)a, 0 | _MM_FROUND_NO_EXC); }
V_INLINE vm vlt(vf a, vf b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ); }
V_INLINE vm vle(vf a, vf b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LE_OQ); }
V_INLINE vm veq(vf a, vf b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_EQ_OQ); }
V_INLINE vm vm_and(vm a, vm b) { return a & b; }
V_INLINE vm vm_or(vm a, vm b) { return a | b; }
V_INLINE vm vm_xor(vm a, vm b) { return a ^ b; }
V_INLINE vm vm_not(vm a) { return (vm)~a; }
V_INLINE vm vm_set1(int x) { return x ? 0xffff : 0; }
V_INLINE int vm_any(vm a) { return a != 0; }
V_INLINE vf vsel(vm m, vf a, vf b) { return (vf)_mm512_mask_blend_ps(m, (__m512)b, (__m512)a); }
V_INLINE vm vm_load(const uint8_t *p) {
  __m128i bytes = _mm_loadu_si128((const __m128i *)p);
  return _mm_test_epi8_mask(bytes, bytes);
}
V_INLINE vm vm_load_n(const uint8_t *p, int n) {
  __m128i bytes = _mm_maskz_loadu_epi8(vm_first(n), p);
  return _mm_test_epi8_mask(bytes, bytes);
}
V_INLINE void vm_store(uint8_t *p, vm m) { _mm_storeu_si128((__m128i *)p, _mm_maskz_set1_epi8(m, 1)); }
V_INLINE void vm_store_n(uint8_t *p, vm m, int n) {
  _mm_mask_storeu_epi8(p, vm_first(n), _mm_maskz_set1_epi8(m, 1));
}
V_INLINE float vhsum(vf a) { return _mm512_reduce_add_ps((__m512)a); }
V_INLINE float vhmax(vf a) { return _mm512_reduce_max_ps((__m512)a); }
V_INLINE float vhmin(vf a) { return _mm512_reduce_min_ps((__m512)a); }
V_INLINE float vhprod(vf a) { return _mm512_reduce_mul_ps((__m512)a); }
V_INLINE vi v_load_bytes(const uint8_t *p) { return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }
V_INLINE vi v_load_chars(const int8_t *p) { return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)); }
V_INLINE vi v_load_halves(const uint16_t *p) { return (vi)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)); }
V_INLINE void v_store_bytes(uint8_t *p, vi v) { _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8((__m512i)v)); }
V_INLINE void v_store_halves(uint16_t *p, vi v) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16((__m512i)v)); }
V_INLINE vf v_gather(const float *p, int64_t s) {
  return (vf)_mm512_setr_ps(p[0], p[s], p[2 * s], p[3 * s], p[4 * s], p[5 * s], p[6 * s], p[7 * s], p[8 * s], p[9 * s],
                            p[10 * s], p[11 * s], p[12 * s], p[13 * s], p[14 * s], p[15 * s]);
}

#elif defined(V_AVX2)

V_INLINE vi vm_first(int n) {
  return (vi)_mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
V_INLINE int vm_any(vi a) { return !_mm256_testz_si256((__m256i)a, (__m256i)a); }
V_INLINE vf vsel(vi m, vf a, vf b) { return (vf)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)m); }
V_INLINE vf vload_n(const float *p, int n) { return (vf)_mm256_maskload_ps(p, (__m256i)vm_first(n)); }
/* In pieces: a masked store takes some 18 cycles on AMD's cores before Zen 4. Branches are hidden from the compiler, which
 * spills sums beside them. */
V_INLINE void vstore_n(float *p, vf v, int n) {
  if (__builtin_constant_p(n)) {
    __m128 part = _mm256_castps256_ps128((__m256)v);
    if (n & 8) _mm256_storeu_ps(p, (__m256)v);
    if (n & 4) _mm_storeu_ps(p, part), p += 4, part = _mm256_extractf128_ps((__m256)v, 1);
    if (n & 2) _mm_storel_pi((__m64 *)p, part), p += 2, part = _mm_movehl_ps(part, part);
    if (n & 1) _mm_store_ss(p, part);
    return;
  }
  __asm__ volatile(
      "testb $8, %b[n]\n\tjnz 5f\n\t"
      "testb $4, %b[n]\n\tjz 2f\n\t"
      "vmovups %x[v], (%[p])\n\tvextractf128 $1, %t[v], %x[v]\n\taddq $16, %[p]\n"
      "2:\ttestb $2, %b[n]\n\tjz 3f\n\t"
      "vmovlps %x[v], (%[p])\n\tvmovhlps %x[v], %x[v], %x[v]\n\taddq $8, %[p]\n"
      "3:\ttestb $1, %b[n]\n\tjz 4f\n\t"
      "vmovss %x[v], (%[p])\n\tjmp 4f\n"
      "5:\tvmovups %t[v], (%[p])\n"
      "4:"
      : [p] "+r"(p), [v] "+x"(v)
      : [n] "q"(n)
      : "memory", "cc");
}
#define V_MASKED 1
V_INLINE vf v_load_masked(const float *p, vi m) { return (vf)_mm256_maskload_ps(p, (__m256i)m); }
V_INLINE vf vfloor(vf a) { return (vf)_mm256_floor_ps((__m256)a); }
V_INLINE vf vceil(vf a) { return (vf)_mm256_ceil_ps((__m256)a); }
V_INLINE vf vround(vf a) { return (vf)_mm256_round_ps((__m256)a, 0 | _MM_FROUND_NO_EXC); }
#define V_HALVES(op, a) op(_mm256_castps256_ps128((__m256)a), _mm256_extractf128_ps((__m256)a, 1))
V_INLINE float vhsum(vf a) { return v_sum4(V_HALVES(_mm_add_ps, a)); }
V_INLINE float vhmax(vf a) { return v_top4(V_HALVES(_mm_max_ps, a)); }
V_INLINE float vhmin(vf a) { return v_low4(V_HALVES(_mm_min_ps, a)); }
V_INLINE float vhprod(vf a) { return v_product4(V_HALVES(_mm_mul_ps, a)); }
V_INLINE vi v_load_bytes(const uint8_t *p) { return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
V_INLINE vi v_load_chars(const int8_t *p) { return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
V_INLINE vi v_load_halves(const uint16_t *p) { return (vi)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)); }
V_INLINE void v_store_bytes(uint8_t *p, vi v) {
  const __m256i first = _mm256_shuffle_epi8((__m256i)v, _mm256_set1_epi32(0x0c080400));
  const __m128i low = _mm256_castsi256_si128(first), high = _mm256_extracti128_si256(first, 1);
  _mm_storel_epi64((__m128i *)p, _mm_unpacklo_epi32(low, high));
}
V_INLINE void v_store_halves(uint16_t *p, vi v) {
  const __m256i words = _mm256_and_si256((__m256i)v, _mm256_set1_epi32(0xffff));
  _mm_storeu_si128((__m128i *)p, _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
V_INLINE vf v_gather(const float *p, int64_t s) {
  return (vf)_mm256_setr_ps(p[0], p[s], p[2 * s], p[3 * s], p[4 * s], p[5 * s], p[6 * s], p[7 * s]);
}

#else /* SSE2 */

V_INLINE vi vm_first(int n) { return (vi)_mm_cmpgt_epi32(_mm_set1_epi32(n), _mm_setr_epi32(0, 1, 2, 3)); }
V_INLINE int vm_any(vi a) { return _mm_movemask_ps((__m128)a) != 0; }
V_INLINE vf vsel(vi m, vf a, vf b) { return (vf)((m & (vi)a) | (~m & (vi)b)); }
V_INLINE float vhsum(vf a) { return v_sum4((__m128)a); }
V_INLINE float vhmax(vf a) { return v_top4((__m128)a); }
V_INLINE float vhmin(vf a) { return v_low4((__m128)a); }
V_INLINE float vhprod(vf a) { return v_product4((__m128)a); }
V_INLINE vi v_load_bytes(const uint8_t *p) {
  int32_t bytes;
  memcpy(&bytes, p, 4);
  const __m128i zero = _mm_setzero_si128();
  return (vi)_mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), zero), zero);
}
V_INLINE vi v_load_chars(const int8_t *p) { return v_load_bytes((const uint8_t *)p) << 24 >> 24; }
V_INLINE vi v_load_halves(const uint16_t *p) {
  return (vi)_mm_unpacklo_epi16(_mm_loadl_epi64((const __m128i *)p), _mm_setzero_si128());
}
V_INLINE void v_store_bytes(uint8_t *p, vi v) {
  const __m128i words = _mm_packs_epi32((__m128i)(v & 255), (__m128i)v);
  const int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
  memcpy(p, &bytes, 4);
}
V_INLINE void v_store_halves(uint16_t *p, vi v) {
  const __m128i words = (__m128i)(v << 16 >> 16);
  _mm_storel_epi64((__m128i *)p, _mm_packs_epi32(words, words));
}
V_INLINE vf v_gather(const float *p, int64_t s) { return (vf)_mm_setr_ps(p[0], p[s], p[2 * s], p[3 * s]); }

#endif
#endif
