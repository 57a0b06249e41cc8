"""HTML pages without a network: data as JSON in, one self-contained file out.

In: plain JSON values, as docs/json.md describes them. Out: a page with the data, the scripts that draw it, and the
libraries of `vendor/`. Nothing here knows of models; docs/report.md shows the pages.
"""
