"""The graph engine: ONNX in, equality saturation under rules, extraction, ONNX out."""
