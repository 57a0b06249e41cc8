"""Walks: sequences of steps, and their bindings to the extents of a run."""


cdef class Walk:
    """A sequence of steps.

    Made from rows `(address, number of pointers, number of dims, wanted)`, and the base of each pointer in order. A
    step's last pointers lead to the flags of its conditions, as many as `wanted` has."""

    cdef walk_step* steps
    cdef int32_t* bases
    cdef readonly int count
    cdef readonly int pointers
    cdef readonly int dims
    cdef int frame_bases

    def __cinit__(self, rows, bases):
        cdef int i = 0
        self.count = len(rows)
        self.steps = <walk_step*> PyMem_Malloc(max(1, self.count) * sizeof(walk_step))
        self.pointers = len(bases)
        self.bases = <int32_t*> PyMem_Malloc(max(1, self.pointers) * sizeof(int32_t))
        if self.steps == NULL or self.bases == NULL:
            raise MemoryError
        for row in rows:
            address, pointers, wanted = row[0], row[1], row[len(row) - 1]
            if len(wanted) > 32 or len(wanted) > pointers:
                raise ValueError("too many conditions")
            self.steps[i].kernel = <walk_kernel> <uintptr_t> address
            self.steps[i].guards = len(wanted)
            self.steps[i].wanted = sum([1 << g for g, flag in enumerate(wanted) if flag])
            i += 1
        i = 0
        cdef int at = 0, dim = 0
        for row in rows:
            pointers, dims, wanted = row[1], row[2], row[len(row) - 1]
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


cdef class Binding:
    """Offsets of the pointers, values of the dims, and the maximum number of threads of each step, for one set of extents.

    A limit of 0 skips the step, 255 stands for any number."""

    cdef Walk walk
    cdef int64_t* offsets
    cdef int64_t* extents
    cdef unsigned char* limits
    cdef bint serial  # one thread runs everything

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
        self.serial = True
        for i, most in enumerate(limits):
            self.limits[i] = most
            if most > 1:
                self.serial = False

    def __dealloc__(self):
        PyMem_Free(self.offsets)
        PyMem_Free(self.extents)
        PyMem_Free(self.limits)
