"""What the CPU can do, asked of the CPU itself."""


cdef extern from "cpu.h" nogil:
    ctypedef struct cpu_feature:
        const char* name
    const cpu_feature* cpu_features
    int CPU_FEATURES
    int cpu_has(int number)


def features():
    """The features of this CPU that the operating system supports, by the names that Linux gives them; of those that
    kernels are made for. Empty on other architectures than x86."""
    return frozenset([cpu_features[i].name.decode() for i in range(CPU_FEATURES) if cpu_has(i)])
