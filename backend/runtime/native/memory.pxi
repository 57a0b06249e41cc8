"""Memory of runs: frames of runs in progress, and stores that recycle the memory of outputs."""


cdef class Frame:
    """Memory of one run in progress: bases, and buffers that later runs reuse."""

    cdef frame_t own
    cdef Py_buffer* views
    cdef call_view* spans  # of the views
    cdef int room  # for both

    def __cinit__(self, int count):
        if frame_make(&self.own, count):
            raise MemoryError

    def __dealloc__(self):
        frame_free(&self.own)
        PyMem_Free(self.views)
        PyMem_Free(self.spans)

    cdef walk_share* shared(self, int count) except NULL:
        cdef walk_share* found = frame_shares(&self.own, count)
        if found == NULL:
            raise MemoryError
        return found

    cdef Py_buffer* buffers(self, int count) except NULL:
        if count > self.room or self.views == NULL:
            PyMem_Free(self.views)
            PyMem_Free(self.spans)
            self.room = 0
            self.views = <Py_buffer*> PyMem_Malloc(max(1, count) * sizeof(Py_buffer))
            self.spans = <call_view*> PyMem_Malloc(max(1, count) * sizeof(call_view))
            if self.views == NULL or self.spans == NULL:
                raise MemoryError
            self.room = count
        return self.views

    cdef void** pointers(self, int count) except NULL:
        cdef void** found = frame_pointers(&self.own, count)
        if found == NULL:
            raise MemoryError
        return found

    def set(self, int base, int64_t address):
        """Point a base at an address. Base 0 stays 0."""
        if not 0 < base < self.own.count:
            raise IndexError(base)
        self.own.bases[base] = address

    def base(self, int base):
        """Return the address of a base."""
        if not 0 <= base < self.own.count:
            raise IndexError(base)
        return self.own.bases[base]

    def flag(self, int base, int64_t offset):
        """Return whether the byte at an offset from a base is nonzero."""
        if not 0 <= base < self.own.count or self.own.bases[base] + offset == 0:
            raise IndexError(base)
        return (<const char*> <uintptr_t> (self.own.bases[base] + offset))[0] != 0

    def reserve(self, int base, size_t size):
        """Point a base at a buffer of at least `size` bytes, 64-byte aligned and with 64 bytes of slack.

        Its contents are undefined. Later runs reuse the buffer, which grows on demand. Raises MemoryError."""
        if not 0 < base < self.own.count:
            raise IndexError(base)
        self.hold(base, size)
        return self.own.bases[base]

    cdef int hold(self, int base, size_t size) except -1:
        if frame_hold(&self.own, base, size):
            raise MemoryError(f"{size} bytes for intermediate values")
        return 0

    def memory(self, int base, int64_t offset, Py_ssize_t size):
        """Return a view of `size` bytes from `offset` on in the buffer of a base, valid until that changes."""
        if self.own.owned[base] == NULL or offset < 0 or offset + size > <int64_t> self.own.sizes[base]:
            raise IndexError(offset)
        return PyMemoryView_FromMemory(<char*> self.own.owned[base] + offset, size, PyBUF_READ)

    def copy_in(self, int base, int64_t address, size_t size):
        """Reserve a buffer and copy `size` bytes from an address to it."""
        self.reserve(base, size)
        with nogil:
            memcpy(<void*> <uintptr_t> self.own.bases[base], <const void*> <uintptr_t> address, size)


cdef enum:
    SPARE = 2  # buffers that a store holds for the next runs


cdef class Store:
    """Buffers for one output of a program.

    A buffer returns to its store when the caller drops its array, so that a loop of runs allocates no new memory, which
    the system would have to clear."""

    cdef readonly Py_ssize_t size
    cdef void* spare[SPARE]
    cdef int count

    def __cinit__(self, Py_ssize_t size):
        self.size = max(1, size)
        self.count = 0

    def __dealloc__(self):
        while self.count:
            self.count -= 1
            free(self.spare[self.count])

    cpdef Buffer take(self):
        """Return a buffer of the store's size: an exporter of writable memory, 64-byte aligned. Raises MemoryError."""
        cdef Buffer buffer = Buffer.__new__(Buffer)
        if self.count:
            self.count -= 1
            buffer.memory = self.spare[self.count]
        else:
            buffer.memory = memory_take(self.size + MEMORY_OFFSET)
            if buffer.memory == NULL:
                raise MemoryError(f"{self.size} bytes for an output")
        buffer.store = self
        return buffer


@cython.final
@cython.no_gc
cdef class Buffer:
    """Memory that returns to a store."""

    cdef void* memory
    cdef Store store

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, memory_place(self.memory, self.store.size), self.store.size, 0, flags)

    def __dealloc__(self):
        if self.memory == NULL:
            return
        if self.store is not None and self.store.count < SPARE:
            self.store.spare[self.store.count] = self.memory
            self.store.count += 1
        else:
            free(self.memory)
