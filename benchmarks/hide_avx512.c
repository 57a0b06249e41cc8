/* Answers CPUID as a CPU with AVX2 and nothing wider would: without AVX-512, AMX and AVX-VNNI.

   Linux can let CPUID fault (arch_prctl(2), ARCH_CPUID; the flag cpuid_fault in /proc/cpuinfo). The fault arrives as
   SIGSEGV at the instruction, which the handler carries out itself. Threads inherit the setting, programs started by exec
   do not. Bits are those of Intel's Software Developer's Manual, volume 2, CPUID. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_CPUID 0x1012
#define BIT(n) (1u << (n))

static struct sigaction before;

static void answer(unsigned leaf, unsigned subleaf, unsigned *a, unsigned *b, unsigned *c, unsigned *d) {
    syscall(SYS_arch_prctl, ARCH_CPUID, 1);
    __cpuid_count(leaf, subleaf, *a, *b, *c, *d);
    syscall(SYS_arch_prctl, ARCH_CPUID, 0);
    if (leaf == 7 && subleaf == 0) {
        *b &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31)); /* F DQ IFMA PF ER CD BW VL */
        *c &= ~(BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14)); /* VBMI VBMI2 VNNI BITALG VPOPCNTDQ */
        *d &= ~(BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25)); /* 4VNNIW 4FMAPS VP2INTERSECT AMX FP16 */
    } else if (leaf == 7 && subleaf == 1) {
        *a &= ~(BIT(4) | BIT(5) | BIT(21) | BIT(23)); /* AVX-VNNI AVX512-BF16 AMX-FP16 AVX-IFMA */
        *d &= ~(BIT(4) | BIT(5) | BIT(8) | BIT(10) | BIT(19)); /* AVX-VNNI-INT8, -NE-CONVERT, AMX, -INT16, AVX10 */
    } else if (leaf == 0xd && subleaf == 0) {
        *a &= ~(BIT(5) | BIT(6) | BIT(7) | BIT(17) | BIT(18)); /* state of masks, of wide registers, of tiles */
    }
}

static void on_fault(int number, siginfo_t *info, void *context) {
    greg_t *at = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)at[REG_RIP];
    if (info->si_code == SI_KERNEL && code[0] == 0x0f && code[1] == 0xa2) {
        unsigned a, b, c, d;
        answer((unsigned)at[REG_RAX], (unsigned)at[REG_RCX], &a, &b, &c, &d);
        at[REG_RAX] = a, at[REG_RBX] = b, at[REG_RCX] = c, at[REG_RDX] = d;
        at[REG_RIP] += 2;
        return;
    }
    sigaction(number, &before, NULL); /* a fault of the program: it happens again, and is treated as without us */
}

static int faults;

/* When the library is loaded: by this process, or with LD_PRELOAD by each one of Python. Compilers handle faults themselves. */
__attribute__((constructor)) static void begin(void) {
    if (strncmp(program_invocation_short_name, "python", 6) != 0) return;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGSEGV, &action, &before) != 0) return;
    faults = syscall(SYS_arch_prctl, ARCH_CPUID, 0) == 0;
    if (!faults) sigaction(SIGSEGV, &before, NULL);
}

/* Whether CPUID is answered by this library: not where the CPU cannot let it fault. */
int hides_avx512(void) { return faults; }
