"""Symbolic terms, independent of any path: integers, scalars and their algebraic laws.

In and out: immutable values in normal form, which are equal if they are the same expression.
"""
