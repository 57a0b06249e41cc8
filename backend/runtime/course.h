/* A course: walks, and cycles over courses of their own, one after the other.
 *
 * A cycle is a Loop or Scan. What it runs again and again is planned as a program of its own, whose values lie in the
 * frame of the run as all others do: its inputs and outputs have bases, and a turn of the cycle sets these, to pieces
 * of what is scanned, and by turns to two buffers for each carried value, of which one is where the result is wanted
 * after the last turn. Nothing is allocated but for outputs of which only data say how long they get. */
#ifndef REWRITE_COURSE_H
#define REWRITE_COURSE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "walk.h"

#define COURSE_UNKNOWN (-1)       /* turns that are told while it runs */
#define COURSE_LOOK_UP 64         /* turns between looks at the clock */
#define COURSE_PATIENCE 0.1       /* seconds between questions whether to stop */

enum { COURSE_DONE = 0, COURSE_NO_MEMORY = -1, COURSE_STOPPED = -2 };

typedef struct {
  int32_t base; /* below 0: nowhere */
  int64_t offset;
} course_place;

/* A value that each turn replaces. */
typedef struct {
  course_place from, to;
  int64_t spare; /* in the workspace: where every other turn puts it */
  int64_t size;
  int32_t in, out; /* its bases in the body; 0: nobody reads it there */
  int32_t now;     /* the base that holds where it is at present */
} course_state;

/* A tensor along an axis of which there is one piece for each turn: `rows` runs of `row` bytes, so far apart. */
typedef struct {
  course_place whole;
  int64_t first, step; /* where the first turn's piece begins, and how much further each next one */
  int64_t rows, row, pitch;
  int64_t copy;    /* in the workspace: a piece that kernels cannot use where it lies; -1: they can */
  int32_t base;    /* of the piece in the body; 0: nobody reads it */
  int32_t growing; /* whether the whole grows as the turns go: its base has a block of its own */
} course_piece;

struct course_cycle;

typedef struct {
  const walk_step *steps;
  const unsigned char *limits;
  const int32_t *bases;
  const int64_t *offsets;
  const int64_t *dims;
  int count, pointers;
  int serial;                       /* one thread does all */
  const struct course_cycle *cycle; /* instead of all this */
} course_part;

typedef struct {
  int count;
  const course_part *parts;
} course;

typedef struct course_cycle {
  int64_t turns;             /* COURSE_UNKNOWN: what `count` leads to, or until `goes` says no */
  course_place count, going; /* an int64, a boolean */
  course_place workspace;
  int32_t arena, number, flag, goes; /* bases of the body: its arena, the turn's number, the condition before and after;
                                        0: there is none */
  int64_t cells;                     /* in the workspace: the number, the condition before and after, 64 bytes each */
  int32_t done;                      /* the base that holds how many turns there were; 0: nobody asks */
  uint32_t wanted;                   /* what each guard has to be, a bit for each */
  int guards, states, scanned, made, captured;
  const course_place *guard;
  const course_state *state;
  const course_piece *scan;
  const course_piece *make;
  const course_place *capture;
  const int32_t *captures; /* the bases of what is captured in the body */
  course body;
} course_cycle;

/* A run in progress: the memory of its frame. `stop` is asked now and then whether to end early. */
typedef struct {
  int64_t *bases;
  void **blocks;
  size_t *sizes;
  void **bufs; /* for as many pointers as any walk has */
  walk_share *shares;
  int threads;
  int (*stop)(void);
} course_run;

static inline char *course_at(const course_run *run, course_place place) {
  return (char *)(intptr_t)(run->bases[place.base] + place.offset);
}

static inline void course_set(const course_run *run, int32_t base, const void *address) {
  if (base) run->bases[base] = (int64_t)(intptr_t)address;
}

static void course_walk(const course_part *part, const course_run *run, double *times) {
  const int serial = part->serial || run->threads < 2;
  walk_job job = {part->steps, part->limits, part->count, run->bufs, part->dims,
                  serial ? NULL : run->shares, times, run->threads};
  for (int i = 0; i < part->pointers; i++)
    run->bufs[i] = (void *)(intptr_t)(run->bases[part->bases[i]] + part->offsets[i]);
  /* Waking the workers costs more than steps that one thread is enough for. */
  if (serial) {
    walk(&job, 0, 1);
  } else {
    memset(run->shares, 0, (size_t)part->count * sizeof(walk_share));
    pool_run(walk, &job, run->threads);
  }
}

/* Where the piece of a turn begins in its whole. */
static inline char *course_piece_at(const course_run *run, const course_piece *piece, int64_t turn) {
  return course_at(run, piece->whole) + piece->first + turn * piece->step;
}

/* Makes room for one more piece behind a whole that grows. */
static int course_grow(const course_run *run, const course_piece *piece, int64_t turn) {
  const int32_t base = piece->whole.base;
  const size_t have = (size_t)(turn * piece->step), need = have + (size_t)piece->step;
  if (run->blocks[base] && run->sizes[base] >= need) return COURSE_DONE;
  const size_t size = need > SIZE_MAX / 4 ? need : need + need / 2 + 4096;
  void *block = memory_take(size);
  if (!block) return COURSE_NO_MEMORY;
  if (have) memcpy(block, run->blocks[base], have);
  free(run->blocks[base]);
  run->blocks[base] = block;
  run->sizes[base] = size;
  run->bases[base] = (int64_t)(intptr_t)block;
  return COURSE_DONE;
}

static int course_do(const course *self, const course_run *run);

static int course_turn(const course_cycle *self, const course_run *run, int64_t turn, char *workspace) {
  for (int i = 0; i < self->scanned; i++) {
    const course_piece *piece = &self->scan[i];
    if (!piece->base) continue;
    char *at = course_piece_at(run, piece, turn);
    if (piece->copy >= 0) {
      char *copy = workspace + piece->copy;
      for (int64_t row = 0; row < piece->rows; row++)
        memcpy(copy + row * piece->row, at + row * piece->pitch, (size_t)piece->row);
      at = copy;
    }
    course_set(run, piece->base, at);
  }
  for (int i = 0; i < self->made; i++) {
    const course_piece *piece = &self->make[i];
    if (piece->growing && course_grow(run, piece, turn)) return COURSE_NO_MEMORY;
    course_set(run, piece->base, piece->copy >= 0 ? workspace + piece->copy : course_piece_at(run, piece, turn));
  }
  const int failed = course_do(&self->body, run);
  if (failed) return failed;
  for (int i = 0; i < self->made; i++) {
    const course_piece *piece = &self->make[i];
    if (piece->copy < 0) continue;
    char *at = course_piece_at(run, piece, turn);
    const char *copy = workspace + piece->copy;
    for (int64_t row = 0; row < piece->rows; row++)
      memcpy(at + row * piece->pitch, copy + row * piece->row, (size_t)piece->row);
  }
  return COURSE_DONE;
}

static int course_cycle_do(const course_cycle *self, const course_run *run) {
  for (int g = 0; g < self->guards; g++)
    if ((*course_at(run, self->guard[g]) != 0) != (self->wanted >> g & 1)) return COURSE_DONE;
  char *workspace = course_at(run, self->workspace), *cells = workspace + self->cells;
  int64_t *number = (int64_t *)cells, turns = self->turns, turn = 0;
  char *flag = cells + 64, *goes = cells + 128;
  if (turns < 0) {
    turns = INT64_MAX;
    if (self->count.base >= 0) memcpy(&turns, course_at(run, self->count), sizeof turns);
  }
  if (self->going.base >= 0 && !*course_at(run, self->going)) turns = 0;
  course_set(run, self->arena, workspace);
  course_set(run, self->number, number);
  course_set(run, self->flag, flag);
  course_set(run, self->goes, goes);
  for (int i = 0; i < self->captured; i++) course_set(run, self->captures[i], course_at(run, self->capture[i]));
  for (int i = 0; i < self->states; i++) course_set(run, self->state[i].now, course_at(run, self->state[i].from));
  *flag = 1;
  /* Where it is known which turn is the last one, that puts its results where they are wanted. */
  const int odd = self->goes || turns < 1 ? 1 : (int)(turns & 1);
  double looked = 0;
  while (turn < turns) {
    *number = turn;
    for (int i = 0; i < self->states; i++) {
      const course_state *state = &self->state[i];
      course_set(run, state->in, (void *)(intptr_t)run->bases[state->now]);
      char *to = (turn & 1) == odd ? workspace + state->spare : course_at(run, state->to);
      course_set(run, state->out, to);
      run->bases[state->now] = (int64_t)(intptr_t)to;
    }
    const int failed = course_turn(self, run, turn, workspace);
    if (failed) return failed;
    turn++;
    if (self->goes && !*goes) break;
    if (turn % COURSE_LOOK_UP == 0) {
      const double now = walk_clock();
      if (looked == 0) looked = now;
      if (now - looked > COURSE_PATIENCE) {
        if (run->stop()) return COURSE_STOPPED;
        looked = now;
      }
    }
  }
  for (int i = 0; i < self->states; i++) {
    const course_state *state = &self->state[i];
    char *to = course_at(run, state->to), *at = (char *)(intptr_t)run->bases[state->now];
    if (at != to && state->size) memcpy(to, at, (size_t)state->size);
  }
  if (self->done) run->bases[self->done] = turn;
  return COURSE_DONE;
}

/* Runs all parts in order. */
static int course_do(const course *self, const course_run *run) {
  for (int i = 0; i < self->count; i++) {
    const course_part *part = &self->parts[i];
    if (part->cycle) {
      const int failed = course_cycle_do(part->cycle, run);
      if (failed) return failed;
    } else {
      course_walk(part, run, NULL);
    }
  }
  return COURSE_DONE;
}

#endif
