"""Rewriting: compiled rules that match, prove their conditions and build their right sides.

In: rule files, an e-graph, rows that egglog found.
Out: admitted rules and schedules; for a row, bindings and new e-nodes, or the reason why the rule does not apply.
"""
