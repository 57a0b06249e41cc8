"""The walker of the step list: one call runs a stretch of native steps on all threads, without the GIL.

A `Walk` is the unchanging part (kernels), a `Binding` what follows from the extents of one run's inputs (offsets,
dims), a `Frame` the memory of one run in progress. Each pointer that a kernel gets is a base of the frame plus an
offset of the binding; base 0 is the address 0, whose offsets are addresses.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint32_t, uintptr_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset


cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void** pointer, size_t alignment, size_t size)


cdef extern from "pool.h" nogil:
    ctypedef void (*pool_job)(void* context, int tid, int nth) noexcept nogil
    int pool_run(pool_job job, void* context, int nth)
    void pool_barrier(int nth)


cdef extern from *:
    """
    #include <time.h>
    static double walk_clock(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    }
    """
    double walk_clock() nogil


ctypedef void (*kernel_t)(void** bufs, const int64_t* dims, int tid, int nth) noexcept nogil

cdef struct step_t:
    kernel_t kernel
    int32_t bufs    # its first pointer among those of the walk
    int32_t dims    # its first dim
    int32_t guards  # how many conditions it has: the flags that the pointers from `first` on lead to
    int32_t first
    int32_t group   # of steps with the same conditions; 0: none
    uint32_t wanted # what each condition has to be, a bit for each

cdef struct job_t:
    const step_t* steps
    const unsigned char* limits
    int count
    void** bufs
    const int64_t* dims
    double* times   # of a profiled run: begin and end of each step on each thread
    int stride      # threads that `times` has room for


cdef inline bint _holds(const job_t* job, const step_t* step) noexcept nogil:
    """Whether all conditions of a step are as wanted."""
    cdef int g
    for g in range(step.guards):
        if ((<const char*> job.bufs[step.first + g])[0] != 0) != ((step.wanted >> g) & 1):
            return False
    return True


cdef inline bint _begin(const job_t* job, int i, int nth, int* since, int* group) noexcept nogil:
    """Whether step i is to be run, after the barrier that it needs.

    `since` is 0 if nobody has worked since the last barrier, 1 if only thread 0 has, 2 if several have; `group` that of
    the step before: a condition is read once all threads can see it."""
    cdef const step_t* step = &job.steps[i]
    if not job.limits[i]:
        return False
    if step.group != group[0]:
        group[0] = step.group
        if step.guards and since[0] and nth > 1:
            pool_barrier(nth)
            since[0] = 0
    if step.guards and not _holds(job, step):
        return False
    cdef bint alone = job.limits[i] == 1 or nth == 1
    if since[0] == 2 or (since[0] == 1 and not alone):
        pool_barrier(nth)
    since[0] = 1 if alone else 2
    return True


cdef void _walk(void* context, int tid, int nth) noexcept nogil:
    cdef job_t* job = <job_t*> context
    cdef const step_t* step
    cdef int i, n
    cdef int since = 0, group = 0
    for i in range(job.count):
        if not _begin(job, i, nth, &since, &group):
            continue
        step = &job.steps[i]
        n = min(nth, <int> job.limits[i]) if job.limits[i] < 255 else nth
        if tid < n:
            step.kernel(job.bufs + step.bufs, job.dims + step.dims, tid, n)


cdef void _walk_timed(void* context, int tid, int nth) noexcept nogil:
    """Like `_walk`, with the same barriers, and notes when each thread begins and ends each step."""
    cdef job_t* job = <job_t*> context
    cdef const step_t* step
    cdef double* mine
    cdef int i, n
    cdef int since = 0, group = 0
    for i in range(job.count):
        if not _begin(job, i, nth, &since, &group):
            continue
        step = &job.steps[i]
        n = min(nth, <int> job.limits[i]) if job.limits[i] < 255 else nth
        if tid < n:
            mine = job.times + 2 * (<int64_t> i * job.stride + tid)
            mine[0] = walk_clock()
            step.kernel(job.bufs + step.bufs, job.dims + step.dims, tid, n)
            mine[1] = walk_clock()


cdef class Walk:
    """A stretch of steps.

    Made from rows `(address, number of pointers, number of dims, group, wanted)`, and the base of each pointer
    in order. A step's last pointers lead to the flags of its conditions, as many as `wanted` has; steps of a group have
    the same conditions, those of group 0 none."""

    cdef step_t* steps
    cdef int32_t* bases
    cdef readonly int count
    cdef readonly int pointers
    cdef readonly int dims
    cdef readonly int frame_bases

    def __cinit__(self, rows, bases):
        cdef int i = 0
        self.count = len(rows)
        self.steps = <step_t*> PyMem_Malloc(max(1, self.count) * sizeof(step_t))
        self.pointers = len(bases)
        self.bases = <int32_t*> PyMem_Malloc(max(1, self.pointers) * sizeof(int32_t))
        if self.steps == NULL or self.bases == NULL:
            raise MemoryError
        for address, pointers, dims, group, wanted in rows:
            if len(wanted) > 32 or len(wanted) > pointers:
                raise ValueError("too many conditions")
            self.steps[i].kernel = <kernel_t> <uintptr_t> address
            self.steps[i].group = group
            self.steps[i].guards = len(wanted)
            self.steps[i].wanted = sum([1 << g for g, flag in enumerate(wanted) if flag])
            i += 1
        i = 0
        cdef int at = 0, dim = 0
        for _, pointers, dims, _, wanted in rows:
            self.steps[i].bufs = at
            self.steps[i].dims = dim
            at += pointers
            self.steps[i].first = at - len(wanted)
            dim += dims
            i += 1
        if at != self.pointers:
            raise ValueError("one base is needed for each pointer")
        self.dims = dim
        self.frame_bases = 0
        for i, base in enumerate(bases):
            self.bases[i] = base
            self.frame_bases = max(self.frame_bases, base + 1)

    def __dealloc__(self):
        PyMem_Free(self.steps)
        PyMem_Free(self.bases)

    def run(self, Binding binding, Frame frame, int threads, bint timed=False):
        """Runs the steps on up to `threads` threads. None, or if `timed` the bytes of doubles [step, thread, 2]: when
        each thread began and ended each step, in seconds of the monotonic clock; zeros where it took no part.

        The caller has set the bases of the frame, to memory that holds what the binding's offsets assume."""
        cdef job_t job
        cdef void** bufs
        cdef bytes record = None
        cdef int i
        if binding.walk is not self:
            raise ValueError("a binding of another walk")
        if frame.count < self.frame_bases:
            raise ValueError("the frame has too few bases")
        bufs = <void**> frame.pointers(self.pointers)
        job.steps = self.steps
        job.limits = binding.limits
        job.count = self.count
        job.bufs = bufs
        job.dims = binding.extents
        job.times = NULL
        job.stride = max(1, threads)
        if timed:
            record = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> self.count * job.stride * 2 * sizeof(double))
            job.times = <double*> PyBytes_AS_STRING(record)
            memset(job.times, 0, len(record))
        with nogil:
            for i in range(self.pointers):
                bufs[i] = <void*> (frame.bases[self.bases[i]] + binding.offsets[i])
            pool_run(_walk_timed if timed else _walk, &job, threads)
        return record


cdef class Binding:
    """Offsets of the pointers, values of the dims, and how many threads each step may have (0: it isn't run; 255: any
    number), for one set of extents."""

    cdef Walk walk
    cdef int64_t* offsets
    cdef int64_t* extents
    cdef unsigned char* limits

    def __cinit__(self, Walk walk, offsets, extents, limits):
        cdef Py_ssize_t i
        self.walk = walk
        if len(offsets) != walk.pointers or len(extents) != walk.dims or len(limits) != walk.count:
            raise ValueError("a binding has an offset for each pointer, a value for each dim, a limit for each step")
        self.offsets = <int64_t*> PyMem_Malloc(max(1, walk.pointers) * sizeof(int64_t))
        self.extents = <int64_t*> PyMem_Malloc(max(1, walk.dims) * sizeof(int64_t))
        self.limits = <unsigned char*> PyMem_Malloc(max(1, walk.count))
        if self.offsets == NULL or self.extents == NULL or self.limits == NULL:
            raise MemoryError
        for i, offset in enumerate(offsets):
            self.offsets[i] = offset
        for i, extent in enumerate(extents):
            self.extents[i] = extent
        for i, most in enumerate(limits):
            self.limits[i] = most

    def __dealloc__(self):
        PyMem_Free(self.offsets)
        PyMem_Free(self.extents)
        PyMem_Free(self.limits)


cdef class Frame:
    """The memory of one run in progress: bases, and blocks that are kept from run to run."""

    cdef int64_t* bases
    cdef readonly int count
    cdef void** blocks
    cdef size_t* sizes
    cdef void* bufs
    cdef int capacity

    def __cinit__(self, int count):
        self.count = count
        self.bases = <int64_t*> PyMem_Malloc(max(1, count) * sizeof(int64_t))
        self.blocks = <void**> PyMem_Malloc(max(1, count) * sizeof(void*))
        self.sizes = <size_t*> PyMem_Malloc(max(1, count) * sizeof(size_t))
        if self.bases == NULL or self.blocks == NULL or self.sizes == NULL:
            raise MemoryError
        memset(self.bases, 0, count * sizeof(int64_t))
        memset(self.blocks, 0, count * sizeof(void*))
        memset(self.sizes, 0, count * sizeof(size_t))

    def __dealloc__(self):
        cdef int i
        if self.blocks != NULL:
            for i in range(self.count):
                free(self.blocks[i])
        PyMem_Free(self.bases)
        PyMem_Free(self.blocks)
        PyMem_Free(self.sizes)
        PyMem_Free(self.bufs)

    cdef void* pointers(self, int count) except NULL:
        if count > self.capacity or self.bufs == NULL:
            PyMem_Free(self.bufs)
            self.bufs = PyMem_Malloc(max(1, count) * sizeof(void*))
            if self.bufs == NULL:
                self.capacity = 0
                raise MemoryError
            self.capacity = count
        return self.bufs

    def set(self, int base, int64_t address):
        """Points a base at an address. Base 0 stays 0."""
        if not 0 < base < self.count:
            raise IndexError(base)
        self.bases[base] = address

    def base(self, int base):
        """The address of a base."""
        if not 0 <= base < self.count:
            raise IndexError(base)
        return self.bases[base]

    def flag(self, int base, int64_t offset):
        """Whether the byte at an offset from a base isn't 0."""
        if not 0 <= base < self.count or self.bases[base] + offset == 0:
            raise IndexError(base)
        return (<const char*> <uintptr_t> (self.bases[base] + offset))[0] != 0

    def reserve(self, int base, size_t size):
        """Points a base at a block of at least `size` bytes, 64-byte aligned and with 64 bytes of slack; its contents
        are undefined. The block is kept for later runs, and grows when more is asked for. Raises MemoryError."""
        cdef void* block = NULL
        if not 0 < base < self.count:
            raise IndexError(base)
        if self.blocks[base] == NULL or self.sizes[base] < size:
            free(self.blocks[base])
            self.blocks[base] = NULL
            # Blocks of a huge page or more start at one: fewer misses of the address translation.
            if posix_memalign(&block, 2097152 if size >= 2097152 else 64, size + 64):
                raise MemoryError(f"{size} bytes for intermediate values")
            self.blocks[base] = block
            self.sizes[base] = size
        self.bases[base] = <int64_t> <uintptr_t> self.blocks[base]
        return self.bases[base]

    def memory(self, int base, int64_t offset, Py_ssize_t size):
        """A view of `size` bytes from `offset` on in the block of a base, valid until the block changes."""
        if self.blocks[base] == NULL or offset < 0 or offset + size > <int64_t> self.sizes[base]:
            raise IndexError(offset)
        return PyMemoryView_FromMemory(<char*> self.blocks[base] + offset, size, PyBUF_READ)

    def copy_in(self, int base, int64_t address, size_t size):
        """Like `reserve`, and copies `size` bytes from an address there."""
        self.reserve(base, size)
        with nogil:
            memcpy(<void*> <uintptr_t> self.bases[base], <const void*> <uintptr_t> address, size)
