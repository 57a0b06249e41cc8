"""Printing: syntax trees back to text, and the formatter.

In: a syntax tree, with the source text if comments and spellings are to stay.
Out: text in the project's layout, which parses to an equal tree.
"""
