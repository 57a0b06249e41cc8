"""Libraries: rule files with everything they use, checked as a whole.

In: paths of rule files and directories, and the table of ONNX operators.
Out: a `Library` of expanded items, loaded from the on-disk store if no file has changed.
"""
