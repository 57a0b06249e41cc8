"""Mutation testing of the soundness checker.

Every rule is altered in many small ways (`mutants`): a condition dropped, an operand or an axis mistaken, a bound off
by one. Most mutants are wrong, and the checker has to refute them. A brute-force search over small graphs (`oracles`),
which shares no code with the checker's generator of instances, decides which ones are. `score` compares the two: a
mutant that the search refutes and the checker passes is a hole in the checker.
"""

from .mutate import Mutant, mutants
from .search import Verdict, Witness, oracle, oracles

__all__ = ["Mutant", "Verdict", "Witness", "mutants", "oracle", "oracles"]
