"""Values shared by all rooms: graphs, tensor types, symbolic dims, constants, values of rule expressions.

In: nothing but NumPy arrays and ONNX protocol buffers. Out: immutable values (graphs are mutable only while built).
`graph` and `symbolic` are the core; `protos` converts from and to ONNX; `bodies` handles the graphs inside nodes.
"""
