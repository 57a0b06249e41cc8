"""Later stages of a run, whose sizes data determine; `stages.h` evaluates them."""

cdef extern from "dims.h" nogil:
    enum:
        OP_SYMBOL
        OP_COUNT
        DIM_STACK
        DIM_LIMIT
    ctypedef struct dim_op:
        int64_t code
        int64_t value
    ctypedef struct dim_t:
        int64_t value
        int32_t count
        const dim_op* ops
    ctypedef struct dim_values:
        const int64_t* symbols
        const char* problem
    int64_t dim_size(dim_values* values, const dim_t* dim)


cdef extern from "arena.h" nogil:
    ctypedef struct arena_buffer:
        dim_t size
        int64_t first
        int64_t last
    ctypedef struct arena_room:
        int* order
        int* sorted "sorted"
        int64_t* sizes
        int64_t* other
    int64_t arena_padded(int64_t size)


cdef extern from "stages.h" nogil:
    ctypedef struct stage_pointer:
        int32_t base
        int32_t part
        dim_t offset
    ctypedef struct stage_measure:
        stage_pointer count
        int32_t symbol
        dim_t most
    ctypedef struct stage_step:
        int32_t dims
        int32_t sizes
        int32_t pairs
        dim_t work
        dim_t scratch
    ctypedef struct stage_shape:
        int32_t count
        int32_t element_size
        int64_t offset
        const dim_t* numbers
    ctypedef struct stage_output:
        int32_t number
        int32_t base
        int32_t rank
        int64_t element_size
        const dim_t* shape
    ctypedef struct stage_t:
        int measures
        int steps
        int pointers
        int dims
        int buffers
        int shapes
        int outputs
        int32_t arena
        int32_t buffer
        const stage_measure* measure
        const walk_step* walk
        const int32_t* bases
        const stage_pointer* pointer
        const stage_step* step
        const dim_t* dim
        const arena_buffer* live
        const stage_shape* shape
        const stage_output* output
    ctypedef struct stage_sizes:
        int64_t* symbols
        int64_t* offsets
        int64_t* dims
        int64_t* work
        unsigned char* limits
        char* numbers
        arena_room room
        int64_t arena
        int64_t scratch
        block_part part
    int stage_begin(
        const stage_t* stage, stage_sizes* sizes, const int64_t* bases, int64_t* parts, int64_t* symbols, int count
    )


cdef enum:
    SCRATCH = 1  # the base of scratch memory


cdef void* _kept(list keep, Py_ssize_t count, size_t size) except NULL:
    """Return zeroed memory for `count` items, which `keep` owns."""
    cdef bytearray memory = bytearray(max(1, count) * size)
    keep.append(memory)
    return PyByteArray_AS_STRING(memory)


cdef class Stages:
    """Later stages of a program, for all sizes.

    A dim is a number, or the operations of `dims.h` as rows of one or two numbers. A pointer is `(base, part, dim)`:
    parts are the buffers that stages place, and -1 is none. The first `given` parts are placed before. Stages are rows:

    measures: rows (pointer to the count, number of the symbol, the most that it can be); walk: None if there are no steps;
    pointers: those of the walk;
    steps: rows (dims, bytes of each output, pairs of which the first must not exceed the second, work, scratch);
    buffers: rows (size, first, last step); shapes: rows (element size, numbers); outputs: rows (number among the
    program's outputs, base, element size, shape); arena: its base."""

    cdef stage_t* stages
    cdef readonly int count
    cdef readonly int symbols
    cdef readonly int given
    cdef int parts
    cdef int pointers  # of the largest walk
    cdef int steps
    cdef int frame_bases  # number of bases that they need
    cdef int most_outputs
    cdef list keep

    def __cinit__(self, rows, int symbols, int given):
        cdef int i = 0
        self.keep = []
        self.count, self.symbols, self.given, self.parts = len(rows), symbols, given, given
        self.frame_bases = SCRATCH + 1
        if symbols < 1:
            raise ValueError("no size is measured")
        self.stages = <stage_t*> _kept(self.keep, self.count, sizeof(stage_t))
        for row in rows:
            self.read(&self.stages[i], row)
            i += 1

    cdef int read(self, stage_t* stage, row) except -1:
        cdef list keep = self.keep
        cdef Walk walk
        cdef int i
        measures, walk, pointers, steps, buffers, shapes, outputs, arena = row
        cdef stage_measure* measure = <stage_measure*> _kept(keep, len(measures), sizeof(stage_measure))
        stage.measure, stage.measures = measure, len(measures)
        for i in range(stage.measures):
            measure[i].count, measure[i].most = self.pointer(measures[i][0]), self.dim(measures[i][2])
            measure[i].symbol = measures[i][1]
            if not 0 <= measure[i].symbol < self.symbols:
                raise ValueError("no such symbol")
        stage.buffer, stage.buffers, stage.shapes = self.parts, len(buffers), len(shapes)
        self.parts += stage.buffers + stage.shapes
        stage.arena = self.base(arena)
        cdef arena_buffer* live = <arena_buffer*> _kept(keep, stage.buffers, sizeof(arena_buffer))
        stage.live = live
        for i in range(stage.buffers):
            live[i].size, live[i].first, live[i].last = self.dim(buffers[i][0]), buffers[i][1], buffers[i][2]
        cdef stage_shape* shape = <stage_shape*> _kept(keep, stage.shapes, sizeof(stage_shape))
        cdef int64_t offset = 0
        stage.shape = shape
        for i in range(stage.shapes):
            shape[i].element_size, shape[i].count, shape[i].offset = shapes[i][0], len(shapes[i][1]), offset
            shape[i].numbers = self.dims(shapes[i][1])
            offset += arena_padded(shape[i].count * shape[i].element_size + 64)
        cdef stage_output* output = <stage_output*> _kept(keep, len(outputs), sizeof(stage_output))
        stage.output, stage.outputs = output, len(outputs)
        for i in range(stage.outputs):
            output[i].number, output[i].base = outputs[i][0], self.base(outputs[i][1])
            output[i].element_size, output[i].rank = outputs[i][2], len(outputs[i][3])
            output[i].shape = self.dims(outputs[i][3])
            self.most_outputs = max(self.most_outputs, output[i].number + 1)
        if walk is None:
            if steps or pointers:
                raise ValueError("steps need a walk")
            return 0
        if len(steps) != walk.count or len(pointers) != walk.pointers:
            raise ValueError("a step of the walk has no sizes")
        keep.append(walk)
        stage.walk, stage.bases, stage.steps, stage.pointers = walk.steps, walk.bases, walk.count, walk.pointers
        self.steps, self.pointers = max(self.steps, walk.count), max(self.pointers, walk.pointers)
        self.frame_bases = max(self.frame_bases, walk.frame_bases)
        cdef stage_pointer* pointer = <stage_pointer*> _kept(keep, stage.pointers, sizeof(stage_pointer))
        stage.pointer = pointer
        for i in range(stage.pointers):
            pointer[i] = self.pointer(pointers[i])
        cdef stage_step* step = <stage_step*> _kept(keep, stage.steps, sizeof(stage_step))
        stage.step = step
        every = []
        for i in range(stage.steps):
            own, sizes, pairs, work, scratch = steps[i]
            step[i].dims, step[i].sizes, step[i].pairs = len(own), len(sizes), len(pairs)
            step[i].work, step[i].scratch = self.dim(work), self.dim(scratch)
            if walk.steps[i].dims != stage.dims:
                raise ValueError("a step has another number of dims than in the walk")
            stage.dims += step[i].dims
            every += [*own, *sizes, *[one for pair in pairs for one in pair]]
        if stage.dims != walk.dims:
            raise ValueError("a step has another number of dims than in the walk")
        stage.dim = self.dims(every)
        return 0

    cdef int32_t base(self, base) except -1:
        if base < 0:
            raise ValueError("no such base")
        self.frame_bases = max(self.frame_bases, base + 1)
        return base

    cdef stage_pointer pointer(self, row) except *:
        cdef stage_pointer found
        found.base, found.part, found.offset = self.base(row[0]), row[1], self.dim(row[2])
        if not -1 <= found.part < self.parts:
            raise ValueError("no such part")
        return found

    cdef dim_t* dims(self, rows) except NULL:
        cdef dim_t* found = <dim_t*> _kept(self.keep, len(rows), sizeof(dim_t))
        cdef int i
        for i in range(len(rows)):
            found[i] = self.dim(rows[i])
        return found

    cdef dim_t dim(self, value) except *:
        """Return a dim, after making sure that it is well formed."""
        cdef dim_t found
        cdef dim_op* ops
        cdef int i, depth = 0
        found.value, found.count, found.ops = 0, 0, NULL
        if isinstance(value, int):
            found.value = value
            return found
        ops = <dim_op*> _kept(self.keep, len(value), sizeof(dim_op))
        for i in range(len(value)):
            ops[i].code = value[i][0]
            ops[i].value = value[i][1] if ops[i].code <= OP_SYMBOL else 0
            depth += 1 if ops[i].code <= OP_SYMBOL else -1
            if not (0 <= ops[i].code < OP_COUNT and 0 < depth <= DIM_STACK):
                raise ValueError("a size is not well formed")
            if ops[i].code == OP_SYMBOL and not 0 <= ops[i].value < self.symbols:
                raise ValueError("no such symbol")
        if depth != 1:
            raise ValueError("a size is not well formed")
        found.count, found.ops = len(value), ops
        return found


cdef class StagedRun:
    """Sizes of later stages, for one run at a time of a call."""

    cdef Stages stages
    cdef int64_t* symbols
    cdef int64_t* parts
    cdef stage_sizes* sizes
    cdef list keep

    def __cinit__(self, Stages stages, tuple parts):
        cdef list keep = []
        cdef stage_t* stage
        cdef stage_sizes* sizes
        cdef int i, k
        cdef int64_t end
        self.stages, self.keep = stages, keep
        self.symbols = <int64_t*> _kept(keep, stages.symbols, sizeof(int64_t))
        self.parts = <int64_t*> _kept(keep, stages.parts, sizeof(int64_t))
        self.sizes = <stage_sizes*> _kept(keep, stages.count, sizeof(stage_sizes))
        for i in range(stages.given):
            self.parts[i] = parts[i]
        for i in range(stages.count):
            stage, sizes = &stages.stages[i], &self.sizes[i]
            sizes.symbols = <int64_t*> _kept(keep, stages.symbols, sizeof(int64_t))
            sizes.symbols[0] = -2
            sizes.offsets = <int64_t*> _kept(keep, stage.pointers, sizeof(int64_t))
            sizes.dims = <int64_t*> _kept(keep, stage.dims, sizeof(int64_t))
            sizes.work = <int64_t*> _kept(keep, stage.steps, sizeof(int64_t))
            sizes.limits = <unsigned char*> _kept(keep, stage.steps, 1)
            sizes.room.order = <int*> _kept(keep, stage.buffers, sizeof(int))
            sizes.room.sorted = <int*> _kept(keep, stage.buffers, sizeof(int))
            sizes.room.sizes = <int64_t*> _kept(keep, stage.buffers, sizeof(int64_t))
            sizes.room.other = <int64_t*> _kept(keep, stage.buffers, sizeof(int64_t))
            end = 64
            for k in range(stage.shapes):
                end += arena_padded(stage.shape[k].count * stage.shape[k].element_size + 64)
            sizes.numbers = <char*> _kept(keep, end, 1)
            sizes.numbers += -<int64_t> <uintptr_t> sizes.numbers & 63
            for k in range(stage.shapes):
                self.parts[stage.buffer + stage.buffers + k] = <int64_t> <uintptr_t> sizes.numbers + stage.shape[k].offset

    cdef int begin(self, int number, Frame frame) except -1:
        """Evaluate the sizes of a stage; return 0 if they cannot be."""
        return stage_begin(
            &self.stages.stages[number], &self.sizes[number], frame.own.bases, self.parts, self.symbols,
            self.stages.symbols,
        )

    cdef tuple shape(self, const stage_output* output, int64_t* size):
        """Return the shape of an output, and its bytes; None if it cannot be evaluated."""
        cdef dim_values values
        cdef int64_t extent
        cdef int axis
        values.symbols, values.problem = self.symbols, NULL
        cdef list found = []
        size[0] = output.element_size
        for axis in range(output.rank):
            extent = dim_size(&values, &output.shape[axis])
            if values.problem != NULL or (extent and size[0] > DIM_LIMIT // extent):
                return None
            size[0] *= extent
            found.append(extent)
        return tuple(found)

    cdef int launch(self, int number, Frame frame, int threads) except -1:
        cdef block_run run
        cdef block_t one
        cdef int failed
        one.count, one.parts = 1, &self.sizes[number].part
        run.bases, run.owned, run.sizes = frame.own.bases, frame.own.owned, frame.own.sizes
        run.bufs = frame.pointers(self.stages.pointers)
        run.threads = max(1, threads)
        run.shares = NULL if threads < 2 else frame.shared(self.stages.steps)
        run.stop = _stop
        with nogil:
            failed = block_do(&one, &run)
        return _check(failed)
