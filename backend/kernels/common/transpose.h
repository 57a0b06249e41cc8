/* Square blocks of 16 x 16 elements transposed: t[j * ts + i] = s[i * ss + j]. */
#ifndef REWRITE_TRANSPOSE_H
#define REWRITE_TRANSPOSE_H

#include "kernel.h"

#define K_TRANSPOSE(type)                                                                       \
  K_NOINLINE void k_transpose_##type(const type *restrict s, int64_t ss, type *restrict t, int64_t ts) { \
    for (int j = 0; j < 16; j++)                                                                \
      for (int i = 0; i < 16; i++) t[j * ts + i] = s[i * ss + j];                               \
  }
K_TRANSPOSE(uint8_t)
K_TRANSPOSE(uint16_t)
K_TRANSPOSE(uint64_t)
#ifndef V_AVX512
K_TRANSPOSE(uint32_t)
#else
/* In registers: pairs, then pairs of pairs, then quarters of the vectors are exchanged. */
K_NOINLINE void k_transpose_uint32_t(const uint32_t *s, int64_t ss, uint32_t *t, int64_t ts) {
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

#endif
