/* Included by every kernel module: vectors of its element type and the division of work among threads. */
#ifndef REWRITE_KERNEL_H
#define REWRITE_KERNEL_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef V_F64
#include "vector.h"
#else
#include "half.h"
#endif

#define K_INLINE static inline __attribute__((always_inline, unused))
#define K_NOINLINE static __attribute__((noinline, unused))
#ifdef __clang__
#define K_ONCE K_NOINLINE
#define K_BLIND K_NOINLINE
#else
#define K_ONCE static __attribute__((noinline, noclone, unused)) /* one copy for all callers, whatever constants they pass */
#define K_BLIND static __attribute__((noipa, unused)) /* one that knows no constants, even those that all callers pass */
#endif

/* First of the n items of thread tid of nth; its last one is before k_first(n, tid + 1, nth). */
K_INLINE int64_t k_first(int64_t n, int tid, int nth) { return n * tid / nth; }

K_INLINE int64_t k_min(int64_t a, int64_t b) { return a < b ? a : b; }
/* Size, at least 1, of equal parts of n items that have at most `most` of them; the last part may be smaller. */
K_INLINE int64_t k_even(int64_t n, int64_t most) {
  const int64_t parts = (n + most - 1) / most;
  return parts > 0 ? (n + parts - 1) / parts : 1;
}
/* A float whose bits are an entry of `dims`. */
K_INLINE float k_float(int64_t entry) {
  const int32_t bits = (int32_t)entry;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
K_INLINE int64_t k_max(int64_t a, int64_t b) { return a > b ? a : b; }
/* Number of parts of the panels of a block that threads compute, each on its own copy of the block's inputs. */
K_INLINE int64_t k_parts(int64_t blocks, int64_t panels, int nth) {
  return blocks >= 4 * nth || blocks % nth == 0 ? 1 : k_min(nth, panels);
}
/* Whether nth threads divide the rows of a product [m, k] x [k, n] of words of four bytes, which come in `blocks`, and not
 * its columns. The thread that has the same rows of all tensors finds them in its own caches. Divided by columns, it fetches
 * the others' rows of A from their caches, where a word takes as long as 48 products. Divided by rows, it reads all of B,
 * where a word takes as long as 3 products if it lies in the third-level cache and there is time to fetch it ahead. Cores
 * that share caches fetch faster than the Xeon of these figures, so no thread may have a fourth less to do. */
K_ONCE int k_by_rows(int64_t m, int64_t n, int64_t k, int64_t blocks, int nth) {
  const int64_t idle = (blocks + nth - 1) / nth * nth - blocks, word = m > 128 && k * n <= 3 << 18 ? 3 : 20;
  return nth > 1 && idle * 4 <= blocks && idle * n * m < blocks * (nth - 1) * (48 * m - word * n);
}

/* What the steps of a panel's products prefetch: `pace` bytes each, from `at` on, the lines of a step together. */
typedef struct {
  const char *at;
  int64_t pace;
} k_fetch;

/* Prefetches by `steps` of `lines` lines each, which stay before `end`, the end of the buffer. A prefetch from a page that is
 * not mapped walks through the page tables, and the next step does so again: products took 1.7 times as long by it. */
K_INLINE k_fetch k_fetch_until(const void *end, const void *at, int64_t pace, int64_t steps, int64_t lines) {
  const char *const last = (const char *)end - 64 * lines;
  if ((const char *)at > last) return (k_fetch){last, 0};
  return (k_fetch){(const char *)at, k_min(pace, (last - (const char *)at) / k_max(steps, 1))};
}

/* The prefetches of a tile, `steps` of `pace` bytes each, as up to four streams that take turns: step t fetches
 * at + (t & turns) * apart, then `at` advances by the stream's share of the pace, in whole bytes, so that a few are left out.
 * A core waits for 16 lines at most, too few for the latency of memory; but in each page from which lines are fetched in
 * order, its prefetchers run ahead by themselves. */
typedef struct {
  const char *at;
  int64_t pace, apart, turns;
} k_streams;
K_INLINE k_streams k_streams_of(const char *at, int64_t pace, int64_t steps) {
  const int64_t page = 4096, pages = pace * steps / page, n = pages >= 4 && pace >= 16 ? 4 : pages >= 2 && pace >= 8 ? 2 : 1;
  return (k_streams){at, pace / n, pace * steps / n, n - 1};
}

/* Row of the table of a module: a kernel's name and its function, which computes part tid of nth. */
typedef struct {
  const char *name;
  void (*run)(void **bufs, const int64_t *dims, int tid, int nth);
} k_entry;

#endif
