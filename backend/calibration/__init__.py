"""Calibration: kernels of our own, timed on this machine, for the constants of the cost model.

In: nothing but the machine. Out: samples, nodes with the time of the kernel that computes them. `suite` lists the
kernels as small networks, `timing` compiles and times them. `engine/cost/fitting.py` fits constants to the samples.
"""
