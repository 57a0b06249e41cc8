"""Code generation: pointwise programs as C, and kernels as the text of C modules.

Input: elementwise nodes, and kernels (a template with parameters) for a target.
Output: C statements and expressions, and rendered module sources that `backend/toolchain` compiles.
"""
