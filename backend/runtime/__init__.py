"""The prebuilt runtime: thread pool, arena and the walker of the kernel list, as Cython extensions."""
