"""Language server for rule files: one module per feature; `server` registers them.

In: document text and editor requests over LSP, and `Services` that the command line supplies from the engine.
Out: diagnostics, completions, hovers, edits, and lenses that run tests and soundness checks.
"""
