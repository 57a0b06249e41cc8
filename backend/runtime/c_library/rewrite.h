/* Run models that rewrite compiled, from C or C++, without Python.
 *
 *     rewrite_program *program;
 *     rewrite_context *context;
 *     rewrite_error error;
 *     if (rewrite_open("model.rewrite", &program, &error)) return fail(error.message);
 *     if (rewrite_context_new(program, 0, &context, &error)) return fail(error.message);
 *     rewrite_tensor x = {.data = pixels, .size = sizeof pixels, .rank = 4, .dims = (int64_t[]){1, 3, 224, 224}};
 *     rewrite_tensor y = {.data = scores, .size = sizeof scores};
 *     if (rewrite_run(context, &x, 1, &y, 1, &error)) return fail(error.message);
 *     rewrite_context_free(context);
 *     rewrite_close(program);
 *
 * A program is a loaded bundle. It does not change, so any number of threads may use it at once. A context is the memory of
 * one run at a time: threads that run a program at once have a context each; all of them read the same mapped weights.
 * Functions that can fail return a status, REWRITE_OK (0) or the reason, and fill in `error` unless it is NULL.
 *
 * A bundle contains machine code: open only bundles that you trust, as you would load a shared library. Checksums of the
 * plan, the weights and the kernels are compared, which detects damage, not malice. `signature.json` is not read: this library
 * comes with the bundle. Check a signature before you unpack it, by `ssh-keygen -Y verify` (docs/deploy.md). */
#ifndef REWRITE_H
#define REWRITE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define REWRITE_API_VERSION 1 /* of this header; rewrite_api_version() is that of the library */
#define REWRITE_MAX_RANK 32
#define REWRITE_FREE_DIM (-1)

#if defined(__GNUC__)
#define REWRITE_EXPORT __attribute__((visibility("default")))
#else
#define REWRITE_EXPORT
#endif

typedef enum {
  REWRITE_OK = 0,
  REWRITE_INVALID_ARGUMENT = 1, /* an array of the wrong size, rank or number; a null pointer */
  REWRITE_NOT_A_BUNDLE = 2,     /* no such directory, or no bundle that was saved for C */
  REWRITE_DAMAGED = 3,          /* a file of the bundle is missing or changed, or makes no sense */
  REWRITE_WRONG_VERSION = 4,    /* made by another version of rewrite */
  REWRITE_WRONG_CPU = 5,        /* this CPU has not all instructions that the kernels use */
  REWRITE_UNSUPPORTED = 6,      /* parts of the model need Python; the message names the operators */
  REWRITE_NO_MEMORY = 7,
  REWRITE_SYSTEM_ERROR = 8 /* a file cannot be read or mapped, or a library not loaded */
} rewrite_status;

typedef struct {
  rewrite_status status;
  char message[1024]; /* what, where, and what to do; ends with a 0 */
} rewrite_error;

/* Element types, by their numbers in ONNX's TensorProto.DataType. */
typedef enum {
  REWRITE_F32 = 1,
  REWRITE_U8 = 2,
  REWRITE_I8 = 3,
  REWRITE_U16 = 4,
  REWRITE_I16 = 5,
  REWRITE_I32 = 6,
  REWRITE_I64 = 7,
  REWRITE_BOOL = 9,
  REWRITE_F16 = 10,
  REWRITE_F64 = 11,
  REWRITE_U32 = 12,
  REWRITE_U64 = 13,
  REWRITE_BF16 = 16
  /* other numbers of ONNX stand for types that C has no name for */
} rewrite_type;

/* An input or output. Everything belongs to the program. */
typedef struct {
  const char *name;
  int type; /* a rewrite_type */
  size_t element_size;
  int rank;
  const int64_t *dims;          /* REWRITE_FREE_DIM where the caller's arrays decide */
  const char *const *dim_names; /* the name of a free dim, such as "N" or "2*N + 1"; NULL for a fixed one */
  int optional;                 /* an input that has a default: its data may be NULL */
} rewrite_port;

/* An array of the caller, dense and in row-major order. `size` is that of its memory in bytes. Inputs are only read, unless
 * an output has the same memory. Of outputs, `dims` may be NULL; `size` may be larger than needed. */
typedef struct {
  void *data;
  size_t size;
  int rank;
  const int64_t *dims;
} rewrite_tensor;

typedef struct rewrite_program rewrite_program;
typedef struct rewrite_context rewrite_context;

REWRITE_EXPORT int rewrite_api_version(void);

/* Load the best variant of a bundle for this CPU. Compares all files that it uses with their checksums, no signature. */
REWRITE_EXPORT rewrite_status rewrite_open(const char *bundle, rewrite_program **program, rewrite_error *error);

/* Release a program. Its contexts stay valid until they are freed. NULL is ignored. */
REWRITE_EXPORT void rewrite_close(rewrite_program *program);

REWRITE_EXPORT size_t rewrite_input_count(const rewrite_program *program);
REWRITE_EXPORT size_t rewrite_output_count(const rewrite_program *program);

/* Return an input or output by its number; NULL if there is none. */
REWRITE_EXPORT const rewrite_port *rewrite_input(const rewrite_program *program, size_t number);
REWRITE_EXPORT const rewrite_port *rewrite_output(const rewrite_program *program, size_t number);

/* Return the number of threads for which the bundle was compiled. */
REWRITE_EXPORT int rewrite_thread_count(const rewrite_program *program);

/* Make a context whose runs use up to `threads` threads, 1 to 256; 0: those for which the bundle was compiled. The threads
 * of a process are shared: of two runs at one time, one runs on its caller's thread alone. */
REWRITE_EXPORT rewrite_status rewrite_context_new(rewrite_program *program, int threads, rewrite_context **context,
                                                  rewrite_error *error);
REWRITE_EXPORT void rewrite_context_free(rewrite_context *context);

/* Write the dims of an output for inputs of these ranks and dims (their data is not looked at) to `dims`, which has room for
 * the output's rank. */
REWRITE_EXPORT rewrite_status rewrite_output_dims(rewrite_context *context, const rewrite_tensor *inputs, size_t count,
                                                  size_t output, int64_t *dims, rewrite_error *error);

/* Run the program on all its inputs, in order; write all its outputs, in order. An output may have the memory of an input:
 * it is updated in place where the program allows, otherwise the input is copied first. Two outputs must not overlap.
 * Arrays are used in place if they begin at a multiple of 16 bytes and the 64 bytes behind them are on a page of theirs. */
REWRITE_EXPORT rewrite_status rewrite_run(rewrite_context *context, const rewrite_tensor *inputs, size_t input_count,
                                          const rewrite_tensor *outputs, size_t output_count, rewrite_error *error);

#ifdef __cplusplus
}
#endif

#endif
