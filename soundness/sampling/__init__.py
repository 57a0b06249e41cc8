"""Instances of a rule: operands that fill in its pattern.

In: a rule. Out: instances from its tests and its pattern, and edits of these, as values and as nodes of an e-graph.
"""
