/* The library behind rewrite.h: loading of bundles, and runs by the same core as Python's (runtime/native). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "rewrite.h"

#include "../native/block.h"
#include "../native/call.h"
#include "layout.h"
#include "loading.h"

#define LAYOUTS 16 /* of a context: programs run with few different sizes */

struct rewrite_context {
  rewrite_program *program;
  frame_t frame;
  int threads;
  int64_t *symbols;
  call_view *views;
  call_port *ports;
  layout_t *layouts[LAYOUTS]; /* the latest first */
};

int rewrite_api_version(void) { return REWRITE_API_VERSION; }

rewrite_status rewrite_open(const char *bundle, rewrite_program **program, rewrite_error *error) {
  if (program) *program = NULL;
  if (!bundle || !program) return failed(error, REWRITE_INVALID_ARGUMENT, "rewrite_open needs a path and a program");
  struct stat about;
  char *path = join(bundle, "plan.bin");
  if (!path) return no_memory(error);
  if (stat(path, &about)) {
    const int there = !stat(bundle, &about);
    free(path);
    return failed(error, REWRITE_NOT_A_BUNDLE,
                  there ? "%s: this is not a bundle for C: it has no plan.bin. Compile the model with --c."
                        : "%s: there is no such bundle",
                  bundle);
  }
  file_map map;
  rewrite_status status = file_open(path, &map, error);
  free(path);
  if (status) return status;
  rewrite_program *found = calloc(1, sizeof *found);
  if (!found) {
    file_close(&map);
    return no_memory(error);
  }
  atomic_store(&found->users, 1);
  pthread_mutex_lock(&programs_lock);
  programs++;
  pthread_mutex_unlock(&programs_lock);
  status = load_plan(found, bundle, &map, error);
  file_close(&map);
  if (status) {
    release(found);
    return status;
  }
  *program = found;
  return REWRITE_OK;
}

void rewrite_close(rewrite_program *program) {
  if (program) release(program);
}

/* --- questions ---------------------------------------------------------------------------------------------------- */

size_t rewrite_input_count(const rewrite_program *program) { return (size_t)program->plan.inputs; }

size_t rewrite_output_count(const rewrite_program *program) { return (size_t)program->plan.outputs; }

const rewrite_port *rewrite_input(const rewrite_program *program, size_t number) {
  return number < (size_t)program->plan.inputs ? &program->plan.input[number].port : NULL;
}

const rewrite_port *rewrite_output(const rewrite_program *program, size_t number) {
  return number < (size_t)program->plan.outputs ? &program->plan.output[number].port : NULL;
}

int rewrite_thread_count(const rewrite_program *program) { return program->plan.threads; }

/* --- runs --------------------------------------------------------------------------------------------------------- */

rewrite_status rewrite_context_new(rewrite_program *program, int threads, rewrite_context **context,
                                   rewrite_error *error) {
  if (context) *context = NULL;
  if (!program || !context) return failed(error, REWRITE_INVALID_ARGUMENT, "rewrite_context_new needs a program");
  if (threads < 0 || threads > MAX_THREADS)
    return failed(error, REWRITE_INVALID_ARGUMENT, "threads must be 1 to %d, or 0, not %d", MAX_THREADS, threads);
  const plan_t *plan = &program->plan;
  const size_t ports = (size_t)plan->inputs + (size_t)plan->outputs;
  int bases = BASE_FIRST;
  for (int i = 0; i < plan->versions; i++)
    if (plan->version[i].bases > bases) bases = plan->version[i].bases;
  rewrite_context *found = calloc(1, sizeof *found);
  if (!found) return no_memory(error);
  found->symbols = calloc((size_t)plan->symbols + 1, sizeof *found->symbols);
  found->views = calloc(ports + 1, sizeof *found->views);
  found->ports = calloc(ports + 1, sizeof *found->ports);
  const int failed_frame = frame_make(&found->frame, bases);
  found->program = program;
  found->threads = threads ? threads : plan->threads;
  atomic_fetch_add(&program->users, 1);
  if (failed_frame || !found->symbols || !found->views || !found->ports) {
    rewrite_context_free(found);
    return no_memory(error);
  }
  *context = found;
  return REWRITE_OK;
}

void rewrite_context_free(rewrite_context *context) {
  if (!context) return;
  for (int i = 0; i < LAYOUTS; i++) layout_free(context->layouts[i]);
  frame_free(&context->frame);
  free(context->symbols);
  free(context->views);
  free(context->ports);
  release(context->program);
  free(context);
}

/* Check the dims of the inputs and learn the sizes of the symbols from them. */
static rewrite_status bind_symbols(rewrite_context *context, const rewrite_tensor *inputs, size_t count,
                                   rewrite_error *error) {
  const plan_t *plan = &context->program->plan;
  if (count != (size_t)plan->inputs || (count && !inputs))
    return failed(error, REWRITE_INVALID_ARGUMENT, "%zu inputs were given, the model has %d", count, plan->inputs);
  for (int i = 0; i < plan->symbols; i++) context->symbols[i] = -1;
  for (int pass = 0; pass < 2; pass++) /* plain names first: other dims may depend on them */
    for (int i = 0; i < plan->inputs; i++) {
      const plan_port *port = &plan->input[i];
      if (port->fallback >= 0 && !inputs[i].data) continue; /* its default has the declared dims, which are fixed */
      if (inputs[i].rank != port->port.rank || (inputs[i].rank && !inputs[i].dims))
        return failed(error, REWRITE_INVALID_ARGUMENT, "input '%s' has rank %d, the model wants %d", port->port.name,
                      inputs[i].rank, port->port.rank);
      for (int axis = 0; axis < port->port.rank; axis++) {
        const dim_t *dim = &port->dims[axis];
        const int64_t given = inputs[i].dims[axis];
        const int plain = dim->count == 1 && dim->ops[0].code == OP_SYMBOL;
        int64_t wanted;
        if (given < 0 || given > DIM_LIMIT)
          return failed(error, REWRITE_INVALID_ARGUMENT, "dim %d of input '%s' is %lld", axis, port->port.name,
                        (long long)given);
        if (plain && !pass) {
          int64_t *symbol = &context->symbols[dim->ops[0].value];
          if (*symbol < 0) *symbol = given;
          wanted = *symbol;
        } else if (pass && !plain) {
          dim_values values = {.symbols = context->symbols};
          wanted = dim_value(&values, dim);
          if (values.problem)
            return failed(error, REWRITE_INVALID_ARGUMENT, "dim %d of input '%s': %s", axis, port->port.name, values.problem);
        } else {
          continue;
        }
        if (given != wanted)
          return failed(error, REWRITE_INVALID_ARGUMENT, "dim %d of input '%s' is %lld, the model wants %s%s%lld", axis,
                        port->port.name, (long long)given, dim->count ? port->port.dim_names[axis] : "",
                        dim->count ? " = " : "", (long long)wanted);
      }
    }
  return REWRITE_OK;
}

/* Return the layout for the sizes of the symbols, from the cache if possible. */
static rewrite_status find_layout(rewrite_context *context, const layout_t **found, rewrite_error *error) {
  const rewrite_program *program = context->program;
  const plan_t *plan = &program->plan;
  const size_t size = (size_t)plan->symbols * sizeof *context->symbols;
  layout_t *one = NULL;
  int at = 0;
  for (; at < LAYOUTS && context->layouts[at]; at++)
    if (!memcmp(context->layouts[at]->symbols, context->symbols, size)) {
      one = context->layouts[at];
      break;
    }
  if (!one) {
    layout_job job = {plan, {.symbols = context->symbols}, (int64_t)program->weights.size, program->kernels};
    const plan_version *chosen = NULL;
    for (int i = 0; i < plan->versions && !chosen; i++) {
      const plan_version *version = &plan->version[i];
      int holds = 1;
      for (int g = 0; g < version->guards && !job.values.problem; g++)
        holds &= (dim_value(&job.values, &version->guard[g].left) == dim_value(&job.values, &version->guard[g].right)) ==
                 version->guard[g].equal;
      if (holds) chosen = version;
    }
    if (!job.values.problem && chosen && chosen->fails && *chosen->refused)
      return failed(error, REWRITE_INVALID_ARGUMENT, "the sizes of the inputs do not fit together: %s", chosen->refused);
    if (!job.values.problem && (!chosen || chosen->fails)) job.values.problem = "the model cannot run on inputs of these sizes";
    if (!job.values.problem) one = layout_make(&job, chosen);
    if (job.values.problem) return failed(error, REWRITE_INVALID_ARGUMENT, "%s", job.values.problem);
    if (!one) return no_memory(error);
    if (at == LAYOUTS) layout_free(context->layouts[--at]);
  }
  for (; at; at--) context->layouts[at] = context->layouts[at - 1];
  context->layouts[0] = one;
  *found = one;
  return REWRITE_OK;
}

rewrite_status rewrite_output_dims(rewrite_context *context, const rewrite_tensor *inputs, size_t count, size_t output,
                                   int64_t *dims, rewrite_error *error) {
  if (!context || !dims) return failed(error, REWRITE_INVALID_ARGUMENT, "rewrite_output_dims needs a context and dims");
  const plan_t *plan = &context->program->plan;
  if (output >= (size_t)plan->outputs)
    return failed(error, REWRITE_INVALID_ARGUMENT, "there is no output %zu, the model has %d", output, plan->outputs);
  rewrite_status status = bind_symbols(context, inputs, count, error);
  if (status) return status;
  dim_values values = {.symbols = context->symbols};
  for (int axis = 0; axis < plan->output[output].port.rank; axis++)
    dims[axis] = dim_size(&values, &plan->output[output].dims[axis]);
  return values.problem ? failed(error, REWRITE_INVALID_ARGUMENT, "%s", values.problem) : REWRITE_OK;
}

/* Take the caller's arrays as views, after checking them against the ports. */
static rewrite_status take_arrays(rewrite_context *context, const layout_t *layout, const rewrite_tensor *inputs,
                                  const rewrite_tensor *outputs, size_t output_count, rewrite_error *error) {
  const rewrite_program *program = context->program;
  const plan_t *plan = &program->plan;
  const plan_version *version = layout->version;
  if (output_count != (size_t)plan->outputs || (output_count && !outputs))
    return failed(error, REWRITE_INVALID_ARGUMENT, "%zu outputs were given, the model has %d", output_count, plan->outputs);
  for (int i = 0; i < plan->inputs + plan->outputs; i++) {
    const int made = i >= plan->inputs;
    const plan_port *port = made ? &plan->output[i - plan->inputs] : &plan->input[i];
    const rewrite_tensor *tensor = made ? &outputs[i - plan->inputs] : &inputs[i];
    const char *kind = made ? "output" : "input";
    layout_job job = {.plan = plan, .values = {.symbols = layout->symbols}};
    const int64_t size = layout_bytes(&job, port);
    call_view *view = &context->views[i];
    context->ports[i].base = made ? version->output_base[i - plan->inputs] : version->input_base[i];
    *view = (call_view){tensor->data, (size_t)size};
    if (!tensor->data && port->fallback >= 0 && !made) {
      if (job.values.problem || size > (int64_t)program->weights.size - port->fallback)
        return failed(error, REWRITE_DAMAGED, "the default of input '%s' is outside the weights", port->port.name);
      view->data = (char *)program->weights.data + port->fallback;
      continue;
    }
    if (job.values.problem) return failed(error, REWRITE_INVALID_ARGUMENT, "%s '%s': %s", kind, port->port.name, job.values.problem);
    for (int axis = 0; made && tensor->dims && axis < port->port.rank; axis++) {
      const int64_t wanted = dim_size(&job.values, &port->dims[axis]);
      if (tensor->rank != port->port.rank || tensor->dims[axis] != wanted)
        return failed(error, REWRITE_INVALID_ARGUMENT, "output '%s' has other dims than the model: dim %d is %lld",
                      port->port.name, axis, (long long)wanted);
    }
    if (!tensor->data && size) return failed(error, REWRITE_INVALID_ARGUMENT, "%s '%s' has no data", kind, port->port.name);
    if (tensor->size < (size_t)size)
      return failed(error, REWRITE_INVALID_ARGUMENT, "%s '%s' has %zu bytes, %lld are needed", kind, port->port.name,
                    tensor->size, (long long)size);
    if ((uintptr_t)tensor->data % (port->port.element_size < 16 ? port->port.element_size : 16))
      return failed(error, REWRITE_INVALID_ARGUMENT, "%s '%s' is not aligned to its elements", kind, port->port.name);
    for (int other = plan->inputs; made && other < i; other++)
      if (view->size && call_overlap(view, &context->views[other]))
        return failed(error, REWRITE_INVALID_ARGUMENT, "the outputs '%s' and '%s' overlap",
                      plan->output[other - plan->inputs].port.name, port->port.name);
  }
  return REWRITE_OK;
}

static int never_stop(void) { return 0; }

rewrite_status rewrite_run(rewrite_context *context, const rewrite_tensor *inputs, size_t input_count,
                           const rewrite_tensor *outputs, size_t output_count, rewrite_error *error) {
  if (!context) return failed(error, REWRITE_INVALID_ARGUMENT, "rewrite_run needs a context");
  const plan_t *plan = &context->program->plan;
  frame_t *frame = &context->frame;
  const layout_t *layout = NULL;
  rewrite_status status = bind_symbols(context, inputs, input_count, error);
  if (!status) status = find_layout(context, &layout, error);
  if (!status) status = take_arrays(context, layout, inputs, outputs, output_count, error);
  if (status) return status;
  const int placed = call_place(frame, context->ports, context->views, plan->inputs, plan->outputs, 1, layout->version->shares);
  if (placed != CALL_PLACED) return no_memory(error); /* outputs that overlap were refused before */
  const int threads = layout->part.serial ? 1 : context->threads;
  const int64_t scratch = layout->scratch * threads;
  if (frame_hold(frame, BASE_ARENA, (size_t)layout->arena) || frame_hold(frame, BASE_SCRATCH, (size_t)scratch))
    return no_memory(error);
  frame->bases[BASE_WEIGHTS] = (int64_t)(intptr_t)context->program->weights.data;
  frame->bases[BASE_SHAPES] = (int64_t)(intptr_t)layout->shapes;
  block_run run = {frame->bases, frame->owned, frame->sizes, frame_pointers(frame, layout->part.pointers), NULL, threads,
                   never_stop};
  if (threads > 1) run.shares = frame_shares(frame, layout->part.count);
  if (!run.bufs || (threads > 1 && !run.shares)) return no_memory(error);
  if (block_do(&layout->block, &run)) return no_memory(error);
  call_copy_out(frame, context->ports, context->views, plan->inputs, plan->outputs);
  for (int i = 0; i < plan->outputs; i++) {
    const call_view *view = &context->views[plan->inputs + i];
    if (layout->version->output_base[i] || !view->size) continue;
    memmove(view->data, (const char *)(intptr_t)frame->bases[layout->output_from[i]] + layout->output_offset[i], view->size);
  }
  return REWRITE_OK;
}
