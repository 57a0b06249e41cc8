"""Static checks: names, operators, functions, attributes and clauses exist and fit together.

In: the expanded items of all files, and the table of ONNX operators.
Out: diagnostics; `codes` explains each kind.
"""
