"""Data of pictures: graphs folded by scope, and the equal forms of a value, as plain JSON values.

In: graphs with provenance, cost models, e-graphs with extractions. Out: dicts that `pages` shows and `--json` writes.
"""
