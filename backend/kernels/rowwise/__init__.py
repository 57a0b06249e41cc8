"""Elementwise groups, reductions and normalizations: memory-bound loops over rows or columns.

Input: a group whose prologue and epilogue are pointwise programs around at most one anchor.
Output: one step (two for ReduceLogSumExp) over collapsed, strided iteration spaces.
"""
