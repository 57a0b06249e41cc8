"""Support vector machines.

Input: a single node: SVMRegressor, SVMClassifier.
Output: one step, over the support vectors, whose features lie one after the other, and their weights.
"""
