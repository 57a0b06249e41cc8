/* The thread pool: workers that spin for a while and then sleep, and run one job at a time on all threads.
 *
 * A process has one pool. A job is a function called as f(context, tid, nth) on up to nth threads, where the caller is
 * thread 0. It must not rely on the others: a worker that wakes after the job does not join it. A caller that finds the pool
 * busy runs its job alone (nth = 1): that is always correct, cannot deadlock, and with several callers is also the best use
 * of the cores. After fork() the child starts with an empty pool. */
#ifndef REWRITE_POOL_H
#define REWRITE_POOL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#define POOL_MAX 256
#define POOL_IDLE_SPINS 4000  /* about 100 us with the pause: longer than the gap between two runs in a loop */
#define POOL_SPINS 4000 /* of a thread that waits for another; after that it yields the core between checks */
#define POOL_OPEN ((uint64_t)1 << 31) /* in the gate: workers may enter */
#define POOL_END ((uint64_t)1 << 30)  /* in the gate: workers end */

typedef void (*pool_job)(void *context, int tid, int nth);

typedef struct {
  _Alignas(128) _Atomic uint32_t epoch; /* counts jobs; workers wait for it to change */
  _Atomic uint32_t sleeping;
  _Alignas(128) _Atomic uint64_t gate; /* epoch in the upper half; POOL_OPEN; number of workers in the job */
  _Atomic uint32_t starting;
  _Alignas(128) pool_job job;
  void *context;
  int nth;
  int workers;
  int prepared;
  int pinned_away_from; /* the caller's CPU, which workers avoid; -1 before the first launch */
  pthread_mutex_t taken;
  pthread_t threads[POOL_MAX];
#ifdef __linux__
  pid_t ids[POOL_MAX];
  cpu_set_t allowed;
#else
  pthread_mutex_t mutex;
  pthread_cond_t changed;
#endif
} pool_state;

static pool_state pool = {.taken = PTHREAD_MUTEX_INITIALIZER};

static inline void pool_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Pause between checks of a value that another thread will change soon. */
static inline void pool_relax(int *spins) {
  if (++*spins < POOL_SPINS)
    pool_pause();
  else
    sched_yield();
}

/* Sleep until the epoch differs from `seen`; may wake early. */
static void pool_sleep(uint32_t seen) {
#ifdef __linux__
  syscall(SYS_futex, &pool.epoch, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
#else
  pthread_mutex_lock(&pool.mutex);
  while (atomic_load(&pool.epoch) == seen) pthread_cond_wait(&pool.changed, &pool.mutex);
  pthread_mutex_unlock(&pool.mutex);
#endif
}

static void pool_wake(void) {
#ifdef __linux__
  syscall(SYS_futex, &pool.epoch, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
#else
  pthread_mutex_lock(&pool.mutex);
  pthread_cond_broadcast(&pool.changed);
  pthread_mutex_unlock(&pool.mutex);
#endif
}

typedef struct {
  int tid;
  uint32_t seen;
} pool_start;
static pool_start pool_starts[POOL_MAX];

static void *pool_worker(void *argument) {
  int tid = ((pool_start *)argument)->tid;
  uint32_t seen = ((pool_start *)argument)->seen;
#ifdef __linux__
  pool.ids[tid] = (pid_t)syscall(SYS_gettid);
#endif
  atomic_store(&pool.starting, 0);
  for (;;) {
    int spins = 0;
    uint32_t epoch;
    while ((epoch = atomic_load_explicit(&pool.epoch, memory_order_acquire)) == seen) {
      pool_pause();
      if (++spins > POOL_IDLE_SPINS) {
        atomic_fetch_add(&pool.sleeping, 1);
        pool_sleep(seen);
        atomic_fetch_sub(&pool.sleeping, 1);
        spins = 0;
      }
    }
    seen = epoch;
    uint64_t gate = atomic_load_explicit(&pool.gate, memory_order_acquire);
    if (gate & POOL_END) return NULL;
    while ((uint32_t)(gate >> 32) == epoch && gate & POOL_OPEN)
      if (atomic_compare_exchange_weak_explicit(&pool.gate, &gate, gate + 1, memory_order_acq_rel, memory_order_acquire)) {
        if (tid < pool.nth) pool.job(pool.context, tid, pool.nth);
        atomic_fetch_sub_explicit(&pool.gate, 1, memory_order_release);
        break;
      }
  }
  return NULL;
}

/* The child of a fork has no workers, and a lock may be held by a thread that no longer exists. */
static void pool_after_fork(void) {
  pool.workers = 0;
  pool.pinned_away_from = -1;
  atomic_store(&pool.epoch, 0);
  atomic_store(&pool.sleeping, 0);
  atomic_store(&pool.gate, 0);
  atomic_store(&pool.starting, 0);
  pthread_mutex_init(&pool.taken, NULL);
#ifndef __linux__
  pthread_mutex_init(&pool.mutex, NULL);
  pthread_cond_init(&pool.changed, NULL);
#endif
}

/* Start workers up to nth - 1; return the number of threads. Called with the pool locked. */
static int pool_grow(int nth) {
  if (nth > POOL_MAX) nth = POOL_MAX;
  if (!pool.prepared) {
    pool.prepared = 1;
    pool.pinned_away_from = -1;
#ifdef __linux__
    CPU_ZERO(&pool.allowed);
    sched_getaffinity(0, sizeof pool.allowed, &pool.allowed);
#else
    pthread_mutex_init(&pool.mutex, NULL);
    pthread_cond_init(&pool.changed, NULL);
#endif
    pthread_atfork(NULL, NULL, pool_after_fork);
  }
  while (pool.workers < nth - 1) {
    int tid = pool.workers + 1;
    pthread_t thread;
    sigset_t all, before;
    pool_starts[tid].tid = tid;
    pool_starts[tid].seen = atomic_load(&pool.epoch);
    atomic_store(&pool.starting, 1);
    sigfillset(&all); /* signals belong to the threads of the host program */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, NULL, pool_worker, &pool_starts[tid]);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
      atomic_store(&pool.starting, 0);
      break;
    }
    while (atomic_load(&pool.starting)) sched_yield();
    pool.threads[tid] = thread;
    pool.workers = tid;
    pool.pinned_away_from = -1;
  }
  return nth < pool.workers + 1 ? nth : pool.workers + 1;
}

/* Move the workers off the caller's CPU: the scheduler tends to wake a thread where its waker runs, and moves it only
 * milliseconds later. */
static void pool_spread(void) {
#ifdef __linux__
  int cpu = sched_getcpu();
  if (cpu < 0 || cpu == pool.pinned_away_from) return;
  pool.pinned_away_from = cpu;
  cpu_set_t rest = pool.allowed;
  CPU_CLR(cpu, &rest);
  if (CPU_COUNT(&rest) < pool.workers) rest = pool.allowed;
  for (int tid = 1; tid <= pool.workers; tid++) sched_setaffinity(pool.ids[tid], sizeof rest, &rest);
#endif
}

/* Run the job on up to nth threads and wait for all; return the number of threads. */
static int pool_run(pool_job job, void *context, int nth) {
  if (nth <= 1 || pthread_mutex_trylock(&pool.taken)) {
    job(context, 0, 1);
    return 1;
  }
  if ((nth = pool_grow(nth)) <= 1) {
    pthread_mutex_unlock(&pool.taken);
    job(context, 0, 1);
    return 1;
  }
  pool_spread();
  pool.job = job;
  pool.context = context;
  pool.nth = nth;
  uint32_t epoch = atomic_load_explicit(&pool.epoch, memory_order_relaxed) + 1;
  atomic_store_explicit(&pool.gate, (uint64_t)epoch << 32 | POOL_OPEN, memory_order_release);
  atomic_store(&pool.epoch, epoch);
  if (atomic_load(&pool.sleeping)) pool_wake();
  job(context, 0, nth);
  /* Workers not yet in the job stay out; those in it must leave before the job's memory is reused. */
  uint64_t gate = atomic_fetch_and(&pool.gate, ~POOL_OPEN) & ~POOL_OPEN;
  for (int spins = 0; (uint32_t)gate; gate = atomic_load_explicit(&pool.gate, memory_order_acquire)) pool_relax(&spins);
  pthread_mutex_unlock(&pool.taken);
  return nth;
}

/* End all workers and wait for them: before a library that contains this code may be unloaded. The next job starts new
 * ones. */
static inline void pool_stop(void) {
  pthread_mutex_lock(&pool.taken);
  const uint32_t epoch = atomic_load_explicit(&pool.epoch, memory_order_relaxed) + 1;
  atomic_store_explicit(&pool.gate, (uint64_t)epoch << 32 | POOL_END, memory_order_release);
  atomic_store(&pool.epoch, epoch);
  pool_wake();
  for (int tid = 1; tid <= pool.workers; tid++) pthread_join(pool.threads[tid], NULL);
  pool.workers = 0;
  atomic_store(&pool.gate, 0);
  pthread_mutex_unlock(&pool.taken);
}

#endif
