/* Layout of a version of a plan for sizes of its symbols: offsets, dims and limits of its steps, in memory of its own.
 *
 * Sizes are computed with checks for overflow, and every pointer is checked to lie within its buffer or array. */
#ifndef REWRITE_LAYOUT_H
#define REWRITE_LAYOUT_H

#include "../native/block.h"
#include "plan.h"

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
  dim_values values;
  int64_t weights; /* size of the file */
  walk_kernel const *kernels;
} layout_job;

/* Place the buffers of a version. */
static void layout_arena(layout_job *job, plan_reader *memory, layout_t *layout, int64_t *sizes, int64_t *offsets) {
  const plan_version *version = layout->version;
  const size_t count = (size_t)version->buffers;
  arena_room room = {plan_take(memory, count, sizeof *room.order), plan_take(memory, count, sizeof *room.sorted), sizes,
                     plan_take(memory, count, sizeof *room.other)};
  if (room.order && room.sorted && room.other)
    layout->arena = arena_place(&job->values, version->buffer, version->buffers, &room, offsets);
}

static void layout_shapes(layout_job *job, plan_reader *memory, layout_t *layout, int64_t *sizes, int64_t *offsets) {
  const plan_version *version = layout->version;
  for (int i = 0; i < version->shapes; i++) {
    sizes[i] = version->shape[i].count * version->shape[i].element_size;
    offsets[i] = layout->shapes_size;
    layout->shapes_size += arena_padded(sizes[i] + MEMORY_SLACK);
  }
  layout->shapes = plan_take(memory, (size_t)layout->shapes_size + ARENA_ALIGNMENT, 1);
  if (!layout->shapes) return;
  layout->shapes += (ARENA_ALIGNMENT - (uintptr_t)layout->shapes % ARENA_ALIGNMENT) % ARENA_ALIGNMENT;
  for (int i = 0; i < version->shapes; i++)
    for (int k = 0; k < version->shape[i].count && !job->values.problem; k++) {
      const int64_t value = dim_value(&job->values, &version->shape[i].dims[k]);
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
  const int64_t offset = dim_size(&job->values, &pointer->offset);
  *size = dim_size(&job->values, &pointer->size);
  if (!job->values.problem && (offset > room || *size > room - offset)) job->values.problem = "a value lies outside its buffer";
  return start + offset;
}

static int64_t layout_bytes(layout_job *job, const plan_port *port) {
  int64_t size = (int64_t)port->port.element_size;
  for (int i = 0; i < port->port.rank && !job->values.problem; i++)
    if (__builtin_mul_overflow(size, dim_size(&job->values, &port->dims[i]), &size) || size > DIM_LIMIT)
      job->values.problem = "an array is larger than memory can be";
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
  for (int i = 0; i < version->steps && !job->values.problem; i++) {
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
      if (k >= step->inputs + step->outputs && size < 1) job->values.problem = "a condition has no elements";
    }
    if (step->scratch && !step->guards) bases[at++] = BASE_SCRATCH;
    for (int k = 0; k < step->dims; k++) values[dim++] = dim_value(&job->values, &step->dim[k]);
    const int64_t scratch = step->scratch ? arena_padded(dim_size(&job->values, &step->scratch_size)) : 0;
    if (scratch > layout->scratch) layout->scratch = scratch;
    work[i] = dim_value(&job->values, &step->work);
    if (work[i] < 1) work[i] = 1;
    for (int k = 0; k < step->only; k++)
      if (dim_value(&job->values, &step->limits[2 * k]) > dim_value(&job->values, &step->limits[2 * k + 1])) work[i] = 0;
    if (!writes) work[i] = 0;
  }
  const int serial = walk_limit(work, limits, version->steps);
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
  memcpy(layout->symbols, job->values.symbols, (size_t)plan->symbols * sizeof *layout->symbols);
  for (int i = 0; i < plan->inputs; i++) arrays[version->input_base[i]] = layout_bytes(job, &plan->input[i]);
  for (int i = 0; i < plan->outputs; i++)
    arrays[version->output_base[i]] = layout->output_size[i] = layout_bytes(job, &plan->output[i]);
  arrays[BASE_NONE] = 0;
  layout->arena = version->arena;
  if (version->arena < 0) layout_arena(job, &memory, layout, buffer, buffer + version->buffers);
  layout_shapes(job, &memory, layout, shape, shape + version->shapes);
  if (job->values.problem || memory.problem) goto fail;
  const layout_regions regions = {arrays, buffer, buffer + version->buffers, shape, shape + version->shapes};
  for (int i = 0; i < plan->outputs; i++) {
    int64_t size;
    const plan_pointer *from = &version->output_pointer[i];
    if (version->output_base[i]) continue;
    layout->output_from[i] = from->base;
    layout->output_offset[i] = layout_pointer(job, layout, &regions, from, &size);
    if (size != layout->output_size[i] && !job->values.problem) job->values.problem = "an output has another size than declared";
  }
  layout_steps(job, &memory, layout, &regions);
  if (job->values.problem || memory.problem) goto fail;
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
