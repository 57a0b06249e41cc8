"""Features of the CPU, from the CPUID instruction on x86."""


cdef extern from "cpu.h" nogil:
    ctypedef struct cpu_feature:
        const char* name
    const cpu_feature* cpu_features
    int CPU_FEATURES
    int cpu_has(int number)


def features():
    """Return the features of this CPU that kernels use and the operating system supports, by their Linux names.

    On 64-bit Arm that is `neon`; empty on architectures other than these."""
    return frozenset([cpu_features[i].name.decode() for i in range(CPU_FEATURES) if cpu_has(i)])
