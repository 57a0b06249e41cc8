"""Ensembles of decision trees.

Input: a single node: TreeEnsembleRegressor, TreeEnsembleClassifier.
Output: one step, over one array with the nodes of all trees.
"""
