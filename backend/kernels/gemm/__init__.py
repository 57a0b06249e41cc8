"""Matrix products and attention in f32 and bf16, and what all GEMM-like kernels share: micro-kernel tiles, epilogues.

Input: a matrix product read into a `GemmProblem`, with the epilogue of its group.
Output: the GEMM step, preceded by a step that packs B or rounds A where needed, or dot products where columns are few.
"""
