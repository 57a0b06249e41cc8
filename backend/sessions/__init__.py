"""Adapters to other packages' interfaces: `onnxruntime.InferenceSession` and the backend interface of `onnx`.

In: models and arrays as those interfaces define them. Out: their results, computed by a `Program`.
"""
