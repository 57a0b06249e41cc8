"""The C library: loads and runs bundles without Python, on the core that the executor uses as well (`native`).

In: the directory of a bundle with `plan.bin`. Out: outputs in memory of the caller. `rewrite.h` is its interface.
"""
