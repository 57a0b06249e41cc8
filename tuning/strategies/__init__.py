"""Strategies of searching a space of schedules, all behind one interface.

In: a space, and the times of the points that were measured. Out: the points to measure next. `search` keeps what was
proposed and measured; a sampler decides what comes next; `choice` names the samplers.
"""
