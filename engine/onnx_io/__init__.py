"""Import and export of ONNX models: files, external data, opsets, the protobuf wire format.

In: a path, bytes or a `ModelProto`; a graph. Out: a graph at the working opset; a `ModelProto` or a file. `importer`
and `exporter` convert in the two directions; `opsets` translates operators; `model_file` reads tensors.
"""
