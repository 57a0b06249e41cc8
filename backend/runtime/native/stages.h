/* Later stages of a run: steps whose sizes data have determined, by a count that a kernel of an earlier stage wrote.
 *
 * Sizes are dims in symbols. A stage reads its counts, evaluates its dims, places its buffers in an arena of its own, and is
 * then a part of a block like all others. What is evaluated is kept, for runs with the same sizes. */
#ifndef REWRITE_STAGES_H
#define REWRITE_STAGES_H

#include <stdint.h>
#include <string.h>

#include "arena.h"
#include "block.h"

/* A location: an offset from a base, or from a part, whose own offset is known in the run. */
typedef struct {
  int32_t base;
  int32_t part; /* a buffer of an arena, or the numbers of a shape; -1: none */
  dim_t offset;
} stage_pointer;

/* An extent that data have determined. */
typedef struct {
  stage_pointer count; /* of one int64 */
  int32_t symbol;
  dim_t most;
} stage_measure;

/* What a step's dims are among those of its stage, one kind after the other: dims of the kernel, bytes of its outputs, pairs
 * of which the first must not exceed the second. */
typedef struct {
  int32_t dims, sizes, pairs;
  dim_t work, scratch;
} stage_step;

/* A tensor of numbers that follow from sizes. */
typedef struct {
  int32_t count;
  int32_t element_size; /* 4 or 8 */
  int64_t offset;       /* in the memory of such tensors */
  const dim_t *numbers;
} stage_shape;

/* An output that the stage writes to an array of its own. */
typedef struct {
  int32_t number, base, rank;
  int64_t element_size;
  const dim_t *shape;
} stage_output;

typedef struct {
  int measures, steps, pointers, dims, buffers, shapes, outputs;
  int32_t arena;  /* its base */
  int32_t buffer; /* the part that is its first buffer; its shapes follow them */
  const stage_measure *measure;
  const walk_step *walk;
  const int32_t *bases; /* of the pointers */
  const stage_pointer *pointer;
  const stage_step *step;
  const dim_t *dim;         /* of all steps, as in `stage_step` */
  const arena_buffer *live; /* its buffers */
  const stage_shape *shape;
  const stage_output *output;
} stage_t;

/* Sizes of a stage in a run. */
typedef struct {
  int64_t *symbols; /* for which they are evaluated; the first is -2 if for none */
  int64_t *offsets, *dims, *work;
  unsigned char *limits;
  char *numbers; /* of its shapes */
  arena_room room;
  int64_t arena, scratch; /* bytes; scratch of one thread */
  block_part part;
} stage_sizes;

/* Read the counts that come before a stage. Return whether they are what they can be. */
static int stage_measured(const stage_t *stage, const int64_t *bases, const int64_t *parts, dim_values *values,
                          int64_t *symbols) {
  for (int i = 0; i < stage->measures; i++) {
    const stage_measure *measure = &stage->measure[i];
    const int64_t start = measure->count.part < 0 ? 0 : parts[measure->count.part];
    const int64_t offset = dim_value(values, &measure->count.offset), most = dim_value(values, &measure->most);
    int64_t *known = &symbols[measure->symbol], count;
    if (values->problem) return 0;
    memcpy(&count, (const char *)(intptr_t)(bases[measure->count.base] + start + offset), sizeof count);
    if (count < 0 || count > most || (*known >= 0 && *known != count)) return 0;
    *known = count;
  }
  return 1;
}

static void stage_fill(const stage_shape *shape, dim_values *values, char *numbers) {
  for (int i = 0; i < shape->count; i++) {
    const int64_t value = dim_value(values, &shape->numbers[i]);
    const int32_t low = (int32_t)value;
    char *at = numbers + shape->offset + (int64_t)i * shape->element_size;
    if (shape->element_size == 8)
      memcpy(at, &value, sizeof value);
    else
      memcpy(at, &low, sizeof low);
  }
}

/* Return the work of a step, 0 if it must not run. Sizes of a branch that is not taken need not fit together. */
static int64_t stage_work(const stage_step *step, const dim_t *dim, int guards, dim_values *values) {
  int writes = 0, runs = 1;
  for (int k = 0; k < step->sizes; k++) writes |= dim_size(values, &dim[step->dims + k]) > 0;
  if (values->problem || !writes) return 0;
  for (const dim_t *pair = dim + step->dims + step->sizes, *end = pair + 2 * step->pairs; pair < end; pair += 2)
    runs &= dim_value(values, &pair[0]) <= dim_value(values, &pair[1]);
  const int64_t work = dim_value(values, &step->work);
  if (values->problem && guards) {
    values->problem = NULL;
    return 0;
  }
  return !runs ? 0 : work > 1 ? work : 1;
}

/* Evaluate the sizes of a stage, and place its buffers. Return whether they can be evaluated. */
static int stage_evaluate(const stage_t *stage, stage_sizes *sizes, int64_t *parts, dim_values *values) {
  int64_t *dims = sizes->dims;
  const dim_t *dim = stage->dim;
  sizes->arena = arena_place(values, stage->live, stage->buffers, &sizes->room, parts + stage->buffer);
  for (int i = 0; i < stage->shapes; i++) stage_fill(&stage->shape[i], values, sizes->numbers);
  sizes->scratch = 0;
  for (int i = 0; i < stage->steps && !values->problem; i++) {
    const stage_step *step = &stage->step[i];
    const int64_t scratch = arena_padded(dim_size(values, &step->scratch));
    if (scratch > sizes->scratch) sizes->scratch = scratch;
    sizes->work[i] = stage_work(step, dim, stage->walk[i].guards, values);
    for (int k = 0; k < step->dims; k++) *dims++ = sizes->work[i] ? dim_value(values, &dim[k]) : 0;
    dim += step->dims + step->sizes + 2 * step->pairs;
  }
  for (int i = 0; i < stage->pointers && !values->problem; i++) {
    const stage_pointer *pointer = &stage->pointer[i];
    sizes->offsets[i] = dim_value(values, &pointer->offset) + (pointer->part < 0 ? 0 : parts[pointer->part]);
  }
  if (values->problem) return 0;
  const int serial = walk_limit(sizes->work, sizes->limits, stage->steps);
  sizes->part = (block_part){stage->walk, sizes->limits, stage->bases, sizes->offsets, sizes->dims, stage->steps,
                             stage->pointers, serial, NULL};
  return 1;
}

/* Read the counts before a stage and prepare its sizes. Return whether it can run so. `symbols` are `count` numbers, as many
 * as those of `sizes`, which has its parts as long as none of them changes. */
static int stage_begin(const stage_t *stage, stage_sizes *sizes, const int64_t *bases, int64_t *parts, int64_t *symbols,
                       int count) {
  dim_values values = {.symbols = symbols};
  const size_t size = (size_t)count * sizeof *symbols;
  if (!stage_measured(stage, bases, parts, &values, symbols)) return 0;
  if (!memcmp(sizes->symbols, symbols, size)) return 1;
  sizes->symbols[0] = -2;
  if (!stage_evaluate(stage, sizes, parts, &values)) return 0;
  memcpy(sizes->symbols, symbols, size);
  return 1;
}

#endif
