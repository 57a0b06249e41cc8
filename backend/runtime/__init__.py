"""Running: programs, their interface, control flow and fallbacks in Python, profiles, and the native executor.

In: a plan, its buffer assignment and the addresses of its kernels; arrays. Out: arrays.
"""
