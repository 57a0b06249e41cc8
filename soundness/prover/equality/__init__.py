"""Equality of two scalars under a numerics class.

In: two scalars on a path. Out: the method by which they were shown equal, or nothing.
"""
