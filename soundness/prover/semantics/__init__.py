"""Meaning of ONNX operators on symbolic tensors.

In: a path, attributes and input tensors. Out: result tensors, as functions from an index to a scalar.
"""

from . import elementwise, linear, movement, reductions

__all__ = ["elementwise", "linear", "movement", "reductions"]  # importing them registers their operators
