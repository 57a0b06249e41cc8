"""What a user passes as a model, normalized: files, bytes, protos, `onnx_ir` models, modules and programs of PyTorch.

In: any of those, with example inputs for a module. Out: a path, bytes, a `ModelProto` or a `DetachedModel`, which the
importer reads. PyTorch is imported only for its own objects, in functions, since importing it takes seconds."""
