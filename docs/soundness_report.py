"""Write `soundness-report.md` from what a run of the checker found, as `make soundness` does.

First `rewrite check rules/ --no-cache --json build/soundness.json`, then this on that file.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROOF = re.compile(
    r"proved for all sizes at (?P<where>.*?)(?:, for (?P<limits>.*?))? \((?P<cases>\d+) cases, by (?P<by>.*)\)"
)
KINDS = {
    "not modelled": "an operator, attribute or function has no meaning in the prover",
    "not shown equal": "neither normal forms nor the solver show it",
    "right side": "it does not follow that an operator of the right side is valid",
    "out of time": "too many cases, or too hard ones",
    "failed": "a mistake of the prover's own",
}
HEAD = """# How far each rule is checked

What `rewrite check rules/` found of the standard library, the layers as in [Are rules true?](soundness.md) and the
limits of a proof as in [Proofs](proofs.md). This page is made by `docs/soundness_report.py` from the checker's JSON.

"""


def table(titles: Sequence[str], rows: Sequence[Sequence[object]], numbers: Sequence[int] = ()) -> str:
    """A Markdown table; the columns in `numbers` are right-aligned."""
    rule = ["---:" if i in numbers else "---" for i in range(len(titles))]
    lines = [titles, rule, *([str(cell).replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def by_file(rules: Sequence[dict[str, Any]]) -> str:
    """How many rules of each file reached which layer."""
    rows: list[list[object]] = []
    files = sorted({Path(r["file"]).name for r in rules})
    for name, own in [*((f, [r for r in rules if Path(r["file"]).name == f]) for f in files), ("**all**", rules)]:
        proved = sum(r["layer"] == 3 for r in own)
        tested = sum(r["layer"] == 2 for r in own)
        failed = sum(r["verdict"] != "sound" for r in own)
        share = f"{100 * proved / len(own):.0f} %"
        rows.append([name, len(own), tested, proved, share, failed, sum(r["instances"] for r in own),
                     sum(r["fired"] for r in own), sum(r["near_misses"] for r in own)])  # fmt: skip
    titles = ("file", "rules", "tested only", "proved as well", "share", "failed", "instances", "fired", "near misses")
    return table(titles, rows, range(1, len(titles)))


def reasons(rules: Sequence[dict[str, Any]]) -> str:
    """Why rules are not proved, by the kind of reason, and what is not modelled."""
    found = [(r, *_reason(r)) for r in rules if r["layer"] == 2]
    kinds = Counter(kind for _, kind, _ in found)
    text = table(("reason", "rules", "means"), [(k, n, KINDS.get(k, "")) for k, n in kinds.most_common()], (1,))
    missing: dict[str, list[str]] = {}
    for r, kind, what in found:
        if kind == "not modelled":
            missing.setdefault(what, []).append(r["name"])
    rows = sorted(((w, len(n), names(n)) for w, n in missing.items()), key=lambda row: (-row[1], row[0]))
    text += f"\nWhat is not modelled:\n\n{table(('what', 'rules', 'which'), rows, (1,))}"
    for kind in kinds:
        if kind != "not modelled":
            which = sorted(r["name"] for r, k, _ in found if k == kind)
            text += f"\n**{kind}**: {names(which)}\n"
    return text


def _reason(rule: dict[str, Any]) -> tuple[str, str]:
    """The kind of a reason, and the rest of it."""
    kind, _, rest = rule["proof"].removeprefix("not proved: ").partition(": ")
    return kind or "not asked", rest


def names(rules: Sequence[str]) -> str:
    """Names of rules, as code."""
    return ", ".join(f"`{name}`" for name in rules)


def proofs(rules: Sequence[dict[str, Any]]) -> str:
    """The proved rules of each file, with ranks and what else bounds the proof."""
    text = ""
    for file in sorted({Path(r["file"]).name for r in rules if r["layer"] == 3}):
        rows = []
        for r in rules:
            if r["layer"] != 3 or Path(r["file"]).name != file:
                continue
            m = PROOF.fullmatch(r["proof"])
            assert m is not None, r["proof"]
            where = m["where"] + (f", {m['limits']}" if m["limits"] else "")
            rows.append((f"`{r['name']}`", r["class"], where, m["cases"], m["by"]))
        text += f"\n### {file}\n\n{table(('rule', 'class', 'proved for', 'cases', 'by'), rows, (3,))}"
    return text


def page(found: dict[str, Any]) -> str:
    """The whole page."""
    rules = found["rules"]
    proved = sum(r["layer"] == 3 for r in rules)
    text = HEAD + (
        f"{len(rules)} rules: {found['sound']} sound, {found['failed']} failed; {proved} of them proved for all sizes "
        f"({100 * proved / len(rules):.0f} %). The run took {found['seconds'] / 60:.1f} minutes.\n\n"
    )
    text += by_file(rules) + "\n## Not proved\n\n" + reasons(rules)
    return text + "\n## Proved\n" + proofs(rules)


def main(arguments: Sequence[str]) -> int:
    """Write the page from a file of JSON, beside this one or where the second argument says."""
    if not 1 <= len(arguments) <= 2:
        sys.stderr.write(__doc__ or "")
        return 2
    found = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    target = Path(arguments[1]) if len(arguments) == 2 else HERE / "soundness-report.md"
    target.write_text(page(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
