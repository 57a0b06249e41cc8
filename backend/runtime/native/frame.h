/* The memory of one run in progress: bases, and buffers that later runs reuse. */
#ifndef REWRITE_FRAME_H
#define REWRITE_FRAME_H

#include <stdint.h>
#include <stdlib.h>

#include "memory.h"
#include "walk.h"

#define FRAME_LARGE ((size_t)256 << 10) /* least size of a buffer for which whole huge pages are taken */

#if defined(__linux__)
extern void __asan_init(void) __attribute__((weak));
static int frame_is_checked(void) { return __asan_init != NULL; }
#else
static int frame_is_checked(void) { return 0; }
#endif

typedef struct {
  int count; /* of bases */
  int64_t *bases;
  void **owned; /* by base: its buffer, if any */
  size_t *sizes;
  void **bufs; /* room for the pointers of a walk */
  int capacity;
  walk_share *shares;
  int steps; /* number of steps that there are shares for */
} frame_t;

static void frame_free(frame_t *frame) {
  for (int i = 0; frame->owned && i < frame->count; i++) free(frame->owned[i]);
  free(frame->bases);
  free(frame->owned);
  free(frame->sizes);
  free(frame->bufs);
  free(frame->shares);
}

/* Make a frame with `count` bases, all 0. Return 0, or -1 without memory; frame_free is due in both cases. */
static int frame_make(frame_t *frame, int count) {
  const size_t room = count > 0 ? (size_t)count : 1;
  *frame = (frame_t){.count = count};
  frame->bases = calloc(room, sizeof *frame->bases);
  frame->owned = calloc(room, sizeof *frame->owned);
  frame->sizes = calloc(room, sizeof *frame->sizes);
  return frame->bases && frame->owned && frame->sizes ? 0 : -1;
}

/* Return the size of a buffer that is made for `size` bytes: whole huge pages, but for small ones. Small pages lie anywhere,
 * and those that meet in the same sets of the second-level cache evict each other though it is not full. Where memory is
 * checked for overruns, of kernels alone or of this code, buffers are as large as they must be. */
static size_t frame_room(size_t size) {
  if (frame_is_checked() || size < FRAME_LARGE || size > SIZE_MAX - MEMORY_HUGE) return size;
  return (size + MEMORY_HUGE - 1) / MEMORY_HUGE * MEMORY_HUGE;
}

/* Point a base at a buffer of at least `size` bytes with undefined contents. Return 0, or -1 without memory.
   A buffer of no bytes has an address as well: kernels pass it to memset, which admits no null pointer. */
static int frame_hold(frame_t *frame, int base, size_t size) {
  if (!frame->owned[base] || frame->sizes[base] < size) {
    size = frame_room(size);
    free(frame->owned[base]);
    frame->sizes[base] = 0;
    frame->owned[base] = memory_take(size);
    if (!frame->owned[base]) return -1;
    frame->sizes[base] = size;
  }
  frame->bases[base] = (int64_t)(intptr_t)frame->owned[base];
  return 0;
}

/* Return room for the pointers of a walk; NULL without memory. */
static void **frame_pointers(frame_t *frame, int count) {
  if (count > frame->capacity || !frame->bufs) {
    free(frame->bufs);
    frame->bufs = malloc((size_t)(count > 0 ? count : 1) * sizeof *frame->bufs);
    frame->capacity = frame->bufs ? count : 0;
  }
  return frame->bufs;
}

/* Return the shares of a walk's steps; NULL without memory. */
static walk_share *frame_shares(frame_t *frame, int count) {
  if (count > frame->steps || !frame->shares) {
    free(frame->shares);
    frame->shares = malloc((size_t)(count > 0 ? count : 1) * sizeof *frame->shares);
    frame->steps = frame->shares ? count : 0;
  }
  return frame->shares;
}

#endif
