/* Transposed blocks, in registers: t[j * ts + i] = s[i * ss + j], of 16 x 16 elements (`k_transpose_<type>`), of VL x VL
 * (`k_turn_uint32_t`, `k_turn_real`), and of what fits a vector of 16 bytes (`k_turn_<type>`). */
#ifndef REWRITE_TRANSPOSE_H
#define REWRITE_TRANSPOSE_H

#include "kernel.h"

/* Blocks of n x n elements in vectors of 16 bytes: interleaving rows i and i + n / 2, log2(n) times, transposes them. */
#define K_TURN(type, n, stages, low, high)                                                   \
  K_INLINE void k_turn_##type(const type *s, int64_t ss, type *t, int64_t ts) {              \
    typedef type row __attribute__((vector_size(16)));                                       \
    typedef type row_any __attribute__((vector_size(16), aligned(1), may_alias));            \
    row a[n], b[n];                                                                          \
    _Pragma("GCC unroll 16") for (int i = 0; i < n; i++) a[i] = *(const row_any *)(s + i * ss); \
    _Pragma("GCC unroll 4") for (int stage = 0; stage < stages; stage++) {                   \
      _Pragma("GCC unroll 8") for (int i = 0; i < n / 2; i++) {                              \
        b[2 * i] = K_SHUFFLE(row, a[i], a[i + n / 2], low);                                  \
        b[2 * i + 1] = K_SHUFFLE(row, a[i], a[i + n / 2], high);                             \
      }                                                                                      \
      _Pragma("GCC unroll 16") for (int i = 0; i < n; i++) a[i] = b[i];                      \
    }                                                                                        \
    _Pragma("GCC unroll 16") for (int i = 0; i < n; i++) *(row_any *)(t + i * ts) = a[i];    \
  }
#ifdef __clang__
#define K_SHUFFLE(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define K_SHUFFLE(type, a, b, ...) __builtin_shuffle(a, b, (type){__VA_ARGS__})
#endif
#define K_LIST(...) __VA_ARGS__
K_TURN(uint8_t, 16, 4, K_LIST(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
       K_LIST(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31))
K_TURN(uint16_t, 8, 3, K_LIST(0, 8, 1, 9, 2, 10, 3, 11), K_LIST(4, 12, 5, 13, 6, 14, 7, 15))
K_TURN(uint64_t, 2, 1, K_LIST(0, 2), K_LIST(1, 3))

#define K_TRANSPOSE(type, n)                                                                 \
  K_NOINLINE void k_transpose_##type(const type *s, int64_t ss, type *t, int64_t ts) {       \
    _Pragma("GCC unroll 1") for (int j = 0; j < 16; j += n)                                  \
      _Pragma("GCC unroll 1") for (int i = 0; i < 16; i += n) \
        k_turn_##type(s + i * ss + j, ss, t + j * ts + i, ts);                               \
  }
K_TRANSPOSE(uint8_t, 16)
K_TRANSPOSE(uint16_t, 8)
K_TRANSPOSE(uint64_t, 2)

#ifndef V_AVX512
#ifdef V_AVX2
/* 8 x 8: rows i and i + 4 share a vector, so that interleaving within lanes of 128 bits is enough */
K_INLINE void k_turn_uint32_t(const uint32_t *s, int64_t ss, uint32_t *t, int64_t ts) {
#pragma GCC unroll 2
  for (int half = 0; half < 8; half += 4) {
    __m256 a[4], b[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      const float *upper = (const float *)(s + i * ss + half), *lower = (const float *)(s + (i + 4) * ss + half);
      a[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(upper)), _mm_loadu_ps(lower), 1);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
      b[2 * i] = _mm256_unpacklo_ps(a[i], a[i + 2]);
      b[2 * i + 1] = _mm256_unpackhi_ps(a[i], a[i + 2]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
      _mm256_storeu_ps((float *)(t + (half + 2 * i) * ts), _mm256_unpacklo_ps(b[i], b[i + 2]));
      _mm256_storeu_ps((float *)(t + (half + 2 * i + 1) * ts), _mm256_unpackhi_ps(b[i], b[i + 2]));
    }
  }
}
#else
K_TURN(uint32_t, 4, 2, K_LIST(0, 4, 1, 5), K_LIST(2, 6, 3, 7))
#endif
#else
/* In registers: pairs, then pairs of pairs, then quarters of the vectors are exchanged. */
K_INLINE void k_turn_uint32_t(const uint32_t *s, int64_t ss, uint32_t *t, int64_t ts) {
  __m512i a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_si512(s + i * ss);
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    b[2 * i] = _mm512_unpacklo_epi32(a[2 * i], a[2 * i + 1]);
    b[2 * i + 1] = _mm512_unpackhi_epi32(a[2 * i], a[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    a[4 * i] = _mm512_unpacklo_epi64(b[4 * i], b[4 * i + 2]);
    a[4 * i + 1] = _mm512_unpackhi_epi64(b[4 * i], b[4 * i + 2]);
    a[4 * i + 2] = _mm512_unpacklo_epi64(b[4 * i + 1], b[4 * i + 3]);
    a[4 * i + 3] = _mm512_unpackhi_epi64(b[4 * i + 1], b[4 * i + 3]);
  }
  /* a[4 g + r] holds, in its quarter q, column 4 q + r of rows 4 g .. 4 g + 3 */
#pragma GCC unroll 4
  for (int r = 0; r < 4; r++) {
    __m512i p = _mm512_shuffle_i32x4(a[r], a[4 + r], 0x88), q = _mm512_shuffle_i32x4(a[r], a[4 + r], 0xdd);
    __m512i u = _mm512_shuffle_i32x4(a[8 + r], a[12 + r], 0x88), v = _mm512_shuffle_i32x4(a[8 + r], a[12 + r], 0xdd);
    _mm512_storeu_si512(t + r * ts, _mm512_shuffle_i32x4(p, u, 0x88));
    _mm512_storeu_si512(t + (8 + r) * ts, _mm512_shuffle_i32x4(p, u, 0xdd));
    _mm512_storeu_si512(t + (4 + r) * ts, _mm512_shuffle_i32x4(q, v, 0x88));
    _mm512_storeu_si512(t + (12 + r) * ts, _mm512_shuffle_i32x4(q, v, 0xdd));
  }
}
#endif
#ifndef V_F64
K_TRANSPOSE(uint32_t, VL)
#endif

/* VL x VL elements of the module's type */
K_INLINE void k_turn_real(const real *s, int64_t ss, real *t, int64_t ts) {
#ifdef V_F64
  _Pragma("GCC unroll 4") for (int j = 0; j < VL; j += 2)
    _Pragma("GCC unroll 4") for (int i = 0; i < VL; i += 2)
      k_turn_uint64_t((const uint64_t *)(s + i * ss + j), ss, (uint64_t *)(t + j * ts + i), ts);
#else
  k_turn_uint32_t((const uint32_t *)s, ss, (uint32_t *)t, ts);
#endif
}

/* Blocks of any numbers of rows and columns, at the edges of small tensors: no caller's numbers are compiled in. gcc would
 * unroll and vectorize both loops for rows of 16 elements, in half a second. */
#define K_TRANSPOSE_SOME(type)                                                                                   \
  K_BLIND void k_transpose_some_##type(const type *restrict s, int64_t ss, type *restrict t, int64_t ts, int64_t high, int64_t wide) { \
    for (int64_t j = 0; j < high; j++)                                                                           \
      for (int64_t k = 0; k < wide; k++) t[j * ts + k] = s[k * ss + j];                                          \
  }
K_TRANSPOSE_SOME(uint8_t)
K_TRANSPOSE_SOME(uint16_t)
K_TRANSPOSE_SOME(uint32_t)
K_TRANSPOSE_SOME(uint64_t)

#endif
