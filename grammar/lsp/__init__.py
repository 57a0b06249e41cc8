"""The language server of rule files: one module per feature, and `server` that puts them together.

It knows no engine: what operators mean, what tests and checks say, comes through `services.Services`.
"""
