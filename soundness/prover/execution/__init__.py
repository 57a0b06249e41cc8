"""Symbolic execution of a rule: its pattern, conditions and right side.

In: a rule and a path. Out: the symbolic tensors of both sides, and facts on the path.
"""
