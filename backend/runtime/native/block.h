/* A block: walks over steps, and loops whose bodies are blocks, one after the other.
 *
 * A loop is ONNX's Loop or Scan. Its body is planned as a program of its own, whose values are in the frame of the run.
 * Inputs and outputs of the body have bases, which each iteration sets: to slices of the scanned tensors, and alternately
 * to two buffers for each carried value, one of which holds the result after the last iteration. Only outputs whose length
 * depends on data need allocation. */
#ifndef REWRITE_BLOCK_H
#define REWRITE_BLOCK_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "walk.h"

#define LOOP_UNKNOWN (-1) /* number of iterations that only the run determines */
#define LOOP_LOOK_UP 64   /* iterations between checks of the clock */
#define LOOP_PATIENCE 0.1 /* seconds between checks whether to stop */

enum { BLOCK_DONE = 0, BLOCK_NO_MEMORY = -1, BLOCK_STOPPED = -2 };

typedef struct {
  int32_t base; /* negative: none */
  int64_t offset;
} block_place;

/* A carried value, which each iteration replaces. */
typedef struct {
  block_place from, to;
  int64_t spare; /* in the workspace: the buffer of every other iteration */
  int64_t size;
  int32_t in, out; /* its bases in the body; 0: unused there */
  int32_t now;     /* the base that holds its current address */
} loop_state;

/* A tensor with one slice for each iteration: `rows` runs of `row` bytes, `pitch` bytes apart. */
typedef struct {
  block_place whole;
  int64_t first, step; /* offset of the first iteration's slice, and distance to the next */
  int64_t rows, row, pitch;
  int64_t copy;    /* in the workspace: copy of a slice that kernels cannot use in place; -1: they can */
  int32_t base;    /* of the slice in the body; 0: unused */
  int32_t growing; /* whether the tensor grows with the iterations: its base then owns memory */
} loop_piece;

struct loop_t;

typedef struct {
  const walk_step *steps;
  const unsigned char *limits;
  const int32_t *bases;
  const int64_t *offsets;
  const int64_t *dims;
  int count, pointers;
  int serial;                /* one thread runs everything */
  const struct loop_t *loop; /* instead of the above */
} block_part;

typedef struct {
  int count;
  const block_part *parts;
} block_t;

typedef struct loop_t {
  int64_t iterations;       /* LOOP_UNKNOWN: the value at `count`, or until `goes` is false */
  block_place count, going; /* an int64, a boolean */
  block_place workspace;
  int32_t arena, number, flag, goes; /* bases of the body: its arena, the iteration's number, the condition before it
                                        and after; 0: none */
  int64_t cells;                     /* in the workspace: the number, the condition before and after, 64 bytes each */
  int32_t done;                      /* the base that holds the number of iterations; 0: unused */
  uint32_t wanted;                   /* required value of each guard, one bit each */
  int guards, states, scanned, made, captured;
  const block_place *guard;
  const loop_state *state;
  const loop_piece *scan;
  const loop_piece *make;
  const block_place *capture;
  const int32_t *captures; /* bases of the captured values in the body */
  block_t body;
} loop_t;

/* A run in progress: the memory of its frame. `stop` is called now and then and returns whether to end early. */
typedef struct {
  int64_t *bases;
  void **owned;
  size_t *sizes;
  void **bufs; /* room for the pointers of the largest walk */
  walk_share *shares;
  int threads;
  int (*stop)(void);
} block_run;

static inline char *block_at(const block_run *run, block_place place) {
  return (char *)(intptr_t)(run->bases[place.base] + place.offset);
}

static inline void block_set(const block_run *run, int32_t base, const void *address) {
  if (base) run->bases[base] = (int64_t)(intptr_t)address;
}

static void block_walk(const block_part *part, const block_run *run, double *times) {
  const int serial = part->serial || run->threads < 2;
  walk_job job = {part->steps, part->limits, part->count, run->bufs, part->dims,
                  serial ? NULL : run->shares, times, run->threads};
  for (int i = 0; i < part->pointers; i++)
    run->bufs[i] = (void *)(intptr_t)(run->bases[part->bases[i]] + part->offsets[i]);
  /* Waking the workers would cost more than steps for one thread. */
  if (serial) {
    walk(&job, 0, 1);
  } else {
    memset(run->shares, 0, (size_t)part->count * sizeof(walk_share));
    pool_run(walk, &job, run->threads);
  }
}

/* Return the address of an iteration's slice in its tensor. */
static inline char *loop_piece_at(const block_run *run, const loop_piece *piece, int64_t iteration) {
  return block_at(run, piece->whole) + piece->first + iteration * piece->step;
}

/* Make room for one more slice at the end of a growing tensor. */
static int loop_grow(const block_run *run, const loop_piece *piece, int64_t iteration) {
  const int32_t base = piece->whole.base;
  const size_t have = (size_t)(iteration * piece->step), need = have + (size_t)piece->step;
  if (run->owned[base] && run->sizes[base] >= need) return BLOCK_DONE;
  const size_t size = need > SIZE_MAX / 4 ? need : need + need / 2 + 4096;
  void *grown = memory_take(size);
  if (!grown) return BLOCK_NO_MEMORY;
  if (have) memcpy(grown, run->owned[base], have);
  free(run->owned[base]);
  run->owned[base] = grown;
  run->sizes[base] = size;
  run->bases[base] = (int64_t)(intptr_t)grown;
  return BLOCK_DONE;
}

static int block_do(const block_t *self, const block_run *run);

static int loop_iterate(const loop_t *self, const block_run *run, int64_t iteration, char *workspace) {
  for (int i = 0; i < self->scanned; i++) {
    const loop_piece *piece = &self->scan[i];
    if (!piece->base) continue;
    char *at = loop_piece_at(run, piece, iteration);
    if (piece->copy >= 0) {
      char *copy = workspace + piece->copy;
      for (int64_t row = 0; row < piece->rows; row++)
        memcpy(copy + row * piece->row, at + row * piece->pitch, (size_t)piece->row);
      at = copy;
    }
    block_set(run, piece->base, at);
  }
  for (int i = 0; i < self->made; i++) {
    const loop_piece *piece = &self->make[i];
    if (piece->growing && loop_grow(run, piece, iteration)) return BLOCK_NO_MEMORY;
    block_set(run, piece->base, piece->copy >= 0 ? workspace + piece->copy : loop_piece_at(run, piece, iteration));
  }
  const int failed = block_do(&self->body, run);
  if (failed) return failed;
  for (int i = 0; i < self->made; i++) {
    const loop_piece *piece = &self->make[i];
    if (piece->copy < 0) continue;
    char *at = loop_piece_at(run, piece, iteration);
    const char *copy = workspace + piece->copy;
    for (int64_t row = 0; row < piece->rows; row++)
      memcpy(at + row * piece->pitch, copy + row * piece->row, (size_t)piece->row);
  }
  return BLOCK_DONE;
}

static int loop_do(const loop_t *self, const block_run *run) {
  for (int g = 0; g < self->guards; g++)
    if ((*block_at(run, self->guard[g]) != 0) != (self->wanted >> g & 1)) return BLOCK_DONE;
  char *workspace = block_at(run, self->workspace), *cells = workspace + self->cells;
  int64_t *number = (int64_t *)cells, iterations = self->iterations, iteration = 0;
  char *flag = cells + 64, *goes = cells + 128;
  if (iterations < 0) {
    iterations = INT64_MAX;
    if (self->count.base >= 0) memcpy(&iterations, block_at(run, self->count), sizeof iterations);
  }
  if (self->going.base >= 0 && !*block_at(run, self->going)) iterations = 0;
  block_set(run, self->arena, workspace);
  block_set(run, self->number, number);
  block_set(run, self->flag, flag);
  block_set(run, self->goes, goes);
  for (int i = 0; i < self->captured; i++) block_set(run, self->captures[i], block_at(run, self->capture[i]));
  for (int i = 0; i < self->states; i++) block_set(run, self->state[i].now, block_at(run, self->state[i].from));
  *flag = 1;
  /* If the last iteration is known, it writes its results to their final place. */
  const int odd = self->goes || iterations < 1 ? 1 : (int)(iterations & 1);
  double looked = 0;
  while (iteration < iterations) {
    *number = iteration;
    for (int i = 0; i < self->states; i++) {
      const loop_state *state = &self->state[i];
      block_set(run, state->in, (void *)(intptr_t)run->bases[state->now]);
      char *to = (iteration & 1) == odd ? workspace + state->spare : block_at(run, state->to);
      block_set(run, state->out, to);
      run->bases[state->now] = (int64_t)(intptr_t)to;
    }
    const int failed = loop_iterate(self, run, iteration, workspace);
    if (failed) return failed;
    iteration++;
    if (self->goes && !*goes) break;
    if (iteration % LOOP_LOOK_UP == 0) {
      const double now = walk_clock();
      if (looked == 0) looked = now;
      if (now - looked > LOOP_PATIENCE) {
        if (run->stop()) return BLOCK_STOPPED;
        looked = now;
      }
    }
  }
  for (int i = 0; i < self->states; i++) {
    const loop_state *state = &self->state[i];
    char *to = block_at(run, state->to), *at = (char *)(intptr_t)run->bases[state->now];
    if (at != to && state->size) memcpy(to, at, (size_t)state->size);
  }
  if (self->done) run->bases[self->done] = iteration;
  return BLOCK_DONE;
}

/* Run all parts in order. */
static int block_do(const block_t *self, const block_run *run) {
  for (int i = 0; i < self->count; i++) {
    const block_part *part = &self->parts[i];
    if (part->loop) {
      const int failed = loop_do(part->loop, run);
      if (failed) return failed;
    } else {
      block_walk(part, run, NULL);
    }
  }
  return BLOCK_DONE;
}

#endif
