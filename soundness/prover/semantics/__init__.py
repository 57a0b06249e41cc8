"""Meaning of ONNX operators on symbolic tensors.

In: a path, attributes and input tensors. Out: result tensors, as functions from an index to a scalar.
"""

from . import einsum, elementwise, linear, movement, quantization, reductions, sequences

# importing them registers their operators
__all__ = ["einsum", "elementwise", "linear", "movement", "quantization", "reductions", "sequences"]
