"""The values that flow through the backend: kernels, targets, groups, the plan of a model, iteration spaces.

In: graphs of the engine. Out: plain data for planning, code generation and the runtime, and the context of lowerers.
"""
