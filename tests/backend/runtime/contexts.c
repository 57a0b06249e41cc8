/* Run a bundle in several threads at once, each with a context of its own, for a checker of races; as a program and its
 * contexts may, the program is closed first. The model has one input and one output of f32, [N, columns] both. */
#include <pthread.h>
#include <rewrite.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4
#define RUNS 40
#define ROWS 2000 /* enough for more than one thread */

static rewrite_program *program;
static pthread_barrier_t all;

static void fail(const char *message) {
  fprintf(stderr, "error: %s\n", message);
  exit(2);
}

static float *array(int64_t size) {
  float *const found = aligned_alloc(64, (size_t)(size * 4 + 128) / 64 * 64);
  for (int64_t i = 0; i < size; i++) found[i] = 1;
  return found;
}

static void *work(void *unused) {
  (void)unused;
  rewrite_context *context;
  rewrite_error error;
  if (rewrite_context_new(program, 2, &context, &error)) fail(error.message);
  const rewrite_port *const in = rewrite_input(program, 0), *const out = rewrite_output(program, 0);
  const int64_t columns[2] = {in->dims[1], out->dims[1]};
  pthread_barrier_wait(&all); /* from here the program is not used: it is being closed */
  float *const x = array(ROWS * columns[0]), *const y = array(ROWS * columns[1]);
  for (int run = 0; run < RUNS; run++) {
    const int64_t rows = 1 + run * 377 % ROWS, dims[2] = {rows, columns[0]};
    const rewrite_tensor input = {x, (size_t)(rows * columns[0]) * 4, 2, dims};
    const rewrite_tensor output = {y, (size_t)(rows * columns[1]) * 4, 0, NULL};
    memset(y, 0, (size_t)(ROWS * columns[1]) * 4);
    if (rewrite_run(context, &input, 1, &output, 1, &error)) fail(error.message);
    for (int64_t i = columns[1]; i < rows * columns[1]; i++)
      if (y[i] != y[i % columns[1]]) fail("rows differ");
  }
  free(x);
  free(y);
  rewrite_context_free(context);
  return NULL;
}

int main(int count, char **arguments) {
  pthread_t threads[THREADS];
  rewrite_error error;
  if (count != 2) fail("usage: contexts BUNDLE");
  for (int round = 0; round < 3; round++) {
    if (rewrite_open(arguments[1], &program, &error)) fail(error.message);
    pthread_barrier_init(&all, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, NULL);
    pthread_barrier_wait(&all);
    rewrite_close(program);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&all);
  }
  printf("done\n");
  return 0;
}
