"""Ensembles of decision trees.

Input: a single node: TreeEnsembleRegressor, TreeEnsembleClassifier, TreeEnsemble.
Output: one step, over one array with the nodes of all trees.
"""
