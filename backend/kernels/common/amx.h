/* Register tiles by AMX: sums[16 R][16 V] (+)= A * B, where tiles hold 16 rows of 64 bytes.
 *
 * A consists of rows of words of 32 bits, two bf16 or four bytes that are neighbors along k, and is loaded as it lies.
 * B consists of rows of words of 16 V columns, as `low_precision.h` packs them: 16 of these rows are a tile. A step of k
 * takes at most 16 words. Sums are f32 or 32-bit integers. They go through memory to the epilogue, which computes on
 * vectors while the tiles of the next sums are multiplied. Denormals of bf16 count as zeros.
 *
 * The eight tiles are four sums, two of A and two of B: each is loaded once and multiplied twice. Instructions are
 * written out, as the compilers' functions for loads do not say that these read memory. */
#ifndef REWRITE_AMX_H
#define REWRITE_AMX_H

#include "kernel.h"

#define N_AMX_ROWS 32 /* of A in two tiles */

/* The shapes of tiles for `rows` <= 32 rows of A and steps of `words` words. */
K_INLINE void n_amx_shapes(int64_t rows, int words) {
  struct {
    uint8_t palette, start, zeros[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } shapes __attribute__((aligned(64))) = {.palette = 1};
  for (int t = 0; t < 8; t++) {
    const int second = t < 4 ? t >> 1 : t & 1;
    shapes.bytes[t] = (uint16_t)(t == 4 || t == 5 ? 4 * words : 64);
    shapes.rows[t] = (uint8_t)(t > 5 ? words : k_max(1, k_min(16, rows - 16 * second)));
  }
  __asm__ volatile("ldtilecfg %0" : : "m"(shapes));
}
K_INLINE void n_amx_release(void) { __asm__ volatile("tilerelease"); }

#define N_AMX_LOAD(tile, from, pitch) \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(from), "r"((int64_t)(pitch)) : "memory")
#define N_AMX_STORE(tile, to, pitch) \
  __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(to), "r"((int64_t)(pitch)) : "memory")
#define N_AMX_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : :)
#define N_AMX_DOT(dot, sum, a, b) __asm__ volatile("tdp" dot " %%tmm" #b ", %%tmm" #a ", %%tmm" #sum : :)
#define N_AMX_START(tile, at, pitch) \
  do { \
    if (add) N_AMX_LOAD(tile, at, pitch); \
    else N_AMX_ZERO(tile); \
  } while (0)

/* Tiles `fn<R>x<V>` for a kind of product. a_row, b_row and c_row are the bytes of rows of A, B and the sums, b_step those of
 * a step of B, `add` whether to add to the sums. A step of A is a_step bytes behind the one before, or at the next offset
 * of a table. Each step prefetches `pace` bytes from `next` on into the second-level cache. */
#define N_AMX_EVEN(at) const char *const at = a; a += a_step;
#define N_AMX_TABLE(at) const char *const at = a + *a_step++;
#define N_AMX_PREFETCH \
  _Pragma("GCC unroll 1") /* a bound of the pace may be known, but few lines are fetched */ \
  for (int64_t p = 0; p < pace; p += 64) __builtin_prefetch(next + p, 0, 2); \
  next += pace;
#define N_AMX_TILES(fn, dot, Step, N_AMX_STEP) \
  K_NOINLINE void fn##2x2(const char *a, int64_t a_row, Step a_step, const char *b, int64_t b_row, int64_t b_step, \
                          float *sums, int64_t c_row, int64_t steps, int add, const char *next, int64_t pace) { \
    const int64_t low = 16 * a_row; \
    float *below = (float *)((char *)sums + 16 * c_row); \
    N_AMX_START(0, sums, c_row); \
    N_AMX_START(1, sums + 16, c_row); \
    N_AMX_START(2, below, c_row); \
    N_AMX_START(3, below + 16, c_row); \
    for (; steps > 0; steps--, b += b_step) { \
      N_AMX_STEP(at) \
      N_AMX_LOAD(4, at, a_row); \
      N_AMX_LOAD(6, b, b_row); \
      N_AMX_LOAD(7, b + 64, b_row); \
      N_AMX_DOT(dot, 0, 4, 6); \
      N_AMX_DOT(dot, 1, 4, 7); \
      N_AMX_LOAD(5, at + low, a_row); \
      N_AMX_DOT(dot, 2, 5, 6); \
      N_AMX_DOT(dot, 3, 5, 7); \
      N_AMX_PREFETCH \
    } \
    N_AMX_STORE(0, sums, c_row); \
    N_AMX_STORE(1, sums + 16, c_row); \
    N_AMX_STORE(2, below, c_row); \
    N_AMX_STORE(3, below + 16, c_row); \
  } \
  K_NOINLINE void fn##2x1(const char *a, int64_t a_row, Step a_step, const char *b, int64_t b_row, int64_t b_step, \
                          float *sums, int64_t c_row, int64_t steps, int add, const char *next, int64_t pace) { \
    const int64_t low = 16 * a_row; \
    float *below = (float *)((char *)sums + 16 * c_row); \
    N_AMX_START(0, sums, c_row); \
    N_AMX_START(2, below, c_row); \
    for (; steps > 0; steps--, b += b_step) { \
      N_AMX_STEP(at) \
      N_AMX_LOAD(6, b, b_row); \
      N_AMX_LOAD(4, at, a_row); \
      N_AMX_DOT(dot, 0, 4, 6); \
      N_AMX_LOAD(5, at + low, a_row); \
      N_AMX_DOT(dot, 2, 5, 6); \
      N_AMX_PREFETCH \
    } \
    N_AMX_STORE(0, sums, c_row); \
    N_AMX_STORE(2, below, c_row); \
  } \
  K_NOINLINE void fn##1x2(const char *a, int64_t a_row, Step a_step, const char *b, int64_t b_row, int64_t b_step, \
                          float *sums, int64_t c_row, int64_t steps, int add, const char *next, int64_t pace) { \
    N_AMX_START(0, sums, c_row); \
    N_AMX_START(1, sums + 16, c_row); \
    for (; steps > 0; steps--, b += b_step) { \
      N_AMX_STEP(at) \
      N_AMX_LOAD(4, at, a_row); \
      N_AMX_LOAD(6, b, b_row); \
      N_AMX_DOT(dot, 0, 4, 6); \
      N_AMX_LOAD(7, b + 64, b_row); \
      N_AMX_DOT(dot, 1, 4, 7); \
      N_AMX_PREFETCH \
    } \
    N_AMX_STORE(0, sums, c_row); \
    N_AMX_STORE(1, sums + 16, c_row); \
  } \
  K_NOINLINE void fn##1x1(const char *a, int64_t a_row, Step a_step, const char *b, int64_t b_row, int64_t b_step, \
                          float *sums, int64_t c_row, int64_t steps, int add, const char *next, int64_t pace) { \
    N_AMX_START(0, sums, c_row); \
    for (; steps > 0; steps--, b += b_step) { \
      N_AMX_STEP(at) \
      N_AMX_LOAD(4, at, a_row); \
      N_AMX_LOAD(6, b, b_row); \
      N_AMX_DOT(dot, 0, 4, 6); \
      N_AMX_PREFETCH \
    } \
    N_AMX_STORE(0, sums, c_row); \
  } \
  K_INLINE void fn(int64_t rows, int vectors, const char *a, int64_t a_row, Step a_step, const char *b, int64_t b_row, \
                   int64_t b_step, float *sums, int64_t c_row, int64_t steps, int add, const char *next, int64_t pace) { \
    if (rows > 16 && vectors == 2) fn##2x2(a, a_row, a_step, b, b_row, b_step, sums, c_row, steps, add, next, pace); \
    else if (rows > 16) fn##2x1(a, a_row, a_step, b, b_row, b_step, sums, c_row, steps, add, next, pace); \
    else if (vectors == 2) fn##1x2(a, a_row, a_step, b, b_row, b_step, sums, c_row, steps, add, next, pace); \
    else fn##1x1(a, a_row, a_step, b, b_row, b_step, sums, c_row, steps, add, next, pace); \
  }

N_AMX_TILES(n_amx_bf16, "bf16ps", int64_t, N_AMX_EVEN)
N_AMX_TILES(n_amx_u8s8, "busd", int64_t, N_AMX_EVEN) /* bytes, unsigned in A and signed in B */
N_AMX_TILES(n_amx_bf16_at, "bf16ps", const int32_t *, N_AMX_TABLE)
N_AMX_TILES(n_amx_u8s8_at, "busd", const int32_t *, N_AMX_TABLE)

#endif
