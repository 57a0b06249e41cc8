"""Saturation: rules run to a fixpoint within budgets, in a process of its own.

In: an e-graph, admitted rules, a schedule, limits.
Out: the saturated e-graph with a report, or the reason why one rule did not fire.
"""
