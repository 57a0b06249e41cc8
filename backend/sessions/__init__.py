"""Adapter to another package's interface: the backend interface of `onnx`.

In: nodes, models and arrays as that interface defines them. Out: their results, computed by a `Program`.
"""
