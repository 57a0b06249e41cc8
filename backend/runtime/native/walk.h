/* A walk over steps by several threads. Each step is cut into as many parts as threads may run it. A thread runs its own
 * part, then those not yet taken, so a thread that lost its core or is not awake yet does not delay the others. A step begins when
 * all parts of the previous one are done. The thread that runs a part does not affect the result. */
#ifndef REWRITE_WALK_H
#define REWRITE_WALK_H

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "pool.h"

#define WALK_PARTS 64          /* maximum parts of a step: bits of `walk_share.taken` */
#define WALK_SKIPPED 0x40000000u /* in `walk_share.done`: the step was skipped */
#define WALK_SERIAL 16384      /* SERIAL_WORK and LAUNCH_WORK of ir/kernel.py */
#define WALK_LAUNCH (8 * WALK_SERIAL)
#define WALK_ALL_THREADS 255

typedef void (*walk_kernel)(void **bufs, const int64_t *dims, int tid, int nth);

typedef struct {
  walk_kernel kernel;
  int32_t bufs;    /* its first pointer among those of the walk */
  int32_t dims;    /* its first dim */
  int32_t guards;  /* number of conditions: the flags that the pointers from `first` on lead to */
  int32_t first;
  uint32_t wanted; /* required value of each condition, one bit each */
} walk_step;

typedef struct {
  _Atomic uint64_t taken; /* a bit for each part that a thread has taken */
  _Atomic uint32_t done;  /* number of finished parts */
} walk_share;

typedef struct {
  const walk_step *steps;
  const unsigned char *limits; /* maximum threads of a step; 0: skip it, 255: any number */
  int count;
  void **bufs;
  const int64_t *dims;
  walk_share *shares; /* one for each step, all 0 */
  double *times;      /* of a profiled run: begin and end of each part of each step; otherwise NULL */
  int stride;         /* number of parts that `times` has room for */
} walk_job;

/* Set the maximum threads of each step by its work in simple operations, 0 for a step that must not run. Return whether one
 * thread runs everything. */
static inline int walk_limit(const int64_t *work, unsigned char *limits, int count) {
  int64_t parallel = 0;
  int serial = 1;
  for (int i = 0; i < count; i++)
    if (work[i] >= WALK_SERIAL && __builtin_add_overflow(parallel, work[i], &parallel)) parallel = INT64_MAX;
  for (int i = 0; i < count; i++) {
    const int alone = parallel < WALK_LAUNCH || work[i] < WALK_SERIAL;
    limits[i] = alone ? work[i] > 0 : WALK_ALL_THREADS;
    if (limits[i] > 1) serial = 0;
  }
  return serial;
}

static double walk_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline void walk_part(const walk_job *job, int i, int part, int parts) {
  const walk_step *step = &job->steps[i];
  double *mine = job->times ? job->times + 2 * ((int64_t)i * job->stride + part) : NULL;
  if (mine) mine[0] = walk_clock();
  step->kernel(job->bufs + step->bufs, job->dims + step->dims, part, parts);
  if (mine) mine[1] = walk_clock();
}

/* Return whether all conditions of a step hold. */
static inline int walk_holds(const walk_job *job, const walk_step *step) {
  for (int g = 0; g < step->guards; g++)
    if ((*(const char *)job->bufs[step->first + g] != 0) != (step->wanted >> g & 1)) return 0;
  return 1;
}

static void walk_alone(const walk_job *job) {
  for (int i = 0; i < job->count; i++)
    if (job->limits[i] && walk_holds(job, &job->steps[i])) walk_part(job, i, 0, 1);
}

static inline int walk_parts(const walk_job *job, int i, int nth) {
  int most = nth < WALK_PARTS ? nth : WALK_PARTS;
  return job->limits[i] < most ? job->limits[i] : most;
}

/* Wait until step i (-1: none) is over: all parts done, or skipped. */
static inline void walk_await(const walk_job *job, int i, int nth) {
  if (i < 0) return;
  const uint32_t parts = (uint32_t)walk_parts(job, i, nth);
  for (int spins = 0; atomic_load_explicit(&job->shares[i].done, memory_order_acquire) < parts;)
    pool_relax(&spins);
}

static inline void walk_take(const walk_job *job, int i, int part, int parts) {
  walk_share *share = &job->shares[i];
  const uint64_t bit = (uint64_t)1 << part;
  if (atomic_load_explicit(&share->taken, memory_order_relaxed) & bit) return;
  if (atomic_fetch_or_explicit(&share->taken, bit, memory_order_acq_rel) & bit) return;
  walk_part(job, i, part, parts);
  atomic_fetch_add_explicit(&share->done, 1, memory_order_release);
}

/* The job of the pool. Thread 0 runs the steps for one thread. A late thread sees finished steps and must not read
 * their conditions: the memory of these may have been reused. */
static void walk(void *context, int tid, int nth) {
  const walk_job *job = context;
  int before = -1; /* the step before */
  if (nth == 1) {
    walk_alone(job);
    return;
  }
  for (int i = 0; i < job->count; i++) {
    if (!job->limits[i]) continue;
    const walk_step *step = &job->steps[i];
    walk_share *share = &job->shares[i];
    const int parts = walk_parts(job, i, nth);
    if ((parts > 1 || tid == 0) && atomic_load_explicit(&share->done, memory_order_acquire) < (uint32_t)parts) {
      walk_await(job, before, nth);
      if (step->guards) {
        /* Nothing overwrites the conditions before the step ends. If it ends first, no part is left to take. */
        if (!walk_holds(job, step)) {
          uint32_t none = 0;
          atomic_thread_fence(memory_order_acquire); /* read the conditions before what follows */
          if (atomic_load_explicit(&share->done, memory_order_acquire) == 0 &&
              atomic_load_explicit(&share->taken, memory_order_acquire) == 0) {
            atomic_store_explicit(&share->taken, UINT64_MAX, memory_order_release);
            atomic_compare_exchange_strong(&share->done, &none, WALK_SKIPPED);
          }
          before = i;
          continue;
        }
      }
      for (int k = 0; k < parts; k++) walk_take(job, i, (tid + k) % parts, parts);
    }
    before = i;
  }
  if (tid == 0) walk_await(job, before, nth);
}

#endif
