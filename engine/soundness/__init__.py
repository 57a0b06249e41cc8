"""Trust in rules: does a rule say something true?

Three layers, each stronger than the one before:

1. *static*: the rule parses, its names are bound, its types agree (done when it is loaded);
2. *tested*: instances are drawn from its pattern, its conditions and its own tests, special values and near misses
   among them; both sides are computed and compared under the numerics class that the rule claims (`check`);
3. *proved*: for the fragment that can be, for tensors of any size (`prove`).

`check_rule` answers for one rule, `check` for many, over several processes. What they find is a `RuleReport`, whose
`counterexample` is as small as shrinking could make it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from .report import DEFAULT, Budget, Counterexample, RuleReport

if TYPE_CHECKING:
    from ...grammar import ast
    from ...grammar.library import Library

__all__ = ["Budget", "Counterexample", "RuleReport", "check", "check_rule"]


def check_rule(rule: ast.Rule, library: Library, *, budget: Budget = DEFAULT) -> RuleReport:
    """Checks one rule against drawn instances; the same budget gives the same report, time aside.

    `rule` need not be one of `library`, which says what operators mean (`op` declarations)."""
    from .search import check_rule as run

    return run(rule, library, budget)


def check(
    library: Library,
    rules: Iterable[ast.Rule] | None = None,
    *,
    budget: Budget = DEFAULT,
    workers: int | None = None,
    prove: bool = True,
    cache: Path | None = None,
    progress: Callable[[RuleReport], None] | None = None,
) -> list[RuleReport]:
    """Checks rules of a library (all, unless said otherwise) in several processes; reports in the rules' order.

    `workers` is by default the number of cores. `prove` has the prover look at what was tested without fault. Reports
    are kept in the directory `cache`, if given, by the content of rule, library and checker. `progress` is called with
    each report as it is made, in any order."""
    from .parallel import check as run

    return run(library, rules, budget=budget, workers=workers, prove=prove, cache=cache, progress=progress)
