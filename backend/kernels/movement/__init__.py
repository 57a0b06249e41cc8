"""Data movement: copies of strided boxes, gather and scatter, padding, resizing, index generators.

Input: a single node whose element positions are known in terms of dims or come from index tensors.
Output: one step, or a view or concat in place where nothing has to move.
"""
