/* Loading of programs: the variant of a bundle for this CPU, its kernels and weights. */
#ifndef REWRITE_LOADING_H
#define REWRITE_LOADING_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "../../../system/cpu.h"
#include "../native/block.h"
#include "files.h"
#include "plan.h"

#define MAX_THREADS 256

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "plans are little-endian"
#endif

struct rewrite_program {
  _Atomic int users; /* the caller and the contexts */
  plan_t plan;
  plan_block *blocks;
  file_map weights;
  void **modules;
  walk_kernel *kernels;
};

/* The workers end with the last program, so that the library can be unloaded. */
static pthread_mutex_t programs_lock = PTHREAD_MUTEX_INITIALIZER;
static int programs;

/* Vector extensions, the best first: the first features of `cpu_features` that each requires. */
static const struct {
  const char *name;
  int features, baseline;
} isas[] = {{"avx512", 12, 0}, {"avx2", 7, 0}, {"neon", 0, 0}, {"portable", 0, 1}};
#define ISAS ((int)(sizeof isas / sizeof isas[0]))

static int isa_number(const char *name) {
  for (int i = 0; i < ISAS; i++)
    if (!strcmp(isas[i].name, name)) return i;
  return -1;
}

/* Return whether this CPU has a feature, and $REWRITE_MAX_ISA (the number of an extension; negative: none) admits it. */
static int has_feature(const char *name, int limit) {
  for (int i = 0; i < CPU_FEATURES; i++) {
    if (strcmp(cpu_features[i].name, name)) continue;
    const int admitted = limit <= 0 || i < isas[limit].features || !strcmp(name, "neon");
    return admitted && cpu_has(i);
  }
  return 0;
}

static const char *machine(void) {
#if defined(__x86_64__)
  return "x86_64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "unknown";
#endif
}

/* Choose the best variant for this CPU: leave the reader at its plan. */
static rewrite_status choose(plan_reader *reader, const char *bundle, rewrite_error *error) {
  const char *wish = getenv("REWRITE_MAX_ISA");
  const int limit = wish && *wish ? isa_number(wish) : -1;
  if (wish && *wish && limit < 0)
    return failed(error, REWRITE_INVALID_ARGUMENT, "REWRITE_MAX_ISA is %.40s, which is no vector extension", wish);
  const unsigned char *best = NULL, *best_end = NULL;
  int64_t best_rank = INT64_MAX;
  char offered[256] = "";
  for (int i = 0, count = plan_count(reader); i < count && !reader->problem; i++) {
    const char *made = plan_text(reader), *isa = plan_text(reader);
    const int number = isa_number(isa), features = plan_count(reader);
    int runs = !strcmp(made, machine()) && number >= 0 && (limit < 0 || number >= limit || isas[number].baseline);
    for (int f = 0; runs && f < isas[number].features; f++) runs = has_feature(cpu_features[f].name, limit);
    if (runs && !strcmp(isa, "neon")) runs = has_feature("neon", limit);
    for (int f = 0; f < features && !reader->problem; f++) runs &= has_feature(plan_text(reader), limit);
    const int64_t words = plan_word(reader, 0, INT32_MAX);
    if (words > (reader->end - reader->at) / 8) plan_wrong(reader, "it ends too early");
    const int64_t rank = ((int64_t)1 << 32) * number - features; /* by extension, then by number of features */
    if (reader->problem) break;
    const size_t used = strlen(offered);
    snprintf(offered + used, sizeof offered - used, "%s%.20s on %.20s", used ? ", " : "", isa, made);
    if (runs && rank < best_rank) best_rank = rank, best = reader->at, best_end = reader->at + 8 * words;
    reader->at += 8 * words;
  }
  if (reader->problem) return REWRITE_OK; /* reported by the caller */
  if (!best)
    return failed(error, REWRITE_WRONG_CPU,
                  "%s: this CPU cannot run the bundle's kernels, which are for %s. Compile the model again with --target.",
                  bundle, offered);
  reader->at = best;
  reader->end = best_end;
  return REWRITE_OK;
}

/* Whether a name leads to a file in the bundle. */
static int is_inside(const char *name) {
  int slashes = 0;
  if (!*name || *name == '/' || strstr(name, "..")) return 0;
  for (const char *c = name; *c; c++) {
    if (*c == '/') slashes++;
    else if (!(*c == '_' || *c == '.' || (*c >= '0' && *c <= '9') || ((*c | 32) >= 'a' && (*c | 32) <= 'z'))) return 0;
  }
  return slashes < 2;
}

static char *join(const char *folder, const char *name) {
  const size_t size = strlen(folder) + strlen(name) + 2;
  char *path = malloc(size);
  if (path) snprintf(path, size, "%s/%s", folder, name);
  return path;
}

/* Open a file of the bundle and compare it with what the plan says of it. */
static rewrite_status open_checked(const char *bundle, const plan_file *file, const crc_tables *tables, file_map *map,
                                   rewrite_error *error) {
  char *path = join(bundle, file->name);
  if (!path) return no_memory(error);
  rewrite_status status = file_open(path, map, error);
  if (!status && ((int64_t)map->size != file->size || (int64_t)file_crc(tables, map) != file->crc)) {
    file_close(map);
    status = failed(error, REWRITE_DAMAGED, "%s: the bundle is damaged: %s has changed", bundle, file->name);
  }
  free(path);
  return status;
}

static const plan_file *find_file(const plan_file *files, int count, const char *folder, const char *name,
                                  const char *end) {
  for (int i = 0; i < count; i++) {
    const char *at = files[i].name;
    const size_t a = strlen(folder), b = strlen(name);
    if (!strncmp(at, folder, a) && !strncmp(at + a, name, b) && !strcmp(at + a + b, end)) return &files[i];
  }
  return NULL;
}

typedef struct {
  const char *name;
  walk_kernel run;
} kernel_entry; /* k_entry in kernel.h */

/* Load the modules of kernels and find the kernels of the plan in them. */
static rewrite_status load_kernels(rewrite_program *program, plan_reader *reader, const char *bundle,
                                   const plan_file *files, int count, const crc_tables *tables, rewrite_error *error) {
  plan_t *plan = &program->plan;
  program->modules = plan_take(reader, (size_t)plan->modules, sizeof *program->modules);
  program->kernels = plan_take(reader, (size_t)plan->kernels, sizeof *program->kernels);
  if (!program->modules || !program->kernels) return no_memory(error);
  for (int m = 0; m < plan->modules; m++) {
    const plan_file *file = find_file(files, count, "kernels/", plan->module[m], ".so");
    file_map map;
    if (!file) return failed(error, REWRITE_DAMAGED, "%s: the bundle is damaged: it has no kernels %.80s", bundle, plan->module[m]);
    rewrite_status status = open_checked(bundle, file, tables, &map, error);
    if (status) return status;
    file_close(&map);
    char *path = join(bundle, file->name);
    if (!path) return no_memory(error);
    program->modules[m] = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    free(path);
    if (!program->modules[m])
      return failed(error, REWRITE_SYSTEM_ERROR, "%s: the bundle's kernels cannot be loaded: %s", bundle, dlerror());
    const int64_t *entries = dlsym(program->modules[m], "k_count");
    const kernel_entry *table = dlsym(program->modules[m], "k_table");
    for (int64_t e = 0; entries && table && e < *entries; e++)
      for (int k = 0; k < plan->kernels; k++)
        if (!strcmp(plan->kernel[k], table[e].name)) program->kernels[k] = table[e].run;
  }
  for (int k = 0; k < plan->kernels; k++)
    if (!program->kernels[k])
      return failed(error, REWRITE_DAMAGED, "%s: the bundle is damaged: there is no kernel %.80s", bundle, plan->kernel[k]);
  return REWRITE_OK;
}

/* Read the plan in a buffer and load what it names. */
static rewrite_status load_plan(rewrite_program *program, const char *bundle, const file_map *map, rewrite_error *error) {
  static const char magic[8] = "RWPLAN\0\1";
  crc_tables *tables = malloc(sizeof *tables);
  if (!tables) return no_memory(error);
  crc_prepare(tables);
  plan_reader reader = {.blocks = &program->blocks};
  rewrite_status status = REWRITE_OK;
  plan_file *files = NULL;
  int count = 0;
  uint64_t stated = 0;
  if (map->size >= 16) memcpy(&stated, map->data + 8, 8);
  if (map->size < 16 || memcmp(map->data, magic, 8)) {
    status = failed(error, REWRITE_DAMAGED, "%s: the bundle is damaged: plan.bin is not a plan", bundle);
    goto done;
  }
  if (crc_of(tables, map->data + 16, map->size - 16) != stated) {
    status = failed(error, REWRITE_DAMAGED, "%s: the bundle is damaged: plan.bin has changed", bundle);
    goto done;
  }
  reader.at = map->data + 16;
  reader.end = map->data + map->size;
  const int64_t format = plan_word(&reader, PLAN_ANY, INT64_MAX);
  const char *version = plan_text(&reader);
  if (!reader.problem && format != PLAN_FORMAT) {
    status = failed(error, REWRITE_WRONG_VERSION,
                    "%s: the bundle was made by version %.40s of rewrite (plan %lld), this library reads plan %d. Compile the "
                    "model again with this version.",
                    bundle, version, (long long)format, PLAN_FORMAT);
    goto done;
  }
  program->plan.threads = (int)plan_word(&reader, 1, MAX_THREADS);
  count = plan_count(&reader);
  files = plan_take(&reader, (size_t)count, sizeof *files);
  for (int i = 0; files && i < count && !reader.problem; i++) {
    files[i].name = plan_text(&reader);
    files[i].size = plan_word(&reader, 0, INT64_MAX);
    files[i].crc = plan_word(&reader, 0, UINT32_MAX);
    if (!is_inside(files[i].name)) plan_wrong(&reader, "a file's name is wrong");
  }
  if (!reader.problem) status = choose(&reader, bundle, error);
  const plan_file *weights = reader.problem || status ? NULL : find_file(files, count, "", "weights.bin", "");
  if (!status && !reader.problem && !weights) plan_wrong(&reader, "it has no weights.bin");
  if (!status && !reader.problem) status = open_checked(bundle, weights, tables, &program->weights, error);
  if (status) goto done;
  reader.weights = (int64_t)program->weights.size;
  if (!reader.problem) plan_read(&reader, &program->plan);
  if (!reader.problem && reader.at != reader.end) plan_wrong(&reader, "it has more than a plan");
  for (int i = 0; i < program->plan.versions && !reader.problem; i++)
    if (!program->plan.version[i].fails && *program->plan.version[i].refused) {
      status = failed(error, REWRITE_UNSUPPORTED, "%s: the model cannot run without Python: %.800s", bundle,
                      program->plan.version[i].refused);
      goto done;
    }
  if (!reader.problem) status = load_kernels(program, &reader, bundle, files, count, tables, error);
done:
  free(tables);
  if (status) return status;
  if (reader.no_memory) return no_memory(error);
  if (reader.problem)
    return failed(error, REWRITE_DAMAGED, "%s: the bundle is damaged: plan.bin is wrong: %s", bundle, reader.problem);
  return REWRITE_OK;
}

static void release(rewrite_program *program) {
  if (atomic_fetch_sub(&program->users, 1) != 1) return;
  for (int m = 0; program->modules && m < program->plan.modules; m++)
    if (program->modules[m]) dlclose(program->modules[m]);
  file_close(&program->weights);
  plan_free(program->blocks);
  free(program);
  pthread_mutex_lock(&programs_lock);
  if (!--programs) pool_stop();
  pthread_mutex_unlock(&programs_lock);
}

#endif
