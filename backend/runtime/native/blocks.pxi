"""Blocks: walks and loops in order; `block.h` runs them."""

cdef extern from "Python.h":
    int PyErr_CheckSignals()


cdef extern from "block.h" nogil:
    enum:
        BLOCK_NO_MEMORY
        BLOCK_STOPPED
    ctypedef struct block_place:
        int32_t base
        int64_t offset
    ctypedef struct loop_state:
        block_place source "from"
        block_place to
        int64_t spare
        int64_t size
        int32_t into "in"
        int32_t out
        int32_t now
    ctypedef struct loop_piece:
        block_place whole
        int64_t first
        int64_t step
        int64_t rows
        int64_t row
        int64_t pitch
        int64_t copy
        int32_t base
        int32_t growing
    ctypedef struct block_part:
        const walk_step* steps
        const unsigned char* limits
        const int32_t* bases
        const int64_t* offsets
        const int64_t* dims
        int count
        int pointers
        int serial
        const loop_t* loop
    ctypedef struct block_t:
        int count
        const block_part* parts
    ctypedef struct loop_t:
        int64_t iterations
        block_place count
        block_place going
        block_place workspace
        int32_t arena
        int32_t number
        int32_t flag
        int32_t goes
        int64_t cells
        int32_t done
        uint32_t wanted
        int guards
        int states
        int scanned
        int made
        int captured
        const block_place* guard
        const loop_state* state
        const loop_piece* scan
        const loop_piece* make
        const block_place* capture
        const int32_t* captures
        block_t body
    ctypedef struct block_run:
        int64_t* bases
        void** owned
        size_t* sizes
        void** bufs
        walk_share* shares
        int threads
        int (*stop)() noexcept nogil
    void block_walk(const block_part* part, const block_run* run, double* times)
    int block_do(const block_t* parts, const block_run* run)


cdef int _stop() noexcept nogil:
    """Return whether the run must end because a signal handler raised an exception, which is set then."""
    with gil:
        return PyErr_CheckSignals()


cdef int _check(int failed) except -1:
    """Raise the error with which a run ended."""
    if failed == BLOCK_NO_MEMORY:
        raise MemoryError("for the outputs of a loop")
    return -1 if failed else 0  # stopped: the exception of a signal handler is set


cdef void* _room(Py_ssize_t count, size_t size) except NULL:
    """Return zeroed memory for `count` items."""
    cdef void* found = PyMem_Malloc(max(1, count) * size)
    if found == NULL:
        raise MemoryError
    memset(found, 0, max(1, count) * size)
    return found


cdef class Loop:
    """A Loop or Scan for one set of extents. Places are pairs (base, offset), or None; bases are those of the frame, 0
    standing for none; rows are those of `block.h`:

    iterations: their number, negative if data decide; count, going: places of the trip count and of the condition;
    workspace: its place; bases: the arena of the body, and what leads to the iteration's number, the condition that it
        begins with and the one that it ends with;
    cells: where in the workspace these three are; done: the base that is to hold the number of iterations;
    guards: rows (base, offset, wanted);
    states: rows (from, its offset, to, its offset, spare, size, in, out, now);
    scanned, made: rows (base, offset, first, step, rows, row, pitch, copy, base in the body, growing);
    captures: rows (base, offset, base in the body); body: a block."""

    cdef loop_t self_
    cdef Block body
    cdef int frame_bases

    def __cinit__(
        self, iterations, count, going, workspace, bases, cells, done,
        guards, states, scanned, made, captures, Block body
    ):
        cdef loop_t* own = &self.self_
        cdef block_place* places
        cdef int32_t* numbers
        cdef int i
        if len(guards) > 32:
            raise ValueError("too many conditions")
        self.body = body
        self.frame_bases = body.frame_bases
        own.body = body.parts
        own.iterations = iterations
        own.count, own.going, own.workspace = self.place(count), self.place(going), self.place(workspace)
        own.arena, own.number, own.flag, own.goes = [self.known(base) for base in bases]
        own.cells, own.done = cells, self.known(done)
        own.guards, own.states, own.scanned = len(guards), len(states), len(scanned)
        own.made, own.captured = len(made), len(captures)
        own.guard = places = <block_place*> _room(own.guards, sizeof(block_place))
        for i in range(own.guards):
            places[i] = self.place(guards[i][:2])
            own.wanted |= <uint32_t> (1 if guards[i][2] else 0) << i
        own.state = self.carried(states)
        own.scan = self.pieces(scanned)
        own.make = self.pieces(made)
        own.capture = places = <block_place*> _room(own.captured, sizeof(block_place))
        own.captures = numbers = <int32_t*> _room(own.captured, sizeof(int32_t))
        for i in range(own.captured):
            places[i] = self.place(captures[i][:2])
            numbers[i] = self.known(captures[i][2])

    def __dealloc__(self):
        PyMem_Free(<void*> self.self_.guard)
        PyMem_Free(<void*> self.self_.state)
        PyMem_Free(<void*> self.self_.scan)
        PyMem_Free(<void*> self.self_.make)
        PyMem_Free(<void*> self.self_.capture)
        PyMem_Free(<void*> self.self_.captures)

    cdef int32_t known(self, base) except -1:
        """Return a base, after making sure that the frame has room for it."""
        if base < 0:
            raise ValueError("no such base")
        self.frame_bases = max(self.frame_bases, base + 1)
        return base

    cdef block_place place(self, pair) except *:
        cdef block_place found
        found.base, found.offset = -1, 0
        if pair is not None:
            found.base, found.offset = self.known(pair[0]), pair[1]
        return found

    cdef loop_state* carried(self, rows) except NULL:
        cdef loop_state* found = <loop_state*> _room(len(rows), sizeof(loop_state))
        cdef int i
        for i in range(len(rows)):
            row = rows[i]
            found[i].source, found[i].to = self.place(row[:2]), self.place(row[2:4])
            found[i].spare, found[i].size = row[4], row[5]
            found[i].into, found[i].out, found[i].now = [self.known(base) for base in row[6:]]
        return found

    cdef loop_piece* pieces(self, rows) except NULL:
        cdef loop_piece* found = <loop_piece*> _room(len(rows), sizeof(loop_piece))
        cdef int i
        for i in range(len(rows)):
            row = rows[i]
            found[i].whole = self.place(row[:2])
            found[i].first, found[i].step, found[i].rows, found[i].row, found[i].pitch, found[i].copy = row[2:8]
            found[i].base, found[i].growing = self.known(row[8]), row[9]
        return found


cdef class Block:
    """Bindings of walks, and loops, that run one after the other."""

    cdef block_t parts
    cdef readonly tuple items
    cdef int frame_bases  # number of bases that it needs
    cdef int pointers  # and steps: of the largest walk
    cdef int steps
    cdef bint serial  # one thread runs everything

    def __cinit__(self, items):
        cdef block_part* parts
        cdef Binding binding
        cdef Loop loop
        cdef int i
        self.items = tuple(items)
        self.parts.count = len(self.items)
        self.parts.parts = parts = <block_part*> _room(self.parts.count, sizeof(block_part))
        self.serial = True
        for i in range(self.parts.count):
            if isinstance(self.items[i], Loop):
                loop = self.items[i]
                parts[i].loop = &loop.self_
                self.cover(loop.frame_bases, loop.body.pointers, loop.body.steps, loop.body.serial)
                continue
            binding = <Binding?> self.items[i]
            parts[i].steps, parts[i].bases = binding.walk.steps, binding.walk.bases
            parts[i].count, parts[i].pointers = binding.walk.count, binding.walk.pointers
            parts[i].limits, parts[i].offsets, parts[i].dims = binding.limits, binding.offsets, binding.extents
            parts[i].serial = binding.serial
            self.cover(binding.walk.frame_bases, binding.walk.pointers, binding.walk.count, binding.serial)

    def __dealloc__(self):
        PyMem_Free(<void*> self.parts.parts)

    cdef void cover(self, int bases, int pointers, int steps, bint serial) noexcept:
        self.frame_bases = max(self.frame_bases, bases)
        self.pointers, self.steps = max(self.pointers, pointers), max(self.steps, steps)
        self.serial = self.serial and serial

    cdef int prepare(self, Frame frame, int threads, block_run* run) except -1:
        """Prepare a frame for a run."""
        run.bases, run.owned, run.sizes = frame.own.bases, frame.own.owned, frame.own.sizes
        run.bufs = frame.pointers(self.pointers)
        run.threads = max(1, threads)
        run.shares = NULL if self.serial or threads < 2 else frame.shared(self.steps)
        run.stop = _stop
        return 0

    cdef int launch(self, Frame frame, int threads) except -1:
        cdef block_run run
        cdef int failed
        self.prepare(frame, threads, &run)
        with nogil:
            failed = block_do(&self.parts, &run)
        return _check(failed)

    def run(self, Frame frame, int threads):
        """Run everything on up to `threads` threads.

        The caller has set the bases of the frame, to memory that holds what the offsets assume. Raises MemoryError, and
        the exception of a signal handler during a long loop."""
        if frame.own.count < self.frame_bases:
            raise ValueError("the frame has too few bases")
        self.launch(frame, threads)

    def time(self, Frame frame, int threads):
        """Run and return, for each item, the bytes of doubles [step, thread, 2]: begin and end of each step.

        Times are seconds of the monotonic clock, zeros for threads that took no part. A loop is one step of one thread."""
        cdef block_run run
        cdef block_t one
        cdef const block_part* part
        cdef bytes record
        cdef double* times
        cdef int i, failed
        if frame.own.count < self.frame_bases:
            raise ValueError("the frame has too few bases")
        self.prepare(frame, threads, &run)
        found = []
        for i in range(self.parts.count):
            part = &self.parts.parts[i]
            size = (1 if part.loop != NULL else <Py_ssize_t> part.count * run.threads) * 2 * sizeof(double)
            record = PyBytes_FromStringAndSize(NULL, size)
            times = <double*> PyBytes_AS_STRING(record)
            memset(times, 0, size)
            found.append(record)
            if part.loop == NULL:
                with nogil:
                    block_walk(part, &run, times)
                continue
            one.count, one.parts = 1, part
            times[0] = walk_clock()
            with nogil:
                failed = block_do(&one, &run)
            times[1] = walk_clock()
            _check(failed)
        return found
