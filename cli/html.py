"""The report for a browser: one HTML file with all it needs in itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>rewrite: {{ model }}</title>
<style>
  :root { color-scheme: light dark; --line: #8884; --dim: #888; --bar: #3b82f6; }
  body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
  h1 { font-size: 1.3rem; overflow-wrap: anywhere; } h2 { font-size: 1.05rem; margin-top: 2rem; }
  table { border-collapse: collapse; width: 100%; }
  th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line); }
  td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
  .dim { color: var(--dim); } .bar { background: var(--bar); height: .6rem; border-radius: .2rem; min-width: 1px; }
  .cards { display: flex; flex-wrap: wrap; gap: 1rem; } .card { border: 1px solid var(--line); border-radius: .5rem;
  padding: .75rem 1rem; flex: 1 1 10rem; } .card b { display: block; font-size: 1.4rem; }
</style>
<h1>{{ model }}</h1>
<div class="cards">
  <div class="card">nodes<b>{{ nodes_before }} → {{ nodes_after }}</b></div>
  <div class="card">predicted time<b>{{ ms(cost_before) }} → {{ ms(cost_after) }}</b></div>
  <div class="card">verification<b>{{ verdict }}</b></div>
  {% if bench %}<div class="card">measured, {{ bench.threads }} threads
    {% for name, t in bench.engines.items() %}<b>{{ ms(t.median) }}</b><span class="dim">{{ name }}</span>{% endfor %}
  </div>{% endif %}
</div>
<h2>Time by stage</h2>
<table>
{% for stage, s in seconds.items() %}
  <tr><td>{{ stage }}</td><td class="n">{{ "%.2f s"|format(s) }}</td>
  <td style="width:60%"><div class="bar" style="width:{{ (100 * s / longest)|round(1) }}%"></div></td></tr>
{% endfor %}
</table>
<h2>E-graph</h2>
<table>{% for key, value in egraph.items() %}
  <tr><td>{{ key }}</td><td class="n">{{ value }}</td></tr>{% endfor %}
</table>
<h2>Rules</h2>
<table>
  <tr><th>rule</th><th>where</th><th class="n">matches</th><th class="n">applied</th><th class="n">nodes made</th></tr>
{% for rule in rules %}
  <tr><td>{{ rule.name }}</td><td class="dim">{{ rule.file|basename }}:{{ rule.line }}</td>
  <td class="n">{{ rule.matches }}</td>
  <td class="n">{{ rule.applied }}</td><td class="n">{{ rule.in_result }}</td></tr>
{% endfor %}
</table>
{% if fallbacks %}<h2>Operators without a native kernel</h2>
<p>{% for op, n in fallbacks.items() %}{{ op }} ×{{ n }} {% endfor %}</p>{% endif %}
<h2>Outputs</h2>
<table>{% for kind, path in outputs.items() %}<tr><td>{{ kind }}</td><td>{{ path }}</td></tr>{% endfor %}</table>
</html>
"""


def write_report(data: Mapping[str, Any], target: Path) -> None:
    """Write the results of a run (as docs/json.md describes them) as an HTML page."""
    import jinja2

    from . import tables
    from .results import write_text

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["basename"] = lambda path: Path(path).name
    values = {"bench": None, "fallbacks": {}, **data}
    values["rules"] = sorted((r for r in data["rules"] if r["matches"]), key=lambda r: (-r["in_result"], r["name"]))
    ok = data["verify"].get("ok")
    values["verdict"] = "not done" if ok is None else "passed" if ok else "failed"
    longest = max(data["seconds"].values(), default=0) or 1
    page = environment.from_string(_PAGE).render(**values, ms=tables.milliseconds, longest=longest)
    write_text(page, target)
