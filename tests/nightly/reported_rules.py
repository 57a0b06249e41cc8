"""Check the whole set of rules written after bug reports: `python -m tests.nightly.reported_rules [--jobs N]`.

Prints a line per family and each rule that is judged wrongly; the exit code is 1 if one is. Takes some 20 minutes of
processor time."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from rewrite.grammar.library.load import Library
from rewrite.grammar.syntax import ast
from rewrite.soundness import RuleReport, check
from rewrite.soundness.prover import Proof, prove
from rewrite.system.process_pool import in_order, usable_cores

from ..soundness.reported import Reported, load

_LIBRARY: list[Library] = []


def _start() -> None:
    _LIBRARY.append(load()[0])


def _proof(rule: ast.Rule) -> str:
    found = prove(rule, _LIBRARY[0])
    return str(found) if isinstance(found, Proof) else ""


def mistake(one: Reported, report: RuleReport, proof: str) -> str:
    """Return how a rule was judged wrongly; empty if it was not."""
    if one.right:
        return "" if report.verdict == "sound" else str(report)
    if proof:
        return f"{one.name}: wrong, and {proof}"
    return "" if report.verdict in ("unsound", "weak") else f"{one.name}: wrong, and {report.verdict}"


def main(arguments: Sequence[str]) -> int:
    """Check all rules, have the prover try the wrong ones as well, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=usable_cores())
    jobs = parser.parse_args(arguments).jobs
    library, rules = load()
    reports = check(library, [one.rule for one in rules], workers=jobs, prove=False)
    wrong = [one.rule for one in rules if not one.right]
    proofs = dict(zip((r.name for r in wrong), in_order(_proof, wrong, jobs=jobs, start=_start), strict=True))
    families: dict[str, Counter[str]] = {}
    mistakes = []
    for one, report in zip(rules, reports, strict=True):
        family = f"{'right' if one.right else 'wrong'} {one.name.partition('-')[0]}"
        families.setdefault(family, Counter())[report.verdict] += 1
        mistakes += [text for text in [mistake(one, report, proofs.get(one.rule.name, ""))] if text]
    for family, counts in sorted(families.items()):
        sys.stdout.write(f"{family}: {', '.join(f'{n} {verdict}' for verdict, n in sorted(counts.items()))}\n")
    sys.stdout.write("".join(f"{text}\n" for text in mistakes))
    sys.stdout.write(f"{len(rules)} rules, {len(mistakes)} judged wrongly\n")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
