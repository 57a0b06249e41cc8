"""Programs on disk: bundles that run without a compiler, and the cache of compiled programs.

In: a program, or the directory of one. Out: a checked bundle, or a program. File contents are validated first.
"""
