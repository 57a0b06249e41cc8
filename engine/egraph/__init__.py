"""E-graph: e-nodes in classes, with what is known of each class, over egglog.

In: a graph, and equalities that rules find. Out: classes of equal terms, matches of patterns. `egraph` holds the
tables, `analysis` types e-nodes, `matcher` adapts egglog, `encode` adds a graph.
"""
