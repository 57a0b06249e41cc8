/* CPU features that the operating system supports: the CPUID instruction, and XGETBV for the register state that is saved
 * when threads are switched. Bit numbers are those of Intel's and AMD's manuals. Linux saves the tiles of AMX only for
 * processes that have asked for it: detection asks, and a feature counts where permission is given. It holds for all
 * threads of the process, earlier ones included. */
#ifndef REWRITE_CPU_H
#define REWRITE_CPU_H

#include <stdint.h>
#include <string.h>

typedef struct {
  const char *name;
  unsigned leaf, subleaf;
  int reg; /* 0 .. 3 are eax, ebx, ecx, edx */
  int bit;
  int state; /* register state that must be saved: 0 none beyond SSE, 1 AVX, 2 AVX-512, 3 tiles, 4 never */
} cpu_feature;

static const cpu_feature cpu_features[] = {
    {"fma", 1, 0, 2, 12, 1},
    {"f16c", 1, 0, 2, 29, 1},
    {"movbe", 1, 0, 2, 22, 0},
    {"lzcnt", 0x80000001u, 0, 2, 5, 0},
    {"bmi1", 7, 0, 1, 3, 0},
    {"bmi2", 7, 0, 1, 8, 0},
    {"avx2", 7, 0, 1, 5, 1},
    {"avx512f", 7, 0, 1, 16, 2},
    {"avx512dq", 7, 0, 1, 17, 2},
    {"avx512cd", 7, 0, 1, 28, 2},
    {"avx512bw", 7, 0, 1, 30, 2},
    {"avx512vl", 7, 0, 1, 31, 2},
    {"avx512_vnni", 7, 0, 2, 11, 2},
    {"avx512_bf16", 7, 1, 0, 5, 2},
    {"avx_vnni", 7, 1, 0, 4, 1},
    {"amx_bf16", 7, 0, 3, 22, 3},
    {"amx_int8", 7, 0, 3, 25, 3},
    {"neon", 0, 0, 0, 0, 4}, /* none of x86 */
};
#define CPU_FEATURES ((int)(sizeof cpu_features / sizeof cpu_features[0]))

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>

/* Return whether the kernel lets this process use the data of tiles, which it saves for no other. */
static int cpu_may_use_tiles(void) {
  const long ask_for_state = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
  return !syscall(SYS_arch_prctl, ask_for_state, tile_data);
}
#else
static int cpu_may_use_tiles(void) { return 0; }
#endif

/* Return the highest register state that the system saves: see `cpu_feature`. */
static int cpu_state(void) {
  unsigned a, b, c, d, low, high;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0; /* OSXSAVE: XGETBV exists */
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & 0x06) != 0x06) return 0;
  if ((low & 0xe6) != 0xe6) return 1;
  if ((low & 0x60000) != 0x60000) return 2;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 24 & 1)) return 2; /* AMX-TILE: moving tiles */
  return cpu_may_use_tiles() ? 3 : 2;
}

/* Return whether this CPU has the feature with this number. */
static int cpu_has(int number) {
  const cpu_feature *wanted = &cpu_features[number];
  unsigned regs[4] = {0, 0, 0, 0};
  if (wanted->state > cpu_state()) return 0;
  if (!__get_cpuid_count(wanted->leaf, wanted->subleaf, &regs[0], &regs[1], &regs[2], &regs[3])) return 0;
  return regs[wanted->reg] >> wanted->bit & 1;
}
#else
/* NEON belongs to the baseline of 64-bit Arm. */
static int cpu_has(int number) {
#ifdef __aarch64__
  return !strcmp(cpu_features[number].name, "neon");
#else
  (void)number;
  return 0;
#endif
}
#endif

#endif
