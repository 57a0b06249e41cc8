"""Verification: is the result of optimization the same as the original?

In: two models, or a model and a program, and a numerics class.
Out: largest errors over generated inputs; on failure, the rules at fault and a reproducer.
"""
