"""The native backend: from an optimized graph to a program that runs; `pipeline.py` lists its stages.

In: a graph, the fusion policy of the rules, targets, a number of threads. Out: a `Program`, or a bundle of it on disk.
"""
