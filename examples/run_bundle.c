/* Run a bundle from C, without Python: every input gets ones, free dims are 2, and each output's first value is printed.
 *
 *     rewrite model.onnx --c
 *     cc run_bundle.c -I model.rewrite/include -L model.rewrite/lib -lrewrite -o run_bundle
 *     LD_LIBRARY_PATH=model.rewrite/lib ./run_bundle model.rewrite
 */
#include <rewrite.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST 16 /* inputs or outputs */

static int fail(const char *message) {
  fprintf(stderr, "error: %s\n", message);
  return 2;
}

/* Allocate an array for a port; its dims go to `dims`. */
static rewrite_tensor array_for(const rewrite_port *port, int64_t *dims) {
  rewrite_tensor tensor = {NULL, port->element_size, port->rank, dims};
  for (int i = 0; i < port->rank; i++) tensor.size *= (size_t)dims[i];
  tensor.data = calloc(tensor.size ? tensor.size : 1, 1);
  return tensor;
}

int main(int count, char **arguments) {
  static int64_t dims[2 * MOST][REWRITE_MAX_RANK];
  rewrite_tensor inputs[MOST], outputs[MOST];
  rewrite_program *program;
  rewrite_context *context;
  rewrite_error error;
  if (count != 2) return fail("usage: run_bundle BUNDLE");
  // region run
  if (rewrite_open(arguments[1], &program, &error)) return fail(error.message);
  if (rewrite_context_new(program, 0, &context, &error)) return fail(error.message);
  const size_t ins = rewrite_input_count(program), outs = rewrite_output_count(program);
  if (ins > MOST || outs > MOST) return fail("more inputs or outputs than this example has room for");
  for (size_t i = 0; i < ins; i++) {
    const rewrite_port *port = rewrite_input(program, i);
    for (int axis = 0; axis < port->rank; axis++)
      dims[i][axis] = port->dims[axis] == REWRITE_FREE_DIM ? 2 : port->dims[axis];
    inputs[i] = array_for(port, dims[i]);
    float *values = inputs[i].data;
    for (size_t k = 0; port->type == REWRITE_F32 && k < inputs[i].size / sizeof(float); k++) values[k] = 1;
  }
  for (size_t i = 0; i < outs; i++) {
    if (rewrite_output_dims(context, inputs, ins, i, dims[MOST + i], &error)) return fail(error.message);
    outputs[i] = array_for(rewrite_output(program, i), dims[MOST + i]);
  }
  if (rewrite_run(context, inputs, ins, outputs, outs, &error)) return fail(error.message);
  // endregion
  for (size_t i = 0; i < outs; i++) {
    const rewrite_port *port = rewrite_output(program, i);
    printf("%s [", port->name);
    for (int axis = 0; axis < port->rank; axis++) printf("%s%lld", axis ? "," : "", (long long)dims[MOST + i][axis]);
    printf("]");
    if (port->type == REWRITE_F32 && outputs[i].size) printf(" %.6g", ((float *)outputs[i].data)[0]);
    printf("\n");
    free(outputs[i].data);
  }
  for (size_t i = 0; i < ins; i++) free(inputs[i].data);
  rewrite_context_free(context);
  rewrite_close(program);
  return 0;
}
