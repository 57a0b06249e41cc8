"""Cost and benefit of each standard rule over the model set; writes docs/measurements/rule-benefit.md.

python -m benchmarks.rules                    the measured set
python -m benchmarks.rules 'bert*' magika     some models; their records are renewed, the others stay
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from . import models
from .run import ROOT, start

Records = Mapping[str, Mapping[str, Any]]
_SEEN = 0.0005
"""Smallest relative change of the predicted cost that is not attributed to rounding."""


def records_file() -> Path:
    """File of the records of all runs."""
    return models.directory() / "rules.json"


def render(records: Records) -> str:
    """The whole document."""
    from rewrite.engine.rewriting.rule_library import load_rules, recognitions

    library = load_rules()
    every = sorted([*library.rules, *recognitions(library)], key=lambda r: (r.span.file, r.span.line))
    good = {name: record for name, record in records.items() if "rules" in record}
    rows = [_row(rule.name, Path(rule.span.file).stem, good) for rule in every]
    total = sum(record["saturate"] for record in good.values())
    counted = sum(row["seconds"] for row in rows)
    lines = [_HEAD.format(models=len(good), total=total, counted=counted, rules=len(rows))]
    lines += [
        "| rule | file | models | applied | in results | ms | worth | best on |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    used = [row for row in rows if row["applied"]]
    for row in used:
        worth = f"{100 * row['worth']:.2f} %" if row["worth"] >= _SEEN else ("≈ 0" if row["in_result"] else "")
        best = f"{row['best']} ({100 * row['best_worth']:.1f} %)" if row["best_worth"] >= _SEEN else ""
        lines.append(
            f"| `{row['rule']}` | {row['file']} | {row['models']} | {row['applied']} | {row['in_result']} "
            f"| {1e3 * row['seconds']:.1f} | {worth} | {best} |"
        )
    idle = [row for row in rows if not row["applied"]]
    spent = sum(row["seconds"] for row in idle)
    share = 100 * spent / total if total else 0.0
    lines += [
        "",
        "## Rules that no model of the set has a use for",
        "",
        f"{len(idle)} rules, {1e3 * spent:.0f} ms in all over the set, {share:.1f} % of saturation: "
        + ", ".join(f"`{row['rule']}`" for row in idle)
        + ".",
        "",
    ]
    failed = [name for name, record in records.items() if "rules" not in record]
    if failed:
        lines += [f"Not measured: {', '.join(failed)}.", ""]
    return "\n".join(lines)


_HEAD = """# Cost and benefit of the standard rules

Written by `python -m benchmarks.rules` from {models} models: {rules} rules, {total:.1f} s of saturation in all,
{counted:.1f} s of it spent on matching and applying single rules (the rest: rebuilding, inference, bookkeeping).

*models*: number of models it was applied in; *applied*: how often; *in results*: nodes that it made in the two
results (ONNX and native); *ms*: time for matching and applying it, summed over all models; *worth*: by how much the
predicted time of the native result grows without this rule, mean over the models in whose result it is; *best on*:
the model with the largest benefit. A rule that another can replace, or that only prepares a form for others, shows no
benefit of its own.
"""


def _row(name: str, file: str, records: Records) -> dict[str, Any]:
    found = {model: record["rules"][name] for model, record in records.items() if name in record["rules"]}
    gains = {model: one["without"]["native"] - 1 for model, one in found.items() if "native" in one.get("without", {})}
    best = max(gains, key=lambda model: gains[model], default="")
    return {
        "rule": name,
        "file": file,
        "models": sum(one["applied"] > 0 for one in found.values()),
        "applied": sum(one["applied"] for one in found.values()),
        "in_result": sum(one["in_result"] for one in found.values()),
        "seconds": sum(one["seconds"] for one in found.values()),
        "worth": sum(gains.values()) / len(gains) if gains else 0.0,
        "best": best,
        "best_worth": gains.get(best, 0.0),
    }


def main() -> None:
    """Measure the chosen models and write the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("patterns", nargs="*", help="shell patterns of model names; by default the measured set")
    parser.add_argument("--seconds", type=float, default=120.0, help="for leaving out rules, per model")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/measurements/rule-benefit.md")
    options = parser.parse_args()
    patterns = options.patterns
    names = [n for n in models.names() if any(fnmatch(n, p) for p in patterns)] if patterns else list(models.MEASURED)
    file = records_file()
    records = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for name in names:
        models.path(name)
        records[name] = start("rule_cost", [name, "--seconds", str(options.seconds)], 600 + options.seconds)
        file.write_text(json.dumps(records, indent=1), encoding="utf-8")
        text = records[name].get("error") or f"{len(records[name]['rules'])} rules, {records[name]['saturate']:.2f} s"
        print(f"{name:30} {text}", flush=True)
    options.output.write_text(render(records), encoding="utf-8")
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
