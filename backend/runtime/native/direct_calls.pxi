"""Direct calls: runs from arrays to arrays in one step, without Python in between."""


cdef bint _fits(const Py_buffer* view, const call_port* port) noexcept:
    """Return whether an array fits a port."""
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


cdef class Call:
    """A run for inputs of given types and sizes, of a program that is one block, and then stages whose sizes data
    determine. What comes after the block in rare cases is not done here: `rest` has the conditions of each such item, rows
    `(base, offset, wanted)`, and if all of one are met there is no result.

    `inputs` are rows `(name, kind, itemsize, shape, base)`, `outputs` rows `(name, kind, itemsize, shape, base, dtype,
    store, count)` with separate bases. `frames` are the free frames, each with `bases` bases; `memory` has rows `(base,
    bytes)` of what the block needs; `keep` holds the objects that the binding's addresses point to. If an output's
    `count` is not 0, a loop with a data-dependent number of iterations stacks it: that base holds their number, the
    output's base points to the stacked buffer, `shape` is that of one slice, and the store is None. `sharing` has pairs of
    an input's and an output's number that may be one array. `stages` has the values of the symbols that the sizes of the
    inputs determine (-1: others) and the offsets of the given parts; the outputs that they make have neither a count nor
    a store. Takes C-contiguous arrays by the buffer protocol; returns None, without effect, for other arguments."""

    cdef Block block
    cdef list frames
    cdef int bases
    cdef int threads
    cdef call_port* ports  # of inputs, then of outputs
    cdef int ins
    cdef int outs
    cdef bint stacks  # the first extent of some output is known after the block
    cdef readonly bint makes_all  # it accepts no arrays for outputs
    cdef readonly tuple names
    cdef readonly tuple out_names
    cdef tuple shapes
    cdef tuple dtypes
    cdef list stores  # those of stacked outputs are for what the latest run gave
    cdef tuple memory
    cdef tuple rest
    cdef char* shares  # for each input and output, whether they may be one array
    cdef Stages stages
    cdef tuple symbols
    cdef tuple parts
    cdef list staged  # free runs of the stages
    cdef list late  # stores of the outputs that they make, for what the latest run gave
    cdef object make
    cdef object keep

    def __cinit__(
        self, Block block, list frames, int bases, int threads, inputs, outputs, memory, keep, rest=(), sharing=(),
        Stages stages=None, symbols=(), parts=(),
    ):
        from numpy import ndarray

        cdef int i = 0, axis
        cdef call_port* port
        if block.frame_bases > bases:
            raise ValueError("too few bases")
        self.block = block
        self.frames = frames
        self.bases = bases
        self.threads = threads
        self.make = ndarray
        self.keep = keep
        self.names = tuple([row[0] for row in inputs])
        self.out_names = tuple([row[0] for row in outputs])
        self.shapes = tuple([tuple(row[3]) for row in outputs])
        self.dtypes = tuple([row[5] for row in outputs])
        self.stores = [Store(0) if row[7] else row[6] for row in outputs]
        self.stacks = any([row[7] for row in outputs])
        self.memory = tuple([(int(base), int(size)) for base, size in memory])
        self.rest = tuple([tuple(rows) for rows in rest])
        # An array for an output may be an input too, which items after the block may still read.
        self.makes_all = self.stacks or bool(self.rest) or stages is not None
        self.stages, self.symbols, self.parts, self.staged = stages, tuple(symbols), tuple(parts), []
        self.late = [None] * len(outputs)
        if stages is not None and (
            stages.frame_bases > bases or len(self.symbols) != stages.symbols or len(self.parts) != stages.given
            or stages.most_outputs > len(outputs)
        ):
            raise ValueError("these stages belong to another program")
        self.ins, self.outs = len(self.names), len(self.out_names)
        self.shares = <char*> PyMem_Malloc(max(1, self.ins * self.outs))
        if self.shares == NULL:
            raise MemoryError
        memset(self.shares, 0, max(1, self.ins * self.outs))
        for given, made in sharing:
            if not (0 <= given < self.ins and 0 <= made < self.outs):
                raise ValueError("no such input or output")
            self.shares[given * self.outs + made] = 1
        self.ports = <call_port*> PyMem_Malloc(max(1, self.ins + self.outs) * sizeof(call_port))
        if self.ports == NULL:
            raise MemoryError
        memset(self.ports, 0, max(1, self.ins + self.outs) * sizeof(call_port))
        for row in [*[(*row, None, None, 0) for row in inputs], *outputs]:
            port = &self.ports[i]
            port.kind = ord(row[1])
            port.itemsize = row[2]
            port.ndim = len(row[3])
            port.base, port.count = row[4], row[7]
            if not (0 <= port.base < bases and (port.base or i < self.ins) and 0 <= port.count < bases):
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
            port = &self.ports[self.ins + i]
            if self.stores[i] is None and stages is None:
                raise ValueError("an output that nothing makes")
            if not port.count and self.stores[i] is not None and (<Store?> self.stores[i]).size < port.nbytes:
                raise ValueError("a store of too small buffers")
        for base, _ in self.memory:
            if not 0 < base < bases:
                raise ValueError("no such base")

    def __dealloc__(self):
        cdef int i
        if self.ports != NULL:
            for i in range(self.ins + self.outs):
                PyMem_Free(self.ports[i].shape)
        PyMem_Free(self.ports)
        PyMem_Free(self.shares)

    def run(self, dict inputs, tuple out=None):
        """Return the outputs by name, for inputs by name: in fresh arrays, or those of `out` (one for each output, or None).

        None if a name is missing or an array does not fit."""
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
        """Run by position; return the outputs in a list."""
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
        cdef int i, taken = 0
        if self.makes_all and out is not None:
            return None
        try:
            try:
                for value in values:
                    PyObject_GetBuffer(value, &views[taken], PyBUF_FORMAT | PyBUF_C_CONTIGUOUS)
                    taken += 1
                    if not _fits(&views[taken - 1], &self.ports[taken - 1]):
                        return None
                found = self.targets(out)
                for value in found:
                    if value is None:
                        memset(&views[taken], 0, sizeof(Py_buffer))
                        taken += 1
                        continue
                    PyObject_GetBuffer(value, &views[taken], PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
                    taken += 1
                    if out is not None and not _fits(&views[taken - 1], &self.ports[taken - 1]):
                        return None
            except (BufferError, TypeError, ValueError):
                return None
            for i in range(self.ins + self.outs):
                frame.spans[i].data, frame.spans[i].size = <char*> views[i].buf, views[i].len
            if not self.place(frame, out is not None):
                return None
            self.block.launch(frame, self.threads)
            if self.rest and self.unfinished(frame):
                return None
            if self.stages is not None and not self.go_on(frame, found):
                return None
            if out is not None:
                call_copy_out(&frame.own, self.ports, frame.spans, self.ins, self.outs)
            elif self.stacks:
                self.take_stacked(frame, found)
            return found
        finally:
            while taken:
                taken -= 1
                PyBuffer_Release(&views[taken])

    cdef list go_at(self, Frame frame, const call_view* spans):
        """Run on memory that fits the inputs; return the outputs in fresh arrays. Not for a call that `makes_all`."""
        cdef list found = self.targets(None)
        cdef Py_buffer* views = frame.buffers(self.ins + self.outs)
        cdef int i, taken = 0
        try:
            for value in found:
                PyObject_GetBuffer(value, &views[self.ins + taken], PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
                taken += 1
            for i in range(self.ins):
                frame.spans[i] = spans[i]
            for i in range(self.ins, self.ins + self.outs):
                frame.spans[i].data, frame.spans[i].size = <char*> views[i].buf, views[i].len
            self.place(frame, False)
            self.block.launch(frame, self.threads)
        finally:
            while taken:
                taken -= 1
                PyBuffer_Release(&views[self.ins + taken])
        return found

    cdef bint unfinished(self, Frame frame) except -1:
        """Return whether items after the block must run."""
        for rows in self.rest:
            for base, offset, wanted in rows:
                if frame.flag(base, offset) != wanted:
                    break
            else:
                return True
        return False

    cdef bint go_on(self, Frame frame, list found) except -1:
        """Run the later stages and add their outputs. False if their sizes cannot be evaluated: no result is lost by that."""
        cdef StagedRun run = self.staged.pop() if self.staged else StagedRun(self.stages, self.parts)
        cdef stage_sizes* sizes
        cdef const stage_t* stage
        cdef int i, k
        try:
            for i in range(self.stages.symbols):
                run.symbols[i] = self.symbols[i]
            for i in range(self.stages.count):
                if not run.begin(i, frame):
                    return False
                stage, sizes = &self.stages.stages[i], &run.sizes[i]
                for k in range(stage.outputs):
                    if not self.add_output(run, &stage.output[k], frame, found):
                        return False
                frame.hold(stage.arena, sizes.arena)
                frame.hold(SCRATCH, sizes.scratch * max(1, self.threads))
                if stage.steps:
                    run.launch(i, frame, self.threads)
        finally:
            self.staged.append(run)
        return True

    cdef bint add_output(self, StagedRun run, const stage_output* output, Frame frame, list found) except -1:
        """Point the base of an output at a fresh array."""
        cdef int64_t size
        cdef tuple shape = run.shape(output, &size)
        cdef int number = output.number
        cdef Store store = self.late[number]
        cdef Buffer buffer
        if shape is None:
            return False
        if store is None or not size <= store.size <= 2 * size + 4096:
            self.late[number] = store = Store(size + size // 8)  # the next run's may be a bit larger
        buffer = store.take()
        frame.own.bases[output.base] = <int64_t> <uintptr_t> memory_place(buffer.memory, store.size)
        found[number] = self.make(shape, self.dtypes[number], buffer)
        return True

    cdef list targets(self, tuple out):
        """Return the arrays for outputs: those given, else fresh ones; None for outputs whose sizes data determine."""
        cdef list found = []
        cdef int i
        for i in range(self.outs):
            if out is not None and out[i] is not None:
                found.append(out[i])
            elif self.ports[self.ins + i].count or self.stores[i] is None:
                found.append(None)
            else:
                found.append(self.make(self.shapes[i], self.dtypes[i], (<Store> self.stores[i]).take()))
        return found

    cdef bint place(self, Frame frame, bint given) except -1:
        """Point the frame's bases at the arrays, or at copies of those that kernels cannot use in place.

        False if two outputs share memory."""
        cdef int placed = call_place(&frame.own, self.ports, frame.spans, self.ins, self.outs, given, self.shares)
        if placed == CALL_NO_MEMORY:
            raise MemoryError("for copies of arrays")
        if placed != CALL_PLACED:
            return False
        for base, size in self.memory:
            frame.hold(base, size)
        return True

    cdef int take_stacked(self, Frame frame, list found) except -1:
        """Return outputs that a loop has stacked as fresh arrays; the next run reuses their buffers."""
        cdef int i
        cdef int64_t count
        cdef Py_ssize_t size
        cdef call_port* port
        cdef Store store
        cdef Buffer buffer
        for i in range(self.outs):
            port = &self.ports[self.ins + i]
            if not port.count:
                continue
            count = frame.own.bases[port.count]
            size = count * port.nbytes
            store = self.stores[i]
            if store.size != max(1, size):
                self.stores[i] = store = Store(size)
            buffer = store.take()
            if size:
                memcpy(memory_place(buffer.memory, buffer.store.size), frame.own.owned[port.base], size)
            found[i] = self.make((count, *self.shapes[i]), self.dtypes[i], buffer)
        return 0
