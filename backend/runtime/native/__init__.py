"""The native runtime as Cython extensions: thread pool, memory, walks over kernels, loops."""
