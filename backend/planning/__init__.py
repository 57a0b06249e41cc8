"""Planning: which nodes become one kernel, and everything that needs none.

In: a graph, the fusion policy of the rules, a target. Out: the plan of the model, with steps that call kernels,
aliases, concatenations in place, versions by input sizes, and control flow.
"""
