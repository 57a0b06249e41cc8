"""Condition library: the closed set of functions that rules may call.

In: a rule context and evaluated arguments. Out: a value, or `Unprovable` where it is not known for sure.
Each module registers its functions in `FUNCTIONS` when it is imported.
"""

from . import (  # noqa: F401
    body_inlining,
    list_functions,
    loop_ranks,
    loop_transforms,
    number_functions,
    tensor_conditions,
    tensor_makers,
)
from .function_registry import FUNCTIONS

__all__ = ["FUNCTIONS"]
