"""Layer 2 of `rewrite check`: running rules on instances and comparing both sides.

In: rules, their library and a budget. Out: reports, and counterexamples as small as shrinking can make them.
"""
