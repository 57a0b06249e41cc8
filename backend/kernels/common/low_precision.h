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
#if (defined(V_AVX512) && defined(__AVX512VNNI__)) || (defined(V_AVX2) && defined(__AVXVNNI__))
#define N_VNNI 1
#endif

/* c + a.low * b.low + a.high * b.high, lane by lane */
#ifdef N_BF16
V_INLINE vf v_dot_bf16(vf c, vf a, vf b) { return (vf)_mm512_dpbf16_ps((__m512)c, (__m512bh)b, (__m512bh)a); }
#else
#define N_HALVES_bf16 1
V_INLINE vf n_a0_bf16(vf words) { return (vf)((vi)words << 16); }
V_INLINE vf n_a1_bf16(vf words) { return (vf)((vi)words & (int32_t)0xffff0000); }
#define n_b0_bf16 n_a0_bf16
#define n_b1_bf16 n_a1_bf16
V_INLINE vf n_add_bf16(vf c, vf a, vf b) { return c + a * b; }
#endif

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
  const vf low = V_SHUFFLE(first, second, V_EVEN), high = V_SHUFFLE(first, second, V_ODD);
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

/* VL pixels of two words, of which one vector has the first and one the second, in order */
V_INLINE void n_store_pixels(float *p, vf first, vf second, int n) {
  const vf low = V_SHUFFLE(first, second, V_ZIP_LOW), high = V_SHUFFLE(first, second, V_ZIP_HIGH);
  if (n >= VL) {
    vstore(p, low), vstore(p + VL, high);
    return;
  }
  const int rest = 2 * n - VL;
  vstore_n(p, low, rest < 0 ? 2 * n : VL);
  if (rest > 0) vstore_n(p + VL, high, rest);
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

/* Bytes 0 and 2, or 1 and 3, of words as numbers of 16 bits. Their products are added in pairs, exactly. */
#if defined(V_X) && !defined(N_VNNI)
#define N_HALVES_u8s8 1
#define N_HALVES_s8u8 1
V_INLINE vf n_a0_u8s8(vf words) { return (vf)((vi)words & 0x00ff00ff); }
V_INLINE vf n_a1_u8s8(vf words) { return (vf)V_X(srli_epi16)((v_int)words, 8); }
V_INLINE vf n_b0_u8s8(vf words) { return (vf)V_X(srai_epi16)(V_X(slli_epi16)((v_int)words, 8), 8); }
V_INLINE vf n_b1_u8s8(vf words) { return (vf)V_X(srai_epi16)((v_int)words, 8); }
V_INLINE vi n_add_u8s8(vi c, vf a, vf b) { return c + (vi)V_X(madd_epi16)((v_int)a, (v_int)b); }
#define n_a0_s8u8 n_b0_u8s8
#define n_a1_s8u8 n_b1_u8s8
#define n_b0_s8u8 n_a0_u8s8
#define n_b1_s8u8 n_a1_u8s8
#define n_add_s8u8 n_add_u8s8
#endif

/* c + the four products of the bytes of u, unsigned, and s, signed; exact, wraps at 32 bits */
V_INLINE vi n_dot_bytes(vi c, vi u, vi s) {
#if defined(N_VNNI) && defined(V_AVX512)
  return (vi)_mm512_dpbusd_epi32((__m512i)c, (__m512i)u, (__m512i)s);
#elif defined(N_VNNI)
  return (vi)_mm256_dpbusd_avx_epi32((__m256i)c, (__m256i)u, (__m256i)s);
#elif defined(V_X)
  c = n_add_u8s8(c, n_a0_u8s8((vf)u), n_b0_u8s8((vf)s));
  return n_add_u8s8(c, n_a1_u8s8((vf)u), n_b1_u8s8((vf)s));
#else
  for (int q = 0; q < 4; q++) c += ((u >> (8 * q)) & 255) * ((s << (24 - 8 * q)) >> 24);
  return c;
#endif
}
V_INLINE vi v_dot_u8s8(vi c, vf a, vf b) { return n_dot_bytes(c, (vi)a, (vi)b); }
V_INLINE vi v_dot_s8u8(vi c, vf a, vf b) { return n_dot_bytes(c, (vi)b, (vi)a); }

/* products of words of two signed numbers of 16 bits, summed; 2 * VL bytes as such numbers */
#ifdef V_AVX2
typedef int16_t n_shorts __attribute__((vector_size(4 * VL)));
V_INLINE vi v_dot_s16(vi c, vf a, vf b) { return c + (vi)V_X(madd_epi16)((v_int)a, (v_int)b); }
V_INLINE vf v_signed(const void *p) { return (vf)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)); }
V_INLINE void n_widen(uint16_t *to, const uint8_t *from) {
  _mm256_storeu_si256((__m256i *)to, _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)from)));
}
V_INLINE n_shorts n_load_bytes(const uint8_t *p) {
  return (n_shorts)_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p));
}
V_INLINE void n_store_shorts(float *to, n_shorts v) { _mm256_storeu_si256((__m256i *)to, (__m256i)v); }
/* each half of a vector of bytes to its own place */
V_INLINE void n_store_halves(void *low, void *high, vi bytes) {
  _mm_storeu_si128((__m128i *)low, _mm256_castsi256_si128((__m256i)bytes));
  _mm_storeu_si128((__m128i *)high, _mm256_extracti128_si256((__m256i)bytes, 1));
}
#endif

/* broadcast of the four bytes at p */
V_INLINE vf v_word(const uint8_t *p) {
  float word;
  memcpy(&word, p, 4);
  return vset1(word);
}

/* bytes as floats */
V_INLINE vf v_load_u8(const uint8_t *p) { return __builtin_convertvector(v_load_bytes(p), vf); }
V_INLINE vf v_load_s8(const int8_t *p) { return __builtin_convertvector(v_load_chars(p), vf); }

/* elements in memory that are bytes, where `uint8_t` means bool */
typedef uint8_t v_u8;
typedef int8_t v_s8;
V_INLINE vf v_set1_u8(v_u8 x) { return vset1((real)x); }
V_INLINE vf v_set1_s8(v_s8 x) { return vset1((real)x); }
V_APART(v_load_u8, v_u8, vf)
V_APART(v_load_s8, v_s8, vf)
V_INLINE vf v_load_u8_n(const v_u8 *p, int n) { return v_load_u8_strided(p, 1, n); }
V_INLINE vf v_load_s8_n(const v_s8 *p, int n) { return v_load_s8_strided(p, 1, n); }

/* ---- quantization: rounded, ties to even, `zero` added, and clamped ---- */

/* 4 * VL bytes of the numbers of four vectors, in the order that packing within lanes of 128 bits gives: in each lane
 * those of a, b, c and d. NaN becomes the least byte. */
V_INLINE vi n_packed(vf a, vf b, vf c, vf d, int zero, int is_signed) {
#ifdef V_NEON
  const int16x8_t z = vdupq_n_s16((int16_t)zero);
  const int16x8_t ab = vcombine_s16(vqmovn_s32((int32x4_t)v_nearest(a)), vqmovn_s32((int32x4_t)v_nearest(b)));
  const int16x8_t cd = vcombine_s16(vqmovn_s32((int32x4_t)v_nearest(c)), vqmovn_s32((int32x4_t)v_nearest(d)));
  const int16x8_t low = vqaddq_s16(ab, z), high = vqaddq_s16(cd, z);
  if (is_signed) return (vi)vcombine_s8(vqmovn_s16(low), vqmovn_s16(high));
  return (vi)vcombine_u8(vqmovun_s16(low), vqmovun_s16(high));
#else
  const vf most = vset1(1e9f); /* smaller numbers convert to the least integer anyway, larger ones do too */
  a = vmin(most, a), b = vmin(most, b), c = vmin(most, c), d = vmin(most, d);
#ifdef V_X
  const v_int z = V_X(set1_epi16)((short)zero);
  const v_int ab = V_X(packs_epi32)((v_int)v_nearest(a), (v_int)v_nearest(b));
  const v_int cd = V_X(packs_epi32)((v_int)v_nearest(c), (v_int)v_nearest(d));
  const v_int low = V_X(adds_epi16)(ab, z), high = V_X(adds_epi16)(cd, z);
  return (vi)(is_signed ? V_X(packs_epi16)(low, high) : V_X(packus_epi16)(low, high));
#else
  const vf all[4] = {a, b, c, d}, least = vset1(-1e9f);
  const int32_t low = is_signed ? -128 : 0;
  uint8_t bytes[16];
  for (int v = 0; v < 4; v++) {
    const vi n = v_nearest(vmax(least, all[v])) + zero, under = n < low, over = n > low + 255;
    v_store_bytes(bytes + 4 * v, (n & ~under & ~over) | (under & low) | (over & (low + 255)));
  }
  vi packed;
  memcpy(&packed, bytes, 16);
  return packed;
#endif
#endif
}
#ifdef V_AVX512
V_INLINE vi n_quantized_u8(vf v, int zero) { /* small values cannot wrap around */
  const __m512i n = _mm512_add_epi32((__m512i)v_nearest(vmin(vset1(1e9f), v)), _mm512_set1_epi32(zero));
  return (vi)_mm512_max_epi32(n, _mm512_setzero_si512());
}
V_INLINE vi n_quantized_s8(vf v, int zero) {
  return v_nearest(vmin(vset1(1e9f), vmax(vset1(-1e9f), v))) + zero;
}
V_INLINE void v_quantize_u8(uint8_t *p, vf v, int zero) {
  _mm_storeu_si128((__m128i *)p, _mm512_cvtusepi32_epi8((__m512i)n_quantized_u8(v, zero)));
}
V_INLINE void v_quantize_s8(int8_t *p, vf v, int zero) {
  _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8((__m512i)n_quantized_s8(v, zero)));
}
V_INLINE void v_quantize_u8_n(uint8_t *p, vf v, int zero, int n) {
  _mm512_mask_cvtusepi32_storeu_epi8(p, vm_first(n), (__m512i)n_quantized_u8(v, zero));
}
V_INLINE void v_quantize_s8_n(int8_t *p, vf v, int zero, int n) {
  _mm512_mask_cvtsepi32_storeu_epi8(p, vm_first(n), (__m512i)n_quantized_s8(v, zero));
}
#else
V_INLINE void n_quantize(void *p, vf v, int zero, int is_signed, int n) {
  const vi packed = n_packed(v, v, v, v, zero, is_signed); /* what counts is the first word of each lane */
#ifdef V_AVX2
  const __m128i low = _mm256_castsi256_si128((__m256i)packed), high = _mm256_extracti128_si256((__m256i)packed, 1);
  const uint64_t bytes = (uint64_t)_mm_cvtsi128_si64(_mm_unpacklo_epi32(low, high));
#else
  const int32_t bytes = packed[0];
#endif
  if (n >= VL) memcpy(p, &bytes, VL);
  else memcpy(p, &bytes, (size_t)n);
}
V_INLINE void v_quantize_u8(uint8_t *p, vf v, int zero) { n_quantize(p, v, zero, 0, VL); }
V_INLINE void v_quantize_s8(int8_t *p, vf v, int zero) { n_quantize(p, v, zero, 1, VL); }
V_INLINE void v_quantize_u8_n(uint8_t *p, vf v, int zero, int n) { n_quantize(p, v, zero, 0, n); }
V_INLINE void v_quantize_s8_n(int8_t *p, vf v, int zero, int n) { n_quantize(p, v, zero, 1, n); }
#endif

/* stores of floats that are whole numbers in the range of the type */
V_INLINE void v_store_u8(uint8_t *p, vf v) { v_quantize_u8(p, v, 0); }
V_INLINE void v_store_s8(int8_t *p, vf v) { v_quantize_s8(p, v, 0); }
V_INLINE void v_store_u8_n(uint8_t *p, vf v, int n) { v_quantize_u8_n(p, v, 0, n); }
V_INLINE void v_store_s8_n(int8_t *p, vf v, int n) { v_quantize_s8_n(p, v, 0, n); }

/* ---- bytes of 4 * VL channels as words, and back ----
 *
 * Bytes a, b, c and d of a channel become a word of it. The words of vector v lie in the order that interleaving within
 * lanes of 128 bits gives: in lane l those of channels 16 l + 4 v to 16 l + 4 v + 3. Packing gives the channels back. */

V_INLINE vi n_bytes(const uint8_t *p) { return (vi)vload((const float *)p); }

V_INLINE void n_quads(vi a, vi b, vi c, vi d, vi *to) {
#ifdef V_X
#define N_LOW(bits, x, y) (vi)V_X(unpacklo_epi##bits)((v_int)(x), (v_int)(y))
#define N_HIGH(bits, x, y) (vi)V_X(unpackhi_epi##bits)((v_int)(x), (v_int)(y))
  const vi ab = N_LOW(8, a, b), cd = N_LOW(8, c, d), ab2 = N_HIGH(8, a, b), cd2 = N_HIGH(8, c, d);
  to[0] = N_LOW(16, ab, cd), to[1] = N_HIGH(16, ab, cd), to[2] = N_LOW(16, ab2, cd2), to[3] = N_HIGH(16, ab2, cd2);
#elif defined(V_NEON)
  const uint8x16x4_t quads = {{(uint8x16_t)a, (uint8x16_t)b, (uint8x16_t)c, (uint8x16_t)d}};
  vst4q_u8((uint8_t *)to, quads);
#else
  uint8_t in[4][16];
  memcpy(in[0], &a, 16), memcpy(in[1], &b, 16), memcpy(in[2], &c, 16), memcpy(in[3], &d, 16);
  for (int v = 0; v < 4; v++)
    for (int i = 0; i < 4; i++)
      to[v][i] = (int32_t)(in[0][4 * v + i] | (uint32_t)in[1][4 * v + i] << 8 | (uint32_t)in[2][4 * v + i] << 16 |
                           (uint32_t)in[3][4 * v + i] << 24);
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
  float all[4][VL] __attribute__((aligned(64)));
  vstore(all[0], a), vstore(all[1], b), vstore(all[2], c), vstore(all[3], d);
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) memcpy(p + i, all[i / 4 % 4] + i / 16 * 4, 16);
  for (; i < n; i++) p[i] = all[i / 4 % 4][i / 16 * 4 + i % 4];
}

#endif
