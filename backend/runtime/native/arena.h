/* Placement of buffers in an arena, for sizes that are known only when a program runs. */
#ifndef REWRITE_ARENA_H
#define REWRITE_ARENA_H

#include <stdint.h>
#include <string.h>

#include "dims.h"

#define ARENA_ALIGNMENT 64

typedef struct {
  dim_t size;
  int64_t first, last; /* steps between which it is alive, both included */
} arena_buffer;

/* Room for the placement of some buffers, as many numbers each. */
typedef struct {
  int *order, *sorted;
  int64_t *sizes, *other;
} arena_room;

static int64_t arena_padded(int64_t size) { return (size + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT; }

/* Place buffers in an order, each at the lowest offset where none that is alive at the same time lies. Return the size of
 * the arena. */
static int64_t arena_in_order(const arena_buffer *buffers, int count, const arena_room *room, int64_t *offsets) {
  const int64_t *sizes = room->sizes;
  int *sorted = room->sorted;
  int64_t arena = 0;
  int placed = 0; /* those placed so far, lowest offset first */
  for (int i = 0; i < count; i++) {
    const int own = room->order[i];
    int64_t at = 0;
    for (int k = 0; k < placed; k++) {
      const int other = sorted[k];
      if (buffers[own].first > buffers[other].last || buffers[other].first > buffers[own].last) continue;
      if (offsets[other] >= at + sizes[own]) break;
      if (offsets[other] + sizes[other] > at) at = offsets[other] + sizes[other];
    }
    offsets[own] = at;
    if (at + sizes[own] > arena) arena = at + sizes[own];
    int k = placed++;
    for (; k && offsets[sorted[k - 1]] > at; k--) sorted[k] = sorted[k - 1];
    sorted[k] = own;
  }
  return arena;
}

/* Sort numbers by falling size, then by number: a heap sort, since qsort has no context. */
static void arena_sort(int *order, int count, const int64_t *sizes) {
  for (int end = count, start = count / 2; end > 1;) {
    if (start) {
      start--;
    } else {
      const int last = order[--end];
      order[end] = order[0];
      order[0] = last;
    }
    for (int root = start, child; (child = 2 * root + 1) < end;) {
#define BEFORE(x, y) (sizes[x] > sizes[y] || (sizes[x] == sizes[y] && (x) < (y)))
      if (child + 1 < end && BEFORE(order[child], order[child + 1])) child++;
      if (!BEFORE(order[root], order[child])) break;
#undef BEFORE
      const int moved = order[root];
      order[root] = order[child];
      order[child] = moved;
      root = child;
    }
  }
}

/* Place buffers by first use, and by size; the smaller arena wins. Return its size; set their sizes and offsets. */
static int64_t arena_place(dim_values *values, const arena_buffer *buffers, int count, const arena_room *room,
                           int64_t *offsets) {
  int64_t total = 0;
  for (int i = 0; i < count; i++) {
    room->sizes[i] = arena_padded(dim_size(values, &buffers[i].size));
    room->order[i] = i;
    total += room->sizes[i];
    if (total > DIM_LIMIT) values->problem = "the model needs more memory than there can be";
    if (values->problem) return 0;
  }
  const int64_t arena = arena_in_order(buffers, count, room, offsets);
  arena_sort(room->order, count, room->sizes);
  const int64_t found = arena_in_order(buffers, count, room, room->other);
  if (found >= arena) return arena;
  memcpy(offsets, room->other, (size_t)count * sizeof *offsets);
  return found;
}

#endif
