/* A call: arrays of a caller as inputs and outputs of a run. Kernels use them in place where they can. */
#ifndef REWRITE_CALL_H
#define REWRITE_CALL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "frame.h"

typedef struct {
  char kind; /* of its elements: f, i, u, b (boolean) */
  int ndim;
  int base;  /* of a frame; 0: unused by kernels */
  int count; /* the base that holds its first extent after the block, in whose buffer it is then; 0: it is known before */
  ptrdiff_t itemsize;
  ptrdiff_t nbytes; /* if `count` isn't 0, of one iteration */
  ptrdiff_t *shape;
} call_port;

/* Memory of an array: `size` bytes. */
typedef struct {
  char *data;
  size_t size;
} call_view;

enum { CALL_PLACED = 1, CALL_OUTPUTS_OVERLAP = 0, CALL_NO_MEMORY = -1 };

static inline int call_overlap(const call_view *a, const call_view *b) {
  return a->data < b->data + b->size && b->data < a->data + a->size;
}

static inline int call_same(const call_view *a, const call_view *b) {
  return a->data == b->data && a->size == b->size;
}

/* Point the frame's bases at the arrays, or at copies of those that kernels cannot use in place. `given`: the outputs are
 * arrays of the caller, which may overlap inputs; `shares` has for each input and output whether they may be one array. */
static int call_place(frame_t *frame, const call_port *ports, const call_view *views, int ins, int outs, int given,
                      const char *shares) {
  for (int i = 0; i < ins + outs; i++) {
    const call_view *view = &views[i];
    if (!ports[i].base || !view->size) continue;
    int suits = memory_suits(view->data, view->size) || (i >= ins && !given);
    for (int j = ins; given && j < ins + outs; j++) {
      if (j == i || !call_overlap(view, &views[j])) continue;
      if (i >= ins) return CALL_OUTPUTS_OVERLAP;
      if (!(shares[i * outs + j - ins] && call_same(view, &views[j]))) suits = 0;
    }
    if (suits) {
      frame->bases[ports[i].base] = (int64_t)(intptr_t)view->data;
      continue;
    }
    if (frame_hold(frame, ports[i].base, view->size)) return CALL_NO_MEMORY;
    if (i < ins) memcpy((void *)(intptr_t)frame->bases[ports[i].base], view->data, view->size);
  }
  return CALL_PLACED;
}

/* Copy the outputs that were not written in place to the caller's arrays. */
static void call_copy_out(const frame_t *frame, const call_port *ports, const call_view *views, int ins, int outs) {
  for (int i = ins; i < ins + outs; i++) {
    const char *made = (const char *)(intptr_t)frame->bases[ports[i].base];
    if (ports[i].base && views[i].size && made != views[i].data) memcpy(views[i].data, made, views[i].size);
  }
}

#endif
