"""Mutation testing of the soundness checker: who watches the watchman?

Every rule is altered in many small ways (`mutants`): a condition is dropped, an operand or an axis is mistaken, a bound
is off by one. Most of what comes out is wrong, and the checker has to say so. Which of the mutants are wrong is found
by other means, a brute-force search over small graphs (`oracles`) that shares no code with the checker's own generator
of instances. `score` puts the two side by side: whatever the search refutes and the checker passes is a hole in the
checker.
"""

from .mutate import Mutant, mutants
from .search import Verdict, Witness, oracle, oracles

__all__ = ["Mutant", "Verdict", "Witness", "mutants", "oracle", "oracles"]
