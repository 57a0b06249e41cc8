"""Planning: groups of nodes that become kernels, and the items that need none.

In: a graph, the fusion policy of the rules, a target. Out: the plan of the model, with steps that call kernels,
aliases, concatenations in place, versions by input sizes, and control flow.
"""
