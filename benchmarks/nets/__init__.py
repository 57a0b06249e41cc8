"""The networks of the zoo as PyTorch modules with seeded weights: `zoo` says which and at what sizes, `exports` writes
them as ONNX."""
