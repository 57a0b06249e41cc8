/* Measures the peak of arithmetic, the rates of the memory levels and the handover between threads; see microbench.py.

   Arguments: the seconds for each figure, then the working sets in bytes. Prints the figures as JSON. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef float vf __attribute__((vector_size(WIDTH * 4)));

static double clock_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static double now(void) { return clock_of(CLOCK_MONOTONIC); }
/* Time of this thread, of which rates are made: what other processes take on a shared machine does not count. */
static double used(void) { return clock_of(CLOCK_THREAD_CPUTIME_ID); }

/* Five values stay in registers, and the compiler cannot merge the chains. */
#if defined(__aarch64__)
#define KEEP(a, b, c, d, e) __asm__ volatile("" : "+w"(a), "+w"(b), "+w"(c), "+w"(d), "+w"(e))
#elif defined(__AVX512F__)
#define KEEP(a, b, c, d, e) __asm__ volatile("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e))
#elif defined(__x86_64__)
#define KEEP(a, b, c, d, e) __asm__ volatile("" : "+x"(a), "+x"(b), "+x"(c), "+x"(d), "+x"(e))
#else
#define KEEP(a, b, c, d, e) __asm__ volatile("" : "+m"(a), "+m"(b), "+m"(c), "+m"(d), "+m"(e))
#endif

/* Ten independent chains hide the latency of a fused multiply-add on all current cores. Not static: benchmarks of layers
   call it from a library. */
double peak(double seconds) {
    vf x, y;
    for (int l = 0; l < WIDTH; l++) { x[l] = 0.999f; y[l] = 0.001f; }
    vf a = y, b = y, c = y, d = y, e = y, f = y, g = y, h = y, i = y, j = y;
    double best = 0, stop = now() + seconds;
    while (now() < stop) {
        double start = used();
        for (int n = 0; n < 200000; n++) {
            a = a * x + y; b = b * x + y; c = c * x + y; d = d * x + y; e = e * x + y;
            f = f * x + y; g = g * x + y; h = h * x + y; i = i * x + y; j = j * x + y;
            KEEP(a, b, c, d, e);
            KEEP(f, g, h, i, j);
        }
        double rate = 200000.0 * 10 * 2 * WIDTH / (used() - start);
        if (rate > best) best = rate;
    }
    volatile float sink = (a + b + c + d + e + f + g + h + i + j)[0];
    (void)sink;
    return best;
}

/* Reads one buffer and writes another of the same size; the rate counts both. */
static double stream(size_t bytes, double seconds) {
    size_t n = bytes / 2 / sizeof(vf);
    vf *src = aligned_alloc(4096, (n * sizeof(vf) + 4095) / 4096 * 4096);
    vf *dst = aligned_alloc(4096, (n * sizeof(vf) + 4095) / 4096 * 4096);
    if (!src || !dst) return 0;
    memset(src, 0, n * sizeof(vf));
    memset(dst, 0, n * sizeof(vf));
    vf one;
    for (int l = 0; l < WIDTH; l++) one[l] = 1.0f;
    double best = 0, stop = now() + seconds;
    int repeat = (int)((1 << 24) / bytes) + 1;
    while (now() < stop) {
        double start = used();
        for (int r = 0; r < repeat; r++) {
            for (size_t i = 0; i < n; i++) dst[i] = src[i] + one;
            __asm__ volatile("" : : "r"(dst) : "memory");
        }
        double rate = (double)repeat * 2 * n * sizeof(vf) / (used() - start);
        if (rate > best) best = rate;
    }
    free(src);
    free(dst);
    return best;
}

/* Reads or writes each of `count` buffers once, in order, and returns the seconds that took. Not static, as `peak` is not. */
double traffic(int count, vf *const *buffers, const size_t *bytes, const int *written) {
    double start = used();
    vf sums[4] = {0};
    for (int i = 0; i < count; i++) {
        vf *const at = buffers[i];
        const size_t n = bytes[i] / sizeof(vf);
        if (written[i])
            for (size_t k = 0; k < n; k++) at[k] = sums[0];
        else
            for (size_t k = 0; k < n; k++) sums[k % 4] += at[k];
        __asm__ volatile("" : : "r"(at) : "memory");
    }
    volatile float sink = (sums[0] + sums[1] + sums[2] + sums[3])[0];
    (void)sink;
    return used() - start;
}

static atomic_int token, quit;

static void *partner(void *unused) {
    while (!atomic_load(&quit))
        if (atomic_load(&token) == 1) atomic_store(&token, 0);
    return unused;
}

/* The time to hand work to a spinning thread and see it done. */
static double handover(double seconds) {
    pthread_t thread;
    if (pthread_create(&thread, 0, partner, 0)) return 0;
    double best = 1, stop = now() + seconds;
    while (now() < stop) {
        double start = now();
        int done = 0;
        for (; done < 1000 && now() < stop + 0.1; done++) {
            atomic_store(&token, 1);
            while (atomic_load(&token) && now() < stop + 0.1) {}
        }
        double each = (now() - start) / (done ? done : 1);
        if (done && each < best) best = each;
    }
    atomic_store(&quit, 1);
    pthread_join(thread, 0);
    return best;
}

int main(int argc, char **argv) {
    double share = atof(argv[1]);
    printf("{\"flops\": %.6g, \"bandwidths\": [", peak(share));
    for (int i = 2; i < argc; i++) printf("%s%.6g", i > 2 ? ", " : "", stream(strtoull(argv[i], 0, 10), share));
    printf("], \"launch\": %.6g}\n", handover(share));
    return 0;
}
