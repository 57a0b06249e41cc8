"""Static types of rules: what every name stands for, and rules that can never fire.

In: expanded rules, operators and fuses, with the table of ONNX schemas.
Out: a `Type` for each name, and diagnostics for parts whose types exclude each other.
"""

from __future__ import annotations

from .infer import Typing, infer
from .type import Type

__all__ = ["Type", "Typing", "infer"]
