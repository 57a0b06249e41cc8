"""Rule tests: the tests that stand beside rules in rule files.

In: rule files, or a library in memory.
Out: a result for each test; expectations updated in the files on request.
"""
