/* Layout of a version of a plan for sizes of its symbols: offsets, dims and limits of its steps, in memory of its own.
 *
 * Sizes are computed with checks for overflow, and every pointer is checked to lie within its buffer or array. */
#ifndef REWRITE_LAYOUT_H
#define REWRITE_LAYOUT_H

#include "../native/block.h"
#include "plan.h"

#define LAYOUT_ALIGNMENT 64
#define LAYOUT_SERIAL 16384                 /* SERIAL_WORK and LAUNCH_WORK of ir/kernel.py */
#define LAYOUT_LAUNCH (8 * LAYOUT_SERIAL)
#define LAYOUT_ALL_THREADS 255

typedef struct layout_t {
  int64_t *symbols; /* the sizes that it is for; a size that no input determines is -1 */
  const plan_version *version;
  int64_t arena, scratch; /* bytes; scratch of one thread */
  char *shapes;
  int64_t shapes_size;
  int64_t *output_size, *output_offset;
  int32_t *output_from; /* the base of an output that is copied after the run */
  block_part part;
  block_t block;
  plan_block *blocks; /* its memory */
} layout_t;

/* What a layout needs to know of a program and a run. */
typedef struct {
  const plan_t *plan;
  const int64_t *symbols;
  int64_t weights; /* size of the file */
  walk_kernel const *kernels;
  const char *problem;
} layout_job;

static int64_t layout_floordiv(int64_t a, int64_t b) { return a / b - ((a % b != 0) & ((a < 0) != (b < 0))); }

/* Return the value of a dim. A problem is reported in the job. */
static int64_t layout_value(layout_job *job, const plan_dim *dim) {
  int64_t stack[PLAN_STACK];
  int depth = 0;
  if (!dim->count) return dim->value;
  for (int i = 0; i < dim->count && !job->problem; i++) {
    const plan_op *op = &dim->ops[i];
    if (op->code <= OP_SYMBOL) {
      const int64_t value = op->code == OP_NUMBER ? op->value : job->symbols[op->value];
      if (op->code == OP_SYMBOL && value < 0) job->problem = "a size depends on one that no input determines";
      stack[depth++] = value;
      continue;
    }
    const int64_t a = stack[depth - 2], b = stack[depth - 1];
    int64_t found = 0;
    int wrong = 0;
    switch (op->code) {
      case OP_ADD: wrong = __builtin_add_overflow(a, b, &found); break;
      case OP_MULTIPLY: wrong = __builtin_mul_overflow(a, b, &found); break;
      case OP_FLOORDIV:
        wrong = b == 0 || (b == -1 && a == INT64_MIN);
        if (!wrong) found = layout_floordiv(a, b);
        break;
      case OP_MAX: found = a > b ? a : b; break;
      case OP_MIN: found = a < b ? a : b; break;
      case OP_SAME:
        if (a != b) job->problem = "sizes that must be equal are not";
        found = a;
        break;
      default: /* OP_BROADCAST */
        if (a != b && a != 1 && b != 1) job->problem = "sizes cannot be broadcast together";
        found = a == 1 ? b : a;
    }
    if (wrong) job->problem = "a size is out of range";
    stack[--depth - 1] = found;
  }
  return job->problem ? 0 : stack[0];
}

/* Return the value of a dim that is a size of memory or a number of elements. */
static int64_t layout_size(layout_job *job, const plan_dim *dim) {
  const int64_t value = layout_value(job, dim);
  if (value < 0 || value > PLAN_LIMIT) {
    if (!job->problem) job->problem = "a size is out of range";
    return 0;
  }
  return value;
}

static int64_t layout_padded(int64_t size) { return (size + LAYOUT_ALIGNMENT - 1) / LAYOUT_ALIGNMENT * LAYOUT_ALIGNMENT; }

/* Place buffers in an order, each at the lowest offset where none that is alive at the same time lies. Return the size of
 * the arena. `sorted` has room for as many numbers. */
static int64_t layout_place(const plan_buffer *buffers, const int64_t *sizes, const int *order, int count, int64_t *offsets,
                            int *sorted) {
  int64_t arena = 0;
  int placed = 0; /* those placed so far, lowest offset first */
  for (int i = 0; i < count; i++) {
    const int own = order[i];
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
static void layout_sort(int *order, int count, const int64_t *sizes) {
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

/* Place the buffers of a version: by first use, and by size; the smaller arena wins. */
static void layout_arena(layout_job *job, plan_reader *memory, layout_t *layout, int64_t *sizes, int64_t *offsets) {
  const plan_version *version = layout->version;
  const size_t count = (size_t)version->buffers;
  int *order = plan_take(memory, count, sizeof *order), *sorted = plan_take(memory, count, sizeof *sorted);
  int64_t *other = plan_take(memory, count, sizeof *other);
  if (!order || !sorted || !other) return;
  int64_t total = 0;
  for (int i = 0; i < version->buffers; i++) {
    sizes[i] = layout_padded(layout_size(job, &version->buffer[i].size));
    order[i] = i;
    total += sizes[i];
    if (total > PLAN_LIMIT) job->problem = "the model needs more memory than there can be";
    if (job->problem) return;
  }
  layout->arena = layout_place(version->buffer, sizes, order, version->buffers, offsets, sorted);
  layout_sort(order, version->buffers, sizes);
  const int64_t found = layout_place(version->buffer, sizes, order, version->buffers, other, sorted);
  if (found < layout->arena) {
    layout->arena = found;
    memcpy(offsets, other, count * sizeof *other);
  }
}

static void layout_shapes(layout_job *job, plan_reader *memory, layout_t *layout, int64_t *sizes, int64_t *offsets) {
  const plan_version *version = layout->version;
  for (int i = 0; i < version->shapes; i++) {
    sizes[i] = version->shape[i].count * version->shape[i].element_size;
    offsets[i] = layout->shapes_size;
    layout->shapes_size += layout_padded(sizes[i] + MEMORY_SLACK);
  }
  layout->shapes = plan_take(memory, (size_t)layout->shapes_size + LAYOUT_ALIGNMENT, 1);
  if (!layout->shapes) return;
  layout->shapes += (LAYOUT_ALIGNMENT - (uintptr_t)layout->shapes % LAYOUT_ALIGNMENT) % LAYOUT_ALIGNMENT;
  for (int i = 0; i < version->shapes; i++)
    for (int k = 0; k < version->shape[i].count && !job->problem; k++) {
      const int64_t value = layout_value(job, &version->shape[i].dims[k]);
      const int32_t narrow = (int32_t)value;
      char *at = layout->shapes + offsets[i] + k * version->shape[i].element_size;
      if (version->shape[i].element_size == 8)
        memcpy(at, &value, sizeof value);
      else
        memcpy(at, &narrow, sizeof narrow);
    }
}

/* Sizes of everything that pointers of a version can lead to. */
typedef struct {
  const int64_t *arrays; /* by base */
  const int64_t *buffer_size, *buffer_offset, *shape_size, *shape_offset;
} layout_regions;

/* Return the offset of a pointer from its base, after checking that all it leads to is there. */
static int64_t layout_pointer(layout_job *job, const layout_t *layout, const layout_regions *regions,
                              const plan_pointer *pointer, int64_t *size) {
  int64_t start = 0, room;
  switch (pointer->base) {
    case BASE_ARENA:
      room = pointer->part < 0 ? layout->arena : regions->buffer_size[pointer->part];
      start = pointer->part < 0 ? 0 : regions->buffer_offset[pointer->part];
      break;
    case BASE_WEIGHTS: room = job->weights > MEMORY_SLACK ? job->weights - MEMORY_SLACK : 0; break;
    case BASE_SHAPES:
      room = regions->shape_size[pointer->part];
      start = regions->shape_offset[pointer->part];
      break;
    default: room = regions->arrays[pointer->base];
  }
  const int64_t offset = layout_size(job, &pointer->offset);
  *size = layout_size(job, &pointer->size);
  if (!job->problem && (offset > room || *size > room - offset)) job->problem = "a value lies outside its buffer";
  return start + offset;
}

static int64_t layout_bytes(layout_job *job, const plan_port *port) {
  int64_t size = (int64_t)port->port.element_size;
  for (int i = 0; i < port->port.rank && !job->problem; i++)
    if (__builtin_mul_overflow(size, layout_size(job, &port->dims[i]), &size) || size > PLAN_LIMIT)
      job->problem = "an array is larger than memory can be";
  return size;
}

/* Fill in the steps: pointers, dims and limits. */
static void layout_steps(layout_job *job, plan_reader *memory, layout_t *layout, const layout_regions *regions) {
  const plan_version *version = layout->version;
  size_t pointers = 0, dims = 0, count = (size_t)version->steps;
  for (int i = 0; i < version->steps; i++) {
    const plan_step *step = &version->step[i];
    pointers += (size_t)step->inputs + (size_t)step->outputs + (size_t)step->scratch + (size_t)step->guards;
    dims += (size_t)step->dims;
  }
  walk_step *steps = plan_take(memory, count, sizeof *steps);
  unsigned char *limits = plan_take(memory, count, 1);
  int64_t *work = plan_take(memory, count, sizeof *work);
  int32_t *bases = plan_take(memory, pointers, sizeof *bases);
  int64_t *offsets = plan_take(memory, pointers, sizeof *offsets), *values = plan_take(memory, dims, sizeof *values);
  if (memory->problem) return;
  int32_t at = 0, dim = 0;
  int64_t parallel = 0;
  for (int i = 0; i < version->steps && !job->problem; i++) {
    const plan_step *step = &version->step[i];
    int writes = 0;
    steps[i] = (walk_step){job->kernels[step->kernel], at, dim, step->guards, 0, step->wanted};
    for (int k = 0; k < step->inputs + step->outputs + step->guards; k++) {
      int64_t size;
      if (k == step->inputs + step->outputs) steps[i].first = at + step->scratch;
      if (k == step->inputs + step->outputs && step->scratch) bases[at++] = BASE_SCRATCH;
      bases[at] = step->pointers[k].base;
      offsets[at++] = layout_pointer(job, layout, regions, &step->pointers[k], &size);
      if (k >= step->inputs && k < step->inputs + step->outputs) writes |= size > 0;
      if (k >= step->inputs + step->outputs && size < 1) job->problem = "a condition has no elements";
    }
    if (step->scratch && !step->guards) bases[at++] = BASE_SCRATCH;
    for (int k = 0; k < step->dims; k++) values[dim++] = layout_value(job, &step->dim[k]);
    const int64_t scratch = step->scratch ? layout_padded(layout_size(job, &step->scratch_size)) : 0;
    if (scratch > layout->scratch) layout->scratch = scratch;
    work[i] = layout_value(job, &step->work);
    if (work[i] < 1) work[i] = 1;
    for (int k = 0; k < step->only; k++)
      if (layout_value(job, &step->limits[2 * k]) > layout_value(job, &step->limits[2 * k + 1])) work[i] = 0;
    if (!writes) work[i] = 0;
    if (work[i] >= LAYOUT_SERIAL && __builtin_add_overflow(parallel, work[i], &parallel)) parallel = INT64_MAX;
  }
  int serial = 1;
  for (int i = 0; i < version->steps; i++) {
    const int alone = parallel < LAYOUT_LAUNCH || work[i] < LAYOUT_SERIAL;
    limits[i] = alone ? work[i] > 0 : LAYOUT_ALL_THREADS;
    if (limits[i] > 1) serial = 0;
  }
  layout->part = (block_part){steps, limits, bases, offsets, values, version->steps, (int)pointers, serial, NULL};
  layout->block = (block_t){version->steps > 0, &layout->part};
}

/* Return the layout of a version for the job's sizes; NULL after a problem, which the job reports (none: no memory). */
static layout_t *layout_make(layout_job *job, const plan_version *version) {
  const plan_t *plan = job->plan;
  layout_t *layout = calloc(1, sizeof *layout);
  if (!layout) return NULL;
  plan_reader memory = {.blocks = &layout->blocks};
  layout->version = version;
  layout->symbols = plan_take(&memory, (size_t)plan->symbols, sizeof *layout->symbols);
  layout->output_size = plan_take(&memory, (size_t)plan->outputs, sizeof *layout->output_size);
  layout->output_offset = plan_take(&memory, (size_t)plan->outputs, sizeof *layout->output_offset);
  layout->output_from = plan_take(&memory, (size_t)plan->outputs, sizeof *layout->output_from);
  int64_t *arrays = plan_take(&memory, (size_t)version->bases, sizeof *arrays);
  int64_t *buffer = plan_take(&memory, 2 * (size_t)version->buffers, sizeof *buffer);
  int64_t *shape = plan_take(&memory, 2 * (size_t)version->shapes, sizeof *shape);
  if (memory.problem) goto fail;
  memcpy(layout->symbols, job->symbols, (size_t)plan->symbols * sizeof *layout->symbols);
  for (int i = 0; i < plan->inputs; i++) arrays[version->input_base[i]] = layout_bytes(job, &plan->input[i]);
  for (int i = 0; i < plan->outputs; i++)
    arrays[version->output_base[i]] = layout->output_size[i] = layout_bytes(job, &plan->output[i]);
  arrays[BASE_NONE] = 0;
  layout->arena = version->arena;
  if (version->arena < 0) layout_arena(job, &memory, layout, buffer, buffer + version->buffers);
  layout_shapes(job, &memory, layout, shape, shape + version->shapes);
  if (job->problem || memory.problem) goto fail;
  const layout_regions regions = {arrays, buffer, buffer + version->buffers, shape, shape + version->shapes};
  for (int i = 0; i < plan->outputs; i++) {
    int64_t size;
    const plan_pointer *from = &version->output_pointer[i];
    if (version->output_base[i]) continue;
    layout->output_from[i] = from->base;
    layout->output_offset[i] = layout_pointer(job, layout, &regions, from, &size);
    if (size != layout->output_size[i] && !job->problem) job->problem = "an output has another size than declared";
  }
  layout_steps(job, &memory, layout, &regions);
  if (job->problem || memory.problem) goto fail;
  return layout;
fail:
  plan_free(layout->blocks);
  free(layout);
  return NULL;
}

static void layout_free(layout_t *layout) {
  if (!layout) return;
  plan_free(layout->blocks);
  free(layout);
}

#endif
