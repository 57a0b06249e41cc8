/* Vectors of narrow numbers in words of 32 bits, and the dot products of the register tile on them.
 *
 * A word holds two bf16, the one of the smaller k in its low half. f32 becomes bf16 by rounding to nearest, ties to even.
 * With AVX512-BF16 the machine multiplies pairs (denormals count as zeros there); elsewhere a bf16 is widened, which is
 * exact, and two fused multiply-adds take its place, so that all machines give the same up to the rounding of sums. */
#ifndef REWRITE_NARROW_H
#define REWRITE_NARROW_H

#include "kernel.h"

#if defined(V_AVX512) && defined(__AVX512BF16__)
#define N_BF16 1
#endif

/* c + a.low * b.low + a.high * b.high, lane by lane */
V_INLINE vf v_dot_bf16(vf c, vf a, vf b) {
#ifdef N_BF16
  return (vf)_mm512_dpbf16_ps((__m512)c, (__m512bh)b, (__m512bh)a);
#else
  const vf low = c + (vf)((vi)a << 16) * (vf)((vi)b << 16);
  return low + (vf)((vi)a & (int32_t)0xffff0000) * (vf)((vi)b & (int32_t)0xffff0000);
#endif
}

/* words with low halves from a and high halves from b */
V_INLINE vf v_pair_bf16(vf a, vf b) {
#ifdef N_BF16
  const vi order = {0x00100000, 0x00110001, 0x00120002, 0x00130003, 0x00140004, 0x00150005, 0x00160006, 0x00170007,
                    0x00180008, 0x00190009, 0x001a000a, 0x001b000b, 0x001c000c, 0x001d000d, 0x001e000e, 0x001f000f};
  return (vf)_mm512_permutexvar_epi16((__m512i)order, (__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a));
#else
  return (vf)(((v_bits_bf16(a) >> 16) & 0xffff) | (v_bits_bf16(b) & (int32_t)0xffff0000));
#endif
}

/* 2 * VL numbers in order as VL words */
V_INLINE vf v_row_bf16(vf first, vf second) {
#ifdef N_BF16
  return (vf)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
#else
  vf low, high;
  for (int l = 0; l < VL / 2; l++) {
    low[l] = first[2 * l], low[l + VL / 2] = second[2 * l];
    high[l] = first[2 * l + 1], high[l + VL / 2] = second[2 * l + 1];
  }
  return v_pair_bf16(low, high);
#endif
}

/* VL results of a product as bf16; the machine's instruction flushes denormals to zero */
V_INLINE void n_store_bf16(v_bf16 *p, vf v) {
#ifdef N_BF16
  _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh((__m512)v));
#else
  v_store_bf16(p, v);
#endif
}
V_INLINE void n_store_bf16_n(v_bf16 *p, vf v, int n) {
#ifdef N_BF16
  _mm256_mask_storeu_epi16(p, vm_first(n), (__m256i)_mm512_cvtneps_pbh((__m512)v));
#else
  v_store_bf16_n(p, v, n);
#endif
}

/* `n` numbers as (n + 1) / 2 words; an odd one is followed by a zero */
K_INLINE void n_row_bf16(const float *restrict from, float *restrict to, int64_t n) {
  int64_t i = 0;
  for (; i + 2 * VL <= n; i += 2 * VL, to += VL) vstore(to, v_row_bf16(vload(from + i), vload(from + i + VL)));
  if (i == n) return;
  const int left = (int)(n - i), second = left > VL ? left - VL : 0;
  const vf a = vload_n(from + i, left - second), b = second ? vload_n(from + i + VL, second) : vzero();
  vstore_n(to, v_row_bf16(a, b), (left + 1) / 2);
}

/* Rows k and k + 1 of `kn` rows of `columns` numbers as (kn + 1) / 2 rows of words. Rows lie `row` apart, those of words
   `pitch`. Whole vectors are read and written: up to VL - 1 elements past the end of a row. An odd last row is paired
   with zeros. */
K_INLINE void n_pairs_bf16(
    const float *restrict from, int64_t row, float *restrict to, int64_t pitch, int64_t kn, int64_t columns) {
  int64_t k = 0;
  for (; k + 2 <= kn; k += 2, from += 2 * row, to += pitch)
    for (int64_t j = 0; j < columns; j += VL) vstore(to + j, v_pair_bf16(vload(from + j), vload(from + row + j)));
  if (k < kn)
    for (int64_t j = 0; j < columns; j += VL) vstore(to + j, v_pair_bf16(vload(from + j), vzero()));
}

/* ---- words of four bytes ---- */

/* c + the four products of the bytes of u, unsigned, and s, signed; exact, wraps at 32 bits */
V_INLINE vi n_dot_bytes(vi c, vi u, vi s) {
#if defined(V_AVX512) && defined(__AVX512VNNI__)
  return (vi)__builtin_ia32_vpdpbusd_v16si((__v16si)c, (__v16si)u, (__v16si)s);
#elif defined(V_AVX2) && defined(__AVXVNNI__)
  return (vi)_mm256_dpbusd_avx_epi32((__m256i)c, (__m256i)u, (__m256i)s);
#elif defined(V_AVX512)
  const __m512i low = _mm512_set1_epi16(255), a = (__m512i)u, b = (__m512i)s;
  const __m512i even = _mm512_madd_epi16(_mm512_and_si512(a, low), _mm512_srai_epi16(_mm512_slli_epi16(b, 8), 8));
  return c + (vi)even + (vi)_mm512_madd_epi16(_mm512_srli_epi16(a, 8), _mm512_srai_epi16(b, 8));
#elif defined(V_AVX2)
  const __m256i low = _mm256_set1_epi16(255), a = (__m256i)u, b = (__m256i)s;
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256(a, low), _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
  return c + (vi)even + (vi)_mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
#else
  for (int q = 0; q < 4; q++) c += ((u >> (8 * q)) & 255) * ((s << (24 - 8 * q)) >> 24);
  return c;
#endif
}
V_INLINE vi v_dot_u8s8(vi c, vf a, vf b) { return n_dot_bytes(c, (vi)a, (vi)b); }
V_INLINE vi v_dot_s8u8(vi c, vf a, vf b) { return n_dot_bytes(c, (vi)b, (vi)a); }

/* broadcast of the four bytes at p */
V_INLINE vf v_word(const uint8_t *p) {
  float word;
  memcpy(&word, p, 4);
  return vset1(word);
}

/* bytes as floats */
typedef int8_t vc_any __attribute__((vector_size(VL), aligned(1), may_alias));
#ifdef V_AVX512
V_INLINE vf v_load_u8(const uint8_t *p) { return (vf)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p))); }
V_INLINE vf v_load_s8(const int8_t *p) { return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p))); }
#else
V_INLINE vf v_load_u8(const uint8_t *p) { return __builtin_convertvector(__builtin_convertvector(*(const vb_any *)p, vi), vf); }
V_INLINE vf v_load_s8(const int8_t *p) { return __builtin_convertvector(__builtin_convertvector(*(const vc_any *)p, vi), vf); }
#endif

/* stores of floats that are whole numbers in the range of the type */
#ifdef V_AVX512
V_INLINE void v_store_u8(uint8_t *p, vf v) {
  _mm_storeu_si128((__m128i *)p, _mm512_cvtusepi32_epi8(_mm512_cvtps_epi32((__m512)v)));
}
V_INLINE void v_store_s8(int8_t *p, vf v) {
  _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32((__m512)v)));
}
V_INLINE void v_store_u8_n(uint8_t *p, vf v, int n) {
  _mm512_mask_cvtusepi32_storeu_epi8(p, vm_first(n), _mm512_cvtps_epi32((__m512)v));
}
V_INLINE void v_store_s8_n(int8_t *p, vf v, int n) {
  _mm512_mask_cvtsepi32_storeu_epi8(p, vm_first(n), _mm512_cvtps_epi32((__m512)v));
}
#else
V_INLINE void v_store_u8(uint8_t *p, vf v) { *(vb_any *)p = __builtin_convertvector(__builtin_convertvector(v, vi), vb); }
V_INLINE void v_store_s8(int8_t *p, vf v) { v_store_u8((uint8_t *)p, v); }
V_INLINE void v_store_u8_n(uint8_t *p, vf v, int n) {
  uint8_t bytes[VL];
  v_store_u8(bytes, v);
  memcpy(p, bytes, (size_t)n);
}
V_INLINE void v_store_s8_n(int8_t *p, vf v, int n) { v_store_u8_n((uint8_t *)p, v, n); }
#endif

/* ---- quantization: rounded, ties to even, `zero` added, and clamped ---- */

V_INLINE vi n_rounded_whole(vf v) {
  const vf some = vmin(vset1(1e9f), vmax(vset1(-1e9f), v));
#ifdef V_AVX512
  return (vi)_mm512_cvtps_epi32((__m512)some);
#elif defined(V_AVX2)
  return (vi)_mm256_cvtps_epi32((__m256)some);
#else
  return __builtin_convertvector(vround(some), vi);
#endif
}
#ifdef V_AVX512
/* the same for zero points of u8, with which small values cannot wrap around */
V_INLINE __m512i n_rounded_up(vf v) { return _mm512_cvtps_epi32((__m512)vmin(v, vset1(1e9f))); }
V_INLINE void v_quantize_u8(uint8_t *p, vf v, int zero) {
  const __m512i n = _mm512_max_epi32(_mm512_add_epi32(n_rounded_up(v), _mm512_set1_epi32(zero)), _mm512_setzero_si512());
  _mm_storeu_si128((__m128i *)p, _mm512_cvtusepi32_epi8(n));
}
V_INLINE void v_quantize_s8(int8_t *p, vf v, int zero) {
  const __m512i n = _mm512_add_epi32((__m512i)n_rounded_whole(v), _mm512_set1_epi32(zero));
  _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(n));
}
V_INLINE void v_quantize_u8_n(uint8_t *p, vf v, int zero, int n) {
  const __m512i whole = _mm512_max_epi32(_mm512_add_epi32(n_rounded_up(v), _mm512_set1_epi32(zero)), _mm512_setzero_si512());
  _mm512_mask_cvtusepi32_storeu_epi8(p, vm_first(n), whole);
}
V_INLINE void v_quantize_s8_n(int8_t *p, vf v, int zero, int n) {
  const __m512i whole = _mm512_add_epi32((__m512i)n_rounded_whole(v), _mm512_set1_epi32(zero));
  _mm512_mask_cvtsepi32_storeu_epi8(p, vm_first(n), whole);
}
#else
/* bytes of whole numbers, their low 8 bits right, clamped to low .. low + 255 */
V_INLINE vb n_clamped(vf v, int zero, int low) {
  vi n = n_rounded_whole(v) + zero;
  const vi under = n < low, over = n > low + 255;
  n = (n & ~under & ~over) | (under & low) | (over & (low + 255));
  return __builtin_convertvector(n, vb);
}
V_INLINE void v_quantize_u8(uint8_t *p, vf v, int zero) { *(vb_any *)p = n_clamped(v, zero, 0); }
V_INLINE void v_quantize_s8(int8_t *p, vf v, int zero) { *(vb_any *)p = n_clamped(v, zero, -128); }
V_INLINE void v_quantize_u8_n(uint8_t *p, vf v, int zero, int n) {
  uint8_t bytes[VL];
  v_quantize_u8(bytes, v, zero);
  memcpy(p, bytes, (size_t)n);
}
V_INLINE void v_quantize_s8_n(int8_t *p, vf v, int zero, int n) {
  int8_t bytes[VL];
  v_quantize_s8(bytes, v, zero);
  memcpy(p, bytes, (size_t)n);
}
#endif

/* ---- bytes of 4 * VL channels as words, and back ----
 *
 * Bytes a, b, c and d of a channel become a word of it. The words of vector v lie in the order that interleaving within
 * lanes of 128 bits gives: in lane l those of channels 16 l + 4 v to 16 l + 4 v + 3. Packing gives the channels back. */

V_INLINE vi n_bytes(const uint8_t *p) { return (vi)vload((const float *)p); }

V_INLINE void n_quads(vi a, vi b, vi c, vi d, vi *to) {
#ifdef V_AVX512
  const __m512i ab = _mm512_unpacklo_epi8((__m512i)a, (__m512i)b), cd = _mm512_unpacklo_epi8((__m512i)c, (__m512i)d);
  const __m512i ab2 = _mm512_unpackhi_epi8((__m512i)a, (__m512i)b), cd2 = _mm512_unpackhi_epi8((__m512i)c, (__m512i)d);
  to[0] = (vi)_mm512_unpacklo_epi16(ab, cd), to[1] = (vi)_mm512_unpackhi_epi16(ab, cd);
  to[2] = (vi)_mm512_unpacklo_epi16(ab2, cd2), to[3] = (vi)_mm512_unpackhi_epi16(ab2, cd2);
#elif defined(V_AVX2)
  const __m256i ab = _mm256_unpacklo_epi8((__m256i)a, (__m256i)b), cd = _mm256_unpacklo_epi8((__m256i)c, (__m256i)d);
  const __m256i ab2 = _mm256_unpackhi_epi8((__m256i)a, (__m256i)b), cd2 = _mm256_unpackhi_epi8((__m256i)c, (__m256i)d);
  to[0] = (vi)_mm256_unpacklo_epi16(ab, cd), to[1] = (vi)_mm256_unpackhi_epi16(ab, cd);
  to[2] = (vi)_mm256_unpacklo_epi16(ab2, cd2), to[3] = (vi)_mm256_unpackhi_epi16(ab2, cd2);
#else
  uint8_t in[4][16];
  memcpy(in[0], &a, 16), memcpy(in[1], &b, 16), memcpy(in[2], &c, 16), memcpy(in[3], &d, 16);
  for (int v = 0; v < 4; v++)
    for (int i = 0; i < 4; i++)
      to[v][i] = (int32_t)(in[0][4 * v + i] | (uint32_t)in[1][4 * v + i] << 8 | (uint32_t)in[2][4 * v + i] << 16 |
                           (uint32_t)in[3][4 * v + i] << 24);
#endif
}

/* 4 * VL bytes, as `v_quantize_u8` gives them, of numbers in that order */
V_INLINE vi n_packed(vf a, vf b, vf c, vf d, int zero, int is_signed) {
#if defined(V_AVX512) || defined(V_AVX2)
  const vf most = vset1(1e9f);  /* values below 32 bits convert to the least integer anyway */
  a = vmin(a, most), b = vmin(b, most), c = vmin(c, most), d = vmin(d, most);
#endif
#ifdef V_AVX512
  const __m512i z = _mm512_set1_epi16((short)zero);
  const __m512i ab = _mm512_packs_epi32(_mm512_cvtps_epi32((__m512)a), _mm512_cvtps_epi32((__m512)b));
  const __m512i cd = _mm512_packs_epi32(_mm512_cvtps_epi32((__m512)c), _mm512_cvtps_epi32((__m512)d));
  const __m512i low = _mm512_adds_epi16(ab, z), high = _mm512_adds_epi16(cd, z);
  return (vi)(is_signed ? _mm512_packs_epi16(low, high) : _mm512_packus_epi16(low, high));
#elif defined(V_AVX2)
  const __m256i z = _mm256_set1_epi16((short)zero);
  const __m256i ab = _mm256_packs_epi32(_mm256_cvtps_epi32((__m256)a), _mm256_cvtps_epi32((__m256)b));
  const __m256i cd = _mm256_packs_epi32(_mm256_cvtps_epi32((__m256)c), _mm256_cvtps_epi32((__m256)d));
  const __m256i low = _mm256_adds_epi16(ab, z), high = _mm256_adds_epi16(cd, z);
  return (vi)(is_signed ? _mm256_packs_epi16(low, high) : _mm256_packus_epi16(low, high));
#else
  uint8_t bytes[16];
  const vf all[4] = {a, b, c, d};
  for (int v = 0; v < 4; v++)
    if (is_signed) v_quantize_s8((int8_t *)bytes + 4 * v, all[v], zero);
    else v_quantize_u8(bytes + 4 * v, all[v], zero);
  vi packed;
  memcpy(&packed, bytes, 16);
  return packed;
#endif
}

/* restores element order in bytes packed from vectors */
V_INLINE vi n_ordered(vi packed) {
#ifdef V_AVX512
  const vi from = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  return (vi)_mm512_permutexvar_epi32((__m512i)from, (__m512i)packed);
#elif defined(V_AVX2)
  const vi from = {0, 4, 1, 5, 2, 6, 3, 7};
  return (vi)_mm256_permutevar8x32_epi32((__m256i)packed, (__m256i)from);
#else
  return packed;
#endif
}

/* the first n of 4 * VL bytes */
V_INLINE void n_store_bytes(void *p, vi bytes, int64_t n) {
  if (n >= 4 * VL) {
    vstore((float *)p, (vf)bytes);
    return;
  }
#ifdef V_AVX512
  _mm512_mask_storeu_epi8(p, ((__mmask64)1 << n) - 1, (__m512i)bytes);
#else
  memcpy(p, &bytes, (size_t)n);
#endif
}

/* the first n of 4 * VL numbers in that order */
V_INLINE void n_store_numbers(float *p, vf a, vf b, vf c, vf d, int64_t n) {
  float all[4][VL];
  vstore(all[0], a), vstore(all[1], b), vstore(all[2], c), vstore(all[3], d);
  for (int64_t i = 0; i < n; i++) p[i] = all[i / 4 % 4][i / 16 * 4 + i % 4];
}

#endif
