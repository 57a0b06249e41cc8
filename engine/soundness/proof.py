"""Layer 3: what the prover makes of a rule that was tested without fault."""

from __future__ import annotations

import dataclasses
import importlib.util
import time

from ...grammar import ast
from ...grammar.library import Library
from .report import RuleReport


def prove_report(report: RuleReport, rule: ast.Rule, library: Library) -> RuleReport:
    """The report with what the prover says; unchanged where there is no solver (the extra `prove`)."""
    if importlib.util.find_spec("z3") is None:
        return report
    from .prove import Proof, prove

    start = time.perf_counter()
    found = prove(rule, library)
    seconds = time.perf_counter() - start
    if isinstance(found, Proof):
        return dataclasses.replace(report, layer=3, proof=str(found), proved_seconds=seconds)
    return dataclasses.replace(report, proof=f"not proved: {found.reason}", proved_seconds=seconds)
