/* Loads altered plans of a bundle: usage fuzz_plans BUNDLE RUNS SEED. Prints how many were refused and how many loaded.
 *
 * Words, bytes and lengths change; the checksum is made right again, so that the checks behind it are reached. Layouts are
 * made for small sizes; no kernel runs. Compiled with AddressSanitizer. */
#include "rewrite.c"

static uint64_t state;

static uint64_t next(void) {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

static size_t alter(unsigned char *data, size_t size) {
  static const int64_t odd[] = {0, 1, -1, 2, 7, 64, 255, 1 << 20, INT32_MAX, (int64_t)1 << 40, INT64_MAX, INT64_MIN};
  for (int times = 1 + (int)(next() % 3); times; times--) {
    const size_t at = 16 + next() % (size - 16);
    int64_t word;
    switch (next() % 5) {
      case 0: data[at] ^= (unsigned char)(1 << next() % 8); break;
      case 1: data[at] = (unsigned char)next(); break;
      case 2:
        word = odd[next() % (sizeof odd / sizeof odd[0])];
        memcpy(data + (at - 16) / 8 * 8 + 16, &word, at + 8 < size ? 8 : 1);
        break;
      case 3:
        memcpy(&word, data + (at - 16) / 8 * 8 + 16, at + 8 < size ? 8 : 1);
        word = (int64_t)((uint64_t)word + (next() % 2 ? 1 : UINT64_MAX));
        memcpy(data + (at - 16) / 8 * 8 + 16, &word, at + 8 < size ? 8 : 1);
        break;
      default: return next() % 8 ? size : 16 + (at - 16) / 8 * 8;
    }
  }
  return size;
}

static void use(rewrite_program *program) {
  rewrite_context *context;
  rewrite_error error;
  if (rewrite_context_new(program, 2, &context, &error)) return;
  const size_t count = rewrite_input_count(program);
  rewrite_tensor *inputs = calloc(count + 1, sizeof *inputs);
  int64_t(*dims)[REWRITE_MAX_RANK] = calloc(count + 1, sizeof *dims);
  for (int64_t free_dim = 0; inputs && dims && free_dim < 4; free_dim++) {
    for (size_t i = 0; i < count; i++) {
      const rewrite_port *port = rewrite_input(program, i);
      for (int axis = 0; axis < port->rank; axis++)
        dims[i][axis] = port->dims[axis] == REWRITE_FREE_DIM ? free_dim : port->dims[axis];
      inputs[i] = (rewrite_tensor){dims[i], SIZE_MAX, port->rank, dims[i]};
    }
    const layout_t *layout;
    if (bind_symbols(context, inputs, count, &error) || find_layout(context, &layout, &error)) continue;
    for (int i = 0; i < layout->part.count; i++)
      if (!layout->part.steps[i].kernel) abort();
    for (size_t i = 0; i < rewrite_output_count(program); i++) {
      int64_t found[REWRITE_MAX_RANK];
      rewrite_output_dims(context, inputs, count, i, found, &error);
    }
  }
  free(inputs);
  free(dims);
  rewrite_context_free(context);
}

int main(int count, char **arguments) {
  if (count != 4) return 2;
  rewrite_error error;
  char *path = join(arguments[1], "plan.bin");
  file_map plan;
  crc_tables tables;
  long loaded = 0, refused = 0;
  state = strtoull(arguments[3], NULL, 10) * 2654435761u + 88172645463325252u;
  if (!path || file_open(path, &plan, &error)) return 2;
  crc_prepare(&tables);
  for (long run = strtol(arguments[2], NULL, 10); run; run--) {
    unsigned char *data = malloc(plan.size);
    if (!data) return 2;
    memcpy(data, plan.data, plan.size);
    const size_t size = alter(data, plan.size);
    const uint64_t crc = crc_of(&tables, data + 16, size - 16);
    memcpy(data + 8, &crc, 8);
    unsigned char *exact = malloc(size); /* of its size, so that a read past the end is found */
    if (!exact) return 2;
    memcpy(exact, data, size);
    free(data);
    rewrite_program *program = calloc(1, sizeof *program);
    if (!program) return 2;
    atomic_store(&program->users, 1);
    programs++;
    const file_map map = {exact, size};
    const rewrite_status status = load_plan(program, arguments[1], &map, &error);
    if (status == REWRITE_OK) loaded++, use(program);
    else refused++;
    if (status && !memchr(error.message, 0, sizeof error.message)) abort();
    release(program);
    free(exact);
  }
  file_close(&plan);
  free(path);
  printf("%ld loaded, %ld refused\n", loaded, refused);
  return 0;
}
