"""Room of trails: the rule applications that lead from a model to its optimized form, and a checker that repeats them.

Input: the stages of the pipeline with their e-graphs, or a model, an optimized model and a trail file. Output: a trail,
its text, or the first step that does not hold.

A trail is checked without egglog, compiled patterns or matching: `instances` compares each side of a rule with the
terms that the trail names, `replay` proves the conditions from the model's facts and merges classes in plain tables.
"""
