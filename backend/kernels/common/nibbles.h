/* Numbers of four bits, eight in a word: the one of the smallest k in the lowest bits. Numbers 0 to 15 stand for -8 to 7.
 *
 * A register of AVX-512 holds all values, which number j looks up. Elsewhere it takes fewer instructions to convert a number
 * where it is in the word: number j is then too large by a factor 16^j, which is exact, and by 8; only the last one is
 * signed, since its high bit is inverted. */
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

#endif
