"""Tensors of other libraries by DLPack, where NumPy lacks their element type."""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_SetName


cdef extern from *:
    """
    #include <stdint.h>
    typedef struct { int32_t device_type, device_id; } dl_device;
    typedef struct { uint8_t code, bits; uint16_t lanes; } dl_dtype;
    typedef struct {
      void* data; dl_device device; int32_t ndim; dl_dtype dtype; int64_t* shape; int64_t* strides; uint64_t byte_offset;
    } dl_tensor;
    typedef struct dl_managed { dl_tensor tensor; void* context; void (*deleter)(struct dl_managed*); } dl_managed;
    """
    ctypedef struct dl_device:
        int32_t device_type
    ctypedef struct dl_dtype:
        unsigned char code
        unsigned char bits
        unsigned short lanes
    ctypedef struct dl_tensor:
        void* data
        dl_device device
        int32_t ndim
        dl_dtype dtype
        int64_t* shape
        int64_t* strides
        unsigned long long byte_offset
    ctypedef struct dl_managed:
        dl_tensor tensor
        void (*deleter)(dl_managed*) noexcept


cdef enum:
    DL_CPU = 1


@cython.final
cdef class Shared:
    """The tensor in a DLPack capsule, which gets consumed: an exporter of its memory as bytes or 16-bit words.

    `code` is DLPack's number of the element type. Raises ValueError for other devices and element sizes. The protocol
    is that of https://dmlc.github.io/dlpack/latest/, version 0: later versions make such capsules unless asked."""

    cdef dl_managed* managed
    cdef Py_ssize_t* sizes  # the shape, then the strides in bytes
    cdef Py_ssize_t itemsize

    def __cinit__(self, capsule):
        cdef dl_managed* found = <dl_managed*> PyCapsule_GetPointer(capsule, "dltensor")
        cdef int ndim = found.tensor.ndim, axis
        cdef Py_ssize_t step
        if found.tensor.device.device_type != DL_CPU:
            raise ValueError("the tensor is not on the CPU")
        if found.tensor.dtype.lanes != 1 or found.tensor.dtype.bits not in (8, 16):
            raise ValueError("the elements have neither 8 nor 16 bits")
        self.itemsize = found.tensor.dtype.bits // 8
        self.sizes = <Py_ssize_t*> PyMem_Malloc(max(1, 2 * ndim) * sizeof(Py_ssize_t))
        if self.sizes == NULL:
            raise MemoryError
        step = self.itemsize
        for axis in range(ndim - 1, -1, -1):
            self.sizes[axis] = found.tensor.shape[axis]
            self.sizes[ndim + axis] = step if found.tensor.strides == NULL else (
                found.tensor.strides[axis] * self.itemsize
            )
            step *= self.sizes[axis]
        PyCapsule_SetName(capsule, "used_dltensor")
        self.managed = found

    @property
    def code(self):
        return self.managed.tensor.dtype.code

    def __getbuffer__(self, Py_buffer* view, int flags):
        cdef dl_tensor* tensor = &self.managed.tensor
        cdef Py_ssize_t count = 1
        cdef int axis
        for axis in range(tensor.ndim):
            count *= self.sizes[axis]
        view.obj = self
        view.buf = <char*> tensor.data + tensor.byte_offset
        view.len = count * self.itemsize
        view.itemsize = self.itemsize
        view.readonly = 0
        view.format = b"H" if self.itemsize == 2 else b"B"
        view.ndim = tensor.ndim
        view.shape = self.sizes
        view.strides = self.sizes + tensor.ndim
        view.suboffsets = NULL
        view.internal = NULL

    def __dealloc__(self):
        PyMem_Free(self.sizes)
        if self.managed != NULL and self.managed.deleter != NULL:
            self.managed.deleter(self.managed)
