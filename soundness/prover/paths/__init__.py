"""Case analysis: the choices and facts of one path, and the tensors and types that depend on them.

In: options and conditions. Out: plain values on each path, and answers of the solver about symbolic integers.
"""
