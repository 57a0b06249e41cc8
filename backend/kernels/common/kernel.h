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

/* First of the n items of thread tid of nth; its last one is before k_first(n, tid + 1, nth). */
K_INLINE int64_t k_first(int64_t n, int tid, int nth) { return n * tid / nth; }

K_INLINE int64_t k_min(int64_t a, int64_t b) { return a < b ? a : b; }
/* Size, at least 1, of equal parts of n items that have at most `most` of them; the last part may be smaller. */
K_INLINE int64_t k_even(int64_t n, int64_t most) {
  const int64_t parts = (n + most - 1) / most;
  return parts > 0 ? (n + parts - 1) / parts : 1;
}
K_INLINE int64_t k_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* Row of the table of a module: a kernel's name and its function, which computes part tid of nth. */
typedef struct {
  const char *name;
  void (*run)(void **bufs, const int64_t *dims, int tid, int nth);
} k_entry;

#endif
