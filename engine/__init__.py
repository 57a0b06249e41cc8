"""The graph engine: equality saturation over ONNX graphs; `pipeline.py` lists its stages.

In: an ONNX model, rules, `Options`. Out: two equivalent graphs, one in standard operators at the model's opset, one for
native kernels, with a report.
"""
