"""The condition library: the closed set of functions that rules may call.

Every function is total in the sense of rules: for arguments it cannot answer it raises `Unprovable` (or one of Python's
value errors, which the evaluator takes for it), and the rule does not fire. Functions named like an operator (`sqrt`,
`abs`) build it when given a tensor on a right side and compute when given numbers or, in conditions, contents.
"""

from . import bodies, dtypes, lists, make, numbers, tensors
from .registry import FUNCTIONS

__all__ = ["FUNCTIONS", "bodies", "dtypes", "lists", "make", "numbers", "tensors"]
