"""Soundness of rules: are both sides of a rule equal?

In: rules and their library. Out: a `RuleReport` per rule, with the highest layer that it reached and, if it is wrong, a
shrunk counterexample. `sampling` makes instances of a rule, `checking` runs and compares them, `prover` proves rules.

Three layers, each stronger than the one before:

1. *static*: the rule parses, its names are bound, its types agree (checked when it is loaded);
2. *tested*: both sides compute the same on sampled instances, special values and near misses among them (`check`);
3. *proved*: both sides are equal for tensors of any size, for the rules within the prover's reach.
"""

from .checking.check_rule import check, check_rule
from .checking.report import Budget, Counterexample, RuleReport

__all__ = ["Budget", "Counterexample", "RuleReport", "check", "check_rule"]
