"""Meaning of ONNX operators on symbolic tensors.

In: a path, attributes and input tensors. Out: result tensors, as functions from an index to a scalar.
"""

from . import elementwise, linear, movement, quantization, reductions

# importing them registers their operators
__all__ = ["elementwise", "linear", "movement", "quantization", "reductions"]
