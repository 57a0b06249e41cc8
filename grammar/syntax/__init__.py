"""Syntax of rule files: text to syntax trees.

In: the text of a rule file; `rules.lark` is its grammar.
Out: a `RuleFile` of frozen nodes with source spans, comments beside it, and all syntax errors.
"""
