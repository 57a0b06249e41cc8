/* Memory for buffers of kernels: aligned, with slack behind it, on huge pages where the system has any. */
#ifndef REWRITE_MEMORY_H
#define REWRITE_MEMORY_H

#include <stdint.h>
#include <stdlib.h>
#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#endif

#define MEMORY_SLACK 64               /* bytes that may be read past a buffer */
#define MEMORY_HUGE ((size_t)2 << 20) /* a huge page on x86 and (with pages of 4 KiB) on aarch64 */
#define MEMORY_PAGE 4096
#define MEMORY_CALLER 16              /* alignment of malloc and NumPy */
#define MEMORY_OFFSET 64              /* see memory_place */
#define MEMORY_FETCHED 8192           /* bytes behind a large buffer that kernels may prefetch: see k_fetch_until in kernel.h */

/* Allocate at least `size` bytes and the slack, to be released with free(); NULL if that fails. Blocks of a huge page or
 * more start at one and request them, which many systems require: fewer TLB misses. Small pages that malloc has from an
 * earlier block would stay, so they are given back first. */
static void *memory_take(size_t size) {
  void *block = NULL;
  const int huge = size >= MEMORY_HUGE;
  if (size > SIZE_MAX - MEMORY_FETCHED) return NULL;
  if (posix_memalign(&block, huge ? MEMORY_HUGE : 64, size + (huge ? MEMORY_FETCHED : MEMORY_SLACK))) return NULL;
#ifdef MADV_HUGEPAGE
  if (huge) {
    const size_t whole = (size + MEMORY_SLACK) / MEMORY_HUGE * MEMORY_HUGE;
    madvise(block, whole, MADV_DONTNEED);
    madvise(block, whole, MADV_HUGEPAGE);
  }
#endif
  return block;
}

/* Return whether kernels may use a caller's memory in place: it is aligned as every allocator does, and the slack is on its
 * last page. Kernels load and store vectors at any address, but elements must be aligned. */
static inline int memory_suits(const void *start, size_t size) {
  size_t end = ((uintptr_t)start + size) % MEMORY_PAGE;
  return (uintptr_t)start % MEMORY_CALLER == 0 && end > 0 && end <= MEMORY_PAGE - MEMORY_SLACK;
}

/* Return the first byte of `size` in a block that `memory_take` gave for MEMORY_OFFSET more: the block's own, or a cache
 * line later where its end would not suit. A caller that passes the memory of a result back gets the next one in it. */
static inline void *memory_place(void *block, size_t size) {
  return memory_suits(block, size) ? block : (char *)block + MEMORY_OFFSET;
}

#endif
