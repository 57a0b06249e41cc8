"""Verification: is the result of optimization the same as the original?

In: two models, or a model and a program, and a numerics class.
Out: largest errors over made-up inputs; on failure, the rules to blame and a reproducer.
"""
