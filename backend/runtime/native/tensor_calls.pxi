"""Direct calls on tensors, which give their address, shape and strides by methods: no array is made of an argument.

PyTorch makes an array of a tensor in 0.8 microseconds, and gives its address, shape and strides in 0.3."""


cdef enum:
    MOST_DIRECT = 64  # inputs of a program that direct calls are for


cdef class TensorCall:
    """A program on a list of arguments, some of which are weights and must be those that the program was made for.

    `weights` are rows `(number, tensor, address, version)`: the number of an argument, and what it must be; the version
    is None where tensors have none. `inputs` are rows `(number, type, order)`, one for each input of the program: the
    argument, its Python type, and its axes from the outermost to the innermost in memory. `wrap` makes a tensor of an
    array. Element types and devices of arguments are the caller's to check."""

    cdef object program
    cdef tuple tensors
    cdef tuple versions
    cdef tuple types
    cdef tuple orders
    cdef object wrap
    cdef int64_t* addresses  # of the weights
    cdef int* numbers  # of the weights, then of the inputs
    cdef int most  # the largest of the numbers
    cdef int weights

    def __cinit__(self, program, weights, inputs, wrap):
        cdef int i
        self.program, self.wrap = program, wrap
        self.tensors = tuple([row[1] for row in weights])
        self.versions = tuple([row[3] for row in weights])
        self.types = tuple([row[1] for row in inputs])
        self.orders = tuple([tuple(row[2]) for row in inputs])
        self.weights = len(self.tensors)
        self.most = -1
        self.addresses = <int64_t*> PyMem_Malloc(max(1, self.weights) * sizeof(int64_t))
        self.numbers = <int*> PyMem_Malloc(max(1, self.weights + len(self.types)) * sizeof(int))
        if self.addresses == NULL or self.numbers == NULL:
            raise MemoryError
        for i, row in enumerate([*weights, *inputs]):
            self.numbers[i] = row[0]
            if row[0] < 0:
                raise ValueError("no such argument")
            self.most = max(self.most, row[0])
            if i < self.weights:
                self.addresses[i] = row[2]

    def __dealloc__(self):
        PyMem_Free(self.addresses)
        PyMem_Free(self.numbers)

    def run(self, list args):
        """Return the outputs in a list; None, without effect, for other weights or sizes than those of an earlier run."""
        cdef Call call
        cdef Frame frame
        cdef call_view spans[MOST_DIRECT]
        cdef int i, ins = len(self.types)
        if len(args) <= self.most or ins > MOST_DIRECT or not self.is_current(args):
            return None
        for call in self.program._calls:
            if call.makes_all or call.ins != ins:
                continue
            for i in range(ins):
                if not self.fits(args[self.numbers[self.weights + i]], i, &call.ports[i], &spans[i]):
                    break
            else:
                frame = call.frames.pop() if call.frames else Frame(call.bases)
                try:
                    found = call.go_at(frame, spans)
                finally:
                    call.frames.append(frame)
                return [self.wrap(array) for array in found]
        return None

    cdef bint is_current(self, list args) except -1:
        """Return whether the weights are the same objects, with the same memory, unchanged."""
        cdef int i
        for i in range(self.weights):
            tensor = args[self.numbers[i]]
            if tensor is not self.tensors[i] or <int64_t> tensor.data_ptr() != self.addresses[i]:
                return False
            if self.versions[i] is not None and tensor._version != self.versions[i]:
                return False
        return True

    cdef bint fits(self, tensor, int number, const call_port* port, call_view* span) except -1:
        """Return whether a tensor is dense in its order of axes and has the sizes of a port; set its memory."""
        cdef tuple order = self.orders[number]
        cdef int at
        cdef Py_ssize_t axis, step = 1
        if type(tensor) is not self.types[number]:
            return False
        shape, strides = tensor.shape, tensor.stride()
        if not (isinstance(shape, tuple) and isinstance(strides, tuple)):
            return False
        if len(<tuple> shape) != port.ndim or len(<tuple> strides) != port.ndim or len(order) != port.ndim:
            return False
        for at in range(port.ndim - 1, -1, -1):
            axis = order[at]
            if not 0 <= axis < port.ndim or <Py_ssize_t> (<tuple> shape)[axis] != port.shape[at]:
                return False
            if port.nbytes and port.shape[at] != 1 and <Py_ssize_t> (<tuple> strides)[axis] != step:
                return False
            step *= port.shape[at]
        span.data, span.size = <char*> <uintptr_t> <int64_t> tensor.data_ptr(), port.nbytes
        return True
