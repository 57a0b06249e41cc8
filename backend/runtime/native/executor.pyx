"""The executor: runs native steps on all threads, without the GIL, in the memory of a frame.

A `Walk` is a sequence of steps, independent of sizes. A `Binding` adds the offsets and dims that follow from the extents
of the inputs. A `Loop` is one of ONNX's Loops or Scans, a `Block` bindings and loops in order, a `Frame` the memory of one
run in progress. `Stages` are blocks whose sizes data determine. Each pointer that a kernel gets is a base of the frame plus an offset of the binding; base 0 is the
address 0, whose offsets are addresses. A `Call` runs a whole program without Python in between: from arrays to arrays in
one step.

All of it is one extension module, because a process has one thread pool.
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
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint32_t, uintptr_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset


cdef extern from "memory.h" nogil:
    const size_t MEMORY_OFFSET
    void* memory_take(size_t size)
    void* memory_place(void* block, size_t size)


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
    double walk_clock()


cdef extern from "frame.h" nogil:
    ctypedef struct frame_t:
        int count
        int64_t* bases
        void** owned
        size_t* sizes
    int frame_make(frame_t* frame, int count)
    void frame_free(frame_t* frame)
    int frame_hold(frame_t* frame, int base, size_t size)
    void** frame_pointers(frame_t* frame, int count)
    walk_share* frame_shares(frame_t* frame, int count)


cdef extern from "call.h" nogil:
    enum:
        CALL_PLACED
        CALL_NO_MEMORY
    ctypedef struct call_port:
        char kind
        int ndim
        int base
        int count
        Py_ssize_t itemsize
        Py_ssize_t nbytes
        Py_ssize_t* shape
    ctypedef struct call_view:
        char* data
        size_t size
    int call_place(
        frame_t* frame, const call_port* ports, const call_view* views, int ins, int outs, int given, const char* shares
    )
    void call_copy_out(const frame_t* frame, const call_port* ports, const call_view* views, int ins, int outs)


include "steps.pxi"
include "memory.pxi"
include "blocks.pxi"
include "stages.pxi"
include "direct_calls.pxi"
include "tensor_calls.pxi"
include "dlpack.pxi"
include "maps.pxi"
