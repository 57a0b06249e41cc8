"""Kernels: the lowering of groups of nodes to native code, one family per folder, templates beside their lowerers.

Input: a group of nodes and the lowering context (types, constants, target).
Output: steps that launch kernels, each a Jinja template with parameters; packed weights go into the context.
"""
