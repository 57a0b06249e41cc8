"""The walker of the step list: one call runs a stretch of native steps on all threads, without the GIL.

A `Walk` is the unchanging part (kernels), a `Binding` what follows from the extents of one run's inputs (offsets,
dims), a `Frame` the memory of one run in progress. Each pointer that a kernel gets is a base of the frame plus an
offset of the binding; base 0 is the address 0, whose offsets are addresses. A `Call` is all of that for programs that
run without Python in between: from arrays to arrays in one step.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_READ,
    PyBUF_WRITABLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint32_t, uintptr_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset


cdef extern from "memory.h" nogil:
    void* memory_take(size_t size)
    bint memory_suits(const void* start, size_t size)


cdef extern from "pool.h" nogil:
    ctypedef void (*pool_job)(void* context, int tid, int nth) noexcept nogil
    int pool_run(pool_job job, void* context, int nth)


cdef extern from "walk.h" nogil:
    ctypedef void (*walk_kernel)(void** bufs, const int64_t* dims, int tid, int nth) noexcept nogil
    ctypedef struct walk_step:
        walk_kernel kernel
        int32_t bufs
        int32_t dims
        int32_t guards
        int32_t first
        uint32_t wanted
    ctypedef struct walk_share:
        pass
    ctypedef struct walk_job:
        const walk_step* steps
        const unsigned char* limits
        int count
        void** bufs
        const int64_t* dims
        walk_share* shares
        double* times
        int stride
    void walk(void* context, int tid, int nth) noexcept nogil


cdef class Walk:
    """A stretch of steps.

    Made from rows `(address, number of pointers, number of dims, wanted)`, and the base of each pointer in order. A
    step's last pointers lead to the flags of its conditions, as many as `wanted` has."""

    cdef walk_step* steps
    cdef int32_t* bases
    cdef readonly int count
    cdef readonly int pointers
    cdef readonly int dims
    cdef readonly int frame_bases

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

    def run(self, Binding binding, Frame frame, int threads, bint timed=False):
        """Runs the steps on up to `threads` threads. None, or if `timed` the bytes of doubles [step, thread, 2]: when
        each thread began and ended each step, in seconds of the monotonic clock; zeros where it took no part.

        The caller has set the bases of the frame, to memory that holds what the binding's offsets assume."""
        cdef bytes record = None
        cdef double* times = NULL
        if binding.walk is not self:
            raise ValueError("a binding of another walk")
        if frame.count < self.frame_bases:
            raise ValueError("the frame has too few bases")
        if timed:
            threads = max(1, threads)
            record = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> self.count * threads * 2 * sizeof(double))
            times = <double*> PyBytes_AS_STRING(record)
            memset(times, 0, len(record))
        self.launch(binding, frame, threads, times)
        return record

    cdef int launch(self, Binding binding, Frame frame, int threads, double* times) except -1:
        cdef walk_job job
        cdef int i
        cdef bint serial = binding.serial or threads < 2
        job.steps = self.steps
        job.limits = binding.limits
        job.count = self.count
        job.bufs = <void**> frame.pointers(self.pointers)
        job.dims = binding.extents
        job.shares = NULL if serial else frame.shared(self.count)
        job.times = times
        job.stride = threads
        with nogil:
            for i in range(self.pointers):
                job.bufs[i] = <void*> (frame.bases[self.bases[i]] + binding.offsets[i])
            # Waking the workers costs more than steps that one thread is enough for.
            if serial:
                walk(&job, 0, 1)
            else:
                memset(job.shares, 0, self.count * sizeof(walk_share))
                pool_run(walk, &job, threads)
        return 0


cdef class Binding:
    """Offsets of the pointers, values of the dims, and how many threads each step may have (0: it isn't run; 255: any
    number), for one set of extents."""

    cdef Walk walk
    cdef int64_t* offsets
    cdef int64_t* extents
    cdef unsigned char* limits
    cdef bint serial  # one thread does all

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


cdef class Frame:
    """The memory of one run in progress: bases, and blocks that are kept from run to run."""

    cdef int64_t* bases
    cdef readonly int count
    cdef void** blocks
    cdef size_t* sizes
    cdef void* bufs
    cdef int capacity
    cdef Py_buffer* views
    cdef int room  # for views
    cdef walk_share* shares
    cdef int steps  # that there are shares for

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
        PyMem_Free(self.views)
        PyMem_Free(self.shares)

    cdef walk_share* shared(self, int count) except NULL:
        if count > self.steps or self.shares == NULL:
            PyMem_Free(self.shares)
            self.steps = 0
            self.shares = <walk_share*> PyMem_Malloc(max(1, count) * sizeof(walk_share))
            if self.shares == NULL:
                raise MemoryError
            self.steps = count
        return self.shares

    cdef Py_buffer* buffers(self, int count) except NULL:
        if count > self.room or self.views == NULL:
            PyMem_Free(self.views)
            self.room = 0
            self.views = <Py_buffer*> PyMem_Malloc(max(1, count) * sizeof(Py_buffer))
            if self.views == NULL:
                raise MemoryError
            self.room = count
        return self.views

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
        if not 0 < base < self.count:
            raise IndexError(base)
        self.hold(base, size)
        return self.bases[base]

    cdef int hold(self, int base, size_t size) except -1:
        if self.blocks[base] == NULL or self.sizes[base] < size:
            free(self.blocks[base])
            self.sizes[base] = 0
            self.blocks[base] = memory_take(size)
            if self.blocks[base] == NULL:
                raise MemoryError(f"{size} bytes for intermediate values")
            self.sizes[base] = size
        self.bases[base] = <int64_t> <uintptr_t> self.blocks[base]
        return 0

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


# --- from arrays to arrays ----------------------------------------------------------------------------------------------

cdef enum:
    KEPT = 2  # blocks that a store keeps for the next runs


cdef class Store:
    """Blocks for one output of a program. A block goes back to its store when the caller has dropped the array in it, so
    that a loop of runs takes no new memory, which the system would have to clear."""

    cdef readonly Py_ssize_t size
    cdef void* kept[KEPT]
    cdef int count

    def __cinit__(self, Py_ssize_t size):
        self.size = max(1, size)
        self.count = 0

    def __dealloc__(self):
        while self.count:
            self.count -= 1
            free(self.kept[self.count])

    cpdef Block take(self):
        """A block of the store's size: an exporter of writable memory, 64-byte aligned. Raises MemoryError."""
        cdef Block block = Block.__new__(Block)
        if self.count:
            self.count -= 1
            block.memory = self.kept[self.count]
        else:
            block.memory = memory_take(self.size)
            if block.memory == NULL:
                raise MemoryError(f"{self.size} bytes for an output")
        block.store = self
        return block


@cython.final
@cython.no_gc
cdef class Block:
    """Memory that is given back to a store."""

    cdef void* memory
    cdef Store store

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.memory, self.store.size, 0, flags)

    def __dealloc__(self):
        if self.memory == NULL:
            return
        if self.store is not None and self.store.count < KEPT:
            self.store.kept[self.store.count] = self.memory
            self.store.count += 1
        else:
            free(self.memory)


cdef struct port_t:
    char kind # of its elements: f, i, u, b (boolean)
    int ndim
    int base  # of a frame; 0: no kernel touches it
    Py_ssize_t itemsize
    Py_ssize_t nbytes
    Py_ssize_t* shape


cdef bint _fits(const Py_buffer* view, const port_t* port) noexcept:
    """Whether an array is what a port wants."""
    cdef const char* text = view.format
    cdef char kind
    cdef int i
    if text == NULL:
        return False
    if text[0] in (c"@", c"=", c"<"):
        text += 1
    if text[0] == 0 or text[1] != 0 or view.ndim != port.ndim or view.itemsize != port.itemsize:
        return False
    if text[0] in (c"e", c"f", c"d"):
        kind = c"f"
    elif text[0] in (c"b", c"h", c"i", c"l", c"q"):
        kind = c"i"
    elif text[0] in (c"B", c"H", c"I", c"L", c"Q"):
        kind = c"u"
    elif text[0] == c"?":
        kind = c"b"
    else:
        return False
    if kind != port.kind:
        return False
    for i in range(port.ndim):
        if view.shape[i] != port.shape[i]:
            return False
    return True


cdef bint _overlap(const Py_buffer* a, const Py_buffer* b) noexcept:
    return <char*> a.buf < <char*> b.buf + b.len and <char*> b.buf < <char*> a.buf + a.len


cdef class Call:
    """A run for inputs of given types and sizes, of a program that is one walk: from arrays to arrays in one step. What
    comes after the walk in rare cases is not done here: `rest` has the conditions of each such item, rows `(base,
    offset, wanted)`, and if all of one are met there is no result.

    `inputs` are rows `(name, kind, itemsize, shape, base)`, `outputs` rows `(name, kind, itemsize, shape, base, dtype,
    store)` with bases of their own; `frames` has those that are free, of so many `bases`; `blocks` are rows `(base,
    bytes)` of memory that the walk needs; `keep` has what the binding's addresses lead to. Takes C-contiguous arrays by the buffer protocol; for what doesn't fit it gives
    None, and does nothing."""

    cdef Walk walk
    cdef Binding binding
    cdef list frames
    cdef int bases
    cdef int threads
    cdef port_t* ports  # of inputs, then of outputs
    cdef int ins
    cdef int outs
    cdef readonly tuple names
    cdef readonly tuple out_names
    cdef tuple shapes
    cdef tuple dtypes
    cdef tuple stores
    cdef tuple blocks
    cdef tuple rest
    cdef object make
    cdef object keep

    def __cinit__(
        self, Walk walk, Binding binding, list frames, int bases, int threads, inputs, outputs, blocks, keep, rest=()
    ):
        from numpy import ndarray

        cdef int i = 0, axis
        cdef port_t* port
        if binding.walk is not walk or walk.frame_bases > bases:
            raise ValueError("a binding of another walk, or too few bases")
        self.walk = walk
        self.binding = binding
        self.frames = frames
        self.bases = bases
        self.threads = threads
        self.make = ndarray
        self.keep = keep
        self.names = tuple([row[0] for row in inputs])
        self.out_names = tuple([row[0] for row in outputs])
        self.shapes = tuple([tuple(row[3]) for row in outputs])
        self.dtypes = tuple([row[5] for row in outputs])
        self.stores = tuple([row[6] for row in outputs])
        self.blocks = tuple([(int(base), int(size)) for base, size in blocks])
        self.rest = tuple([tuple(rows) for rows in rest])
        self.ins, self.outs = len(self.names), len(self.out_names)
        self.ports = <port_t*> PyMem_Malloc(max(1, self.ins + self.outs) * sizeof(port_t))
        if self.ports == NULL:
            raise MemoryError
        memset(self.ports, 0, max(1, self.ins + self.outs) * sizeof(port_t))
        for row in (*inputs, *outputs):
            port = &self.ports[i]
            port.kind = ord(row[1])
            port.itemsize = row[2]
            port.ndim = len(row[3])
            port.base = row[4]
            if not (0 <= port.base < bases and (port.base or i < self.ins)):
                raise ValueError("no such base")
            port.shape = <Py_ssize_t*> PyMem_Malloc(max(1, port.ndim) * sizeof(Py_ssize_t))
            if port.shape == NULL:
                raise MemoryError
            port.nbytes = port.itemsize
            for axis in range(port.ndim):
                port.shape[axis] = row[3][axis]
                port.nbytes *= port.shape[axis]
            i += 1
        for i in range(self.outs):
            if (<Store?> self.stores[i]).size < self.ports[self.ins + i].nbytes:
                raise ValueError("a store of too small blocks")
        for base, _ in self.blocks:
            if not 0 < base < bases:
                raise ValueError("no such base")

    def __dealloc__(self):
        cdef int i
        if self.ports != NULL:
            for i in range(self.ins + self.outs):
                PyMem_Free(self.ports[i].shape)
        PyMem_Free(self.ports)

    def run(self, dict inputs, tuple out=None):
        """The outputs by name, for inputs by name: in fresh arrays, or in those of `out` (one for each output, or None).
        None if a name is missing or an array doesn't fit."""
        cdef Frame frame
        cdef list found
        if len(inputs) != self.ins:
            return None
        values = []
        for name in self.names:
            value = inputs.get(name)
            if value is None:
                return None
            values.append(value)
        frame = self.frames.pop() if self.frames else Frame(self.bases)
        try:
            found = self.go(frame, values, out)
        finally:
            self.frames.append(frame)
        return None if found is None else dict(zip(self.out_names, found))

    def call(self, list values, tuple out=None):
        """Like `run`, by position: the outputs in a list."""
        cdef Frame frame
        if len(values) != self.ins:
            return None
        frame = self.frames.pop() if self.frames else Frame(self.bases)
        try:
            return self.go(frame, values, out)
        finally:
            self.frames.append(frame)

    cdef list go(self, Frame frame, list values, tuple out):
        cdef Py_buffer* views = frame.buffers(self.ins + self.outs)
        cdef int taken = 0
        if self.rest and out is not None:
            return None  # an array given for an output may be an input, which has to be whole for what comes then
        try:
            try:
                for value in values:
                    PyObject_GetBuffer(value, &views[taken], PyBUF_FORMAT | PyBUF_C_CONTIGUOUS)
                    taken += 1
                    if not _fits(&views[taken - 1], &self.ports[taken - 1]):
                        return None
                found = self.targets(out)
                for value in found:
                    PyObject_GetBuffer(value, &views[taken], PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
                    taken += 1
                    if out is not None and not _fits(&views[taken - 1], &self.ports[taken - 1]):
                        return None
            except (BufferError, TypeError, ValueError):
                return None
            if not self.place(frame, views, out is not None):
                return None
            self.walk.launch(self.binding, frame, self.threads, NULL)
            if self.rest and self.unfinished(frame):
                return None
            if out is not None:
                self.copy_out(frame, views)
            return found
        finally:
            while taken:
                taken -= 1
                PyBuffer_Release(&views[taken])

    cdef bint unfinished(self, Frame frame) except -1:
        """Whether something is to be done after the walk."""
        for rows in self.rest:
            for base, offset, wanted in rows:
                if frame.flag(base, offset) != wanted:
                    break
            else:
                return True
        return False

    cdef list targets(self, tuple out):
        """The arrays for outputs: those given, else fresh ones."""
        cdef list found = []
        cdef int i
        for i in range(self.outs):
            if out is not None and out[i] is not None:
                found.append(out[i])
            else:
                found.append(self.make(self.shapes[i], self.dtypes[i], (<Store> self.stores[i]).take()))
        return found

    cdef bint place(self, Frame frame, Py_buffer* views, bint given) except -1:
        """Points the frame's bases at the arrays, or at copies of those that kernels cannot use as they are. False if two
        outputs are the same memory."""
        cdef int i, j
        cdef bint suits
        cdef Py_buffer* view
        for i in range(self.ins + self.outs):
            view = &views[i]
            if not self.ports[i].base or not view.len:
                continue
            suits = memory_suits(view.buf, view.len) or (i >= self.ins and not given)
            if given:
                for j in range(self.ins, self.ins + self.outs):
                    if j != i and _overlap(view, &views[j]):
                        if i >= self.ins:
                            return False
                        suits = False
            if suits:
                frame.bases[self.ports[i].base] = <int64_t> <uintptr_t> view.buf
                continue
            frame.hold(self.ports[i].base, view.len)
            if i < self.ins:
                memcpy(<void*> <uintptr_t> frame.bases[self.ports[i].base], view.buf, view.len)
        for base, size in self.blocks:
            frame.hold(base, size)
        return True

    cdef void copy_out(self, Frame frame, Py_buffer* views) noexcept:
        """Copies the outputs that were not written in place to the caller's arrays."""
        cdef int i
        cdef void* made
        for i in range(self.ins, self.ins + self.outs):
            made = <void*> <uintptr_t> frame.bases[self.ports[i].base]
            if views[i].len and made != views[i].buf:
                memcpy(views[i].buf, made, views[i].len)
