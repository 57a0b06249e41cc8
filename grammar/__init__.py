"""The rule language: text of rule files to checked, typed rules, and messages about what is wrong.

In: rule files, and the engine's table of ONNX operators (`operator_info`).
Out: a `Library` of syntax trees; diagnostics; formatted text; a language server. `docs/language.md` is the reference.
"""
