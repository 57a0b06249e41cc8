"""Extraction: from a saturated e-graph to a graph.

In: an e-graph, a cost model, the operators that may be used.
Out: the cheapest choice of nodes found, and from it a graph with provenance or a restricted e-graph.
"""
