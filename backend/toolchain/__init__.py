"""From source to machine code: the C compiler, the cache of compiled kernels, loading of modules.

In: kernels and a target. Out: the address of each kernel's function, and the shared objects for bundles.
"""
