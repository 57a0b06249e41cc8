"""Tuning: schedules of a model's kernels, searched by measurement.

In: a graph and a budget of time. Out: records of the schedules that are faster than the formulas' ones, which every
later compile on this machine uses (`backend/schedules`). Candidates are compiled here and run in a child process.
"""
