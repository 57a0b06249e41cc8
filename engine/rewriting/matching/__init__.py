"""Matching: from the left side of a rule to the bindings of its variables.

In: compiled rules, rows that egglog found, a rule context.
Out: bindings, or `Unprovable` with the reason why a row is not a match.
"""
