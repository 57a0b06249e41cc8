"""Memory planning: which memory holds each value of a plan.

In: a plan, and extents at run time. Out: the buffer of each value, shared buffers, the offset of each buffer in an
arena, and the workspaces of loops.
"""
