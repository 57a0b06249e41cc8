/* The plan of a bundle for C: `plan.bin`, which bundle/c_plan.py writes, as structures. Every number is checked.
 *
 * The file is a magic number, the CRC-32 of the rest, and words of 64 bits, little-endian. A text is its length and its
 * bytes, padded to a word. A dim is a number of operations in postfix order, or 0 and its value. */
#ifndef REWRITE_PLAN_H
#define REWRITE_PLAN_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../native/arena.h"
#include "files.h"
#include "rewrite.h"

#define PLAN_FORMAT 1
#define PLAN_ANY INT64_MIN /* lowest value of a number that may be anything */

/* Bases with a meaning of their own; those of arrays follow. */
enum { BASE_NONE = 0, BASE_SCRATCH, BASE_ARENA, BASE_WEIGHTS, BASE_SHAPES, BASE_FIRST };

typedef struct {
  int32_t base, part; /* part: number of the buffer in the arena, or of the shape; -1: none */
  dim_t offset, size;
} plan_pointer;

typedef struct {
  int64_t element_size;
  int count;
  dim_t *dims;
} plan_shape;

typedef struct {
  int kernel, inputs, outputs, scratch, guards, dims, only;
  uint32_t wanted;
  plan_pointer *pointers; /* to inputs, outputs, flags of guards */
  dim_t scratch_size, work;
  dim_t *dim;
  dim_t *limits; /* pairs of which the first must not exceed the second */
} plan_step;

typedef struct {
  dim_t left, right;
  int equal;
} plan_guard;

typedef struct {
  int guards, fails, bases, buffers, shapes, steps;
  plan_guard *guard;
  const char *refused; /* why it cannot run here, or fails; empty if it can, or for no known reason */
  int64_t arena;       /* its size; negative: the buffers are placed at run time */
  int *input_base;
  int *output_base;             /* 0: copied from the pointer after the run */
  plan_pointer *output_pointer; /* of each output */
  char *shares;
  arena_buffer *buffer;
  plan_shape *shape;
  plan_step *step;
} plan_version;

typedef struct {
  rewrite_port port;
  dim_t *dims;
  int64_t fallback; /* offset of the default in the weights; -1: none */
} plan_port;

typedef struct {
  const char *name;
  int64_t size, crc;
} plan_file;

typedef struct {
  int symbols, inputs, outputs, versions, kernels, modules, threads;
  plan_port *input, *output;
  plan_version *version;
  const char **kernel, **module;
} plan_t;

/* Memory of a plan, released at once. */
typedef struct plan_block {
  struct plan_block *next;
} plan_block;

typedef struct {
  const unsigned char *at, *end;
  plan_block **blocks;
  const char *problem; /* the first one */
  int64_t weights;     /* size of that file */
  int no_memory;
} plan_reader;

static void plan_free(plan_block *blocks) {
  while (blocks) {
    plan_block *next = blocks->next;
    free(blocks);
    blocks = next;
  }
}

static void *plan_take(plan_reader *reader, size_t count, size_t size) {
  plan_block *block = calloc(1, sizeof(plan_block) + 16 + (count ? count : 1) * size);
  if (!block) {
    reader->no_memory = 1;
    if (!reader->problem) reader->problem = "there is not enough memory";
    return NULL;
  }
  block->next = *reader->blocks;
  *reader->blocks = block;
  return (char *)block + 16;
}

static void *plan_wrong(plan_reader *reader, const char *problem) {
  if (!reader->problem) reader->problem = problem;
  return NULL;
}

static int64_t plan_word(plan_reader *reader, int64_t low, int64_t high) {
  int64_t value;
  if (reader->problem) return low > 0 ? low : 0;
  if (reader->end - reader->at < 8) return plan_wrong(reader, "it ends too early"), low > 0 ? low : 0;
  memcpy(&value, reader->at, 8);
  reader->at += 8;
  if (value < low || value > high) return plan_wrong(reader, "a number is out of range"), low > 0 ? low : 0;
  return value;
}

/* Return a number of items, each of which takes at least a word of the rest. */
static int plan_count(plan_reader *reader) {
  const int64_t most = (reader->end - reader->at) / 8;
  return (int)plan_word(reader, 0, most < 1 << 24 ? most : 1 << 24);
}

static const char *plan_text(plan_reader *reader) {
  const int64_t size = plan_word(reader, 0, 1 << 20), padded = (size + 7) / 8 * 8;
  if (reader->problem) return "";
  if (reader->end - reader->at < padded) return plan_wrong(reader, "it ends too early"), "";
  char *text = plan_take(reader, (size_t)size + 1, 1);
  if (!text) return "";
  memcpy(text, reader->at, (size_t)size);
  reader->at += padded;
  if (memchr(text, 0, (size_t)size)) plan_wrong(reader, "a text has a zero");
  return text;
}

static dim_t plan_read_dim(plan_reader *reader, int symbols) {
  const int count = plan_count(reader);
  if (!count) return (dim_t){plan_word(reader, PLAN_ANY, INT64_MAX), 0, NULL};
  dim_op *ops = plan_take(reader, (size_t)count, sizeof *ops);
  int depth = 0;
  for (int i = 0; ops && i < count && !reader->problem; i++) {
    ops[i].code = plan_word(reader, 0, OP_COUNT - 1);
    if (ops[i].code == OP_NUMBER) ops[i].value = plan_word(reader, PLAN_ANY, INT64_MAX);
    if (ops[i].code == OP_SYMBOL) ops[i].value = plan_word(reader, 0, (int64_t)symbols - 1);
    depth += ops[i].code <= OP_SYMBOL ? 1 : -1;
    if (depth < 1 || depth > DIM_STACK) plan_wrong(reader, "a size is not well formed");
  }
  if (depth != 1) plan_wrong(reader, "a size is not well formed");
  if (reader->problem) return (dim_t){0, 0, NULL};
  return (dim_t){0, count, ops};
}

static dim_t *plan_read_dims(plan_reader *reader, int count, int symbols) {
  dim_t *dims = plan_take(reader, (size_t)count, sizeof *dims);
  for (int i = 0; dims && i < count && !reader->problem; i++) dims[i] = plan_read_dim(reader, symbols);
  return dims;
}

static plan_pointer plan_read_pointer(plan_reader *reader, const plan_version *version, int symbols) {
  plan_pointer found = {.base = (int32_t)plan_word(reader, BASE_ARENA, version->bases - 1)};
  found.part = (int32_t)plan_word(reader, -1, INT32_MAX);
  const int parts = found.base == BASE_ARENA ? version->buffers : found.base == BASE_SHAPES ? version->shapes : 0;
  const int needed = found.base == BASE_SHAPES || (found.base == BASE_ARENA && version->arena < 0);
  if (found.part >= parts || (needed && found.part < 0)) plan_wrong(reader, "a pointer leads nowhere");
  found.offset = plan_read_dim(reader, symbols);
  found.size = plan_read_dim(reader, symbols);
  return found;
}

static void plan_read_step(plan_reader *reader, const plan_t *plan, const plan_version *version, plan_step *step) {
  step->kernel = (int)plan_word(reader, 0, plan->kernels - 1);
  step->inputs = plan_count(reader);
  step->outputs = plan_count(reader);
  step->scratch = (int)plan_word(reader, 0, 1);
  step->guards = (int)plan_word(reader, 0, 32);
  const int pointers = step->inputs + step->outputs + step->guards;
  step->pointers = plan_take(reader, (size_t)pointers, sizeof *step->pointers);
  for (int i = 0; step->pointers && i < pointers && !reader->problem; i++)
    step->pointers[i] = plan_read_pointer(reader, version, plan->symbols);
  step->wanted = (uint32_t)plan_word(reader, 0, UINT32_MAX);
  step->scratch_size = plan_read_dim(reader, plan->symbols);
  step->work = plan_read_dim(reader, plan->symbols);
  step->dims = plan_count(reader);
  step->dim = plan_read_dims(reader, step->dims, plan->symbols);
  step->only = plan_count(reader);
  step->limits = plan_read_dims(reader, 2 * step->only, plan->symbols);
}

static void plan_read_body(plan_reader *reader, const plan_t *plan, plan_version *version) {
  version->bases = (int)plan_word(reader, BASE_FIRST, 1 << 24);
  version->arena = plan_word(reader, -1, DIM_LIMIT);
  version->buffers = plan_count(reader);
  version->buffer = plan_take(reader, (size_t)version->buffers, sizeof *version->buffer);
  for (int i = 0; version->buffer && i < version->buffers && !reader->problem; i++) {
    arena_buffer *buffer = &version->buffer[i];
    buffer->size = plan_read_dim(reader, plan->symbols);
    buffer->first = plan_word(reader, 0, INT32_MAX);
    buffer->last = plan_word(reader, buffer->first, INT32_MAX);
  }
  version->shapes = plan_count(reader);
  version->shape = plan_take(reader, (size_t)version->shapes, sizeof *version->shape);
  for (int i = 0; version->shape && i < version->shapes && !reader->problem; i++) {
    plan_shape *shape = &version->shape[i];
    shape->element_size = plan_word(reader, 4, 8);
    if (shape->element_size != 4 && shape->element_size != 8) plan_wrong(reader, "a shape has elements of a wrong size");
    shape->count = plan_count(reader);
    shape->dims = plan_read_dims(reader, shape->count, plan->symbols);
  }
  /* Arrays have bases of their own: no two ports share one. */
  unsigned char *taken = plan_take(reader, (size_t)version->bases, 1);
  version->input_base = plan_take(reader, (size_t)plan->inputs, sizeof *version->input_base);
  version->output_base = plan_take(reader, (size_t)plan->outputs, sizeof *version->output_base);
  version->output_pointer = plan_take(reader, (size_t)plan->outputs, sizeof *version->output_pointer);
  for (int i = 0; i < plan->inputs + plan->outputs && !reader->problem; i++) {
    const int base = (int)plan_word(reader, 0, version->bases - 1);
    if (base && (base < BASE_FIRST || taken[base]++)) plan_wrong(reader, "two arrays have one base");
    if (reader->problem) return;
    if (i < plan->inputs) {
      version->input_base[i] = base;
    } else {
      version->output_base[i - plan->inputs] = base;
      version->output_pointer[i - plan->inputs] = plan_read_pointer(reader, version, plan->symbols);
    }
  }
  version->shares = plan_take(reader, (size_t)plan->inputs * (size_t)plan->outputs, 1);
  for (int i = 0, count = plan_count(reader); i < count && !reader->problem; i++) {
    const int64_t input = plan_word(reader, 0, plan->inputs - 1), output = plan_word(reader, 0, plan->outputs - 1);
    if (!reader->problem) version->shares[input * plan->outputs + output] = 1;
  }
  version->steps = plan_count(reader);
  version->step = plan_take(reader, (size_t)version->steps, sizeof *version->step);
  for (int i = 0; version->step && i < version->steps && !reader->problem; i++)
    plan_read_step(reader, plan, version, &version->step[i]);
}

static void plan_read_port(plan_reader *reader, const plan_t *plan, plan_port *port) {
  int64_t *dims = NULL;
  const char **names = NULL;
  port->port.name = plan_text(reader);
  port->port.type = (int)plan_word(reader, 1, 1 << 10);
  port->port.element_size = (size_t)plan_word(reader, 1, 64);
  port->port.rank = (int)plan_word(reader, 0, REWRITE_MAX_RANK);
  port->dims = plan_take(reader, (size_t)port->port.rank, sizeof *port->dims);
  port->port.dims = dims = plan_take(reader, (size_t)port->port.rank, sizeof *dims);
  port->port.dim_names = names = plan_take(reader, (size_t)port->port.rank, sizeof *names);
  for (int i = 0; i < port->port.rank && !reader->problem; i++) {
    port->dims[i] = plan_read_dim(reader, plan->symbols);
    const char *name = plan_text(reader);
    dims[i] = port->dims[i].count ? REWRITE_FREE_DIM : port->dims[i].value;
    names[i] = port->dims[i].count ? name : NULL;
    if (!port->dims[i].count && (dims[i] < 0 || dims[i] > DIM_LIMIT)) plan_wrong(reader, "a dim is out of range");
  }
  port->fallback = plan_word(reader, -1, reader->weights);
  port->port.optional = port->fallback >= 0;
}

static const char **plan_read_texts(plan_reader *reader, int *count) {
  *count = plan_count(reader);
  const char **texts = plan_take(reader, (size_t)*count, sizeof *texts);
  for (int i = 0; texts && i < *count && !reader->problem; i++) texts[i] = plan_text(reader);
  return texts;
}

/* Read the plan of a variant. */
static void plan_read(plan_reader *reader, plan_t *plan) {
  plan->module = plan_read_texts(reader, &plan->modules);
  plan->kernel = plan_read_texts(reader, &plan->kernels);
  plan->symbols = plan_count(reader);
  plan->inputs = plan_count(reader);
  plan->input = plan_take(reader, (size_t)plan->inputs, sizeof *plan->input);
  for (int i = 0; plan->input && i < plan->inputs && !reader->problem; i++)
    plan_read_port(reader, plan, &plan->input[i]);
  plan->outputs = plan_count(reader);
  plan->output = plan_take(reader, (size_t)plan->outputs, sizeof *plan->output);
  for (int i = 0; plan->output && i < plan->outputs && !reader->problem; i++)
    plan_read_port(reader, plan, &plan->output[i]);
  plan->versions = plan_count(reader);
  plan->version = plan_take(reader, (size_t)plan->versions, sizeof *plan->version);
  for (int i = 0; plan->version && i < plan->versions && !reader->problem; i++) {
    plan_version *version = &plan->version[i];
    version->guards = plan_count(reader);
    version->guard = plan_take(reader, (size_t)version->guards, sizeof *version->guard);
    for (int g = 0; version->guard && g < version->guards && !reader->problem; g++) {
      version->guard[g].left = plan_read_dim(reader, plan->symbols);
      version->guard[g].right = plan_read_dim(reader, plan->symbols);
      version->guard[g].equal = (int)plan_word(reader, 0, 1);
    }
    version->fails = (int)plan_word(reader, 0, 1);
    version->refused = plan_text(reader);
    if (!version->fails && !*version->refused) plan_read_body(reader, plan, version);
  }
}

#endif
