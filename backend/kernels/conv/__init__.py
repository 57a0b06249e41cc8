"""Convolution and pooling in f32 and bf16, NCHW and NHWC: implicit GEMM, Winograd, depthwise, pooling, transposed.

Input: a Conv-like node, read once into a `ConvProblem` or a `Window`, with the epilogue of its group.
Output: the step of the kernel that the cost models estimate to be fastest, and its packed filters.
"""
