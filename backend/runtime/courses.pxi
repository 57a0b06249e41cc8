"""Courses: walks and cycles in order, as `course.h` runs them."""

cdef extern from "Python.h":
    int PyErr_CheckSignals()


cdef extern from "course.h" nogil:
    enum:
        COURSE_NO_MEMORY
        COURSE_STOPPED
    ctypedef struct course_place:
        int32_t base
        int64_t offset
    ctypedef struct course_state:
        course_place source "from"
        course_place to
        int64_t spare
        int64_t size
        int32_t into "in"
        int32_t out
        int32_t now
    ctypedef struct course_piece:
        course_place whole
        int64_t first
        int64_t step
        int64_t rows
        int64_t row
        int64_t pitch
        int64_t copy
        int32_t base
        int32_t growing
    ctypedef struct course_part:
        const walk_step* steps
        const unsigned char* limits
        const int32_t* bases
        const int64_t* offsets
        const int64_t* dims
        int count
        int pointers
        int serial
        const course_cycle* cycle
    ctypedef struct course_parts "course":
        int count
        const course_part* parts
    ctypedef struct course_cycle:
        int64_t turns
        course_place count
        course_place going
        course_place workspace
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
        const course_place* guard
        const course_state* state
        const course_piece* scan
        const course_piece* make
        const course_place* capture
        const int32_t* captures
        course_parts body
    ctypedef struct course_run:
        int64_t* bases
        void** blocks
        size_t* sizes
        void** bufs
        walk_share* shares
        int threads
        int (*stop)() noexcept nogil
    void course_walk(const course_part* part, const course_run* run, double* times)
    int course_do(const course_parts* parts, const course_run* run)


cdef int _stop() noexcept nogil:
    """Whether the run is to end at once, for a signal whose handler raised an exception: that is set then."""
    with gil:
        return PyErr_CheckSignals()


cdef int _check(int failed) except -1:
    """Raises what a run ended with."""
    if failed == COURSE_NO_MEMORY:
        raise MemoryError("for the outputs of a loop")
    return -1 if failed else 0  # stopped: the exception of a signal's handler is set


cdef void* _room(Py_ssize_t count, size_t size) except NULL:
    """Cleared memory for so many."""
    cdef void* found = PyMem_Malloc(max(1, count) * size)
    if found == NULL:
        raise MemoryError
    memset(found, 0, max(1, count) * size)
    return found


cdef class Cycle:
    """A Loop or Scan for one set of extents. Places are pairs (base, offset), or None; bases are those of the frame, 0
    standing for none; rows are those of `course.h`:

    turns: how many, below 0 if data tell it; count, going: the places of the trip count and of the condition;
    workspace: its place; bases: the arena of the body, and what leads to the turn's number, the condition that it
        begins with and the one that it ends with;
    cells: where in the workspace these three are; done: the base that is to hold the number of turns;
    guards: rows (base, offset, wanted);
    states: rows (from, its offset, to, its offset, spare, size, in, out, now);
    scanned, made: rows (base, offset, first, step, rows, row, pitch, copy, base in the body, growing);
    captures: rows (base, offset, base in the body); body: a course."""

    cdef course_cycle self_
    cdef Course body
    cdef int frame_bases

    def __cinit__(
        self, turns, count, going, workspace, bases, cells, done, guards, states, scanned, made, captures, Course body
    ):
        cdef course_cycle* own = &self.self_
        cdef course_place* places
        cdef int32_t* numbers
        cdef int i
        if len(guards) > 32:
            raise ValueError("too many conditions")
        self.body = body
        self.frame_bases = body.frame_bases
        own.body = body.parts
        own.turns = turns
        own.count, own.going, own.workspace = self.place(count), self.place(going), self.place(workspace)
        own.arena, own.number, own.flag, own.goes = [self.known(base) for base in bases]
        own.cells, own.done = cells, self.known(done)
        own.guards, own.states, own.scanned = len(guards), len(states), len(scanned)
        own.made, own.captured = len(made), len(captures)
        own.guard = places = <course_place*> _room(own.guards, sizeof(course_place))
        for i in range(own.guards):
            places[i] = self.place(guards[i][:2])
            own.wanted |= <uint32_t> (1 if guards[i][2] else 0) << i
        own.state = self.carried(states)
        own.scan = self.pieces(scanned)
        own.make = self.pieces(made)
        own.capture = places = <course_place*> _room(own.captured, sizeof(course_place))
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
        """A base, of which the frame has to have as many."""
        if base < 0:
            raise ValueError("no such base")
        self.frame_bases = max(self.frame_bases, base + 1)
        return base

    cdef course_place place(self, pair) except *:
        cdef course_place found
        found.base, found.offset = -1, 0
        if pair is not None:
            found.base, found.offset = self.known(pair[0]), pair[1]
        return found

    cdef course_state* carried(self, rows) except NULL:
        cdef course_state* found = <course_state*> _room(len(rows), sizeof(course_state))
        cdef int i
        for i in range(len(rows)):
            row = rows[i]
            found[i].source, found[i].to = self.place(row[:2]), self.place(row[2:4])
            found[i].spare, found[i].size = row[4], row[5]
            found[i].into, found[i].out, found[i].now = [self.known(base) for base in row[6:]]
        return found

    cdef course_piece* pieces(self, rows) except NULL:
        cdef course_piece* found = <course_piece*> _room(len(rows), sizeof(course_piece))
        cdef int i
        for i in range(len(rows)):
            row = rows[i]
            found[i].whole = self.place(row[:2])
            found[i].first, found[i].step, found[i].rows, found[i].row, found[i].pitch, found[i].copy = row[2:8]
            found[i].base, found[i].growing = self.known(row[8]), row[9]
        return found


cdef class Course:
    """Bindings of walks, and cycles, that run one after the other."""

    cdef course_parts parts
    cdef readonly tuple items
    cdef int frame_bases  # that it needs
    cdef int pointers  # and steps: of the largest walk
    cdef int steps
    cdef bint serial  # one thread does all

    def __cinit__(self, items):
        cdef course_part* parts
        cdef Binding binding
        cdef Cycle cycle
        cdef int i
        self.items = tuple(items)
        self.parts.count = len(self.items)
        self.parts.parts = parts = <course_part*> _room(self.parts.count, sizeof(course_part))
        self.serial = True
        for i in range(self.parts.count):
            if isinstance(self.items[i], Cycle):
                cycle = self.items[i]
                parts[i].cycle = &cycle.self_
                self.cover(cycle.frame_bases, cycle.body.pointers, cycle.body.steps, cycle.body.serial)
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

    cdef int prepare(self, Frame frame, int threads, course_run* run) except -1:
        """What a run in this frame needs."""
        run.bases, run.blocks, run.sizes = frame.bases, frame.blocks, frame.sizes
        run.bufs = <void**> frame.pointers(self.pointers)
        run.threads = max(1, threads)
        run.shares = NULL if self.serial or threads < 2 else frame.shared(self.steps)
        run.stop = _stop
        return 0

    cdef int launch(self, Frame frame, int threads) except -1:
        cdef course_run run
        cdef int failed
        self.prepare(frame, threads, &run)
        with nogil:
            failed = course_do(&self.parts, &run)
        return _check(failed)

    def run(self, Frame frame, int threads):
        """Runs all on up to `threads` threads.

        The caller has set the bases of the frame, to memory that holds what the offsets assume. Raises MemoryError, and
        what the handler of a signal raises during a long loop."""
        if frame.count < self.frame_bases:
            raise ValueError("the frame has too few bases")
        self.launch(frame, threads)

    def time(self, Frame frame, int threads):
        """Like `run`; for each item the bytes of doubles [step, thread, 2]: when each thread began and ended each step,
        in seconds of the monotonic clock, zeros where it took no part. A cycle counts as one step of one thread."""
        cdef course_run run
        cdef course_parts one
        cdef const course_part* part
        cdef bytes record
        cdef double* times
        cdef int i, failed
        if frame.count < self.frame_bases:
            raise ValueError("the frame has too few bases")
        self.prepare(frame, threads, &run)
        found = []
        for i in range(self.parts.count):
            part = &self.parts.parts[i]
            size = (1 if part.cycle != NULL else <Py_ssize_t> part.count * run.threads) * 2 * sizeof(double)
            record = PyBytes_FromStringAndSize(NULL, size)
            times = <double*> PyBytes_AS_STRING(record)
            memset(times, 0, size)
            found.append(record)
            if part.cycle == NULL:
                with nogil:
                    course_walk(part, &run, times)
                continue
            one.count, one.parts = 1, part
            times[0] = walk_clock()
            with nogil:
                failed = course_do(&one, &run)
            times[1] = walk_clock()
            _check(failed)
        return found
