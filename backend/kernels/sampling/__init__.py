"""Sampling: images read at positions that are data, between their pixels.

Input: a single node: GridSample, RoiAlign, MaxRoiPool or DeformConv.
Output: one step. The weights of a position are computed once and used for all channels.
"""
