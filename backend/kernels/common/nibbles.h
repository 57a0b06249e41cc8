/* Numbers of four bits, eight in a word: the one of the smallest k in the lowest bits. Numbers 0 to 15 stand for -8 to 7.
 *
 * A register of AVX-512 holds all values, which number j looks up. Elsewhere it takes fewer instructions to convert a number
 * where it is in the word: number j is then too large by a factor 16^j, which is exact, and by 8; only the last one is
 * signed, since its high bit is inverted.
 *
 * A single row of A is multiplied as integers of 24 bits with AVX2: each is three signed bytes, so that an instruction makes
 * 32 products, where a float takes three instructions for eight. */
#ifndef REWRITE_NIBBLES_H
#define REWRITE_NIBBLES_H

#include "kernel.h"

#ifdef V_AVX512
#define N_UNIT(j) 1.0f   /* by which to multiply what is multiplied with number j */
#define N_EXCESS(j) 0.0f /* by which the number is too large after that */
V_INLINE vf n_nibble(vi words, int j) {
  const vf values = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
  return (vf)_mm512_permutexvar_ps(_mm512_srli_epi32((__m512i)words, 4 * j), (__m512)values);
}
#else
#define N_UNIT(j) (1.0f / (float)(1 << (4 * (j))))
#define N_EXCESS(j) ((j) < 7 ? 8.0f : 0.0f)
V_INLINE vf n_nibble(vi words, int j) { return __builtin_convertvector(words & (int32_t)(15u << (4 * j)), vf); }
#endif
V_INLINE vf n_nibble_value(vi words, int j) { return n_nibble(words, j) * N_UNIT(j) - N_EXCESS(j); }

#if defined(V_AVX2) && !defined(V_AVX512)
#define N_ROWS 32 /* rows whose sums of bytes fit into 16 bits, and whose sums of integers fit into 32 */

/* `sums`, pairs of 16 bits, plus products of the four numbers in the bytes of a word and four bytes of integers. */
V_INLINE vi n_add_bytes(vi sums, vi numbers, const int8_t *bytes) {
  int32_t word;
  memcpy(&word, bytes, 4);
  const __m256i products = _mm256_maddubs_epi16((__m256i)numbers, _mm256_set1_epi32(word));
  return (vi)_mm256_add_epi16((__m256i)sums, products);
}

/* Sums of 32 bits of the pairs of all three bytes, each 256 times the one before, less the excess. Only the result fits. */
V_INLINE vi n_whole(vi low, vi middle, vi high, vi excess) {
  const __m256i one = _mm256_set1_epi16(1), next = _mm256_set1_epi16(256);
  __m256i sum = _mm256_add_epi32(_mm256_madd_epi16((__m256i)high, next), _mm256_madd_epi16((__m256i)middle, one));
  sum = _mm256_add_epi32(_mm256_slli_epi32(sum, 8), _mm256_madd_epi16((__m256i)low, one));
  return (vi)_mm256_sub_epi32(sum, (__m256i)excess);
}

/* Up to N_ROWS floats, `rows` of them and zeros up to `padded`, as integers: for each eight of them the three bytes of the
 * even ones and of the odd ones. terms[0] becomes the unit, a power of two; it is NaN if a float is not finite. terms[1]
 * becomes the bits of eight times the sum of the integers. The largest integer is less than 127.5 * 2^16, so that all bytes
 * are signed; a float is rounded to 2^-23 of the largest at most. */
V_INLINE void n_integers(const float *x, int rows, int padded, int8_t *to, float *terms) {
  vf v[N_ROWS / VL], top = vzero(), finite = vzero();
  for (int i = 0; i < padded / VL; i++) {
    const int n = rows - i * VL;
    v[i] = n >= VL ? vload(x + i * VL) : n > 0 ? vload_n(x + i * VL, n) : vzero();
    top = vmax(top, vabs(v[i]));
    finite += v[i] * 0.0f;
  }
  union { float f; int32_t i; } most = {.f = vhmax(top) * 1.004f}, unit, inverse, sum;
  const int32_t exponent = (int32_t)k_max(23, most.i >> 23);
  unit.i = (exponent - 22) << 23;
  inverse.i = (276 - exponent) << 23;
  const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  vi total = {0};
  for (int i = 0; i < padded / VL; i++) {
    vi whole = (vi)_mm256_permutevar8x32_epi32((__m256i)v_nearest(v[i] * inverse.f), order);
    total += whole;
    for (int d = 0; d < 3; d++, to += 8) {
      const vi byte = whole << 24 >> 24;
      v_store_bytes((uint8_t *)to, byte);
      whole = (whole - byte) >> 8;
    }
  }
  sum.i = 0;
  for (int i = 0; i < VL; i++) sum.i += total[i];
  sum.i *= 8;
  terms[0] = unit.f + vhsum(finite);
  terms[1] = sum.f;
}
#endif

#endif
