/* Memory for buffers of kernels: aligned, with slack behind it, on huge pages where the system gives any. */
#ifndef REWRITE_MEMORY_H
#define REWRITE_MEMORY_H

#include <stdint.h>
#include <stdlib.h>
#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#endif

#define MEMORY_SLACK 64               /* may be read behind a buffer */
#define MEMORY_HUGE ((size_t)2 << 20) /* a huge page on x86 and (with pages of 4 KiB) on aarch64 */
#define MEMORY_PAGE 4096
#define MEMORY_CALLER 16              /* what malloc, and so NumPy, aligns to */

/* At least `size` bytes and the slack, to be given back with free(); NULL if there are none. Blocks of a huge page or more
 * start at one and ask for them (many systems give them only to those who ask): fewer misses of the address translation. */
static void *memory_take(size_t size) {
  void *block = NULL;
  if (posix_memalign(&block, size >= MEMORY_HUGE ? MEMORY_HUGE : 64, size + MEMORY_SLACK)) return NULL;
#ifdef MADV_HUGEPAGE
  if (size >= MEMORY_HUGE) madvise(block, (size + MEMORY_SLACK) / MEMORY_HUGE * MEMORY_HUGE, MADV_HUGEPAGE);
#endif
  return block;
}

/* Whether kernels may use memory of a caller as it is: the slack is on a page that it is on itself, and it begins where
 * every allocator lets memory begin. Kernels load and store vectors at any place; what is not even aligned to its elements
 * is not for them, since they read words of several bytes. */
static inline int memory_suits(const void *start, size_t size) {
  size_t end = ((uintptr_t)start + size) % MEMORY_PAGE;
  return (uintptr_t)start % MEMORY_CALLER == 0 && end > 0 && end <= MEMORY_PAGE - MEMORY_SLACK;
}

#endif
